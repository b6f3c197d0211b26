"""Implements ``python -m raft.sim``: campaigns of many seeds, and the replay of one.

    python -m raft.sim --events 500M --jobs 2         seeds until so many events, report at the end
    python -m raft.sim --seed 7                       one seed
    python -m raft.sim --replay failures/INV_R7-7.json
    python -m raft.sim --events 20M --json            one JSON object a line: progress, failure, report

A failing seed leaves a small tape in ``--out`` and prints the command that repeats it. Exit status: 0 passed, 1 an
invariant broke, 2 invalid: a declared fault never happened or a declared invariant was never evaluated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from raft import __version__
from raft.output import piped
from raft.sim.campaign import DECLARED_FAULTS, RAFT, Program, Result, run
from raft.sim.failures import write_down
from raft.sim.pool import results
from raft.sim.tape import Tape, load

INVALID = 2
SHRINK_S = 60.0
"""Longest time spent on making one failure small."""


@piped
def main(arguments: list[str] | None = None, program: Program = RAFT) -> int:
    """Run the command and return its exit status."""
    options = parse(arguments, program)
    if options.replay:
        return _replay(options.replay, program, as_json=options.json)
    if options.seed is not None:
        seeds: Iterable[int] = range(options.seed, options.seed + options.seeds)
    else:
        seeds = range(options.first, sys.maxsize)
    campaign = CampaignRun(options, program)
    campaign.run(seeds)
    return campaign.report()


def parse(arguments: list[str] | None, program: Program) -> argparse.Namespace:
    """Parse the options of a command."""
    parser = argparse.ArgumentParser(prog=program.command, description="Simulate many seeded clusters.")
    parser.add_argument("--version", action="version", version=f"%(prog)s: raft {__version__}")
    parser.add_argument("--events", type=_number, default=20_000_000, help="stop after so many events: 500M, 20k (20M)")
    parser.add_argument("--jobs", type=_positive, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, help="run this seed, and --seeds of them from it on")
    parser.add_argument("--seeds", type=_positive, default=1)
    parser.add_argument("--first", type=int, default=1, help="first seed of a campaign (1)")
    parser.add_argument("--profile", choices=program.profiles, default=program.profiles[0])
    parser.add_argument("--replay", type=Path, help="play a tape file")
    parser.add_argument("--out", type=Path, default=Path("failures"), help="where failing tapes go (failures/)")
    parser.add_argument("--report", type=Path, help="write the report as JSON, too")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line, for programs")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    """Read a number of at least 1: no seed, or no process, would play nothing, and pass."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is too few: at least 1")
    return number


def _number(text: str) -> int:
    """Read 500M, 20k or 3G."""
    scale = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1:], 1)
    return int(text if scale == 1 else text[:-1]) * scale


def _replay(path: Path, program: Program, *, as_json: bool) -> int:
    """Play a tape and print its result. Return the exit status."""
    tape, notes = load(path)
    result = run(tape, str(notes.get("profile", "swarm")), until_ns=notes.get("until_ns"), program=program)
    if as_json:
        tell("replay", file=str(path), failure=result.failure, message=result.message, events=result.events,
              virtual_s=result.virtual_ns / 1e9, fingerprint=result.fingerprint)
    else:
        say(f"{result.failure or 'passed'} after {result.events:,} events, {result.virtual_ns / 1e9:.3f} s of virtual "
             f"time; fingerprint {result.fingerprint}")
        if result.failure:
            say(result.message)
    return 1 if result.failure else 0


def play(seed: int, profile: str, out: Path, program: Program) -> Result:
    """Play one seed in a worker process; shrink and save a failure before reporting it."""
    result = run(Tape(seed), profile, program=program)
    if result.failure:
        _write_down(result, out, program)
        result.deviations = {}
    return result


def _write_down(result: Result, out: Path, program: Program) -> None:
    path, small = write_down(result, out, program, SHRINK_S)
    result.message += (f"\n{small.before} deviations shrunk to {small.after} in {small.runs} runs. Repeat with:\n"
                       f"    {program.command} --replay {path}\n"
                       f"or in full with:\n"
                       f"    {program.command} --profile {result.profile} --seed {result.seed}")


