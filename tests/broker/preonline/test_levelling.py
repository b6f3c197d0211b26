"""Whole groups without controllers: what a member does before clients may find it, and what hinders it."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from broker.ha.config import HaConfig
from broker.preonline.levelling import Levelling
from broker.preonline.steps import Phase
from broker.roles import PlainMasterRole, PlainSlaveRole
from broker.schedule.part import DelaysPart
from broker.store.tables import ConsumerOffsets, DelayOffsets
from broker.timer.checkpoint import TimerCheckpoint
from broker.timer.part import TimersPart
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until, wall_ms
from harness.simulation.worlds.streams import net
from remoting.bodies.consumers import MessageRequestMode, MessageRequestModes
from remoting.bodies.namesrv import DataVersion
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.errors import RequestTimeout
from remoting.headers.consumers import CloneGroupOffsetRequest
from remoting.headers.pulling import (
    COMMIT_OFFSET,
    SUBSCRIPTION,
    PullMessageRequest,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from remoting.server import Server
from tests.broker.ha.group import log_of

ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": "2", "slaveReadEnable": "true"}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


async def pair(made: Cluster, **settings: str) -> tuple[Node, Node]:
    """A master with a message in T, and its slave."""
    master = await made.node(**ACTING, **settings)
    await until(lambda: master.serves)
    slave = await made.node(**ACTING, **SLAVE, **settings)
    await until(lambda: slave.broker.standing.role.listed)
    for number in range(10):
        assert (await made.send(master.address, b"%d" % number)).code == ResponseCode.SUCCESS
    master.groups.find("G")
    await until(lambda: slave.broker.journal.end == master.broker.journal.end and slave.groups.get("G"))
    return master, slave


def problem(node: Node) -> str:
    role = node.broker.roles
    assert isinstance(role, (PlainMasterRole, PlainSlaveRole)) and role.levelling is not None
    return "" if role.levelling.phase is Phase.ONLINE else role.levelling.problem or role.levelling.phase.value


async def hindered(node: Node, words: str) -> None:
    await until(lambda: words in problem(node))
    assert not node.serves and not node.broker.registration.is_open
    assert words in node.broker.parts.runtime_info()["preOnlineWaitsFor"]


async def test_what_consumers_said_to_the_slave_is_not_lost(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        master.offsets.commit("G", "T", 0, 3)
        await trio.sleep(20)
        assert slave.offsets.query("G", "T", 0) == 3
        await master.kill()
        slave.offsets.commit("G", "T", 0, 7)
        slave.offsets.commit("G", "T", 1, 99)
        slave.groups.find("H")
        slave.topics.create_if_absent("New", 3)
        await master.start()
        assert not master.serves, "it asks first"
        answer = await made.ask(master.address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert str(answer.remark).startswith("this master is not back yet: it ")
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 7
        assert master.offsets.query("G", "T", 1) is None, "the queue has no message"
        assert master.groups.get("H") and master.topics.get("New")
        await trio.sleep(20)
        assert slave.offsets.query("G", "T", 0) == 7, "nor when the slave follows again"
        await made.wait_route("T", {0: master.address, 1: slave.address})


async def versions(made: Cluster, slave: Node) -> list[DataVersion]:
    """Those of the slave's positions of groups and of delay levels, as a master is told them."""
    offsets = await made.ask(slave.address, RequestCode.GET_ALL_CONSUMER_OFFSET)
    delays = await made.ask(slave.address, RequestCode.GET_ALL_DELAY_OFFSET)
    return [ConsumerOffsets.from_json(offsets.body).data_version, DelayOffsets.from_json(delays.body).data_version]


async def test_a_master_of_rocketmq_takes_what_its_acting_slave_knows(autojump_clock: MockClock) -> None:
    """It takes a table whose version is not older than its own, which may begin anew when it starts."""
    async with cluster() as made:
        master, slave = await pair(made, enableRemoteEscape="true")
        other = await made.node(brokerName="b")
        await made.send(other.address, b"there too")
        await made.send(master.address, b"late", properties="DELAY\x015\x02")  # a minute
        await trio.sleep(20)
        before = await versions(made, slave)
        await master.kill()
        assert await versions(made, slave) == before, "it knows no more than its master"
        await trio.sleep(60)
        slave.offsets.commit("G", "T", 0, 7)
        started = DataVersion(0, wall_ms(), 0)
        for then, now in zip(before, await versions(made, slave), strict=True):
            assert started.precedes(now)
            assert DataVersion(0, wall_ms() + 60_000, then.counter + 100).precedes(now), "copies lag"
        await master.start()
        await until(lambda: master.serves)
        assert (await versions(made, master))[0].counter < 100, "our master is told the version, too"
        await trio.sleep(20)
        assert await versions(made, slave) == await versions(made, master), "it follows again"


