"""What is done with, and what gets another time: whole brokers in virtual time."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from broker.pop import records
from broker.pop.part import PopPart
from broker.store.tables import SubscriptionGroup
from harness.simulation.worlds.brokers import Cluster, Node, cluster, wall_ms
from remoting.bodies.popping import AckMessage, BatchAck, BatchAckMessage, BatchAckRequest, CheckPoint, bits_of
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.headers.popping import AckMessageRequest
from remoting.record import decode_properties
from tests.broker.pop.world import Popped, Popper, pop_records

OK = ResponseCode.SUCCESS


async def given(made: Cluster, node: Node, count: int = 3) -> list[Popped]:
    for number in range(count):
        await made.send(node.address, b"%d" % number)
    return await Popper(made).pop(node, queue=0)


def counters(node: Node) -> Any:
    return node.broker.parts[PopPart].acking.counters


async def test_an_acknowledgement_is_a_record(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        first, second, _ = await given(made, node)
        assert (await Popper(made).ack(node, second)).code == OK
        _, record = pop_records(node)
        receipt = first.receipt
        assert records.read(record.message) == AckMessage(1, 0, "G", "T", 0, receipt.pop_time_ms, "a")
        values = decode_properties(record.message.properties)
        assert values["TIMER_DELIVER_MS"] == str(receipt.pop_time_ms + 60_000)
        assert values["REAL_QID"] == str(receipt.revive_qid)
        assert counters(node).acked == 1


@attrs.define(eq=False)
class Answers:
    """A connection that notes its answers."""

    noted: list[Command] = attrs.field(factory=list)

    def reply(self, to: Command, answer: Command) -> None:
        self.noted.append(answer)


async def acked(node: Node, messages: list[Popped]) -> list[Command]:
    """Answers to one acknowledgement of each message, all of which come in one turn."""
    answers: Any = Answers()
    for each in messages:
        header = AckMessageRequest("G", each.topic, each.receipt.queue_id, each.receipt.encode(), each.offset)
        assert node.broker.parts[PopPart].acking.ack(answers, request(RequestCode.ACK_MESSAGE, header)) is None
    assert not answers.noted
    await wait_all_tasks_blocked()
    found: list[Command] = answers.noted
    return found


async def test_acknowledgements_that_come_together_are_one_record_of_each_checkpoint(
    autojump_clock: MockClock,
) -> None:
    async with cluster() as made:
        node = await made.node()
        one = await given(made, node)
        two = await given(made, node, 1)
        answers = await acked(node, [one[0], two[0], one[2], one[0]])
        assert [answer.code for answer in answers] == 4 * [OK]
        _, _, *found = (records.read(record.message) for record in pop_records(node))
        assert {each.key: sorted(each.acked) for each in found if not isinstance(each, CheckPoint)} == {
            ("T", "G", 0, 0, one[0].receipt.pop_time_ms, "a"): [0, 2],
            ("T", "G", 0, 3, two[0].receipt.pop_time_ms, "a"): [3]}
        assert len(found) == 2
        assert counters(node).acked == 4
        assert counters(node).out.of == {("G", "T"): 1}


async def test_each_of_those_hears_why_they_are_not_stored(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        messages = await given(made, node)
        node.broker.journal.refusing = "the disk is full"
        for answer in await acked(node, messages):
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "the disk is full" in (answer.remark or "")
        assert (counters(node).acked, counters(node).failed) == (0, 3)
        assert len(pop_records(node)) == 1


async def test_acknowledgements_that_were_gathered_when_writes_closed_are_refused(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        messages = await given(made, node)
        journal, fence = node.broker.journal, node.broker.puts.fence
        journal.before_write(lambda: fence("it is not master any more"))
        assert {answer.code for answer in await acked(node, messages)} == {ResponseCode.SYSTEM_ERROR}
        assert len(pop_records(node)) == 1


@pytest.mark.parametrize(("change", "code", "words"), [
    ({"topic": "unknown"}, 17, "not exist"), ({"queue_id": 4}, 13, "queueId[4] is illegal"),
    ({"queue_id": -1}, 13, "queueId[-1] is illegal"), ({"offset": 4}, 208, "offset is illegal, key:T@0, commit:4"),
    ({"offset": -1}, 208, "offset is illegal"), ({"extra_info": "0 1 2"}, 1, "3 fields"),
    ({"extra_info": "0 1 2 0 0 other 0 0"}, 1, "of broker other; this is a"),
    ({"extra_info": "0 1 2 8 0 a 0 0"}, 1, "revive queue 8"),
    ({"extra_info": f"0 {2**62} {2**62} 0 0 a 0 0"}, 1, "timer message illegal"),
    ({"consumer_group": "G\x02__QUORATE_POP\x010 0 3 0 H T\x02"}, 29, "illegal characters"),
    ({"consumer_group": "x" * 121}, 29, "longer than group max length"), ({"consumer_group": " "}, 29, "blank")])
async def test_what_is_refused(autojump_clock: MockClock, change: dict[str, Any], code: int, words: str) -> None:
    async with cluster() as made:
        node = await made.node()
        message = (await given(made, node))[0]
        popper = Popper(made)
        acked, changed = await popper.ack(node, message, **change), await popper.change(node, message, 5_000, **change)
        assert (acked.code, changed.code) == (code, code), (acked, changed)
        assert words in (acked.remark or "")
        assert words in (changed.remark or words), "Java has no words for an offset"
        assert len(pop_records(node)) == 1


async def test_a_group_of_a_strange_name_that_is_there_acknowledges(autojump_clock: MockClock) -> None:
    """Older brokers made groups of other names, and their tables are read."""
    async with cluster() as made:
        node, popper = await made.node(), Popper(made, "x" * 121)
        await made.send(node.address, b"0")
        node.groups.update([SubscriptionGroup(popper.group)])
        (message,) = await popper.pop(node, queue=0)
        assert (await popper.ack(node, await popper.changed(node, message, 5_000))).code == OK


async def test_the_end_of_a_queue_can_be_acknowledged_and_not_changed(autojump_clock: MockClock) -> None:
    """As Java has it."""
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        message = (await given(made, node))[0]
        assert (await popper.ack(node, message, offset=3)).code == OK
        assert (await popper.change(node, message, 5_000, offset=3)).code == ResponseCode.NO_MESSAGE


async def test_what_is_not_stored_is_not_answered_with_success(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        message = (await given(made, node))[0]
        node.broker.journal.refusing = "the disk is full"
        for answer in (await popper.ack(node, message), await popper.change(node, message, 5_000),
                       await many(made, node, [entry(message, 0)])):
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "the disk is full" in (answer.remark or "")
        assert counters(node).failed == 3
        node.broker.journal.refusing = ""
        assert (await popper.ack(node, message)).code == OK


async def test_another_time_is_a_checkpoint_and_an_acknowledgement(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        _, message, _ = await given(made, node)
        changed = await popper.changed(node, message, 5_000)
        _, new, old = (records.read(each.message) for each in pop_records(node))
        assert isinstance(new, CheckPoint)
        assert new == CheckPoint(1, changed.receipt.pop_time_ms, 5_000, 1, 0, "T", "G", diffs=[0], broker_name="a")
        assert isinstance(old, AckMessage)
        assert (old.key, old.ack_offset) == (("T", "G", 0, 0, message.receipt.pop_time_ms, "a"), 1)
        assert new.key != old.key
        again = await popper.changed(node, changed, 5_000)
        *_, new, old = (records.read(each.message) for each in pop_records(node))
        assert old.key == ("T", "G", 0, 1, changed.receipt.pop_time_ms, "a")
        assert again.receipt.pop_time_ms > changed.receipt.pop_time_ms, "or the ack of the old one were one of the new"
        assert (await popper.ack(node, again)).code == OK


async def test_who_changes_its_time_may_say_that_nothing_failed(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        message = (await given(made, node))[0]
        assert (await popper.change(node, message, 5_000, suspend=True)).code == OK
        assert (await popper.change(node, message, -1)).code == ResponseCode.INVALID_PARAMETER
        checkpoint = records.read(pop_records(node)[1].message)
        assert isinstance(checkpoint, CheckPoint)
        assert checkpoint.suspend


def entry(message: Popped, *bits: int, **change: Any) -> BatchAck:
    receipt = message.receipt
    return attrs.evolve(BatchAck(
        "G", "T", receipt.start_offset, receipt.queue_id, receipt.revive_qid, receipt.pop_time_ms,
        receipt.invisible_ms, bits_of(bits), str(receipt.retry_flag)), **change)


async def many(made: Cluster, node: Node, acks: list[BatchAck], broker: str = "a") -> Command:
    return await made.ask(node.address, RequestCode.BATCH_ACK_MESSAGE, body=BatchAckRequest(broker, acks).to_json())


async def test_many_are_acknowledged_at_once(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        message = (await given(made, node, 5))[0]
        assert (await many(made, node, [entry(message, 0, 3), entry(message, 4, 77), entry(message, 99)])).code == OK
        _, first, second, third = (records.read(each.message) for each in pop_records(node))
        assert first == BatchAckMessage([0, 3], 0, "G", "T", 0, message.receipt.pop_time_ms, "a")
        assert isinstance(second, BatchAckMessage)
        assert second.offsets == [4], "others cannot be the queue's"
        assert isinstance(third, BatchAckMessage) and third.offsets == [99]


async def test_who_has_a_shorter_queue_says_nothing_that_it_cannot_store(autojump_clock: MockClock) -> None:
    """It was replaced, and the next master gave what this one never had."""
    async with cluster() as made:
        node = await made.node()
        message = (await given(made, node))[0]
        for given_there in (entry(message, 7), entry(message, 0, topic="new"), entry(message, 0, retry="1")):
            node.broker.journal.refusing = "it is alone"
            assert (await many(made, node, [given_there])).code == ResponseCode.SYSTEM_ERROR
            node.broker.journal.refusing = ""
            assert (await many(made, node, [given_there])).code == OK


@pytest.mark.parametrize(("change", "code", "count"), [
    ({"queue_id": 3}, 0, 2), ({"topic": "unknown"}, 0, 2), ({"retry": "1"}, 0, 2), ({"bits": ""}, 0, 1),
    ({"bits": "?"}, 1, 1), ({"revive_queue_id": 8}, 1, 1), ({"pop_time_ms": -1}, 1, 1), ({}, 0, 2),
    ({"group": "G\x02a\x01b"}, 1, 1), ({"topic": "T\x02a\x01b"}, 1, 1)])
async def test_entries_that_say_nothing(
        autojump_clock: MockClock, change: dict[str, Any], code: int, count: int) -> None:
    async with cluster() as made:
        node = await made.node()
        message = (await given(made, node))[0]
        assert (await many(made, node, [entry(message, 0, **change)])).code == code
        assert len(pop_records(node)) == count


@pytest.mark.parametrize(("body", "code"), [
    (b"", 208), (b"{}", 208), (b'{"acks":[]}', 208), (b"{", 1), (b'{"acks":[{}]}', 1),
    (BatchAckRequest("a", [BatchAck("G", "T", 0, 0, 0, 0, 0, "")] * 1_025).to_json(), 29)])
async def test_requests_that_say_nothing(autojump_clock: MockClock, body: bytes, code: int) -> None:
    async with cluster() as made:
        node = await made.node()
        await given(made, node)
        assert (await made.ask(node.address, RequestCode.BATCH_ACK_MESSAGE, body=body)).code == code


async def test_a_late_acknowledgement_is_answered_with_success(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        await made.send(node.address, b"x")
        (message,) = await popper.pop(node, queue=0, invisible_ms=0)
        assert message.receipt.pop_time_ms <= wall_ms()
        assert (await popper.ack(node, message)).code == OK
