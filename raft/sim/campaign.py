"""Plays one seed: load under faults first, then healing and a demand for progress.

``run`` plays one tape: a ``Cluster`` of ledger machines, clients that write and read, and a nemesis that applies the
faults of the seed's ``Plan``. Each client act and each fault is one decision on the tape, whose boring value is to do
nothing, so a failing run shrinks to the few acts that matter. Knows nothing of files, processes or terminals.
"""

from __future__ import annotations

import gc
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol
from zlib import crc32

import attrs

from raft.config import MS, Read
from raft.errors import NotLeader, Outcome, Rejected, Unknown
from raft.invariants import DECLARED, InvariantViolation
from raft.membership import Membership
from raft.messages import Role
from raft.sim.bounces import Bounce
from raft.sim.cluster import Cluster
from raft.sim.lapses import Lapses
from raft.sim.narrows import hold_up
from raft.sim.node import Change, Life, Proposal, Reading
from raft.sim.swarm import BOUNCE, COPY, DAMAGE, HANG, NEMESES, PROFILES, ROT, Plan, draw_plan, with_lapses
from raft.sim.tape import Chance, Deviations, Tape, Value
from raft.sim.world import MILLION, World

WRITES_WANTED: Final = 10
HEAL_MS: Final = 20_000
"""Longest wait for a leader, and for equal states, after healing."""
OPEN_MAX: Final = 200
"""Number of open requests at which their outcomes are counted."""
PATIENCE_MS: Final = 3_000
"""Time that a client waits for one answer: a leader that is removed meanwhile never learns the outcome."""
DECLARED_FAULTS: Final = (
    "loss", "duplicate", "reorder", "delay", "overflow", "cut", "hold", "crash", "lost writes", "wipe", "pause",
    "partition", "clock rate", "clock step", "disk full", "disk room", "failed sync", "slow sync", "stalled sync",
    "hang across leaders",
    "bit rot", "misdirected write", "damage refused", "neighbour damaged",
    "transfer", "reconfigure", "snapshot", "install", "load from disk", "codec", "segment log", "to the dead",
    "rot at the end", "rot that nobody marked", "older copy", "older copy, leader lost", "told by a peer",
    "narrow ways",
    "index read", "lease read", "log read", "unsafe read", "bounce", "late answer",
)
"""Faults and events that each campaign must meet at least once. A silent loss is too rare for this list."""
RARE_FAULTS: Final = frozenset({"damage refused", "neighbour damaged"})
"""Faults that small campaigns may miss: few seeds have a segment log, and damage seldom hits bytes that are read."""
LONG_EVENTS: Final = 20_000_000
"""Number of events from which on a campaign must meet ``RARE_FAULTS``, too."""


