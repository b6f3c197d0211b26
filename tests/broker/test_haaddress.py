"""Where a master replicates from: asked for until it says, told to others, answered (code 906)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio

from broker.haaddress import HaAddresses, MasterAddress
from harness.simulation.worlds.brokers import until
from harness.simulation.worlds.streams import Net, net
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.headers.broker import ExchangeHAInfoRequest, ExchangeHAInfoResponse
from remoting.server import Server

MASTER = MasterAddress("a:1", "a:2", 77)


@attrs.define(eq=False)
class Node:
    addresses: HaAddresses = attrs.field(init=False)
    master: MasterAddress | None = None
    told: list[MasterAddress] = attrs.field(factory=list)


@asynccontextmanager
async def nodes(*names: str) -> AsyncGenerator[tuple[Net, dict[str, Node]], None]:
    async with net() as made, open_client(connector=made.connect) as client:
        found: dict[str, Node] = {}
        for name in names:
            node = found[name] = Node()
            node.addresses = HaAddresses(client, lambda node=node: node.master, node.told.append)  # type: ignore[misc]
            await made.serve(name, Server({RequestCode.EXCHANGE_BROKER_HA_INFO: node.addresses.answer}))
        yield made, found


async def test_a_slave_asks_until_the_master_is_one(autojump_clock: trio.abc.Clock) -> None:
    async with nodes("a:1", "b:1") as (made, found):
        answers: list[MasterAddress] = []

        async def ask() -> None:
            answers.append(await found["b:1"].addresses.find("a:1"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(5)
            assert not answers
            found["a:1"].master = MASTER
            begun = trio.current_time()
            await until(lambda: answers)
        assert answers == [MASTER]
        assert trio.current_time() - begun <= 1.02
        assert len([address for address in made.dialled if address == "a:1"]) == 1, "over one connection"


async def test_a_slave_goes_on_asking_a_master_that_is_not_there_yet(autojump_clock: trio.abc.Clock) -> None:
    async with nodes("b:1") as (made, found):
        with trio.move_on_after(5) as waited:
            await found["b:1"].addresses.find("a:1")
        assert waited.cancelled_caught
        assert 5 < len(made.dialled) < 20


async def test_a_new_master_tells_all_but_itself_and_does_not_wait_for_the_lost(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with nodes("a:1", "b:1", "c:1") as (_, found):
        await found["a:1"].addresses.announce(["b:1"])
        assert found["b:1"].told == [], "no master tells nothing"
        found["a:1"].master = MASTER
        with trio.fail_after(2):
            await found["a:1"].addresses.announce(["a:1", "lost:1", "b:1", "c:1"])
        assert found["b:1"].told == found["c:1"].told == [MASTER]
        assert found["a:1"].told == []


async def test_who_is_no_master_answers_with_nothing_and_bad_numbers_are_refused(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with nodes("a:1") as (made, found), open_client(connector=made.connect) as client:
        answer = await client.call("a:1", request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequest()))
        assert ExchangeHAInfoResponse.from_ext(answer.ext) == ExchangeHAInfoResponse()
        bad = request(RequestCode.EXCHANGE_BROKER_HA_INFO)
        bad.ext = {"masterHaAddress": "x:2", "masterFlushOffset": "many"}
        answer = await client.call("a:1", bad)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "masterFlushOffset" in answer.remark
        assert found["a:1"].told == []
