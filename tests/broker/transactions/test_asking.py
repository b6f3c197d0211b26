"""Producers are asked for what they do not say, in virtual time: when, how often, and what comes of it."""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.topics.names import CHECK_MAX_TIME, HALF, OP_HALF
from broker.transactions.asking import Asking
from harness.simulation.worlds.brokers import Cluster, Node, cluster, three, until
from remoting.codes import ResponseCode
from remoting.errors import RequestTimeout
from remoting.record import COMMIT
from tests.broker.transactions.test_replicas import half_message, java_final, java_mark, put
from tests.broker.transactions.world import (
    FAST,
    Place,
    Producer,
    bodies,
    producer,
    records,
    transactions,
    values,
)


async def test_who_does_not_say_is_asked(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST)
        async with producer(made, node) as shop:
            half = await shop.half()
            assert (await shop.end(half, 0)).code == ResponseCode.SUCCESS
            await trio.sleep(3.9)
            (check,) = shop.checks
            assert check.place.queue_offset == 1, "it was put back"
            assert check.record.message.topic == b"T"
            assert check.record.offset == check.place.offset
            assert values(check.record)["TRANSACTION_CHECK_TIMES"] == "1"
            assert check.asked.transaction_id == "U1"
            assert check.record.message.body == b"paid"
            assert (await shop.end(check.place, COMMIT, checked=True)).code == ResponseCode.SUCCESS
            await trio.sleep(60)
            assert bodies(node) == [b"paid"]
            assert len(shop.checks) == 1


async def test_no_check_counts_without_a_producer(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, transactionCheckMax="2")
        async with producer(made, node, beat=False) as shop:
            await shop.half()
            await trio.sleep(600)
            assert bodies(node, HALF) == [b"paid"], "nothing was put back"
            await shop.beat()
            await trio.sleep(2.1)
            assert values(shop.checks[0].record)["TRANSACTION_CHECK_TIMES"] == "1"
            await shop.commit(shop.checks[0].place)


async def test_a_half_without_a_group_is_asked_of_nobody_and_given_up_when_it_is_old(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, fileReservedTime="1", deleteWhen="")
        async with producer(made, node) as shop:
            sent = await shop.send(group=None, born_ago_ms=3_590_000)
            assert sent.code == ResponseCode.SUCCESS
            await trio.sleep(8)
            assert (bodies(node, HALF), bodies(node, CHECK_MAX_TIME)) == ([b"paid"], [])
            await trio.sleep(6)
            assert bodies(node, CHECK_MAX_TIME) == [b"paid"] and not shop.checks


async def test_323_of_what_is_no_given_up_half_is_refused_in_words(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST)
        async with producer(made, node) as shop:
            await shop.half()
            await trio.sleep(0.5)
            (half,) = records(node, HALF)
            for wrong, words in ((half, "It is not in the topic of given-up halves."),
                                 (attrs.evolve(half, offset=1 << 40), "There is no such message"),
                                 (attrs.evolve(half, offset=half.offset + 1), "There is no such message")):
                refused = await shop.resume(wrong)
                assert refused.code == ResponseCode.SYSTEM_ERROR
                assert words in (refused.remark or "")
            assert bodies(node, HALF) == [b"paid"]


async def test_323_refuses_what_java_ended_if_the_table_alone_knows_it(autojump_clock: MockClock) -> None:
    """Where the table begins behind the first half, and a Java master's mark has no key by which it were found."""
    async with cluster() as made:
        node = await made.node(**FAST, transactionCheckMax="1")
        async with producer(made, node) as shop:
            await shop.half()
            await until(lambda: bodies(node, CHECK_MAX_TIME))
            transactions(node).halves.since = node.broker.journal.end
            await put(node, java_mark(records(node, HALF)[-1].queue_offset))
            await trio.sleep(0.5)
            refused = await shop.resume(records(node, CHECK_MAX_TIME)[0])
            assert refused.code == ResponseCode.SYSTEM_ERROR and "was decided" in (refused.remark or "")


