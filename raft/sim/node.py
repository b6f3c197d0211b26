"""One simulated node: a replica with its storage and state machine, and a shell that does what the real one must do.

``SimNode`` is the machine, which survives crashes: directory, clock, faults of its disk. ``Life`` is one run of the
process on it: it carries out the replica's outputs in order, and reports back. Writes gather while a sync runs (group
commit); messages that wait for a write leave when it is durable; entries are applied a little after their commit. There
is no thread and no real time. Knows no schedule of faults and no workload.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from raft.config import NEVER, Config, Read
from raft.errors import DamagedLog, DiskFull, NotLeader, Outcome, Rejected, RejectReason, Unknown
from raft.frame import Frame
from raft.held import Held
from raft.lives import RANDOM_BITS, Lives
from raft.membership import Membership
from raft.messages import (
    AppendReply,
    Committed,
    Install,
    Load,
    LoadChunk,
    MembershipChanged,
    PeerMessage,
    ReadReady,
    Recovered,
    Resolved,
    Role,
    RoleChanged,
    Send,
    SnapshotMeta,
    StoreChunk,
    Write,
)
from raft.replica import Replica
from raft.sim.disks import SimDisk
from raft.sim.machine import SimMachine
from raft.sim.neighbours import SharedLog
from raft.sim.tape import Stream
from raft.sim.world import Clock
from raft.storage.place import SEGMENTS

if TYPE_CHECKING:
    from raft.sim.cluster import Cluster

FOLLOWER = Role.FOLLOWER
GROUP = 1
SYNC_NS = 200_000
REPORT_NS = 1_000_000
APPLY_NS = 20_000
LOAD_NS = 50_000
APPLY_FRAMES_MAX = 64
(E_RECEIVE, E_TICK, E_DURABLE, E_APPLY, E_LOAD, E_CHUNK, E_STORE, E_INSTALL, E_SNAPSHOT, E_PROPOSE, E_READ, E_CHANGE,
 E_START, E_FAULT, E_IDENTIFY) = range(15)


class Proposal:
    """Commands proposed at one node. ``outcome`` is None while open, a list of results, or an error."""

    __slots__ = ("at", "first", "last", "node", "outcome", "term")

    def __init__(self, node: str, first: int, last: int, term: int, at: int) -> None:
        self.node, self.first, self.last, self.term, self.at = node, first, last, term, at
        self.outcome: list[object] | Outcome | None = None


class Reading:
    """A read at one node. ``outcome`` is None while open, ``[answer]``, or an error."""

    __slots__ = ("at", "floor", "index", "lease", "level", "node", "outcome", "query")

    def __init__(self, node: str, level: Read, query: Callable[[Any], object], floor: int, at: int) -> None:
        self.node, self.level, self.query, self.floor, self.at = node, level, query, floor, at
        self.index, self.lease = 0, False
        self.outcome: list[object] | Outcome | None = None


class Change:
    """A reconfiguration or a transfer. ``outcome`` is None while open, ``[]`` when done, or an error."""

    __slots__ = ("at", "node", "outcome")

    def __init__(self, node: str, at: int) -> None:
        self.node, self.at = node, at
        self.outcome: list[object] | Outcome | None = None


@attrs.define(eq=False)
class SimNode:
    """A machine, which outlives its processes."""

    name: str
    number: int
    disk: SimDisk
    incarnation: bytes
    bootstrap: Membership
    """Membership known before the log says otherwise; empty for a joiner."""
    clock: Clock
    syncs: Stream
    """Decides how long each sync takes."""
    life: Life | None = None
    boots: int = 0
    number_of_life: int = 0
    """Number of the latest life, as its hello says (``raft.lives``)."""
    lives: bytes = Lives().encode()
    """Record on disk of its own lives and of the peers' lives it met."""
    sync_ns: int = SYNC_NS
    slow: float = 0.0
    """Chance that a sync is slow."""
    slow_ns: int = 20_000_000
    stalled_until: int = 0
    """World time before which no sync ends."""
    promises: bool = False
    """True if early acknowledgements leave as soon as the sync ends; the process is told ``REPORT_NS`` later."""
    full: bool = False
    damaged: bool = False
    """True if bytes on its disk were damaged: its storage refuses to open, or to read them."""
    neighbour: list[bytes] = attrs.field(factory=list)
    """Entries of the quiet group that shares the log."""
    fail_next: bool = False
    """True if the next sync shall fail, and the storage with it."""


