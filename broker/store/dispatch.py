"""From the log to the queues: what consumers may see. It never passes the confirm offset.

It knows outlines of records and who takes them, and no file. Source: ``ReputMessageService`` and
``CommitLogDispatcherBuildConsumeQueue`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from broker.store.commitlog import CommitLog
from broker.store.consumequeue import java_hash
from broker.store.record import PREPARED, ROLLBACK, Outline, property_of

SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
DELAYS_MS: Final = tuple(1000 * seconds for seconds in (
    1, 5, 10, 30, *(60 * minutes for minutes in range(1, 11)), 1_200, 1_800, 3_600, 7_200))
"""Of ``messageDelayLevel``: level 1 is the first."""

Take = Callable[[Outline, int], None]
"""A record, and the code of its tag."""


def in_queue(sys_flag: int) -> bool:
    """Prepared and rolled back messages have no place in a queue and take no queue offset."""
    return sys_flag & ROLLBACK not in (PREPARED, ROLLBACK)


def tags_code(topic: bytes, properties: bytes, store_time_ms: int, delays_ms: tuple[int, ...] = DELAYS_MS) -> int:
    """What a filter compares: the hash of the tag; of a delayed message the time when it is due."""
    if topic == SCHEDULE_TOPIC:
        level = property_of(properties, b"DELAY")
        if level is not None and level.isdigit() and len(level) < 10 and int(level) > 0:
            return store_time_ms + delays_ms[min(int(level), len(delays_ms)) - 1]
    tags = property_of(properties, b"TAGS")
    return _tag_hash(tags) if tags else 0


@lru_cache(4096)
def _tag_hash(tag: bytes) -> int:
    return java_hash(tag.decode(errors="replace"))


class Dispatcher:
    """Hands each message of the log to ``take``, once, in order."""

    def __init__(self, log: CommitLog, offset: int, take: Take) -> None:
        self._log, self._take = log, take
        self.offset = offset
        """Everything below has been handed over."""

    def dispatch(self, confirm_offset: int, most: int) -> int:
        """Go on to the last message that ends at or below ``confirm_offset``, ``most`` messages at most; returns how
        many there were.

        Raises:
            DamagedRecord: the log cannot be read there.
        """
        count = 0
        for found in self._log.scan(self.offset, confirm_offset, check_crc=False):
            self._take(found, tags_code(found[6], found[7], found[5]) if in_queue(found[4]) else 0)
            self.offset = found[0] + found[1]
            count += 1
            if count == most:
                break
        return count
