"""Transactions of a group in virtual time: masters die, or are Java's, and each transaction is decided once."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.puts import PutResult, Puts
from broker.topics.names import HALF, OP_HALF
from broker.transactions import records as made_of
from broker.transactions.ending import Ending
from broker.transactions.feeding import PATH
from broker.transactions.records import Half, read_half
from harness.simulation.worlds.brokers import Node, cluster, new_master, three, until
from remoting.record import COMMIT, ROLLBACK, Message, Record, encode_properties
from tests.broker.transactions.world import (
    FAST,
    GROUP,
    Place,
    bodies,
    producer,
    records,
    transactions,
    values,
    without_a_checkpoint,
)

HOST = b"\x0a\x00\x00\x01\x00\x00\x2a\x9f"
DURABLE = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2", **FAST}


async def put(node: Node, *messages: Message) -> PutResult:
    """As a master of another make writes them."""
    done: list[PutResult] = []
    node.broker.puts.put(messages, done.append)
    await until(lambda: done)
    return done[0]


def half_message(body: bytes = b"paid", unique: str = "U1", born_ms: int = 5, **properties: str) -> Message:
    """As Java stores it; it was born long ago."""
    values = {"UNIQ_KEY": unique, "__transactionId__": unique, "TRAN_MSG": "true", "PGROUP": GROUP, "REAL_TOPIC": "T",
              "REAL_QID": "0", **properties}
    return Message(HALF.encode(), body, 0, encode_properties(values), born_time_ms=born_ms, born_host=HOST,
                   store_host=HOST)


def java_final(record: Record) -> Message:
    half = read_half(record)
    assert isinstance(half, Half)
    return made_of.final(record, half, HOST, 0)


def java_mark(*places: int) -> Message:
    return Message(OP_HALF.encode(), "".join(f"{place}," for place in places).encode(), 0,
                   encode_properties({"TAGS": "d", "UNIQ_KEY": "M"}), store_host=HOST)


async def test_every_replica_knows_what_is_open(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, first, second = await three(made, **DURABLE)
        async with producer(made, master) as shop:
            halves = [await shop.half(b"%d" % number, unique=f"U{number}") for number in range(5)]
            await shop.commit(halves[0])
            await shop.roll_back(halves[1])
            await trio.sleep(0.5)
            for node in (master, first, second):
                table = transactions(node).halves
                assert [each.half.unique for each in table.waiting()] == ["U2", "U3", "U4"]
                assert table.counts == {"T": 3}


@pytest.mark.parametrize("index", ["true", "false"])
async def test_what_began_and_ended_between_two_looks_of_a_slave_is_known_when_it_leads(
        index: str, autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **DURABLE, messageIndexEnable=index)
        async with producer(made, master) as shop:
            await trio.sleep(1)
            halves = [await shop.half(b"%d" % number, unique=f"U{number}") for number in range(4)]
            for number, half in enumerate(halves):
                await shop.end(half, COMMIT if number % 2 else ROLLBACK)
            open_ = await shop.half(b"open", unique="U9")
            await trio.sleep(0.5)
        for node in others:
            halves_of = transactions(node).halves
            assert [each.half.unique for each in halves_of] == ["U9"] and halves_of.counts == {"T": 1}
        await master.kill()
        leader = await new_master(*others)
        async with producer(made, leader, "q") as shop:
            for number, half in enumerate(halves):
                right, wrong = (COMMIT, ROLLBACK) if number % 2 else (ROLLBACK, COMMIT)
                assert (await shop.end(half, right)).code == 0
                assert (await shop.end(half, wrong)).code != 0
            await shop.commit(open_)
            await trio.sleep(10)
            assert sorted(bodies(leader)) == [b"1", b"3", b"open"] and shop.checks == []


@pytest.mark.parametrize("moment", ["after the half", "after a check", "after the decision"])
async def test_the_master_dies_and_each_is_decided_once(moment: str, autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **DURABLE)
        async with producer(made, master) as shop:
            half = await shop.half(b"paid")
            gone = await shop.half(b"gone", unique="U2")
            await shop.roll_back(gone)
            if moment == "after a check":
                await until(lambda: shop.checks)
            if moment == "after the decision":
                await shop.commit(half)
        await master.kill()
        leader = await new_master(*others)
        async with producer(made, leader, "q") as shop:
            if moment == "after the decision":
                await shop.commit(half)
                assert (await shop.end(half, ROLLBACK)).code != 0
                await trio.sleep(10)
                assert shop.checks == [], "it is known to be decided"
            else:
                shop.decision = COMMIT
                await until(lambda: bodies(leader) == [b"paid"])
                await shop.commit(half)
                for check in shop.checks:
                    await shop.commit(check.place)
            assert (await shop.end(gone, COMMIT)).code != 0
            await master.start()
            await trio.sleep(20)
            assert bodies(leader) == [b"paid"]
            await until(lambda: bodies(master) == [b"paid"])
            assert len(transactions(master).halves) == len(transactions(leader).halves) == 0


async def test_what_a_java_master_committed_is_not_asked_for_and_gets_its_mark(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, transactionOpBatchInterval="1000", fileReservedTime="1000000")
        async with producer(made, node) as shop:
            await put(node, half_message())
            (record,) = records(node, HALF)
            await put(node, java_final(record))
            await trio.sleep(10)
            assert shop.checks == []
            assert [(each.message.body, values(each)["__QUORATE_END"]) for each in records(node, OP_HALF)] == [
                (b"0,", "ended before")]
            assert bodies(node) == [b"paid"]


async def test_marks_that_are_missing_are_gathered_up_to_a_size(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, transactionOpBatchInterval="1000", transactionOpMsgMaxSize="4",
                               fileReservedTime="1000000")
        for number in range(5):
            await put(node, half_message(unique=str(number)))
        await until(lambda: len(records(node, HALF)) == 5)
        await put(node, *[java_final(record) for record in records(node, HALF)])
        await trio.sleep(0.5)
        assert bodies(node, OP_HALF) == []
        await trio.sleep(10)
        assert bodies(node, OP_HALF) == [b"0,1,", b"2,3,", b"4,"]


async def test_what_a_java_master_put_back_is_one_transaction(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, fileReservedTime="1000000")
        async with producer(made, node, beat=False):
            await put(node, half_message())
            await put(node, half_message(TRANSACTION_CHECK_TIMES="1"))
            await put(node, half_message(TRANSACTION_CHECK_TIMES="2"))
            await until(lambda: len(records(node, HALF)) == 3)
            await trio.sleep(0.3)
            assert len(transactions(node).halves) == 1
            await put(node, java_final(records(node, HALF)[0]))
            await trio.sleep(0.3)
            assert len(transactions(node).halves) == 0


async def test_a_half_that_was_put_back_and_decided_between_two_looks_ends_its_transaction(
        autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await put(node, half_message())
        await trio.sleep(0.5)
        (record,) = records(node, HALF)
        half = read_half(record)
        assert isinstance(half, Half) and len(transactions(node).halves) == 1
        await put(node, made_of.put_back(record, half, half.offset, HOST, checks=1),
                  made_of.mark([1], made_of.COMMITTED, "M", 5, HOST, 1, firsts=[half.offset]))
        await trio.sleep(0.5)
        assert len(transactions(node).halves) == 0


async def test_what_a_mark_of_rocketmq_names_is_remembered(autojump_clock: MockClock) -> None:
    """It has no key by which the index would find it."""
    async with cluster() as made:
        node = await made.node()
        await trio.sleep(0.5)
        await put(node, half_message(), java_mark(0))
        await trio.sleep(0.5)
        (record,) = records(node, HALF)
        ended = transactions(node).halves.ended(record.offset)
        assert ended is not None and ended.decision == made_of.UNKNOWN


async def test_javas_marks_decide(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, fileReservedTime="1000000")
        for number in range(3):
            await put(node, half_message(unique=str(number)))
        await put(node, java_mark(0, 2))
        await trio.sleep(0.3)
        assert [each.half.unique for each in transactions(node).halves] == ["1"]


async def test_how_another_half_of_one_id_ended_is_not_told_by_the_first_ones_final_record(
        autojump_clock: MockClock) -> None:
    """RocketMQ's mark does not say it, and nothing is remembered."""
    async with cluster() as made:
        node = await made.node(fileReservedTime="1000000")
        transactions(node).halves._ended_max = 0
        async with producer(made, node) as shop:
            await shop.commit(await shop.half())
            other = (await put(node, half_message())).puts[0]
            await put(node, java_mark(other.queue_offset))
            await trio.sleep(0.5)
            assert len(transactions(node).halves) == 0
            for decision in (COMMIT, ROLLBACK):
                answer = await shop.end(Place(other.offset, other.queue_offset), decision)
                assert answer.remark == "How the transaction ended is not known any more: U1"
            assert bodies(node) == [b"paid"]


