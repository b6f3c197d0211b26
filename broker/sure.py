"""What a file may say of the log: values that were true at some end of it, kept back until the disk has that much.

Some files are synced sooner than the log. What they say must not outlive a loss of power that takes the reason for it.
A core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


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
