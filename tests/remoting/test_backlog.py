"""Answers that nobody takes: what they fill is bounded, who does not read goes, and who reads waits for nobody.

Whole servers on virtual time, and the book that they keep.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from harness.simulation.worlds.streams import ECHO, LATER, Net, Wire, echo, net
from remoting.backlog import Backlog
from remoting.command import Command, response
from remoting.config import ServerConfig
from remoting.connection import Connection
from remoting.server import Server
from tests.remoting.test_connection import before

KIB = 1 << 10
BIG = 5
ANSWER = 64 * KIB
CONFIG = ServerConfig(
    frame_bytes_max=128 * KIB, outgoing_bytes_max=4_096 * KIB, outgoing_bytes_pause=256 * KIB,
    outgoing_bytes_budget=1_024 * KIB, outgoing_stall_ms=5_000)
MARGIN = 2 * ANSWER
"""What one turn may bring: an answer beyond the budget, and its header."""


@attrs.define(eq=False)
class Served:
    """A server, and what its memory held at most."""

    server: Server
    net: Net
    most: int = 0

    async def come(self, *, reads: bool) -> tuple[Wire, Connection]:
        """A connection; one that does not read takes nothing from here on."""
        there = self.server.connections
        wire = Wire(await self.net.connect("s:1"))
        await wire.ask(Command(99))
        [connection] = self.server.connections - there
        if not reads:
            before(connection._stream, trio.sleep_forever)
        return wire, connection

    def look(self, *_: object) -> None:
        self.most = max(self.most, self.waiting)

    @property
    def waiting(self) -> int:
        return sum(connection.queued_bytes for connection in self.server.connections)


@asynccontextmanager
async def served(config: ServerConfig = CONFIG) -> AsyncGenerator[Served, None]:
    held: list[tuple[Connection, Command]] = []

    def later(connection: Connection, request: Command) -> None:
        """Answered all at once, when somebody asks for it."""
        held.append((connection, request))
        if request.body:
            for to, asked in held:
                to.reply(asked, response(asked, body=b"" if to.congested else bytes(ANSWER)))
                to.flush()

    server = Server(
        {BIG: lambda _, asked: response(asked, body=bytes(ANSWER)), LATER: later, ECHO: echo}, config=config)
    async with net() as made:
        await made.serve("s:1", server)
        here = Served(server, made)
        server._endpoint.on_answer = here.look
        yield here


async def test_a_thousand_that_do_not_read_fill_the_budget_and_no_more(autojump_clock: MockClock) -> None:
    async with served() as here:
        for _ in range(1_000):
            wire, _ = await here.come(reads=False)
            await wire.send(*[Command(BIG, number) for number in range(50)])
        await trio.testing.wait_all_tasks_blocked()
        assert 512 * KIB < here.most <= 1_024 * KIB + MARGIN
        assert here.server._endpoint.backlog.bytes == here.waiting
        assert here.server.counters.stalled > 900, "closed for those that came later"
        await trio.sleep(6)
        assert here.waiting <= 512 * KIB


async def test_who_reads_is_answered_in_the_same_moment(autojump_clock: MockClock) -> None:
    async with served() as here:
        healthy, connection = await here.come(reads=True)
        for number in range(20):
            others = [await here.come(reads=False) for _ in range(10)]
            asked = trio.current_time()
            async with trio.open_nursery() as nursery:  # all in one turn
                for wire, _ in others:
                    nursery.start_soon(wire.send, *[Command(BIG, number) for number in range(50)])
                nursery.start_soon(healthy.send, Command(ECHO, number, body=b"m"))
            with trio.fail_after(60):
                answer = await healthy.receive()
            assert answer is not None and (answer.opaque, answer.body) == (number, b"m")
            assert trio.current_time() == asked
        assert here.server.counters.stalled > 100 and not connection.closed


async def test_who_does_not_read_gets_no_further_answer(autojump_clock: MockClock) -> None:
    """As long as there is room up to its own limit; when it gets short, its share."""
    async with served() as here:
        wire, first = await here.come(reads=False)
        await wire.send(*[Command(BIG, number) for number in range(50)])
        await trio.testing.wait_all_tasks_blocked()
        assert 256 * KIB < first.queued_bytes <= 256 * KIB + MARGIN
        for others in (2, 3):
            wire, last = await here.come(reads=False)
            await wire.send(*[Command(BIG, number) for number in range(50)])
            await trio.testing.wait_all_tasks_blocked()
            assert last.queued_bytes <= 512 * KIB // (others - 1) + ANSWER
        assert not here.server.counters.stalled


async def test_who_takes_nothing_is_closed_after_its_time_only_while_the_budget_is_short(
        autojump_clock: MockClock) -> None:
    async with served() as here:
        wire, first = await here.come(reads=False)
        await wire.send(*[Command(BIG, number) for number in range(50)])
        await trio.sleep(60)
        assert not first.closed, "there is room"
        wire, second = await here.come(reads=False)
        await wire.send(*[Command(BIG, number) for number in range(50)])
        await trio.sleep(1)
        assert (first.closed, second.closed) == (True, False), "one is enough"
        wire, third = await here.come(reads=False)
        await wire.send(*[Command(BIG, number) for number in range(50)])
        await trio.sleep(3)
        assert not second.closed
        await trio.sleep(2)
        assert (second.closed, third.closed) == (True, False)


async def test_who_takes_its_answers_slowly_stays(autojump_clock: MockClock) -> None:
    async with served() as here:
        slow, connection = await here.come(reads=True)
        before(connection._stream, partial(trio.sleep, 1))
        await slow.send(*[Command(BIG, number) for number in range(30)])
        for _ in range(4):
            wire, _ = await here.come(reads=False)
            await wire.send(*[Command(BIG, number) for number in range(50)])
            await trio.sleep(1.5)
        for number in range(30):
            answer = await slow.receive()
            assert answer is not None and answer.opaque == number
        assert here.server.counters.stalled and not connection.closed


async def test_answers_that_come_later_are_bounded_too(autojump_clock: MockClock) -> None:
    """As pulls that were held, and all get their message in one turn."""
    async with served() as here:
        for _ in range(30):
            wire, _ = await here.come(reads=False)
            await wire.send(*[Command(LATER, number) for number in range(50)])
        wire, _ = await here.come(reads=True)
        await wire.send(Command(LATER, 1, body=b"now"))
        await trio.testing.wait_all_tasks_blocked()
        assert here.most <= 1_024 * KIB + MARGIN + 30 * 50 * 100


async def test_a_close_forgets_what_waited(autojump_clock: MockClock) -> None:
    async with served() as here:
        for _ in range(3):
            wire, connection = await here.come(reads=False)
            await wire.send(*[Command(BIG, number) for number in range(50)])
            await trio.testing.wait_all_tasks_blocked()
            await wire.stream.aclose()
            connection.close("enough")
            await trio.testing.wait_all_tasks_blocked()
        assert here.server._endpoint.backlog.bytes == 0


# --- the book ----------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Slow:
    queued_bytes: int = 0


@given(st.lists(st.tuples(st.sampled_from(["begins", "more", "took", "ends", "time"]), st.integers(0, 7),
                          st.integers(1, 40)), max_size=200))
def test_the_book_agrees_with_what_happened(steps: list[tuple[str, int, int]]) -> None:
    book: Backlog[Slow] = Backlog(30, 100, 5.0)
    all_of_them = [Slow() for _ in range(8)]
    waiting: dict[Slow, int] = {}
    since: dict[Slow, float] = {}
    now = 0.0
    for what, number, size in steps:
        who = all_of_them[number]
        if what == "begins" and who not in waiting:
            book.begins(who, now)
            book.bytes += size
            waiting[who], since[who] = size, now
        elif what == "more" and who in waiting:
            book.bytes += size
            waiting[who] += size
        elif what == "took" and waiting.get(who, 0) > size:
            book.took(who, size, now)
            waiting[who] -= size
            since[who] = now
        elif what == "ends":
            book.ends(who, waiting.pop(who, 0))
            since.pop(who, None)
        elif what == "time":
            now += size / 10
        for each in all_of_them:
            each.queued_bytes = waiting.get(each, 0)
        total = sum(waiting.values())
        assert (book.bytes, book.short, book.full) == (total, total > 50, total > 100)
        assert book.pause == (min(30, 50 // len(waiting)) if total > 50 else 30)
        gone = book.must_go(now)
        stalled = [each for each, at in since.items() if now - at >= 5.0]
        if gone is not None and now - min(since.values()) < 0.1:
            assert book.full and waiting[gone] == max(waiting.values())
        elif gone is not None:
            assert since[gone] == min(since.values()) and (book.full or gone in stalled)
        else:
            assert not book.full and not (book.short and stalled)


def test_the_budget_has_room_for_two_frames() -> None:
    with pytest.raises(ValueError, match="outgoing_bytes_budget"):
        ServerConfig(outgoing_bytes_budget=(32 << 20) - 1)