def retried(final: Message) -> Message:
    return attrs.evolve(final, topic=b"%RETRY%g", prepared_offset=0, reconsume_times=1)


def of_another(final: Message) -> Message:
    return attrs.evolve(final, properties=encode_properties({"UNIQ_KEY": "other", "__transactionId__": "other"}))


@pytest.mark.parametrize("change", [retried, of_another])
async def test_copies_decide_nothing(change: Callable[[Message], Message], autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, fileReservedTime="1000000")
        await made.send(node.address, b"first")  # so that no half stands at offset 0
        await put(node, half_message())
        (record,) = records(node, HALF)
        await put(node, change(java_final(record)))
        await trio.sleep(0.3)
        assert len(transactions(node).halves) == 1


async def test_a_copy_of_a_final_record_does_not_decide_the_half_at_its_place(autojump_clock: MockClock) -> None:
    """It names the place 0, where the half of another transaction stands."""
    async with cluster() as made:
        node = await made.node(**FAST, fileReservedTime="1000000")
        await put(node, half_message())
        await put(node, half_message(unique="U2"))
        first, second = records(node, HALF)
        assert first.offset == 0
        await put(node, retried(java_final(second)))
        await trio.sleep(0.3)
        assert [each.half.unique for each in transactions(node).halves] == ["U1", "U2"]


