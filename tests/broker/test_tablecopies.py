"""A slave's copy of its master's tables: at once, then now and then, each table on its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.groups.table import GroupsConfig, GroupTable
from broker.moments import WATCH
from broker.offsets.table import OffsetsConfig, OffsetTable
from broker.queueends.ends import GET_QUEUE_ENDS
from broker.standing import Role
from broker.store.tables import ConsumerOffsets, DelayOffsets, SubscriptionGroups
from broker.tablecopies import TableCopies, saying_the_end
from broker.topics.table import TopicsConfig, TopicTable
from harness.simulation.worlds.brokers import cluster, new_master, three, until
from harness.simulation.worlds.streams import net
from remoting.bodies.consumers import MessageRequestModes
from remoting.bodies.namesrv import DataVersion, KVTable, TopicConfig, TopicConfigSerializeWrapper
from remoting.body import Body
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.record import encode_properties
from remoting.server import Server
from tests.broker.timer.test_timers import bodies

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


@attrs.define(eq=False)
class Ahead:
    """A master whose log goes on, and a slave's log. ``says``: whether its answers say where its log ends."""

    says: bool = True
    end: int = 100
    held: int = 0
    positions: int = 1
    copied: list[int] = attrs.field(factory=list)

    def tells(self, _: Connection, command: Command) -> Command:
        return response(command, body=str(self.positions).encode())

    def info(self, _: Connection, command: Command) -> Command:
        said = {} if self.end < 0 else {"commitLogMaxOffset": str(self.end)}
        return response(command, body=KVTable(said).to_json())

    def handlers(self) -> dict[int, Handler]:
        code = int(RequestCode.GET_ALL_DELAY_OFFSET)
        made: dict[int, Handler] = {code: self.tells}
        if self.says:
            return saying_the_end(made, [code], lambda: self.end)
        return made | {int(RequestCode.GET_BROKER_RUNTIME_INFO): self.info}


@asynccontextmanager
async def copying(master: Ahead) -> AsyncGenerator[TableCopies, None]:
    async with net() as made, open_client(connector=made.connect) as client:
        await made.serve("m:1", Server(master.handlers()))
        code = int(RequestCode.GET_ALL_DELAY_OFFSET)
        sync = TableCopies(client, {code: lambda body: master.copied.append(int(body))},
                           bound=[code], held=lambda: master.held)
        await made.nursery.start(sync.run)
        sync.follow("m:1")
        yield sync


@pytest.mark.parametrize("says", [True, False], ids=["ours", "java"])
async def test_progress_counts_once_the_log_here_reaches_as_far_as_the_masters_did(
        says: bool, autojump_clock: trio.abc.Clock) -> None:
    master = Ahead(says)
    async with copying(master) as sync:
        await trio.sleep(1)
        master.positions, master.end = 2, 10_000
        await trio.sleep(10)
        assert master.copied == [], "the deliveries may stand in what this log lacks"
        master.held = 99
        sync.tick(0)
        assert master.copied == []
        master.held = 100
        sync.tick(0)
        assert master.copied == [1], "as it was told first, however far the master is meanwhile"
        await trio.sleep(4)
        assert master.copied == [1]
        master.held = 10_000
        sync.tick(0)
        sync.tick(0)
        assert master.copied == [1, 2]


async def test_progress_whose_part_of_the_log_was_cut_or_is_another_masters_counts_no_more(
        autojump_clock: trio.abc.Clock) -> None:
    master = Ahead()
    async with copying(master) as sync:
        await trio.sleep(1)
        sync.cut(99)
        master.held = 100
        sync.tick(0)
        assert master.copied == []
        master.end, master.positions = 200, 2
        await trio.sleep(4)
        master.held = 199
        sync.role_changed(Role.slave(1, 2, "elsewhere:1"))
        master.held = 200
        sync.tick(0)
        assert master.copied == []


async def test_a_master_that_does_not_say_where_its_log_ends_is_not_believed(autojump_clock: trio.abc.Clock) -> None:
    master = Ahead(says=False, end=-1, held=1 << 40)
    async with copying(master) as sync:
        await trio.sleep(10)
        assert (sync.done, master.copied) == (0, [])


async def test_what_a_slave_copied_no_delivery_of_it_delivers_as_master(autojump_clock: MockClock) -> None:
    """A timer and a delayed message, which the master delivered when nobody copied its log any more."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, haBeatIntervalMs="0", timerPrecisionMs="100")
        for body, properties in ((b"timer", {"TIMER_DELAY_MS": "4000"}), (b"level", {"DELAY": "2"})):
            answer = await made.send(master.address, body, properties=encode_properties(properties).decode())
            assert answer.code == ResponseCode.SUCCESS
        await trio.sleep(3)
        assert all(node.broker.journal.end == master.broker.journal.end for node in others)
        for node in others:
            made.network.cuts.add(frozenset((node.address, f"{master.host}:10912")))
        await until(lambda: sorted(bodies(master)) == [b"level", b"timer"])
        await trio.sleep(4)
        await master.kill()
        made.network.cuts.clear()
        after = await new_master(*others)
        await trio.sleep(10)
        assert sorted(bodies(after)) == [b"level", b"timer"]


async def test_a_disk_that_fails_once_ends_no_copying(autojump_clock: trio.abc.Clock) -> None:
    master, failed = Ahead(held=100), list[bytes]()
    async with copying(master) as sync:
        copy = sync._tables[RequestCode.GET_ALL_DELAY_OFFSET]

        def fails(body: bytes) -> None:
            if len(failed) < 1:
                failed.append(body)
                raise OSError(5, "Input/output error")
            copy(body)

        sync._tables[RequestCode.GET_ALL_DELAY_OFFSET] = fails
        await trio.sleep(4)
        assert (failed, master.copied) == ([b"1"], [1])
