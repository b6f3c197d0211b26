"""``python -m raft.sim``: campaigns of many seeds, and the replay of one.

    python -m raft.sim --events 500M --jobs 2         seeds until so many events, report at the end
    python -m raft.sim --seed 7                       one seed
    python -m raft.sim --replay failures/INV_R7-7.json

A failing seed leaves a small tape in ``--out`` and prints the one command that repeats it. Exit status: 0 passed,
1 an invariant broke, 2 invalid: a declared fault never happened or a declared invariant was never asked.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from raft import __version__
from raft.output import piped
from raft.sim.campaign import RAFT, Program, Result, run
from raft.sim.shrink import Shrunk, shrink
from raft.sim.tape import Deviations, Tape, load, save

SHRINK_S = 60.0
"""Longest time spent on making one failure small."""


@piped
def main(arguments: list[str] | None = None, program: Program = RAFT) -> int:
    """Run the command; returns its exit status."""
    options = _parse(arguments, program)
    if options.replay:
        return _replay(options.replay, program)
    if options.seed is not None:
        seeds: Iterable[int] = range(options.seed, options.seed + options.seeds)
    else:
        seeds = range(options.first, sys.maxsize)
    campaign = Campaign(options, program)
    campaign.run(seeds)
    return campaign.report()


def _parse(arguments: list[str] | None, program: Program) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {program.module}", description="Simulate many seeded clusters.")
    parser.add_argument("--version", action="version", version=f"%(prog)s: raft {__version__}")
    parser.add_argument("--events", type=_number, default=20_000_000, help="stop after so many events: 500M, 20k (20M)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, help="run this seed, and --seeds of them from it on")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="first seed of a campaign (1)")
    parser.add_argument("--profile", choices=program.profiles, default="swarm")
    parser.add_argument("--replay", type=Path, help="play a tape file")
    parser.add_argument("--out", type=Path, default=Path("failures"), help="where failing tapes go (failures/)")
    parser.add_argument("--report", type=Path, help="write the report as JSON, too")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    return parser.parse_args(arguments)


def _number(text: str) -> int:
    """Read 500M, 20k or 3G."""
    scale = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1:], 1)
    return int(text if scale == 1 else text[:-1]) * scale


def _replay(path: Path, program: Program) -> int:
    """Play a tape and say what comes out."""
    tape, notes = load(path)
    result = run(tape, str(notes.get("profile", "swarm")), until_ns=notes.get("until_ns"), program=program)
    _say(f"{result.failure or 'passed'} after {result.events:,} events, {result.virtual_ns / 1e9:.3f} s of virtual "
         f"time; fingerprint {result.fingerprint}")
    if result.failure:
        _say(result.message)
    return 1 if result.failure else 0


def play(seed: int, profile: str, out: Path, program: Program) -> Result:
    """One seed in a worker process; a failure is shrunk and written down before anyone hears of it."""
    result = run(Tape(seed), profile, program=program)
    if result.failure:
        _write_down(result, out, program)
        result.deviations = {}
    return result


def _write_down(result: Result, out: Path, program: Program) -> None:
    until_ns = None if result.failure in program.at_the_end else result.virtual_ns + 1
    deadline = time.monotonic() + SHRINK_S

    def fails(candidate: Deviations) -> bool:
        if time.monotonic() > deadline:
            return False
        tape = Tape(result.seed, candidate)
        return run(tape, result.profile, until_ns=until_ns, program=program).failure == result.failure

    small: Shrunk = shrink(result.deviations, fails)
    assert result.failure is not None
    name = f"{result.failure.replace(' ', '-').replace(':', '-')}-{result.profile}-{result.seed}.json"
    out.mkdir(parents=True, exist_ok=True)
    save(out / name, result.seed, small.deviations, profile=result.profile, failure=result.failure, until_ns=until_ns,
         deviations_before=small.before)
    result.message += (f"\n{small.before} deviations shrunk to {small.after} in {small.runs} runs. Repeat with:\n"
                       f"    python -m {program.module} --replay {out / name}\n"
                       f"or in full with:\n"
                       f"    python -m {program.module} --profile {result.profile} --seed {result.seed}")


class Campaign:
    """Many seeds, their sums and the verdict."""

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
        """Play seeds, in as many processes as asked, until the wanted events are there or something breaks."""
        for result in self._results(seeds):
            self._take(result)
            enough = self._events >= self._options.events and not self._single
            if enough or (self._failures and not self._options.keep_going):
                break

    def _results(self, seeds: Iterable[int]) -> Iterator[Result]:
        one = partial(play, profile=self._options.profile, out=self._options.out, program=self._program)
        if self._options.jobs <= 1:
            yield from map(one, seeds)
            return
        with get_context("spawn").Pool(self._options.jobs) as pool:
            # Seeds are handed out a few at a time: a pool would swallow an endless range at once.
            pending: list[Any] = []
            source = iter(seeds)
            while True:
                while len(pending) < 4 * self._options.jobs and (seed := next(source, None)) is not None:
                    pending.append(pool.apply_async(one, (seed,)))
                if not pending:
                    return
                yield pending.pop(0).get()

    def _take(self, result: Result) -> None:
        self._seeds += 1
        self._events += result.events
        self._virtual_ns += result.virtual_ns
        self._predicates.update(result.predicates)
        self._applied.update(result.applied)
        self._outcomes.update(result.outcomes)
        if result.failure:
            self._failures.append(result)
            _say(f"\nseed {result.seed}: {result.failure}\n{result.message}\n")
        self._progress()

    def _progress(self) -> None:
        now = time.monotonic()
        live = sys.stdout.isatty()
        if now - self._shown < (0.2 if live else 15.0):
            return
        self._shown = now
        share = min(self._events / self._options.events, 1.0)
        rate = self._events / max(now - self._started, 1e-9)
        line = (f"{self._events / 1e6:8.1f} M events {share:4.0%}  {rate / 1e3:6.1f} k/s  {self._seeds} seeds  "
                f"{len(self._failures)} failures")
        if live:
            sys.stdout.write(f"\r[{'#' * int(30 * share):30}] {line} ")
            sys.stdout.flush()
        else:
            _say(line)

    def report(self) -> int:
        """Print the sums; returns the exit status."""
        took, program = time.monotonic() - self._started, self._program
        holes = [] if self._single else self._program.missing(
            self._predicates, self._applied, self._events)
        verdict = "failed" if self._failures else "invalid" if holes and self._options.profile == "swarm" else "passed"
        if sys.stdout.isatty():
            _say("")
        _say(f"{self._events:,} events, {self._seeds} seeds, {self._virtual_ns / 1e9:,.0f} s of virtual time in "
             f"{took:.0f} s: {self._events / max(took, 1e-9):,.0f} events/s with {self._options.jobs} processes")
        _say("invariants, evaluations that were not vacuous:")
        _columns([(name, self._predicates[name]) for name in program.predicates])
        _say("faults and happenings, times applied:")
        others = sorted(set(self._applied) - set(program.faults))
        _columns([(name, self._applied[name]) for name in (*program.faults, *others)])
        _say("requests: " + ", ".join(f"{name} {number:,}" for name, number in sorted(self._outcomes.items())))
        for hole in holes:
            _say(f"never happened: {hole}")
        _say(f"{verdict}: {len(self._failures)} failures")
        if self._options.report:
            self._options.report.write_text(json.dumps({
                "verdict": verdict, "events": self._events, "seeds": self._seeds, "virtual_s": self._virtual_ns / 1e9,
                "seconds": took, "events_per_s": self._events / max(took, 1e-9), "jobs": self._options.jobs,
                "profile": self._options.profile, "python": sys.version.split()[0],
                "invariants": {name: self._predicates[name] for name in program.predicates},
                "applied": dict(self._applied), "requests": dict(self._outcomes), "never": holes,
                "failures": [{"seed": each.seed, "failure": each.failure, "message": each.message}
                             for each in self._failures],
            }, indent=1) + "\n", encoding="utf-8")
        return {"passed": 0, "failed": 1, "invalid": 2}[verdict]


def _columns(rows: list[tuple[str, int]]) -> None:
    for start in range(0, len(rows), 4):
        _say("  " + "  ".join(f"{name:<16}{number:>13,}" for name, number in rows[start : start + 4]).rstrip())


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

