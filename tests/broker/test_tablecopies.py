"""A slave's copy of its master's tables: at once, then now and then, each table on its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

from broker.groups.table import GroupsConfig, GroupTable
from broker.moments import WATCH
from broker.offsets.table import OffsetsConfig, OffsetTable
from broker.queueends.ends import GET_QUEUE_ENDS
from broker.standing import Role
from broker.store.tables import ConsumerOffsets, DelayOffsets, SubscriptionGroups
from broker.tablecopies import TableCopies
from broker.topics.table import TopicsConfig, TopicTable
from harness.simulation.worlds.brokers import cluster, until
from harness.simulation.worlds.streams import net
from remoting.bodies.consumers import MessageRequestModes
from remoting.bodies.namesrv import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from remoting.body import Body
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.server import Server

CODES = {
    RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigSerializeWrapper(
        {"T": TopicConfig("T"), "U": TopicConfig("U")}, DataVersion(3, 1, 5)),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroups(data_version=DataVersion(3, 1, 2)),
    RequestCode.GET_ALL_CONSUMER_OFFSET: ConsumerOffsets({"T@G": {0: 5}}),
    RequestCode.GET_ALL_DELAY_OFFSET: DelayOffsets({1: 9}),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: MessageRequestModes(),
}


@attrs.define(eq=False)
class MasterStub:
    """Answers with these tables; with SYSTEM_ERROR for codes in ``broken``, and garbage for those in ``garbled``."""

    tables: dict[RequestCode, Body] = attrs.field(factory=lambda: dict(CODES))
    broken: set[int] = attrs.field(factory=set)
    garbled: set[int] = attrs.field(factory=set)
    asked: list[int] = attrs.field(factory=list)

    def answer(self, _: Connection, command: Command) -> Command:
        self.asked.append(command.code)
        if command.code in self.broken:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="not now")
        if command.code in self.garbled:
            return response(command, body=b"{ no json")
        return response(command, body=self.tables[RequestCode(command.code)].to_json())


@attrs.define
class Copies:
    topics: TopicTable = attrs.field(factory=lambda: TopicTable(TopicsConfig(), lambda: 1))
    groups: GroupTable = attrs.field(factory=lambda: GroupTable(GroupsConfig(), lambda: 1))
    offsets: OffsetTable = attrs.field(factory=lambda: OffsetTable(OffsetsConfig(), lambda: 1))
    delays: DelayOffsets = DelayOffsets()
    modes: MessageRequestModes = attrs.field(factory=MessageRequestModes)

    def copy_delays(self, answer: bytes) -> None:
        self.delays = DelayOffsets.from_json(answer)

    def copy_modes(self, answer: bytes) -> None:
        self.modes = MessageRequestModes.from_json(answer)


@asynccontextmanager
async def slave(master: MasterStub) -> AsyncGenerator[tuple[TableCopies, Copies], None]:
    async with net() as made, open_client(connector=made.connect) as client:
        await made.serve("m:1", Server(dict.fromkeys(map(int, CODES), master.answer)))
        mine = Copies()
        sync = TableCopies(client, dict(zip(
            CODES, (mine.topics.copy, mine.groups.copy, mine.offsets.copy, mine.copy_delays, mine.copy_modes),
            strict=True)))
        await made.nursery.start(sync.run)
        yield sync, mine


async def test_all_tables_are_there_at_once_and_renewed(autojump_clock: trio.abc.Clock) -> None:
    master = MasterStub()
    async with slave(master) as (sync, mine):
        await trio.sleep(10)
        assert master.asked == [], "no master is followed yet"
        sync.follow("m:1")
        await until(lambda: sync.done, within_s=0.1)
        assert mine.topics.get("T") == TopicConfig("T")
        assert mine.topics.version == DataVersion(3, 1, 5)
        assert mine.groups.version == DataVersion(3, 1, 2)
        assert mine.offsets.query("G", "T", 0) == 5
        assert mine.delays.offset_table == {1: 9}
        master.tables[RequestCode.GET_ALL_CONSUMER_OFFSET] = ConsumerOffsets({"T@G": {0: 6}})
        await trio.sleep(4)
        assert mine.offsets.query("G", "T", 0) == 6
        sync.follow(None)
        count = len(master.asked)
        await trio.sleep(20)
        assert len(master.asked) == count


async def test_topics_of_the_same_version_are_left_alone(autojump_clock: trio.abc.Clock) -> None:
    master = MasterStub()
    async with slave(master) as (sync, mine):
        changes: list[int] = []
        mine.topics.on_change.join(WATCH, lambda: changes.append(1))
        sync.follow("m:1")
        await until(lambda: sync.done > 3)
        assert len(changes) == 1


@pytest.mark.parametrize("kind", ["broken", "garbled"])
async def test_one_table_that_cannot_be_had_keeps_back_no_other(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture, kind: str,
) -> None:
    master = MasterStub()
    getattr(master, kind).add(RequestCode.GET_ALL_TOPIC_CONFIG)
    async with slave(master) as (sync, mine):
        sync.follow("m:1")
        await trio.sleep(20)
        assert sync.done == 0
        assert mine.offsets.query("G", "T", 0) == 5
        assert mine.topics.get("T") is None
        assert caplog.text.count("tables not copied") == 1
        getattr(master, kind).clear()
        await until(lambda: mine.topics.get("T"), within_s=4)


async def test_a_master_without_topics_is_not_believed(autojump_clock: trio.abc.Clock) -> None:
    """Every master has system topics; one that tells of none has not loaded its own yet."""
    master = MasterStub()
    master.tables[RequestCode.GET_ALL_TOPIC_CONFIG] = TopicConfigSerializeWrapper()
    async with slave(master) as (sync, mine):
        before = dict(mine.topics.topics)
        sync.follow("m:1")
        await until(lambda: sync.done)
        assert mine.topics.topics == before


OWN = 61_021


@pytest.mark.parametrize(("offered", "asked"), [(None, 0), ("", 0), ("61020", 0), ("61020 61021", 3)])
async def test_a_code_of_our_own_is_asked_of_a_master_that_offers_it(
    offered: str | None, asked: int, autojump_clock: trio.abc.Clock,
) -> None:
    """Java's offers nothing, and is not asked."""
    master, copied = MasterStub(), list[bytes]()

    def topics(connection: Connection, command: Command) -> Command:
        answer = master.answer(connection, command)
        if offered is not None:
            answer.ext["__QUORATE_CODES"] = offered
        return answer

    def own(_: Connection, command: Command) -> Command:
        master.asked.append(command.code)
        return response(command, body=b"all")

    async with net() as made, open_client(connector=made.connect) as client:
        await made.serve("m:1", Server({OWN: own, int(RequestCode.GET_ALL_TOPIC_CONFIG): topics}))
        sync = TableCopies(client, {OWN: copied.append, RequestCode.GET_ALL_TOPIC_CONFIG: lambda body: None})
        await made.nursery.start(sync.run)
        sync.follow("m:1")
        await trio.sleep(8)
        assert (sync.done, master.asked.count(OWN), copied) == (3, asked, [b"all"] * asked)


