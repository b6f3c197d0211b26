"""POPs that wait: who is woken by what, in which order, and when their time is over."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.consumers.subscriptions import Subscribed, parse
from broker.filters.expressions import compiled
from broker.moments import Listener
from broker.pop.waiting import PASSED_MAX, Parking, WaitingConfig, WaitingRoom
from remoting.codes import RequestCode
from remoting.command import Command
from remoting.connection import Connection
from remoting.hashing import java_hash
from remoting.record import Outline


@attrs.define(eq=False)
class Room:
    """Somewhere to wait, and what became of those who did."""

    waiting: WaitingRoom
    arrived: Listener[[bytes, int, int, int, Outline]]
    tried: list[str] = attrs.field(factory=list)
    heard: list[bytes] = attrs.field(factory=list)
    """By who hears of messages in any case."""

    def park(self, name: str, *, topic: str = "t", group: str = "g", queue_id: int = -1, poll_ms: int = 10_000,
             born_ms: int | None = None, wanted: Subscribed | None = None, latest: bool = False, closed: bool = False,
             size: int = 0) -> Parking:
        connection = cast(Connection, SimpleNamespace(closed=closed, name=name))
        born_ms = now_ms() if born_ms is None else born_ms
        request = Command(RequestCode.POP_MESSAGE, body=bytes(size))
        return self.waiting.park(
            connection, request, self._attempt, topic=topic, group=group, queue_id=queue_id, born_ms=born_ms,
            poll_ms=poll_ms, wanted=wanted, latest=latest)

    def _attempt(self, connection: Connection, _: Command) -> None:
        self.tried.append(connection.name)  # type: ignore[attr-defined]

    async def message(self, topic: str = "t", queue_id: int = 0, *, tag: str = "") -> list[str]:
        """It becomes visible; who was tried since."""
        found: Outline = (0, 0, queue_id, 0, 0, 0, topic.encode(), f"TAGS\x01{tag}\x02".encode())
        self.arrived.call(topic.encode(), queue_id, 0, java_hash(tag) if tag else 0, found)
        return await self.since()

    async def since(self) -> list[str]:
        await wait_all_tasks_blocked()
        tried, self.tried = self.tried, []
        return tried


def now_ms() -> int:
    return int(trio.current_time() * 1e3) + 1_700_000_000_000


@asynccontextmanager
async def room(config: WaitingConfig | None = None) -> AsyncGenerator[Room, None]:
    arrived: Listener[[bytes, int, int, int, Outline]] = Listener()
    made = Room(WaitingRoom(config or WaitingConfig(), arrived, now_ms), arrived)

    def hear(topic: bytes, queue_id: int, queue_offset: int, code: int, found: Outline) -> None:
        made.heard.append(topic)

    arrived.call = hear
    async with trio.open_nursery() as nursery:
        await nursery.start(made.waiting.run)
        yield made
        nursery.cancel_scope.cancel()


async def test_a_message_wakes_one_of_its_queue_and_one_of_any_for_each_group(autojump_clock: MockClock) -> None:
    async with room() as made:
        for name, queue_id, group in (("any", -1, "g"), ("any 2", -1, "g"), ("two", 2, "g"), ("three", 3, "g"),
                                      ("other group", -1, "h")):
            assert made.park(name, queue_id=queue_id, group=group) is Parking.PARKED
        assert made.park("other topic", topic="u") is Parking.PARKED
        assert await made.message(queue_id=2) == ["any", "two", "other group"]
        assert await made.message(queue_id=2) == ["any 2"]
        assert await made.message(queue_id=2) == []
        assert (len(made.waiting), made.waiting.count("t", "g", 3), made.waiting.count("t", "g", -1)) == (2, 1, 0)


async def test_pops_wake_in_the_order_of_their_ends_and_notifications_in_the_other(autojump_clock: MockClock) -> None:
    async with room() as made:
        for name, poll_ms in (("late", 9_000), ("early", 3_000), ("middle", 5_000)):
            made.park(name, poll_ms=poll_ms)
            made.park(f"told {name}", poll_ms=poll_ms, latest=True)
        assert made.waiting.count("t", "g", -1) == 3, "notifications are not counted"
        assert await made.message() == ["early", "told late"]
        assert await made.message() == ["middle", "told middle"]


@pytest.mark.parametrize("retry", ["%RETRY%g_t", "%RETRY%g+t"])
async def test_what_was_not_acknowledged_wakes_who_waits_for_the_first_topic(
        autojump_clock: MockClock, retry: str) -> None:
    async with room() as made:
        only_a = parse("t", "a", "TAG")
        made.park("any", wanted=only_a)
        made.park("two", queue_id=2, wanted=only_a)
        made.park("other group", group="h")
        assert await made.message(retry, tag="b") == ["any", "two"], "it was wanted once, and each looks there"
        assert await made.message("%RETRY%h") == [], "that is for who pulls"


async def test_messages_that_nobody_wants_wake_nobody_until_they_are_many(autojump_clock: MockClock) -> None:
    async with room() as made:
        made.park("a", wanted=parse("t", "a", "TAG"))
        assert await made.message(tag="b") == []
        assert await made.message(tag="a") == ["a"]
        made.park("a", wanted=parse("t", "a", "TAG"))
        for _ in range(PASSED_MAX - 1):
            assert made.arrived.call is not None
            assert await made.message(tag="b") == []
        assert await made.message(tag="b") == ["a"], "its group goes on behind them"


async def test_it_is_tried_a_last_time_when_its_time_is_nearly_over(autojump_clock: MockClock) -> None:
    async with room() as made:
        began_s = trio.current_time()
        made.park("a", poll_ms=2_000)
        await trio.sleep(1.949)
        assert await made.since() == []
        await trio.sleep(0.002)
        assert await made.since() == ["a"]
        assert trio.current_time() - began_s < 1.96
        assert made.park("a", poll_ms=2_000, born_ms=now_ms() - 1_951) is Parking.OVER
        for poll_ms in (0, -1, 50):
            assert made.park("a", poll_ms=poll_ms) is Parking.OVER


async def test_a_clock_that_is_ahead_waits_as_long_as_any(autojump_clock: MockClock) -> None:
    async with room() as made:
        ahead, connection = now_ms() + 3_600_000, cast(Connection, SimpleNamespace(closed=False, name="a"))
        request = Command(RequestCode.POP_MESSAGE, ext={"bornTime": str(ahead)})

        def attempt(connection: Connection, request: Command) -> None:
            made.tried.append(made.waiting.park(
                connection, request, attempt, topic="t", group="g", queue_id=0, born_ms=int(request.ext["bornTime"]),
                poll_ms=1_000).name)

        assert made.waiting.park(connection, request, attempt, topic="t", group="g", queue_id=0, born_ms=ahead,
                                 poll_ms=1_000) is Parking.PARKED
        await trio.sleep(1)
        assert await made.since() == ["OVER"]


async def test_unlocked_and_more_wake_one(autojump_clock: MockClock) -> None:
    async with room() as made:
        for name, queue_id in (("any", -1), ("any 2", -1), ("two", 2), ("two 2", 2)):
            made.park(name, queue_id=queue_id)
        made.park("told", latest=True)
        made.waiting.more("t", "g", 2)
        made.waiting.more("t", "g", 7)
        made.waiting.more("u", "g", 2)
        assert await made.since() == ["two"], "a POP of that very queue"
        made.waiting.unlocked("t", "g", 2)
        assert await made.since() == ["any", "two 2", "told"]
        made.waiting.unlocked("t", "h", 2)
        assert await made.since() == []


async def test_closed_connections_take_no_wake_from_others(autojump_clock: MockClock) -> None:
    async with room() as made:
        made.park("gone", closed=True, poll_ms=1_000)
        made.park("a", poll_ms=2_000)
        assert await made.message() == ["a"]
        going = cast(Connection, SimpleNamespace(closed=False, name="going"))
        made.waiting.park(going, Command(RequestCode.POP_MESSAGE), made._attempt, topic="t", group="g", queue_id=-1,
                          born_ms=now_ms(), poll_ms=1_000)
        made.park("b", poll_ms=2_000)
        made.waiting.more("t", "g", -1)
        going.closed = True
        assert await made.since() == ["b"], "it went between the message and its turn"


async def test_nobody_hears_of_messages_but_while_somebody_waits(autojump_clock: MockClock) -> None:
    async with room() as made:
        alone = made.arrived.call
        made.park("a")
        made.park("b", group="h")
        assert made.arrived.call != alone
        await made.message("u")
        await made.message()
        assert (made.arrived.call, made.heard) == (alone, [b"u", b"t"]), "the other goes on hearing of them"
        made.park("a")
        assert await made.message() == ["a"]


async def test_more_messages_of_a_run_are_passed_on_when_the_last_waiter_was_woken(autojump_clock: MockClock) -> None:
    async with room() as made:
        made.park("a")
        tell = made.arrived.call  # once for a run, as the queues do
        for number in range(3):
            tell(b"t", 0, number, 0, (0, 0, 0, number, 0, 0, b"t", b""))
        assert (await made.since(), made.heard) == (["a"], [b"t"] * 3)
        made.park("b")
        assert await made.message() == ["b"]
        assert made.heard == [b"t"] * 4, "each once"


async def test_too_many_are_not_parked(autojump_clock: MockClock) -> None:
    async with room(WaitingConfig(pop_polling_size=2, max_pop_polling_size=3)) as made:
        assert [made.park(name) for name in "abc"] == [Parking.PARKED, Parking.PARKED, Parking.FULL]
        assert made.park("told", latest=True) is Parking.PARKED
        assert made.park("d", queue_id=3) is Parking.FULL, "of all together"
        await made.message()
        assert made.park("d", queue_id=3) is Parking.PARKED


async def test_long_requests_do_not_fill_memory(autojump_clock: MockClock) -> None:
    async with room() as made:
        for _ in range(15):
            assert made.park("long", size=16 << 20) is Parking.PARKED
        assert made.park("long", size=16 << 20) is Parking.FULL
        assert made.park("short") is Parking.PARKED
        made.waiting.wake_all()
        assert len(await made.since()) == 16
        assert made.park("long", size=16 << 20) is Parking.PARKED


async def test_long_expressions_do_not_fill_memory(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def wanted(number: int) -> Subscribed:
        text = " OR ".join(f"a = {number}{each}" for each in range(100))
        return attrs.evolve(parse("t", text, "SQL92"), filter=compiled(text))

    monkeypatch.setattr("broker.waiters.BYTES_MAX", 1 << 20)
    async with room() as made:
        parked = [made.park("long", wanted=wanted(number)) for number in range(10, 30)]
        full = parked.index(Parking.FULL)
        assert 5 <= full < 15 and set(parked[full:]) == {Parking.FULL}, "each takes some 100 kB"
        assert made.park("short") is Parking.PARKED
        made.waiting.wake_all()
        assert len(await made.since()) == full + 1
        assert made.park("long", wanted=wanted(30)) is Parking.PARKED


async def test_whoever_waits_when_the_broker_stops_is_tried_and_nobody_waits_any_more(
        autojump_clock: MockClock) -> None:
    async with room() as made:
        alone = made.arrived.call
        made.park("a")
        made.park("b", latest=True)
        made.waiting.finish()
        assert await made.since() == ["a", "b"]
        assert made.park("c") is Parking.OVER
        assert (len(made.waiting), made.arrived.call) == (0, alone)


async def test_a_deletion_wakes_those_alone_who_wait_there(autojump_clock: MockClock) -> None:
    async with room() as found:
        found.park("a", topic="t")
        found.park("b", topic="u")
        found.waiting.wake_topics({"t", "v"})
        assert await found.since() == ["a"] and len(found.waiting) == 1
