"""A campaign's scene that uses the user's state machine, workload and checks in place of the library's own.

Each client does one operation at a time, recorded in ``history``. Predicates see a machine after each command, the run
before each step, and the run after healing. An exception of the user's code is raised unchanged. Knows scenes and
operations; knows no seeds, no files and no terminals.
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
from raft.sim.operations import Choices, Operation, Workload, from_tape, json_value, operation_of, shown, to_tape
from raft.sim.swarm import Plan, draw_plan, with_lapses
from raft.sim.tape import Chance, Tape, Value
from raft.statemachine import AnyMachine, codec_of, query_of

COMMAND_BYTES_MAX: Final = 8 << 10
SPARE: Final = 1_000_000_000
"""First serial number of the nemesis's and the healing's writes."""
SHORTER: Final = 5
"""Factor by which an exploration's seed is shorter than a campaign's."""
TRIES: Final = 100
DONE: Final = "operations done"


@attrs.frozen(kw_only=True)
class Subject:
    """The subject of an exploration. A predicate fails if it raises (``assert``) or returns False; None and True
    pass."""

    machine: Callable[[], AnyMachine]
    """Makes a state machine, once for each start of a node."""
    operations: Workload
    invariant: Callable[[Any], object] | None = None
    """Predicate of a machine, evaluated after each command that it applied, and after each restore from a snapshot."""
    every_step: Callable[[Explored], object] | None = None
    """Predicate of the run, evaluated before each step: for what must hold between nodes. Slow."""
    check: Callable[[Explored], object] | None = None
    """Predicate of the run, evaluated at the end, when all is healed and all machines are equal."""
    nodes: int | None = None
    """Number of voters; None: drawn, mostly three."""
    clients: int = 5

    def predicates(self) -> tuple[str, ...]:
        """Return the names of the predicates that the user gave."""
        return tuple(name_of_predicate(each) for each in (self.invariant, self.every_step, self.check) if each)


def name_of_predicate(predicate: Callable[..., object]) -> str:
    """Return the name of a predicate in messages."""
    return str(getattr(predicate, "__qualname__", predicate)).replace("<locals>.", "")


class Broke(BaseException):
    """Carries an exception of the user's code through a node. A node takes an ``Exception`` for a failed machine."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class SimClient:
    """A client, and its operation in progress."""

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
    """A cluster whose machines are watched. The scene is called before each step if it must be."""

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
    """Return a campaign's limits, with room for larger commands and states, and with automatic snapshots."""
    return attrs.evolve(plan.config(), entry_bytes_max=COMMAND_BYTES_MAX, frame_bytes_max=8_192, append_bytes_max=8_192,
                        snapshot_chunk_bytes=256 if plan.tight else 1_024,
                        snapshot_log_bytes=tape.stream("snapshots").pick((0, 600, 600, 3_000), 0))


def plan_of(subject: Subject, tape: Tape, profile: str) -> Plan:
    """Return the plan of one seed, drawn as in campaigns, but shorter and with the subject's number of nodes."""
    plan = with_lapses(draw_plan(tape, profile), tape, profile)
    plan.duration_ms //= SHORTER
    plan.rules = Rules.DLEDGER if profile == "dledger" else Rules.STRICT
    plan.size = subject.nodes or plan.size
    return plan


