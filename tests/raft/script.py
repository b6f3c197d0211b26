"""A hand-driven group for scripted tests: every message, sync and moment is the test's to give or to hold.

Nothing is random but what a test asks for, nothing happens by itself: ``settle`` delivers what may be delivered,
``elapse`` moves the clock. Storage is ``MemoryStorage``; a crash loses what was not synced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

import attrs

from raft.config import MS, NEVER, Config, Read
from raft.errors import RejectReason
from raft.frame import Frame, Kind, build
from raft.held import Held
from raft.membership import Member, Membership
from raft.messages import (
    Committed,
    HardState,
    Install,
    Load,
    LoadChunk,
    MembershipChanged,
    Output,
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
from raft.rules import make_rules
from raft.storage.interface import SnapshotSink
from raft.storage.memory import MemoryStorage
from raft.trace import Event


@attrs.define(eq=False)
class Mail:
    """One message under way."""

    source: str
    target: str
    message: PeerMessage


@attrs.define(eq=False)
class Node:
    """A replica with its disk, its applied commands and what it said to its application."""

    name: str
    storage: MemoryStorage
    replica: Replica
    applied: list[bytes] = attrs.Factory(list)
    """Every command applied, in order; its length is the state a snapshot carries."""
    traces: list[Event] = attrs.Factory(list)
    reads: dict[int, ReadReady] = attrs.Factory(dict)
    resolved: dict[int, Resolved] = attrs.Factory(dict)
    roles: list[RoleChanged] = attrs.Factory(list)
    memberships: list[MembershipChanged] = attrs.Factory(list)
    writes: list[Write] = attrs.Factory(list)
    """Handed over but not synced."""
    held: Held = attrs.Factory(Held)
    syncing: bool = True
    """False: writes stay un-synced until ``Script.sync``."""
    applying: bool = True
    """False: commits are noted but not applied until it is set again and ``settle`` runs."""
    to_apply: int = 0
    sink: SnapshotSink | None = None
    up: bool = True
    tickets: int = 0
    """Of this life: a process begins at 1."""

    def ticket(self) -> int:
        self.tickets += 1
        return self.tickets

    def persisted(self) -> list[tuple[int, int]]:
        """(index, term) of every entry in this node's log as its storage gives it back."""
        out: list[tuple[int, int]] = []
        index = self.replica.log.purged_index + 1
        while index <= self.replica.log.last_index:
            frames = self.storage.read(1, index, 1 << 30)
            if not frames:
                break
            for frame in frames:
                out += [(i, frame.term) for i in range(frame.first, frame.last + 1) if i >= index]
            index = frames[-1].last + 1
        return out


