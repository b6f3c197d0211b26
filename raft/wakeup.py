"""Two ways to wake a trio task that cost less than an ``Event``, for code that wakes hundreds of thousands a second.

Knows trio's low level and nothing of Raft.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

import outcome
from trio.lowlevel import Abort, RaiseCancelT, Task, current_task, reschedule, wait_task_rescheduled

ResultT = TypeVar("ResultT")


class _Woken(outcome.Outcome[None]):
    """Wakes a task, which then looks for itself what happened. One object serves all: unlike ``Value`` it is never used
    up."""

    def unwrap(self) -> None:
        return None

    def send(self, gen: Generator[ResultT, None, object]) -> ResultT:
        return gen.send(None)

    async def asend(self, agen: AsyncGenerator[ResultT, None]) -> ResultT:
        return await agen.asend(None)


WOKEN = _Woken()


def abandon(_: RaiseCancelT) -> Abort:
    """Let a parked caller be cancelled: the abort function of all of them. A waker sees that it no longer waits.

    Trio clears ``custom_sleep_data`` of a task that stops waiting, so a waker compares that with what it set.
    """
    return Abort.SUCCEEDED


def wake(task: Task, waits_for: object) -> bool:
    """Wake ``task`` if it still waits for this object. Return whether it did."""
    if task.custom_sleep_data is waits_for:
        reschedule(task, WOKEN)
        return True
    return False


def fail(task: Task, waits_for: object, error: BaseException) -> None:
    """Raise ``error`` in ``task`` if it still waits for this object."""
    if task.custom_sleep_data is waits_for:
        reschedule(task, outcome.Error(error))


class Bell:
    """Wakes the one task that waits for it. Several rings before that task runs count as one."""

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
        """Return at once if it rang since the last return, else at the next ring. Only a checkpoint if it waits."""
        if not self._rung:
            assert self._task is None, "one task waits for a bell"
            self._task = current_task()
            await wait_task_rescheduled(self._leave)
        self._rung = False  # rings before this task ran count as the one that woke it

    def _leave(self, _: RaiseCancelT) -> Abort:
        self._task = None
        return Abort.SUCCEEDED