async def test_unanswered_checks_end_in_a_topic_and_a_half_is_brought_back(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, transactionCheckMax="3")
        async with producer(made, node) as shop:
            half = await shop.half()
            await trio.sleep(30)
            assert len(shop.checks) == 3
            (lying,) = records(node, CHECK_MAX_TIME)
            assert values(lying)["REAL_TOPIC"] == "T"
            assert node.topics.get(CHECK_MAX_TIME) is not None
            assert (await shop.resume(lying)).code == ResponseCode.SUCCESS
            assert (await shop.resume(lying)).code == ResponseCode.SYSTEM_ERROR, "it is open"
            shop.decision = COMMIT
            await trio.sleep(5)
            assert bodies(node) == [b"paid"]
            assert len(shop.checks) == 4
            await shop.commit(half)
            assert (await shop.resume(lying)).code == ResponseCode.SYSTEM_ERROR, "it was decided"
            await trio.sleep(60)
            assert bodies(node) == [b"paid"]


async def test_immunity_delays_checks_counts_none_and_refuses_late_decisions(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST)
        async with producer(made, node) as shop:
            began_s = trio.current_time()
            half = await shop.half(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
            await trio.sleep(59)
            assert (shop.checks, bodies(node, HALF)) == ([], [b"paid"])
            await trio.sleep(4)
            check = shop.checks[0]
            assert check.at_s - began_s > 60
            assert values(check.record)["TRANSACTION_CHECK_TIMES"] == "1"
            late = await shop.end(half, COMMIT)
            assert late.code == ResponseCode.ILLEGAL_OPERATION
            assert bodies(node) == []
            assert (await shop.end(check.place, COMMIT, checked=True)).code == ResponseCode.SUCCESS
            await trio.sleep(0.1)
            assert bodies(node) == [b"paid"]




async def test_who_left_while_the_half_was_put_back_is_not_asked_but_another_one(autojump_clock: MockClock) -> None:
    """One of its few checks would be lost with a connection that is closed."""
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **FAST, allAckInSyncStateSet="true", minInSyncReplicas="2")
        async with producer(made, master, "stays") as stays:
            async with producer(made, master, "leaves") as leaves:
                await leaves.half()
                await trio.sleep(1)
                for slave in slaves:
                    made.network.silent.add(slave.address)
                end = master.broker.journal.end
                await until(lambda: master.broker.journal.end > end)  # it is put back, and not acknowledged yet
                assert not leaves.checks
            made.network.silent.clear()
            await until(lambda: stays.checks, within_s=1.5)
            assert values(stays.checks[0].record)["TRANSACTION_CHECK_TIMES"] == "1"
            await stays.commit(stays.checks[0].place)


@asynccontextmanager
async def unacknowledged() -> AsyncGenerator[tuple[Cluster, Node, Producer], None]:
    """A group whose slaves acknowledge nothing once ``hush`` was called."""
    async with cluster(controllers=3) as made:
        master, *_ = await three(made, **FAST, allAckInSyncStateSet="true", minInSyncReplicas="2",
                                 transactionOpBatchInterval="1000", fileReservedTime="1000000")
        async with producer(made, master) as shop:
            yield made, master, shop


async def hush(made: Cluster, master: Node) -> int:
    """Silence the slaves; returns where the log ends when the master has written something more."""
    made.network.silent |= {node.address for node in made.nodes if node is not master}
    end = master.broker.journal.end
    await until(lambda: master.broker.journal.end > end)
    return master.broker.journal.end


async def committed(shop: Producer, half: Place) -> None:
    """As Java's producers, which wait for no answer."""
    with suppress(RequestTimeout):
        await shop.end(half, COMMIT)


async def test_a_half_that_is_on_its_way_to_the_end_is_not_put_back_again(autojump_clock: MockClock) -> None:
    async with unacknowledged() as (made, master, shop):
        await shop.half()
        end = await hush(made, master)
        for _ in range(3):
            master.broker.journal.was_cut(end)  # nothing of it is gone
            await trio.sleep(2.3)
            assert master.broker.journal.end == end, "a round went by"
        made.network.silent.clear()
        await until(lambda: len(bodies(master, HALF)) == 2)