class Ledger:
    """A state machine whose results depend on every command so far, with a snapshot of some hundred bytes."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.tail: list[int] = []

    def apply(self, command: bytes) -> int:
        return self.apply_batch([command])[0]

    def apply_batch(self, commands: list[bytes]) -> list[int]:
        total, sums = self.sum, []
        for command in commands:
            total = crc32(command, total)
            sums.append(total)
        self.count += len(commands)
        self.sum = total
        self.tail += sums
        while len(self.tail) > 64:
            del self.tail[:32]
        return sums

    def snapshot(self) -> bytes:
        return b"".join(number.to_bytes(8, "little") for number in (self.count, self.sum, *self.tail))

    def restore(self, data: bytes) -> None:
        numbers = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
        self.count, self.sum, *self.tail = numbers


@attrs.define
class Result:
    """The result of one seed."""

    seed: int
    profile: str
    events: int
    virtual_ns: int
    fingerprint: str
    predicates: dict[str, int]
    applied: dict[str, int]
    """Number of times that each fault or other counted event happened."""
    outcomes: dict[str, int]
    failure: str | None = None
    """Name of the broken invariant, or of the exception and where it was raised."""
    message: str = ""
    deviations: Deviations = attrs.Factory(dict)
    """Decisions of a failed run that were not boring; empty if it passed."""


class Simulated(Protocol):
    """The part of a simulated cluster that campaigns know."""

    @property
    def world(self) -> World: ...

    @property
    def fingerprint(self) -> str: ...


class Played(Protocol):
    """A run that a campaign plays and counts. ``Scene`` is one."""

    @property
    def cluster(self) -> Simulated: ...

    @property
    def evaluated(self) -> Counter[str]: ...

    @property
    def happened(self) -> Counter[str]: ...

    @property
    def outcomes(self) -> Counter[str]: ...

    def play(self, until_ns: int | None) -> None: ...


@attrs.frozen
class Program:
    """The program of a campaign. It is pickled for worker processes, so its functions must be in modules."""

    command: str
    """Command that runs it, such as ``python -m raft.sim``."""
    scene: Callable[[Tape, str], Played]
    """Makes the scene for a tape and a profile."""
    profiles: tuple[str, ...]
    """Names of the profiles, the default first."""
    predicates: tuple[str, ...]
    """Properties that must have been evaluated at least once."""
    faults: tuple[str, ...]
    """Faults and events that must have happened at least once. Empty: every profile demands all ``predicates``."""
    at_the_end: frozenset[str]
    """Properties that only a whole run can break: a failing tape is not cut at the failure."""
    rare: frozenset[str] = frozenset()
    """Those of ``faults`` that a campaign of fewer than ``LONG_EVENTS`` events may miss."""

    def missing(self, predicates: Counter[str], applied: Counter[str], events: int = LONG_EVENTS) -> list[str]:
        """Return predicates never evaluated and faults never applied: a campaign that misses any is invalid."""
        return [name for name in self.predicates if not predicates[name]] + [
            name for name in self.faults if not applied[name] and (events >= LONG_EVENTS or name not in self.rare)]


def run(
    tape: Tape, profile: str = "swarm", *, until_ns: int | None = None, program: Program | None = None
) -> Result:
    """Play one tape to its end, or to ``until_ns`` of world time. A failure is in the result, not raised.

    ``program`` None: ``RAFT``.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return _run(tape, profile, until_ns, (program or RAFT).scene)
    finally:  # the scene is garbage now, and the collector frees it in its next run
        if enabled:
            gc.enable()


def _run(tape: Tape, profile: str, until_ns: int | None, make: Callable[[Tape, str], Played]) -> Result:
    scene: Played | None = None
    failure, message = None, ""
    try:
        scene = make(tape, profile)
        scene.play(until_ns)
    except InvariantViolation as error:
        failure, message = error.id, "\n".join([error.message, *getattr(error, "__notes__", ())])
    except Exception as error:  # noqa: BLE001  an exception out of the code under test is a finding with a name
        failure, message = name_of(error), "".join(traceback.format_exception(error)[-6:])
    cluster = scene.cluster if scene else None
    return Result(
        tape.seed, profile, cluster.world.events if cluster else 0, cluster.world.now if cluster else 0,
        cluster.fingerprint if cluster else "", dict(scene.evaluated) if scene else {},
        dict(scene.happened) if scene else {}, dict(scene.outcomes) if scene else {}, failure, message,
        tape.deviations if failure else {})