async def test_a_broker_offers_its_own_codes_with_its_topics(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        master = await made.node()
        answer = await made.ask(master.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        codes = [int(code) for code in answer.ext["__QUORATE_CODES"].split()]
        answers = [(await made.ask(master.address, code)).code for code in codes]
        assert ResponseCode.REQUEST_CODE_NOT_SUPPORTED not in answers and {OWN, GET_QUEUE_ENDS} <= {*codes}
        assert (await made.ask(master.address, OWN)).code == ResponseCode.SUCCESS


async def test_an_answer_that_comes_in_the_turn_of_a_change_of_roles_changes_nothing(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task has been woken already: a new master's own tables would be overwritten by those of the last one."""
    async with slave(MasterStub()) as (sync, mine):
        before = dict(mine.topics.topics)
        call = Client.call

        async def called(client: Client, address: str, command: Command, timeout_ms: float | None = None) -> Command:
            answer = await call(client, address, command, timeout_ms)
            sync.follow(None)
            return answer

        monkeypatch.setattr(Client, "call", called)
        sync.follow("m:1")
        await trio.sleep(10)
        assert mine.topics.topics == before


async def test_tables_are_copied_while_the_role_says_whose_slave_this_broker_is(autojump_clock: trio.abc.Clock) -> None:
    master = MasterStub()
    async with slave(master) as (sync, _):
        sync.role_changed(Role.slave(1))
        await trio.sleep(20)
        assert master.asked == [], "nobody knows the master"
        sync.role_changed(Role.slave(1, 1, "m:1"))
        await until(lambda: sync.done, within_s=0.1)
        for role in (Role.master(2), Role.vacant(1, 2)):
            sync.role_changed(role)
            count = len(master.asked)
            await trio.sleep(20)
            assert len(master.asked) == count
            sync.role_changed(Role.slave(1, 3, "m:1"))
            await until(lambda count=count: len(master.asked) > count)  # type: ignore[misc]
