"""Proposals from the caller to their fate: gathered, in flight, resolved. Built so that one costs about 2 µs.

*The idea: group commit.* A disk syncs a thousand entries in about the time that it takes for one, and a round to the
followers costs the same for both. A *batch* becomes one frame: callers append a command and park; the flusher takes the
batch whole; when its entries are applied all its callers are woken at once and look up their own result by position.
The driver keeps a few frames in flight: enough to cover the round to the followers, so that the link and their disks
never idle. Meanwhile commands gather, so batches grow with the load by themselves.

*Rejected.*

- A timer that holds a batch back until more has come. It delays a lone command for nothing, and under load the time in
  which the frames before are in flight does its work. A lone command goes to the core at once.
- An event, future, timer or cancel scope for each proposal. Each costs as much as the whole way through here. Callers
  are plain tasks in a list, and those with the default timeout share the deadline of their batch.
- More frames in flight. They would only wait in other queues.
- A queue without a bound. It turns overload into delay, and callers into timeouts whose commands are carried out all
  the same. Entries and bytes are bounded. Callers beyond the bound wait, first in, first out (``_waiting_for_room``);
  ``propose_nowait`` says ``Busy`` instead.

*Why each caller gets its own result, or the truth.*

- A batch's entries stand in the log side by side, in its own order, from ``first`` to ``last`` in ``term``. One leader
  writes a term, so a frame applied in that term at that place is this one, and its results are in the callers' order.
- An entry of another term applied there has overwritten it: it certainly has no effect (``settle``).
- A batch that was never handed to the core has no effect either (``refuse``, ``close``). If nobody can tell, as after a
  snapshot (``jump``), at a deadline or at the end, the answer is ``Unknown``.
- Frames are applied in the order of the log, and batches are in flight in that order. So one look at the oldest batch
  decides, and a batch is resolved once (``done``).

Knows tasks, deadlines and limits; knows nothing of roles, peers or disks: ``driver`` says when proposals may come in
(``open``), with which error they must not (``close``), and what is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias

import attrs
from trio.lowlevel import Task, checkpoint, current_task, reschedule, wait_task_rescheduled

from raft import arguments
from raft.alarms import Alarms, first_due
from raft.config import MS, Config
from raft.errors import Busy, RaftError, Rejected, RejectReason, Unknown
from raft.frame import HEADER_BYTES, Frame
from raft.statemachine import ResultT_co
from raft.wakeup import WOKEN, Bell, abandon, fail

SEALS = 8
"""Batches closed in each default timeout, while proposals gather behind a commit that does not come: so no caller
waits much longer than its timeout."""

Failure: TypeAlias = Callable[[int, int], RaftError]
"""Makes the error for entries (first, last); each caller gets an exception of its own."""


@attrs.define(eq=False)
class Batch:
    """Commands that become one frame, and the callers that wait for them."""

    room: int
    """Bytes of commands that may still join; below 0: none."""
    capacity: int
    """Most entries that it may hold."""
    failure: Failure | None = None
    """Makes the error of entries at and beyond ``len(results)``, which have no result."""
    commands: list[bytes] = attrs.Factory(list)
    tasks: list[Task] = attrs.Factory(list)
    """Callers who wait as long as the default timeout."""
    patient: list[Task] = attrs.Factory(list)
    """Callers with a deadline of their own."""
    results: list[Any] = attrs.Factory(list)
    count: int = 0
    """Entries that count towards the limits, from sealing to fate; ``size`` is their bytes."""
    size: int = 0
    first: int = 0
    last: int = 0
    term: int = 0
    deadline: int = 0
    done: bool = False
    """True once all callers were woken, or if there are none."""
    expired: bool = False
    """True once its deadline passed while callers with longer ones waited for it."""

    def result(self, position: int) -> Any:
        """Return the result of the command at ``position``, or raise the error in its place."""
        if position < len(self.results):
            return self.results[position]
        raise self._error(position, 1)

    def slice(self, position: int, count: int) -> list[Any]:
        """Return the results of ``count`` commands, or raise one error if some have none."""
        if position + count <= len(self.results):
            return self.results[position : position + count]
        if position < len(self.results):  # some took effect: neither "all" nor "none" would be true
            raise Unknown(self.first + position, self.first + position + count - 1, "some of it took effect")
        raise self._error(position, count)

    def overdue(self) -> Unknown:
        """Return the error of a caller whose time is over, while the fate of the batch is open."""
        return Unknown(self.first, self.last, "its deadline passed")

    def _error(self, position: int, count: int) -> RaftError:
        assert self.failure is not None
        first = self.first + position if self.first else 0
        return self.failure(first, first + count - 1 if first else 0)

    def finish(self, failure: Failure | None) -> None:
        """Wake all callers: each looks up its result, or raises ``failure``."""
        self.failure, self.done = failure, True
        for task in self.tasks:
            if task.custom_sleep_data is self:
                reschedule(task, WOKEN)
        for task in self.patient:
            if task.custom_sleep_data is self:
                reschedule(task, WOKEN)
        self.tasks.clear()
        self.patient.clear()


@attrs.define(eq=False)
class Ticket(Generic[ResultT_co]):
    """A proposal made with ``propose_nowait``. ``await ticket.wait()`` gives its result or raises its error."""

    _batch: Batch
    _position: int

    @property
    def done(self) -> bool:
        """True once ``wait`` would return or raise at once."""
        return self._batch.done or self._batch.expired

    async def wait(self) -> ResultT_co:
        """Wait for the result of ``apply`` and return it. Any number of tasks may wait. Raises as ``propose`` does."""
        batch = self._batch
        if batch.done:
            await checkpoint()
        elif batch.expired:
            await checkpoint()
            raise batch.overdue()
        else:
            task = current_task()
            batch.tasks.append(task)
            task.custom_sleep_data = batch
            await _park(batch, task)
        result: ResultT_co = batch.result(self._position)
        return result


@attrs.define(eq=False)
class _Waiter:
    """A caller that waits until there is room for its commands."""

    commands: Sequence[bytes]
    size: int
    task: Task
    batch: Batch | None = None
    position: int = 0
    refused: RaftError | None = None


def _waits(place: Batch | _Waiter, task: Task) -> bool:
    found = task.custom_sleep_data
    return found is place or (isinstance(place, _Waiter) and found is not None and found is place.batch)


async def _park(batch: Batch, task: Task) -> None:
    """Wait until the batch is finished. The commands of a cancelled caller stay in it."""
    try:
        await wait_task_rescheduled(abandon)
    except BaseException:
        for waiters in (batch.tasks, batch.patient):
            if task in waiters:
                waiters.remove(task)
        raise


class Proposals:
    """All proposals of one node that have no result yet. ``bell`` rings when the flusher has something to do; a lone
    proposal is handed to the core at once (``flush``)."""

    def __init__(
        self, config: Config, clock: Callable[[], int], bell: Bell, rearm: Callable[[int], None],
        flush: Callable[[], None],
    ) -> None:
        self._config, self._clock, self._bell, self._rearm, self._flush = config, clock, bell, rearm, flush
        self._timeout_ns = config.propose_timeout_ms * MS
        self._refusal: Callable[[], RaftError] | None = None
        largest = config.frame_bytes_max - HEADER_BYTES
        self._frame_room = max(largest - 4 * config.frame_entries_max, largest // 2)
        self._frame_entries = min(config.frame_entries_max, (largest - self._frame_room) // 4)
        self._batch = self._no_batch = Batch(room=-1, capacity=0, done=True)
        self._ready: deque[Batch] = deque()
        self._in_flight: deque[Batch] = deque()
        self._waiting_for_room: deque[_Waiter] = deque()
        self._expiring: deque[Batch] = deque()
        self._alarms = Alarms[Batch | _Waiter](_waits)
        self._seal_at = 0
        self._alone = False
        """True if the latest batch had one entry: the next caller is then likely to be alone, too."""
        self._count = self._bytes = 0  # sealed or in flight; the batch that gathers does not count

    # --- callers ---------------------------------------------------------------------------------------------

    async def propose(self, command: bytes, timeout_ms: int | None) -> Any:
        """Propose one command: see ``Node.propose``. The hot path: everything unusual is in ``_enter``."""
        batch = self._batch
        position = len(batch.commands)
        if (timeout_ms is not None or type(command) is not bytes or position >= batch.capacity
                or (room := batch.room - len(command)) < 0):
            batch, position = await self._enter((command,), timeout_ms)
            return batch.result(position)
        batch.room = room
        batch.commands.append(command)
        if not position:
            if self._alone and not self._in_flight:
                self._flush()  # so the flusher need not be woken
                if batch.done:
                    await checkpoint()
                    return batch.result(0)
            else:
                self._bell.ring()
        task = current_task()
        batch.tasks.append(task)
        task.custom_sleep_data = batch
        try:
            await wait_task_rescheduled(abandon)
        except BaseException:
            if task in batch.tasks:
                batch.tasks.remove(task)
            raise
        results = batch.results
        if position < len(results):
            return results[position]
        return batch.result(position)

    async def propose_many(self, commands: Sequence[bytes], timeout_ms: int | None) -> list[Any]:
        """Propose several at once: see ``Node.propose_many``."""
        if not commands:
            await checkpoint()
            return []
        batch, position = await self._enter(commands, timeout_ms)
        return batch.slice(position, len(commands))

    def propose_nowait(self, command: bytes) -> Ticket[Any]:
        """Propose without waiting: see ``Node.propose_nowait``."""
        size = self._check((command,))
        batch = self._find_room(1, size) if not self._waiting_for_room else None
        if batch is None:
            raise Busy(f"{self._count + len(self._batch.commands)} proposals pending")
        return Ticket(batch, self._join(batch, (command,), size))

    async def _enter(self, commands: Sequence[bytes], timeout_ms: int | None) -> tuple[Batch, int]:
        """Join a batch, after a wait for room if needed, and wait for its fate."""
        size = self._check(commands)
        timeout_ns = None if timeout_ms is None else arguments.timeout(timeout_ms) * MS
        task = current_task()
        batch = self._find_room(len(commands), size) if not self._waiting_for_room else None
        if batch is not None:
            position = self._join(batch, commands, size)
            self._wait_in(batch, task, timeout_ns)
            try:
                await _park(batch, task)
            except BaseException:
                self._alarms.forget(task)
                raise
            return batch, position
        waiter = _Waiter(commands, size, task)
        self._wait_for_room(waiter)
        self._expire_in(self._timeout_ns if timeout_ns is None else timeout_ns, waiter, task)
        task.custom_sleep_data = waiter
        try:
            await wait_task_rescheduled(abandon)
        except BaseException:
            self._alarms.forget(task)
            if waiter in self._waiting_for_room:
                self._waiting_for_room.remove(waiter)
                self._admit()
            if waiter.batch is not None and task in waiter.batch.patient:
                waiter.batch.patient.remove(task)
            raise
        if waiter.refused is not None:
            raise waiter.refused
        assert waiter.batch is not None
        return waiter.batch, waiter.position

    def _check(self, commands: Sequence[bytes]) -> int:
        """Return the size of these commands in bytes, or raise the reason why they cannot be proposed."""
        if self._refusal is not None:
            raise self._refusal()
        for command in commands:
            arguments.data("a command", command)
        longest = max(map(len, commands))
        if longest > self._config.entry_bytes_max:
            raise Rejected(RejectReason.TOO_LARGE, f"{longest} bytes; at most {self._config.entry_bytes_max}")
        size = sum(map(len, commands))
        if len(commands) > self._config.proposals_pending_max or size > self._config.uncommitted_bytes_max:
            raise Rejected(RejectReason.TOO_LARGE, f"{len(commands)} commands, {size} bytes in one call")
        return size

    def _find_room(self, count: int, size: int) -> Batch | None:
        """Return the batch that these commands may join, a new one if the old is full; None if a limit is reached."""
        batch = self._batch
        if size <= batch.room and len(batch.commands) + count <= batch.capacity:
            return batch
        self.seal()
        slots, space = self._limits()
        if count > slots or size > space:
            return None
        if size > self._batch.room or count > self._batch.capacity:  # more than a frame: a batch of its own
            room = max(size, min(space, self._frame_room))
            self._batch = Batch(room, max(count, min(slots, self._frame_entries)), size=room)
        return self._batch

    def _limits(self) -> tuple[int, int]:
        """Return entries and bytes that may still be taken, given what is sealed or in flight."""
        return self._config.proposals_pending_max - self._count, self._config.uncommitted_bytes_max - self._bytes

    def _join(self, batch: Batch, commands: Sequence[bytes], size: int) -> int:
        position = len(batch.commands)
        batch.commands.extend(commands)
        batch.room -= size
        if not position:
            self._bell.ring()
        return position

    def _wait_in(self, batch: Batch, task: Task, timeout_ns: int | None) -> None:
        task.custom_sleep_data = batch
        if timeout_ns is None:
            batch.tasks.append(task)
        else:
            batch.patient.append(task)
            self._expire_in(timeout_ns, batch, task)

    def _expire_in(self, timeout_ns: int, place: Batch | _Waiter, task: Task) -> None:
        deadline = self._clock() + timeout_ns
        self._alarms.set(deadline, place, task)
        self._rearm(deadline)

    def _wait_for_room(self, waiter: _Waiter) -> None:
        """Queue a caller that waits for room. They are served first in, first out: nobody joins a batch before
        them."""
        self._waiting_for_room.append(waiter)
        self.seal()
        self._batch = self._no_batch

    def _admit(self) -> None:
        """Let in the waiting callers that fit now, in order of arrival; if none is left, open for all."""
        waiters = self._waiting_for_room
        while waiters and self._refusal is None:
            waiter = waiters[0]
            task = waiter.task
            if task.custom_sleep_data is waiter:
                batch = self._find_room(len(waiter.commands), waiter.size)
                if batch is None:
                    break
                waiter.batch, waiter.position = batch, self._join(batch, waiter.commands, waiter.size)
                batch.patient.append(task)
                task.custom_sleep_data = batch
            waiters.popleft()
        if waiters:
            self.seal()
            self._batch = self._no_batch
        elif self._batch is self._no_batch and self._refusal is None:
            self._open_batch()

    # --- the flusher -----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """True if a batch waits to be flushed."""
        return bool(self._ready or self._batch.commands)

    @property
    def in_flight(self) -> int:
        """Batches handed to the core whose fate is not known."""
        return len(self._in_flight)

    @property
    def pending(self) -> tuple[int, int]:
        """Count and bytes of proposals whose fate is open."""
        gathered = self._batch.commands
        return self._count + len(gathered), self._bytes + sum(map(len, gathered))

    def seal(self) -> None:
        """Close the batch that gathers. Its timeout starts now."""
        batch = self._batch
        if not batch.commands:
            return
        now = self._clock()
        batch.count, batch.size = len(batch.commands), batch.size - batch.room
        batch.deadline = now + self._timeout_ns
        self._seal_at = now + self._timeout_ns // SEALS
        self._count += batch.count
        self._bytes += batch.size
        self._ready.append(batch)
        if not self._expiring:
            self._rearm(batch.deadline)
        self._expiring.append(batch)
        self._open_batch()

    def _open_batch(self) -> None:
        slots, space = self._limits()
        room = min(space, self._frame_room)
        self._batch = Batch(room, min(slots, self._frame_entries), size=room)

    def take(self) -> Batch | None:
        """Return the next batch to hand to the core. ``handed_over`` or ``refuse`` follows."""
        if not self._ready:
            self.seal()
        return self._ready.popleft() if self._ready else None

    def put_back(self, batch: Batch) -> None:
        self._ready.appendleft(batch)

    def refuse(self, batch: Batch, make: Callable[[], RaftError]) -> None:
        """Resolve a batch that the core did not take: it certainly has no effect."""
        self._resolve(batch, lambda first, last: make())

    def handed_over(self, batch: Batch, first: int, last: int, term: int) -> None:
        """Note the entries that the core made of a batch."""
        batch.first, batch.last, batch.term = first, last, term
        batch.commands = []
        self._in_flight.append(batch)

    # --- fate ------------------------------------------------------------------------------------------------

    def settle(self, frame: Frame, results: list[object]) -> None:
        """Resolve batches by a frame that was applied, with its results (only for commands). Frames come in order."""
        in_flight = self._in_flight
        while in_flight:
            head = in_flight[0]
            if head.first > frame.last:
                return
            if head.term == frame.term:  # one leader wrote this term, so this frame is the batch
                if head.first == frame.first:
                    head.results = results
                else:
                    head.results.extend(results)
                if frame.last == head.last:
                    self._alone = head.first == head.last
                    self._resolve(in_flight.popleft(), None)
                return
            self._resolve(in_flight.popleft(), _overwritten)

    def jump(self, index: int) -> None:
        """Resolve as ``Unknown`` all batches up to ``index``: a snapshot replaced them, so their results are not
        known."""
        while self._in_flight and self._in_flight[0].first <= index:
            self._resolve(self._in_flight.popleft(), _jumped)

    def _resolve(self, batch: Batch, failure: Failure | None) -> None:
        if not batch.done:
            batch.finish(failure)
            self._count -= batch.count
            self._bytes -= batch.size
            if self._waiting_for_room or self._batch.room < self._frame_room:
                self._widen()

    def _widen(self) -> None:
        """Give away room that came free: to callers that wait for it, else to the batch that gathers."""
        if self._waiting_for_room:
            self._admit()
        elif not self._batch.commands and self._refusal is None:
            self._open_batch()

    def open(self) -> None:
        """Let proposals come in from now on."""
        self._refusal = None
        if self._batch is self._no_batch:
            self._open_batch()

    def close(self, refusal: Callable[[], RaftError]) -> None:
        """Refuse new proposals, and those that are not in flight yet. The ones in flight keep waiting."""
        self._refusal = refusal
        self.seal()
        self._batch = self._no_batch
        ready, self._ready = self._ready, deque()
        for batch in ready:
            self._resolve(batch, lambda first, last: refusal())
        waiters, self._waiting_for_room = self._waiting_for_room, deque()
        for waiter in waiters:
            self._refuse(waiter, refusal())

    def abandon_in_flight(self, failure: Failure) -> None:
        """Resolve all batches in flight with ``failure``, since this node will not learn their fate."""
        in_flight, self._in_flight = self._in_flight, deque()
        for batch in in_flight:
            self._resolve(batch, failure)

    @staticmethod
    def _refuse(waiter: _Waiter, error: RaftError) -> None:
        fail(waiter.task, waiter, error)

    # --- deadlines -------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """Return the time when ``expire`` is due; None if nobody waits."""
        due = first_due(self._expiring, self._alarms)
        if self._batch.commands:
            return self._seal_at if due is None else min(due, self._seal_at)
        return due

    def expire(self, now: int) -> None:
        """Answer the callers whose time is over."""
        if self._batch.commands and self._seal_at <= now:
            self.seal()
        expiring = self._expiring
        while expiring and (expiring[0].done or expiring[0].deadline <= now):
            batch = expiring.popleft()
            if not batch.done:
                self._give_up(batch)
        for place, task in self._alarms.due(now):
            if isinstance(place, _Waiter):
                if place.batch is not None:
                    place = place.batch
                elif place in self._waiting_for_room:
                    self._waiting_for_room.remove(place)
                    self._refuse(place, Rejected(RejectReason.TIMED_OUT, "there was no room for it in time"))
                    self._admit()
                    continue
                else:
                    continue
            fail(task, place, place.overdue())
            if task in place.patient:
                place.patient.remove(task)

    def _give_up(self, batch: Batch) -> None:
        if batch.patient:  # callers with longer deadlines still wait for it
            batch.expired = True
            tasks, batch.tasks = batch.tasks, []
            for task in tasks:
                fail(task, batch, batch.overdue())
        elif batch.first:
            self._resolve(batch, _late)
        else:
            self._ready.remove(batch)
            self._resolve(batch, _withdrawn)


def _overwritten(first: int, last: int) -> RaftError:
    return Rejected(RejectReason.OVERWRITTEN, f"entries {first}..{last}")


def _jumped(first: int, last: int) -> RaftError:
    return Unknown(first, last, "a snapshot took their place")


def _late(first: int, last: int) -> RaftError:
    return Unknown(first, last, "its deadline passed")


def _withdrawn(first: int, last: int) -> RaftError:
    return Rejected(RejectReason.TIMED_OUT, "it waited for earlier proposals and never went out")
