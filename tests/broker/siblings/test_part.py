"""An acting slave hands what comes due to a master of its own container, in whole brokers on virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from broker.ha.acks import PutStatus
from broker.puts import PutResult
from broker.siblings.part import SiblingsPart
from harness.simulation.worlds.brokers import Cluster, Node, until, wall_ms
from remoting.bodies.namesrv import TopicConfig
from remoting.record import NOTED, Message, Record, decode_all, decode_properties, encode_properties
from tests.broker.escape.test_part import bodies
from tests.broker.pop.poppers import bodies as brought_back
from tests.broker.pop.test_acting import popped, sent
from tests.broker.pop.world import Popper
from tests.broker.standin.test_part import group, info, may_deliver, metrics
from tests.broker.transactions.world import FAST, place_of, producer


@asynccontextmanager
async def container(
    topics: Sequence[str] = ("T",), **settings: str,
) -> AsyncGenerator[tuple[Cluster, list[Node]], None]:
    """Master of group a on a machine of its own; its slave, and the master of group b, are of one container."""
    async with group(0, **{"totalReplicas": "2", **settings}) as (made, (master,)):
        made.container = ["10.0.0.2", "10.0.0.3"]
        slave = await made.node(**{"enableSlaveActingMaster": "true", "totalReplicas": "2", "brokerRole": "SLAVE",
                                   "brokerId": "1", **settings})
        other = await made.node(brokerName="b")
        other.topics.update([TopicConfig(topic, 4, 4) for topic in topics])
        await made.send(master.address, b"before")
        await until(lambda: may_deliver(master), within_s=200)
        yield made, [master, slave, other]


async def dies(master: Node, slave: Node) -> None:
    await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
    await master.kill()
    await until(lambda: may_deliver(slave))


def siblings(node: Node) -> SiblingsPart:
    return node.broker.parts[SiblingsPart]


async def records(made: Cluster, node: Node, queue: int = 0) -> list[Record]:
    return decode_all((await made.pull(node.address, queue=queue)).body)


async def test_without_remote_escape_a_sibling_stores_the_record_as_it_is(autojump_clock: trio.abc.Clock) -> None:
    async with container() as (made, (master, slave, other)):
        due_ms = (wall_ms() + 12_000) // 1_000 * 1_000
        await made.send(master.address, b"timer", queue=1, properties=(
            f"TIMER_DELIVER_MS\x01{due_ms}\x02UNIQ_KEY\x01t\x02TAGS\x01x\x02"))
        await made.send(master.address, b"level", queue=2, properties="DELAY\x013\x02UNIQ_KEY\x01l\x02")
        await dies(master, slave)
        end = slave.broker.journal.end
        await trio.sleep(12)
        (timer,), (level,) = await records(made, other, 1), await records(made, other, 2)
        assert (timer.message.body, level.message.body) == (b"timer", b"level")
        told = decode_properties(timer.message.properties)
        assert (told["UNIQ_KEY"], told["TAGS"]) == ("t", "x")
        assert due_ms - 1_000 <= int(told["TIMER_OUT_MS"]) <= due_ms, "as a master puts it"
        assert not [name for name in told if name.startswith("__QUORATE_")]
        assert not timer.message.sys_flag & NOTED, "it would tell of a timer of group b"
        assert timer.message.born_host != timer.message.store_host == other.config.store_host
        assert slave.broker.journal.end == end
        assert (siblings(slave).counters.sent, siblings(other).counters.taken) == (2, 2)
        assert {name: count for name, count in metrics(slave).items() if "_siblings_" in name} == {
            "broker_siblings_sent": 2, "broker_siblings_unsure": 0, "broker_siblings_again": 0,
            "broker_siblings_taken": 0}
        assert metrics(other)["broker_siblings_taken"] == 2
        assert info(slave)["escapeWaitsFor"] == ""


async def test_a_sibling_comes_first_and_the_network_next(autojump_clock: trio.abc.Clock) -> None:
    """A sibling that lacks the topic refuses that message alone."""
    async with container(enableRemoteEscape="true") as (made, (master, slave, other)):
        third = await made.node(brokerName="c")
        for node in (master, third):
            node.topics.update([TopicConfig("U", 4, 4), TopicConfig("T", 4, 4)])
        await trio.sleep(1)
        for topic in "TU":
            await made.send(master.address, b"of " + topic.encode(), topic=topic, properties="DELAY\x012\x02")
        await dies(master, slave)
        await trio.sleep(8)
        assert (await bodies(made, other), await bodies(made, third, "U")) == ([b"of T"], [b"of U"])
        assert await bodies(made, third) == []


async def test_what_no_sibling_takes_waits_without_remote_escape(autojump_clock: trio.abc.Clock) -> None:
    async with container(()) as (made, (master, slave, other)):
        await made.send(master.address, b"late", properties="DELAY\x011\x02UNIQ_KEY\x01u\x02")
        await dies(master, slave)
        await until(lambda: info(slave)["escapeWaitsFor"])
        assert info(slave)["escapeWaitsFor"] == (
            "enableRemoteEscape is false: messages that are due wait for the master; "
            "a broker of this container answered 17: topic[T] not exist here")
        other.topics.update([TopicConfig("T", 2, 2)])
        await until(lambda: siblings(slave).counters.sent)
        assert await bodies(made, other) == [b"late"]


async def test_a_master_that_may_not_write_is_passed_over(autojump_clock: trio.abc.Clock) -> None:
    async with container() as (made, (master, slave, other)):
        await made.send(master.address, b"late", properties="DELAY\x013\x02UNIQ_KEY\x01u\x02")
        await dies(master, slave)
        other.broker.puts.fence("it is no master now")
        await until(lambda: info(slave)["escapeWaitsFor"])
        assert "14: it is no master now" in info(slave)["escapeWaitsFor"]
        assert siblings(other).counters.taken == 0


async def test_an_unknown_outcome_is_counted_and_handed_over_again(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with container() as (made, (master, slave, other)):
        await made.send(master.address, b"twice", properties="DELAY\x013\x02UNIQ_KEY\x01u\x02")
        await dies(master, slave)
        part, real = siblings(other), siblings(other)._put

        async def stores_and_is_silent(message: Message) -> PutResult:
            await real(message)
            monkeypatch.setattr(part, "_put", real)
            await trio.sleep_forever()
            raise AssertionError

        monkeypatch.setattr(part, "_put", stores_and_is_silent)
        await until(lambda: siblings(slave).counters.sent)
        assert siblings(slave).counters.again == 1
        assert await bodies(made, other) == [b"twice", b"twice"]


async def test_what_is_stored_and_not_held_is_counted_as_unsure(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with container() as (made, (master, slave, other)):
        await made.send(master.address, b"once", properties="DELAY\x013\x02UNIQ_KEY\x01u\x02")
        await dies(master, slave)
        part, real = siblings(other), siblings(other)._put

        async def is_late(message: Message) -> PutResult:
            return (await real(message))._replace(status=PutStatus.FLUSH_SLAVE_TIMEOUT)

        monkeypatch.setattr(part, "_put", is_late)
        await until(lambda: siblings(slave).counters.sent)
        await trio.sleep(20)
        assert (siblings(slave).counters.unsure, siblings(slave).counters.again) == (1, 0)
        assert await bodies(made, other) == [b"once"]


async def test_a_commit_at_the_acting_slave_goes_to_the_sibling(autojump_clock: MockClock) -> None:
    """With its delay, if it has one. It decides no half of the sibling, which hears of its own by flag and offset."""
    async with container(**FAST) as (made, (master, slave, other)), producer(made, master) as shop:
        halves = [await shop.send(b"%d" % number, unique=f"U{number}", values=values) for number, values in enumerate(
            ({}, {"DELAY": "2"}, {"TIMER_DELAY_SEC": "8"}))]
        await dies(master, slave)
        async with producer(made, slave, "q") as again:
            for half in halves:
                await again.commit(place_of(half))
        (found,) = await records(made, other)
        assert (found.message.body, found.message.sys_flag, found.message.prepared_offset) == (b"0", 0, 0)
        assert "__QUORATE_" not in found.message.properties.decode()
        await trio.sleep(12)
        assert sorted(await bodies(made, other)) == [b"0", b"1", b"2"]
        assert siblings(slave).counters.sent == 3


async def test_a_timer_that_waits_on_waits_at_the_sibling(autojump_clock: trio.abc.Clock) -> None:
    """It comes in the queue that the topic has there."""
    async with container() as (made, (master, slave, other)):
        await dies(master, slave)
        rolled = Message(b"rmq_sys_wheel_timer", b"rolled", 0, encode_properties({
            "REAL_TOPIC": "T", "REAL_QID": "6", "UNIQ_KEY": "r", "TIMER_OUT_MS": str(wall_ms() + 10_000),
            "TIMER_ROLL_TIMES": "1", "__QUORATE_TIMER": "77"}), sys_flag=NOTED)
        assert await siblings(slave).hand_over(rolled, "") == ""
        await trio.sleep(8)
        assert await bodies(made, other) == []
        await trio.sleep(4)
        (found,) = await records(made, other, 2)
        assert found.message.body == b"rolled"


async def test_what_pop_brings_back_goes_where_its_topic_can_be_popped(autojump_clock: trio.abc.Clock) -> None:
    """The retry topic is made there, and is on disk first."""
    async with container() as (made, (master, slave, other)):
        await dies(master, slave)
        back = Message(b"%RETRY%G_T", b"back", 0, b"UNIQ_KEY\x01b\x02")
        assert await siblings(slave).hand_over(back, "U") == (
            "a broker of this container answered 16: the topic[U] cannot be read here")
        assert other.topics.get("%RETRY%G_T") is None
        assert await siblings(slave).hand_over(back, "T") == ""
        assert await bodies(made, other, "%RETRY%G_T") == [b"back"]


async def test_what_was_popped_and_not_acknowledged_comes_back_at_the_sibling(autojump_clock: MockClock) -> None:
    async with container() as (made, (master, slave, other)):
        popper = Popper(made)
        await sent(made, master, 3)
        given = await popped(popper, master, 3, invisible_ms=20_000)
        await popper.ack(master, given[1])
        await dies(master, slave)
        await until(lambda: len(brought_back(other)) == 2)
        await trio.sleep(60)
        assert sorted(brought_back(other)) == [b"m0", b"m2"], "each once, and none that is acknowledged"
        assert info(slave)["popReviveBehind"] == "0"
