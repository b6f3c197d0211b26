"""Clients of a broker that is master no longer: real servers and clients on memory streams and a virtual clock."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.relay.codes import FORWARDED, PUSHED
from broker.relay.forwarding import PATIENCE_MS, Forwarder
from broker.standing import REJECTED
from harness.simulation.worlds.streams import Net, net
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY, Command, request, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import ConnectionClosed
from remoting.server import Server

SEND = RequestCode.SEND_MESSAGE_V2


@attrs.define(eq=False)
class Master:
    """Answers sends with its name, or not at all; pushes to who asks for it."""

    name: str
    silent: bool = False
    slave: bool = False
    seen: list[Command] = attrs.field(factory=list)
    clients: list[Connection] = attrs.field(factory=list)

    def handle(self, connection: Connection, command: Command) -> Command | None:
        self.seen.append(command)
        if connection not in self.clients:
            self.clients.append(connection)
        if self.slave:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        return None if self.silent else response(command, remark=self.name, body=command.body)

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys((*FORWARDED, RequestCode.GET_BROKER_CONFIG), self.handle)


@attrs.define(eq=False)
class World:
    network: Net
    forwarder: Forwarder
    here: Master
    there: Master
    client: Client
    pushed: list[Command]

    async def send(self, timeout_ms: float = 20_000) -> str | None:
        return (await self.client.call("old:1", request(SEND, body=b"m"), timeout_ms)).remark

    async def send_into(self, answers: list[str | None]) -> None:
        answers.append(await self.send())


@asynccontextmanager
async def world() -> AsyncGenerator[World, None]:
    """``old:1`` with a forwarder, and masters ``new:1``, ``new:2``."""
    pushed: list[Command] = []
    here, there = Master("old"), Master("new")

    def push(_: Connection, command: Command) -> Command:
        pushed.append(command)
        return response(command, remark="from the client")

    async with net() as network:
        forwarder = Forwarder(connector=network.connect)
        await network.nursery.start(forwarder.run)
        await network.serve("old:1", Server(
            forwarder.handlers(here.handlers()), on_close=lambda connection, _: forwarder.closed(connection)))
        await network.serve("new:1", Server(there.handlers()))
        await network.serve("new:2", Server(Master("newer").handlers()))
        async with open_client(connector=network.connect, handlers=dict.fromkeys(PUSHED, push)) as client:
            yield World(network, forwarder, here, there, client, pushed)


async def test_switched_off_it_changes_nothing() -> None:
    async with world() as w:
        assert await w.send() == "old"
        assert not w.forwarder.forwarded


async def test_a_clients_requests_go_to_the_master_and_a_brokers_own_stay() -> None:
    async with world() as w:
        w.forwarder.begin("new:1")
        assert await w.send() == "new"
        answer = await w.client.call("old:1", request(RequestCode.GET_BROKER_CONFIG))
        assert answer.remark == "old"
        assert [command.body for command in w.there.seen] == [b"m"]


async def test_many_requests_of_one_client_share_one_connection_and_get_their_own_answers() -> None:
    async with world() as w:
        w.forwarder.begin("new:1")

        async def one(number: int) -> None:
            answer = await w.client.call("old:1", request(SEND, body=str(number).encode()))
            assert answer.body == str(number).encode()

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(one, number)
        assert len(w.there.clients) == 1
        assert w.forwarder.forwarded == 50


async def test_what_the_master_pushes_comes_to_the_client_and_its_answer_back() -> None:
    async with world() as w:
        w.forwarder.begin("new:1")
        await w.send()
        [at_master] = w.there.clients
        answer = await at_master.call(request(RequestCode.GET_CONSUMER_RUNNING_INFO), 5_000)
        assert answer.remark == "from the client"
        at_master.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, oneway=True))
        await wait_all_tasks_blocked()
        assert [command.code for command in w.pushed] == [
            RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]


async def test_oneway_requests_go_on_too() -> None:
    async with world() as w:
        w.forwarder.begin("new:1")
        await w.client.send_oneway("old:1", request(RequestCode.UPDATE_CONSUMER_OFFSET))
        await w.send()
        assert [command.code for command in w.there.seen] == [RequestCode.UPDATE_CONSUMER_OFFSET, SEND]


async def test_a_request_waits_for_a_master_to_be_known(autojump_clock: MockClock) -> None:
    async with world() as w, trio.open_nursery() as nursery:
        w.forwarder.begin()
        said: list[str | None] = []
        nursery.start_soon(w.send_into, said)
        await trio.sleep(0.3)
        assert not said
        w.forwarder.follow("new:1")
        await trio.sleep(0.1)
        assert said == ["new"]


async def test_a_request_that_waits_hears_of_a_master_whatever_was_said_meanwhile(autojump_clock: MockClock) -> None:
    async with world() as w, trio.open_nursery() as nursery:
        w.forwarder.begin()
        answers: list[str | None] = []
        nursery.start_soon(w.send_into, answers)
        await trio.sleep(0.1)
        w.forwarder.begin()  # the broker died again, as soon as it was back
        await trio.sleep(0.1)
        w.forwarder.follow("new:1")
        await trio.sleep(0.1)
        assert answers == ["new"]


@pytest.mark.parametrize("target", [None, "nobody:1"])
async def test_without_a_master_the_answer_is_that_another_broker_may_be_asked(
    target: str | None, autojump_clock: MockClock,
) -> None:
    async with world() as w:
        w.forwarder.begin(target)
        began = trio.current_time()
        answer = await w.client.call("old:1", request(SEND), 20_000)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert trio.current_time() - began == pytest.approx(PATIENCE_MS / 1e3, abs=0.02)


async def test_a_request_waits_for_the_next_master_to_learn_that_it_is_one(autojump_clock: MockClock) -> None:
    async with world() as w:
        w.there.slave = True
        w.forwarder.begin("new:1")
        answers: list[str | None] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(w.send_into, answers)
            await trio.sleep(0.2)
            assert not answers and w.forwarder.held_bytes
            w.there.slave = False
        assert answers == ["new"]
        assert w.forwarder.forwarded == 1 and not w.forwarder.held_bytes
        w.there.slave = True
        began = trio.current_time()
        assert await w.send() == REJECTED, "in the end it is the client's to know"
        assert PATIENCE_MS / 1e3 <= trio.current_time() - began < 2 * PATIENCE_MS / 1e3
        assert not w.forwarder.held_bytes


async def test_two_that_forward_to_each_other_do_not_pass_a_request_to_and_fro(autojump_clock: MockClock) -> None:
    async with world() as w:
        w.forwarder.begin("next:1")
        next_one = Forwarder(connector=w.network.connect)
        await w.network.nursery.start(next_one.run)
        await w.network.serve("next:1", Server(
            next_one.handlers(Master("next").handlers()), on_close=lambda connection, _: next_one.closed(connection)))
        next_one.begin("old:1")
        answers: list[str | None] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(w.send_into, answers)
            await trio.sleep(0.2)
            assert not answers and (w.forwarder.forwarded, next_one.forwarded) == (1, 0)
            next_one.end()
        assert answers == ["next"]


async def test_a_request_whose_outcome_is_not_known_is_answered_by_nobody(autojump_clock: MockClock) -> None:
    async with world() as w:
        w.forwarder.begin("new:1")
        w.there.silent = True
        async with trio.open_nursery() as nursery:
            async def send() -> None:
                with pytest.raises(ConnectionClosed):
                    await w.send()

            nursery.start_soon(send)
            await trio.sleep(0.1)
            assert len(w.there.seen) == 1
            w.there.clients[0].close("the master dies")


async def test_another_master_is_another_connection(autojump_clock: MockClock) -> None:
    async with world() as w:
        w.forwarder.begin("new:1")
        assert await w.send() == "new"
        w.forwarder.follow("new:2")
        await trio.sleep(0.1)
        assert await w.send() == "newer"
        w.forwarder.end()
        await trio.sleep(0.1)
        assert await w.send() == "old"


async def test_a_client_that_leaves_takes_its_connection_with_it(autojump_clock: MockClock) -> None:
    async with world() as w:
        w.forwarder.begin("new:1")
        await w.send()
        connection = w.client.connection("old:1")
        assert connection is not None
        connection.close("enough")
        await trio.sleep(0.1)
        assert all(each.closed for each in w.there.clients)


async def test_a_master_is_dialled_by_its_host_under_tls() -> None:
    """A context that checks names would let nobody through without one."""
    authority = trustme.CA()
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(ours)
    authority.issue_cert("master.example").configure_cert(theirs)
    async with net() as network:
        forwarder = Forwarder(connector=network.connect, tls=lambda: ours, patience_ms=200)
        await network.nursery.start(forwarder.run)
        await network.serve("old:1", Server(forwarder.handlers()))
        for address in ("master.example:1", "other.example:1"):
            await network.serve(address, Server(Master("new").handlers(), tls=lambda: theirs))
        forwarder.begin("other.example:1")
        async with open_client(connector=network.connect) as client:
            refused = await client.call("old:1", request(SEND))
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            forwarder.follow("master.example:1")
            assert (await client.call("old:1", request(SEND))).remark == "new"


async def test_what_is_held_for_a_silent_master_is_bounded_and_given_back(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.relay.forwarding.HELD_BYTES_MAX", 50_000)
    async with world() as w:
        w.there.silent = True
        w.forwarder.begin()
        codes = []

        async def one() -> None:
            try:
                codes.append((await w.client.call("old:1", request(SEND, body=bytes(9_000)), 5_000)).code)
            except ConnectionClosed:
                codes.append(-1)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(one)
            await wait_all_tasks_blocked()
            assert codes == [ResponseCode.SYSTEM_BUSY] * 3 and w.forwarder.held_bytes == 50_000
            w.forwarder.follow("new:1")
            await wait_all_tasks_blocked()
            assert w.forwarder.held_bytes == 50_000 and len(w.there.seen) == 5
            async with open_client(connector=w.network.connect) as other:
                w.there.silent = False
                assert (await other.call("old:1", request(SEND))).remark == "new", "one that has none under way"
                big = await other.call("old:1", request(SEND, body=bytes(20_000)))
                assert big.code == ResponseCode.SYSTEM_BUSY
                w.there.silent = True
            assert len(w.there.seen) == 6 and w.forwarder.held_bytes == 50_000
            w.there.clients[0].close("the master dies")
        assert codes[3:] == [-1] * 5 and w.forwarder.held_bytes == 0
        w.there.silent = False
        w.forwarder.follow("new:2")
        assert await w.send() == "newer" and w.forwarder.held_bytes == 0


async def test_what_waits_is_forgotten_with_its_client_or_when_there_is_no_master(autojump_clock: MockClock) -> None:
    async with world() as w:
        w.forwarder.begin()
        answer = await w.client.call("old:1", request(SEND, body=bytes(9_000)), 5_000)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and w.forwarder.held_bytes == 0
        with trio.move_on_after(PATIENCE_MS / 4e3):
            await w.send()
        assert w.forwarder.held_bytes == 1_001
        await trio.aclose_forcefully(w.network.streams[0])
        await wait_all_tasks_blocked()
        assert w.forwarder.held_bytes == 0


async def test_oneway_requests_do_not_pile_up_for_a_master_that_does_not_read(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.relay.forwarding.ONEWAY_BYTES_MAX", 0)
    async with world() as w:
        w.forwarder.begin("new:1")
        await w.send()
        connection = await w.client.connect("old:1")
        for _ in range(50):  # in one turn, so that nothing of it is written before the last
            connection.send(Command(SEND, flag=ONEWAY, body=bytes(100)))
        await w.send()
        assert len(w.there.seen) < 52 and w.forwarder.held_bytes == 0
