"""Groups of a run start one by one; what a fault would not change is no fault."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from harness.chaos import playing
from harness.chaos.asked import RunRequest, asked_for
from harness.nemesis.network import CLIENTS
from harness.torture import player as players
from harness.torture.directory import RunDirectory
from harness.torture.load import HistoryFile
from harness.torture.player import Loopback, Player, StartLine
from harness.torture.schedule import Step
from harness.torture.selecting import named


async def test_a_group_that_fails_in_its_turn_is_the_only_one_that_fails() -> None:
    line = StartLine(2)

    async def fails() -> None:
        await line.turn.acquire()
        await trio.testing.wait_all_tasks_blocked()
        raise ValueError("it does not start")

    with pytest.RaisesGroup(ValueError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(line.turn.acquire)


class Node(SimpleNamespace):
    """It runs or not, as it is told."""

    kind = "store"

    async def kill(self) -> None:
        await trio.lowlevel.checkpoint()
        self.running = False

    async def start(self) -> None:
        await trio.lowlevel.checkpoint()
        self.running = True


def player(folder: Path, *, running: bool) -> Player:
    """Of a store that nobody starts."""
    found = asked_for("kill-store")
    assert isinstance(found, RunRequest)
    made = playing.player_of(RunDirectory(folder), found, found.drawn(1), lambda line: None)
    made.history, made._nemesis = HistoryFile(io.BytesIO()), io.BytesIO()
    nodes: Any = {"store-1": Node(name="store-1", running=running)}
    made.bed = players.Testbed(found.target, nodes, Loopback(["store-1"]), {}, Random(1))
    return made


@pytest.mark.parametrize("running", [True, False])
async def test_a_fault_that_changes_nothing_is_none(running: bool, tmp_path: Path) -> None:
    """A run is unknown if no fault was done: one that found nobody was counted."""
    made = player(tmp_path, running=running)
    await made._step(0, Step(0, "kill", named(["store-1"]), 0))
    told = cast(io.BytesIO, made._nemesis).getvalue().splitlines()
    assert (made.played.faults, made.played.kinds["kill"], len(told)) == ((1, 1, 2) if running else (0, 0, 0))
    assert made.played.skipped == ([] if running else ["0.0 s kill -9 nobody: it would change nothing"])
    assert made.bed.nodes["store-1"].running is running and not made.bed.taken and not made._held


@pytest.mark.parametrize(("roles", "took_over", "came_back", "failovers"), [
    ([{"master": ["a"]}, {"master": []}, {"master": ["b"]}, {"master": ["b", "c"]}], {"master": 2}, {}, 2),
    ([{"master": ["a"]}, {"master": []}, {"master": ["a"]}, {"master": ["a"], "slave": ["b"]}], {}, {"master": 1}, 0),
    ([{"master": ["a"], "acting": []}, {"master": [], "acting": ["b"]}, {"master": ["a"], "acting": []},
      {"master": [], "acting": ["b"]}], {"acting": 2}, {"master": 1}, 2),
    ([{"active": ["n1"]}, {"active": ["n2"]}, {"active": []}, {"active": ["n2"]}], {"active": 1}, {}, 0),
    ([{"master": []}, {"master": ["a"]}], {}, {}, 0),
    ([{"master": ["a"], "active": ["n1"]}, {"master": [], "active": []}, {"master": ["a"], "active": ["n2"]}],
     {"active": 1}, {}, 0),
])
def test_who_took_over_and_who_came_back_is_counted_by_role(
    roles: list[dict[str, list[str]]], took_over: dict[str, int], came_back: dict[str, int], failovers: int,
    tmp_path: Path,
) -> None:
    """A controller that leads the others is no failover of a group."""
    made = player(tmp_path, running=True)
    made._begin.set()
    for each in roles:
        made._roles(json.dumps(each).encode())
    assert (made.played.took_over, made.played.came_back, made.played.failovers) == (took_over, came_back, failovers)


async def test_progress_is_told(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    made, lines = player(tmp_path, running=True), list[str]()
    made.say, made.played.faults = lines.append, 3
    made.history.counts.update({"invoke": 45, "ok": 1_040, "fail": 8, "info": 2})
    with trio.move_on_after(11):
        await made._progress()
    assert lines == [f"1,050 operations, {rate}/s, 2 unknown, 3 faults, 10 s left" for rate in (210, 0)]


async def test_names_of_the_other_side_are_all_of_them(tmp_path: Path) -> None:
    """Beside ``clients`` each other name was passed over."""
    bed = player(tmp_path, running=True).bed
    assert await bed.chosen(["store-1", CLIENTS]) == ["store-1", CLIENTS]
    assert await bed.chosen(CLIENTS) == [CLIENTS]
    assert await bed.chosen("one of kind:store") == ["store-1"]
    assert await bed.chosen("role:master") == []
