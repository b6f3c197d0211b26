"""A broker towards name servers that are a few lines each, on memory streams and virtual time."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from broker.haaddress import MasterAddress
from broker.registration import Registration, RegistrationConfig
from broker.standing import Role, Standing
from harness.simulation.worlds.brokers import until
from harness.simulation.worlds.streams import Net, net
from remoting.bodies.controller import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from remoting.bodies.namesrv import (
    DataVersion,
    KVTable,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.controller import BrokerHeartbeatRequest
from remoting.headers.namesrv import (
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)
from remoting.server import Server


@attrs.define(eq=False)
class NameServer:
    """Remembers what it was told; ``code`` is its answer to a registration."""

    code: int = ResponseCode.SUCCESS
    master: RegisterBrokerResponse = RegisterBrokerResponse()
    ordered: KVTable | None = None
    members: dict[int, str] = attrs.field(factory=dict)
    seen: list[tuple[float, RegisterBrokerRequest, RegisterBrokerBody]] = attrs.field(factory=list)
    beats: list[BrokerHeartbeatRequest] = attrs.field(factory=list)
    gone: list[UnregisterBrokerRequest] = attrs.field(factory=list)
    asked: int = 0

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.REGISTER_BROKER: self._register, RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.BROKER_HEARTBEAT: self._beat, RequestCode.QUERY_DATA_VERSION: self._version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._members, RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route}

    def _register(self, _: Connection, command: Command) -> Command:
        header = RegisterBrokerRequest.from_ext(command.ext)
        assert header.body_crc32 == zlib.crc32(command.body) & 0x7FFFFFFF
        self.seen.append((trio.current_time(), header, RegisterBrokerBody.decode(
            command.body, compressed=header.compressed)))
        if self.code:
            return response(command, self.code, remark="not now")
        return response(command, header=self.master, body=self.ordered.to_json() if self.ordered else b"")

    def _unregister(self, _: Connection, command: Command) -> Command:
        self.gone.append(UnregisterBrokerRequest.from_ext(command.ext))
        return response(command)

    def _beat(self, _: Connection, command: Command) -> None:
        assert command.is_oneway
        self.beats.append(BrokerHeartbeatRequest.from_ext(command.ext))

    def _version(self, _: Connection, command: Command) -> Command:
        self.asked += 1
        last = self.seen[-1][2].topic_config_serialize_wrapper.data_version
        changed = DataVersion.from_json(command.body) != last
        return response(command, header=QueryDataVersionResponse(changed))

    def _members(self, _: Connection, command: Command) -> Command:
        group = BrokerMemberGroup("c", "a", dict(self.members))
        return response(command, body=GetBrokerMemberGroupResponseBody(group).to_json())

    @staticmethod
    def _route(_: Connection, command: Command) -> Command:
        if command.ext["topic"] != "T":
            return response(command, ResponseCode.TOPIC_NOT_EXIST)
        return response(command, body=TopicRouteData(
            [QueueData("a", 2, 2, 6), QueueData("b", 1, 1, 4), QueueData("c", 3, 3, 2)]).to_json())


@attrs.define(eq=False)
class World:
    net: Net
    servers: dict[str, NameServer]
    standing: Standing = attrs.field(factory=lambda: Standing("c", "a", "10.0.0.1:10911"))
    wrapper: TopicConfigSerializeWrapper = TopicConfigSerializeWrapper(
        {"T": TopicConfig("T"), "U": TopicConfig("U")}, DataVersion(0, 1, 1))
    found: list[MasterAddress] = attrs.field(factory=list)
    ordered: list[str] = attrs.field(factory=list)
    groups: list[Mapping[int, str]] = attrs.field(factory=list)

    def __getitem__(self, name: str) -> NameServer:
        return self.servers[name]

    async def serve(self, name: str) -> None:
        await self.net.serve(name, Server(self.servers[name].handlers()))

    def change(self) -> None:
        """A topic is another."""
        version = attrs.evolve(self.wrapper.data_version, counter=self.wrapper.data_version.counter + 1)
        self.wrapper = attrs.evolve(self.wrapper, data_version=version)


@asynccontextmanager
async def world(
    *names: str, config: RegistrationConfig | None = None, lost: str = "", members: bool = False,
) -> AsyncGenerator[tuple[World, Registration], None]:
    async with net() as made, open_client(connector=made.connect) as client:
        here = World(made, {name: NameServer() for name in names})
        for name in names:
            await here.serve(name)
        registration = Registration(
            config or RegistrationConfig(), [*([lost] if lost else []), *names], client, here.standing,
            ha_address="10.0.0.1:10912", topics=lambda: here.wrapper, found=here.found.append,
            ordered=here.ordered.extend, grouped=here.groups.append, members=members)
        await made.nursery.start(registration.run)
        yield here, registration


async def test_nothing_is_registered_before_there_is_a_role(autojump_clock: trio.abc.Clock) -> None:
    async with world("n:1") as (here, registration):
        registration.changed()
        await trio.sleep(100)
        assert not here["n:1"].seen
        assert not here["n:1"].beats
        registration.open()
        await until(lambda: here["n:1"].seen)
        _, header, body = here["n:1"].seen[0]
        assert (header.broker_name, header.broker_addr, header.broker_id) == ("a", "10.0.0.1:10911", 0)
        assert (header.ha_server_addr, header.enable_acting_master) == ("10.0.0.1:10912", False)
        assert header.heartbeat_timeout_millis == 10_000
        assert body.topic_config_serialize_wrapper == here.wrapper


async def test_changes_go_out_at_once_and_the_rest_now_and_then(autojump_clock: trio.abc.Clock) -> None:
    async with world("n:1", "n:2") as (here, registration):
        registration.open()
        await until(lambda: len(registration.registered) == 2)
        begun = trio.current_time()
        here.standing.role = Role.slave(2)
        registration.changed()
        registration.changed()
        await until(lambda: all(len(server.seen) == 2 for server in here.servers.values()), within_s=1)
        assert here["n:1"].seen[1][1].broker_id == 2
        await trio.sleep(100)
        assert [round(at - begun) for at, _, _ in here["n:2"].seen[1:]] == [0, 30, 60, 90]


async def test_a_role_is_registered_once_and_what_name_servers_said_of_it_is_not_told_them(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Two of them that name two masters would be asked for ever, one answer after the other."""
    async with world("n:1", "n:2") as (here, registration):
        for role in (Role.slave(2), Role.slave(2, master_address="a:1"), Role.slave(2, master_address="b:1")):
            registration.role_changed(role)
            await trio.sleep(5)
        assert [len(server.seen) for server in here.servers.values()] == [1, 1]
        registration.role_changed(Role.master(3))
        await trio.sleep(5)
        assert [len(server.seen) for server in here.servers.values()] == [2, 2]
        registration.role_changed(Role.vacant(0, 3))
        await registration.leave()
        registration.role_changed(Role.master(3))
        await trio.sleep(5)
        assert [len(server.seen) for server in here.servers.values()] == [3, 3]


