"""``Cluster``: a whole seeded cluster in one test, on virtual time.

    with Cluster(3, Counter, seed=1) as cluster:
        assert cluster.propose(b"1") == 1        # runs virtual time until it is resolved
        cluster.crash(cluster.leader)
        assert cluster.propose(b"1") == 2        # the others have elected a leader meanwhile

Every invariant of ``raft.invariants`` is checked after every event; a broken one raises ``InvariantViolation`` in the
call that runs virtual time. Same seed, same calls: same run, byte for byte. Nodes are real replicas with the user's
state machines; only network, disk and clocks are simulated. Callers decide which faults happen when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from raft.config import MS, Config, Read, Rules
from raft.errors import DamagedLog, NotLeader, Outcome, Rejected, RejectReason, Unknown, UsageError
from raft.invariants import Checker, InvariantViolation
from raft.lives import Lives
from raft.membership import Member, Membership
from raft.messages import AppendReply, PeerMessage, Role, SnapshotReply, VoteReply
from raft.rules.dledger import DLedgerRules
from raft.rules.interface import ElectionRules
from raft.rules.strict import StrictRules
from raft.sim.disks import MemoryDisk, SegmentDisk, SimDisk
from raft.sim.links import Link, LinkProfile, Network, Receiver
from raft.sim.machine import SimMachine
from raft.sim.node import E_START, Change, Life, Proposal, Reading, SimNode
from raft.sim.tape import Tape
from raft.sim.world import MILLION, Clock, World
from raft.statemachine import AnyMachine
from raft.wire import Decoder, encode

T = TypeVar("T")
SAMPLE_NS = 100 * MS
STEP_NS = 10 * MS
DISKS: dict[str, Callable[[str, Tape], SimDisk]] = {"memory": lambda name, tape: MemoryDisk(), "segment": SegmentDisk}
TRIES_NS = 60_000 * MS
"""Virtual time for which a blocking call tries."""
RETRIED = frozenset({RejectReason.BUSY, RejectReason.TRANSFERRING, RejectReason.LEADER_LOST,
                     RejectReason.DISK_FULL, RejectReason.INSTALLING, RejectReason.NO_LEASE})


class Cluster:
    """A cluster of ``size`` voters n0, n1, ... and ``learners``, all started. ``machine`` makes a state machine for
    each start.

    ``seed`` decides all chance; a ``tape`` replays a recorded run instead. ``disk`` is "memory", "segment" (the real
    log on a virtual disk, slower) or a function that makes one from a node's name and the tape. With ``codec``
    every message goes through the wire's bytes. Raises ``UsageError`` for a call that makes no sense.
    """

    def __init__(
        self, size: int, machine: Callable[[], AnyMachine], *, seed: int = 0, tape: Tape | None = None,
        config: Config | None = None, learners: int = 0, links: LinkProfile | None = None,
        disk: str | Callable[[str, Tape], SimDisk] = "memory", codec: bool = False,
    ) -> None:
        if size < 1:
            raise UsageError("a cluster has at least one voter")
        self.config = config or Config()
        self.tape = tape or Tape(seed)
        self.rules: ElectionRules = (
            StrictRules(self.config) if self.config.rules is Rules.STRICT else DLedgerRules(self.config))
        self.speaks_late: frozenset[type] = frozenset((VoteReply,) if self.rules.one_step else (
            VoteReply, AppendReply, SnapshotReply))
        """Answers that count even if their term is older than the receiver's."""
        self.world = World()
        self.network = Network(self.world, self.tape, self._receiver, links)
        self.counts: Counter[str] = self.network.counts
        """Number of times that each fault or other counted event happened."""
        self.nodes: dict[str, SimNode] = {}
        self.twice = self.tape.stream("delivered twice")
        self.twice_rate = 0.0
        """Chance that a message is delivered twice; the second time must change nothing."""
        self._machine, self._codec = machine, codec
        self._make_disk = disk if callable(disk) else DISKS[disk]
        self._links: dict[str, dict[str, Link]] = {}
        self._version = self._lives = 0
        self._unsound_until = 0
        self._rates_sound = True
        voters = tuple(f"n{number}" for number in range(size))
        others = tuple(f"n{number}" for number in range(size, size + learners))
        members = {name: Member(name) for name in (*voters, *others)}
        bootstrap = Membership(voters, (), others, members)
        self.checker = Checker(self.config, bootstrap)
        for name in members:
            self._add(name, bootstrap)
        for name in members:
            self.start(name)
        self.world.at(SAMPLE_NS, self._sample)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all nodes and close their storages. Idempotent."""
        for node in self.nodes.values():
            if node.life is not None:
                node.life.end()
                node.life.storage.close()
                node.life = None

    # --- time

    @property
    def now_ms(self) -> int:
        """Virtual milliseconds since the start."""
        return self.world.now // MS

    def run_ms(self, duration_ms: float) -> None:
        self._run(self.world.now + int(duration_ms * MS))

    def run_until(self, holds: Callable[[], bool], timeout_ms: float = TRIES_NS / MS) -> bool:
        """Let virtual time pass until ``holds()``. Return False if it does not within ``timeout_ms``."""
        end = self.world.now + int(timeout_ms * MS)
        try:
            return self.world.run_while(lambda: not holds(), end)
        except InvariantViolation as error:
            self._explain(error)
            raise

    def _run(self, until: int) -> None:
        try:
            self._advance(until)
        except InvariantViolation as error:
            self._explain(error)
            raise

    def _advance(self, until: int) -> None:
        self.world.run(until)

    def _explain(self, error: InvariantViolation) -> None:
        recent = list(self.checker.recent)[-30:]
        error.add_note("\n".join([f"seed {self.tape.seed}, at {self.world.now / MS:.3f} ms of world time; last events "
                                  "(each node's own clock):", *map(str, recent)]))

    @property
    def fingerprint(self) -> str:
        """Hash of every event so far. It is equal for equal runs, on every Python."""
        return self.world.fingerprint

    # --- looking

    @property
    def leader(self) -> str | None:
        """The running leader of the highest term; None while there is none."""
        best, term = None, 0
        for name, node in self.nodes.items():
            life = node.life
            if life is not None and life.paused is None:
                replica = life.replica
                if replica.role is Role.LEADER and replica.term >= term:
                    best, term = name, replica.term
        return best

    def machine(self, node: str) -> Any:
        """Return the state machine of a running node."""
        return self.life(node).machine.inner

    def life(self, node: str) -> Life:
        """Return the running process of a node. Its ``replica`` shows role, term, log and peers."""
        life = self._node(node).life
        if life is None:
            raise UsageError(f"{node} is down")
        return life

    @property
    def running(self) -> list[str]:
        """Names of nodes that are up (paused ones too)."""
        return [name for name, node in self.nodes.items() if node.life is not None]

    def _running(self) -> list[tuple[str, Life]]:
        return [(name, node.life) for name, node in self.nodes.items()
                if node.life is not None and node.life.paused is None]

    def _node(self, name: str | None) -> SimNode:
        node = self.nodes.get(name) if name else None
        if node is None:
            raise UsageError(f"no node {name} in {', '.join(self.nodes)}")
        return node

    # --- asking: these run virtual time until they are resolved

    def propose(self, *commands: Any) -> Any:
        """Propose at the leader, and return ``apply``'s result (a list for several commands).

        Without a codec commands are bytes. Retries only if nothing was accepted. Raises ``Unknown``, ``Rejected``, or
        ``NotLeader`` after a minute without a leader.
        """
        proposal = self._until_done(lambda life: life.propose(list(map(life.machine.encoded, commands))))
        return proposal[0] if len(commands) == 1 else proposal

    def read(
        self, query: Callable[[Any], T] | None = None, *, level: Read = Read.INDEX, node: str | None = None,
    ) -> Any:
        """Read at this level on ``node`` (None: the leader). Returns ``query(machine)``, or the machine itself."""
        return self._until_done(lambda life: life.read(level, query or _itself), node)[0]

    def reconfigure(self, voters: Iterable[str], learners: Iterable[str] = ()) -> None:
        """Move to this membership; unknown nodes are made and started with empty disks."""
        wanted, taught = list(voters), list(learners)
        for name in (*wanted, *taught):
            if name not in self.nodes:
                self.add(name)
        addresses = {name: name for name in wanted}, {name: name for name in taught}
        self._until_done(lambda life: life.reconfigure(*addresses))

    def transfer(self, target: str | None = None) -> None:
        """Hand leadership to ``target``, or to the best placed voter."""
        self._until_done(lambda life: life.transfer(target))

    def _until_done(self, ask: Callable[[Life], Proposal | Reading | Change], node: str | None = None) -> list[Any]:
        end = self.world.now + TRIES_NS
        refusal: Outcome = NotLeader(None, None)
        while self.world.now < end:
            name = node or self.leader
            if name is not None:
                try:
                    asked = ask(self.life(name))
                except NotLeader as error:
                    refusal = error
                except Rejected as error:
                    if error.reason not in RETRIED:
                        raise
                    refusal = error
                else:
                    self.run_until(partial(self._answered, asked), (end - self.world.now) / MS)
                    outcome = asked.outcome
                    if isinstance(outcome, list) and self._answered(asked):
                        return outcome
                    if not isinstance(outcome, NotLeader) and not (
                            isinstance(outcome, Rejected) and outcome.reason in RETRIED):
                        raise outcome if isinstance(outcome, Outcome) else Unknown(detail="no answer within a minute")
                    refusal = outcome
            self._run(self.world.now + STEP_NS)
        raise refusal

    @staticmethod
    def _answered(asked: Proposal | Reading | Change) -> bool:
        """Return whether the outcome is complete: a proposal in several frames gets its results one by one."""
        outcome = asked.outcome
        if isinstance(asked, Proposal) and isinstance(outcome, list):
            return len(outcome) == asked.last - asked.first + 1
        return outcome is not None

    # --- processes

    def add(self, name: str) -> None:
        """Start a new node with an empty disk; ``reconfigure`` makes it a member."""
        if name in self.nodes:
            raise UsageError(f"{name} exists")
        self._add(name, Membership())
        self.start(name)

    def _add(self, name: str, bootstrap: Membership) -> None:
        number = len(self.nodes)
        self.nodes[name] = SimNode(
            name, number, self._make_disk(name, self.tape), b"", bootstrap, Clock((number + 1) * 1_000_000_000),
            self.tape.stream(f"disk/{name}/sync"))
        self._format(self.nodes[name], bootstrap)

    def _format(self, node: SimNode, bootstrap: Membership) -> None:
        node.incarnation = self.tape.bits(f"incarnation/{node.name}/{node.boots}").getrandbits(128).to_bytes(16, "big")
        node.bootstrap, node.lives = bootstrap, Lives().encode()
        self.checker.born(node.name, node.incarnation, bootstrap)

    def start(self, name: str) -> None:
        """Start a node that is down. It stays down if its storage refuses bytes that ``damage_disk`` damaged."""
        node = self._node(name)
        if node.life is not None:
            raise UsageError(f"{name} is up")
        node.boots += 1
        self._version += 1
        try:
            node.life = life = Life(self, node, self.config, self._new_machine(name))
        except DamagedLog:
            if not node.damaged:
                raise
            self.counts["damage refused"] += 1
        else:
            life.settle(E_START)

    restart = start

    def _new_machine(self, name: str) -> SimMachine:
        """Make the state machine of a process that starts."""
        assert name in self.nodes
        return SimMachine(self._machine())

    def crash(self, name: str | None) -> None:
        """Kill a node and cut its disk's power: any suffix of its un-synced writes is lost."""
        node = self._node(name)
        if node.life is None:
            raise UsageError(f"{name} is down")
        unsynced = self.tape.stream(f"disk/{node.name}/crash")
        node.life.end()
        node.life = None
        node.fail_next = False
        node.stalled_until = 0
        self._version += 1
        self.counts["crash"] += 1
        lost = node.disk.crash(lambda count: unsynced.between(0, count))
        if lost:
            self.counts["lost writes"] += 1
        for peer, life in self._running():
            life.later(MS, _tell_unreachable, (life, node.name))
            assert peer != name

    def wipe(self, name: str) -> None:
        """Replace a crashed node's disk by an empty one: its incarnation is new, so it must be readmitted."""
        node = self._node(name)
        if node.life is not None:
            raise UsageError(f"{name} is up; crash it first")
        self.counts["wipe"] += 1
        node.disk = self._make_disk(node.name, self.tape)
        node.full = node.damaged = False
        node.neighbour = []
        self._format(node, Membership())

    def pause(self, name: str) -> None:
        """Stop a process as SIGSTOP does: its clock and disk go on, its messages wait."""
        life = self.life(name)
        if life.paused is None:
            life.paused = []
            self._version += 1
            self.counts["pause"] += 1

    def resume(self, name: str) -> None:
        """Resume a paused process: it takes its messages in order, and missed timers in their order or last."""
        life = self.life(name)
        waiting, life.paused = life.paused or [], None
        self._version += 1
        self.checker.resumed(name)
        if self.tape.stream("resume").chance(0.5):
            waiting.sort(key=lambda each: each[0] == life.tick)
        for action, argument in waiting:
            if not life.dead:
                action(argument)

    def snapshot(self, name: str) -> bool:
        """Begin a snapshot on one node. Return False if there is nothing new to take."""
        return self.life(name).snapshot()

    # --- the network

    def partition(self, *groups: Iterable[str], kind: str | None = None) -> None:
        """Cut the links between these groups, both ways; one group alone is cut off from all others."""
        sides = [list(group) for group in groups]
        if len(sides) == 1:
            sides.append([name for name in self.nodes if name not in sides[0]])
        self.network.partition(sides, kind)

    def cut(self, source: str, target: str, kind: str | None = None) -> None:
        """Drop all messages from ``source`` to ``target``; the other direction stays open."""
        self.network.cut(source, target, kind)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Undo partitions and cuts: all, or those from ``source`` (to ``target``)."""
        self.network.heal(source, target)

    def hold(self, source: str, target: str) -> None:
        """Keep messages from ``source`` to ``target`` back until ``release``."""
        self.network.link(source, target).hold()
        self._version += 1

    def release(self, source: str, target: str) -> None:
        """Let held messages go, in order."""
        self.network.link(source, target).release()
        self._version += 1

    def lose(self, chance: float) -> None:
        """Lose every message with this chance."""
        self.network.shape(attrs.evolve(self.network.profile, loss=chance))

    def delay(self, chance: float, longest_ms: float) -> None:
        """Delay every message with this chance by up to ``longest_ms``, and all messages after it."""
        self.network.shape(attrs.evolve(self.network.profile, delay=chance, delay_ns=int(longest_ms * MS)))

    def duplicate(self, chance: float) -> None:
        """Deliver every message twice with this chance."""
        self.network.shape(attrs.evolve(self.network.profile, duplicate=chance))

    def reorder(self, chance: float) -> None:
        """Let later messages overtake every message with this chance."""
        self.network.shape(attrs.evolve(self.network.profile, reorder=chance))

    # --- clocks

    def skew(self, name: str, *, rate_ppm: int | None = None, step_ms: int = 0) -> None:
        """Change the rate of a node's monotonic clock (a million is true time), or let it jump ahead."""
        node = self._node(name)
        self._unsound_until = max(self._unsound_until, self.world.now + self._settling_ns()) if (
            step_ms or not self._rates_sound) else self._unsound_until
        if rate_ppm is not None:
            node.clock.set_rate(self.world.now, rate_ppm)
            self.counts["clock rate"] += rate_ppm != MILLION
        if step_ms:
            node.clock.step(self.world.now, step_ms * MS)
            self.counts["clock step"] += 1
            self.checker.resumed(name)
        rates = [each.clock.rate_ppm for each in self.nodes.values()]
        self._rates_sound = max(rates) * 100 <= min(rates) * (100 + self.config.clock_drift_percent)
        if node.life is not None:
            node.life.rearm()

    def _settling_ns(self) -> int:
        """Return the time after which no lease from before a change of clocks is valid."""
        return 4 * self.config.election_timeout_ms * MS

    def clocks_are_sound(self) -> bool:
        """Return whether clocks have drifted no more than ``clock_drift_percent`` allows, for long enough."""
        return self._rates_sound and self.world.now >= self._unsound_until

    # --- disks

    def fill_disk(self, name: str) -> None:
        """Fill the disk: writes of entries fail until ``free_disk``."""
        self._node(name).full = True

    def free_disk(self, name: str) -> None:
        """Give a full disk room again, and tell the node."""
        node = self._node(name)
        node.full = False
        if node.life is not None and node.life.paused is None and node.life.replica.writes.disk_full:
            self.counts["disk room"] += 1
            node.life.room()

    def fail_sync(self, name: str) -> None:
        """Let the next sync fail. The writes that it covers may or may not be on the disk."""
        self._node(name).fail_next = True

    def stall_disk(self, name: str, duration_ms: float) -> None:
        """Let no sync end before ``duration_ms`` from now."""
        self._node(name).stalled_until = self.world.now + int(duration_ms * MS)

    def slow_disk(self, name: str, chance: float, longest_ms: float = 20) -> None:
        """Let every sync with this chance take up to ``longest_ms`` longer."""
        node = self._node(name)
        node.slow, node.slow_ns = chance, int(longest_ms * MS)

    def damage_disk(self, name: str, where: float, how: int) -> bool:
        """Damage the segment log or a snapshot of a node that is down, so that recovery or a read must notice it.

        ``SegmentDisk.damage`` says what the numbers mean. Returns False if nothing was damaged, as the disk holds too
        little.
        """
        node = self._node(name)
        if node.life is not None or not isinstance(node.disk, SegmentDisk):
            raise UsageError(f"{name} must be down, with a segment log")
        if not node.disk.damage(where, how):
            return False
        node.damaged = True
        self.counts["misdirected write" if how % 2 else "bit rot"] += 1
        return True

    # --- inside

    def next_life(self) -> int:
        """Return a unique number for a process that starts."""
        self._lives += 1
        return self._lives

    def links_from(self, name: str) -> dict[str, Link]:
        """Return a node's outgoing raft links, which last over its lives."""
        return self._links.setdefault(name, {})

    def _receiver(self, link: Link) -> Receiver:
        """Make the function that takes the messages of one link."""
        nodes, source, target = self.nodes, link.source, link.target

        def deliver(message: PeerMessage) -> None:
            life = nodes[target].life
            if life is None:
                self.counts["to the dead"] += 1
                return
            life.receive(nodes[source], self._through_bytes(message) if self._codec else message)

        return deliver

    def _through_bytes(self, message: PeerMessage) -> PeerMessage:
        decoder = Decoder(self.config.message_bytes_max)
        (decoded,) = decoder.feed(b"".join(encode(message)))
        self.counts["codec"] += 1
        return decoded

    def hears(self, target: str, source: str) -> bool:
        """Return whether both nodes run and messages from ``source`` reach ``target``."""
        for name in (target, source):
            life = self.nodes[name].life
            if life is None or life.paused is not None:
                return False
        link = self._links.get(source, {}).get(target)
        return self.network.open(source, target) and (link is None or link.held is None)

    def _greet(self) -> None:
        """Let all nodes that reach each other reconnect, with a hello from both ends."""
        for name, life in self._running():
            for peer, node in self.nodes.items():
                if life.met.get(peer) != (node.incarnation, node.number_of_life) and peer != name and (
                        self.hears(name, peer) and self.hears(peer, name)):
                    life.identify(node)

    def _sample(self, _: None) -> None:
        self.world.at(self.world.now + SAMPLE_NS, self._sample)
        self._greet()
        clocks = {name: life.now for name, life in self._running()}
        for name, life in self._running():
            self.checker.waits(name, clocks[name], life.held)
            if life.shared is not None:
                life.shared.look()
        self.checker.sample(clocks, self._version + self.network.version, self.hears)


def _tell_unreachable(what: tuple[Life, str]) -> None:
    life, peer = what
    life.unreachable(peer)


def _itself(machine: T) -> T:
    return machine


