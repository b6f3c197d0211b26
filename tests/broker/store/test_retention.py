"""Which files go, by time and by room; when nothing is written."""

from __future__ import annotations

import attrs
import pytest

from broker.store.retention import RetentionConfig, old_files, refusal

HOUR = 3_600_000
CONFIG = RetentionConfig(clean_file_forcibly_enable=True)
NOW = 1_000 * HOUR
AGES = (200, 100, 72, 71, 5)
"""Of files, in hours."""


@pytest.mark.parametrize(("used", "hour", "deleted", "refused"), [
    (0.10, 3, 0, False), (0.10, 4, 3, False), (0.75, 3, 0, False), (0.76, 3, 3, False), (0.85, 3, 3, False),
    (0.86, 3, 5, False), (0.90, 3, 5, False), (0.91, 3, 5, True),
])
def test_the_table(used: float, hour: int, deleted: int, refused: bool) -> None:
    assert old_files(CONFIG, [NOW - age * HOUR for age in AGES], NOW, hour, used, 0.0) == deleted
    assert bool(refusal(CONFIG, used)) == refused


@pytest.mark.parametrize(("ratios", "used", "deleted"), [
    ((88, 85, 90), 0.85, 0), ((88, 85, 90), 0.86, 5), ((95, 85, 90), 0.86, 5),
    ((88, 95, 80), 0.80, 0), ((88, 95, 80), 0.81, 5),
])
def test_files_go_before_nothing_is_written_whatever_the_order_of_the_ratios(
    ratios: tuple[int, int, int], used: float, deleted: int,
) -> None:
    most, clean, warning = ratios
    config = RetentionConfig(
        disk_max_used_space_ratio=most, disk_space_clean_forcibly_ratio=clean, disk_space_warning_level_ratio=warning)
    files = [NOW - age * HOUR for age in AGES]
    assert old_files(attrs.evolve(config, clean_file_forcibly_enable=True), files, NOW, 3, used, 0.0) == deleted
    assert old_files(config, files, NOW, 3, used, 0.0) == min(3, deleted), "old ones alone, unless the file asks"


def test_limits() -> None:
    old = [0] * 30
    assert old_files(CONFIG, old, NOW, 4, 0.1, 0.0) == 10, "no more at one time"
    assert old_files(CONFIG, [0, NOW, 0], NOW, 4, 0.1, 0.0) == 1, "never one in the middle"
    assert old_files(CONFIG, [], NOW, 4, 0.95, 0.0) == 0
    assert refusal(CONFIG, 0.95) == (
        "the disk is 95% full, above diskSpaceWarningLevelRatio (90%): nothing is written until there is room")
    assert RetentionConfig(delete_when="04;16").hours == {4, 16}


@pytest.mark.parametrize("used", [0.1, 0.8, 0.86, 0.95, 1.0])
@pytest.mark.parametrize("hour", [3, 4])
def test_nothing_young_goes_where_nobody_asked_for_it(used: float, hour: int) -> None:
    found = old_files(RetentionConfig(), [NOW - age * HOUR for age in AGES], NOW, hour, used, 0.02)
    assert found == (3 if hour == 4 or used > 0.75 else 0)


def test_who_refuses_goes_on_until_a_percent_more_is_free() -> None:
    assert not refusal(CONFIG, 0.9)
    assert refusal(CONFIG, 0.9, refuses=True) and refusal(CONFIG, 0.895, refuses=True)
    assert not refusal(CONFIG, 0.89, refuses=True)


@pytest.mark.parametrize(("used", "deleted"), [(0.86, 1), (0.87, 1), (0.88, 2), (0.95, 5), (1.0, 8)])
def test_no_more_young_files_go_than_have_to(used: float, deleted: int) -> None:
    assert old_files(CONFIG, [NOW] * 30, NOW, 3, used, 0.02) == deleted
    assert old_files(CONFIG, [0] * 4 + [NOW] * 9, NOW, 3, used, 0.02) == max(4, deleted), "old ones go as ever"


@pytest.mark.parametrize("wrong", ["24", "x", "4,16", "-1"])
def test_hours_that_are_none(wrong: str) -> None:
    with pytest.raises(ValueError, match="deleteWhen is"):
        RetentionConfig(delete_when=wrong)
