"""Deadlines of many calls in one queue with one task, which forgets those that were met in time.

A cancel scope around each call would cost several times the call. Times are trio's, in seconds, so a virtual clock
drives them; what is to happen at a deadline is the business of whoever set it. A process that stood still, stopped or
busy, judges nothing before it has had time to read what came meanwhile: answers, and words of peers that seem idle.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

import trio

_SWEEP_MIN: Final = 1_024
_LATE_S: Final = 0.1
"""A deadline that is judged so late shows that this process stood still."""
_READ_S: Final = 1.0
"""Time to read what came meanwhile: as long as the deadline is late, and no longer than this."""


class Timed(Protocol):
    """An object that can have a deadline."""

    @property
    def waiting(self) -> bool:
        """Its deadline must still be judged."""

    def expire(self, now: float) -> None:
        """The deadline has come, and it was waiting. May set another; must not raise."""


class Deadlines:
    """Memory is bounded by twice those that wait."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timed]] = []
        self._serial = 0
        self._sweep_at = _SWEEP_MIN
        self._scope: trio.CancelScope | None = None
        self._wakes_at = -math.inf

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, deadline: float, timed: Timed) -> None:
        """Let ``timed`` expire at ``deadline`` unless it no longer waits by then."""
        if len(self._heap) >= self._sweep_at:
            self._heap = [entry for entry in self._heap if entry[2].waiting]
            heapify(self._heap)
            self._sweep_at = max(_SWEEP_MIN, 2 * len(self._heap))
        self._serial += 1
        heappush(self._heap, (deadline, self._serial, timed))
        if deadline < self._wakes_at:
            assert self._scope is not None
            self._scope.deadline = self._wakes_at = max(deadline, trio.current_time())

    async def run(self) -> None:
        """Let them expire, until cancelled."""
        while True:
            self._wakes_at = self._heap[0][0] if self._heap else math.inf
            with trio.CancelScope(deadline=self._wakes_at) as self._scope:
                try:
                    await trio.sleep_forever()
                finally:
                    late_s, self._wakes_at = trio.current_time() - self._wakes_at, -math.inf
            if late_s > _LATE_S:
                await trio.sleep(min(late_s, _READ_S))
            now = trio.current_time()
            while self._heap and (self._heap[0][0] <= now or not self._heap[0][2].waiting):
                _, _, timed = heappop(self._heap)
                if timed.waiting:
                    timed.expire(now)