@pytest.mark.parametrize("kept", ["as it was", "nothing", "nonsense"])
async def test_a_table_is_read_again(kept: str, autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, transactionCheckMax="2")
        async with producer(made, node) as shop:
            for number in range(30):
                half = await shop.half(b"%d" % number, unique=str(number))
                if number % 3:
                    await (shop.commit(half) if number % 3 == 1 else shop.roll_back(half))
            await trio.sleep(3)
        await trio.sleep(15)
        before = sorted((each.first, each.half, tuple(each.places)) for each in transactions(node).halves)
        assert len(before) == 10
        await node.stop()
        if kept == "nothing":
            without_a_checkpoint(node)
        elif kept == "nonsense":
            node.store.content[PATH].data[:] = b"{"
            if node.store.exists(f"{PATH}.bak"):
                node.store.remove(f"{PATH}.bak")
        await node.start()
        await until(lambda: not transactions(node).feed.behind)
        after = sorted((each.first, each.half, tuple(each.places)) for each in transactions(node).halves)
        if kept == "as it was":
            assert after == before
        else:
            assert [each[:2] for each in after] == [each[:2] for each in before]


async def test_a_decision_that_is_cut_off_is_open_again(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST)
        async with producer(made, node) as shop:
            await shop.half(b"kept", unique="U0")
            half = await shop.half(b"paid")
            await trio.sleep(0.5)
            end = node.broker.journal.end
            await shop.commit(half)
            await trio.sleep(0.5)
            assert len(transactions(node).halves) == 1
            node.broker.journal.truncate(end)
            await trio.sleep(0.5)
            assert [each.half.unique for each in transactions(node).halves] == ["U0", "U1"]
            await shop.commit(half)
            await trio.sleep(0.5)
            assert bodies(node) == [b"paid"]


async def test_decisions_behind_a_cut_are_forgotten_and_no_others(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored ones that nobody sees yet, as before replicas acknowledge them; and one that is on its way to the log."""
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop, trio.open_nursery() as nursery:
            monkeypatch.setattr(Ending, "shown", lambda ending, end: None)
            halves = [await shop.half(unique=f"U{number}") for number in range(3)]
            await shop.commit(halves[0])
            end = node.broker.journal.end
            await shop.roll_back(halves[1])
            monkeypatch.setattr(Puts, "put", lambda *_: None)
            nursery.start_soon(shop.end, halves[2], COMMIT)
            await trio.sleep(0.5)
            node.broker.journal.truncate(end)
            assert [transactions(node)._ending.is_under_way(half.offset) for half in halves] == [True, False, True]
            monkeypatch.undo()
            await shop.commit(halves[1])
            await trio.sleep(0.5)
            assert len(bodies(node)) == 2
            nursery.cancel_scope.cancel()
