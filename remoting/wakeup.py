"""A bell that wakes one trio task for less than an ``Event`` costs; rung hundreds of thousands of times a second.

Knows trio's low level and nothing of connections.
"""

from __future__ import annotations

import outcome
from trio.lowlevel import Abort, RaiseCancelT, Task, current_task, reschedule, wait_task_rescheduled


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
            reschedule(task, outcome.Value(None))

    async def wait(self) -> None:
        """Return at once if it rang since the last return, else at the next ring. A checkpoint only if it waits."""
        if self._rung:
            self._rung = False
            return
        assert self._task is None, "one task waits for a bell"
        self._task = current_task()
        await wait_task_rescheduled(self._leave)

    def _leave(self, _: RaiseCancelT) -> Abort:
        self._task = None
        return Abort.SUCCEEDED