def name_of(error: Exception) -> str:
    """Return a name of an exception that does not change when lines move: type, file and function."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].name}" if frames else "?"
    return f"{type(error).__name__} in {where}"


class Scene:
    """A cluster, its clients and its nemesis."""

    def __init__(self, tape: Tape, plan: Plan) -> None:
        self.plan = plan
        self.cluster = cluster = self._make_cluster(tape)
        cluster.twice_rate = plan.twice
        cluster.counts["segment log"] += plan.disk == "segment"
        for node in cluster.nodes.values():
            node.slow = plan.slow
            node.promises = plan.promises
        self.outcomes: Counter[str] = Counter()
        self._acts = tape.stream("client")
        self._faults = tape.stream("nemesis")
        self._open: list[Proposal | Reading | Change] = []
        self._settle_at = OPEN_MAX
        self._ends = plan.duration_ms * MS
        self._serial = 0
        self._wiped: set[str] = set()
        self._damaged: set[str] = set()
        """Nodes whose disk was damaged, until it is replaced."""
        self.lapses = Lapses(self)
        cluster.world.at(plan.op_ns, self._client_acts)
        cluster.world.at(plan.nemesis_ns, self._nemesis)

    def _make_cluster(self, tape: Tape) -> Cluster:
        plan = self.plan
        return Cluster(
            plan.size, Ledger, tape=tape, config=plan.config(), learners=plan.learners, links=plan.links,
            codec=plan.codec, disk=plan.disk)

    @property
    def evaluated(self) -> Counter[str]:
        """Number of evaluations of each predicate."""
        return Counter(self.cluster.checker.counts)

    @property
    def happened(self) -> Counter[str]:
        """Number of times that each fault or other counted event happened."""
        return self.cluster.counts

    def play(self, until_ns: int | None) -> None:
        """Play the phase with faults, then heal and demand progress."""
        cluster = self.cluster
        limit = self._ends if until_ns is None else min(until_ns, self._ends)
        cluster.run_ms(limit / MS)
        if until_ns is not None and until_ns <= self._ends:
            return
        healing = Healing(self)
        if self.plan.narrows:
            hold_up(self, healing.heal)
        healing.demand()
        self._settle()

    # --- clients

    def _client_acts(self, _: None) -> None:
        world = self.cluster.world
        if world.now >= self._ends:
            return
        world.at(world.now + self.plan.op_ns, self._client_acts)
        act = self._acts.draw(None, self._an_act)
        if act is not None:
            what, who, *rest = act
            life = self._life(who)
            if life is not None and life.paused is not None:
                life.paused.append((self._do, (life, what, rest)))  # taken when it resumes, after older messages
            elif life is not None:
                self._do((life, what, rest))
        if len(self._open) > self._settle_at:
            self._settle()

    def _do(self, act: tuple[Life, str, list[Any]]) -> None:
        life, what, rest = act
        try:
            if what == "put":
                self._put(life, *rest)
            else:
                self.ask(life, Read(what))
        except Outcome as error:
            self._count(error)

    def _put(self, life: Life, number: int = 1, size: int = 8) -> None:
        self._serial += 1
        self._open.append(life.propose(
            [(b"%d.%d" % (self._serial, part)).ljust(size, b".") for part in range(number)]))

    def put(self, name: str) -> None:
        """Try one small write at a running node."""
        life = self.running(name)
        if life is not None:
            self._do((life, "put", []))

    def write(self, life: Life) -> Proposal:
        """Begin one write that healing demands. Raises ``NotLeader``, ``Rejected`` or ``Busy``."""
        return life.propose([b"healed"])

    def ask(self, life: Life, level: Read) -> None:
        """Begin one read. Raises ``NotLeader``, ``Rejected`` or ``Busy``."""
        self._open.append(life.read(level, _sum))

    def running(self, name: str) -> Life | None:
        """Return a node's process; None if it is down or paused."""
        return self._pick(name)

    def _an_act(self, chance: Chance) -> list[Value] | None:
        plan = self.plan
        if chance() >= plan.op_chance:
            return None
        who = self._whom(chance)
        if chance() < plan.read_share:
            level = ("index", "index", "lease", "lease", "log", "unsafe")[int(chance() * 6)]
            return [level, self._someone(chance) if chance() < 0.3 else who]
        size = 8 if chance() < 0.8 else int(chance() * 1_000)
        return ["put", who, 1 if chance() < 0.85 else 1 + int(chance() * 40), size]

    def _whom(self, chance: Chance) -> str:
        """Choose the node that a client asks: mostly the leader."""
        luck = chance()
        return self._someone(chance) if luck < 0.15 else "oldest" if luck < 0.3 else "leader"

    def _someone(self, chance: Chance) -> str:
        names = list(self.cluster.nodes)
        return names[int(chance() * len(names))]

    def _life(self, who: str) -> Life | None:
        """Return the running process of this node, of the "leader", or of the "oldest" leader, of the lowest term."""
        if who == "oldest":
            terms = [(node.life.replica.term, name) for name, node in self.cluster.nodes.items()
                     if node.life is not None and node.life.replica.role is Role.LEADER]
            who = min(terms)[1] if terms else "leader"
        name = self.cluster.leader if who == "leader" else who
        node = self.cluster.nodes.get(name) if name else None
        return node.life if node else None

    def _pick(self, who: str) -> Life | None:
        life = self._life(who)
        return life if life is None or life.paused is None else None

    def _count(self, outcome: Outcome | list[object]) -> None:
        if isinstance(outcome, list):
            self.outcomes["ok"] += 1
        else:
            self.outcomes["unknown" if isinstance(outcome, Unknown) else "not leader" if isinstance(outcome, NotLeader)
                          else "rejected"] += 1

    def _settle(self) -> None:
        """Count resolved requests, and drop those that are open for five seconds."""
        still = []
        for asked in self._open:
            if asked.outcome is not None:
                self._count(asked.outcome)
            elif self.cluster.world.now - asked.at < 5_000 * MS:
                still.append(asked)
            else:
                self.outcomes["open"] += 1
        self._open = still
        self._settle_at = OPEN_MAX + len(still)

    # --- faults

    def _nemesis(self, _: None) -> None:
        world = self.cluster.world
        if world.now >= self._ends:
            return
        world.at(world.now + self.plan.nemesis_ns, self._nemesis)
        fault = self._faults.draw(None, self._a_fault)
        if fault is not None:
            what, who, *rest = fault
            name = self.cluster.leader if who == "leader" else who
            if what in (*NEMESES, HANG, DAMAGE, BOUNCE, ROT, COPY) and (name is None or name in self.cluster.nodes):
                getattr(self, f"_do_{what}")(name, *rest)

    def _a_fault(self, chance: Chance) -> list[Value] | None:
        plan = self.plan
        if not plan.faults or chance() >= plan.nemesis_chance:
            return None
        what = plan.faults[int(chance() * len(plan.faults))]
        who = "leader" if chance() < 0.35 else self._someone(chance)
        span_ms = int(10 + chance() ** 2 * 4_000)
        if what == "partition":
            names = list(self.cluster.nodes)
            return [what, None, span_ms, [name for name in names if chance() < 0.5]]
        if what in ("cut", "hold"):
            return [what, who, span_ms, self._someone(chance)]
        if what == "rate":
            return [what, who, span_ms, int(MILLION + (chance() - 0.5) * 90_000)]
        if what == "drift":
            return [what, who, span_ms, int(MILLION * (0.4 + 2 * chance()))]
        if what == "step":
            return [what, who, int(chance() ** 2 * 3_000) + 1]
        if what == "transfer":
            return [what, "leader", None if chance() < 0.3 else self._someone(chance)]
        if what == "reconfigure":
            return [what, "leader", *self._a_membership(chance)]
        if what == "snapshot":
            return [what, who]
        if what == BOUNCE:
            return [what, self._someone(chance), 1 + int(chance() * 4)]
        if what == ROT:
            return [what, who, span_ms, chance()]
        if what == DAMAGE:
            return [what, who, span_ms, chance(), int(chance() * 65_536)]
        return [what, who, span_ms]

    def _a_membership(self, chance: Chance) -> tuple[list[str], list[str]]:
        """Choose voters and learners: some of the present ones, and at times a new one."""
        names = list(self.cluster.nodes)
        if len(names) < 7 and chance() < 0.3:
            names.append(f"n{len(names)}")
        order = sorted((chance(), name) for name in names)
        voters = 1 + int(chance() * min(5, len(order)))
        learners = int(chance() * 2)
        chosen = [name for _, name in order]
        return chosen[:voters], chosen[voters : voters + learners]

    @property
    def healing(self) -> bool:
        """True once the time of faults is over."""
        return self.cluster.world.now >= self._ends

    def after(self, span_ms: int, action: Callable[[], None]) -> None:
        """Run ``action`` after so much virtual time."""
        self.cluster.world.at(self.cluster.world.now + span_ms * MS, _call, action)

    def _up(self, name: str | None) -> bool:
        return name is not None and self.cluster.nodes[name].life is not None

    def _do_crash(self, name: str | None, span_ms: int) -> None:
        if name is not None and self._up(name):
            self.cluster.crash(name)
            self.after(span_ms, partial(self.start, name))

    def start(self, name: str) -> None:
        """Start a node unless it runs."""
        if not self._up(name):
            self.cluster.counts["restart"] += 1
            self.cluster.start(name)

    def _do_bounce(self, name: str | None, reads: int) -> None:
        if name is not None:
            Bounce(self, name, reads)

    def _do_rot(self, name: str | None, span_ms: int, luck: float) -> None:
        if name is not None:
            self.lapses.rot(name, span_ms, luck)

    def _do_copy(self, name: str | None, span_ms: int) -> None:
        if name is not None:
            self.lapses.copy(name, span_ms)

    def _do_wipe(self, name: str | None, span_ms: int) -> None:
        """Lose a disk, but only if all other disks have its directory on record and so notice the loss."""
        if name is None or not self._up(name) or not self.may_wipe(name):
            return
        self.cluster.crash(name)
        self.cluster.wipe(name)
        self._wiped.add(name)
        self.after(span_ms, partial(self.start, name))
        self.after(span_ms + 500, self._readmit)

    def may_wipe(self, name: str) -> bool:
        """Return whether the group survives the loss of this disk: a minority is lost, and all others notice the new
        one."""
        ghosts = self.cluster.checker.nodes
        node = self.cluster.nodes[name]
        memberships = {other: ghosts[other].disk.memberships[-1] for other in self.cluster.nodes}
        index, membership = max(memberships.values(), key=lambda each: each[0])
        if self.changing(index) or not membership.voters or membership.joint or name not in membership.everyone:
            return False
        if name in self._damaged:
            del memberships[name]  # its record counts as lost, and a damaged disk may never record more
        for other, (at, held) in memberships.items():
            if other in membership.everyone and at != index and held.everyone:
                return False
            member = held.members.get(name)
            if member is not None and held.votes(name) and member.incarnation != node.incarnation:
                return False
        lapsed = self.lapses.lapsed()
        lost = [voter for voter in membership.voters
                if voter == name or voter in self._damaged or voter in lapsed or not memberships[voter][1].everyone
                or membership.members[voter].incarnation != self.cluster.nodes[voter].incarnation]
        return len(lost) <= (len(membership.voters) - 1) // 2

    def _do_damage(self, name: str | None, span_ms: int, where: float, how: int) -> None:
        """Damage stored bytes of a node that is down, so that it must notice; replace its disk later.

        From now on the disk counts as lost, but all that it still serves must be right. Only one disk is damaged at a
        time: a second damaged one could not record that the first is lost.
        """
        if name is None or not self._up(name) or self._damaged or not self.may_wipe(name):
            return
        self.cluster.crash(name)
        if self.cluster.damage_disk(name, where, how):
            self._damaged.add(name)
            self.after(span_ms, partial(self._replace_disk, name))
        self.start(name)

    def _replace_disk(self, name: str) -> None:
        """Replace a damaged disk as soon as the others can notice the loss."""
        if not self.may_wipe(name) and not self._is_out(name):
            self.after(200, partial(self._replace_disk, name))
            return
        if self._up(name):
            self.cluster.crash(name)
        self.cluster.wipe(name)
        self._damaged.discard(name)
        self._wiped.add(name)
        self.start(name)
        self.after(500, self._readmit)

    def _is_out(self, name: str) -> bool:
        """Return whether the latest membership is committed and does not have this node."""
        ghosts = self.cluster.checker.nodes
        index, membership = max((ghost.disk.memberships[-1] for ghost in ghosts.values()), key=lambda each: each[0])
        return name not in membership.everyone and not membership.joint and not self.changing(index)

    def changing(self, index: int) -> bool:
        """Return whether a change of members is under way anywhere."""
        for name, node in self.cluster.nodes.items():
            if node.life is not None:
                leadership = node.life.replica.leadership
                if self.cluster.checker.nodes[name].memory.memberships[-1][0] > index or (
                        leadership is not None and leadership.changes.desired is not None):
                    return True
        return False

    def lost(self) -> set[str]:
        """Return nodes that lost their disk and were not readmitted or removed since, or that await another disk."""
        _, latest = max((ghost.disk.memberships[-1] for ghost in self.cluster.checker.nodes.values()),
                        key=lambda each: each[0])
        for name in sorted(self._wiped):
            if name not in latest.everyone or latest.members[name].incarnation == self.cluster.nodes[name].incarnation:
                self._wiped.discard(name)
        return self._wiped | self._damaged

    def _readmit(self) -> None:
        membership = self.membership()
        if membership is not None and not membership.joint:
            self._reconfigure(self.cluster.leader, list(membership.voters), list(membership.learners))

    def membership(self) -> Membership | None:
        """Return the leader's membership; None without a leader."""
        leader = self.cluster.leader
        return self.cluster.life(leader).replica.membership if leader else None

    def _do_pause(self, name: str | None, span_ms: int) -> None:
        if name is not None and self._up(name) and self.cluster.life(name).paused is None:
            self.cluster.pause(name)
            self.after(span_ms, partial(self.resume, self.cluster.life(name)))

    def resume(self, life: Life) -> None:
        """Resume a process, if it is alive and still paused."""
        if not life.dead and life.paused is not None:
            self.cluster.resume(life.name)

    def _do_partition(self, _: str | None, span_ms: int, group: list[str]) -> None:
        names = [name for name in group if name in self.cluster.nodes]
        if names and len(names) < len(self.cluster.nodes):
            self.cluster.counts["partition"] += 1
            self.cluster.partition(names)
            self.after(span_ms, self.cluster.heal)

    def _do_isolate(self, name: str | None, span_ms: int) -> None:
        if name is not None:
            self._do_partition(None, span_ms + 500, [name])

    def _do_cut(self, name: str | None, span_ms: int, other: str) -> None:
        if name is not None and other != name:
            self.cluster.cut(name, other)
            self.after(span_ms, partial(self.cluster.heal, name, other))

    def _do_hold(self, name: str | None, span_ms: int, other: str) -> None:
        if name is not None and other != name:
            self.cluster.hold(name, other)
            self.after(span_ms, partial(self.cluster.release, name, other))

    def _do_rate(self, name: str | None, span_ms: int, rate_ppm: int) -> None:
        if name is not None:
            self.cluster.skew(name, rate_ppm=rate_ppm)
            self.after(span_ms, partial(self.cluster.skew, name, rate_ppm=MILLION))

    _do_drift = _do_rate

    def _do_step(self, name: str | None, step_ms: int) -> None:
        if name is not None:
            self.cluster.skew(name, step_ms=step_ms)

    def _do_full(self, name: str | None, span_ms: int) -> None:
        if name is not None:
            self.cluster.fill_disk(name)
            self.after(span_ms, partial(self.cluster.free_disk, name))

    def _do_fail(self, name: str | None, span_ms: int) -> None:
        """Let a sync fail; the operator restarts the node later."""
        if name is not None and self._up(name):
            self.cluster.fail_sync(name)
            self.after(span_ms, partial(self._replace, self.cluster.life(name)))

    def _replace(self, life: Life) -> None:
        if not life.dead and life.paused is None:
            self.cluster.crash(life.name)
            self.start(life.name)

    def _do_stall(self, name: str | None, span_ms: int) -> None:
        if name is not None:
            self.cluster.stall_disk(name, span_ms)

    def _do_hang(self, name: str | None, span_ms: int) -> None:
        """Let a sync hang while the other nodes change their leader several times."""
        if name is None or not self._up(name):
            return
        life, changes = self.cluster.life(name), 4
        term = life.replica.term
        self.cluster.stall_disk(name, span_ms * (changes + 1))
        for change in range(1, changes + 1):
            self.after(change * span_ms, partial(self._pass_on_while_hung, name))
        self.after(span_ms * changes, partial(self._note_hang, life, term))

    def _pass_on_while_hung(self, name: str) -> None:
        if self.cluster.nodes[name].stalled_until > self.cluster.world.now:
            self._do_transfer("leader", None)

    def _note_hang(self, life: Life, term: int) -> None:
        if not life.dead and life.replica.term > term:
            self.cluster.counts["hang across leaders"] += 1

    def _do_transfer(self, name: str | None, target: str | None) -> None:
        life = self._pick(name) if name else None
        if life is not None:
            try:
                self._open.append(life.transfer(target))
                self.cluster.counts["transfer"] += 1
            except Outcome as error:
                self._count(error)

    def _do_reconfigure(self, name: str | None, voters: list[str], learners: list[str]) -> None:
        """Reconfigure as an operator would, but not while a disk or its acknowledged writes are lost.

        Otherwise a membership without the nodes that hold those writes could lose the quorum for good.
        """
        if not self.lost() and not self.lapses.lapsed():
            self._reconfigure(name, voters, learners)

    def _reconfigure(self, name: str | None, voters: list[str], learners: list[str]) -> None:
        life = self._pick(name) if name else None
        if life is None:
            return
        for each in (*voters, *learners):
            if each not in self.cluster.nodes:
                self.cluster.add(each)
        try:
            self._open.append(life.reconfigure({each: each for each in voters}, {each: each for each in learners}))
            self.cluster.counts["reconfigure"] += 1
        except Outcome as error:
            self._count(error)

    def _do_snapshot(self, name: str | None) -> None:
        life = self._pick(name) if name else None
        if life is not None:
            life.snapshot()


