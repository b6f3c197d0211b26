"""Clients at work, on virtual time."""

from __future__ import annotations

import io
import json
from collections.abc import Generator

import attrs
import pytest
import trio
import trio.testing

from harness.torture.load import Crowd, HistoryFile
from harness.workloads.workload import LoadOp, LoadOutcome

HANGS_S = 3.0


class Writes:
    """Each client writes for ever."""

    def next(self, client: int) -> LoadOp | None:
        return LoadOp("write", client, 1)

    def seen(self, client: int, op: LoadOp, told: LoadOutcome) -> None:
        """Nothing depends on it."""

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        yield from ()


@attrs.define
class Client:
    """The first operation of client 0 hangs; all others are done at once."""

    hangs: bool
    asked: int = 0

    async def ask(self, op: LoadOp, timeout_ms: int) -> LoadOutcome:
        await trio.sleep(HANGS_S if self.hangs and not self.asked else 0)
        self.asked += 1
        return LoadOutcome("ok")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_turn_is_over_when_the_operation_that_hangs_has_ended(autojump_clock: trio.testing.MockClock) -> None:
    clients: list[Client] = []

    async def opened(number: int) -> Client:
        await trio.lowlevel.checkpoint()
        clients.append(Client(number == 0))
        return clients[-1]

    crowd = Crowd(Writes(), HistoryFile(io.BytesIO()), opened, count=2, rate=10.0, timeout_ms=5_000)
    begin, stop = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        for number in range(2):
            await nursery.start(crowd.work, number, begin, stop)
        began = trio.current_time()
        await crowd.turned()
        assert trio.current_time() == began, "nothing is under way"
        begin.set()
        await trio.sleep(1)
        await crowd.turned()
        assert trio.current_time() == began + HANGS_S
        assert clients[0].asked == 1 < clients[1].asked, "the other one goes on meanwhile"
        stop.set()


@pytest.mark.parametrize("value", ["\ud800", {"a": "\udfff"}])
async def test_an_answer_that_no_history_can_keep_is_unknown(value: object) -> None:
    class Odd(Client):
        async def ask(self, op: LoadOp, timeout_ms: int) -> LoadOutcome:
            await trio.lowlevel.checkpoint()
            return LoadOutcome("ok", value)

    class Once(Writes):
        def last(self) -> Generator[LoadOp, LoadOutcome, None]:
            told.append((yield LoadOp("read")))

    async def opened(_: int) -> Client:
        await trio.lowlevel.checkpoint()
        return Odd(hangs=False)

    told: list[LoadOutcome] = []
    file = io.BytesIO()
    await Crowd(Once(), HistoryFile(file), opened, count=1, rate=10.0, timeout_ms=100).finish()
    assert told[0].type == "info" and "cannot be kept" in str(told[0].error)
    assert [json.loads(line)["type"] for line in file.getvalue().splitlines()] == ["invoke", "info"]
