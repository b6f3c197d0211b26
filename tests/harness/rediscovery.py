"""Bugs that people once found by hand, planted again: found by a profile of a simulation or by a scenario, made small.

    python -m tests.harness.rediscovery                    all of the table; writes `rediscovered.json`
    python -m tests.harness.rediscovery --only A1,C9       some
    python docs/generate.py                                the tables of docs/reference/planted-bugs.md from that file

A bug of a simulation is planted in one module as it is loaded; seeds from 1 on are played until one of its properties
breaks, and what that does not need is taken away. For a scenario the tree is copied with the bug in it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.harness.planting import ROOT, Planted, planted_at_import
from tests.raft.bugs.run_mutants import copy_tree

RECORD: Final = Path(__file__).with_name("rediscovered.json")
WITHIN_S: Final = 600.0
SHRINK_S: Final = 300.0
SHRINK_RUNS: Final = 4
COPIED: Final = ("raft", "remoting", "broker", "controller", "mqcluster", "harness", "pyproject.toml")
SIMULATED: Final = ("raft", "controllers", "brokers")


@attrs.frozen
class Rediscovery:
    """One bug. ``by``: a simulation, whose profile the mutant names; servers on virtual time, ``FILE.py:FUNCTION``; or
    a scenario of ``chaos run``."""

    bug: str
    """As the report called it: ``A1``, ``C9``; of several mutants with a number behind it."""
    words: str
    """What was wrong."""
    by: str
    planted: Planted
    """``caught_by``: properties of the simulation, or names of checkers, one of which must break."""
    options: tuple[str, ...] = ()
    """Of ``chaos run``."""

    @property
    def simulated(self) -> bool:
        return self.by in SIMULATED or ".py:" in self.by

    @property
    def command(self) -> str:
        """What finds it, where it is planted."""
        if self.simulated:
            profile = f" --profile {self.planted.profile}" if self.by in SIMULATED else ""
            return f"chaos sim {self.by}{profile}"
        return " ".join(["chaos run", self.by, *self.options])


@attrs.frozen
class FoundAgain:
    """What became of one."""

    failure: str
    """The property that broke, or the checkers; empty: none did."""
    seed: int
    events: int
    """Of a simulation, until it broke."""
    seconds: float
    before: int
    """Deviations from a run in which nothing happens, or faults of a schedule; then, after shrinking."""
    after: int
    script: tuple[str, ...]


def found(row: Rediscovery) -> FoundAgain:
    """In this process, which must not have loaded the mutant's module yet."""
    if row.simulated:
        return found_by_simulation(row)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        return found_by_scenario(row, Path(folder))


def found_by_simulation(row: Rediscovery) -> FoundAgain:
    """Seed by seed, in one process."""
    planted_at_import(row.planted)
    from harness.chaos.sim import program_of
    from raft.invariants import InvariantViolation
    from raft.sim.campaign import run
    from raft.sim.failures import repeats, until_of
    from raft.sim.shrink import shrink
    from raft.sim.tape import Tape, count

    program, profile = program_of(row.by), row.planted.profile
    began, seed, events = time.monotonic(), 0, 0
    while True:
        seed += 1
        result = run(Tape(seed), profile, program=program)
        events, seconds = events + result.events, time.monotonic() - began
        if result.failure in row.planted.caught_by:
            break
        if seconds > WITHIN_S:
            return FoundAgain("", seed, events, seconds, 0, 0, ())
    deadline, small = time.monotonic() + SHRINK_S, result.deviations
    before, after = count(small) + 1, count(small)
    while after < before and time.monotonic() < deadline:  # each time with as many runs as one shrinking has
        small = shrink(small, lambda each: time.monotonic() < deadline and repeats(result, program, each)).deviations
        before, after = after, count(small)
    lines, error = told(program.scene, Tape(seed, small), profile, until_of(result, program))
    assert isinstance(error, InvariantViolation) and error.id == result.failure, "the small tape breaks the same"
    return FoundAgain(error.id, seed, events, round(seconds, 1), count(result.deviations), after,
                      (*lines, f"{error.id}: {error.message}"))


def told(make: Callable[[Any, str], Any], tape: Any, profile: str, until_ns: int | None) -> tuple[
        list[str], Exception | None]:
    """A tape in lines for people, each deviation with its moment, and what servers noted; and what comes out."""
    from raft.sim.script import fault_words, stream_words

    lines: list[str] = []
    error: Exception | None = None
    scene: Any = None

    def heard(stream: str, value: Any) -> None:
        at = f"{scene.cluster.world.now / 1e6:9.1f} ms" if scene is not None else f"{'before':>12}"
        lines.append(f"{at}  " + (f"{stream}: {fault_words(value, None)}" if stream.endswith("nemesis")
                                  else stream_words(stream, value)))

    tape.listen(heard)
    try:
        scene = make(tape, profile)
        scene.play(until_ns)
    except Exception as found:  # noqa: BLE001  whatever it is, it is the finding
        error = found
    noted = [f"{at * 1e3:9.1f} ms  {words}" for at, words in getattr(scene, "notes", ())]
    return (sorted([*lines, *noted], key=moment) if noted else lines), error


# --- for people ---------------------------------------------------------------------------------------------------

_LINE: Final = re.compile(r" *(?P<at>before|[0-9.]+ ms)  (?P<stream>[^:]*): (?P<value>.*)")
_STORY: Final = re.compile(r"(.* )?nemesis")
"""Streams of faults, each of which is told by itself."""
_NUMBER: Final = re.compile(r"-?[0-9.]+(?= ms$)")
SHOWN: Final = 8
"""Values of a stream that is told as a whole."""