class Explored(Scene):
    """One run, the argument of ``check`` and ``every_step``: see ``cluster``, ``machines`` and ``history``."""

    def __init__(self, subject: Subject, tape: Tape, profile: str) -> None:
        self.subject, self.history = subject, History()
        self.asked: Counter[str] = Counter(dict.fromkeys(subject.predicates(), 0))
        """Predicate -> number of evaluations."""
        self.done = 0
        """Number of the workload's operations that succeeded."""
        self.refusals: Counter[str] = Counter()
        """Reason why operations failed -> number of times."""
        self.tell: Callable[[str], None] | None = None
        """Called with a line for each event of a client and each new leader."""
        sample = subject.machine()
        codec = codec_of(sample)
        self._encode: Callable[[Any], bytes] | None = codec.encode if codec is not None else None
        self._decode: Callable[[bytes], Any] | None = codec.decode if codec is not None else None
        self._choices = Choices()
        self._clients = [SimClient(number) for number in range(subject.clients)]
        self._busy: list[SimClient] = []
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
        """Play the run; at its end call ``check``."""
        try:
            super().play(until_ns)
        except Broke as broke:
            raise broke.error from None
        if until_ns is None or until_ns > self._ends:
            self._look(None)
            for client in list(self._busy):
                self._finish(client, Unknown(detail="the run ended"))
            if self.subject.check is not None:
                self._ask_predicate(self.subject.check, self)

    # --- predicates

    @property
    def steps(self) -> bool:
        """True if ``step`` must be called before each step."""
        return self.subject.every_step is not None or self.tell is not None

    def step(self) -> bool:
        """Report a new leader and evaluate ``every_step``. Always returns False."""
        if self.tell is not None and (leader := self.cluster.leader) != self._led:
            self._led = leader
            self.tell(f"{leader} leads, term {self.cluster.life(leader).replica.term}" if leader else "nobody leads")
        if self.subject.every_step is not None:
            self._ask_predicate(self.subject.every_step, self)
        return False

    def look_at(self, name: str, machine: Any) -> None:
        """Evaluate the invariant for a machine that changed."""
        if self.subject.invariant is not None:
            self._ask_predicate(self.subject.invariant, machine, name)

    def _ask_predicate(self, predicate: Callable[[Any], object], about: Any, node: str = "") -> None:
        name = name_of_predicate(predicate)
        self.asked[name] += 1
        if predicate(about) is False:
            raise InvariantViolation(name, f"it returned False{f' for the machine of {node}' if node else ''}")

    def where(self, name: str) -> str:
        """Return words for node and time, for a note to an exception."""
        return f"on {name}, at {self.cluster.world.now / MS:.3f} ms of virtual time"

    # --- clients

    def _client_acts(self, _: None) -> None:
        world = self.cluster.world
        if world.now >= self._ends:
            return
        world.at(world.now + self.plan.op_ns, self._client_acts)
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
        node, client = self._whom(chance), int(chance() * len(self._clients))
        made = self._made(self._choices.point(chance, self._acts.count, client))
        return None if made is None else {"client": client, "node": node, **self._on_tape(made)}

    def _made(self, choices: Choices) -> Operation | None:
        """Ask the workload for an operation. Its exceptions become ``UsageError``, as a replay would not call it."""
        try:
            return operation_of(self.subject.operations(choices))
        except Exception as error:
            name = name_of_predicate(self.subject.operations)
            raise UsageError(f"{name}, which makes operations, raised {error!r}") from error

    def _on_tape(self, made: Operation) -> dict[str, Value]:
        try:
            return to_tape(made, self._encode)
        except Exception as error:
            name = name_of_predicate(self.subject.operations)
            raise UsageError(f"{name}, which makes operations, made {shown(made.command)}: {error}") from error

    def _begin(self, act: dict[str, Value]) -> None:
        client, life = self._clients[act["client"] % len(self._clients)], self._life(act["node"])
        if client.operation is not None or life is None:
            return
        operation = from_tape(act, self._decode)
        self._invoke(client, operation, life.name)
        if life.paused is not None:
            life.paused.append((self._arrive, (client, operation, life)))  # taken when it resumes
        else:
            self._arrive((client, operation, life))

    def _invoke(self, client: SimClient, operation: Operation, node: str) -> None:
        client.operation, client.asked, client.since = operation, None, self.cluster.world.now
        self._busy.append(client)
        self.history.add("invoke", client.process, operation.name, operation.key, operation.value, client.since)
        if self.tell is not None:
            self.tell(f"process {client.process} asks {node}: {operation.words()}")

    def _arrive(self, what: tuple[SimClient, Operation, Life]) -> None:
        client, operation, life = what
        try:
            asked = self._ask_node(life, operation)
        except Outcome as error:
            if client.operation is operation:
                self._finish(client, error)
        else:
            if client.operation is operation:
                client.asked = asked

    def _ask_node(self, life: Life, operation: Operation) -> Proposal | Reading:
        if operation.query is None:
            return life.propose([life.machine.encoded(operation.command)])
        return life.read(operation.level, partial(self._answer, operation.query))

    def _answer(self, query: bytes, machine: Any) -> object:
        self.soon()
        return query_of(machine)(query)

    def soon(self) -> None:
        """Look for answers at the end of this step."""
        if self._busy and not self._looks:
            self._looks = True
            self.cluster.world.at(self.cluster.world.now, self._look)

    def _look(self, _: None) -> None:
        self._looks = False
        late = self.cluster.world.now - PATIENCE_MS * MS
        for client in list(self._busy):
            outcome = client.asked.outcome if client.asked is not None else None
            if outcome is not None:
                self._finish(client, outcome)
            elif client.since < late:
                self._finish(client, Unknown(detail=f"no answer within {PATIENCE_MS} ms"))

    def _finish(self, client: SimClient, outcome: list[object] | Outcome) -> None:
        operation, now, error, result = client.operation, self.cluster.world.now, None, None
        assert operation is not None
        self._count(outcome)
        value = operation.value
        if isinstance(outcome, list):
            result = json_value(outcome[0])
            kind = "fail" if result == operation.refused else "ok"
            value = result if value is None else value
        else:
            error = str(outcome)
            unknown = isinstance(outcome, Unknown) and operation.query is None
            kind = "info" if unknown else "fail"
            if kind == "fail":
                self.refusals[error] += 1
        self.history.add(kind, client.process, operation.name, operation.key, value, now, result, error)
        if self.tell is not None:
            self.tell(f"process {client.process}: {kind} {result!r}" if error is None else
                      f"process {client.process}: {kind}, {error}")
        self.done += kind == "ok" and client in self._clients
        client.operation = client.asked = None
        self._busy.remove(client)
        if kind == "info":
            client.process = self._new_process()

    def _new_process(self) -> int:
        self._processes += 1
        return self._processes - 1

    # --- what nemesis and healing write and read

    def write(self, life: Life) -> Proposal:
        client, operation = SimClient(self._new_process()), self._spare()
        self._invoke(client, operation, life.name)
        try:
            asked = life.propose([life.machine.encoded(operation.command)])
        except Outcome as error:
            self._finish(client, error)
            raise
        client.asked = asked
        return asked

    def _spare(self) -> Operation:
        """Make a command of the workload that depends on no decision of the tape."""
        for _ in range(TRIES):
            self._spares += 1
            serial = SPARE + self._spares
            chance = Random(f"spare/{serial}").random
            made = self._made(self._choices.point(chance, serial, 0))
            if made is not None and made.query is None:
                return made
        raise UsageError(f"in {TRIES} tries the workload made no command: queries alone explore nothing")

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
    """Answer a read that only tests the read barrier."""
