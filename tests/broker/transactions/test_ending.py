"""Decisions of producers, from requests to the consumer's queue, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.ha.acks import PutStatus
from broker.metrics import BrokerMetrics
from broker.puts import Done, Puts
from broker.topics.names import CHECK_MAX_TIME, HALF, OP_HALF
from broker.transactions import records as made_of
from broker.transactions.ending import Ending
from broker.transactions.records import Half
from harness.simulation.worlds.brokers import cluster, until
from remoting.codes import ResponseCode
from remoting.record import COMMIT, ROLLBACK, Message, Record
from tests.broker.transactions.world import (
    FAST,
    GROUP,
    Place,
    Producer,
    bodies,
    producer,
    records,
    transactions,
    values,
    without_a_checkpoint,
)


async def test_committed_is_seen_rolled_back_never(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            kept, gone = await shop.half(b"kept"), await shop.half(b"gone", unique="U2")
            assert bodies(node) == []
            await shop.commit(kept)
            await shop.roll_back(gone)
            await trio.sleep(100)
            assert bodies(node) == [b"kept"]
            (final,) = records(node)
            assert (final.message.sys_flag, final.message.prepared_offset) == (COMMIT, kept.offset)
            assert {"UNIQ_KEY": "U1", "PGROUP": GROUP, "__transactionId__": "U1"}.items() <= values(final).items()
            assert not {"TRAN_MSG", "REAL_TOPIC", "REAL_QID"} & values(final).keys()
            assert bodies(node, OP_HALF) == [b"0,", b"1,"]
            assert [values(each)["TAGS"] for each in records(node, OP_HALF)] == ["d", "d"]
            assert shop.checks == []
            assert node.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 2
            assert node.offsets.query("CID_RMQ_SYS_TRANS", OP_HALF, 0) == 2


async def test_final_and_mark_are_one_append(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            await shop.commit(await shop.half())
            await trio.sleep(0.1)
            (final,), (mark,) = records(node), records(node, OP_HALF)
            assert mark.offset == final.offset + final.size


async def decided_together(shop: Producer, decisions: Mapping[Place, int]) -> list[int]:
    """The codes of the answers to decisions that come in one turn."""
    codes = dict.fromkeys(decisions, -1)

    async def end(place: Place) -> None:
        codes[place] = (await shop.end(place, decisions[place])).code

    async with trio.open_nursery() as nursery:
        for place in decisions:
            nursery.start_soon(end, place)
    return list(codes.values())


async def test_those_that_are_decided_in_one_turn_share_a_mark(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            halves = [await shop.half(b"%d" % number, unique=f"U{number}") for number in range(7)]
            elsewhere = await shop.half(b"elsewhere", unique="U7", topic="other")
            assert set(await decided_together(shop, {
                each: ROLLBACK if number % 3 == 2 else COMMIT for number, each in enumerate([*halves, elsewhere])
            })) == {ResponseCode.SUCCESS}
            await trio.sleep(0.1)
            committed = [0, 1, 3, 4, 6]
            assert sorted(bodies(node)) == [b"%d" % number for number in committed]
            assert bodies(node, "other") == [b"elsewhere"]
            marks = {(values(each)["__QUORATE_END"], tuple(sorted(map(int, each.message.body.split(b",")[:-1])))): each
                     for each in records(node, OP_HALF)}
            assert marks.keys() == {("commit", tuple(committed)), ("commit", (7,)), ("rollback", (2, 5))}
            mark = marks["commit", tuple(committed)]
            begin = mark.offset
            for final in reversed(records(node)):
                assert final.offset + final.size == begin, "one append"
                begin = final.offset
            assert "KEYS" not in values(mark), "their final records are found"
            keys = values(marks["rollback", (2, 5)])["KEYS"].split()
            assert set(keys) == {str(halves[number].offset) for number in (2, 5)}


async def test_each_of_those_that_were_decided_together_is_known_after_a_start(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        async with producer(made, node) as shop:
            halves = [await shop.half(unique=f"U{number}") for number in range(4)]
            await decided_together(shop, {each: COMMIT if number % 2 else ROLLBACK
                                          for number, each in enumerate(halves)})
            await trio.sleep(15)
        await node.kill()
        await node.start()
        async with producer(made, node) as shop:
            for number, each in enumerate(halves):
                right, wrong = (COMMIT, ROLLBACK) if number % 2 else (ROLLBACK, COMMIT)
                assert (await shop.end(each, right)).code == ResponseCode.SUCCESS
                assert (await shop.end(each, wrong)).code == ResponseCode.ILLEGAL_OPERATION
            assert len(bodies(node)) == 2


async def test_who_cannot_be_stored_is_refused_alone(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    made_final = made_of.final

    def final(record: Record, half: Half, store_host: bytes, epoch: int) -> Message:
        message = made_final(record, half, store_host, epoch)
        return attrs.evolve(message, properties=bytes(33_000)) if message.body == b"1" else message

    monkeypatch.setattr(made_of, "final", final)
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            halves = [await shop.half(b"%d" % number, unique=f"U{number}") for number in range(3)]
            codes = await decided_together(shop, dict.fromkeys(halves, COMMIT))
            assert sorted(codes) == [ResponseCode.SUCCESS, ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL]
            await trio.sleep(1)
            assert sorted(bodies(node)) == [b"0", b"2"]
            assert [each.half.unique for each in transactions(node).halves] == ["U1"]


@pytest.mark.parametrize("first", ["late commit", "answer"])
async def test_a_late_commit_and_the_answer_to_a_check_are_one_message(first: str, autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST)
        async with producer(made, node) as shop:
            half = await shop.half()
            await trio.sleep(3.9)
            back = shop.checks[0].place
            places = (half, back) if first == "late commit" else (back, half)
            for place in places:
                await shop.commit(place)
            await trio.sleep(1)
            for place in places:
                await shop.commit(place)
            assert bodies(node) == [b"paid"]


async def test_the_mark_of_a_late_commit_names_the_half_that_was_put_back(autojump_clock: MockClock) -> None:
    """A Java master that leads next knows a decision by the place of the last half alone."""
    async with cluster() as made:
        node = await made.node(**FAST)
        async with producer(made, node) as shop:
            half = await shop.half()
            await until(lambda: bool(shop.checks))
            await shop.commit(half)
            await trio.sleep(0.1)
            assert bodies(node, OP_HALF) == [b"0,", b"1,"]


async def test_a_late_answer_is_taken_by_a_table_that_begins_behind_its_half(autojump_clock: MockClock) -> None:
    """Without a checkpoint it is read from the check loop's place on, where the last half stands."""
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH", **FAST)
        async with producer(made, node) as shop:
            half = await shop.half()
            await until(lambda: len(shop.checks) == 2)
            await trio.sleep(15)
            places = [half, *(check.place for check in shop.checks)]
        await node.kill()
        without_a_checkpoint(node)
        await node.start()
        async with producer(made, node, beat=False) as shop:
            shop.uniques.update(dict.fromkeys(places, "U1"))
            assert len(places) > 3
            await shop.commit(places[1])
            await trio.sleep(1)
            assert (bodies(node), len(transactions(node).halves)) == ([b"paid"], 0)