class Script:
    """A group under a test's control."""

    def __init__(
        self, size: int | Iterable[str] = 3, *, config: Config | None = None, seed: int = 1,
        learners: Iterable[str] = (), disks: Mapping[str, MemoryStorage] | None = None,
    ) -> None:
        names = [f"n{i}" for i in range(size)] if isinstance(size, int) else list(size)
        self.config, self.seed, self.now = config or Config(), seed, 1_000 * MS
        self.bootstrap = Membership(names, (), learners, {n: Member(f"{n}:1") for n in (*names, *learners)})
        self.mail: list[Mail] = []
        self.cuts: set[tuple[str, str]] = set()
        self.filter: Callable[[Mail], bool] | None = None
        """Called for every mail about to be delivered; False drops it."""
        self.incarnations: dict[str, bytes] = {}
        self.nodes: dict[str, Node] = {}
        self._lives = 0
        self._lived: Counter[str] = Counter()
        for name in (*names, *learners):
            self.start(name, disks[name] if disks and name in disks else MemoryStorage())

    def __getitem__(self, name: str) -> Replica:
        return self.nodes[name].replica

    # --- life of a node

    def start(self, name: str, storage: MemoryStorage, membership: Membership | None = None) -> Node:
        """Start a node on this disk; ``membership`` () for a joiner, default the bootstrap one."""
        self._lives += 1
        self._lived[name] += 1
        traces: list[Event] = []
        recovered = storage.open().get(1) or Recovered()
        self.incarnations.setdefault(name, f"life of {name}".encode().ljust(16, b"."))
        replica = Replica(
            group=1, node_id=name, config=self.config, rules=make_rules(self.config),
            rng=Random(f"{self.seed}/{name}/{self._lives}"), now=self.now,
            membership=self.bootstrap if membership is None else membership,
            life=self._lived[name] << 32, incarnation=self.incarnations[name], trace=traces.append,
            recovered=recovered)
        node = Node(name, storage, replica, traces=traces)
        snapshot = storage.newest_snapshot(1)
        if snapshot:
            state = storage.read_snapshot(1, snapshot.index, 0, 1 << 30) or b""
            node.applied = state.split(b"\0") if state else []
        node.to_apply = replica.applied_index
        self.nodes[name] = node
        for other in self.nodes.values():
            if other is not node and other.up:
                other.replica.identities.meet(self.now, name, self.incarnations[name])
                replica.identities.meet(self.now, other.name, self.incarnations[other.name])
                self.pump(other.name)
        self.pump(name)
        return node

    def crash(self, name: str) -> None:
        """Power off: un-synced writes and everything this node sent or was sent but not delivered are gone."""
        node = self.nodes[name]
        node.up = False
        node.storage.crash()
        self.mail = [mail for mail in self.mail if name not in (mail.source, mail.target)]

    def restart(self, name: str) -> Node:
        """Start again from what the disk kept."""
        return self.start(name, self.nodes[name].storage)

    def wipe(self, name: str) -> Node:
        """Start again with an empty disk, which has another incarnation, as a joiner."""
        self.incarnations[name] = f"another {name}, {self._lives}".encode().ljust(16, b".")
        return self.start(name, MemoryStorage(), Membership())

    # --- the loop

    def pump(self, name: str) -> None:
        """Carry out what this node wants done, as far as the test lets it."""
        node = self.nodes[name]
        self._release(node)
        for output in node.replica.drain():
            self._carry_out(node, output)
        if node.syncing and node.writes:
            self.sync(name)
        if node.applying and node.up:
            self._apply(node)

    def sync(self, name: str) -> None:
        """Everything this node has written reaches its disk, and it is told."""
        node = self.nodes[name]
        if node.writes:
            token = node.writes[-1].token
            node.writes.clear()
            node.storage.sync()
            node.replica.durable(self.now, token)
            self.pump(name)

    def _release(self, node: Node) -> None:
        self.mail += [Mail(node.name, s.peer, s.message) for s in node.held.due(node.replica.writes.durable_token)]

    def _apply(self, node: Node) -> None:
        replica = node.replica
        while replica.applied_index < node.to_apply and not replica.installing:
            frames = node.storage.read(1, replica.applied_index + 1, 1)
            frame = frames[0]
            if frame.kind == Kind.COMMANDS:
                node.applied += frame.payloads()
            replica.applied(self.now, frame.last)

    def _carry_out(self, node: Node, output: Output) -> None:
        replica, storage = node.replica, node.storage
        if isinstance(output, Write):
            storage.write([output])
            node.writes.append(output)
        elif isinstance(output, Send):
            if output.after > replica.writes.durable_token:
                node.held.add(output)
            else:
                self.mail.append(Mail(node.name, output.peer, output.message))
        elif isinstance(output, Committed):
            node.to_apply = output.index
        elif isinstance(output, ReadReady):
            node.reads[output.ticket] = output
        elif isinstance(output, Resolved):
            node.resolved[output.ticket] = output
        elif isinstance(output, RoleChanged):
            node.roles.append(output)
        elif isinstance(output, MembershipChanged):
            node.memberships.append(output)
            if replica.regaining.believe_members(self.now):
                node.held.clear()
        elif isinstance(output, Load):
            frames = storage.read(1, output.first, output.max_bytes)
            replica.loaded(self.now, output.peer, output.session, output.first, frames)
            self.pump(node.name)
        else:
            self._carry_out_snapshot(node, output)

    def _carry_out_snapshot(self, node: Node, output: LoadChunk | StoreChunk | Install) -> None:
        replica, storage = node.replica, node.storage
        if isinstance(output, LoadChunk):
            meta = storage.newest_snapshot(1)
            if meta and output.index not in (0, meta.index):
                meta = None
            data = storage.read_snapshot(1, meta.index, output.offset, output.max_bytes) if meta else None
            replica.snapshots.chunk_loaded(self.now, output.peer, output.session, meta, output.offset, data)
        elif isinstance(output, StoreChunk):
            node.sink = sink = storage.receive_snapshot(1, output.meta)
            if sink.offset == output.offset:
                sink.write(output.data)
            complete = sink.offset == output.meta.size
            if complete:
                sink.finish()
            replica.snapshots.chunk_stored(self.now, output.peer, output.meta, sink.offset, complete)
        else:
            state = storage.read_snapshot(1, output.meta.index, 0, 1 << 30) or b""
            node.applied = state.split(b"\0") if state else []
            node.to_apply = max(node.to_apply, output.meta.index)
            replica.snapshots.installed(self.now, output.meta)
        self.pump(node.name)

    def deliver(self, mail: Mail) -> None:
        """Hand over one message now, whether or not it is in ``self.mail``."""
        if mail in self.mail:
            self.mail.remove(mail)
        node = self.nodes.get(mail.target)
        if node is None or not node.up or (mail.source, mail.target) in self.cuts:
            return
        if self.filter is None or self.filter(mail):
            node.replica.receive(self.now, mail.source, mail.message)
            self.pump(mail.target)

    def settle(self, limit: int = 10_000) -> None:
        """Deliver everything in order until nothing is under way. No time passes."""
        for name, node in self.nodes.items():
            if node.up:
                self.pump(name)
        while self.mail:
            limit -= 1
            assert limit > 0, "the group chatters without end"
            self.deliver(self.mail[0])

    def elapse(self, ms: float) -> None:
        """Let time pass, firing deadlines and delivering in between."""
        end = self.now + int(ms * MS)
        self.settle()
        while True:
            due = min((node.replica.deadline for node in self.nodes.values() if node.up), default=NEVER)
            if due > end:
                break
            self.now = max(self.now + 1, due)
            for name, node in list(self.nodes.items()):
                if node.up and node.replica.deadline <= self.now:
                    node.replica.tick(self.now)
                    self.pump(name)
            self.settle()
        self.now = end
        self.settle()

    # --- verbs

    def cut(self, *names: str) -> None:
        """Nothing passes between these nodes and the others, either way."""
        for name in names:
            for other in self.nodes:
                if other not in names:
                    self.cuts |= {(name, other), (other, name)}

    def heal(self) -> None:
        self.cuts.clear()
        self.filter = None

    def elect(self, name: str) -> Replica:
        """Make ``name`` the leader: nobody else campaigns meanwhile. Ends settled, its no-op committed if possible."""
        me = self.nodes[name].replica
        for other in self.nodes.values():  # age out what the voters have heard
            other.replica.heard_leader_at = min(other.replica.heard_leader_at, self.now - 2 * me.rules.lease_ns - 1)
            if other.replica is not me:
                other.replica.election_deadline = max(other.replica.election_deadline, self.now + 10_000 * MS)
        for _ in range(50):
            if me.role == Role.LEADER:
                break
            if me.role == Role.FOLLOWER:
                me.election_deadline = self.now
            else:
                self.now = max(self.now, me.deadline)
            me.tick(self.now)
            self.pump(name)
            self.settle()
        assert me.role == Role.LEADER, f"{name} could not be elected"
        for other in self.nodes.values():
            if other.up:
                other.replica.election_deadline = min(
                    other.replica.election_deadline, self.now + other.replica.silence_ns)
        return me

    def leader(self) -> Replica | None:
        """The leader of the highest term among those that run."""
        leading = [n.replica for n in self.nodes.values() if n.up and n.replica.role == Role.LEADER]
        return max(leading, key=lambda replica: replica.term, default=None)

    def propose(self, name: str, *payloads: bytes) -> tuple[int, int]:
        """Propose on this node and carry out what follows, short of delivering mail."""
        indexes = self[name].propose(self.now, list(payloads), 0)
        self.pump(name)
        return indexes

    def read(self, name: str, level: Read = Read.INDEX) -> int:
        ticket = self.nodes[name].ticket()
        self[name].read(self.now, ticket, level)
        self.pump(name)
        return ticket

    def reconfigure(self, name: str, voters: Iterable[str], learners: Iterable[str] = ()) -> int:
        ticket = self.nodes[name].ticket()
        self[name].leading(self.now).changes.begin(
            ticket, {v: f"{v}:1" for v in voters}, {v: f"{v}:1" for v in learners})
        self.pump(name)
        return ticket

    def transfer(self, name: str, target: str | None) -> int:
        ticket = self.nodes[name].ticket()
        self[name].leading(self.now).transfer.begin(ticket, target)
        self.pump(name)
        return ticket

    def snapshot(self, name: str) -> SnapshotMeta:
        """Take a snapshot of what this node has applied, at once."""
        node = self.nodes[name]
        meta = node.replica.snapshots.meta(node.replica.applied_index)
        sink = node.storage.create_snapshot(1, meta)
        sink.write(b"\0".join(node.applied))
        meta = sink.finish()
        node.replica.snapshots.taken(self.now, meta)
        self.pump(name)
        return meta

    def outcome(self, name: str, ticket: int) -> RejectReason | str:
        """How a ticket ended: a reason, "done", "unknown" or "open"."""
        node = self.nodes[name]
        if ticket in node.reads:
            return node.reads[ticket].refused or "done"
        if ticket in node.resolved:
            end = node.resolved[ticket]
            return "unknown" if end.unknown else end.refused or "done"
        return "open"


