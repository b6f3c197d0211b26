"""Explores your state machine and workload under every fault of the library's own campaigns: ``explore``.

    def test_no_money_is_made():
        explore(Accounts, transfers, invariant=total_is_kept)

Seeds are played until one fails. Its decisions are shrunk to those that the failure needs, saved in a file, and shown
as a script; earlier failures of the same exploration are played first. Knows files and processes.
"""

from __future__ import annotations

import inspect
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from raft.errors import UsageError
from raft.invariants import InvariantViolation
from raft.sim.arrows import Arrows
from raft.sim.campaign import Program, Result, name_of, run
from raft.sim.explored import DONE, Explored, Subject, name_of_predicate
from raft.sim.failures import play_again, write_down_repeated
from raft.sim.operations import Workload
from raft.sim.pool import results
from raft.sim.script import RunScript
from raft.sim.swarm import PROFILES
from raft.sim.tape import Tape, count, load
from raft.statemachine import AnyMachine

CORPUS: Final = ".explore"
SHRINK_S: Final = 30.0
"""Longest time spent on making a failure small."""


class Counterexample(AssertionError):
    """A seed failed. The text has the shrunk script, and says how to repeat it."""

    def __init__(self, text: str, *, failure: str, seed: int, tape: Path, script: list[str]) -> None:
        super().__init__(text)
        self.failure, self.seed = failure, seed
        self.tape = tape
        """The file that repeats the failure. Files beside it have the clients' operations (``.history.jsonl``) and
        the nodes' messages (``.messages.jsonl``)."""
        self.script = script


class NothingExplored(AssertionError):
    """No operation succeeded, or a predicate was never evaluated: to pass would prove nothing."""


@attrs.frozen
class ExplorationReport:
    """The counts of an exploration, summed over its seeds."""

    seeds: int
    events: int
    virtual_s: float
    seconds: float
    outcomes: dict[str, int]
    """Number of operations by outcome."""
    predicates: dict[str, int]
    """Number of evaluations of each predicate."""
    applied: dict[str, int]
    """Number of times that each fault or other counted event happened."""
    replayed: int
    """Number of earlier failures that pass now."""

    def __str__(self) -> str:
        asked = ", ".join(f"{name} asked {number:,} times" for name, number in self.predicates.items())
        return (f"{self.seeds} seeds, {self.events:,} events, {self.virtual_s:,.0f} s of virtual time in "
                f"{self.seconds:.1f} s; {self.outcomes.get('ok', 0):,} operations done; {asked or 'no predicates'}")


_intercept: Callable[[Exploration], ExplorationReport] | None = None
"""If set, replaces ``Exploration.run``: ``explored_by`` sets it to find what a function explores."""


