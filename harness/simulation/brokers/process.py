"""One run of a broker: store, journal, puts, replication and replicas manager take turns as in its event loop.

``Turns`` is the shipped journal, woken by the world instead of a task. ``Member`` is the shipped membership with
simulated requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from broker.ha.acks import QuorumConfig
from broker.ha.taking import Become, BecomeMaster
from broker.journal import FlushDiskType, Journal, JournalConfig
from broker.puts import Done, PutResult, Puts
from broker.replicas.config import ManagerConfig
from broker.replicas.demand import Demand
from broker.replicas.manager import LogState
from broker.replicas.membership import Membership
from broker.replicas.outputs import Leave, SendCommand
from broker.replicas.probing import PROBE_MEMBER
from broker.store.files import MemoryFiles, read_whole, write_whole
from broker.store.lives import StoreLives
from broker.store.store import MessageStore, StoreConfig
from harness.simulation.brokers.disks import LateDisk
from harness.simulation.brokers.features import Features
from harness.simulation.brokers.hindrances import is_yield
from harness.simulation.brokers.plan import DELAYS_MS, FLUSH_TIMEOUT_MS, SILENCE_MS, YIELD_WAIT_MS
from harness.simulation.brokers.queueends import QueueEndsAsked
from harness.simulation.brokers.replication import SimulatedPort, Switch
from raft.config import MS
from raft.invariants import InvariantViolation
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.headers.controller import NotifyBrokerRoleChangedRequest
from remoting.record import Message
from remoting.wakeup import Bell

if TYPE_CHECKING:
    from harness.simulation.brokers.controller import BrokerChannel
    from harness.simulation.brokers.host import Host

(E_TURN, E_TICK) = range(20, 22)
(E_TIMER, E_ANSWER, E_TIMEOUT, E_TOLD, E_DEMAND) = range(23, 28)  # 28: a probe, or its answer
PRIORITY_DEFAULT = 2**31 - 1
TICK_NS = 50 * MS
IDENTITY = "brokerIdentity"


class _TurnBell(Bell):
    """A bell that asks the scene for a turn of the process."""

    __slots__ = ("wake",)

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self.wake = wake

    def ring(self) -> None:
        self.wake()


class Turns(Journal):
    """The shipped journal, driven by the world."""

    def begin_turns(self, wake: Callable[[], None]) -> None:
        """Begin as the shipped ``run`` does."""
        self._bell = _TurnBell(wake)
        now_ns = self.now_ns()
        self._flush_began_ns = now_ns
        self._checkpoint_due_ns = now_ns + self.config.checkpoint_interval_ms * MS
        wake()

    def turn(self) -> bool:
        """Take one turn; returns whether there is more to dispatch."""
        return self._turn()

    def tick(self) -> None:
        """Tick as the shipped task does."""
        self._tick()


@attrs.frozen(eq=False)
class _Watched:
    """Passes on the outcome of a put after the watch has seen it."""

    process: BrokerProcess
    messages: Sequence[Message]
    done: Done

    def __call__(self, result: PutResult) -> None:
        scene = self.process.scene
        try:
            scene.watch.answered_put(self.process, self.messages, result)
            self.done(result)
        except Exception as error:  # noqa: BLE001  puts would swallow it
            scene.found(error)


class WatchedPuts(Puts):
    """The shipped puts. The watch sees each put of clients and of parts."""

    process: BrokerProcess

    def put(self, messages: Sequence[Message], done: Done, *, wait_store_ok: bool = True, hold: bool = True) -> None:
        """Put messages under the watch. A held put is repeated by a caller that catches exceptions."""
        process, scene = self.process, self.process.scene
        try:
            if not isinstance(done, _Watched):
                scene.watch.puts(process, messages)
                done = _Watched(process, messages, done)
            scene.watch.put(process, lambda: super(WatchedPuts, self).put(
                messages, done, wait_store_ok=wait_store_ok, hold=hold))
            if self.waiting and process.behind_a_put is not None:
                stop, process.behind_a_put = process.behind_a_put, None
                stop()
        except InvariantViolation as broken:
            scene.found(broken)


class BrokerProcess:
    """One run of a broker, from ``open`` to its end."""

    def __init__(self, host: Host) -> None:
        self.host, self.scene = host, host.scene
        self.dead = self.opened = False
        self.channels: dict[str, BrokerChannel] = {}
        self._turn_wanted = False
        self.disk = LateDisk(self)
        self.dialled = 0
        """Number of connections to other brokers' HA ports that this run asked for."""
        plan = self.scene.plan
        kind = FlushDiskType.SYNC_FLUSH if plan.sync_flush else FlushDiskType.ASYNC_FLUSH
        self.journal: Turns = Turns(
            MessageStore(host.files, StoreConfig(
                log_file_bytes=1 << 14, queue_file_bytes=20 * 64, index=plan.index, index_slots=64,
                index_entries=128, delays_ms=DELAYS_MS), boot=f"{host.name}.{host.boots}", synced=plan.sync_flush),
            JournalConfig(flush_disk_type=kind, flush_interval_commit_log_ms=100, flush_commit_log_least_pages=1,
                          flush_commit_log_thorough_interval_ms=700, checkpoint_interval_ms=600, dispatch_slice=20,
                room_interval_ms=200, disk_stall_ms=plan.disk_stall_ms),
            disk=self.disk, now_ns=lambda: host.now, wall_ms=lambda: self.scene.wall_ms)

    def open(self) -> None:
        """Open the parts in the order of ``broker.server``."""
        host, journal = self.host, self.journal
        journal.open()
        self.switch = Switch(self)
        self.opened = True
        self.scene.watch.runs.recovered(self)
        self.behind_a_put: Callable[[], None] | None = None
        """Called once, when a put was made and waits for its answer."""
        self.demanded = host.min_in_sync
        """The ``minInSyncReplicas`` in force."""
        self.behind_a_beat: list[Callable[[], None]] = []
        """Called once, right after the next heartbeat left."""
        self.puts: WatchedPuts = WatchedPuts(
            journal, self._quorum(host.min_in_sync), sync_flush_timeout_ms=FLUSH_TIMEOUT_MS)
        self.puts.process = self
        self.features = Features(self) if self.scene.plan.features else None
        self.ends = QueueEndsAsked(self)
        self.switch.may_begin = self.ends.may_begin
        self.switch.advanced = self.puts.advanced
        self.member = Member(self)
        self.demand = Demand(lambda: self.member.manager.gate, self._quorum(host.min_in_sync), self._demands)
        journal.ticks.join("demand", lambda _: self.demand.settle())
        self.switch.changed = self.member.ring
        journal.disk_changed.join("role", self.member.ring)
        journal.begin_turns(self.wake)
        journal.arrived.call = lambda topic, queue_id, offset, tags, outline: self.scene.watch.arrived(
            self, queue_id, offset, outline)
        journal.veil.lifted = self._unveiled
        self.switch.begin()
        self.later(TICK_NS, E_TICK, self._tick)
        if self.features is not None:
            self.features.begin()
        self.member.ring()

    def _unveiled(self) -> None:
        self.scene.watch.unveiled(self)
        if self.features is not None:
            self.features.parts.all_seen()

    def _quorum(self, least: int) -> QuorumConfig:
        plan = self.scene.plan
        return QuorumConfig(
            total_replicas=max(plan.brokers, least), in_sync_replicas=plan.in_sync_replicas,
            min_in_sync_replicas=least, all_ack_in_sync_state_set=plan.all_ack,
            slave_timeout_ms=plan.slave_timeout_ms, young_master_hold_ms=plan.young_hold_ms)

    def change_demand(self, least: int) -> None:
        """Let the operator demand ``least`` in sync; after healing, no more than there are members."""
        least = min(least, self.scene.able) if self.scene.healed else least
        self.host.min_in_sync = least
        self.demand.change(self._quorum(least))
        self.scene.watch.demands.changed(self)

    def _demands(self, quorum: QuorumConfig) -> None:
        """Put another minimum in force, as ``broker.roles`` does."""
        self.puts.configure(quorum, sync_flush_timeout_ms=FLUSH_TIMEOUT_MS)
        self.scene.watch.demands.in_force(self, quorum.min_in_sync_replicas)
        self.switch.demand(quorum.min_in_sync_replicas)

    @property
    def now(self) -> int:
        return self.host.now

    @property
    def port(self) -> SimulatedPort:
        """Its HA port, which other brokers connect to."""
        return self.switch.port

    def later(self, delay_ns: int, kind: int, call: Callable[[], None]) -> None:
        self.host.later(self, delay_ns, kind, call)

    # --- turns -----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Ask for a turn of the journal."""
        if not self._turn_wanted and not self.dead:
            self._turn_wanted = True
            late = MS if self.scene.turns.chance(self.scene.plan.busy) else 0
            self.later(late, E_TURN, self._turn)

    def _turn(self) -> None:
        self._turn_wanted = False
        if self.journal.turn():
            self.wake()

    def _tick(self) -> None:
        self.later(TICK_NS, E_TICK, self._tick)
        self.journal.tick()
        self.scene.watch.hindrances.look(self)
        self.scene.watch.sizes.look(self)

    def after(self) -> None:
        """Run the tasks that the last event woke."""
        self.switch.after()
        self.member.after()

    def gone(self, *, noticed: bool) -> None:
        """End its connections. Peers hear of it if the network lets them; controllers only if ``noticed``."""
        if self.opened:
            self.switch.gone()
        for channel in self.channels.values():
            channel.open_here = False
            if noticed and self.scene.seen():
                self.scene.channel_closed(self.host, channel)

    def log_state(self) -> LogState:
        last = self.switch.epochs.last
        return LogState(-1 if last is None else last.epoch, self.journal.end, self.journal.confirm_offset,
                        self.journal.trust.in_doubt, master_silent=self.switch.master_silent,
                        disk=self.journal.health)


