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


@asynccontextmanager
async def acting(*, compatible: bool = True, slave: int = 0) -> AsyncGenerator[
        tuple[Answering, Older, Group, Right, Registration], None]:
    """One that acts as master, or is that slave."""
    config = RegistrationConfig(enable_slave_acting_master=True, compatible_with_old_name_srv=compatible)
    async with net() as made, open_client(connector=made.connect) as client:
        new, old = Answering(members={0: OWN}), Older(members={0: OWN})
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


async def test_each_is_asked_by_what_it_knows(autojump_clock: trio.abc.Clock) -> None:
    async with acting() as (new, old, group, right, _):
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
        assert len(old.seen) > 1, "it is registered again where it is no longer listed"


async def test_without_compatibility_older_ones_count_as_lost(
        autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with acting(compatible=False) as (_, old, _, right, registration):
        await trio.sleep(20.5)
        assert old.codes.keys() == {RequestCode.REGISTER_BROKER}
        assert [server.beaten_ns is None for server in registration.name_servers] == [False, True]
        assert any("no sign of life sent" in getattr(each, "why", "") for each in caplog.records)
        assert right.why_not(now_ns()) == "", "the other one is half of them"


async def test_older_ones_say_that_a_master_is_away(autojump_clock: trio.abc.Clock) -> None:
    """They show clients no slave in its place, and what is due is delivered all the same."""
    async with acting(slave=1) as (new, old, _, right, _):
        new.members = old.members = {0: "10.0.0.9:10911", 1: OWN}
        await trio.sleep(20)
        assert right.why_not(now_ns())
        old.members = {1: OWN}
        await trio.sleep(20)
        assert right.why_not(now_ns()), "half of them are too few"
        new.members = {1: OWN}
        await until(lambda: not right.why_not(now_ns()), within_s=5)
        assert old.codes[RequestCode.GET_ROUTEINFO_BY_TOPIC] >= 18
        old.members = {0: "10.0.0.9:10911", 1: OWN}
        await until(lambda: right.why_not(now_ns()), within_s=2)
