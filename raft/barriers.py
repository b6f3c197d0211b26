"""Read barriers, which callers wait at until they may read: gathered, asked of the core, granted, applied.

All callers of one level in one pass of the scheduler share one ticket and so one question. Knows tasks and
deadlines; the guarantee itself is the core's (``reads``, ``following``). Reading the state machine is the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs
from trio.lowlevel import Task, current_task, wait_task_rescheduled

from raft import arguments
from raft.alarms import Alarms, first_due
from raft.config import MS, Config, Read
from raft.errors import Busy, RaftError, Rejected, RejectReason
from raft.messages import ReadReady
from raft.wakeup import Bell, abandon, fail, wake


@attrs.define(eq=False)
class Barrier:
    """Callers who are answered together."""

    level: Read
    ticket: int = 0
    index: int = 0
    lease: bool = False
    deadline: int = 0
    tasks: list[Task] = attrs.Factory(list)
    """Callers who wait as long as the default timeout."""
    patient: list[Task] = attrs.Factory(list)
    """Callers with a deadline of their own."""
    done: bool = False

    def finish(self, make: Callable[[], RaftError] | None) -> None:
        """Let the callers read, or raise in each an error of its own."""
        self.done = True
        for task in (*self.tasks, *self.patient):
            if make is None:
                wake(task, self)
            else:
                fail(task, self, make())
        self.tasks.clear()
        self.patient.clear()


class Barriers:
    """All read barriers of one node. ``bell`` rings when the flusher has barriers to ask about."""

    def __init__(self, config: Config, clock: Callable[[], int], bell: Bell, rearm: Callable[[int], None]) -> None:
        self._clock, self._bell, self._rearm = clock, bell, rearm
        self._timeout_ns, self._max = config.propose_timeout_ms * MS, config.reads_pending_max
        self._refusal: Callable[[], RaftError] | None = None
        self._gathering: dict[Read, Barrier] = {}
        self._again: deque[Barrier] = deque()
        self._asked: dict[int, Barrier] = {}
        self._granted: list[Barrier] = []
        self._expiring: deque[Barrier] = deque()
        self._alarms = Alarms[Barrier](lambda barrier, task: task.custom_sleep_data is barrier)
        self._ticket = 0

    def __len__(self) -> int:
        places = (*self._gathering.values(), *self._again, *self._asked.values(), *self._granted)
        return sum(len(barrier.tasks) + len(barrier.patient) for barrier in places)

    async def wait(self, level: Read, timeout_ms: int | None) -> None:
        """Join the gathering barrier of this level; see ``Node.read_barrier``."""
        timeout_ns = None if timeout_ms is None else arguments.timeout(timeout_ms) * MS
        if self._refusal is not None:
            raise self._refusal()
        barrier = self._gathering.get(level) if type(level) is Read else None
        if barrier is None:
            arguments.freshness(level)
            if len(self._asked) + len(self._granted) >= self._max:
                raise Busy("too many reads wait")
            barrier = self._gathering[level] = Barrier(level)
            self._bell.ring()
        elif len(barrier.tasks) + len(barrier.patient) >= self._max:
            raise Busy("too many reads wait")
        task = current_task()
        task.custom_sleep_data = barrier
        if timeout_ns is None:
            barrier.tasks.append(task)
        else:
            barrier.patient.append(task)
            deadline = self._clock() + timeout_ns
            self._alarms.set(deadline, barrier, task)
            self._rearm(deadline)
        try:
            await wait_task_rescheduled(abandon)
        except BaseException:
            self._alarms.forget(task)
            for waiters in (barrier.tasks, barrier.patient):
                if task in waiters:
                    waiters.remove(task)
            raise

    @property
    def waiting(self) -> bool:
        """Return whether a barrier waits to be asked about."""
        return bool(self._gathering or self._again)

    def take(self) -> Barrier | None:
        """Return the next barrier to ask the core about, with a ticket of its own."""
        if self._again:
            barrier = self._again.popleft()
        elif self._gathering:
            barrier = self._gathering.pop(next(iter(self._gathering)))
        else:
            return None
        if not barrier.deadline:
            barrier.deadline = self._clock() + self._timeout_ns
            if not self._expiring:
                self._rearm(barrier.deadline)
            self._expiring.append(barrier)
        self._ticket += 1
        barrier.ticket = self._ticket
        self._asked[barrier.ticket] = barrier
        return barrier

    def refused(self, barrier: Barrier, make: Callable[[], RaftError]) -> None:
        """Raise ``make()`` in the callers of this barrier: the core did not take its question."""
        self._asked.pop(barrier.ticket, None)
        barrier.finish(make)

    def ready(self, answer: ReadReady) -> None:
        """Note the core's answer. Callers go on at ``release``."""
        barrier = self._asked.pop(answer.ticket, None)
        if barrier is None or barrier.done:
            return
        if answer.refused is not None:
            reason = answer.refused
            barrier.finish(lambda: Rejected(reason))
            return
        barrier.index, barrier.lease = answer.index, answer.lease
        self._granted.append(barrier)

    def release(self, applied: int, lease_valid: Callable[[], bool]) -> None:
        """Let callers read whose index is applied. If a lease has ended meanwhile, they wait for a round instead."""
        granted = self._granted
        if not granted:
            return
        left: list[Barrier] = []
        for barrier in granted:
            if barrier.done:
                continue
            if barrier.index > applied:
                left.append(barrier)
            elif barrier.lease and not lease_valid():
                self._ask_again(barrier)
            else:
                barrier.finish(None)
        self._granted = left

    def _ask_again(self, barrier: Barrier) -> None:
        """Ask again, for a round this time. The tasks keep waiting at the same barrier."""
        barrier.level, barrier.lease = Read.INDEX, False
        self._again.append(barrier)
        self._bell.ring()

    def open(self) -> None:
        self._refusal = None

    def close(self, refusal: Callable[[], RaftError]) -> None:
        """Refuse reads from now on, and those that wait."""
        self._refusal = refusal
        waiting = [*self._gathering.values(), *self._again, *self._asked.values(), *self._granted]
        self._gathering, self._again, self._asked, self._granted = {}, deque(), {}, []
        for barrier in waiting:
            barrier.finish(refusal)

    def next_deadline(self) -> int | None:
        """Return the time of the next caller's deadline, when ``expire`` is due; None if nobody waits."""
        return first_due(self._expiring, self._alarms)

    def expire(self, now: int) -> None:
        """Answer callers whose time is over. A read has no effect, so they get a certain ``Rejected``."""
        expiring = self._expiring
        while expiring and (expiring[0].done or expiring[0].deadline <= now):
            barrier = expiring.popleft()
            if barrier.done:
                continue
            if not barrier.patient:
                self._asked.pop(barrier.ticket, None)
                barrier.finish(_late)
                continue
            for task in barrier.tasks:
                fail(task, barrier, _late())
            barrier.tasks.clear()
        for barrier, task in self._alarms.due(now):
            fail(task, barrier, _late())


def _late() -> RaftError:
    return Rejected(RejectReason.TIMED_OUT, "the read was not confirmed in time")
