"""A user's machine, workload and checks in a campaign's scene: the same cluster, nemesis and healing, other clients.

Clients do one thing at a time, as a history's processes do; what they did is in ``history``. A machine is looked at
after each command it applied, everything after each step, and the whole run once all is healed. An exception of the
user's code comes out as it was raised. Knows scenes and operations; knows no seeds, no files and no terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

import attrs

from raft.config import MS, Config, Read, Rules
from raft.errors import Busy, NotLeader, Outcome, Rejected, Unknown, UsageError
from raft.frame import Frame
from raft.invariants import InvariantViolation
from raft.sim.campaign import PATIENCE_MS, Scene
from raft.sim.cluster import Cluster
from raft.sim.history import History
from raft.sim.machine import SimMachine
from raft.sim.node import Life, Proposal, Reading
from raft.sim.operations import Choices, Operation, Workload, again, kept, operation_of, told
from raft.sim.swarm import Plan, draw_plan, with_lapses
from raft.sim.tape import Chance, Tape, Value
from raft.statemachine import AnyMachine, codec_of, query_of

COMMAND_BYTES_MAX: Final = 8 << 10
SPARE: Final = 1_000_000_000
"""Serial numbers of what the nemesis and the healing write begin here."""
SHORTER: Final = 5
"""A seed lasts a fifth of what a seed of a campaign lasts."""
TRIES: Final = 100
DONE: Final = "operations done"


@attrs.frozen(kw_only=True)
class Subject:
    """What is explored. Each predicate may raise (``assert``), or return False; None and True are fine."""

    machine: Callable[[], AnyMachine]
    """Makes a state machine, once per start of a node."""
    operations: Workload
    invariant: Callable[[Any], object] | None = None
    """Given a machine after each command it applied, and after each restore from a snapshot."""
    every_step: Callable[[Explored], object] | None = None
    """Given the run before each step: for what must hold between nodes. Slow."""
    check: Callable[[Explored], object] | None = None
    """Given the run at the end, when all is healed and all machines are equal."""
    nodes: int | None = None
    """Voters; None: drawn, mostly three."""
    clients: int = 5

    def predicates(self) -> tuple[str, ...]:
        """Names of what is asked."""
        return tuple(name_of_predicate(each) for each in (self.invariant, self.every_step, self.check) if each)


def name_of_predicate(predicate: Callable[..., object]) -> str:
    """What messages call a predicate."""
    return str(getattr(predicate, "__qualname__", predicate)).replace("<locals>.", "")


class Broke(BaseException):
    """Carries an exception of the user's code through a node, which would take it for a machine that gave up."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Seat:
    """A client, and the one thing it does."""

    __slots__ = ("asked", "operation", "process", "since")

    def __init__(self, process: int) -> None:
        self.process = process
        self.operation: Operation | None = None
        self.asked: Proposal | Reading | None = None
        self.since = 0


class WatchedMachine(SimMachine):
    """Shows the user's machine to the user's invariant."""

    __slots__ = ("_apply_many", "_name", "_scene")

    def __init__(self, inner: AnyMachine, scene: Explored, name: str) -> None:
        super().__init__(inner)
        self._scene, self._name, self._apply_many = scene, name, self.machine.apply_many
        if scene.subject.invariant is not None and not callable(getattr(inner, "apply_batch", None)):
            self.machine.apply_many = self._one_by_one

    def _one_by_one(self, commands: list[bytes], term: int, first: int, time_ms: int) -> list[object]:
        results: list[object] = []
        for command in commands:
            results += self._apply_many([command], term, first + len(results), time_ms)
            self._scene.look_at(self._name, self.inner)
        return results

    def apply(self, frame: Frame) -> list[object]:
        try:
            results = super().apply(frame)
            if self.machine.apply_many is self._apply_many:
                self._scene.look_at(self._name, self.inner)
        except Exception as error:  # noqa: BLE001  whatever the user's code raises is the finding
            error.add_note(self._scene.where(self._name))
            raise Broke(error) from None
        self._scene.soon()
        return results

    def restore(self, data: bytes) -> None:
        try:
            super().restore(data)
            self._scene.look_at(self._name, self.inner)
        except Exception as error:
            error.add_note(self._scene.where(self._name) + ", after a restore from a snapshot")
            raise


class WatchedCluster(Cluster):
    """Gives nodes machines that are watched, and lets the scene look before each step where somebody wants that."""

    def __init__(self, scene: Explored, plan: Plan, tape: Tape) -> None:
        self._scene = scene
        super().__init__(
            plan.size, scene.subject.machine, tape=tape, config=limits(plan, tape), learners=plan.learners,
            links=plan.links, codec=plan.codec, disk=plan.disk)

    def _new_machine(self, name: str) -> SimMachine:
        return WatchedMachine(self._machine(), self._scene, name)

    def _advance(self, until: int) -> None:
        if self._scene.steps:
            self.world.run_while(lambda: not self._scene.step(), until)
        else:
            super()._advance(until)

    def run_until(self, holds: Callable[[], bool], timeout_ms: float = 60_000) -> bool:
        if self._scene.steps:
            return super().run_until(lambda: self._scene.step() or holds(), timeout_ms)
        return super().run_until(holds, timeout_ms)


