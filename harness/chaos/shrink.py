"""``chaos shrink RUN``: shrinks the schedule of a failing run by playing it again until no fault can be left out.

Each try is a run of its own, below ``RUN/tries``. The result is ``shrunk-schedule.json`` for ``chaos replay``, and
``shrunk.txt`` for people; the page of the run shows it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from harness.chaos import check, report
from harness.chaos.playing import NODES, again, read, say
from harness.chaos.subcommand import BROKEN, UNKNOWN, USAGE, Refused
from harness.checkers import queues
from harness.nemesis.sandbox import tied
from harness.torture.directory import fresh
from harness.torture.schedule import Schedule, to_json
from harness.torture.shrinking import Attempt, NotRepeated, shrink

NAME: Final = "shrink"
ABOUT: Final = "cut the schedule of a failing run down to what the failure needs"
RUNS_MAX: Final = 40


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("directory", type=Path, metavar="RUN", help="a run's directory whose verdict is false")
    parser.add_argument("--runs", type=int, default=RUNS_MAX, metavar="N", help="at most; default: %(default)s")
    parser.add_argument("--promise", metavar="WHAT",
                        help="of what the run broke, as `queue: place`, what has to stay broken; default: the gravest")
    parser.add_argument("--no-sandbox", action="store_true", help="as with `chaos run`")
    parser.add_argument("--json", action="store_true", help="what was found as JSON; progress goes to standard error")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    path: Path = options.directory.resolve()
    if options.runs < 1:
        raise Refused(f"--runs is {options.runs}; at least 1")
    _, whole = read(path)
    broken = [*failures(path)]
    if not broken:
        raise Refused(f"{path} did not fail: there is nothing to shrink")
    wanted = options.promise or broken[0]
    if wanted not in broken:
        raise Refused(f"{path} broke no {wanted}, but {', '.join(broken)}")
    tries = Tries(path, wanted, ["--no-sandbox"] if options.no_sandbox else [])
    say(f"{wanted}: {len(whole.steps)} faults, {whole.clients} clients, {whole.seconds:g} s")
    try:
        found = shrink(whole, tries.play, options.runs)
    except NotRepeated as error:
        say(str(error))
        return UNKNOWN
    repeat = path / "shrunk-schedule.json"
    repeat.write_bytes(orjson.dumps(to_json(found.schedule), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    words = "\n".join([
        found.schedule.words(), f"before: {len(whole.steps)} faults; {found.before.words()}",
        f"now: {len(found.schedule.steps)} faults; {found.after.words()}; {found.tried} runs in all",
        f"again: {again(repeat)}"])
    (path / "shrunk.txt").write_text(words + "\n", encoding="utf-8")
    report.write(path, path / "page.html")
    if options.json:
        print(orjson.dumps({
            "schedule": str(repeat), "broken": wanted, "faults": {"before": len(whole.steps), "now": len(
                found.schedule.steps)}, "before": attrs.asdict(found.before), "now": attrs.asdict(found.after),
            "tried": found.tried}, option=orjson.OPT_INDENT_2).decode())
    else:
        print(words)
    return BROKEN


def failures(path: Path) -> dict[str, int]:
    """Failures of a run, the gravest first -> the number of first events that show each; 0: unknown.

    A failure is ``checker: promise``, or the checker alone if it names no promise. Raises ``Refused`` if there is no
    verdict.
    """
    try:
        told: Any = orjson.loads((path / "verdict.json").read_bytes())
        found: dict[str, int] = {}
        for name, each in told["checkers"].items():
            if each["valid"] is False and not each.get("broken"):
                found[name] = each.get("prefix", 0)
            for one in each.get("broken", ()) if each["valid"] is False else ():
                what = f"{name}: {one['promise']}"
                known = [prefix for prefix in (found.get(what, 0), one.get("prefix", 0)) if prefix]
                found[what] = min(known, default=0)
    except (OSError, orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        raise Refused(f"{path} has no verdict: was its run interrupted?") from None
    return {what: found[what] for what in sorted(found, key=_grave)}


def _grave(what: str) -> int:
    """Sort key: unexplained answers first, then promises of queues in their order, recovery, and nodes."""
    name, _, promise = what.partition(": ")
    if name in (check.RECOVERY, NODES):
        return len(queues.PROMISES) + (name == NODES)
    return queues.PROMISES.index(promise) if promise in queues.PROMISES else -1


@attrs.define
class Tries:
    """Plays shrunk schedules of one run."""

    path: Path
    wanted: str
    """The failure that a try must repeat, as ``failures`` names it."""
    options: list[str]
    _number: int = attrs.field(default=0, init=False)

    def play(self, schedule: Schedule) -> Attempt:
        """Play one try. Raises ``Refused`` if it cannot be played."""
        self._number += 1
        out = fresh(self.path / "tries", "try")
        for name in ("scenario.toml", "target.toml", "asked.json"):
            (out / name).write_bytes((self.path / name).read_bytes())
        (out / "schedule.json").write_bytes(orjson.dumps(to_json(schedule)))
        done = subprocess.run(
            [*tied(), sys.executable, "-P", "-m", "harness.chaos", "replay", str(out), "--out", str(out),
             *self.options], capture_output=True, text=True, check=False)
        if done.returncode == USAGE or done.returncode < 0:
            raise Refused(f"a try ended with exit code {done.returncode}\n{done.stderr.strip()}")
        broken = failures(out)
        same = self.wanted in broken
        say(f"try {self._number}: {len(schedule.steps)} faults, {schedule.clients} clients, {schedule.seconds:g} s: "
            f"{'fails' if same else 'does not fail'}")
        return Attempt(same, _seen_at_s(out, broken[self.wanted]) if same else None)


def _seen_at_s(path: Path, prefix: int) -> float | None:
    """Time in s of the history's event with this number."""
    if not prefix:
        return None
    lines = (path / "history.jsonl").read_bytes().splitlines()
    return float(orjson.loads(lines[min(prefix, len(lines)) - 1])["time_ns"]) / 1e9