@attrs.frozen(kw_only=True)
class Exploration:
    """One call of ``explore``. Its documentation says what the fields mean."""

    subject: Subject
    seeds: int = 30
    first: int = 1
    events: int | None = None
    budget_s: float | None = None
    profile: str = "swarm"
    jobs: int = 1
    corpus: Path | None = Path(CORPUS)
    name: str = ""
    replay: Path | None = None
    repeat: str = 'explore(..., replay="{path}")'
    """Tells people how to repeat a failure."""

    def __attrs_post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise UsageError(f"no profile {self.profile!r}; there are {', '.join(PROFILES)}")
        for field in ("seeds", "jobs"):
            if getattr(self, field) < 1:
                raise UsageError(f"{field} must be 1 or more, not {getattr(self, field)}")
        if (self.subject.nodes is not None and self.subject.nodes < 1) or self.subject.clients < 1:
            raise UsageError("an exploration has at least one node and one client")

    def program(self, command: str = "") -> Program:
        """Return a campaign's program that explores this subject."""
        profiles = tuple(dict.fromkeys((self.profile, *PROFILES)))
        return Program(command, partial(Explored, self.subject), profiles, (*self.subject.predicates(), DONE), (),
                       frozenset({"INV_R30", *self._at_the_end()}))

    def _at_the_end(self) -> tuple[str, ...]:
        return (name_of_predicate(self.subject.check),) if self.subject.check is not None else ()

    def run(self) -> ExplorationReport:
        """Replay a file, or play all seeds. Raises the exceptions of ``explore``."""
        __tracebackhide__ = True  # pytest shows the test's call of this, not the inside
        if _intercept is not None:
            return _intercept(self)
        tally = _Tally(self)
        if self.replay is not None:
            self._replay(self.replay, tally, "the failure is still there")
            return tally.report()
        for path in self.earlier():
            self._replay(path, tally, "an earlier failure is back, or was never mended")
        program = self.program()
        seeds = range(self.first, self.first + self.seeds)
        for result in results(partial(_play, profile=self.profile, program=program), seeds, self.jobs, "fork"):
            tally.take(result)
            if result.failure:
                self._fail(result, program)
            if result.seed == self.first:
                play_again(result, program, f"{name_of_predicate(self.subject.machine)} or the workload depends on "
                           "more than its arguments: a clock, chance without a seed, a counter of its own or the "
                           "order of a set")
            if tally.enough():
                break
        tally.demand()
        return tally.report()

    @property
    def folder(self) -> Path | None:
        """Folder of this exploration's earlier failures; None if they are not played."""
        return self.corpus / re.sub(r"[^A-Za-z0-9_.-]+", "-", self.name).strip("-") if self.corpus else None

    def earlier(self) -> list[Path]:
        """Return the files of earlier failures, by name."""
        folder = self.folder
        return sorted(folder.glob("*.json")) if folder is not None and folder.is_dir() else []

    def _fail(self, result: Result, program: Program) -> None:
        __tracebackhide__ = True
        if str(result.failure).startswith("UsageError"):
            Explored(self.subject, Tape(result.seed), result.profile).play(None)  # raises it with its traceback
            raise UsageError(result.message)
        folder = self.folder or Path(CORPUS)
        self._raise(*write_down_repeated(result, folder, program, SHRINK_S, nodes=self.subject.nodes,
                                         clients=self.subject.clients, exploration=self.name))

    def _replay(self, path: Path, tally: _Tally, why: str) -> None:
        __tracebackhide__ = True
        result = run(*self._loaded(path), program=self._as_recorded(path).program())
        tally.replayed(result)
        if result.failure:
            self._raise(path, why)

    def _loaded(self, path: Path) -> tuple[Tape, str]:
        tape, notes = load(path)
        return tape, str(notes.get("profile", "swarm"))

    def _as_recorded(self, path: Path) -> Exploration:
        """Return this exploration with the numbers of nodes and clients of the recorded file."""
        _, notes = load(path)
        nodes, clients = notes.get("nodes", self.subject.nodes), notes.get("clients", self.subject.clients)
        return attrs.evolve(self, subject=attrs.evolve(self.subject, nodes=nodes, clients=clients))

    def _raise(self, path: Path, why: str) -> None:
        """Play the file once more, and raise ``Counterexample`` with its script."""
        __tracebackhide__ = True
        tape, notes = load(path)
        deviations, until_ns = count(tape.deviations), notes.get("until_ns")
        script, subject = RunScript(), self._as_recorded(path).subject
        script.listen(tape)
        scene: Explored | None = None
        arrows: Arrows | None = None
        error: Exception | None = None
        try:
            scene = Explored(subject, tape, str(notes.get("profile", "swarm")))
            arrows = Arrows(scene.cluster)
            script.scene, scene.tell = scene, script.say
            scene.play(until_ns)
        except Exception as raised:  # noqa: BLE001  whatever the user's code or the checker raises is the finding
            error = raised
        lines = script.lines()
        if scene is not None and arrows is not None:
            scene.history.save(path.with_suffix(".history.jsonl"))
            arrows.save(path.with_suffix(".messages.jsonl"))
        if isinstance(error, InvariantViolation):
            failure, said, cause = error.id, [f"{error.id}: {error.message}"], None
        else:
            failure, cause = name_of(error) if error is not None else "nothing", error
            said = [f"{failure}: {str(error).strip()}", *getattr(error, "__notes__", ())]
        raise Counterexample(
            "\n".join([*said, "", f"{why}.", f"What it needs ({deviations} decisions):", *lines, "", "Repeat it with",
                       f"    {self.repeat.format(path=_near(path))}"]),
            failure=failure, seed=tape.seed, tape=path, script=lines) from cause


