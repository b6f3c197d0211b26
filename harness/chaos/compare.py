"""``chaos compare SCENARIO...``: plays the same schedules against several targets and compares losses and outages.

    chaos compare kill-master kill-everything --seed 3
    chaos compare kill-master --side ours=rocketmq --side "ours, default=rocketmq,all_ack=false,min_in_sync=1,in_sync=1"

Each run is a ``chaos run`` of its own, with a directory and a page. The exit code only says whether all were played: a
side may lose messages that its mode does not promise to keep.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from harness.chaos.playing import RUNS, say
from harness.chaos.subcommand import PASSED, UNKNOWN, USAGE, Refused
from harness.checkers.chosen import QUEUE
from harness.nemesis.sandbox import tied
from harness.torture.directory import fresh

NAME: Final = "compare"
ABOUT: Final = "play scenarios against several targets; a table says what each lost (RPO), and for how long (RTO)"
SIDES: Final = ("ours=rocketmq", "Java 5.5.0=rocketmq-java")
LOSSES: Final[Mapping[str, str]] = {"lost": "lost", "unseen": "seen and gone", "place": "places taken twice"}
"""Promises of the queue's checker whose breach is a loss, with words for it."""


@attrs.frozen
class Side:
    """One target, with its options."""

    name: str
    target: str
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Side:
        """Parse a side of the command line, ``NAME=TARGET[,OPTION=VALUE...]``. Raises ``Refused``."""
        name, _, rest = text.partition("=")
        target, *options = rest.split(",")
        if not name.strip() or not target or not all("=" in each for each in options):
            raise Refused(f"--side {text}: NAME=TARGET[,OPTION=VALUE...] is wanted")
        return cls(name.strip(), target, tuple(options))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("scenarios", nargs="+", metavar="SCENARIO", help="each one of `chaos scenarios`, or a file")
    parser.add_argument("--side", action="append", metavar="NAME=TARGET[,OPTION=VALUE...]",
                        help=f"what is compared, two at least; default: {' and '.join(SIDES)}")
    parser.add_argument("--seed", type=int, default=1, help="of all schedules; default: %(default)s")
    parser.add_argument("--seconds", type=float, help="of load and faults; default: each scenario's")
    parser.add_argument("--out", type=Path, metavar="DIR", help="of all runs; default: a new one in ./chaos-runs")
    parser.add_argument("--keep", type=Path, metavar="FILE",
                        help="put the rows into this file, beside what it has of others")
    parser.add_argument("--skip-impossible", action="store_true", help="leave out faults that cannot be done here")
    parser.add_argument("--json", action="store_true", help="the rows as JSON; progress goes to standard error")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    sides = [Side.of(each) for each in options.side or SIDES]
    if len({each.name for each in sides}) < max(2, len(sides)):
        raise Refused("two sides of different names, at least, are compared")
    kept = [] if options.keep is None else _kept(options.keep)
    path: Path = (options.out or fresh(RUNS, NAME)).resolve()
    rows: list[dict[str, Any]] = []
    for scenario in options.scenarios:
        for number, side in enumerate(sides):
            say(f"{scenario}: {side.name}")
            rows.append(_row(path / Path(scenario).stem / f"{number + 1}-{side.target}", scenario, side, options))
            path.mkdir(parents=True, exist_ok=True)
            (path / "compared.json").write_bytes(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
    if options.keep is not None:
        options.keep.write_bytes(orjson.dumps(merged(kept, rows), option=orjson.OPT_INDENT_2) + b"\n")
    print(orjson.dumps(rows, option=orjson.OPT_INDENT_2).decode() if options.json else "\n".join(table(rows)))
    return UNKNOWN if any("not_run" in each for each in rows) else PASSED


def _row(path: Path, scenario: str, side: Side, options: argparse.Namespace) -> dict[str, Any]:
    command = [*tied(), sys.executable, "-P", "-m", "harness.chaos", "run", scenario, "--target", side.target,
               "--seed", str(options.seed), "--out", str(path), "--json"]
    for each in side.options:
        command += ["--option", each]
    if options.seconds is not None:
        command += ["--seconds", str(options.seconds)]
    if options.skip_impossible:
        command.append("--skip-impossible")
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    row: dict[str, Any] = {"scenario": Path(scenario).stem, "side": side.name, "seed": options.seed}
    if done.returncode == USAGE or not (path / "verdict.json").exists():
        told = [line for line in done.stderr.splitlines() if line.strip()]
        return row | {"not_run": told[-1] if told else f"exit code {done.returncode}"}
    verdict, about = ((path / name).read_bytes() for name in ("verdict.json", "run.json"))
    return row | read(orjson.loads(verdict), orjson.loads(about))


def read(verdict: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return one run's row, from its ``verdict.json`` and ``run.json``."""
    checkers = verdict["checkers"]
    queue, recovery = checkers.get("queue", {}), checkers.get("recovery", {}).get("figures", {})
    broken = queue.get("figures", {})
    return {
        "valid": verdict["valid"], "day": about["began"][:10], "seconds": about["seconds"], "faults": about["faults"],
        "well": about["well"], "acknowledged": queue.get("asked", {}).get("acknowledged", 0),
        "lost": {each: broken[each] for each in LOSSES if each in broken},
        "broken": [*_broken(checkers)], "judged": queue.get("valid", "unknown") != "unknown",
        "p50_ms": _outage(recovery, "p50_ms"), "most_ms": _outage(recovery, "most_ms")}


def _outage(figures: Mapping[str, int], which: str) -> int | None:
    """How long a queue accepted nothing after a fault: what was sent before the fault took hold may be accepted at
    once, so a longer time from the first send that failed counts instead."""
    return max((figures[name] for name in (f"accepted {which}", f"refused {which}") if name in figures), default=None)


def _broken(checkers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The promises that were broken; of a checker that names none, the checker."""
    for name, told in checkers.items():
        if told["valid"] is False:
            yield from told.get("figures", {}) if name == QUEUE else dict.fromkeys(
                each["promise"] for each in told.get("broken", ())) or [name]


def merged(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """All rows; new ones replace those of the same scenario and side."""
    anew = {(each["scenario"], each["side"]) for each in now}
    return sorted([*(each for each in before if (each["scenario"], each["side"]) not in anew), *now],
                  key=lambda each: each["scenario"])


def _kept(path: Path) -> list[Mapping[str, Any]]:
    try:
        found: Any = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except orjson.JSONDecodeError as error:
        raise Refused(f"{path} is no file of rows: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) and {"scenario", "side"} <= each.keys()
                                              for each in found):
        raise Refused(f"{path} is no file of rows: a list of objects with scenario and side is wanted")
    rows: list[Mapping[str, Any]] = found
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A row for each scenario, a column for each side."""
    sides = [*dict.fromkeys(each["side"] for each in rows)]
    yield f"| lost of acknowledged; accepts again after p50, most | {' | '.join(sides)} |"
    yield "|---" * (len(sides) + 1) + "|"
    for scenario, those in groupby(rows, key=lambda each: each["scenario"]):
        found = {each["side"]: each for each in those}
        yield f"| `{scenario}` | {' | '.join(_cell(found[side]) if side in found else '–' for side in sides)} |"


def _cell(row: Mapping[str, Any]) -> str:
    if "not_run" in row:
        return f"not run: {row['not_run']}"
    lost = ", ".join(f"**{count:,} {LOSSES[promise]}**" for promise, count in row["lost"].items())
    if not lost:
        lost = "0" if row["judged"] else "nobody can tell"
        if row["valid"] is False and row.get("broken"):  # rows that were kept may be older
            lost = f"**broken: {', '.join(row['broken'])}**, {lost}"
    times = "–" if row["p50_ms"] is None else f"{row['p50_ms'] / 1e3:.1f}, {row['most_ms'] / 1e3:.1f} s"
    return f"{lost} of {row['acknowledged']:,}; {times}{'' if row['well'] else '; not well again'}"