def led(size: int = 3, *, settled_ms: int = 100, **options: Any) -> Script:
    """A group that n0 leads, with every directory recorded and one command, b"a", applied everywhere."""
    script = Script(size, **options)
    script.elect("n0")
    script.elapse(100)
    script.propose("n0", b"a")
    script.settle()
    script.elapse(settled_ms)
    return script


def frame(first: int, term: int, *payloads: bytes, chain: int = 0, kind: Kind = Kind.COMMANDS) -> Frame:
    """A frame of group 1."""
    return build(kind=kind, group=1, term=term, first=first, payloads=payloads or (b"x",), wall_ms=0, chain=chain)


def disk(terms: Iterable[int], *, term: int | None = None, voted_for: str | None = None) -> MemoryStorage:
    """A disk whose log holds one-entry frames of these terms, from index 1; ``term``: its hard state's term."""
    storage = MemoryStorage()
    frames: list[Frame] = []
    for index, entry_term in enumerate(terms, 1):
        chain = frames[-1].mark if frames else 0
        frames.append(frame(index, entry_term, f"{index}/{entry_term}".encode(), chain=chain))
    last = frames[-1].term if frames else 0
    storage.write([Write(1, 1, hard_state=HardState(last if term is None else term, voted_for), frames=frames)])
    storage.sync()
    return storage
