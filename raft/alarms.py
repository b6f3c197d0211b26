"""Deadlines of callers. Callers with a deadline of their own stand in a heap that drops those answered in time; all
others wait equally long, in turn.

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
    """A place where callers wait, all of them equally long."""

    deadline: int
    done: bool
    """True once nobody waits there any more."""


InTurnT = TypeVar("InTurnT", bound=InTurn)


class Alarms(Generic[PlaceT]):
    """Deadlines (ns) of tasks, each with the place it waits in. Holds at most twice as many as there are tasks that
    wait."""

    def __init__(self, waits: Callable[[PlaceT, Task], bool]) -> None:
        """``waits(place, task)`` says whether the task still waits in this place."""
        self._waits = waits
        self._heap: list[tuple[int, int, PlaceT, Task]] = []
        self._latest: dict[Task, int] = {}
        """Task -> serial of its one valid alarm: a task waits in one place at a time."""
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
        """Drop the alarm of a task that left by itself. It may wait in the same place again, with another deadline or
        with none."""
        self._latest.pop(task, None)

    def _meant(self, serial: int, _place: PlaceT, task: Task) -> bool:
        return self._latest.get(task) == serial

    def next(self) -> int | None:
        """Return the earliest deadline that is set, else None."""
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
    """Return the earliest deadline of both kinds. Drops places at the front where nobody waits any more."""
    while in_turn and in_turn[0].done:
        in_turn.popleft()
    alarm = alarms.next()
    if not in_turn:
        return alarm
    return in_turn[0].deadline if alarm is None else min(alarm, in_turn[0].deadline)
