"""What counts as lost, early and doubled among timers, transactions and popped messages, and what is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from broker.timer.checkpoint import PATH as CHECKPOINT
from broker.timer.checkpoint import TimerCheckpoint
from broker.timer.metrics import PATH as METRICS
from harness.processes.broker import Broker
from harness.processes.program import Program
from harness.scenarios.interop.popped import RawPopper
from harness.scenarios.interop.scenario import Lost, Unexpected
from harness.scenarios.interop.waiting import LATER, Clients, come, come_back, followed, judged, out, send_timer
from remoting.codes import ResponseCode
from tests.harness.scenarios.interop.reporting import Reporting, stage


def sent(name: str, due_ms: int, *, ok: bool = True) -> dict[str, Any]:
    return {"name": name, "due_ms": due_ms, "ok": ok}


def came(name: str, at_ms: int) -> dict[str, Any]:
    return {"name": name, "at_ms": at_ms}


SENT = [sent("a", 1_000), sent("b", 2_000), sent("taken", 3_000), sent("refused", 1_000, ok=False)]


def test_what_came_is_told() -> None:
    said = judged("x", SENT, [came("a", 1_000), came("b", 4_500), came("b", 2_100), came("refused", 1_001)])
    assert said == "2 timers came, 1 of them again; the latest 2.5 s behind its time"


@pytest.mark.parametrize(("received", "error", "words"), [
    ([came("a", 1_000)], Lost, r"never delivered: \['b'\]"),
    ([came("a", 999), came("b", 2_000)], Unexpected, "before they were due"),
    ([came("a", 1_000), came("b", 2_000), came("taken", 3_000)], Unexpected, "taken back"),
    ([came("a", 1_000), *[came("b", 2_000)] * 3], Unexpected, "once at most"),
])
def test_what_must_not_be_is_noticed(received: list[dict[str, Any]], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        judged("x", SENT, received)


# --- what is waited for -------------------------------------------------------------------------------------------


async def test_a_timer_is_sent_until_a_master_takes_it(autojump_clock: MockClock) -> None:
    program = Reporting(lambda line: [{"event": "sent", "name": line.split()[0], "ok": line.startswith("near-2")}])
    await send_timer(cast(Program, program), "near", 2_000)
    assert program.lines == ["near-0 2000", "near-1 2000", "near-2 2000"]


async def test_the_timers_of_one_name_are_waited_for_and_judged(autojump_clock: MockClock) -> None:
    here, said = stage()
    program = Reporting(found=[{"event": "sent", **sent("far1", 1_000)}, {"event": "sent", **sent("near1", 1_000)},
                               {"event": "received", **came("far1", 1_500)}])
    await come(here, cast(Program, program), "far", "far")
    assert said == ["far: 1 timers came, 0 of them again; the latest 0.5 s behind its time"]
    with pytest.raises(Lost, match=r"all: acknowledged, and never delivered: \['near1'\]"):
        await Clients(here, "", cast(Program, program), cast(Program, program)).come("all")


@pytest.mark.parametrize(("received", "error", "words"), [
    ([1, 2], None, "2 transactions were committed, each came once"),
    ([1], Lost, r"never delivered: Counter\(\{2: 1\}\)"),
    ([1, 2, 2], Unexpected, "wanted"), ([1, 2, 3], Unexpected, "wanted"),
])
async def test_what_was_committed_comes_once(received: list[int], error: type[Exception] | None, words: str,
                                             autojump_clock: MockClock) -> None:
    here, said = stage()
    program = cast(Program, Reporting(found=[{"event": "received", "sequence": each} for each in received]))
    clients = Clients(here, "", program, program)
    if error is None:
        await clients.decided("x", {1}, {2})
        assert words in said[0]
    else:
        with pytest.raises(error, match=words):
            await clients.decided("x", {1}, {2})


async def test_a_slave_follows_when_its_files_say_so(tmp_path: Path, autojump_clock: MockClock) -> None:
    here, said = stage()
    slave = cast(Broker, SimpleNamespace(name="the slave", store=tmp_path))
    for path in (CHECKPOINT, METRICS):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    with pytest.raises(Unexpected, match="the slave did not follow its master: None, ''"):
        await followed(here, slave, 5_000)
    (tmp_path / METRICS).write_text(f'{{"{LATER}": 3}}')
    (tmp_path / CHECKPOINT).write_bytes(TimerCheckpoint(read_time_ms=4_999).encode())
    with pytest.raises(Unexpected, match="wanted 5000"):
        await followed(here, slave, 5_000)
    (tmp_path / CHECKPOINT).write_bytes(TimerCheckpoint(read_time_ms=5_000).encode())
    await followed(here, slave, 5_000)
    assert said[0].startswith("the slave knows that timers are done up to 5000")


class Popper:
    """A broker that gives what is sent, refuses some acknowledgements, and has ``returns`` come back."""

    def __init__(self, *, gives: int = 1_000, code: int = ResponseCode.SUCCESS, returns: Sequence[str] = ()) -> None:
        self.queue: list[str] = []
        self.acked: list[str] = []
        self.gives, self.code, self.returns, self.early = gives, code, list(returns), 2

    async def send(self, *bodies: str) -> None:
        self.queue += bodies

    async def pop(self, invisible_ms: int, count: int) -> list[Any]:
        count = min(count, self.gives)
        self.gives -= count
        found, self.queue = self.queue[:count], self.queue[count:]
        await trio.sleep(0.01)
        return [SimpleNamespace(body=body) for body in found]

    async def ack(self, got: Any) -> int:
        self.acked.append(got.body)
        return self.code

    async def popping(self, **_: Any) -> Any:
        self.early -= 1
        return SimpleNamespace(code=ResponseCode.SYSTEM_BUSY if self.early else ResponseCode.POLLING_TIMEOUT)

    async def back(self, within_s: float) -> list[str]:
        return self.returns


async def test_a_third_of_what_is_popped_is_acknowledged(autojump_clock: MockClock) -> None:
    popper = Popper()
    left = await out(cast(RawPopper, popper), "a")
    assert popper.acked == ["a0", "a3", "a6", "a9", "a12", "a15"]
    assert left == {f"a{number}" for number in range(16)} - set(popper.acked)


@pytest.mark.parametrize(("popper", "words"), [
    (Popper(gives=4), "a: 4 of 16 are given"),
    (Popper(code=ResponseCode.SYSTEM_ERROR), "an acknowledgement is answered with 1"),
])
async def test_a_broker_that_gives_or_takes_too_little_is_noticed(popper: Popper, words: str,
                                                                  autojump_clock: MockClock) -> None:
    with pytest.raises(Unexpected, match=words):
        await out(cast(RawPopper, popper), "a")


@pytest.mark.parametrize(("returns", "error", "words"), [
    (["a", "b", "b"], None, "x: 2 came back, 1 of them again"),
    (["a"], Lost, r"did not come back: \['b'\]"),
    (["a", "b", "c"], Unexpected, r"acknowledged, and came back: \['c'\]"),
])
async def test_what_was_not_acknowledged_comes_back_and_nothing_else(
        returns: list[str], error: type[Exception] | None, words: str, autojump_clock: MockClock) -> None:
    here, said = stage()
    popper = cast(RawPopper, Popper(returns=returns))
    if error is None:
        await come_back(here, popper, {"a", "b"}, "x")
        assert said == [words]
    else:
        with pytest.raises(error, match=words):
            await come_back(here, popper, {"a", "b"}, "x")
