"""Errands at other groups' masters: who is asked, what is known when nobody answers, and what is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.abroad.tickets import Ticket
from broker.errands import part as errands
from broker.errands.part import NO_ROUTE_S, REFUSED_S, ROUTE_S, UNDER_WAY_MAX, ErrandsPart
from broker.standing import Standing
from harness.simulation.worlds.streams import Net, net
from remoting.bodies.broker import HARuntimeInfo
from remoting.bodies.namesrv import BrokerData, QueueData, TopicRouteData
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.headers.pulling import PullMessageResponse
from remoting.record import Message, Record, encode
from remoting.server import Server

REVIVES = "rmq_sys_REVIVE_LOG_c"
RECORD = Message(REVIVES.encode(), b"{}", 0, b"UNIQ_KEY\x01u\x02")
SILENT = None
"""In the place of an answer: the connection ends."""


@attrs.define(eq=False)
class Master:
    """Another group's broker, whose answers are told. It counts what it stored."""

    name: str
    sends: list[int | None] = attrs.field(factory=list)
    """Codes for the next sends; then 0."""
    keeps: bool = True
    """A send is stored though its connection ends."""
    least: int = 0
    records: dict[int, Message] = attrs.field(factory=dict)
    status: HARuntimeInfo | None = HARuntimeInfo(True)
    """None: it does not know the question."""
    asked: Counter[int] = attrs.field(factory=Counter)
    queues: list[int] = attrs.field(factory=list)
    """Where each record was stored."""

    @property
    def address(self) -> str:
        return f"{self.name}:1"

    def handlers(self) -> dict[int, Callable[[Connection, Command], Command | None]]:
        found: dict[int, Callable[[Connection, Command], Command | None]] = {
            RequestCode.SEND_MESSAGE_V2: self.send, RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.GET_BROKER_RUNTIME_INFO: lambda _, command: response(command, body=b'{"table":{}}')}
        if self.status is not None:
            found[RequestCode.GET_BROKER_HA_STATUS] = self.ha_status
        return found

    def send(self, connection: Connection, command: Command) -> Command | None:
        self.asked[command.code] += 1
        code = self.sends.pop(0) if self.sends else ResponseCode.SUCCESS
        if code == ResponseCode.SUCCESS or (code is SILENT and self.keeps):
            self.queues.append(int(command.ext["e"]))
        if code is SILENT:
            connection.close("as if its machine was lost")
            return None
        return response(command, code, remark="as told")

    def pull(self, _: Connection, command: Command) -> Command:
        self.asked[command.code] += 1
        at, count = int(command.ext["queueOffset"]), int(command.ext["maxMsgNums"])
        found = [(offset, self.records[offset]) for offset in range(max(at, self.least), at + count)
                 if offset in self.records]
        if not found:
            return response(command, ResponseCode.PULL_NOT_FOUND, PullMessageResponse(0, at, self.least, 9))
        return response(command, header=PullMessageResponse(0, found[-1][0] + 1, self.least, 9), body=b"".join(
            encode(message, offset, offset * 100, 1) for offset, message in found))

    def ha_status(self, _: Connection, command: Command) -> Command:
        assert self.status is not None
        return response(command, body=self.status.to_json())


@attrs.define(eq=False)
class Place:
    """A slave of group ``a``, and what name servers say."""

    part: ErrandsPart
    routes: dict[str, TopicRouteData]
    made: Net
    routed: Counter[str] = attrs.field(factory=Counter)

    async def serve(self, *masters: Master, topics: tuple[str, ...] = ("T", REVIVES), id_: int = 0) -> None:
        """They are listed, with 2 queues of each of these topics."""
        for master in masters:
            await self.made.serve(master.address, Server(dict(master.handlers())))
            for topic in topics:
                known = self.routes.setdefault(topic, TopicRouteData())
                known.queue_datas.append(QueueData(master.name, 2, 2, 6))
                known.broker_datas.append(BrokerData(master.name, "c", {id_: master.address}))

    async def store(self, *, first: Ticket | None = None, count: int = 1) -> tuple[Ticket | str, list[Ticket]]:
        """Who holds them, or why nobody does; and where something may be left over."""
        said: list[Ticket | str] = []
        left: list[Ticket] = []
        self.part.store("T", [RECORD] * count, said.append, left.append, first)
        await told(said)
        (outcome,) = said
        return outcome, left

    async def store_at(self, ticket: Ticket) -> tuple[str, bool]:
        said: list[tuple[str, bool]] = []
        self.part.store_at(ticket, [RECORD], lambda *words: said.append(words))
        await told(said)
        (outcome,) = said
        return outcome

    async def read(self, *offsets: int, name: str = "b") -> tuple[dict[int, bytes], frozenset[int]]:
        """Bodies of what is found, and what is gone."""
        said: list[tuple[dict[int, Record], frozenset[int]]] = []
        self.part.read(name, "T", 0, offsets, lambda found, gone: said.append((dict(found), gone)))
        await told(said)
        ((found, gone),) = said
        return {offset: record.message.body for offset, record in found.items()}, gone


