"""Ways to wake a trio task that cost less than an ``Event``, for paths that wake a hundred thousand a second.

Knows trio's low level and nothing of connections.
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


class Bell:
    """Wakes the one task that waits for it; rings in between are one ring."""

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
        self._rung = False  # rings before this turn count as one

    def _leave(self, _: RaiseCancelT) -> Abort:
        self._task = None
        return Abort.SUCCEEDED
