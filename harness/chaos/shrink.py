"""``chaos shrink RUN``: the schedule of a failing run, cut down by playing it again until no fault can be left out.

Each try is a run of its own, below ``RUN/tries``. What is found is ``shrunk-schedule.json`` for ``chaos replay``,
and ``shrunk.txt``, which a person reads; the page of the run shows it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from harness.chaos import report
from harness.chaos.playing import again, read, say
from harness.chaos.subcommand import BROKEN, UNKNOWN, USAGE, Refused
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
    parser.add_argument("--no-sandbox", action="store_true", help="as with `chaos run`")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    path: Path = options.directory.resolve()
    if options.runs < 1:
        raise Refused(f"--runs is {options.runs}; at least 1")
    _, whole = read(path)
    wanted = failures(path)
    if not wanted:
        raise Refused(f"{path} did not fail: there is nothing to shrink")
    tries = Tries(path, wanted, ["--no-sandbox"] if options.no_sandbox else [])
    say(f"{', '.join(sorted(wanted))}: {len(whole.steps)} faults, {whole.clients} clients, {whole.seconds:g} s")
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
    print(words)
    return BROKEN


def failures(path: Path) -> set[str]:
    """Names of the checkers that a run broke. Raises ``Refused`` where it has no verdict."""
    try:
        told: Any = orjson.loads((path / "verdict.json").read_bytes())
        return {name for name, each in told["checkers"].items() if each["valid"] is False}
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        raise Refused(f"{path} has no verdict: was its run interrupted?") from None


@attrs.define
class Tries:
    """Runs of candidates of one run."""

    path: Path
    wanted: set[str]
    options: list[str]
    _number: int = attrs.field(default=0, init=False)

    def play(self, schedule: Schedule) -> Attempt:
        """One run. Raises ``Refused`` where it cannot be made."""
        self._number += 1
        out = fresh(self.path / "tries", "try")
        for name in ("scenario.toml", "target.toml", "asked.json"):
            (out / name).write_bytes((self.path / name).read_bytes())
        (out / "schedule.json").write_bytes(orjson.dumps(to_json(schedule)))
        done = subprocess.run(
            [sys.executable, "-P", "-m", "harness.chaos", "replay", str(out), "--out", str(out), *self.options],
            capture_output=True, text=True, check=False)
        if done.returncode == USAGE or done.returncode < 0:
            raise Refused(f"a try ended with exit code {done.returncode}\n{done.stderr.strip()}")
        same = failures(out) & self.wanted
        say(f"try {self._number}: {len(schedule.steps)} faults, {schedule.clients} clients, {schedule.seconds:g} s: "
            f"{'fails' if same else 'does not fail'}")
        return Attempt(bool(same), _seen_at_s(out) if same else None)


def _seen_at_s(path: Path) -> float | None:
    """When the shortest failing beginning of the history ends."""
    told: Any = orjson.loads((path / "verdict.json").read_bytes())
    ends = [prefix for each in told["checkers"].values() if each["valid"] is False
            for prefix in [each.get("prefix", 0), *(one.get("prefix", 0) for one in each.get("broken", ()))] if prefix]
    if not ends:
        return None
    lines = (path / "history.jsonl").read_bytes().splitlines()
    return float(orjson.loads(lines[min(*ends, len(lines)) - 1])["time_ns"]) / 1e9
