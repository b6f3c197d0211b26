"""Who is master: as controllers say, and where none answers, as that broker itself says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest

from broker.relay.finding import Listed, Master, MasterFinder
from harness.simulation.worlds.streams import Net, net
from remoting.bodies.controller import (
    BrokerMemberGroup,
    EpochEntry,
    EpochEntryCache,
    GetBrokerMemberGroupResponseBody,
)
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.controller import GetReplicaInfoResponse
from remoting.server import Server

CONTROLLERS = ("c1:9877", "c2:9877")
MEMBERS = {0: "a:10911", 2: "b:10911", 3: "c:10911"}


@attrs.define(eq=False)
class World:
    """``finder`` is that of broker a, which knows of epoch 5."""

    net: Net
    finder: MasterFinder
    least_epoch: int | None = 5
    asked: list[str] = attrs.field(factory=list)

    async def serve(self, address: str, code: int, answer: Command | bytes) -> None:
        def handle(_: Connection, command: Command) -> Command:
            self.asked.append(address)
            if isinstance(answer, bytes):
                return response(command, body=answer)
            return attrs.evolve(response(command, answer.code), ext=answer.ext)

        handlers: dict[int, Handler] = {code: handle}
        await self.net.serve(address, Server(handlers))

    async def controller(self, address: str, said: GetReplicaInfoResponse | None) -> None:
        """None: it is not the active one."""
        code = ResponseCode.CONTROLLER_NOT_LEADER if said is None else ResponseCode.SUCCESS
        await self.serve(address, RequestCode.CONTROLLER_GET_REPLICA_INFO,
                         Command(code, ext={} if said is None else said.to_ext()))

    async def name_server(self, address: str, members: dict[int, str]) -> None:
        group = BrokerMemberGroup("DefaultCluster", "broker-a", members)
        await self.serve(
            address, RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupResponseBody(group).to_json())

    async def broker(self, address: str, broker_id: int, *epochs: int, name: str = "broker-a") -> None:
        entries = [EpochEntry(epoch, 100 * epoch) for epoch in epochs]
        await self.serve(address, RequestCode.GET_BROKER_EPOCH_CACHE,
                         EpochEntryCache("DefaultCluster", name, broker_id, entries, 900).to_json())


@asynccontextmanager
async def world() -> AsyncGenerator[World, None]:
    async with net() as made, open_client(connector=made.connect) as client:
        found = World(made, MasterFinder(client, CONTROLLERS, "broker-a"))
        found.finder.listed = Listed(("n1:9876", "n2:9876"), "DefaultCluster", "a:10911", lambda: found.least_epoch)
        yield found


async def test_what_a_controller_says_is_taken_and_nobody_else_is_asked() -> None:
    async with world() as w:
        await w.controller("c1:9877", None)
        await w.controller("c2:9877", GetReplicaInfoResponse(2, "b:10911", 6))
        await w.name_server("n1:9876", MEMBERS)
        assert await w.finder.find() == Master("b:10911", 6)
        assert await w.finder.find() == Master("b:10911", 6)
        assert w.asked == ["c1:9877", "c2:9877", "c2:9877"], "who answered last is asked first"


async def test_a_group_without_a_master_has_none_whatever_brokers_say() -> None:
    async with world() as w:
        await w.controller("c1:9877", GetReplicaInfoResponse())
        await w.name_server("n1:9876", MEMBERS)
        await w.broker("b:10911", 0, 6)
        assert await w.finder.find() is None
        assert w.asked == ["c1:9877"]


async def test_without_controllers_who_says_that_it_is_master_of_the_latest_epoch_is_believed() -> None:
    async with world() as w:
        await w.name_server("n2:9876", MEMBERS)
        await w.broker("b:10911", 0, 1, 6)
        await w.broker("c:10911", 0, 1, 7)
        assert await w.finder.find() == Master("c:10911", 7)
        assert w.asked[0] == "n2:9876"
        assert "a:10911" not in w.net.dialled, "not itself"


@pytest.mark.parametrize(("broker_id", "epochs", "name", "least"), [
    (0, (1, 4), "broker-a", 5), (2, (1, 6), "broker-a", 5), (0, (6,), "broker-b", 5), (0, (), "broker-a", 0),
    (0, (6,), "broker-a", None),
], ids=["deposed long ago", "a slave", "another group's", "of no epoch", "its own epoch is not known"])
async def test_who_is_not_believed(broker_id: int, epochs: tuple[int, ...], name: str, least: int | None) -> None:
    async with world() as w:
        w.least_epoch = least
        await w.name_server("n1:9876", MEMBERS)
        await w.broker("b:10911", broker_id, *epochs, name=name)
        assert await w.finder.find() is None


async def test_answers_that_cannot_be_read_are_passed_over() -> None:
    async with world() as w:
        await w.serve("c1:9877", RequestCode.CONTROLLER_GET_REPLICA_INFO,
                      Command(ResponseCode.SUCCESS, ext={"masterEpoch": "x"}))
        await w.serve("n1:9876", RequestCode.GET_BROKER_MEMBER_GROUP, b"[")
        await w.name_server("n2:9876", MEMBERS)
        await w.serve("b:10911", RequestCode.GET_BROKER_EPOCH_CACHE, b"{}{")
        await w.broker("c:10911", 0, 5)
        assert await w.finder.find() == Master("c:10911", 5)