def _near(path: Path) -> Path:
    """Return the path, relative to the working directory if it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


class _Tally:
    """Sums over the seeds of an exploration, and its verdict."""

    def __init__(self, exploration: Exploration) -> None:
        self._of = exploration
        self._started = time.monotonic()
        self._seeds = self._events = self._virtual_ns = self._replayed = 0
        self._outcomes: Counter[str] = Counter()
        self._predicates: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()

    def take(self, result: Result) -> None:
        self._seeds += 1
        self._events += result.events
        self._virtual_ns += result.virtual_ns
        self._outcomes.update(result.outcomes)
        self._predicates.update(result.predicates)
        self._applied.update(result.applied)

    def replayed(self, result: Result) -> None:
        self._replayed += not result.failure

    def enough(self) -> bool:
        """Return whether ``events`` or ``budget_s`` is used up."""
        of = self._of
        return (of.events is not None and self._events >= of.events) or (
            of.budget_s is not None and time.monotonic() - self._started >= of.budget_s)

    def demand(self) -> None:
        """Raise ``NothingExplored`` if no operation succeeded or a predicate was never evaluated."""
        never = [name for name in self._of.subject.predicates() if not self._predicates[name]]
        if not self._predicates[DONE]:
            why = ", ".join(f"{name.removeprefix('refused: ')} ({number} times)" for name, number in
                            self._applied.most_common() if name.startswith("refused: "))
            raise NothingExplored(f"no operation succeeded in {self._seeds} seeds: {why or 'the workload made none'}")
        if never:
            raise NothingExplored(f"never asked in {self._seeds} seeds: {', '.join(never)}")

    def report(self) -> ExplorationReport:
        asked = {name: self._predicates[name] for name in self._of.subject.predicates()}
        return ExplorationReport(self._seeds, self._events, self._virtual_ns / 1e9, time.monotonic() - self._started,
                      dict(self._outcomes), asked, dict(self._applied), self._replayed)


def _play(seed: int, profile: str, program: Program) -> Result:
    return run(Tape(seed), profile, program=program)


def explore(
    machine: Callable[[], AnyMachine], operations: Workload, *,
    invariant: Callable[[Any], object] | None = None, check: Callable[[Explored], object] | None = None,
    every_step: Callable[[Explored], object] | None = None,
    seeds: int = 30, first: int = 1, events: int | None = None, budget_s: float | None = None,
    profile: str = "swarm", nodes: int | None = None, clients: int = 5, jobs: int = 1,
    corpus: str | Path | None = CORPUS, name: str | None = None, replay: str | Path | None = None,
    repeat: str = 'explore(..., replay="{path}")',
) -> ExplorationReport:
    """Run a replicated state machine under faults until something breaks, or ``seeds`` seeds have passed.

    ``machine()`` makes one state machine, ``operations(choices)`` the next thing that a client does: a command, an
    ``Operation``, or None. ``invariant(machine)`` is called after each applied command, ``every_step(run)`` before each
    step, ``check(run)`` once all is healed; each raises or returns False if something is wrong. The invariants of
    ``raft.sim`` are checked as well: they find a machine that is not deterministic, or whose snapshot lacks state that
    results depend on, without a predicate.

    ``profile`` chooses faults (``swarm``: a mix for each seed). ``nodes`` None: drawn, mostly three. ``events`` and
    ``budget_s`` (wall seconds) stop earlier. ``jobs`` processes play seeds. Failures are kept below ``corpus``, by
    ``name``, and played first next time, until their files are deleted; None: kept, but not played. ``replay`` plays
    one such file and nothing else.

    Returns an ``ExplorationReport``. Raises ``Counterexample``, with the shrunk script; ``NotRepeatable`` if a seed is
    not one run; ``NothingExplored`` if nothing succeeded or was evaluated; ``UsageError`` for bad arguments and files
    that are no tape.
    """
    __tracebackhide__ = True
    subject = Subject(machine=machine, operations=operations, invariant=invariant, every_step=every_step, check=check,
                      nodes=nodes, clients=clients)
    return Exploration(
        subject=subject, seeds=seeds, first=first, events=events, budget_s=budget_s, profile=profile, jobs=jobs,
        corpus=Path(corpus) if corpus is not None else None, replay=Path(replay) if replay is not None else None,
        name=name or f"{name_of_predicate(machine)}-{name_of_predicate(operations)}", repeat=repeat).run()


class _Found(BaseException):
    """Ends a function at its call of ``explore``, and carries the arguments."""

    def __init__(self, exploration: Exploration) -> None:
        super().__init__()
        self.exploration = exploration


def explored_by(function: Callable[..., object]) -> Exploration:
    """Return the exploration of a function that calls ``explore``, or of a test with an argument of that name.

    Raises ``UsageError`` for a function that never calls it.
    """
    global _intercept

    def found(exploration: Exploration) -> ExplorationReport:
        raise _Found(exploration)

    def given(*args: Any, **own: Any) -> ExplorationReport:
        return explore(*args, **{**own, **options})

    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "explore"]
    options = {name: value for mark in marks for name, value in mark.kwargs.items()}
    parameters = inspect.signature(function).parameters.values()
    others = [each.name for each in parameters if each.name != "explore" and each.default is each.empty]
    if others:
        raise UsageError(f"{name_of_predicate(function)} wants {', '.join(others)}; only `explore` is given here")
    before, _intercept = _intercept, found
    try:
        function(**{each.name: given for each in parameters if each.name == "explore"})
    except _Found as done:
        return done.exploration
    finally:
        _intercept = before
    raise UsageError(f"{name_of_predicate(function)} explores nothing: it never calls explore(...)")
