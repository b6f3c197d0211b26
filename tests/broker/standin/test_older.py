"""Name servers before RocketMQ 5 beside later ones: heartbeats and questions that each of them knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from broker.acting.members import Group
from broker.acting.right import ActingRight, MasterRight, Right
from broker.registration import Registration, RegistrationConfig
from broker.standin.part import ActingConfig, ActingPart
from harness.simulation.worlds.brokers import now_ns, until
from harness.simulation.worlds.streams import net
from remoting.bodies.namesrv import BrokerData, TopicRouteData
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from tests.broker.test_registration import NameServer, World

OWN = "10.0.0.1:10911"
V4_9_7 = 407
MS = 1_000_000


@attrs.define(eq=False)
class Answering(NameServer):
    """Of RocketMQ 5: heartbeats are answered. ``codes``: how often each was asked."""

    codes: Counter[int] = attrs.field(factory=Counter)

    def handlers(self) -> dict[int, Handler]:
        def counted(code: int, handler: Handler) -> Handler:
            def answer(connection: Connection, command: Command) -> object:
                self.codes[code] += 1
                return handler(connection, command)

            return answer  # type: ignore[return-value]

        return {code: counted(code, handler) for code, handler in {
            **super().handlers(), RequestCode.BROKER_HEARTBEAT: lambda _, command: response(command),
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._members_by_route}.items()}

    def _members_by_route(self, _: Connection, command: Command) -> Command:
        if command.ext["topic"] != "rmq_sys_SYNC_BROKER_MEMBER_a" or not self.members:
            return response(command, ResponseCode.TOPIC_NOT_EXIST)
        return response(command, body=TopicRouteData([], [
            BrokerData("a", "c", dict(self.members)), BrokerData("b", "c", {0: "b:1"})]).to_json())


class Older(Answering):
    """Of RocketMQ 4: others codes are answered with 3."""

    def handlers(self) -> dict[int, Handler]:
        known = super().handlers()
        del known[RequestCode.BROKER_HEARTBEAT], known[RequestCode.GET_BROKER_MEMBER_GROUP]
        return known


async def _silent(_: Connection, command: Command) -> Command:
    await trio.sleep_forever()
    raise AssertionError


class Silent(Older):
    """Of RocketMQ 4.9: requests of other codes are not answered at all. Its answers have its version."""

    def handlers(self) -> dict[int, Handler]:
        def with_version(handler: Handler) -> Handler:
            def answer(connection: Connection, command: Command) -> object:
                answered = handler(connection, command)
                if isinstance(answered, Command):
                    answered.version = V4_9_7
                return answered

            return answer  # type: ignore[return-value]

        return {**{code: with_version(handler) for code, handler in super().handlers().items()},
                RequestCode.BROKER_HEARTBEAT: _silent, RequestCode.GET_BROKER_MEMBER_GROUP: _silent}


KINDS = pytest.mark.parametrize("kind", [Older, Silent])


@asynccontextmanager
async def acting(
    kind: type[Answering] = Older, *, compatible: bool = True, slave: int = 0, heartbeat_ms: int = 1_000,
) -> AsyncGenerator[tuple[Answering, Answering, Group, Right, Registration], None]:
    """One that acts as master, or is that slave."""
    config = RegistrationConfig(
        enable_slave_acting_master=True, compatible_with_old_name_srv=compatible,
        send_heartbeat_timeout_millis=heartbeat_ms)
    async with net() as made, open_client(connector=made.connect) as client:
        new, old = Answering(members={0: OWN}), kind(members={0: OWN})
        here = World(made, {"n:1": new, "o:1": old})
        for name in here.servers:
            await here.serve(name)
        registration = Registration(
            config, ["n:1", "o:1"], client, here.standing, ha_address="10.0.0.1:10912", topics=lambda: here.wrapper,
            now_ns=now_ns)
        group, right = Group(), (
            ActingRight(slave, OWN, timeout_ns=10_000 * MS, right_ns=3_000 * MS) if slave
            else MasterRight(OWN, timeout_ns=10_000 * MS, right_ns=3_000 * MS))
        part = ActingPart(ActingConfig(), group, right, registration, client, here.standing, lambda: None, now_ns)
        await made.nursery.start(registration.run)
        await made.nursery.start(part.run)
        registration.open()
        yield new, old, group, right, registration


@KINDS
async def test_each_is_asked_by_what_it_knows(kind: type[Older], autojump_clock: trio.abc.Clock) -> None:
    async with acting(kind) as (new, old, group, right, _):
        await trio.sleep(20.5)
        assert new.seen[0][1].enable_acting_master
        assert (new.codes[RequestCode.BROKER_HEARTBEAT], new.codes[RequestCode.QUERY_DATA_VERSION]) == (20, 0)
        assert new.codes[RequestCode.GET_ROUTEINFO_BY_TOPIC] == 0
        assert old.codes[RequestCode.QUERY_DATA_VERSION] == 20
        assert old.codes[RequestCode.GET_ROUTEINFO_BY_TOPIC] >= 18
        assert group.members.addresses == {0: OWN}
        assert right.why_not(now_ns()) == ""
        new.members = {}
        await trio.sleep(20)
        assert right.why_not(now_ns()) == "", "the older one is half of them"
        old.members = {}
        await until(lambda: right.why_not(now_ns()), within_s=2)


@KINDS
async def test_it_is_registered_again_at_once_where_it_is_no_longer_listed(
        kind: type[Older], autojump_clock: trio.abc.Clock) -> None:
    async with acting(kind) as (new, old, _, _right, _registration):
        await trio.sleep(10)
        assert len(new.seen) == len(old.seen) == 1
        for server in (new, old):
            server.members = {1: "10.0.0.2:10911"}
            await until(lambda server=server: len(server.seen) > 1, within_s=2)  # type: ignore[misc]
            server.members = {0: OWN, 1: "10.0.0.2:10911"}
        await trio.sleep(10)
        assert len(new.seen) == len(old.seen) == 2


class Hung(Answering):
    """A name server of today that answers no heartbeat: it is not taken for an older one."""

    def handlers(self) -> dict[int, Handler]:
        async def hangs(connection: Connection, command: Command) -> Command:
            self.codes[command.code] += 1
            return await _silent(connection, command)

        return {**super().handlers(), RequestCode.BROKER_HEARTBEAT: hangs, RequestCode.GET_BROKER_MEMBER_GROUP: _silent}


async def test_a_heartbeat_is_waited_for_so_long_and_silence_alone_is_no_age(autojump_clock: trio.abc.Clock) -> None:
    async with acting(Hung, heartbeat_ms=250) as (new, hung, _, _right, registration):
        await trio.sleep(10.9)
        assert hung.codes[RequestCode.BROKER_HEARTBEAT] == 8, "each takes a second, and a quarter until it is given up"
        assert (hung.codes[RequestCode.QUERY_DATA_VERSION], new.codes[RequestCode.BROKER_HEARTBEAT]) == (0, 10)
        assert not any(server.is_old for server in registration.name_servers)
        new.members = {1: "10.0.0.2:10911"}
        assert await registration.ask_all() == new.members, "its route is not asked for"


@KINDS
async def test_before_a_master_is_found_older_ones_are_asked_for_its_group(
        kind: type[Older], autojump_clock: trio.abc.Clock) -> None:
    async with acting(kind, slave=1) as (new, old, _, _right, registration):
        new.members, old.members = {1: OWN}, {0: "10.0.0.9:10911", 1: OWN}
        assert await registration.ask_all() == {0: "10.0.0.9:10911", 1: OWN}


async def test_without_compatibility_older_ones_count_as_lost(
        autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with acting(compatible=False) as (_, old, _, right, registration):
        await trio.sleep(20.5)
        assert old.codes.keys() == {RequestCode.REGISTER_BROKER}
        assert [server.beaten_ns is None for server in registration.name_servers] == [False, True]
        assert any("no sign of life sent" in getattr(each, "why", "") for each in caplog.records)
        assert right.why_not(now_ns()) == "", "the other one is half of them"


@KINDS
async def test_older_ones_say_that_a_master_is_away(kind: type[Older], autojump_clock: trio.abc.Clock) -> None:
    """They show clients no slave in its place, and what is due is delivered all the same."""
    async with acting(kind, slave=1) as (new, old, _, right, _):
        new.members = old.members = {0: "10.0.0.9:10911", 1: OWN}
        await trio.sleep(20)
        assert right.why_not(now_ns())
        old.members = {1: OWN}
        await trio.sleep(20)
        assert right.why_not(now_ns()), "half of them are too few"
        new.members = {1: OWN}
        await until(lambda: not right.why_not(now_ns()), within_s=5)
        assert old.codes[RequestCode.GET_ROUTEINFO_BY_TOPIC] >= 18
        for _ in range(70):  # also while it registers, every 30 s
            await trio.sleep(1)
            assert not right.why_not(now_ns())
        old.members = {0: "10.0.0.9:10911", 1: OWN}
        await until(lambda: right.why_not(now_ns()), within_s=2)