class Healing:
    """The second phase: undo every fault, then demand a leader, writes, and one state everywhere."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.cluster = scene, scene.cluster

    def demand(self) -> None:
        """Heal all and wait for writes; raises ``InvariantViolation`` for INV_R30."""
        cluster = self.cluster
        self.heal()
        cluster.checker.calm = True
        cluster.run_until(lambda: self._leads() is not None, HEAL_MS)
        self._readmit()
        served = 0
        while served < WRITES_WANTED and self._write():
            served += 1
        cluster.run_until(
            lambda: served == WRITES_WANTED and len(set(self._states().values())) == 1 and self._leased(), HEAL_MS)
        cluster.checker.finished(
            self._states(), leader=self._leads(), leased=self._leased(), served=served, wanted=WRITES_WANTED)

    def heal(self) -> None:
        """Undo every fault of links, clocks, disks and processes."""
        cluster, plan = self.cluster, self.scene.plan
        cluster.heal()
        cluster.network.shape(attrs.evolve(plan.links, loss=0.0, duplicate=0.0, reorder=0.0, delay=0.0, capacity=4_096))
        for link in cluster.network.links():
            link.release()
        for name, node in cluster.nodes.items():
            cluster.skew(name, rate_ppm=MILLION)
            cluster.slow_disk(name, 0.0)
            node.stalled_until, node.fail_next = 0, False
            if node.life is not None and node.life.paused is not None:
                cluster.resume(name)
            cluster.free_disk(name)
            if node.life is not None and node.life.replica.faulted:
                cluster.crash(name)
            self.scene.start(name)

    def _leads(self) -> str | None:
        """Return a leader that has committed an entry of its own term; None if there is none."""
        name = self.cluster.leader
        if name is None:
            return None
        leadership = self.cluster.life(name).replica.leadership
        return name if leadership is not None and leadership.own_term_committed else None

    def _leased(self) -> bool:
        """Return whether the leader's lease is valid, or there are no leases."""
        name = self._leads()
        life = self.cluster.life(name) if name is not None else None
        return life is None or not life.replica.rules.lease_ns or life.replica.lease_valid(life.replica.now)

    def _readmit(self) -> None:
        """Readmit members whose disk was lost; they come back as learners first."""
        scene, end = self.scene, self.cluster.world.now + HEAL_MS * MS
        while self.cluster.world.now < end:
            membership, leader = scene.membership(), self._leads()
            strangers = self.cluster.life(leader).replica.identities.strangers if leader else None
            if membership is not None and strangers is not None and not membership.joint and not strangers:
                self.cluster.run_ms(200)
                if leader == self._leads() and leader and not scene.lost():
                    return
            elif membership is not None and leader and not membership.joint:
                with suppress(Outcome):
                    self.cluster.life(leader).reconfigure(
                        {name: name for name in membership.voters}, {name: name for name in membership.learners})
            self.cluster.run_ms(100)

    def _write(self) -> bool:
        end = self.cluster.world.now + HEAL_MS * MS
        while self.cluster.world.now < end:
            name = self._leads()
            if name is not None:
                try:
                    asked = self.scene.write(self.cluster.life(name))
                except (NotLeader, Rejected):
                    pass
                else:
                    self.cluster.run_until(partial(_done, asked), PATIENCE_MS)
                    if isinstance(asked.outcome, list):
                        return True
            self.cluster.run_ms(20)
        return False

    def _states(self) -> dict[str, tuple[int, int]]:
        membership = self.scene.membership()
        if membership is None:
            return {}
        return {name: (life.machine.index, life.machine.digest) for name in membership.everyone
                if (life := self.cluster.nodes[name].life) is not None}


def _scene(tape: Tape, profile: str) -> Scene:
    return Scene(tape, with_lapses(draw_plan(tape, profile), tape, profile))


RAFT: Final = Program(
    "python -m raft.sim", _scene, PROFILES, DECLARED, DECLARED_FAULTS, frozenset({"INV_R30"}), RARE_FAULTS)


def _done(asked: Proposal) -> bool:
    return asked.outcome is not None


def _sum(machine: Ledger) -> int:
    return machine.sum


def _call(action: Callable[[], None]) -> None:
    action()
