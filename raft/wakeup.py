"""Two ways to wake a trio task that cost less than an ``Event``, for paths that wake hundreds of thousands a second.

Knows trio's low level and nothing of Raft.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

import outcome
from trio.lowlevel import Abort, RaiseCancelT, Task, current_task, reschedule, wait_task_rescheduled

ResultT = TypeVar("ResultT")


class _Woken(outcome.Outcome[None]):
    """Says: carry on, look for yourself what happened. One serves every task: unlike ``Value`` it is never used up."""

    def unwrap(self) -> None:
        return None

    def send(self, gen: Generator[ResultT, None, object]) -> ResultT:
        return gen.send(None)

    async def asend(self, agen: AsyncGenerator[ResultT, None]) -> ResultT:
        return await agen.asend(None)


WOKEN = _Woken()


def abandon(_: RaiseCancelT) -> Abort:
    """Abort function of every parked caller: it may go; whoever would wake it sees that it no longer waits.

    Trio clears ``custom_sleep_data`` of a task that stops waiting, so a waker compares that with what it set.
    """
    return Abort.SUCCEEDED


def wake(task: Task, waits_for: object) -> bool:
    """Wake ``task`` if it still waits for this object. Whether it did."""
    if task.custom_sleep_data is waits_for:
        reschedule(task, WOKEN)
        return True
    return False


def fail(task: Task, waits_for: object, error: BaseException) -> None:
    """Raise ``error`` in ``task`` if it still waits for this object."""
    if task.custom_sleep_data is waits_for:
        reschedule(task, outcome.Error(error))


class Bell:
    """Wakes the one task that waits for it; rings before that task has its turn are one ring."""

    __slots__ = ("_rung", "_task")

    def __init__(self) -> None:
        self._rung = False
        self._task: Task | None = None

    def ring(self) -> None:
        task = self._task
        if task is None:
            self._rung = True
        else:
            self._task = None
            reschedule(task, WOKEN)

    async def wait(self) -> None:
        """Return at once if it rang since the last return, else at the next ring. A checkpoint only if it waits."""
        if not self._rung:
            assert self._task is None, "one task waits for a bell"
            self._task = current_task()
            await wait_task_rescheduled(self._leave)
        self._rung = False  # what rang again before this task had its turn is one with what woke it

    def _leave(self, _: RaiseCancelT) -> Abort:
        self._task = None
        return Abort.SUCCEEDED