async def told(said: Sequence[object]) -> None:
    with trio.fail_after(60):
        while not said:
            await trio.sleep(0.01)


@asynccontextmanager
async def place(*, runs: bool = True) -> AsyncGenerator[Place, None]:
    async with net() as made, open_client(connector=made.connect) as client, trio.open_nursery() as nursery:
        async def route(topic: str) -> TopicRouteData | None:
            await trio.lowlevel.checkpoint()
            found.routed[topic] += 1
            return found.routes.get(topic)

        found = Place(ErrandsPart(client, Standing("c", "a", "a:1"), route), {}, made)
        if runs:
            await nursery.start(found.part.run)
        yield found
        nursery.cancel_scope.cancel()


# --- storing ---------------------------------------------------------------------------------------------------------


async def test_all_records_go_to_one_queue_of_one_master(autojump_clock: MockClock) -> None:
    async with place() as here:
        b, d = Master("b"), Master("d")
        await here.serve(b, d)
        seen = set()
        for _ in range(8):
            ticket, left = await here.store(count=3)
            assert isinstance(ticket, Ticket) and left == []
            master = b if ticket.is_of("b") else d
            assert master.queues[-3:] == [ticket.queue] * 3
            seen.add((master.name, ticket.queue))
        assert seen == {("b", 0), ("b", 1), ("d", 0), ("d", 1)}, "in turn"
        assert here.part.counters.stored == 24


async def test_where_the_first_ticket_is_of_is_tried_first(autojump_clock: MockClock) -> None:
    async with place() as here:
        b, d = Master("b"), Master("d")
        await here.serve(b, d)
        for _ in range(4):
            assert (await here.store(first=Ticket.of("d", 1)))[0] == Ticket.of("d", 1)
        d.sends = [ResponseCode.SYSTEM_BUSY]
        ticket, left = await here.store(first=Ticket.of("d", 1))
        assert isinstance(ticket, Ticket) and ticket.is_of("b") and left == []


async def test_who_refused_is_the_last_for_a_while(autojump_clock: MockClock) -> None:
    async with place() as here:
        b, d = Master("b", [ResponseCode.TOPIC_NOT_EXIST]), Master("d")
        await here.serve(b, d)
        for _ in range(5):
            ticket, _ = await here.store()
            assert isinstance(ticket, Ticket) and ticket.is_of("d")
        assert b.asked[RequestCode.SEND_MESSAGE_V2] == 1
        await trio.sleep(REFUSED_S + 1)
        assert {ticket.is_of("b") for _ in range(2) if isinstance(ticket := (await here.store())[0], Ticket)} == {
            True, False}


@pytest.mark.parametrize("keeps", [True, False])
async def test_an_unknown_outcome_is_asked_again_there_and_then_left_over(
        keeps: bool, autojump_clock: MockClock) -> None:
    async with place() as here:
        b, d = Master("b", [SILENT], keeps), Master("d")
        await here.serve(b)
        ticket, left = await here.store()
        assert (ticket, left) == (Ticket.of("b", ticket.queue if isinstance(ticket, Ticket) else -1), [])
        assert len(b.queues) == 1 + keeps and here.part.counters.again == 1, "the second copy counts as the first"
        await here.serve(d)
        here.part._routes.clear()
        b.sends = [SILENT, SILENT]
        ticket, left = await here.store(first=Ticket.of("b", 1))
        assert isinstance(ticket, Ticket) and ticket.is_of("d")
        assert left == [Ticket.of("b", 1)], "there it may be stored"


@pytest.mark.parametrize("code", [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT,
                                  ResponseCode.SLAVE_NOT_AVAILABLE])
async def test_stored_but_not_held_as_its_group_is_to(code: int, autojump_clock: MockClock) -> None:
    async with place() as here:
        await here.serve(Master("b", [code, code]))
        outcome, left = await here.store()
        assert str(outcome).endswith(f"b, b:1: answered {code}: as told")
        assert [ticket.is_of("b") for ticket in left] == [True]


