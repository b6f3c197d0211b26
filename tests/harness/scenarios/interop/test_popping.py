"""What the scenarios of POP make of reports: how often, in which order, and what did not come."""

from __future__ import annotations

from typing import Any, cast

import pytest
from trio.testing import MockClock

from harness.processes.java.admin import AdminRun
from harness.processes.program import Program
from harness.scenarios.interop import popping
from harness.scenarios.interop.popping import acknowledged, again_once, all_received, counted, in_order, to_pop
from harness.scenarios.interop.scenario import Lost, Stage, Unexpected
from tests.harness.scenarios.interop.reporting import Reporting, stage


def program(*received: tuple[int, str]) -> Program:
    reports: list[dict[str, Any]] = [{"event": "received", "sequence": sequence, "group": group}
                                     for sequence, group in received]
    return cast(Program, Reporting(found=reports))


async def test_what_did_not_come_is_lost(autojump_clock: MockClock) -> None:
    both = program((1, ""), (2, "")), program((2, ""), (3, ""))
    assert counted(both) == {1: 1, 2: 2, 3: 1}
    await all_received(both, {1, 2, 3}, "two")
    with pytest.raises(Lost, match=r"two: 1 of 4 did not come, such as \[4\]"):
        await all_received(both, {1, 2, 3, 4}, "two")


def test_first_deliveries_are_in_the_order_of_their_group() -> None:
    in_order(program((1, "a"), (2, "b"), (3, "a"), (1, "a"), (4, "b")))
    with pytest.raises(Unexpected, match="in order"):
        in_order(program((3, "a"), (2, "b"), (1, "a")))


async def test_what_was_refused_comes_again_and_nothing_else(autojump_clock: MockClock) -> None:
    await again_once(program((1, ""), (2, ""), (1, "")), {1}, "one")
    for refused in (set[int](), {2}, {1, 2}):
        with pytest.raises(Unexpected, match="one: refused"):
            await again_once(program((1, ""), (2, ""), (1, "")), refused, "one")


async def test_what_was_stored_is_told_once_all_were_sent(autojump_clock: MockClock) -> None:
    reports = [{"event": "sent", "sequence": number, "ok": number != 2} for number in range(1, 4)]
    assert await acknowledged(cast(Program, Reporting(found=reports)), 3) == {1, 3}


async def test_a_topic_and_its_group_are_made_by_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    async def tool(_: Stage, *arguments: str) -> AdminRun:
        asked.append(arguments)
        return AdminRun(arguments, 0, "success" if arguments[0] != broken else "no such command", "")

    monkeypatch.setattr(popping, "tool", tool)
    broken = ""
    here, _ = stage()
    await to_pop(here, "ns:1", "T", "G", queues=8, neighbours=2)
    assert asked == [
        ("updateTopic", "-n", "ns:1", "-c", "DefaultCluster", "-t", "T", "-r", "8", "-w", "8"),
        ("updateSubGroup", "-n", "ns:1", "-c", "DefaultCluster", "-g", "G"),
        ("setConsumeMode", "-n", "ns:1", "-c", "DefaultCluster", "-t", "T", "-g", "G", "-m", "POP", "-q", "2")]
    broken = "updateSubGroup"
    with pytest.raises(Unexpected, match=r"mqadmin updateSubGroup .*: no such command"):
        await to_pop(here, "ns:1", "T", "G")
    assert len(asked) == 5, "the third command is not run"