class Life:
    """One process of a node, from its start to its end."""

    __slots__ = (  # too many attributes for CPython's key-sharing dictionaries
        "_fold", "_handlers", "_links", "_number", "_ticket_last", "applying", "broken", "checker", "clock", "cluster",
        "commit", "config", "dead", "durable", "ghost", "held", "in_flight", "installing", "lives", "log_bytes",
        "machine", "met", "name", "node", "paused", "promised", "proposals", "queue", "replica", "shared",
        "snapshotting", "storage", "tickets", "timer", "unheard", "waiting", "world",
    )

    def __init__(self, cluster: Cluster, node: SimNode, config: Config, machine: SimMachine) -> None:
        self.cluster, self.node, self.config, self.machine = cluster, node, config, machine
        self.world, self.checker, self.name = cluster.world, cluster.checker, node.name
        self.clock = node.clock
        self.dead = False
        self.paused: list[tuple[Callable[[Any], None], Any]] | None = None
        self.met: dict[str, tuple[bytes, int]] = {}
        """Peer -> incarnation and life in its latest hello."""
        self.queue: list[Write] = []
        self.in_flight = 0
        """Token of the last write that is being synced; 0: the disk is idle."""
        self.durable = 0
        self.held = Held()
        self.promised: deque[tuple[int, str, AppendReply]] = deque()
        """Early acknowledgements as (token, peer, reply): each leaves once that write is synced."""
        self.unheard: deque[tuple[int, AppendReply]] = deque()
        """Early acknowledgements that left, as (token, reply), and that the process does not know of yet."""
        self.broken = False
        self.timer = NEVER
        self.commit = 0
        self.applying = False
        self.installing = False
        self.snapshotting = False
        self.log_bytes = 0
        self.proposals: deque[Proposal] = deque()
        self.tickets: dict[int, Reading | Change] = {}
        self._ticket_last = 0
        self.waiting: list[Reading] = []
        self._links = cluster.links_from(node.name)
        self._number, self._fold = node.number, cluster.world.fold
        self._handlers: dict[type, Callable[[Any], None]] = {
            Write: self._write, Committed: self._committed, Load: self._load,
            LoadChunk: self._load_chunk, StoreChunk: self._store_chunk, Install: self._install,
            ReadReady: self._read_ready, Resolved: self._resolved,
            RoleChanged: lambda _: None, MembershipChanged: self._members_changed,
        }
        self._start()

    def _start(self) -> None:
        cluster, node = self.cluster, self.node
        self.storage = node.disk.storage()
        recovered = self.storage.open().get(GROUP) or Recovered()
        self.shared = SharedLog(self, recovered.last_index) if self.storage.kind == SEGMENTS else None
        self.lives = Lives.decode(node.lives)
        self.lives.begin(cluster.tape.bits(f"life/{node.name}/{node.boots}").getrandbits(RANDOM_BITS))
        node.number_of_life = self.lives.now
        node.lives = self.lives.encode()
        if recovered.snapshot is not None:
            self.machine.restore(self._snapshot_bytes(recovered.snapshot))
            self.commit = recovered.snapshot.index
        self.replica = Replica(
            group=GROUP, node_id=node.name, config=self.config, rules=cluster.rules,
            rng=cluster.tape.rng(f"timeouts/{node.name}", (node.number % 97 + 0.5) / 97), now=self.now,
            recovered=recovered, membership=node.bootstrap, life=node.boots << 32, incarnation=node.incarnation,
            trace=self.checker.event)
        self.replica.following.members_only = True
        self.checker.started(self.name, self.replica, recovered, cluster.next_life())
        self.ghost = self.checker.nodes[self.name]

    @property
    def now(self) -> int:
        """Present time on this node's clock."""
        return self.clock.local(self.world.now)

    def _snapshot_bytes(self, meta: SnapshotMeta) -> bytes:
        parts: list[bytes] = []
        offset = 0
        while True:
            piece = self.storage.read_snapshot(GROUP, meta.index, offset, 1 << 20)
            if piece is None:
                raise DamagedLog(self.name, offset, f"snapshot {meta.index} is gone")
            if not piece:
                return b"".join(parts)
            parts.append(piece)
            offset += len(piece)

    # --- after every input

    def settle(self, kind: int) -> None:
        """Carry out the outputs of an input, run the checker, and arm the timer."""
        replica = self.replica
        for output in replica.writes.drain(replica.now):
            if type(output) is Send:  # half of all outputs, so this comes first
                if output.after > self.durable:
                    self.held.add(output)
                else:
                    self._leave(output.peer, output.message)
            else:
                self._handlers[type(output)](output)
        ghost, log, term, commit = self.ghost, replica.log, replica.term, replica.commit_index
        if (commit != ghost.commit or term != ghost.term or replica.role is not ghost.role
                or replica.voted_for != ghost.vote):
            self.checker.stepped(self.name)
        self._fold(self._number, kind, term, commit, log.last_index, log.last_mark)
        if self.queue:
            if self.node.promises:
                self._promise(self.queue[-1].token)
            if not self.in_flight and not self.broken:
                self._flush()
        # A follower's timer needs no new arming: a message from the leader only moves its deadline later.
        if (replica.role is not FOLLOWER or self.timer > replica.election_deadline
                or replica.following.handed_over is not None):
            leadership = replica.leadership
            due = replica.deadline if leadership is None or replica.faulted else leadership.deadline()
            if due < self.timer:
                self.arm(due)

    def arm(self, due: int) -> None:
        """Have ``tick`` called when this node's clock reads ``due``."""
        self.timer = due
        self.world.at(self.clock.world(due), self.tick, due)

    def rearm(self) -> None:
        """Arm the timer again after the clock changed."""
        due = self.replica.deadline
        self.timer = NEVER
        if due < NEVER:
            self.arm(due)

    def tick(self, due: int) -> None:
        """Take the timer that was armed for ``due``; an outdated one is ignored."""
        if self.dead or due != self.timer:
            return
        if self.paused is not None:
            self.paused.append((self.tick, due))
            return
        self.timer = NEVER
        now, wanted = self.now, self.replica.deadline
        if wanted > now:
            if wanted < NEVER:
                self.arm(wanted)
            return
        self.replica.tick(now)
        self.settle(E_TICK)

    def later(self, delay_ns: int, action: Callable[[Any], None], argument: Any) -> None:
        """Call ``action`` later, in this life only, and not while it is paused."""
        self.world.at(self.world.now + delay_ns, self._alive, (action, argument))

    def _alive(self, what: tuple[Callable[[Any], None], Any]) -> None:
        if self.dead:
            return
        if self.paused is not None:
            self.paused.append(what)
        else:
            what[0](what[1])

    # --- messages

    def receive(self, source: SimNode, message: PeerMessage) -> None:
        """Take a message. The hello comes before the first one of a peer's life."""
        if self.paused is not None:
            self.paused.append((partial(self.receive, source), message))
            return
        if self.met.get(source.name) != (source.incarnation, source.number_of_life):
            self.identify(source)
        replica = self.replica
        cluster = self.cluster
        if self.checker.lapses and type(message) is AppendReply:
            self.checker.arrives(self.name, source.name, message)
        stale = message.term < replica.term and type(message) not in cluster.speaks_late
        if stale or (cluster.twice_rate and cluster.twice.chance(cluster.twice_rate)):
            self._receive_watched(source, message, stale=stale)
            return
        replica.receive(self.clock.local(self.world.now), source.name, message)
        self.settle(E_RECEIVE)

    def _receive_watched(self, source: SimNode, message: PeerMessage, *, stale: bool) -> None:
        """Check that a stale message, or the second delivery of any message, changes nothing."""
        before = self.state() if stale else ()
        self.replica.receive(self.now, source.name, message)
        self.settle(E_RECEIVE)
        after = self.state()
        if stale:
            self.checker.delivered_twice(self.name, before, after)
        elif not self.dead:
            self.replica.receive(self.now, source.name, message)
            self.settle(E_RECEIVE)
            self.checker.delivered_twice(self.name, after, self.state())

    def state(self) -> tuple[object, ...]:
        """Return the state that a repeated message must not change."""
        replica = self.replica
        return (replica.term, replica.voted_for, replica.role, replica.leader, replica.commit_index,
                replica.log.last_index, replica.log.last_mark)

    def identify(self, source: SimNode) -> None:
        """Take a peer's hello, which says its incarnation and life."""
        self.met[source.name] = source.incarnation, source.number_of_life
        if source.life is not None:
            self._greeted(source, source.life)
        self.replica.identities.meet(self.now, source.name, source.incarnation)
        self.settle(E_IDENTIFY)

    def _greeted(self, source: SimNode, life: Life) -> None:
        """Note the peer's life, and learn which lives of this node it met."""
        self.checker.greeted(self.name, source.name)
        if self.lives.meet(source.name, source.incarnation, source.number_of_life):
            self.later(SYNC_NS, self._keep_lives, None)
        missing = self.lives.missing(self.node.incarnation, life.lives.met(self.name))
        if missing:
            self._take_loss(self.replica.regaining.outlived(self.now, source.name, missing))

    def _take_loss(self, news: bool) -> None:
        if news:
            self.held.clear()
            self.cluster.counts["told by a peer"] += 1

    def _members_changed(self, _: MembershipChanged) -> None:
        if self.replica.regaining.words:
            self.later(0, self._believe_members, None)

    def _believe_members(self, _: None) -> None:
        self.checker.believed(self.name)
        self._take_loss(self.replica.regaining.believe_members(self.now))
        self.settle(E_IDENTIFY)

    def _keep_lives(self, _: None) -> None:
        self.node.lives = self.lives.encode()
        self.checker.kept_lives(self.name)

    def unreachable(self, peer: str) -> None:
        """Note that the connection to a peer broke."""
        self.replica.unreachable(self.now, peer)
        self.settle(E_IDENTIFY)

    def _leave(self, peer: str, message: PeerMessage) -> None:
        self.checker.leaves(self.name, peer, message)
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = self.cluster.network.link(self.name, peer)
        link.send(message)

    # --- the disk

    def _write(self, write: Write) -> None:
        self.checker.written(self.name, write)
        self.queue.append(write)

    def _promise(self, token: int) -> None:
        """Attach an early acknowledgement to the newest write, if the replica makes one."""
        promised = self.promised
        if (not promised or promised[-1][0] < token) and (promise := self.replica.following.early_ack()) is not None:
            promised.append((token, *promise))

    def _flush(self) -> None:
        """Write all gathered writes as one group commit."""
        node, world = self.node, self.world
        writes = self.queue
        if node.full and any(write.frames for write in writes):
            self._full()
            return
        self.queue = []
        try:
            self.storage.write(writes)
        except DiskFull:
            self._full()
            return
        if self.shared is not None:
            self.shared.wrote(writes)
            if self._is_damaged(self.shared):
                return
        self.in_flight = writes[-1].token
        took = node.syncs.seldom(node.slow, self._slow_sync_ns)
        if took is None:
            took = node.sync_ns
        else:
            self.cluster.counts["slow sync"] += 1
        done = world.now + took
        if done < node.stalled_until:
            self.cluster.counts["stalled sync"] += 1
            done = node.stalled_until
        world.at(done, self._synced)

    def _slow_sync_ns(self, _: float, chance: Callable[[], float]) -> int:
        return self.node.sync_ns + int(chance() * self.node.slow_ns)

    def _full(self) -> None:
        self.cluster.counts["disk full"] += 1
        self.queue = []
        self.promised.clear()
        self._note_durable()
        self.checker.disk_full(self.name)
        self.replica.storage_fault(self.now, "full")
        self.settle(E_FAULT)

    def room(self) -> None:
        """Note that there is room on the disk again."""
        self.replica.storage_fault(self.now, "room")
        self.settle(E_FAULT)
        self.checker.disk_room(self.name)

    def _synced(self, _: None) -> None:
        if self.dead:
            return
        if self.paused is not None:
            self.paused.append((self._synced, None))
            return
        node = self.node
        if node.fail_next:
            node.fail_next = False
            self.cluster.counts["failed sync"] += 1
            self._disk_failed()
            return
        self.storage.sync()
        if self.shared is not None and self._is_damaged(self.shared):
            return
        token, self.in_flight = self.in_flight, 0
        self.checker.durable(self.name, token)
        promised, kept = self.promised, None
        while promised and promised[0][0] <= token:
            kept = promised.popleft()
        if kept is not None:
            self._leave(kept[1], kept[2])
            self.unheard.append((token, kept[2]))
            self.later(REPORT_NS, self._hear, None)
            if self.queue:
                self._flush()
            return
        if self.unheard:
            self._note_durable()
        self._durable(token)
        self.settle(E_DURABLE)

    def _hear(self, _: None) -> None:
        """Tell the process of the syncs that ended."""
        self._note_durable()
        self.settle(E_DURABLE)

    def _note_durable(self) -> None:
        while self.unheard:
            token, kept = self.unheard.popleft()
            self.replica.following.early_ack_sent(kept)
            self._durable(token)

    def _durable(self, token: int) -> None:
        assert token > self.durable, "tokens rise"
        self.durable = token
        for send in self.held.due(token):
            self._leave(send.peer, send.message)
        self.replica.durable(self.clock.local(self.world.now), token)

    def _disk_failed(self) -> None:
        self.broken = True
        self.replica.storage_fault(self.now, "failed")
        self.settle(E_FAULT)
        self.checker.disk_failed(self.name)
        self.abandon("the disk failed")

    def _is_damaged(self, shared: SharedLog) -> bool:
        """Return whether the storage found damage in this group's entries, and so wrote nothing of this group. Only
        segment logs are damaged."""
        shared.note_damage()
        damage = self.storage.damaged.get(GROUP)
        if damage is not None:
            self.cluster.counts["damage met by upkeep"] += 1
            self._found_damage(damage)
        return damage is not None

    def _read(self, first: int, max_bytes: int) -> list[Frame] | None:
        """Read frames from the disk; None if the storage found damage."""
        try:
            return self.storage.read(GROUP, first, max_bytes)
        except DamagedLog as error:
            self._found_damage(error)
            return None

    def _found_damage(self, error: DamagedLog) -> None:
        """Stop the node for good after damage was found; raise it unless it was done on purpose."""
        if not self.node.damaged:
            raise error
        self.cluster.counts["damage found"] += 1
        self._disk_failed()

    # --- applying

    def _committed(self, committed: Committed) -> None:
        self.commit = committed.index
        if not self.applying:
            self._want_apply()

    def _want_apply(self) -> None:
        if not self.applying and not self.installing and self.machine.index < self.commit:
            self.applying = True
            self.world.at(self.world.now + APPLY_NS, self._apply)

    def _apply(self, _: None) -> None:
        if self.dead:
            return
        if self.paused is not None:
            self.paused.append((self._apply, None))
            return
        self.applying = False
        if self.installing or self.replica.faulted:
            return
        machine, commit = self.machine, self.commit
        start = machine.index
        frames = self.replica.log.cached(start + 1, self.config.append_bytes_max)
        if frames is None:
            frames = self._read(start + 1, self.config.append_bytes_max)
            if frames is None:
                return
        del frames[APPLY_FRAMES_MAX:]
        apply, applied, name, proposals = machine.apply, self.checker.applied, self.name, self.proposals
        for frame in frames:
            if frame.first + frame.count - 1 > commit:
                break
            try:
                results = apply(frame)
            except Exception as error:  # noqa: BLE001  any error of a user's machine stops this node, visibly
                self._raised(error)
                return
            self.log_bytes += len(frame.data)
            applied(name, frame, machine.digest)
            while proposals and proposals[0].first <= machine.index:
                self._resolve(proposals[0], frame, results)
                if proposals[0].last > machine.index:
                    break
                proposals.popleft()
        if machine.index == start:
            return
        self.replica.applied(self.clock.local(self.world.now), machine.index)
        if self.waiting:
            self._answer_reads()
        self.settle(E_APPLY)
        if machine.index < self.commit:
            self._want_apply()
        if self.log_bytes > self.config.snapshot_log_bytes > 0:
            self.snapshot()

    def _raised(self, error: Exception) -> None:
        """Stop the node for good, since its state machine raised."""
        self.replica.fault(self.now, f"the state machine raised: {error!r}")
        self.settle(E_FAULT)
        self.abandon(f"the state machine raised {error!r}")

    def _resolve(self, proposal: Proposal, frame: Frame, results: list[object]) -> None:
        """Resolve the part of a proposal that this frame holds."""
        if frame.term != proposal.term:
            proposal.outcome = Rejected(RejectReason.OVERWRITTEN)
            return
        skip = max(proposal.first - frame.first, 0)
        part = results[skip : proposal.last - frame.first + 1]
        if proposal.outcome is None:
            proposal.outcome = []
        if isinstance(proposal.outcome, list):
            proposal.outcome.extend(part)
            self.checker.acknowledged = max(self.checker.acknowledged, frame.first + skip + len(part) - 1)

    # --- snapshots

    def snapshot(self) -> bool:
        """Begin a snapshot of what is applied. Return False if nothing is new, or one is being taken."""
        replica, machine = self.replica, self.machine
        newest = replica.log.snapshot.index if replica.log.snapshot else 0
        if (self.snapshotting or self.installing or replica.faulted or not machine.machine.snapshots
                or machine.index <= newest):
            return False
        self.snapshotting = True
        self.log_bytes = 0
        meta = attrs.evolve(replica.snapshots.meta(machine.index), mark=machine.mark)
        self.later(LOAD_NS, self._take_snapshot, (meta, machine.capture()))
        return True

    def _take_snapshot(self, what: tuple[SnapshotMeta, Any]) -> None:
        self.snapshotting = False
        meta, view = what
        newest = self.storage.newest_snapshot(GROUP)
        if self.node.full or (newest is not None and newest.index >= meta.index):
            return
        sink = self.storage.create_snapshot(GROUP, meta)
        self.machine.write(view, sink)
        finished = sink.finish()
        self.cluster.counts["snapshot"] += 1
        self.checker.snapshot_taken(self.name, finished)
        self.replica.snapshots.taken(self.now, finished)
        self.settle(E_SNAPSHOT)

    def _load(self, load: Load) -> None:
        self.later(LOAD_NS, self._loaded, load)

    def _loaded(self, load: Load) -> None:
        frames = self._read(load.first, load.max_bytes)
        if frames is None:
            return
        self.cluster.counts["load from disk"] += 1
        self.replica.loaded(self.now, load.peer, load.session, load.first, frames)
        self.settle(E_LOAD)

    def _load_chunk(self, load: LoadChunk) -> None:
        self.later(LOAD_NS, self._chunk_loaded, load)

    def _chunk_loaded(self, load: LoadChunk) -> None:
        meta = self.storage.newest_snapshot(GROUP)
        data = None
        if meta is not None and load.index in (0, meta.index):
            try:
                data = self.storage.read_snapshot(GROUP, meta.index, load.offset, load.max_bytes)
            except DamagedLog as error:
                self._found_damage(error)
                return
        if data is None:
            meta = None
        self.replica.snapshots.chunk_loaded(self.now, load.peer, load.session, meta, load.offset, data)
        self.settle(E_CHUNK)

    def _store_chunk(self, chunk: StoreChunk) -> None:
        self.later(LOAD_NS, self._chunk_stored, chunk)

    def _chunk_stored(self, chunk: StoreChunk) -> None:
        sink = self.storage.receive_snapshot(GROUP, chunk.meta)
        complete = False
        if sink.offset == chunk.offset:
            sink.write(chunk.data)
        offset = sink.offset
        if offset >= chunk.meta.size:
            try:
                finished = sink.finish()
            except DamagedLog:
                offset = 0
            else:
                complete = True
                self.checker.snapshot_taken(self.name, finished)
        self.replica.snapshots.chunk_stored(self.now, chunk.peer, chunk.meta, offset, complete)
        self.settle(E_STORE)

    def _install(self, install: Install) -> None:
        self.installing = True
        self.later(LOAD_NS, self._installed, install.meta)

    def _installed(self, meta: SnapshotMeta) -> None:
        self.machine.restore(self._snapshot_bytes(meta))
        self.cluster.counts["install"] += 1
        self.checker.restored(self.name, meta, self.machine.digest)
        self.installing = False
        self.commit = max(self.commit, meta.index)
        while self.proposals and self.proposals[0].first <= meta.index:
            lost = self.proposals.popleft()
            lost.outcome = Unknown(lost.first, lost.last, "a snapshot took the place of these entries")
        self.replica.snapshots.installed(self.now, meta)
        self._answer_reads()
        self.settle(E_INSTALL)
        self._want_apply()

    # --- what callers ask for

    def propose(self, payloads: list[bytes]) -> Proposal:
        """Propose commands at this node. Raises ``NotLeader``, ``Rejected`` or ``Busy``."""
        replica = self.replica
        try:
            first, last = replica.propose(self.clock.local(self.world.now), payloads, self.world.now // 1_000_000)
        finally:
            self.settle(E_PROPOSE)
        while self.proposals and self.proposals[-1].last >= first:
            lost = self.proposals.pop()  # truncated here; the next leader decides whether it commits
            lost.outcome = Unknown(lost.first, lost.last, "this node's log lost these entries")
        proposal = Proposal(self.name, first, last, replica.term, self.world.now)
        self.proposals.append(proposal)
        return proposal

    def read(self, level: Read, query: Callable[[Any], object]) -> Reading:
        """Begin a read at this node. Raises ``NotLeader``, ``Rejected`` or ``Busy``."""
        reading = Reading(self.name, level, query, self.checker.read_floor, self.world.now)
        ticket = self._ticket(reading)
        try:
            self.replica.read(self.clock.local(self.world.now), ticket, level)
        except Outcome:
            del self.tickets[ticket]
            raise
        finally:
            self.settle(E_READ)
        return reading

    def reconfigure(self, voters: dict[str, str], learners: dict[str, str]) -> Change:
        """Begin a change of the voters and learners. Raises ``NotLeader``, ``Rejected``."""
        return self._change(lambda ticket: self.replica.leading(self.now).changes.begin(ticket, voters, learners))

    def transfer(self, target: str | None) -> Change:
        """Begin to hand leadership over. Raises ``NotLeader``, ``Rejected``."""
        return self._change(lambda ticket: self.replica.leading(self.now).transfer.begin(ticket, target))

    def _change(self, begin: Callable[[int], None]) -> Change:
        change = Change(self.name, self.world.now)
        ticket = self._ticket(change)
        try:
            begin(ticket)
        except Outcome:
            self.tickets.pop(ticket, None)
            raise
        finally:
            self.settle(E_CHANGE)
        return change

    def _ticket(self, waiter: Reading | Change) -> int:
        self._ticket_last += 1
        self.tickets[self._ticket_last] = waiter
        return self._ticket_last

    def _resolved(self, resolved: Resolved) -> None:
        change = self.tickets.pop(resolved.ticket, None)
        if isinstance(change, Change):
            if resolved.unknown:
                change.outcome = Unknown(detail=resolved.detail)
            else:
                change.outcome = [] if resolved.refused is None else Rejected(resolved.refused, resolved.detail)

    def _read_ready(self, ready: ReadReady) -> None:
        reading = self.tickets.pop(ready.ticket, None)
        if not isinstance(reading, Reading):
            return
        if ready.refused is not None:
            reading.outcome = Rejected(ready.refused)
            return
        reading.index, reading.lease = ready.index, ready.lease
        if self.machine.index >= ready.index and not self.installing:
            self._answer(reading)
        else:
            self.waiting.append(reading)

    def _answer_reads(self) -> None:
        if not self.waiting or self.installing:
            return
        waiting, self.waiting = self.waiting, []
        for reading in waiting:
            if reading.index <= self.machine.index:
                self._answer(reading)
            else:
                self.waiting.append(reading)

    def _answer(self, reading: Reading) -> None:
        cluster = self.cluster
        if reading.lease and not self.replica.lease_valid(self.now):
            reading.outcome = Rejected(RejectReason.NO_LEASE)
            return
        level = Read.LEASE if reading.lease else Read.INDEX if reading.level is Read.LEASE else reading.level
        self.checker.read_answered(self.name, level, reading.floor, reading.index, self.machine.index,
                                   sound=cluster.clocks_are_sound())
        cluster.counts[f"{level.value} read"] += 1
        reading.outcome = [reading.query(self.machine.inner)]

    # --- the end

    def end(self) -> None:
        """Kill the process; its open requests get no answer."""
        self.dead = True
        self.abandon("the node crashed")
        self.checker.stopped(self.name)

    def abandon(self, why: str) -> None:
        """End all open requests without an answer."""
        for proposal in self.proposals:
            proposal.outcome = Unknown(proposal.first, proposal.last, why)
        for waiter in (*self.tickets.values(), *self.waiting):
            waiter.outcome = Unknown(detail=why) if isinstance(waiter, Change) else NotLeader(None, None)
        self.proposals.clear()
        self.tickets.clear()
        self.waiting.clear()