async def test_nobody_takes_them(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with place() as here:
        nobody = "T: no other group of the cluster has a master where it can be popped"
        assert await here.store() == (nobody, [])
        await here.serve(Master("b"), topics=(REVIVES,))
        await trio.sleep(NO_ROUTE_S)
        assert await here.store() == (nobody, []), "without the topic its consumers would not look there"
        assert here.part.counters.failed == 2
        assert caplog.messages.count("no other group's master stored records of POP") == 1, "it is said once"


async def test_three_masters_are_tried_and_no_more(autojump_clock: MockClock) -> None:
    async with place() as here:
        masters = [Master(name, [ResponseCode.NO_PERMISSION] * 9) for name in "bdef"]
        await here.serve(*masters)
        outcome, left = await here.store()
        assert isinstance(outcome, str) and left == []
        assert sum(each.asked[RequestCode.SEND_MESSAGE_V2] for each in masters) == 3


async def test_routes_are_kept_for_a_while(autojump_clock: MockClock) -> None:
    async with place() as here:
        await here.serve(Master("b"))
        for _ in range(5):
            await here.store()
        assert here.routed == {"T": 1, REVIVES: 1}
        await trio.sleep(ROUTE_S)
        await here.store()
        assert here.routed == {"T": 2, REVIVES: 2}


async def test_a_ticket_finds_its_broker_and_says_what_is_known(autojump_clock: MockClock) -> None:
    async with place() as here:
        b = Master("b")
        await here.serve(b)
        assert await here.store_at(Ticket.of("b", 7)) == ("", True)
        assert b.queues == [7]
        nobody = "no master of the cluster is known to hold the checkpoint of this receipt"
        assert await here.store_at(Ticket.of("d", 0)) == (nobody, False)
        b.sends = [ResponseCode.SYSTEM_BUSY] * 2
        assert await here.store_at(Ticket.of("b", 0)) == ("b, b:1: answered 2: as told", False)
        b.sends, b.keeps = [SILENT, ResponseCode.SYSTEM_BUSY], True
        assert await here.store_at(Ticket.of("b", 0)) == ("b, b:1: answered 2: as told", True)
        b.sends, b.keeps = [SILENT, SILENT], False
        why, perhaps = await here.store_at(Ticket.of("b", 0))
        assert why.startswith("b, b:1: ") and perhaps, "nobody knows"


async def test_of_two_brokers_with_the_same_mark_both_are_told(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ticket, "is_of", lambda self, name: True)
    async with place() as here:
        b, d = Master("b"), Master("d")
        await here.serve(b, d)
        assert await here.store_at(Ticket.of("b", 1)) == ("", True)
        assert (b.queues, d.queues) == ([1], [1])
        d.sends = [ResponseCode.SYSTEM_BUSY]
        assert await here.store_at(Ticket.of("b", 1)) == ("d, d:1: answered 2: as told", True)


async def test_more_than_may_be_under_way_is_refused_at_once(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    async with place(runs=False) as here:
        here.part.store("T", [RECORD], said.append, said.append)
        here.part.store_at(Ticket.of("b", 0), [RECORD], lambda *words: said.append(words))
        here.part.read("b", "T", 0, [1], lambda *found: said.append(found))
    assert said == ["0 requests to other masters are in flight", ("0 requests to other masters are in flight", False),
                    ({}, frozenset())]
    monkeypatch.setattr(errands, "UNDER_WAY_MAX", 0)
    async with place() as here:
        await here.serve(Master("b"))
        assert await here.store() == ("0 requests to other masters are in flight", [])
    assert UNDER_WAY_MAX > 1


# --- reading ---------------------------------------------------------------------------------------------------------


def messages(*offsets: int, topic: bytes = b"T") -> dict[int, Message]:
    return {offset: Message(topic, b"m%d" % offset, 0) for offset in offsets}


async def test_messages_are_read_and_others_left(autojump_clock: MockClock) -> None:
    async with place() as here:
        await here.serve(Master("b", records={**messages(2, 3, 70), **messages(71, topic=b"U")}))
        assert await here.read(3, 2, 71, 70) == ({2: b"m2", 3: b"m3", 70: b"m70"}, frozenset())
        assert (here.part.counters.read, here.part.counters.unread) == (3, 1)


@pytest.mark.parametrize(("status", "id_", "gone"), [
    (HARuntimeInfo(True), 0, True), (HARuntimeInfo(False), 0, False), (None, 0, True), (None, 1, False),
    (HARuntimeInfo(True), 1, False)])
async def test_what_is_gone_only_a_master_says(
        status: HARuntimeInfo | None, id_: int, gone: bool, autojump_clock: MockClock) -> None:
    """A slave that acts is listed with id 0, and says with 907 that it is none; RocketMQ 4 knows neither."""
    async with place() as here:
        await here.serve(Master("b", least=5, records=messages(6), status=status), id_=id_)
        assert await here.read(3, 6) == ({6: b"m6"}, frozenset({3} if gone else ()))


async def test_who_could_not_be_read_from_is_not_asked_for_a_while(autojump_clock: MockClock) -> None:
    async with place() as here:
        assert await here.read(1) == ({}, frozenset())
        b = Master("b", records=messages(1))
        await here.serve(b)
        assert await here.read(1) == ({}, frozenset()) and not b.asked
        await trio.sleep(REFUSED_S + 1)
        assert await here.read(1) == ({1: b"m1"}, frozenset())
        assert here.part.counters.unread == 2