def limits(plan: Plan, tape: Tape) -> Config:
    """Those of a campaign, with room for larger commands and states, and snapshots every now and then."""
    return attrs.evolve(plan.config(), entry_bytes_max=COMMAND_BYTES_MAX, frame_bytes_max=8_192, append_bytes_max=8_192,
                        snapshot_chunk_bytes=256 if plan.tight else 1_024,
                        snapshot_log_bytes=tape.stream("snapshots").pick((0, 600, 600, 3_000), 0))


def plan_of(subject: Subject, tape: Tape, profile: str) -> Plan:
    """The conditions of one seed, as campaigns draw them but for their length, and the subject's wishes."""
    plan = with_lapses(draw_plan(tape, profile), tape, profile)
    plan.duration_ms //= SHORTER
    plan.rules = Rules.DLEDGER if profile == "dledger" else Rules.STRICT
    plan.size = subject.nodes or plan.size
    return plan


class Explored(Scene):
    """One run. ``check`` and ``every_step`` are given this: see ``cluster``, ``machines`` and ``history``."""

    def __init__(self, subject: Subject, tape: Tape, profile: str) -> None:
        self.subject, self.history = subject, History()
        self.asked: Counter[str] = Counter(dict.fromkeys(subject.predicates(), 0))
        """Predicate -> how often it was asked."""
        self.done = 0
        """Operations of the workload that were done."""
        self.refusals: Counter[str] = Counter()
        """Why nothing was done -> how often."""
        self.tell: Callable[[str], None] | None = None
        """Called with a line for each thing that clients did, and each new leader."""
        sample = subject.machine()
        codec = codec_of(sample)
        self._encode: Callable[[Any], bytes] | None = codec.encode if codec is not None else None
        self._decode: Callable[[bytes], Any] | None = codec.decode if codec is not None else None
        self._choices = Choices()
        self._seats = [Seat(number) for number in range(subject.clients)]
        self._busy: list[Seat] = []
        self._processes, self._spares = subject.clients, 0
        self._looks = False
        self._led: str | None = None
        super().__init__(tape, plan_of(subject, tape, profile))

    def _make_cluster(self, tape: Tape) -> Cluster:
        return WatchedCluster(self, self.plan, tape)

    @property
    def evaluated(self) -> Counter[str]:
        return super().evaluated + self.asked + Counter({DONE: self.done})

    @property
    def happened(self) -> Counter[str]:
        return super().happened + Counter({f"refused: {why}": number for why, number in self.refusals.items()})

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return self.cluster.tape.seed

    @property
    def machines(self) -> dict[str, Any]:
        """Node -> state machine, of the nodes that run."""
        return {name: self.cluster.machine(name) for name in self.cluster.running}

    def play(self, until_ns: int | None) -> None:
        """All of it, and then the check."""
        try:
            super().play(until_ns)
        except Broke as broke:
            raise broke.error from None
        if until_ns is None or until_ns > self._ends:
            self._look(None)
            for seat in list(self._busy):
                self._finish(seat, Unknown(detail="the run ended"))
            if self.subject.check is not None:
                self._ask_predicate(self.subject.check, self)

    # --- what is asked

    @property
    def steps(self) -> bool:
        """Whether anybody looks at each step."""
        return self.subject.every_step is not None or self.tell is not None

    def step(self) -> bool:
        """Before each step; always False."""
        if self.tell is not None and (leader := self.cluster.leader) != self._led:
            self._led = leader
            self.tell(f"{leader} leads, term {self.cluster.life(leader).replica.term}" if leader else "nobody leads")
        if self.subject.every_step is not None:
            self._ask_predicate(self.subject.every_step, self)
        return False

    def look_at(self, name: str, machine: Any) -> None:
        """A machine changed: ask the invariant."""
        if self.subject.invariant is not None:
            self._ask_predicate(self.subject.invariant, machine, name)

    def _ask_predicate(self, predicate: Callable[[Any], object], about: Any, node: str = "") -> None:
        name = name_of_predicate(predicate)
        self.asked[name] += 1
        if predicate(about) is False:
            raise InvariantViolation(name, f"it returned False{f' for the machine of {node}' if node else ''}")

    def where(self, name: str) -> str:
        """For a note to an exception."""
        return f"on {name}, at {self.cluster.world.now / MS:.3f} ms of virtual time"

    # --- clients

    def _client(self, _: None) -> None:
        world = self.cluster.world
        if world.now >= self._ends:
            return
        world.at(world.now + self.plan.op_ns, self._client)
        act = self._acts.draw(None, self._an_act)
        if self._busy:
            self._look(None)
        if isinstance(act, dict):
            self._begin(act)
        if len(self._open) > self._settle_at:
            self._settle()

    def _an_act(self, chance: Chance) -> Any:
        if chance() >= self.plan.op_chance:
            return None
        node, client = self._whom(chance), int(chance() * len(self._seats))
        made = self._made(self._choices.point(chance, self._acts.count, client))
        return None if made is None else {"client": client, "node": node, **kept(made, self._encode)}

    def _made(self, choices: Choices) -> Operation | None:
        """What the workload makes. A tape keeps operations, so what it raises here no replay would raise again."""
        try:
            return operation_of(self.subject.operations(choices))
        except Exception as error:
            name = name_of_predicate(self.subject.operations)
            raise UsageError(f"{name}, which makes operations, raised {error!r}") from error

    def _begin(self, act: dict[str, Value]) -> None:
        seat, life = self._seats[act["client"] % len(self._seats)], self._life(act["node"])
        if seat.operation is not None or life is None:
            return
        operation = again(act, self._decode)
        self._invoke(seat, operation, life.name)
        if life.paused is not None:
            life.paused.append((self._arrive, (seat, operation, life)))  # its mail waits
        else:
            self._arrive((seat, operation, life))

    def _invoke(self, seat: Seat, operation: Operation, node: str) -> None:
        seat.operation, seat.asked, seat.since = operation, None, self.cluster.world.now
        self._busy.append(seat)
        self.history.add("invoke", seat.process, operation.name, operation.key, operation.value, seat.since)
        if self.tell is not None:
            self.tell(f"process {seat.process} asks {node}: {operation.words()}")

    def _arrive(self, what: tuple[Seat, Operation, Life]) -> None:
        seat, operation, life = what
        try:
            asked = self._ask_node(life, operation)
        except Outcome as error:
            if seat.operation is operation:
                self._finish(seat, error)
        else:
            if seat.operation is operation:
                seat.asked = asked

    def _ask_node(self, life: Life, operation: Operation) -> Proposal | Reading:
        if operation.query is None:
            return life.propose([life.machine.encoded(operation.command)])
        return life.read(operation.level, partial(self._answer, operation.query))

    def _answer(self, query: bytes, machine: Any) -> object:
        self.soon()
        return query_of(machine)(query)

    def soon(self) -> None:
        """See what was answered, once this step is over."""
        if self._busy and not self._looks:
            self._looks = True
            self.cluster.world.at(self.cluster.world.now, self._look)

    def _look(self, _: None) -> None:
        self._looks = False
        late = self.cluster.world.now - PATIENCE_MS * MS
        for seat in list(self._busy):
            outcome = seat.asked.outcome if seat.asked is not None else None
            if outcome is not None:
                self._finish(seat, outcome)
            elif seat.since < late:
                self._finish(seat, Unknown(detail=f"no answer within {PATIENCE_MS} ms"))

    def _finish(self, seat: Seat, outcome: list[object] | Outcome) -> None:
        operation, now, error, result = seat.operation, self.cluster.world.now, None, None
        assert operation is not None
        self._count(outcome)
        value = operation.value
        if isinstance(outcome, list):
            result = told(outcome[0])
            kind = "fail" if result == operation.refused else "ok"
            value = result if value is None else value
        else:
            error = str(outcome)
            unknown = isinstance(outcome, Unknown) and operation.query is None
            kind = "info" if unknown else "fail"
            if kind == "fail":
                self.refusals[error] += 1
        self.history.add(kind, seat.process, operation.name, operation.key, value, now, result, error)
        if self.tell is not None:
            self.tell(f"process {seat.process}: {kind} {result!r}" if error is None else
                      f"process {seat.process}: {kind}, {error}")
        self.done += kind == "ok" and seat in self._seats
        seat.operation = seat.asked = None
        self._busy.remove(seat)
        if kind == "info":
            seat.process = self._new_process()

    def _new_process(self) -> int:
        self._processes += 1
        return self._processes - 1

    # --- what nemesis and healing write and read

    def write(self, life: Life) -> Proposal:
        seat, operation = Seat(self._new_process()), self._spare()
        self._invoke(seat, operation, life.name)
        try:
            asked = life.propose([life.machine.encoded(operation.command)])
        except Outcome as error:
            self._finish(seat, error)
            raise
        seat.asked = asked
        return asked

    def _spare(self) -> Operation:
        """A command of the workload that hangs on no decision of the tape."""
        for _ in range(TRIES):
            self._spares += 1
            serial = SPARE + self._spares
            chance = Random(f"spare/{serial}").random
            made = self._made(self._choices.point(chance, serial, 0))
            if made is not None and made.query is None:
                return made
        raise UsageError(f"in {TRIES} tries the workload made no command: with questions alone nothing can be explored")

    def put(self, name: str) -> None:
        life = self.running(name)
        if life is not None:
            try:
                self.write(life)
            except (NotLeader, Rejected, Busy):
                self.outcomes["put refused"] += 1

    def ask(self, life: Life, level: Read) -> None:
        self._open.append(life.read(level, _nothing))


def _nothing(_: Any) -> None:
    """Bounces ask for the barrier alone."""
