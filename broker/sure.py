"""Values that were true at some end of the log: kept back until the disk has that much, or known again after a cut.

Some files are synced sooner than the log. What they say must not outlive a loss of power that takes the reason for it.
Nor must what a broker believes outlive a cut of its log, behind which another master's goes on.
A core.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
PAST_MAX: Final = 1_000
"""Values that ``Past`` keeps; after a cut further back the first of them counts."""


class Sure(Generic[T]):
    """``value`` holds whatever the power does. One newer value waits at a time, so that none pile up."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._waits: tuple[int, T] | None = None

    @property
    def waits(self) -> bool:
        return self._waits is not None

    def offer(self, end: int, make: Callable[[], T]) -> None:
        """``make`` returns what is true of the log up to ``end``. It is not called while another value waits."""
        if self._waits is None:
            self._waits = end, make()

    def flushed(self, offset: int) -> bool:
        """The disk has the log below that offset. Returns whether ``value`` changed."""
        if self._waits is None or self._waits[0] > offset:
            return False
        self.value, self._waits = self._waits[1], None
        return True

    def latest(self, end: int, flushed: int, make: Callable[[], T]) -> T:
        """Return ``value`` now that the disk has the log below ``flushed``; a newer one waits for the log's ``end``."""
        self.flushed(flushed)
        self.offer(end, make)
        self.flushed(flushed)
        return self.value

    def cut(self, end: int) -> None:
        """The log was cut at ``end``: a value that waits for more of it is void."""
        if self._waits is not None and self._waits[0] > end:
            self._waits = None


class Past(Generic[T]):
    """The values of something that the log is the reason for, each with an end of the log at which it was true."""

    def __init__(self, value: T) -> None:
        """``value`` is true wherever the log ends."""
        self._known: deque[tuple[int, T]] = deque([(0, value)])

    def note(self, end: int, value: T) -> None:
        """``value`` is true now that the log ends at ``end``, or of a log that ends there."""
        known = self._known
        if known[-1][1] == value:
            return
        while known and known[-1][0] >= end:
            known.pop()
        known.append((end, value))
        if len(known) > PAST_MAX:
            known.popleft()

    def cut(self, end: int) -> T:
        """The log is cut at ``end``: return what was true there."""
        known = self._known
        while len(known) > 1 and known[-1][0] > end:
            known.pop()
        return known[-1][1]
