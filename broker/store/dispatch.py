"""Hands messages of the log to queues and index, which are built of them, and never more than they may see.

It knows runs of outlines and who takes them, and no file. Source: ``ReputMessageService`` and
``CommitLogDispatcherBuildConsumeQueue`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.store.log import Log, Run
from remoting.hashing import java_hash
from remoting.record import TAGS, property_of, value_behind

SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
DELAYS_MS: Final = tuple(1000 * seconds for seconds in (
    1, 5, 10, 30, *(60 * minutes for minutes in range(1, 11)), 1_200, 1_800, 3_600, 7_200))
"""Delays of RocketMQ's ``messageDelayLevel`` in milliseconds; the first is that of level 1."""
_RUN_BYTES: Final = 256 << 10
_TAGS_MAX: Final = 4_096
_LATEST_MS: Final = (1 << 63) - 1


def in_queue(sys_flag: int) -> bool:
    """Return whether a message has a place in a queue: prepared and rolled back ones have none."""
    return not sys_flag & 4


class TagCodes:
    """Computes the code that filters compare: the hash of the tag, or for a delayed message the time when it is due."""

    def __init__(self, delays_ms: Sequence[int] = DELAYS_MS) -> None:
        self._delays_ms = delays_ms
        self._known: dict[bytes, int] = {}

    def code(self, topic: bytes, properties: bytes, store_time_ms: int) -> int:
        if topic == SCHEDULE_TOPIC:
            level = property_of(properties, b"DELAY")
            if level is not None and level.isdigit() and len(level) < 10 and int(level) > 0:
                due_ms = store_time_ms + self._delays_ms[min(int(level), len(self._delays_ms)) - 1]
                return min(due_ms, _LATEST_MS)
        tags = value_behind(properties, TAGS)
        if tags is None:
            return 0
        code = self._known.get(tags)
        if code is None:
            if len(self._known) >= _TAGS_MAX:
                self._known.clear()
            code = self._known[tags] = java_hash(tags.decode(errors="replace"))
        return code


class Dispatcher:
    """Hands the messages of the log to ``take``, in order, each once unless ``take`` raises."""

    def __init__(self, log: Log, offset: int, take: Callable[[Run], None], *,
                 cached: bool = True) -> None:
        """``cached`` False: what it reads by itself was read by others before."""
        self._log, self._take, self._cached = log, take, cached
        self.offset = offset
        """Everything below has been handed over."""
        self.time_ms = 0
        """Store time of the last message that was handed over."""
        self._mean_bytes = 1.0
        """Mean size of the messages that were handed over last, in bytes of the log."""

    def dispatch(self, upto: int, most: int, also: Dispatcher | None = None) -> int:
        """Hand over messages that end at or below ``upto``, ``most`` at most. Returns how many there were.

        ``also`` stands at the same offset, and is handed the same.

        Raises:
            DamagedRecord: the log cannot be read there.
        """
        assert also is None or also.offset == self.offset, "one run is handed to both"
        count = 0
        while count < most and self.offset < upto:
            run, offset = self._log.run(self.offset, upto, most - count, ask=_RUN_BYTES, cached=self._cached)
            if not run:
                break
            self._hand_over(run, offset)
            if also is not None:
                also._hand_over(run, offset)
            count += len(run)
            assert self.offset <= upto, "nobody is told of what may not be seen yet"
        assert count <= most
        return count

    def behind(self, upto: int) -> int:
        """Estimate how many messages lie between ``offset`` and ``upto``, from the mean size of those handed over
        last."""
        assert self.offset <= upto
        return int((upto - self.offset) / self._mean_bytes)

    def _hand_over(self, run: Run, offset: int) -> None:
        assert self.offset <= run[0][0] < offset, "messages are handed over in order, each once"
        self._take(run)
        self._mean_bytes = (offset - self.offset) / len(run)
        self.offset, self.time_ms = offset, run[-1][5]