class _SmallFiles:
    """Files outside the store, on the same disk, as ``remoting.daemon.files.Files``."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files

    def read(self, path: str) -> bytes | None:
        return read_whole(self._files, path)

    def replace(self, path: str, content: bytes) -> None:
        write_whole(self._files, path, content)

    def remove(self, path: str) -> None:
        if self._files.exists(path):
            self._files.remove(path)


class Member(Membership):
    """The shipped membership with simulated requests, and a turn instead of a task."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process, self.scene = process, process.scene
        scene, plan, key = self.scene, self.scene.plan, self.scene.key
        config = ManagerConfig(
            key.cluster, key.name, process.host.address, scene.controller_addresses, heartbeat_interval_ms=plan.beat_ms,
            heartbeat_timeout_ms=plan.timeout_ms, master_lease_ms=plan.lease_ms,
            election_priority=process.host.number if plan.priorities else PRIORITY_DEFAULT,
            min_in_sync_replicas=process.host.min_in_sync,
            all_ack_in_sync_state_set=plan.all_ack, learner=process.host.learner, request_timeout_ms=500,
            sync_controller_metadata_period_ms=1_000, sync_broker_metadata_period_ms=plan.poll_ms, retry_ms=100,
            elect_retry_ms=500, yield_wait_ms=YIELD_WAIT_MS, silence_ms=SILENCE_MS,
            probe_interval_ms=plan.beat_interval_ms)
        super().__init__(
            config, files=_SmallFiles(process.host.files), identity_path=IDENTITY,
            check_code=f"{process.host.address};{process.host.life}", log_state=process.log_state,
            advance=process.switch.advance, doubtful_epoch=process.switch.doubtful_epoch, life=scene.new_life(),
            lives=StoreLives(process.host.files, process.journal.trust))
        self._rung = False
        self._timer: int | None = None

    def _clock(self) -> int:
        return self.process.now

    def _ring(self) -> None:
        self._rung = True

    ring = _ring

    def after(self) -> None:
        """Run its task if it was woken, and arm its next deadline."""
        if not self._rung:
            return
        self._rung = False
        self._tick()
        due = self.manager.next_deadline(self._clock())
        if due != self._timer:
            self._timer = due
            if due is not None:
                self.process.later(due - self._clock(), E_TIMER, lambda: self._due(due))

    def _due(self, at_ns: int) -> None:
        """Wake the task at its deadline; an outdated one is ignored, since the shipped task waits for one."""
        if at_ns == self._timer:
            self._timer = None
            self.ring()

    # --- notifications ---------------------------------------------------------------------------------------

    def notified(self, command: Command, *, known: bool = True) -> None:
        """Take a 1008; ``known``: it came from a controller's address."""
        if known:
            self.scene.watch.learned(
                self.process, NotifyBrokerRoleChangedRequest.from_ext(command.ext).master_epoch)
        self._notified(command, known=known)

    # --- outputs ---------------------------------------------------------------------------------------------

    def _change(self, change: Become | Leave) -> None:
        if isinstance(change, Leave):
            self.scene.counts["gave way to another life"] += 1
            self.process.switch.leave()
            self.process.ends.left()
            if self.process.features is not None:
                self.process.features.left()
        else:
            self.scene.watch.adopts(self.process, change)
            self.process.later(0, E_TURN, lambda: self._take(change))

    def _told(self, role: Become) -> None:
        if isinstance(role, BecomeMaster):
            self.scene.watch.leads(self.process, role)
        self.process.ends.taken(role)
        if self.process.features is not None:
            self.process.features.taken(role)

    def _serve(self) -> None:
        process = self.process
        process.demand.settle()
        if isinstance(self.manager.role, BecomeMaster):
            self.scene.counts["writes open"] += 1
            self.scene.watch.serves(process)
            if process.features is not None:
                process.features.writes_opened()
            process.puts.serve(process.switch, self.manager.lease.holds)

    def _fence(self, reason: str) -> None:
        self.scene.counts["lease over"] += "lease" in reason
        self.process.puts.fence(reason)
        if self.process.features is not None:
            self.process.features.parts.writes_closed()

    def _report(self, problem: str) -> None:
        self.scene.reported(self.process, problem)

    def _send(self, send: SendCommand) -> None:
        command, scene, process = send.command, self.scene, self.process
        sent_ns = process.now
        if command.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
            scene.watch.asks(process, SyncStateSet.from_json(command.body))
        elif is_yield(command):
            scene.watch.hindrances.asks_for_a_successor(process)

        def answered(answer: Command | None) -> None:
            scene.watch.answered(process, command, answer, sent_ns)
            self._answered(send, answer)
            scene.watch.demands.stands(process)

        ask = scene.probe if command.code == PROBE_MEMBER else scene.ask
        ask(process, send.address, command, send.timeout_ms, answered)
        if command.code == RequestCode.BROKER_HEARTBEAT:
            waiting, process.behind_a_beat = process.behind_a_beat, []
            for call in waiting:
                process.later(0, E_DEMAND, call)

    def _take(self, role: Become) -> None:
        switch = self.process.switch
        self.process.demand.settle()

        def done(refused: str | None) -> None:
            if refused is not None:
                self.scene.counts["role refused"] += 1
                self._refused(role, refused)
            else:
                self._took(role, switch.in_sync)

        switch.take(role, self.manager.broker_id, done)