def moment(line: str) -> float:
    """When it happened, ms; before all, where it says so."""
    at = line.split(maxsplit=1)[0]
    return -1.0 if at == "before" else float(at)


def readable(lines: Sequence[str]) -> Iterator[str]:
    """The same in fewer lines: between two faults, each stream is told as a whole."""
    waiting: list[re.Match[str]] = []
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is not None and not _STORY.fullmatch(found["stream"]):
            waiting.append(found)
            continue
        yield from _wholes(waiting)
        waiting = []
        yield line
    yield from _wholes(waiting)


def _wholes(lines: Sequence[re.Match[str]]) -> Iterator[str]:
    streams: dict[str, list[re.Match[str]]] = {}
    for each in lines:
        streams.setdefault(each["stream"], []).append(each)
    for stream, found in streams.items():
        first, last = found[0]["at"], found[-1]["at"]
        when = f"{first:>12}" if first == last else f"{first.removesuffix(' ms'):>9} … {last}"
        whole = f"{when}  {stream}: {_together([each['value'] for each in found])}"
        yield found[0][0] if len(found) == 1 else whole


def _together(values: Sequence[str]) -> str:
    """``put × 40, index × 7``; ``delay × 14, 0.4 to 4.7 ms``; or the values themselves."""
    kinds = Counter(re.split(r"[',]", value.removeprefix("['"))[0] for value in values)
    numbers = [float(found[0]) for value in values if (found := _NUMBER.search(value))]
    if len(kinds) > SHOWN // 2 and not values[0].startswith("["):
        return ", ".join(values[:SHOWN]) + (f", … {len(values)} in all" if len(values) > SHOWN else "")
    told = ", ".join(kind if times == 1 else f"{kind} × {times}" for kind, times in kinds.most_common())
    return told + (f", {min(numbers):.1f} to {max(numbers):.1f} ms" if len(numbers) == len(values) else "")


def found_by_scenario(row: Rediscovery, folder: Path) -> FoundAgain:
    """Real processes of a copy of the tree, in which the bug is planted."""
    tree = folder / "tree"
    copy_tree(tree, COPIED)
    file = tree / row.planted.file
    file.write_text(row.planted.apply(file.read_text(encoding="utf-8")), encoding="utf-8")
    began, seed = time.monotonic(), 0

    def chaos(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "harness.chaos", *command], cwd=folder, capture_output=True, text=True,
            check=False, env=os.environ | {"PYTHONPATH": str(tree)})

    while True:
        seed += 1
        run = folder / f"run-{seed}"
        done = chaos("run", row.by, *row.options, "--seed", str(seed), "--out", str(run), "--json")
        seconds = time.monotonic() - began
        assert done.returncode in (0, 1, 3), f"{done.stdout}{done.stderr}"
        checkers = json.loads(done.stdout)["checkers"].items()
        broken = [f"{name}: {'; '.join(dict.fromkeys(one['promise'] for one in each.get('broken', ())))}"
                  for name, each in checkers if each["valid"] is False]
        what = [f"{one['promise']}: {one['what']}" for _, each in checkers for one in each.get("broken", ())[:1]]
        if any(each.startswith(row.planted.caught_by) for each in broken):
            break
        if seconds > WITHIN_S:
            return FoundAgain("", seed, 0, seconds, 0, 0, ())
    shrunk = chaos("shrink", str(run), "--runs", str(SHRINK_RUNS))
    small = run / "shrunk-schedule.json"
    assert small.exists(), f"{shrunk.stdout}{shrunk.stderr}"
    before, after = (len(json.loads(each.read_text())["steps"]) for each in (run / "schedule.json", small))
    return FoundAgain(broken[0], seed, 0, round(seconds, 1), before, after,
                      (*(run / "shrunk.txt").read_text().splitlines(), *what))


# --- what was found, written down ---------------------------------------------------------------------------------


def recorded() -> dict[str, FoundAgain]:
    """What was found when it was last asked, by bug."""
    rows = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {bug: _read(row) for bug, row in rows.items()}


def _read(row: Mapping[str, Any]) -> FoundAgain:
    return FoundAgain(**{**row, "script": tuple(row["script"])})


def record(bug: str, what: FoundAgain) -> None:
    """Beside what is there of others."""
    rows = {**recorded(), bug: what}
    RECORD.write_text(json.dumps({name: attrs.asdict(rows[name]) for name in sorted(rows)}, indent=1) + "\n")


def apart(row: Rediscovery) -> FoundAgain:
    """In a process of its own. Raises ``AssertionError`` where it cannot be asked."""
    done = subprocess.run([sys.executable, "-m", "tests.harness.rediscovery", "--one", row.bug], cwd=ROOT,
                          capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    assert not done.returncode, f"{row.bug}: {done.stderr[-2_000:]}"
    return _read(json.loads(done.stdout))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when one is not found."""
    from tests.harness.rediscovered import ROWS

    parser = argparse.ArgumentParser(prog="python -m tests.harness.rediscovery", description=main.__doc__)
    parser.add_argument("--only", default="", metavar="BUGS", help="by commas: A1,C9")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        [row] = [row for row in ROWS if row.bug == options.one]
        sys.stdout.write(json.dumps(attrs.asdict(found(row))) + "\n")
        return 0
    wanted = set(filter(None, options.only.split(",")))
    missed = 0
    for row in (row for row in ROWS if not wanted or row.bug in wanted):
        what = apart(row)
        record(row.bug, what)
        missed += not what.failure
        sys.stdout.write(f"{row.bug:8} {what.failure or 'NOT FOUND':24} seed {what.seed}, {what.events:,} events, "
                         f"{what.seconds:.1f} s; {what.before} -> {what.after}\n")
        sys.stdout.flush()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