async def test_a_contradiction_is_refused(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            half, other = await shop.half(), await shop.half(b"other", unique="U2")
            await shop.commit(half)
            assert (await shop.end(half, ROLLBACK)).code == ResponseCode.ILLEGAL_OPERATION
            await shop.roll_back(other)
            await trio.sleep(5)
            refused = await shop.end(other, COMMIT)
            assert refused.code == ResponseCode.ILLEGAL_OPERATION
            assert refused.remark == "the transaction U2 was decided before: rollback"
            assert bodies(node) == [b"paid"]
            page = BrokerMetrics(node.broker).exposition()
            assert b'why="contradicted"} 2.0' in page


async def both_ways(shop: Producer, committed: Place, gone: Place) -> list[tuple[int, str | None]]:
    """What is answered to who says again what was said, and then the contrary."""
    assert (await shop.end(committed, COMMIT)).code == (await shop.end(gone, ROLLBACK)).code == ResponseCode.SUCCESS
    answers = [await shop.end(committed, ROLLBACK), await shop.end(gone, COMMIT)]
    return [(answer.code, answer.remark) for answer in answers]


REFUSED = [(ResponseCode.ILLEGAL_OPERATION, f"the transaction U{number} was decided before: {decision}")
           for number, decision in ((1, "commit"), (2, "rollback"))]


@pytest.mark.parametrize("checkpoint", [True, False])
async def test_a_contradiction_is_refused_after_a_start(checkpoint: bool, autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        async with producer(made, node) as shop:
            await shop.half(b"open", unique="U0")
            halves = [await shop.half(unique=f"U{number}") for number in (1, 2)]
            await shop.commit(halves[0])
            await shop.roll_back(halves[1])
            await shop.commit(await shop.half(b"another", unique="U3"))
            await trio.sleep(15)
        await node.kill()
        if not checkpoint:
            without_a_checkpoint(node)
        await node.start()
        async with producer(made, node) as shop:
            assert await both_ways(shop, *halves) == REFUSED
            assert bodies(node) == [b"paid", b"another"]
            assert b'why="contradicted"} 2.0' in BrokerMetrics(node.broker).exposition()


async def test_a_contradiction_is_refused_after_more_decisions_than_are_remembered(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        transactions(node).halves._ended_max = 2
        async with producer(made, node) as shop:
            halves = [await shop.half(unique=f"U{number}") for number in (1, 2)]
            await shop.commit(halves[0])
            await shop.roll_back(halves[1])
            for number in range(3):
                await shop.commit(await shop.half(b"another", unique=f"A{number}"))
            await trio.sleep(1)
            assert transactions(node).halves.ended(halves[0].offset) is None
            assert await both_ways(shop, *halves) == REFUSED


async def test_the_mark_of_a_commit_has_a_key_if_its_final_record_is_not_found_for_all_halves(
        autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST)
        transactions(node).halves._ended_max = 0
        async with producer(made, node) as shop:
            delayed = await shop.half(unique="U1", DELAY="18")
            await shop.commit(delayed)
            plain = await shop.half(unique="U2")
            await shop.commit(plain)
            begun = await shop.half(unique="U3")
            await until(lambda: bool(shop.checks))
            later = shop.checks[0].place
            assert later != begun
            await shop.commit(later)
            await trio.sleep(0.1)
            assert [values(each).get("KEYS") for each in records(node, OP_HALF)
                    if values(each)["__QUORATE_END"] == "commit"] == [str(delayed.offset), None, str(begun.offset)]
            for each in (delayed, plain, begun, later):
                assert (await shop.end(each, COMMIT)).code == ResponseCode.SUCCESS
                assert (await shop.end(each, ROLLBACK)).code == ResponseCode.ILLEGAL_OPERATION
            assert len(bodies(node)) == 2


async def test_how_a_transaction_ended_that_nothing_tells_is_said_to_be_unknown(autojump_clock: MockClock) -> None:
    """Without an index no mark is found again."""
    async with cluster() as made:
        node = await made.node(messageIndexEnable="false", flushDiskType="SYNC_FLUSH")
        async with producer(made, node) as shop:
            halves = [await shop.half(unique=f"U{number}") for number in (1, 2)]
            await shop.commit(halves[0])
            await shop.roll_back(halves[1])
            await trio.sleep(15)
        await node.kill()
        await node.start()
        async with producer(made, node) as shop:
            for number, half in enumerate(halves, 1):
                for decision in (COMMIT, ROLLBACK):
                    answer = await shop.end(half, decision)
                    assert (answer.code, answer.remark) == (
                        ResponseCode.SYSTEM_ERROR, f"How the transaction ended is not known any more: U{number}")
            assert bodies(node) == [b"paid"]
            assert b'why="unknown"} 4.0' in BrokerMetrics(node.broker).exposition()


@pytest.mark.parametrize(("status", "code"), [
    (PutStatus.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT),
    (PutStatus.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT), (PutStatus.SLAVE_NOT_AVAILABLE, 0)])
async def test_a_decision_that_a_new_master_may_not_have_is_not_answered_as_done(
    status: PutStatus, code: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            half, put = await shop.half(), Puts.put

            def late(puts: Puts, messages: Sequence[Message], done: Done) -> None:
                put(puts, messages, lambda result: done(result._replace(status=status)))

            monkeypatch.setattr(Puts, "put", late)
            monkeypatch.setattr(Ending, "shown", lambda ending, end: None)
            for _ in range(2):
                assert (await shop.end(half, COMMIT)).code == code
            monkeypatch.undo()
            await trio.sleep(1)
            await shop.commit(half)
            assert bodies(node) == [b"paid"]


async def test_how_long_transactions_took_is_told(autojump_clock: MockClock) -> None:
    """From the half's birth to its commit, in seconds; a rollback has no time."""
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            first, second, third = [await shop.half(unique=f"U{number}") for number in range(3)]
            await shop.commit(first)
            await trio.sleep(30)
            await shop.commit(second)
            await shop.roll_back(third)
            text = BrokerMetrics(node.broker).exposition().decode()
        found = {line.rpartition('le="')[2].partition('"')[0]: line.rpartition(" ")[2] for line in text.splitlines()
                 if line.startswith("rocketmq_finish_message_latency_milliseconds_bucket")}
        assert found == dict(zip(("5.0", "60.0", "600.0", "3600.0", "43200.0", "86400.0", "+Inf"),
                                 ("1.0", *["2.0"] * 6), strict=True))


async def test_two_halves_with_one_id_are_two_transactions(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            one, other = await shop.half(b"one"), await shop.half(b"other")
            await shop.commit(one)
            await shop.roll_back(other)
            await trio.sleep(1)
            assert bodies(node) == [b"one"]


async def test_a_half_that_was_given_up_may_be_decided_late(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**FAST, transactionCheckMax="0")
        async with producer(made, node) as shop:
            half = await shop.half()
            await trio.sleep(10)
            assert bodies(node, CHECK_MAX_TIME) == [b"paid"]
            assert shop.checks == []
            await shop.commit(half)
            await trio.sleep(1)
            await shop.commit(half)
            assert bodies(node) == [b"paid"]


async def test_forged_decisions_leave_the_half_alone(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            half = await shop.half()
            ordinary = await made.send(node.address, b"ordinary", properties=f"UNIQ_KEY\1x\2PGROUP\1{GROUP}\2")
            at = int(ordinary.ext["msgId"][16:], 16)
            for place, group, words in (
                    (half, "thief", "The producer group wrong"),
                    (Place(half.offset, 7), GROUP, "The transaction state table offset wrong"),
                    (Place(half.offset + 1, 0), GROUP, "Find prepared transaction message failed"),
                    (Place(1 << 50, 0), GROUP, "Find prepared transaction message failed"),
                    (Place(-5, 0), GROUP, "Find prepared transaction message failed"),
                    (Place(at, 0), GROUP, "Find prepared transaction message failed: it is no half")):
                answer = await shop.end(place, COMMIT, group=group)
                assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, words)
            nobodys = await shop.send(b"nobody's", unique="U9", group=None)
            place = Place(int(nobodys.ext["msgId"][16:], 16), int(nobodys.ext["queueOffset"]))
            assert (await shop.end(place, COMMIT, group="")).remark == "The producer group wrong"
            shop.uniques[half] = "U0"  # it stood here, and was lost with the master before
            for decision in (COMMIT, ROLLBACK):
                assert (await shop.end(half, decision)).remark == "Another transaction's half is there"
            shop.uniques[half] = "U1"
            assert bodies(node) == [b"ordinary"]
            await shop.commit(half)
            await trio.sleep(0.1)
            assert bodies(node) == [b"ordinary", b"paid"]




async def test_323_refuses_a_transaction_that_was_decided_where_the_log_begins_behind_its_first_half(
        autojump_clock: MockClock) -> None:
    """And the process that decided is gone: the mark says it."""
    async with cluster() as made:
        node = await made.node(**FAST, transactionCheckMax="3", mappedFileSizeCommitLog=str(1 << 16))
        async with producer(made, node) as shop:
            half = await shop.half()
            await trio.sleep(3)
            await made.fill_files(node)
            await trio.sleep(30)
            (lying,) = records(node, CHECK_MAX_TIME)
            await shop.commit(shop.checks[-1].place)
            await trio.sleep(1)
            for _ in range(3):
                node.shed()
                await trio.sleep(1)
            assert node.broker.journal.begin > half.offset
            await trio.sleep(15)
        await node.stop()
        await node.start()
        await trio.sleep(3)
        async with producer(made, node, "p2") as again:
            refused = await again.resume(lying)
            assert refused.code == ResponseCode.SYSTEM_ERROR and "was decided" in (refused.remark or "")
            again.decision = COMMIT
            await trio.sleep(10)
            assert bodies(node) == [b"paid"] and not again.checks