class CampaignRun:
    """Plays many seeds, adds up their results and gives the verdict."""

    def __init__(self, options: argparse.Namespace, program: Program) -> None:
        self._options, self._program = options, program
        self._predicates: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._failures: list[Result] = []
        self._events = self._virtual_ns = self._seeds = 0
        self._started = time.monotonic()
        self._shown = 0.0
        self._single = options.seed is not None

    def run(self, seeds: Iterable[int]) -> None:
        """Play seeds in ``--jobs`` processes until ``--events`` happened or a seed failed."""
        one = partial(play, profile=self._options.profile, out=self._options.out, program=self._program)
        for result in results(one, seeds, self._options.jobs):
            self._take(result)
            enough = self._events >= self._options.events and not self._single
            if enough or (self._failures and not self._options.keep_going):
                break

    def _take(self, result: Result) -> None:
        self._seeds += 1
        self._events += result.events
        self._virtual_ns += result.virtual_ns
        self._predicates.update(result.predicates)
        self._applied.update(result.applied)
        self._outcomes.update(result.outcomes)
        if result.failure:
            self._failures.append(result)
            if self._options.json:
                tell("failure", seed=result.seed, failure=result.failure, message=result.message)
            else:
                say(f"\nseed {result.seed}: {result.failure}\n{result.message}\n")
        self._progress()

    def _progress(self) -> None:
        now = time.monotonic()
        live = sys.stdout.isatty() and not self._options.json
        if now - self._shown < (0.2 if live else 15.0):
            return
        self._shown = now
        share = min(self._events / self._options.events, 1.0)
        took = max(now - self._started, 1e-9)
        faults = sum(self._applied[name] for name in self._program.faults or DECLARED_FAULTS)
        if self._options.json:
            tell("progress", events=self._events, seeds=self._seeds, seconds=took, faults=faults,
                  failures=len(self._failures))
            return
        line = (f"{self._events / 1e6:8.1f} M events {share:4.0%}  {self._events / took / 1e3:6.1f} k/s  "
                f"{self._seeds} seeds  {self._seeds / took:.1f}/s  {faults:,} faults  {len(self._failures)} failures")
        if live:
            sys.stdout.write(f"\r[{'#' * int(30 * share):30}] {line} ")
            sys.stdout.flush()
        else:
            say(line)

    def report(self) -> int:
        """Print the sums and return the exit status."""
        took, program = time.monotonic() - self._started, self._program
        partial_by_wish = program.faults and (self._single or self._options.profile != "swarm")
        holes = [] if self._single and program.faults else program.missing(
            self._predicates, self._applied, self._events)
        verdict = "failed" if self._failures else "invalid" if holes and not partial_by_wish else "passed"
        sums = {
            "verdict": verdict, "events": self._events, "seeds": self._seeds, "virtual_s": self._virtual_ns / 1e9,
            "seconds": took, "events_per_s": self._events / max(took, 1e-9), "jobs": self._options.jobs,
            "profile": self._options.profile, "python": sys.version.split()[0],
            "invariants": {name: self._predicates[name] for name in program.predicates},
            "applied": dict(self._applied), "requests": dict(self._outcomes), "never": holes,
            "failures": [{"seed": each.seed, "failure": each.failure, "message": each.message}
                         for each in self._failures],
        }
        if self._options.json:
            tell("report", **sums)
        else:
            self._say_sums(verdict, holes, took)
        if self._options.report:
            self._options.report.write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")
        return {"passed": 0, "failed": 1, "invalid": INVALID}[verdict]

    def _say_sums(self, verdict: str, holes: list[str], took: float) -> None:
        program = self._program
        if sys.stdout.isatty():
            say("")
        say(f"{self._events:,} events, {self._seeds} seeds, {self._virtual_ns / 1e9:,.0f} s of virtual time in "
             f"{took:.0f} s: {self._events / max(took, 1e-9):,.0f} events/s with {self._options.jobs} processes")
        say("invariants, evaluations that were not vacuous:")
        _columns([(name, self._predicates[name]) for name in program.predicates])
        say("faults and happenings, times applied:")
        others = sorted(set(self._applied) - set(program.faults))
        _columns([(name, self._applied[name]) for name in (*program.faults, *others)])
        say("requests: " + ", ".join(f"{name} {number:,}" for name, number in sorted(self._outcomes.items())))
        for hole in holes:
            say(f"never happened: {hole}")
        say(f"{verdict}: {len(self._failures)} failures")


def _columns(rows: list[tuple[str, int]]) -> None:
    for start in range(0, len(rows), 4):
        say("  " + "  ".join(f"{name:<16}{number:>13,}" for name, number in rows[start : start + 4]).rstrip())


def tell(about: str, **facts: object) -> None:
    """Print one line of JSON for programs, unbuffered."""
    say(json.dumps({"about": about, **facts}))


def say(text: str) -> None:
    """Print one line for people, unbuffered."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