@pytest.mark.parametrize("lost", ["tail", "disk"])
async def test_a_log_that_ends_early_is_completed_first(lost: str, autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        whole = log_of(slave.broker.journal)
        await master.kill()  # and what was not synced is lost
        if lost == "disk":
            master.store.content.clear()
        await master.start()
        assert len(log_of(master.broker.journal)) < len(whole)
        await until(lambda: master.serves)
        assert log_of(master.broker.journal) == whole
        assert (await made.pull(master.address)).ext["nextBeginOffset"] == "10"
        await made.send(master.address, b"more")
        await until(lambda: log_of(slave.broker.journal) == log_of(master.broker.journal) != whole)


async def test_logs_that_differ_keep_the_master_away(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await slave.stop()
        await master.kill()
        master.store.content.clear()
        await master.start()
        await until(lambda: master.serves)
        await made.send(master.address, b"another history")
        await master.stop()
        await slave.start()
        await until(lambda: slave.broker.registration.registered)
        await master.start()
        await hindered(master, "differ before that")


async def test_a_member_without_timers_does_not_keep_the_master_away(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await slave.stop()
        slave.settings["timerWheelEnable"] = "false"
        await slave.start()
        await until(lambda: slave.broker.registration.registered)
        await master.kill()
        await master.start()
        await until(lambda: master.serves)


async def test_a_member_that_cannot_connect_keeps_the_master_away_in_words(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        await master.kill()
        master.settings["haListenPort"] = "19999"  # where nobody listens in this world
        await master.start()
        await hindered(master, "no connection of member 1 at 10.0.0.2:10911 to 10.0.0.1:19999")
        await slave.stop()
        await until(lambda: master.serves)


async def test_positions_of_groups_are_neither_taken_nor_told_until_the_members_are_read(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients that still take it for the master said an older offset, and a member's table undid what was answered. Who
    asks gets no error: by that, an older RocketMQ consumer takes its group for a new one."""
    async with cluster() as made:
        master, slave = await pair(made)
        master.offsets.commit("G", "T", 0, 5)
        await trio.sleep(20)
        await master.kill()
        master.settings["haListenPort"] = "19999"  # where nobody listens in this world
        await master.start()
        await hindered(master, "no connection of member 1")
        for code, header in (
                (RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest("G", "T", 0, 2)),
                (RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequest("G", "H", "T", offline=True))):
            answer = await made.ask(master.address, code, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert str(answer.remark).startswith("this master is not back yet: ")
        pulled = await made.ask(master.address, RequestCode.PULL_MESSAGE, PullMessageRequest(
            "G", "T", 0, 2, 1, COMMIT_OFFSET | SUBSCRIPTION, 2, 0, "*"))
        assert pulled.code == ResponseCode.SUCCESS, "slaveReadEnable"
        assert (await made.send(master.address, b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await made.ask(master.address, RequestCode.POP_MESSAGE)).code == ResponseCode.SYSTEM_BUSY
        assert master.offsets.query("G", "T", 0) == 5 and master.offsets.query("H", "T", 0) is None
        with pytest.raises(RequestTimeout):
            await made.ask(master.address, RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest("G", "T", 0))
        monkeypatch.setattr("broker.preonline.levelling.ANSWER_S", 25.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slave.stop)
            answer = await made.ask(
                master.address, RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest("G", "T", 0))
        assert (answer.code, answer.ext["offset"]) == (ResponseCode.SUCCESS, "5") and master.serves
        answer = await made.ask(master.address, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest(
            "G", "T", 0, 2))
        assert answer.code == ResponseCode.SUCCESS and master.offsets.query("G", "T", 0) == 2


@pytest.mark.parametrize("part_s", [0.1, 0.4, 0.7])
@pytest.mark.parametrize("first", ["master", "name server"])
async def test_a_name_server_that_has_just_started_does_not_hide_the_slave(
        first: str, part_s: float, autojump_clock: MockClock) -> None:
    """It lists nobody until the slave registers again, which may be after the master's question."""
    async with cluster() as made:
        master, slave = await pair(made)
        await trio.sleep(15)  # logs are synced
        await master.kill()
        slave.offsets.commit("G", "T", 0, 7)
        await made.kill_namesrv()
        await trio.sleep(5 + part_s)
        if first == "master":
            await master.start()
            await hindered(master, "no name server tells the members")
            await trio.sleep(part_s)
        await made.start_namesrv()
        if first == "name server":
            await master.start()
        await until(lambda: master.serves)
        assert master.offsets.query("G", "T", 0) == 7


async def test_who_is_alone_waits_for_nobody(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        slave = await made.node(**ACTING, **SLAVE)
        await until(lambda: slave.broker.standing.role.listed)
        await made.kill_namesrv()
        master = await made.node(**ACTING)
        await hindered(master, "no name server tells the members")
        await made.start_namesrv()
        await until(lambda: master.serves)


@pytest.mark.parametrize("settings", [{"skipPreOnline": "true"}, {"totalReplicas": "1"}])
async def test_who_need_not_ask_leads_at_once(settings: dict[str, str], autojump_clock: MockClock) -> None:
    async with cluster() as made:
        assert (await made.node(**{**ACTING, **settings})).serves


async def test_delays_timers_and_modes_go_on_where_the_slave_is(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        master, slave = await pair(made)
        for _ in range(3):
            await made.send(master.address, b"later", properties="DELAY\x0118\x02")  # in two hours
        await until(lambda: slave.broker.journal.end == master.broker.journal.end)
        await master.kill()
        parts = slave.broker.parts
        due_ms = parts[TimersPart].done_before_ms + 60_000
        (table,) = (each for each in parts[DelaysPart].tables())
        table.copy(DelayOffsets({18: 2, 1: 7}).to_json())
        parts[TimersPart].copies()[RequestCode.GET_TIMER_CHECK_POINT](TimerCheckpoint(read_time_ms=due_ms).body())
        (modes,) = (each for each in slave.clients.tables())
        modes.copy(MessageRequestModes({"T": {"G": MessageRequestMode("T", "G", "POP", 1)}}).to_json())
        await master.start()
        await until(lambda: master.serves)
        (levels,) = master.broker.parts[DelaysPart].tables()
        found = await made.ask(master.address, levels.code)
        assert DelayOffsets.from_json(found.body).offset_table == {18: 2}, "level 1 has no message"
        await until(lambda: master.broker.parts[TimersPart].done_before_ms >= due_ms // 1_000 * 1_000)
        found = await made.ask(master.address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        assert MessageRequestModes.from_json(found.body).message_request_mode_map["T"]["G"].mode == "POP"


@pytest.mark.parametrize(("offers", "asked"), [(None, [21]), ("61020", [21]), ("61021 61051", [21, 61_021])])
async def test_a_code_of_our_own_is_asked_of_a_member_that_offers_it(
    offers: str | None, asked: list[int], autojump_clock: MockClock,
) -> None:
    """Java's offer nothing, and are not asked."""
    heard, joined = list[int](), list[bytes]()

    def answer(_: Connection, command: Command) -> Command:
        heard.append(command.code)
        made = response(command, body=b"all")
        if offers is not None and command.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            made.ext["__QUORATE_CODES"] = offers
        return made

    async with net() as made, open_client(connector=made.connect) as client:
        await made.serve("m:1", Server(dict.fromkeys(asked, answer) | {61_021: answer}))
        levelling = Levelling(client, cast(Any, None), HaConfig(), made.connect, broker_id=0, address="m:0",
                              members=cast(Any, None), collect=cast(Any, None), registers_s=3.0)
        await levelling._join(1, "m:1", {61_021: joined.append, RequestCode.GET_ALL_TOPIC_CONFIG: joined.append})
        assert heard == asked and joined == [b"all"] * len(asked)