async def test_a_lost_name_server_delays_nobody(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture,
) -> None:
    async with world("n:1", lost="x:1") as (here, registration):
        registration.open()
        await until(lambda: here["n:1"].seen, within_s=1)
        await trio.sleep(120)
        assert registration.registered == ["n:1"]
        assert caplog.text.count("not registered") == 1, "told once"
        here.servers["x:1"] = NameServer()
        await here.serve("x:1")
        await until(lambda: here["x:1"].seen, within_s=2)


async def test_a_name_server_that_refuses_is_asked_again(autojump_clock: trio.abc.Clock) -> None:
    async with world("n:1") as (here, registration):
        here["n:1"].code = ResponseCode.SYSTEM_ERROR
        registration.open()
        await trio.sleep(10)
        assert 5 < len(here["n:1"].seen) < 15
        assert registration.registered == []
        here["n:1"].code = ResponseCode.SUCCESS
        await until(lambda: registration.registered, within_s=2)


async def test_without_force_a_name_server_that_has_this_version_is_left_alone(
    autojump_clock: trio.abc.Clock,
) -> None:
    config = RegistrationConfig(force_register=False, compressed_register=True)
    async with world("n:1", config=config) as (here, registration):
        registration.open()
        await until(lambda: registration.registered)
        await trio.sleep(65)
        assert (here["n:1"].asked, len(here["n:1"].seen)) == (2, 1)
        assert here["n:1"].seen[0][1].compressed
        here.change()
        await trio.sleep(30)
        assert (here["n:1"].asked, len(here["n:1"].seen)) == (3, 2)


async def test_signs_of_life_and_how_long_silence_may_last(autojump_clock: trio.abc.Clock) -> None:
    async with world("n:1", config=RegistrationConfig(enable_controller_mode=True)) as (here, registration):
        registration.open()
        await trio.sleep(10.5)
        assert len(here["n:1"].beats) == 10
        assert here["n:1"].beats[0].heartbeat_timeout_ms == 10_000
        assert here["n:1"].seen[0][1].heartbeat_timeout_millis == 10_000


async def test_slaves_hear_of_their_master_and_all_of_ordered_topics(autojump_clock: trio.abc.Clock) -> None:
    async with world("n:1") as (here, registration):
        here["n:1"].master = RegisterBrokerResponse("10.0.0.2:10912", "10.0.0.2:10911")
        here["n:1"].ordered = KVTable({"T": "a:4"})
        registration.open()
        await until(lambda: registration.registered)
        assert (here.found, here.ordered) == ([], ["T"])
        here.standing.role = Role.slave(1)
        registration.changed()
        await until(lambda: here.found)
        assert here.found == [MasterAddress("10.0.0.2:10911", "10.0.0.2:10912")]


async def test_who_lives_in_the_group(autojump_clock: trio.abc.Clock) -> None:
    async with world("n:1", lost="x:1", members=True) as (here, registration):
        here["n:1"].members = {0: "10.0.0.1:10911", 2: "10.0.0.2:10911"}
        await trio.sleep(20)
        assert here.groups == [{0: "10.0.0.1:10911", 2: "10.0.0.2:10911"}]
        assert registration.members == here.groups[0]


async def test_queues_of_a_topic_on_all_brokers_that_may_be_read(autojump_clock: trio.abc.Clock) -> None:
    async with world("n:1", lost="x:1") as (_, registration):
        queues = await registration.queues_of("T")
        assert queues is not None
        assert [(queue.broker_name, queue.queue_id) for queue in queues] == [("a", 0), ("a", 1), ("b", 0)]
        assert await registration.queues_of("unknown") is None


async def test_a_farewell_to_all_that_are_there(autojump_clock: trio.abc.Clock) -> None:
    async with world("n:1", "n:2", lost="x:1") as (here, registration):
        await registration.leave()
        assert here["n:1"].gone == [], "it never came"
        registration.open()
        await until(lambda: len(registration.registered) == 2)
        with trio.fail_after(4):
            await registration.leave()
        assert here["n:1"].gone == here["n:2"].gone == [
            UnregisterBrokerRequest("a", "10.0.0.1:10911", "c", 0)]
        registration.changed()
        await trio.sleep(100)
        assert len(here["n:1"].seen) == 1
