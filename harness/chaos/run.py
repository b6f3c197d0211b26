"""``chaos run SCENARIO`` and ``chaos replay RUN``: real processes under load and faults, a verdict, a page.

    chaos run kill-everything --seed 7
    chaos run my-scenario.toml --target my-target.toml --option bug=early --seconds 20
    chaos run kill-everything --runs 20
    chaos replay chaos-runs/kill-everything-1

The exit code is that of the verdict: 1 also where a node ended by itself, or did not come back.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom
from typing import Any, Final

import attrs
import orjson
import trio

from harness.chaos import check, report
from harness.chaos.asked import RunRequest, asked, made
from harness.chaos.subcommand import BROKEN, CODES, PASSED, UNKNOWN, Refused
from harness.checkers import verdict
from harness.checkers.verdict import SHOWN, Breach, Valid, Verdict
from harness.nemesis import sandbox
from harness.targets.fields import FormatError
from harness.targets.target import Places
from harness.torture import scenario as scenarios
from harness.torture.directory import RunDirectory, fresh
from harness.torture.player import Played, Player, built, missing
from harness.torture.schedule import Schedule, from_json, to_json
from harness.torture.words import RunFailed
from harness.workloads import chosen
from remoting.daemon.version import version

NAME: Final = "run"
ABOUT: Final = "torture real processes: a scenario's load and faults, a verdict, a page"
RUNS: Final = Path("chaos-runs")
PREPARED: Final = "QUORATE_PREPARED"
"""Set for the program inside the sandbox: the run's directory, in which everything is written already."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("scenario", metavar="SCENARIO", help="one of `chaos scenarios`, or a file")
    parser.add_argument("--target", metavar="TARGET", help="one of the library, or a file; default: the scenario's")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="of the target; may be given again")
    parser.add_argument("--seed", type=int, help="of the schedule; default: the scenario's, else another each time")
    parser.add_argument("--seconds", type=float, help="of load and faults; default: the scenario's")
    parser.add_argument("--runs", type=int, default=1, metavar="N",
                        help="so many, one after the other, each with the next seed; default: %(default)s")
    playing(parser)


