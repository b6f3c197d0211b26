"""When to flush, and who waits for it: decisions only, with time as a number. Knows no file.

Source: ``FlushRealTimeService`` and ``GroupCommitService`` of RocketMQ 5.5.0. Unlike theirs, a failed flush answers
every waiter at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

PAGE_BYTES = 4096

T = TypeVar("T")


@attrs.frozen
class AsyncFlush:
    """Every ``interval_ms`` if so many pages are dirty, every ``thorough_ms`` if anything is."""

    interval_ms: int = 500
    least_pages: int = 4
    thorough_ms: int = 10_000

    def due(self, since_last_ms: float, dirty_bytes: int) -> bool:
        """``since_last_ms``: since the last flush began."""
        if dirty_bytes <= 0:
            return False
        return since_last_ms >= self.thorough_ms or (
            since_last_ms >= self.interval_ms and dirty_bytes >= self.least_pages * PAGE_BYTES)


@attrs.frozen
class SyncFlush:
    """As soon as anything is dirty: what comes while a flush is under way shares the next one."""

    timeout_ms: int = 5_000

    def due(self, since_last_ms: float, dirty_bytes: int) -> bool:
        return dirty_bytes > 0


FlushPolicy = AsyncFlush | SyncFlush


class FlushWaiters(Generic[T]):
    """Who waits until the log is flushed up to an offset. Offsets never fall, for the log only grows."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int, T]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, offset: int, deadline_ns: int, waiter: T) -> None:
        """``offset``: behind the last byte of the waiter's message."""
        assert not self._waiting or offset >= self._waiting[-1][0], "a log does not grow backwards"
        self._waiting.append((offset, deadline_ns, waiter))

    def flushed(self, offset: int) -> list[T]:
        """Those who need not wait any more."""
        return self._taken(lambda entry: entry[0] <= offset)

    def expired(self, now_ns: int) -> list[T]:
        """Those who have waited too long; their messages are kept, and may be flushed later."""
        return self._taken(lambda entry: entry[1] <= now_ns)

    def failed(self) -> list[T]:
        """All of them: there will be no flush."""
        return self._taken(lambda entry: True)

    def _taken(self, ready: Callable[[tuple[int, int, T]], bool]) -> list[T]:
        waiting, taken = self._waiting, []
        while waiting and ready(waiting[0]):
            taken.append(waiting.popleft()[2])
        return taken
