"""Halves of a master that is away: its slave asks their producers, or sends them on, and writes nothing."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.offsets.part import OffsetsPart
from broker.store.files import MemoryFiles as StoreFiles
from harness.simulation.worlds.brokers import Node, until
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.daemon.files import MemoryFiles
from remoting.headers.broker import ExchangeHAInfoRequest
from remoting.record import COMMIT, ROLLBACK
from tests.broker.standin.test_part import group, info, may_deliver
from tests.broker.transactions.test_standing_in import bereft
from tests.broker.transactions.world import FAST, Place, bodies, producer, records, transactions, values


@pytest.fixture
def javas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masters offer no codes of ours, as RocketMQ's do."""
    monkeypatch.setattr("broker.server.offering", dict)


def place(slave: Node) -> int | None:
    """Where a master that comes back begins in the half queue, by what it reads of this slave."""
    offsets = slave.broker.parts[OffsetsPart].table.snapshot().offset_table
    return offsets.get("RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS", {}).get(0)


def end_of_halves(node: Node) -> int:
    return node.broker.journal.messages.max_offset(b"RMQ_SYS_TRANS_HALF_TOPIC", 0)


async def test_an_acting_slave_asks_as_often_as_its_master_would(autojump_clock: MockClock) -> None:
    async with group(1, transactionCheckMax="3", **FAST) as (made, (master, slave)):
        async with producer(made, master) as shop:
            half = await shop.half()
            await until(lambda: shop.checks)
            await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await master.kill()
        await until(lambda: may_deliver(slave))
        end = slave.broker.journal.end
        async with producer(made, slave) as shop:
            await until(lambda: shop.checks)
            first = shop.checks[0]
            assert first.place.offset > half.offset, "the half that its master put back"
            assert first.asked.transaction_id == "U1"
            assert first.record.message.body == b"paid"
            await trio.sleep(30)
            assert [check.place for check in shop.checks] == [Place(first.place.offset, first.place.queue_offset)] * 2
        assert slave.broker.journal.end == end


@pytest.mark.usefixtures("javas")
async def test_halves_of_a_rocketmq_master_are_sent_on(autojump_clock: MockClock) -> None:
    async with bereft([{}, {"DELAY": "1", "TAGS": "a"}, {}]) as (made, _, slave, other, places):
        await until(lambda: place(slave) == end_of_halves(slave))
        found = {each.half.unique: each.half for each in transactions(other).halves}
        assert set(found) == {"U0", "U1", "U2"}
        assert {(each.topic, each.group) for each in found.values()} == {("T", "shop")}
        async with producer(made, slave) as shop:
            shop.uniques.update({each: f"U{number}" for number, each in enumerate(places)})
            for decision in (COMMIT, ROLLBACK):
                refused = await shop.end(places[0], decision, checked=True)
                assert refused.code == ResponseCode.SLAVE_NOT_AVAILABLE, "its half is decided elsewhere"
            await trio.sleep(10)
            assert not shop.checks, "the other master asks"
        async with producer(made, other) as shop:
            shop.decision = COMMIT
            await until(lambda: len(bodies(other)) == 4, within_s=100)
            await trio.sleep(60)
            assert sorted(bodies(other)) == [b"0", b"1", b"2", b"there is T"], "each was sent once"
            late = next(each for each in records(other) if values(each)["UNIQ_KEY"] == "U1")
            assert values(late)["TAGS"] == "a"
            assert late.store_time_ms - next(each.record for each in shop.checks if (
                each.asked.transaction_id == "U1")).store_time_ms >= 1_000, "it was delayed there"


@pytest.mark.usefixtures("javas")
async def test_a_half_that_nobody_takes_stops_those_behind_it(autojump_clock: MockClock) -> None:
    async with group(1, enableRemoteEscape="true", **FAST) as (made, (master, slave)):
        other = await made.node(brokerName="b")
        await made.send(other.address, b"there is T")
        master.topics.update([TopicConfig("U")])
        async with producer(made, master, beat=False) as shop:
            for number, topic in enumerate("TUT"):
                await shop.half(unique=f"U{number}", topic=topic)
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await trio.sleep(5)
        await master.kill()
        await until(lambda: may_deliver(slave))
        await until(lambda: info(slave)["escapeWaitsFor"])
        assert info(slave)["escapeWaitsFor"] == "U: no other group of the cluster has a master that takes it"
        await trio.sleep(20)
        assert (place(slave), end_of_halves(other)) == (1, 1)
        header = ExchangeHAInfoRequest("m:2", 0, "m:1")
        await made.ask(slave.address, RequestCode.EXCHANGE_BROKER_HA_INFO, header)
        other.topics.update([TopicConfig("U")])
        await trio.sleep(9)
        assert (place(slave), end_of_halves(other)) == (1, 1), "the master comes back and reads the place"
        await until(lambda: place(slave) == 3)
        await until(lambda: [each.half.unique for each in transactions(other).halves] == ["U0", "U1", "U2"])


@pytest.mark.usefixtures("javas")
async def test_a_half_that_the_slave_never_had_stops_those_behind_it(autojump_clock: MockClock) -> None:
    """Sent on, they would have the master that comes back begin behind it, and ask nobody about it."""
    keys = {"enableRemoteEscape": "true", "mappedFileSizeCommitLog": str(64 << 10), **FAST}
    async with group(1, **keys) as (made, (master, slave)):
        other = await made.node(brokerName="b")
        await made.send(other.address, b"there is T")
        async with producer(made, master, beat=False) as shop:
            await shop.half(unique="U0")
            while master.broker.journal.end < 64 << 10:
                await made.send(master.address, b"x" * 4_000)
            await shop.half(unique="U1")
        await slave.kill()
        slave.files, slave.store = MemoryFiles(), StoreFiles()
        await slave.start()
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        assert slave.broker.journal.messages.min_offset(b"RMQ_SYS_TRANS_HALF_TOPIC", 0) == 1
        await trio.sleep(20)
        await master.kill()
        await until(lambda: may_deliver(slave), within_s=30)
        await trio.sleep(20)
        assert (place(slave), end_of_halves(other)) == (None, 0)


@pytest.mark.usefixtures("javas")
async def test_the_next_process_of_the_slave_goes_on(autojump_clock: MockClock) -> None:
    async with bereft([{}, {}]) as (made, _, slave, other, places):
        await until(lambda: place(slave) == end_of_halves(slave))
        await slave.kill()
        await slave.start()
        await until(lambda: may_deliver(slave))
        async with producer(made, slave) as shop:
            await trio.sleep(10)
            assert not shop.checks
            assert (await shop.end(places[0], COMMIT, checked=True)).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert end_of_halves(other) == 2, "each was sent once"
