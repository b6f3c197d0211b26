"""Decides which files of the log are old enough to delete, and when the disk is too full to write: decisions only.

Time, hour and room are numbers that are given. A file is as old as the first message behind it, not as the time that
the system last wrote it, so a copied store keeps its messages as long as the original does.
Source: ``CleanCommitLogService`` of RocketMQ 5.5.0, which deletes ten files however young where one would have done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

_MS_PER_HOUR: Final = 3_600_000
HYSTERESIS_PERCENT: Final = 1


def _hours(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    try:
        if all(0 <= int(hour) <= 23 for hour in value.split(";") if hour.strip()):
            return
    except ValueError:
        pass
    raise ValueError(f"deleteWhen is {value!r}; hours of the day with semicolons between them are meant, such as 04;16")


@attrs.frozen
class RetentionConfig:
    """Keys of ``MessageStoreConfig`` and their defaults; ratios are percents of the disk, times hours."""

    file_reserved_time: int = 72
    delete_when: str = attrs.field(default="04", validator=_hours)
    disk_max_used_space_ratio: int = 75
    """Above it old files go at any hour."""
    disk_space_clean_forcibly_ratio: int = 85
    """Above it the oldest files go though they are not old enough, if ``clean_file_forcibly_enable``."""
    disk_space_warning_level_ratio: int = 90
    """Above it nothing is written."""
    clean_file_forcibly_enable: bool = False
    """True in Java, where a disk that others filled deletes messages that nobody read."""
    delete_files_batch_max: int = 10
    """At one time, as in Java."""

    @property
    def young_go_above(self) -> int:
        """Return the share of the disk above which young files go: below the share at which nothing is written."""
        return min(self.disk_space_clean_forcibly_ratio, self.disk_space_warning_level_ratio)

    @property
    def old_go_above(self) -> int:
        """Return the share of the disk above which old files go: before young ones do, as in Java."""
        above = min(self.disk_max_used_space_ratio, self.young_go_above)
        assert above <= self.young_go_above <= self.disk_space_warning_level_ratio, "files go, then writes are refused"
        return above

    @property
    def hours(self) -> frozenset[int]:
        return frozenset(int(hour) for hour in self.delete_when.split(";") if hour.strip())


def refusal(config: RetentionConfig, used_ratio: float, *, refuses: bool = False) -> str:
    """Return why nothing may be written, "" if all is well. A broker that ``refuses`` already goes on refusing until a
    percent more is free."""
    used, most = 100 * used_ratio, config.disk_space_warning_level_ratio
    if used <= most - refuses * HYSTERESIS_PERCENT:
        return ""
    return (f"the disk is {used:.0f}% full, above diskSpaceWarningLevelRatio ({most}%): nothing is written until there "
            "is room")


def old_files(config: RetentionConfig, newest_ms: Sequence[int], now_ms: int, hour: int, used_ratio: float,
              file_ratio: float) -> int:
    """Return how many files to delete, from the oldest on. ``newest_ms`` has, for each file but the last, oldest first,
    the time when its last message was stored, or a little later. ``file_ratio`` is one file's share of the disk.

    The clean ratio is at most the warning level, the max ratio at most the clean ratio.

    ========================= ======================================================================
    disk used                 deleted
    ========================= ======================================================================
    above the clean ratio     forcibly: the oldest, however young, until it is not above it any more; and old ones
    above the max ratio       old ones
    less                      old ones, at the hours of deletion
    ========================= ======================================================================
    """
    used = 100 * used_ratio
    forcibly = config.clean_file_forcibly_enable and used > config.young_go_above
    if not (forcibly or used > config.old_go_above or hour in config.hours):
        return 0
    count = 0
    for newest in newest_ms[: config.delete_files_batch_max]:
        needed = forcibly and used - 100 * file_ratio * count > config.young_go_above
        if not needed and now_ms - newest < config.file_reserved_time * _MS_PER_HOUR:
            break
        count += 1
    assert count <= min(len(newest_ms), config.delete_files_batch_max)
    return count
