"""Plays a run: prepares its directory, plays it in a sandbox if possible, judges it and writes its page.

The directory has everything that is needed to play the run: the program in the sandbox reads it there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import orjson
import trio

from harness.chaos import check, report
from harness.chaos.asked import RunRequest, judging, made
from harness.chaos.subcommand import CODES, Refused
from harness.checkers import verdict
from harness.checkers.verdict import SHOWN, Breach, Valid, Verdict
from harness.nemesis import sandbox
from harness.targets.fields import FormatError
from harness.targets.target import Places
from harness.torture import scenario as scenarios
from harness.torture.directory import GROUPS, RunDirectory, fresh
from harness.torture.player import Played, Player, built, missing
from harness.torture.schedule import Schedule, from_json, to_json
from harness.torture.words import RunFailed
from harness.workloads import chosen
from remoting.daemon.version import version

RUNS: Final = Path("chaos-runs")
NODES: Final = "nodes"
"""The checker of the target's nodes."""
PREPARED: Final = "QUORATE_PREPARED"
"""Environment variable for the program in the sandbox: the prepared directory of its run."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of all subcommands that play a run."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="of this run; default: a new one in ./chaos-runs")
    parser.add_argument("--no-sandbox", action="store_true",
                        help="no namespaces: nodes on the loopback, links cut by forwarders")
    parser.add_argument("--skip-impossible", action="store_true", help="leave out faults that cannot be done here")
    parser.add_argument("--json", action="store_true", help="the verdict as JSON; progress goes to standard error")


def begin(found: RunRequest, schedule: Schedule, options: argparse.Namespace) -> int:
    """Prepare the directory, build the target, and play the run in a sandbox if possible."""
    path: Path = (options.out or fresh(RUNS, found.scenario.name)).resolve()
    directory = prepared(path, found, schedule)
    with in_words():
        build(path, found)
        why = "--no-sandbox" if options.no_sandbox else sandbox.impossible()
        if not why and not sandbox.inside():
            directory.close()
            return sandbox.call("harness.chaos", sys.argv[1:], {PREPARED: str(path)})
        say(f"no namespaces: {why}")
        return _played(directory, found, schedule, options)


def build(path: Path, found: RunRequest) -> None:
    """Build the target of a run. Raises ``RunFailed``."""
    trio.run(built, found.target, Places({
        "python": sys.executable, "here": str(found.here), "run": str(path),
        **{f"option.{name}": value for name, value in found.target.options.items()}}), path)


def prepared(path: Path, found: RunRequest, schedule: Schedule) -> RunDirectory:
    """Make the directory of a run, with everything that ``inside`` needs. Raises ``Refused``."""
    require_no_run(path)
    directory = RunDirectory(path)
    with in_words():
        directory.open()
    (path / "scenario.toml").write_text(found.scenario_text, encoding="utf-8")
    (path / "target.toml").write_text(found.target_text, encoding="utf-8")
    directory.write("schedule.json", to_json(schedule))
    directory.write("asked.json", {
        "scenario": found.scenario.name, "target": found.target.name, "here": str(found.here),
        "beside": str(found.beside), "options": dict(found.target.options), "command": command()})
    return directory


def require_no_run(path: Path) -> None:
    """Raise ``Refused`` if a directory has a run already."""
    if (path / "history.jsonl").exists() or (path / GROUPS).is_dir():
        raise Refused(f"{path} has a run: give this one another --out, or `chaos clean {path} --remove`")


def command() -> str:
    """The command line of this program, for people."""
    return shlex.join(["chaos", *sys.argv[1:]])


def again(path: Path) -> str:
    """The command that plays this run again."""
    return shlex.join(["chaos", "replay", os.path.relpath(path)])


def read(path: Path) -> tuple[RunRequest, Schedule]:
    """Read request and schedule from a run's directory, or from a schedule file in it. Raises ``Refused``."""
    if (path / GROUPS).is_dir():
        raise Refused(f"{path} is a run of groups: name one of {path / GROUPS}")
    file = path if path.is_file() else path / "schedule.json"
    path = file.parent
    try:
        told = orjson.loads((path / "asked.json").read_bytes())
        text = (path / "scenario.toml").read_text(encoding="utf-8")
        scenario = scenarios.parse(text, told["scenario"])
        found = made(scenario, text, Path(f"{told['target']}.toml"),
                     (path / "target.toml").read_text(encoding="utf-8"), Path(told["here"]),
                     Path(told.get("beside", told["here"])), told["options"])
        schedule = from_json(orjson.loads(file.read_bytes()))
    except FileNotFoundError as error:
        raise Refused(f"{path} is no directory of a run: {Path(str(error.filename)).name} is missing") from None
    except (FormatError, UnicodeDecodeError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Refused(f"{path} cannot be read as a run: {error}") from None
    for number, step in enumerate(schedule.steps, 1):
        found.check_fault(f"{file}: step {number}:", step)
    return found, schedule


def prepared_for() -> Path | None:
    """The directory of the run that this program plays in its sandbox; None outside of one."""
    found = os.environ.pop(PREPARED, None)
    return None if found is None else Path(found)


def inside(path: Path, options: argparse.Namespace) -> int:
    """Play a prepared run, as the program in the sandbox."""
    found, schedule = read(path)
    directory = RunDirectory(path)
    with in_words():
        directory.open()
        return _played(directory, found, schedule, options)


def _played(directory: RunDirectory, found: RunRequest, schedule: Schedule, options: argparse.Namespace) -> int:
    schedule, about = possible(directory, found, schedule, skip=options.skip_impossible)
    say(f"{found.scenario.name}: {found.scenario.about}")
    say(f"seed {schedule.seed}, {len(schedule.steps)} faults in {schedule.seconds:g} s, target {found.target.name}: "
        f"{directory.path}")
    player = player_of(directory, found, schedule, say)
    verdicts = finished(player, found.scenario, about, trio.run(player.play))
    report.write(directory.path, directory.path / "page.html")
    return told(directory.path, schedule.seed, verdicts, options)


def possible(
    directory: RunDirectory, found: RunRequest, schedule: Schedule, *, skip: bool,
) -> tuple[Schedule, dict[str, Any]]:
    """The schedule without impossible faults, and the ``run.json`` written. Raises ``Refused`` unless ``skip``."""
    cannot, machine = missing(found.target, schedule, directory.path)
    if cannot and not skip:
        raise Refused("; ".join(cannot) + ": --skip-impossible leaves it out")
    impossible = {each.partition(":")[0] for each in cannot}
    schedule = attrs.evolve(schedule, steps=tuple(each for each in schedule.steps if each.fault not in impossible))
    asked: dict[str, Any] = orjson.loads((directory.path / "asked.json").read_bytes())
    about = {
        **asked, "about": found.scenario.about, "seed": schedule.seed, "seconds": schedule.seconds, **here(),
        "workload": attrs.asdict(found.scenario.load), **machine, "left out": cannot}
    directory.write("run.json", about)
    return schedule, about


def here() -> dict[str, Any]:
    """Time and machine of a run, for ``run.json``."""
    return {"began": datetime.now(UTC).isoformat(timespec="seconds"), "version": version(),
            "python": platform.python_version(), "kernel": platform.release(), "cpus": os.cpu_count()}


def player_of(directory: RunDirectory, found: RunRequest, schedule: Schedule, tell: Callable[[str], None]) -> Player:
    """Make the player of a run. ``tell`` takes lines for people."""
    load = found.scenario.load
    return Player(directory, found.target, found.here, schedule, load, chosen.find(load.name), tell)


def finished(
    player: Player, scenario: scenarios.TortureScenario, about: Mapping[str, Any], played: Played,
) -> list[Verdict]:
    """Write the result of a run, and judge it; returns the verdicts."""
    directory = player.directory
    directory.write("run.json", {**about, **as_json(played)})
    verdicts = [*judged(directory.path, scenario), _of_nodes(played, asked=bool(scenario.faults))]
    directory.write("verdict.json", verdict.as_json(verdicts))
    return verdicts


def as_json(played: Played) -> dict[str, Any]:
    """The fields of ``run.json`` for a finished run."""
    return {"faults": played.faults, "kinds": dict(played.kinds), "failovers": played.failovers,
            "took_over": dict(played.took_over), "came_back": dict(played.came_back),
            "skipped": played.skipped, "died": played.died, "well": played.well,
            "unwell": played.unwell if not played.well else [], "took_s": round(played.seconds, 1)}


def told(path: Path, seed: int, verdicts: Sequence[Verdict], options: argparse.Namespace) -> int:
    """Print the verdicts on a run as the options want them; returns the exit code."""
    many = getattr(options, "runs", 1) > 1
    if options.json:
        print(orjson.dumps({"run": str(path), "seed": seed, **verdict.as_json(verdicts)}, default=str,
                           option=0 if many else orjson.OPT_INDENT_2).decode(), flush=True)
    elif many:
        words = {Valid.TRUE: "holds", Valid.FALSE: "BROKEN", Valid.UNKNOWN: "unknown"}
        print(f"seed {seed}: {', '.join(f'{each.checker} {words[each.valid]}' for each in verdicts)}: {path}",
              flush=True)
    else:
        for each in verdicts:
            print("\n".join(check.told(each)))
        print(f"page: {path / 'page.html'}")
        print(f"again: {again(path)}")
    return CODES[verdict.merged(verdicts)]


def judged(path: Path, scenario: scenarios.TortureScenario) -> list[Verdict]:
    """The verdicts of the scenario's checkers."""
    return check.verdicts_of(judging(scenario, path))


def _of_nodes(played: Played, *, asked: bool) -> Verdict:
    """The verdict on the target's nodes. ``asked``: whether the scenario has faults."""
    broken = [] if played.well else [Breach("well", words) for words in played.unwell]
    broken += [Breach("alive", words) for words in played.died[:SHOWN]]
    told = {"faults": played.faults, **played.kinds, "failovers": played.failovers,
            **{f"another {role}": many for role, many in played.took_over.items()},
            **{f"the same {role} again": many for role, many in played.came_back.items()},
            "skipped": len(played.skipped)}
    counts = {"alive": len(played.died)} if len(played.died) > SHOWN else {}
    if broken:
        return Verdict(NODES, Valid.FALSE, "a node ended by itself, or did not come back", told, broken=broken,
                       counts=counts)
    if asked and not played.faults:
        return Verdict(NODES, Valid.UNKNOWN, "no fault was done of the scenario's: nothing was asked", told)
    return Verdict(NODES, Valid.TRUE, "all came back, none ended by itself", told)


@contextlib.contextmanager
def in_words() -> Any:
    """Turn the failure of a run into ``Refused``, with the same message."""
    try:
        yield
    except (RunFailed, FormatError) as error:
        raise Refused(str(error)) from None


_BEGAN: Final = time.monotonic()


def say(line: str) -> None:
    """Print a line for people, with the time since the program began."""
    sys.stderr.write(f"{time.monotonic() - _BEGAN:7.1f} s  {line}\n")
    sys.stderr.flush()


