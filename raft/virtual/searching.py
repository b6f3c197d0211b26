"""``search`` plays many seeds of a program on virtual time until one fails; it shrinks, saves and shows that one.

    def test_no_order_is_lost(): search(orders, seeds=50)

Tapes, shrinking and processes are those of ``raft.sim``. Knows files and results; ``running`` makes a run.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import attrs

from raft.errors import UsageError
from raft.sim.campaign import Program, Result, name_of, run
from raft.sim.exploring import Counterexample
from raft.sim.failures import play_again, write_down_repeated
from raft.sim.pool import results
from raft.sim.tape import Tape, count, load
from raft.violation import InvariantViolation
from raft.virtual.running import ENDED, LEAKED, Main, Servers

CORPUS: Final = ".search"
SHRINK_S: Final = 60.0
"""Longest time spent on making a failure small."""
PROFILE: Final = "servers"
REPEAT: Final = 'search(..., replay="{path}")'


@attrs.frozen
class SearchReport:
    """The counts of a search, summed over its seeds."""

    seeds: int
    steps: int
    virtual_s: float
    happened: dict[str, int]
    """Number of times that each fault happened, and the program's own counts."""


def program_of_servers(main: Main, command: str = "") -> Program:
    """Return a campaign's program that plays ``main``, with the command line, tapes and reports of all simulations."""
    at_the_end = frozenset({"LeakedTasks", "StandsStill"})
    return Program(command, partial(_scene, main), (PROFILE,), (ENDED, LEAKED), (), at_the_end)


def _scene(main: Main, tape: Tape, _: str) -> Servers:
    return Servers(main, tape)


def search(
    main: Main, *, seeds: int = 30, first: int = 1, jobs: int = 1, corpus: str | Path = CORPUS,
    replay: str | Path | None = None, repeat: str = REPEAT,
) -> SearchReport:
    """Run ``main(world)`` with ``seeds`` seeds, from ``first`` on, until one fails.

    A failure is shrunk to the decisions that it needs, and saved below ``corpus``; ``replay`` plays such a file and
    nothing else. ``jobs`` processes play seeds. Raises ``Counterexample``, with the events in words;
    ``NotRepeatable`` if a seed is not one run; ``UsageError`` for calls that do not work on virtual time.
    """
    __tracebackhide__ = True
    program = program_of_servers(main)
    if replay is not None:
        servers = tell(main, Path(replay), "the failure is still there", repeat)
        return SearchReport(1, servers.world.events, servers.world.now / 1e9, dict(servers.happened))
    played: list[Result] = []
    for result in results(partial(_play, program=program), range(first, first + seeds), jobs, "fork"):
        played.append(result)
        if result.failure:
            _fail(main, result, program, Path(corpus), repeat)
        if result.seed == first:
            play_again(result, program, "something depends on a clock, on chance without a seed, on the order of a "
                       "set, or on state of an earlier run")
    return _sum(played)


def _play(seed: int, program: Program) -> Result:
    return run(Tape(seed), PROFILE, program=program)


def _sum(played: list[Result]) -> SearchReport:
    happened: dict[str, int] = {}
    for result in played:
        for name, number in result.applied.items():
            happened[name] = happened.get(name, 0) + number
    return SearchReport(len(played), sum(each.events for each in played),
                        sum(each.virtual_ns for each in played) / 1e9, happened)


def _fail(main: Main, result: Result, program: Program, corpus: Path, repeat: str) -> None:
    __tracebackhide__ = True
    if str(result.failure).startswith("UsageError"):
        Servers(main, Tape(result.seed)).play()  # raises it with its traceback
        raise UsageError(result.message)
    tell(main, *write_down_repeated(result, corpus, program, SHRINK_S), repeat)


def tell(main: Main, path: Path, why: str, repeat: str) -> Servers:
    """Play a file; raise ``Counterexample`` with its events if it fails."""
    __tracebackhide__ = True
    tape, notes = load(path)
    servers, kept = Servers(main, tape), count(tape.deviations)
    try:
        servers.play(notes.get("until_ns"))
    except Exception as error:
        failure = error.id if isinstance(error, InvariantViolation) else name_of(error)
        script = [f"{seconds * 1e3:12.3f} ms  {words}" for seconds, words in servers.notes]
        raise Counterexample(
            "\n".join([f"{failure}: {str(error).strip()}", "", f"{why}.", f"What happened ({kept} decisions):", *script,
                       "", "Repeat it with", f"    {repeat.format(path=path)}"]),
            failure=failure, seed=tape.seed, tape=path, script=script) from error
    return servers