@pytest.mark.parametrize("gone", ["half and mark", "mark"])
async def test_a_half_whose_way_to_the_end_was_cut_off_is_asked_for_again(
        gone: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        node = await made.node(**FAST)
        async with producer(made, node) as shop:
            await shop.half()
            monkeypatch.setattr(Asking, "shown", lambda asking, end: None)
            await until(lambda: bool(shop.checks))
            (mark,) = records(node, OP_HALF)
            node.broker.journal.truncate(mark.offset if gone == "mark" else shop.checks[0].place.offset)
            await until(lambda: len(shop.checks) == 2, within_s=5)


async def test_who_decided_is_not_asked_while_the_decision_is_on_its_way(autojump_clock: MockClock) -> None:
    async with unacknowledged() as (made, master, shop):
        half = await shop.half()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(committed, shop, half)
            end = await hush(made, master)
            await trio.sleep(7)
            assert master.broker.journal.end == end
            made.network.silent.clear()
        await trio.sleep(10)
        assert (bodies(master), bodies(master, HALF), shop.checks) == ([b"paid"], [b"paid"], [])


async def test_who_decides_while_the_half_is_put_back_is_not_asked(autojump_clock: MockClock) -> None:
    async with unacknowledged() as (made, master, shop):
        half = await shop.half()
        await hush(made, master)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(committed, shop, half)
            await trio.sleep(0.5)
            made.network.silent.clear()
        await trio.sleep(10)
        assert (bodies(master), len(bodies(master, HALF)), shop.checks) == ([b"paid"], 2, [])


async def test_a_missing_mark_is_not_written_again_while_it_is_on_its_way(autojump_clock: MockClock) -> None:
    async with unacknowledged() as (made, master, _):
        await put(master, half_message())
        await put(master, java_final(records(master, HALF)[0]))
        end = await hush(made, master)
        await trio.sleep(7)
        assert master.broker.journal.end == end
        made.network.silent.clear()
        await until(lambda: bodies(master, OP_HALF) == [b"0,"])


async def test_a_missing_mark_that_was_cut_off_is_written_again(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, transactionOpBatchInterval="1000", fileReservedTime="1000000")
        await put(node, half_message())
        await put(node, java_final(records(node, HALF)[0]))
        await until(lambda: bool(bodies(node, OP_HALF)))
        node.broker.journal.truncate(records(node, OP_HALF)[0].offset)
        assert bodies(node, OP_HALF) == []
        await until(lambda: bodies(node, OP_HALF) == [b"0,"], within_s=5)


async def test_halves_that_make_way_in_a_round_are_given_up_once(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.transactions.asking.LOOKS_MAX", 1)
    async with cluster() as made:
        node = await made.node(**FAST, transactionCheckMax="1")
        async with producer(made, node) as shop:
            for number in range(4):
                await shop.half(unique=f"U{number}")
            await until(lambda: len(shop.checks) == 4)
            await until(lambda: bool(bodies(node, CHECK_MAX_TIME)))
            transactions(node)._asking.make_way(node.broker.journal.end)
            await trio.sleep(20)
            assert len(bodies(node, CHECK_MAX_TIME)) == 4


async def test_what_a_java_broker_gave_up_is_one_transaction_when_it_is_brought_back(
        autojump_clock: MockClock) -> None:
    """Its copy does not say which half began it: the id and the time of its birth do."""
    async with cluster() as made:
        node = await made.node(fileReservedTime="1000000")
        async with producer(made, node) as shop:
            await put(node, half_message(born_ms=4))
            await put(node, half_message())
            _, second = records(node, HALF)
            for record in records(node, HALF):
                await put(node, attrs.evolve(record.message, topic=CHECK_MAX_TIME.encode()))
            await trio.sleep(0.5)
            assert (await shop.resume(records(node, CHECK_MAX_TIME)[1])).code == ResponseCode.SUCCESS
            await until(lambda: len(records(node, HALF)) == 3)
            back = records(node, HALF)[2]
            for record in (back, second):
                await shop.commit(Place(record.offset, record.queue_offset))
            await trio.sleep(1)
            assert bodies(node) == [b"paid"]
            assert [each.half.born_ms for each in transactions(node).halves] == [4]


async def test_a_half_that_the_disk_does_not_give_is_asked_for_later(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        node = await made.node(**FAST)
        async with producer(made, node) as shop:
            await shop.half()
            await trio.sleep(0.5)
            log = node.broker.journal.log

            def fails(*where: object) -> bytes:
                raise OSError(errno.EIO, "Input/output error")

            with monkeypatch.context() as broken:
                broken.setattr(type(log), "record", fails)
                await trio.sleep(5)
            assert not shop.checks
            await trio.sleep(5)
            assert shop.checks
