"""Deadlines of callers: of those who brought one of their own, in a heap that forgets whoever was answered in time, and
of those who wait in turn, as long as everybody.

Knows tasks and numbers; decides nothing about the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from trio.lowlevel import Task

PlaceT = TypeVar("PlaceT")
SWEEP_MIN = 1_024


class InTurn(Protocol):
    """A place where callers wait as long as everybody."""

    deadline: int
    done: bool
    """Nobody waits there any more."""


InTurnT = TypeVar("InTurnT", bound=InTurn)


class Alarms(Generic[PlaceT]):
    """(deadline, ns) of tasks, each with the place it waits in. Memory is bounded by twice the tasks that wait."""

    def __init__(self, waits: Callable[[PlaceT, Task], bool]) -> None:
        """``waits``: whether this task waits in this place still."""
        self._waits = waits
        self._heap: list[tuple[int, int, PlaceT, Task]] = []
        self._latest: dict[Task, int] = {}
        """The one alarm that is meant for a task, by its serial: a task waits in one place at a time."""
        self._serial = 0
        self._sweep_at = SWEEP_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, deadline: int, place: PlaceT, task: Task) -> None:
        """Remember ``task``, which waits in ``place``, until ``deadline``."""
        if len(self._heap) >= self._sweep_at:
            self._heap = [entry for entry in self._heap if self._meant(*entry[1:]) and self._waits(entry[2], entry[3])]
            heapify(self._heap)
            self._latest = {entry[3]: entry[1] for entry in self._heap}
            self._sweep_at = max(SWEEP_MIN, 2 * len(self._heap))
        self._serial += 1
        heappush(self._heap, (deadline, self._serial, place, task))
        self._latest[task] = self._serial

    def forget(self, task: Task) -> None:
        """``task`` left by itself. It may wait in the same place again, with another deadline or with none."""
        self._latest.pop(task, None)

    def _meant(self, serial: int, _place: PlaceT, task: Task) -> bool:
        return self._latest.get(task) == serial

    def next(self) -> int | None:
        """The earliest deadline that is set, else None."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Iterator[tuple[PlaceT, Task]]:
        """Take out those whose deadline has come. Some may have been answered meanwhile."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, serial, place, task = heappop(heap)
            if self._meant(serial, place, task):
                del self._latest[task]
                yield place, task


def first_due(in_turn: deque[InTurnT], alarms: Alarms[Any]) -> int | None:
    """The earliest deadline of both kinds. Lets go of the places at the front where nobody waits any more."""
    while in_turn and in_turn[0].done:
        in_turn.popleft()
    alarm = alarms.next()
    if not in_turn:
        return alarm
    return in_turn[0].deadline if alarm is None else min(alarm, in_turn[0].deadline)
