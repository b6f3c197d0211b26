"""What scenarios with clients read off their reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from harness.processes.broker import Broker
from harness.processes.program import Program
from harness.scenarios.interop import clients
from harness.scenarios.interop.clients import GroupOfThree, judged, longest_pause_ms
from harness.scenarios.interop.scenario import Stage, Unexpected
from harness.scenarios.interop.watch import SyncState
from tests.harness.scenarios.interop.reporting import Reporting, stage


def test_the_longest_pause_is_between_two_that_succeeded() -> None:
    sent = [{"ok": good, "ended_us": at * 1000} for at, good in
            [(0, True), (10, True), (20, False), (150, False), (400, True), (420, True)]]
    assert longest_pause_ms(sent) == 390


def test_one_send_has_no_pause() -> None:
    assert longest_pause_ms([{"ok": True, "ended_us": 5}]) == 0


class Server:
    def __init__(self, number: int) -> None:
        self.announced, self.did = f"10.0.0.{number}:10911", list[str]()

    async def kill(self) -> None:
        self.did.append("kill")

    async def start(self) -> None:
        self.did.append("start")


def state(master: int, *in_sync: int) -> SyncState:
    return SyncState(master, f"10.0.0.{master}:10911", 1, 1, frozenset(in_sync), {}, frozenset())


def group(monkeypatch: pytest.MonkeyPatch, *states: SyncState) -> tuple[GroupOfThree, list[Server], list[str]]:
    """Three brokers; what is waited for holds in these states, one after the other."""
    here, said = stage()
    brokers, left = [Server(number) for number in range(3)], list(states)

    async def until(_: Stage, controllers: list[str], name: str, wanted: Callable[[SyncState], bool],
                    what: str) -> SyncState:
        if not wanted(left[0]):
            raise Unexpected(f"{what}: {left[0]}")
        return left.pop(0)

    monkeypatch.setattr(clients, "until", until)
    return GroupOfThree(here, ["n0:1"], "ns:1", cast(list[Broker], brokers)), brokers, said


async def test_the_master_is_killed_when_all_are_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    made, brokers, _ = group(monkeypatch, state(1, 0, 1, 2), state(2, 0, 2))
    assert await made.kill_master() is cast(Broker, brokers[1])
    assert [each.did for each in brokers] == [[], ["kill"], []]


@pytest.mark.parametrize(("states", "words"), [
    ([state(1, 0, 1)], "before the kill"),
    ([state(1, 0, 1, 2), state(1, 0, 1, 2)], "master killed"),
    ([state(1, 0, 1, 2), state(3, 3)], "broker 3 was not in sync"),
])
async def test_a_group_that_does_not_switch_as_it_must_is_noticed(states: list[SyncState], words: str,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, _ = group(monkeypatch, *states)
    with pytest.raises(Unexpected, match=words):
        await made.kill_master()


VERDICTS: list[dict[str, Any]] = [
    {"event": "verdict", "check": each, "seen": 2, "wanted": 2, "again": 0, "ok": True} for each in "ab"]
REPORTS: list[dict[str, Any]] = [
    {"event": "sent", "ok": True, "ended_us": 0}, {"event": "sent", "ok": False, "ended_us": 1_000},
    {"event": "sent", "ok": True, "ended_us": 3_000}, {"event": "all_sent"}, {"event": "ended"}]


async def test_a_program_passes_when_all_its_checks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    made, brokers, said = group(monkeypatch, state(1, 0, 1, 2), state(2, 0, 2))
    program = cast(Program, Reporting(found=[*REPORTS, *VERDICTS]))
    await judged(made.stage, made, program, checks=2, before_kill=2)
    assert brokers[1].did == ["kill", "start"]
    assert said[0] == "2 sends acknowledged, 1 not and sent again; the longest pause: 3 ms"
    assert said[1:] == ["a: 2 received of 2 wanted, 0 again", "b: 2 received of 2 wanted, 0 again"]


@pytest.mark.parametrize(("verdicts", "words"), [
    (VERDICTS[:1], "1 verdicts, not 2"), ([VERDICTS[0], {**VERDICTS[1], "ok": False}], "not good: .*'b'")])
async def test_a_check_that_fails_or_lacks_is_noticed(verdicts: list[dict[str, Any]], words: str,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, _ = group(monkeypatch, state(1, 0, 1, 2), state(2, 0, 2))
    with pytest.raises(Unexpected, match=words):
        await judged(made.stage, made, cast(Program, Reporting(found=[*REPORTS, *verdicts])), checks=2, before_kill=2)
