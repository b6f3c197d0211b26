"""Drives one node of one group: the shell that carries out what the replica decides, and runs the group's tasks.

Everything runs in one trio thread: an input goes into the replica, ``pump`` carries out the outputs in order. It
decides nothing about terms or indices. ``submit`` leads to the disk (a writer that reports durable tokens), ``send`` to
the peers; ``host`` owns both and starts these tasks. Users see ``node.Node``, which calls this.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from raft.applier import LOAD_RETRY_S, Applier
from raft.barriers import Barriers
from raft.config import MS, Config
from raft.errors import (
    Busy,
    DamagedLog,
    DiskFull,
    Faulted,
    NotLeader,
    Outcome,
    RaftError,
    Rejected,
    RejectReason,
    StorageError,
    Unknown,
    UsageError,
)
from raft.events import EventHub, NodeFaulted
from raft.frame import Frame
from raft.held import Held
from raft.messages import (
    AppendReply,
    Committed,
    Install,
    Load,
    LoadChunk,
    MembershipChanged,
    PeerMessage,
    ReadReady,
    Resolved,
    Role,
    RoleChanged,
    Send,
    StoreChunk,
    Write,
)
from raft.pending import Proposals
from raft.replica import Replica
from raft.snapshotio import SnapshotIO
from raft.statemachine import AnyMachine, Machine
from raft.storage.interface import EarlyAck
from raft.storage.trouble import lacks_descriptor
from raft.surroundings import Disk, Peers, RunBlocking, System
from raft.wakeup import Bell

logger = logging.getLogger("raft.driver")
NS = 1_000_000_000
ROOM_RETRY_S = 1.0
"""Pause before a full disk is tried again; doubles up to ``ROOM_RETRY_MAX_S``."""
ROOM_RETRY_MAX_S = 30.0
SUSPENDED_NS = 10 * MS
"""Least difference of the two clocks that means a suspension; reading one after the other makes smaller ones."""
STOP_TRANSFER_S = 1.0
"""Time that a stopping leader has to hand over; after that it stops without."""


class Driver:
    """One node's shell. ``host``, the other shells and ``Node`` call it; users do not."""

    def __init__(
        self, *, name: str, cluster: str, replica: Replica, state_machine: AnyMachine, config: Config,
        disk: Disk, peers: Peers, system: System, introduced: Collection[str] = (),
    ) -> None:
        self.name, self.cluster, self.config = name, cluster, config
        self.introduced = introduced
        """Nodes that the caller named, until a membership that came later names this one."""
        self.replica, self.disk, self.peers, self.system = replica, disk, peers, system
        self.state_machine = state_machine
        self.fault_cause: Exception | None = None
        self.storage_state = "ok"
        self.paused_ns = self.paused_at_ns = self.keeps_log = 0
        self.counters = {"messages_received": 0, "messages_sent": 0, "batches": 0, "reads_asked": 0}
        self.held = Held()
        """Messages whose write is not durable yet."""
        self.early_acks: deque[tuple[int, str, AppendReply, EarlyAck]] = deque()
        """Acknowledgements, each with the token of its write, which is not durable yet."""
        self.clock = system.clock
        self._bell = Bell()
        self._full_at = 0
        """Batches in flight when no more were allowed; proposals gather until there are fewer. 0: not full."""
        self.proposals = Proposals(config, system.clock, self._bell, self._rearm, self._flush)
        self.barriers = Barriers(config, system.clock, self._bell, self._rearm)
        self.events_hub = EventHub()
        self.applier = Applier(
            machine=Machine(state_machine), log=replica.log, proposals=self.proposals, config=config,
            clock=system.clock, load=self._load_to_apply, progress=self._after_slice, fault=self._machine_raised,
            run_blocking=system.run_blocking)
        self.snapshots = SnapshotIO(
            replica=replica, storage=disk.storage, applier=self.applier, proposals=self.proposals,
            events=self.events_hub, config=config, clock=system.clock, pump=self.pump,
            run_blocking=system.run_blocking, storage_failed=self.write_failed)
        self._requests: dict[int, trio.Event] = {}
        self._answers: dict[int, Resolved] = {}
        self._suspended = system.suspended_ns()
        self._ticket = 0
        self._now = 0
        self._writes: list[Write] = []
        self.submitted = self.durable_token = 0
        """Write tokens handed to the disk, and reported durable."""
        self._pumping = self._reporting_now = False
        self._armed = 0
        self._timer: trio.CancelScope | None = None
        self.role_seen = trio.Event()
        self._loads, self._loads_due = trio.open_memory_channel[Load](1_024)
        self._read_waits = False
        """True while the log cannot be read for want of a descriptor."""
        self._room_wanted = trio.Event()
        self.stopping = False
        self._scopes: list[trio.CancelScope] = []
        self._tasks, self._idle, self._left = 0, trio.Event(), False
        self.proposals.close(self.refusal)

    # --- calls of the user -----------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise ``Faulted`` or ``Rejected`` if nothing is accepted here any more. Does not raise ``NotLeader``."""
        if self.replica.faulted or self.stopping:
            raise self.refusal()

    def check_readable(self) -> None:
        """Raise the reason if the state machine may not be looked at now."""
        self.check_open()
        if self.applier.torn:
            raise Rejected(RejectReason.INSTALLING)

    async def ask_machine(
        self, ask: Callable[[bytes], object], data: bytes, *, run_blocking: RunBlocking, timeout_ms: int | None = None,
    ) -> object:
        """Return ``ask(data)``, which looks at the state machine: here, or (``threaded``) through ``run_blocking``, but
        never while another call of the machine runs. Callers passed a read barrier first; if it looks here, no
        checkpoint comes before.

        Raises what ``ask`` raises, ``Rejected`` (the machine was busy all the time, or takes a snapshot), ``Faulted``.
        """
        if not self.applier.machine.threaded:
            self.check_readable()
            return ask(data)

        def check_and_ask() -> Awaitable[Any]:
            self.check_readable()
            return run_blocking(ask, data)

        timeout_ms = self.config.propose_timeout_ms if timeout_ms is None else timeout_ms
        with trio.move_on_after(timeout_ms / 1e3):
            return await self.applier.between(check_and_ask)
        raise Rejected(RejectReason.TIMED_OUT, "the state machine was busy all the time")

    async def request(self, ask: Callable[[int], None]) -> None:
        """Ask the core for a reconfiguration or a hand-over, under a ticket. Returns when it is done.

        Raises what ``ask`` raises, ``Rejected``, ``Unknown``, or the error of ``check_open``.
        """
        self.check_open()
        self._ticket += 1
        ticket = self._ticket
        ask(ticket)
        asked = self._requests[ticket] = trio.Event()
        self.pump()
        try:
            await asked.wait()
        finally:
            del self._requests[ticket]
            answer = self._answers.pop(ticket, None)
        if answer is None:
            if self.stopping:  # the core has taken it: others may carry it on
                raise Unknown(detail="this node stopped")
            raise self.refusal()
        if answer.unknown:
            raise Unknown(detail=answer.detail)
        if answer.refused is not None:
            raise Rejected(answer.refused, answer.detail)

    async def hand_over(self, target: str | None = None) -> None:
        """Hand leadership over: see ``Node.transfer_leadership``."""
        await self.request(lambda ticket: self.replica.leading(self.clock()).transfer.begin(ticket, target))

    # --- inputs from the host --------------------------------------------------------------------------------

    def receive(self, peer: str, message: PeerMessage) -> None:
        """Take one message of a batch; the caller pumps after the last one."""
        now = self._now
        if not now:
            now = self._now = self.clock()
            self.replica.wall_ms = self.system.wall_ms()
        self.counters["messages_received"] += 1
        self.replica.receive(now, peer, message)

    def durable(self, token: int) -> None:
        """Note that every write up to ``token`` is on the disk, and pump."""
        self.note_durable(token)
        self.pump()

    def note_durable(self, token: int) -> None:
        """Note that every write up to ``token`` is on the disk; the caller pumps after the batch."""
        if token <= self.durable_token:
            return
        self.durable_token = token
        early_acks = self.early_acks
        while early_acks and early_acks[0][0] <= token:
            _, peer, reply, early = early_acks.popleft()
            if early.sent:
                self.counters["messages_sent"] += 1
                self.peers.early_ack_sent(peer, early)
                self.replica.following.early_ack_sent(reply)
        for send in self.held.due(token):
            self._post(send)
        self.replica.durable(self.clock(), token)

    def identify(self, peer: str, incarnation: bytes) -> None:
        """Take the incarnation of a peer's directory, which its hello named."""
        self.replica.identities.meet(self.clock(), peer, incarnation)
        self.pump()

    def outlived(self, peer: str, lives: tuple[int, ...]) -> bool:
        """Take lives that a peer met of this directory, and that it never had. Return whether that is news."""
        news = self.replica.regaining.outlived(self.clock(), peer, lives)
        self._take_loss(news)
        self.pump()
        return news

    def _take_loss(self, news: bool) -> None:
        if news:
            logger.warning("group %r: a peer met a later life of node %r's directory, which is an older copy",
                           self.name, self.replica.node_id)
            self.held.clear()  # a vote among them may be the second one in its term

    def unreachable(self, peer: str) -> None:
        """Note that the connection to a peer broke."""
        self.replica.unreachable(self.clock(), peer)
        self.pump()

    def disk_full(self) -> None:
        """Note that the disk was full, and took none of the writes after the durable ones."""
        self.storage_state = "full"
        self.held.clear()  # these messages rest on writes that are gone
        self.early_acks.clear()
        self.replica.storage_fault(self.clock(), "full")
        self._room_wanted.set()
        self.pump()

    def write_failed(self, error: StorageError) -> None:
        """Stop the node: the disk failed for good, or gave back other bytes than this group had stored."""
        if self.storage_state in ("failed", "damaged"):
            return
        if isinstance(error, DiskFull):
            self.disk_full()
            return
        damage = isinstance(error, DamagedLog)
        self.storage_state = "damaged" if damage else "failed"
        self.held.clear()
        self.early_acks.clear()
        self.replica.storage_fault(self.clock(), "failed")
        if damage and self.fault_cause is None:
            self.replica.faulted = f"what its disk had stored is damaged: {error}"
        self.fault_cause = self.fault_cause or error
        self.pump()

    # --- carrying out ----------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Carry out what the replica wants, until it wants nothing more."""
        self._now = 0
        if self._pumping:
            return  # the outer call goes on
        replica, held, writes = self.replica, self.held, self._writes
        self._pumping = True
        try:
            while (outputs := replica.drain()) or self._write_inline():
                for output in outputs:
                    kind = type(output)
                    if kind is Send:
                        if output.after <= self.durable_token:  # type: ignore[union-attr]
                            self._post(output)  # type: ignore[arg-type]
                        else:
                            held.add(output)  # type: ignore[arg-type]
                    elif kind is Write:
                        writes.append(output)  # type: ignore[arg-type]
                    elif kind is Committed:
                        self.applier.advance(output.index)  # type: ignore[union-attr]
                        self._progress()
                    else:
                        self._carry_out(output)
        finally:
            self._pumping = False
        if writes:
            # A commit needs half of the voters besides this disk: flush to them before this node's own write.
            self.peers.flush(len(replica.membership.voters) // 2)
            self._submit()
        self.peers.flush(None)
        waits = self.durable_token < self.submitted and replica.needs_disk
        if waits is not self._reporting_now:
            self._reporting_now = waits
            self.disk.report_now(waits)
        self.barriers.release(self.applier.index, self.lease_valid)
        if self.proposals.in_flight < self._full_at:
            self._bell.ring()
        if replica.deadline < self._armed:
            self._rearm(replica.deadline)

    def _write_inline(self) -> bool:
        """Write a lone entry at once, if the disk is quick. Return whether it was written: there may be new outputs."""
        if len(self._writes) != 1:
            return False
        (write,) = self._writes
        durable = self.disk.write_inline(write)
        if durable is None:
            return False
        self._writes.clear()
        self.submitted = write.token
        if durable:
            self.note_durable(write.token)
        return True

    def _submit(self) -> None:
        """Hand the writes to the disk. If they are mere entries, the report may come late. A follower's acknowledgement
        goes along."""
        *others, last = self._writes
        self._writes.clear()
        self.submitted = last.token
        for write in others:
            self.disk.submit(write)
        if not self.disk.early_acks or last.hard_state or last.install or last.truncate_from or last.purge_to:
            self.disk.submit(last)
            return
        ack = self.replica.following.early_ack()
        if (early := self.disk.submit_with_ack(last, ack)) is not None:
            assert ack is not None
            self.early_acks.append((last.token, *ack, early))

    def _post(self, send: Send) -> None:
        self.counters["messages_sent"] += 1
        self.peers.send(send.peer, send.message)

    def _carry_out(self, output: object) -> None:
        """Carry out one of the rarer outputs."""
        if isinstance(output, ReadReady):
            self.barriers.ready(output)
        elif isinstance(output, RoleChanged):
            self._role_changed(output)
        elif isinstance(output, MembershipChanged):
            if self.replica.node_id in output.membership.everyone:
                self.introduced = ()
            self.peers.members_changed(output.membership)
            self.events_hub.put(output)
            self._take_loss(self.replica.regaining.believe_members(self.clock()))
        elif isinstance(output, Load):
            try:
                self._loads.send_nowait(output)
            except trio.WouldBlock:
                self.replica.loaded(self.clock(), output.peer, output.session, output.first, [])
        elif isinstance(output, Resolved):
            if (asked := self._requests.get(output.ticket)) is not None:  # else the caller was cancelled
                self._answers[output.ticket] = output
                asked.set()
        else:
            assert isinstance(output, (LoadChunk, StoreChunk, Install)), output
            self.snapshots.handle(output)

    def _role_changed(self, output: RoleChanged) -> None:
        self.role_seen.set()
        self.role_seen = trio.Event()
        if self.replica.faulted:
            self._fault()
        elif output.role is Role.LEADER and not self.stopping:
            self.proposals.open()
        else:
            self.proposals.close(self.refusal)
        self.events_hub.put(output)

    def present_role(self) -> RoleChanged:
        replica = self.replica
        return RoleChanged(replica.role, replica.term, replica.leader, replica.leadership_seq)

    def _fault(self) -> None:
        """Answer everybody who waits with the fault, and accept nothing more."""
        self.applier.stop()
        self.proposals.close(self.refusal)
        self.proposals.abandon_in_flight(lambda first, last: self.refusal())
        self.barriers.close(self.refusal)
        self._wake_requests()
        self.events_hub.put(NodeFaulted(self.replica.faulted or ""))

    def refusal(self) -> RaftError:
        """Return the error that says why nothing is accepted here now."""
        if self.stopping:
            return Rejected(RejectReason.STOPPED)
        if self.replica.faulted:
            error = Faulted(self.replica.faulted)
            error.__cause__ = self.fault_cause
            return error
        leader = self.replica.leader
        return NotLeader(leader, self.replica.membership.address_of(leader))

    def lease_valid(self) -> bool:
        self._notice_suspension()
        return self.replica.lease_valid(self.clock())

    def _notice_suspension(self) -> None:
        """Void the lease if the machine was suspended: its clock stood still, so what was heard before proves no
        lease."""
        suspended = self.system.suspended_ns()
        if abs(suspended - self._suspended) > SUSPENDED_NS:
            self._suspended = suspended
            self.replica.void_lease(self.clock())

    def _progress(self) -> None:
        """Tell the core up to where the state machine has applied."""
        replica, index = self.replica, self.applier.index
        if index > replica.applied_index and not replica.faulted:
            replica.applied(replica.now, index)
            self.snapshots.consider()

    def _after_slice(self) -> None:
        self._progress()
        self.pump()

    def _machine_raised(self, error: Exception) -> None:
        self.fault_cause = error
        self.replica.fault(self.clock(), f"the state machine raised: {type(error).__name__}: {error}")
        self.pump()

    async def _load(self, first: int, max_bytes: int) -> list[Frame] | None:
        """Read frames from storage. Return None if there is no file descriptor for that now: nothing is damaged."""
        try:
            frames: list[Frame] = await self.system.run_blocking(
                self.disk.storage.read, self.replica.group, first, max_bytes)
        except StorageError as error:
            if not lacks_descriptor(error):
                raise
            if not self._read_waits:
                logger.warning("group %r waits until its log can be read: %s", self.name, error)
            self._read_waits = True
            return None
        self._read_waits = False
        return frames

    async def _load_to_apply(self, first: int, max_bytes: int) -> list[Frame]:
        try:
            return await self._load(first, max_bytes) or []
        except StorageError as error:
            self.write_failed(error)
            return []

    def _wake_requests(self) -> None:
        for asked in self._requests.values():
            asked.set()

    # --- tasks -----------------------------------------------------------------------------------------------

    async def restore(self) -> None:
        """Bring the machine to the newest snapshot. Raises ``UsageError`` if it cannot, ``Faulted`` if it refuses."""
        meta = self.replica.log.snapshot
        if meta is not None:
            if not self.applier.machine.snapshots:
                raise UsageError(f"the directory holds a snapshot at {meta.index}; the state machine has no restore()")
            await self.snapshots.restore(meta)
            if self.fault_cause is not None:
                raise Faulted(f"the state machine refused the snapshot at {meta.index}") from self.fault_cause

    def start(self, nursery: trio.Nursery) -> None:
        """Start the tasks that carry out what this node's core asks."""
        self.replica.wall_ms = self.system.wall_ms()
        tasks = (self._run_flusher, self._run_timer, self._run_loads, self._run_room, self.applier.run,
                 self.snapshots.run_due, self.snapshots.run_questions)
        self._tasks = len(tasks)
        for task in tasks:
            nursery.start_soon(self._run_within, task)
        self.pump()

    async def _run_within(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task that ends with the node, while the host goes on."""
        try:
            with self._scope_of_task():
                await task()
        finally:
            self._tasks -= 1
            if not self._tasks:
                self._idle.set()

    def _scope_of_task(self) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._scopes.append(scope)
        if self._left:
            scope.cancel()
        return scope

    async def leave(self) -> None:
        """End all tasks. After ``close`` alone they would run until the host ends."""
        self.close()
        self._left = True
        for scope in self._scopes:
            scope.cancel()
        await self._idle.wait()
        if self._reporting_now:
            self._reporting_now = False
            self.disk.report_now(False)

    async def stop(self, *, transfer: bool) -> None:
        """Hand leadership over if that is quick, then answer everybody who waits."""
        replica = self.replica
        others = [peer for peer in replica.membership.voters if peer != replica.node_id]
        if transfer and others and replica.role is Role.LEADER:
            with trio.move_on_after(STOP_TRANSFER_S):
                with suppress(Outcome, Faulted):  # it was worth a try
                    await self.hand_over()
        self.close()

    def close(self) -> None:
        """Answer everybody who waits; accept nothing more."""
        if self.stopping:
            return
        self.stopping = True
        self.applier.stop()
        self.proposals.close(self.refusal)
        self.proposals.abandon_in_flight(lambda first, last: Unknown(first, last, "this node stopped"))
        self.barriers.close(self.refusal)
        self._wake_requests()
        self.role_seen.set()
        self.events_hub.end()

    async def _run_flusher(self) -> None:
        """Hand what callers have gathered to the core. Woken by the first of a batch, so it runs after the others."""
        while True:
            await self._bell.wait()
            if self._full_at:  # a commit woke callers and this task together: let them join
                await trio.lowlevel.cancel_shielded_checkpoint()
            self._flush()

    def _flush(self) -> None:
        now = self.clock()
        self._full_at = 0
        while (barrier := self.barriers.take()) is not None:
            self._notice_suspension()
            self.counters["reads_asked"] += 1
            try:
                self.replica.read(now, barrier.ticket, barrier.level)
            except NotLeader as error:
                self.barriers.refused(barrier, partial(NotLeader, error.leader, error.address))
            except Rejected as error:
                self.barriers.refused(barrier, partial(Rejected, error.reason, error.detail))
        if self.proposals.waiting:
            self._flush_proposals(now)
        self.pump()

    def _flush_proposals(self, now: int) -> None:
        proposals, target = self.proposals, self.config.uncommitted_frames_target
        wall_ms = self.system.wall_ms()
        while proposals.waiting:
            if proposals.in_flight >= target:
                self._wait_for_commit()
                return
            batch = proposals.take()
            assert batch is not None
            try:
                first, last = self.replica.propose(now, batch.commands, wall_ms)
            except Busy as error:
                if proposals.in_flight:
                    proposals.put_back(batch)
                    self._wait_for_commit()
                    return
                proposals.refuse(batch, partial(Busy, error.detail))
            except NotLeader:
                proposals.refuse(batch, self.refusal)
            except Rejected as error:
                proposals.refuse(batch, partial(Rejected, error.reason, error.detail))
            else:
                self.counters["batches"] += 1
                proposals.handed_over(batch, first, last, self.replica.term)

    def _wait_for_commit(self) -> None:
        self._full_at = self.proposals.in_flight
        deadline = self.proposals.next_deadline()
        if deadline is not None:
            self._rearm(deadline)

    def _rearm(self, deadline: int) -> None:
        """Let the timer fire no later than ``deadline``."""
        if deadline < self._armed:
            self._armed = deadline
            if self._timer is not None:
                self._timer.deadline = self._trio_time(deadline)

    def _trio_time(self, deadline: int) -> float:
        left = deadline - self.clock()
        return trio.current_time() + left / NS + 1e-6 if left < 1 << 60 else math.inf

    async def _run_timer(self) -> None:
        while True:
            due = [self.replica.deadline]
            for deadline in (self.proposals.next_deadline(), self.barriers.next_deadline()):
                if deadline is not None:
                    due.append(deadline)
            self._armed = min(due)
            with trio.CancelScope(deadline=self._trio_time(self._armed)) as self._timer:
                await trio.sleep_forever()
            now = self.clock()
            late = now - self._armed
            if 2 * late > self.config.election_timeout_ms * MS:
                self.paused_ns, self.paused_at_ns = late, now
            self.proposals.expire(now)
            self.barriers.expire(now)
            if self.replica.deadline <= now:
                self.replica.wall_ms = self.system.wall_ms()
                self.replica.tick(now)
            self.pump()

    async def _run_loads(self) -> None:
        """Read, as a task, old frames from storage for slow peers."""
        async for load in self._loads_due:
            try:
                frames = await self._load(load.first, load.max_bytes)
                while frames is None:
                    await trio.sleep(LOAD_RETRY_S)
                    frames = await self._load(load.first, load.max_bytes)
            except StorageError as error:
                self.write_failed(error)
                continue
            self.replica.loaded(self.clock(), load.peer, load.session, load.first, frames)
            self.pump()

    async def _run_room(self) -> None:
        """Ask, as a task, whether a full disk has room again, with growing pauses."""
        while True:
            await self._room_wanted.wait()
            self._room_wanted = trio.Event()
            patience, room = ROOM_RETRY_S, False
            while not room and self.storage_state == "full":
                await trio.sleep(patience)
                patience = min(2 * patience, ROOM_RETRY_MAX_S)
                try:
                    room = await self.system.run_blocking(self.disk.storage.has_room)
                except StorageError as error:
                    self.write_failed(error)
            if self.storage_state == "full":
                self.storage_state = "ok"
                self.replica.storage_fault(self.clock(), "room")
                self.pump()

