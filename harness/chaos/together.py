"""Plays several scenarios at once in one run, each against its own target, on one machine and network.

Each group has its own run directory, ``RUN/groups/NAME``, which ``chaos check``, ``replay`` and ``shrink`` take alone.
The whole run has the verdicts of all groups, and one page.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import orjson
import trio

from harness.chaos import playing, report
from harness.chaos.asked import RunRequest, TogetherRequest
from harness.chaos.playing import PREPARED, RUNS, say
from harness.chaos.subcommand import Refused
from harness.checkers import verdict
from harness.checkers.verdict import Verdict
from harness.nemesis import sandbox
from harness.torture.directory import GROUPS, RunDirectory, fresh
from harness.torture.player import Played, Player, play_together
from harness.torture.schedule import Schedule

_FIGURES: Final = ("faults", "failovers")
_COUNTED: Final = ("kinds", "took_over", "came_back")


def is_one(path: Path) -> bool:
    """Return whether a directory is that of a run of groups."""
    return (path / GROUPS).is_dir()


def begin(found: TogetherRequest, schedules: Mapping[str, Schedule], options: argparse.Namespace) -> int:
    """Prepare the directories, build the targets, and play all groups in one sandbox if possible."""
    path: Path = (options.out or fresh(RUNS, found.scenario.name)).resolve()
    playing.require_no_run(path)
    top = RunDirectory(path)
    with playing.in_words():
        top.open()
        (path / "scenario.toml").write_text(found.text, encoding="utf-8")
        top.write("asked.json", {"scenario": found.scenario.name, "about": found.scenario.about,
                                 "command": playing.command(), "groups": [*found.groups]})
        groups = {name: playing.prepared(path / GROUPS / name, request, schedules[name])
                  for name, request in found.groups.items()}
        for name, request in found.groups.items():
            playing.build(groups[name].path, request)
        why = "--no-sandbox" if options.no_sandbox else sandbox.impossible()
        if not why and not sandbox.inside():
            for each in (top, *groups.values()):
                each.close()
            return sandbox.call("harness.chaos", sys.argv[1:], {PREPARED: str(path)})
        say(f"no namespaces: {why}")
        return _played(top, {name: (groups[name], found.groups[name], schedules[name]) for name in groups}, options)


def read(path: Path) -> tuple[TogetherRequest, dict[str, Schedule]]:
    """Read request and schedules from a run's directory. Raises ``Refused``."""
    try:
        asked = orjson.loads((path / "asked.json").read_bytes())
        groups = {name: playing.read(path / GROUPS / name) for name in asked["groups"]}
        text = (path / "scenario.toml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Refused(f"{path} cannot be read as a run: {error}") from None
    return (TogetherRequest.of(text, asked["scenario"], {name: found for name, (found, _) in groups.items()}),
            {name: schedule for name, (_, schedule) in groups.items()})


def inside(path: Path, options: argparse.Namespace) -> int:
    """Play a prepared run, as the program in the sandbox."""
    found, schedules = read(path)
    top = RunDirectory(path)
    groups = {}
    with playing.in_words():
        top.open()
        for name, request in found.groups.items():
            directory = RunDirectory(path / GROUPS / name)
            directory.open()
            groups[name] = directory, request, schedules[name]
        return _played(top, groups, options)


def _played(
    top: RunDirectory, groups: Mapping[str, tuple[RunDirectory, RunRequest, Schedule]], options: argparse.Namespace,
) -> int:
    asked = orjson.loads((top.path / "asked.json").read_bytes())
    players: dict[str, Player] = {}
    abouts: dict[str, dict[str, Any]] = {}
    for name, (directory, request, whole) in groups.items():
        schedule, abouts[name] = playing.possible(directory, request, whole, skip=options.skip_impossible)
        players[name] = playing.player_of(directory, request, schedule, partial(_of_group, name))
        _of_group(name, f"{len(schedule.steps)} faults in {schedule.seconds:g} s, target {request.target.name}")
    first = next(iter(players.values())).schedule
    about = {**asked, "seed": first.seed, "seconds": first.seconds, **playing.here(),
             "target": ", ".join(dict.fromkeys(request.target.name for _, request, _ in groups.values())),
             **_where(abouts.values())}
    top.write("run.json", about)
    say(f"{asked['scenario']}: {asked['about']}")
    say(f"seed {first.seed}: {top.path}")
    played = trio.run(play_together, players)
    verdicts: list[Verdict] = []
    for name, (_, request, _) in groups.items():
        verdicts += [attrs.evolve(each, checker=f"{name}: {each.checker}")
                     for each in playing.finished(players[name], request.scenario, abouts[name], played[name])]
    top.write("run.json", about | summed(played))
    top.write("verdict.json", verdict.as_json(verdicts))
    report.write(top.path, top.path / "page.html")
    return playing.told(top.path, first.seed, verdicts, options)


def _where(abouts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sandbox of all groups, and the faults that are impossible there."""
    found = [*abouts]
    assert len({each["sandbox"] for each in found}) == 1
    return {"sandbox": found[0]["sandbox"]} | {
        what: [*dict.fromkeys(words for each in found for words in each[what])] for what in ("cannot", "left out")}


def summed(played: Mapping[str, Played]) -> dict[str, Any]:
    """The fields of ``run.json`` for all groups together, and for each."""
    counted: dict[str, Counter[str]] = {name: Counter() for name in _COUNTED}
    for each in played.values():
        for name, counter in counted.items():
            counter.update(getattr(each, name))
    figures = {figure: sum(getattr(each, figure) for each in played.values()) for figure in _FIGURES}
    assert figures["faults"] == counted["kinds"].total()
    return {**figures, **{name: dict(counter) for name, counter in counted.items()},
            "well": all(each.well for each in played.values()),
            "of": {name: playing.as_json(each) for name, each in played.items()}}


def _of_group(name: str, line: str) -> None:
    say(f"{name}: {line}")