def playing(parser: argparse.ArgumentParser) -> None:
    """Add the options of whatever plays."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="of this run; default: a new one in ./chaos-runs")
    parser.add_argument("--no-sandbox", action="store_true",
                        help="no namespaces: nodes on the loopback, links cut by forwarders")
    parser.add_argument("--skip-impossible", action="store_true", help="leave out faults that cannot be done here")
    parser.add_argument("--json", action="store_true", help="the verdict as JSON; progress goes to standard error")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    if PREPARED in os.environ:
        return inside(Path(os.environ[PREPARED]), options)
    found = asked(options.scenario, options.target, _options(options.option))
    if options.seconds is not None:
        found = attrs.evolve(found, scenario=attrs.evolve(found.scenario, seconds=options.seconds))
    if options.runs < 1:
        raise Refused(f"--runs is {options.runs}; at least 1")
    seed = options.seed if options.seed is not None else found.scenario.seed
    seed = SystemRandom().randrange(1 << 32) if seed is None else seed
    if options.runs == 1:
        return begin(found, found.drawn(seed), options)
    return _many(found, range(seed, seed + options.runs), options)


def _many(found: RunRequest, seeds: range, options: argparse.Namespace) -> int:
    """Makes a run for each seed; returns the worst exit code: broken is worse than unknown."""
    codes: dict[int, int] = {}
    for seed in seeds:
        one = argparse.Namespace(**{**vars(options), "out": options.out and options.out / str(seed)})
        codes[seed] = begin(found, found.drawn(seed), one)
        if codes[seed] not in (PASSED, BROKEN, UNKNOWN):
            return codes[seed]
    by_code = {word: [seed for seed, each in codes.items() if each == code]
               for word, code in (("broken", BROKEN), ("unknown", UNKNOWN))}
    if options.json:
        print(orjson.dumps({"runs": len(codes), **by_code}).decode())
    else:
        print(f"{len(codes)} runs; " + "; ".join(
            f"{len(each)} {word}" + (f": seeds {', '.join(map(str, each))}" if each else "")
            for word, each in by_code.items()))
    return BROKEN if by_code["broken"] else UNKNOWN if by_code["unknown"] else PASSED


def begin(found: RunRequest, schedule: Schedule, options: argparse.Namespace) -> int:
    """Writes down what is asked for, builds the target, and plays it in a sandbox where possible."""
    path: Path = (options.out or fresh(RUNS, found.scenario.name)).resolve()
    directory = prepared(path, found, schedule)
    with _words():
        trio.run(built, found.target, Places({
            "python": sys.executable, "here": str(found.here), "run": str(path),
            **{f"option.{name}": value for name, value in found.target.options.items()}}))
        why = "--no-sandbox" if options.no_sandbox else sandbox.impossible()
        if not why and not sandbox.inside():
            directory.close()
            return sandbox.call("harness.chaos", sys.argv[1:], {PREPARED: str(path)})
        say(f"no namespaces: {why}")
        return _played(directory, found, schedule, options)


def prepared(path: Path, found: RunRequest, schedule: Schedule) -> RunDirectory:
    """The directory of a run, with everything that ``inside`` needs. Raises ``Refused``."""
    if (path / "history.jsonl").exists():
        raise Refused(f"{path} has a run: give this one another --out, or `chaos clean {path} --remove`")
    directory = RunDirectory(path)
    with _words():
        directory.open()
    (path / "scenario.toml").write_text(found.scenario_text, encoding="utf-8")
    (path / "target.toml").write_text(found.target_text, encoding="utf-8")
    directory.write("schedule.json", to_json(schedule))
    directory.write("asked.json", {
        "scenario": found.scenario.name, "target": found.target.name, "here": str(found.here),
        "options": dict(found.target.options), "command": shlex.join(["chaos", *sys.argv[1:]])})
    return directory


def again(path: Path) -> str:
    """The command that plays this run again."""
    return shlex.join(["chaos", "replay", os.path.relpath(path)])


def read(path: Path) -> tuple[RunRequest, Schedule]:
    """What was asked for in a run's directory, or with another schedule beside it. Raises ``Refused``."""
    file = path if path.is_file() else path / "schedule.json"
    path = file.parent
    try:
        told = orjson.loads((path / "asked.json").read_bytes())
        text = (path / "scenario.toml").read_text(encoding="utf-8")
        scenario = scenarios.parse(text, told["scenario"])
        found = made(scenario, text, Path(f"{told['target']}.toml"),
                     (path / "target.toml").read_text(encoding="utf-8"), Path(told["here"]), told["options"])
        return found, from_json(orjson.loads(file.read_bytes()))
    except FileNotFoundError as error:
        raise Refused(f"{path} is no directory of a run: {Path(str(error.filename)).name} is missing") from None
    except (FormatError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Refused(f"{path} cannot be read as a run: {error}") from None


def inside(path: Path, options: argparse.Namespace) -> int:
    """Plays a prepared run, as the program in the sandbox."""
    del os.environ[PREPARED]
    found, schedule = read(path)
    directory = RunDirectory(path)
    with _words():
        directory.open()
        return _played(directory, found, schedule, options)


def _played(directory: RunDirectory, found: RunRequest, schedule: Schedule, options: argparse.Namespace) -> int:
    path, scenario = directory.path, found.scenario
    cannot, machine = missing(found.target, schedule, path)
    if cannot and not options.skip_impossible:
        raise Refused("; ".join(cannot) + ": --skip-impossible leaves it out")
    impossible = {each.partition(":")[0] for each in cannot}
    schedule = attrs.evolve(schedule, steps=tuple(each for each in schedule.steps if each.fault not in impossible))
    told = orjson.loads((path / "asked.json").read_bytes())
    about = {
        **told, "about": scenario.about, "seed": schedule.seed, "seconds": schedule.seconds,
        "began": datetime.now(UTC).isoformat(timespec="seconds"), "version": version(),
        "python": platform.python_version(), "kernel": platform.release(), "cpus": os.cpu_count(),
        "workload": attrs.asdict(scenario.load), **machine, "left out": cannot}
    directory.write("run.json", about)
    say(f"{scenario.name}: {scenario.about}")
    say(f"seed {schedule.seed}, {len(schedule.steps)} faults in {schedule.seconds:g} s, target {found.target.name}: "
        f"{path}")
    player = Player(directory, found.target, found.here, schedule, scenario.load, chosen.find(scenario.load.name), say)
    played = trio.run(player.play)
    directory.write("run.json", about | {"faults": played.faults, "skipped": played.skipped, "died": played.died,
                                         "well": played.well, "unwell": played.unwell if not played.well else [],
                                         "took_s": round(played.seconds, 1)})
    verdicts = [*judged(path, scenario), _of_nodes(played, asked=bool(schedule.steps))]
    directory.write("verdict.json", verdict.as_json(verdicts))
    report.write(path, path / "page.html")
    many = getattr(options, "runs", 1) > 1
    if options.json:
        print(orjson.dumps({"run": str(path), "seed": schedule.seed, **verdict.as_json(verdicts)}, default=str,
                           option=0 if many else orjson.OPT_INDENT_2).decode(), flush=True)
    elif many:
        words = {Valid.TRUE: "holds", Valid.FALSE: "BROKEN", Valid.UNKNOWN: "unknown"}
        print(f"seed {schedule.seed}: {', '.join(f'{each.checker} {words[each.valid]}' for each in verdicts)}: {path}",
              flush=True)
    else:
        for each in verdicts:
            print("\n".join(check.told(each)))
        print(f"page: {path / 'page.html'}")
        print(f"again: {again(path)}")
    return CODES[verdict.merged(verdicts)]


def judged(path: Path, scenario: scenarios.TortureScenario) -> list[Verdict]:
    """What the scenario's checkers say of the history; a workload's ``checks`` count where it says nothing."""
    line: list[str] = [str(path)]
    for name in scenario.check.checkers:
        line += ["--checker", name]
    usual = getattr(chosen.find(scenario.load.name), "checks", {})
    for name, value in {**usual, **scenario.check.options}.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            line.append(option)
        elif value is not False:
            line += [option, str(value)]
    return check.verdicts_of(line)


def _of_nodes(played: Played, *, asked: bool) -> Verdict:
    """What is to be said of the target itself. ``asked``: whether there were faults to be done."""
    broken = [] if played.well else [Breach("well", words) for words in played.unwell]
    broken += [Breach("alive", words) for words in played.died[:SHOWN]]
    told = {"faults": played.faults, "skipped": len(played.skipped)}
    counts = {"alive": len(played.died)} if len(played.died) > SHOWN else {}
    if broken:
        return Verdict("nodes", Valid.FALSE, "a node ended by itself, or did not come back", told, broken=broken,
                       counts=counts)
    if asked and not played.faults:
        return Verdict("nodes", Valid.UNKNOWN, "no fault could be done: nothing was asked", told)
    return Verdict("nodes", Valid.TRUE, "all came back, none ended by itself", told)


def _options(given: Sequence[str]) -> dict[str, str]:
    for each in given:
        if "=" not in each:
            raise Refused(f"--option {each}: NAME=VALUE is wanted")
    return {name: value for name, _, value in (each.partition("=") for each in given)}


@contextlib.contextmanager
def _words() -> Any:
    """Turns the failure of a run into ``Refused``, with the same message."""
    try:
        yield
    except (RunFailed, FormatError) as error:
        raise Refused(str(error)) from None


_BEGAN: Final = time.monotonic()


def say(line: str) -> None:
    """Prints a line for people, with the time since the program began."""
    sys.stderr.write(f"{time.monotonic() - _BEGAN:7.1f} s  {line}\n")
    sys.stderr.flush()


