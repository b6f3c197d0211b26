"""What a POP gives, and when it gives nothing: whole brokers in virtual time."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.pop import records
from broker.pop.part import PopPart
from broker.store.tables import SubscriptionGroup
from broker.topics.names import pop_retry_topic
from harness.simulation.worlds.brokers import CLUSTER, Cluster, Node, cluster, until, wall_ms
from remoting.bodies.namesrv import TopicConfig
from remoting.bodies.popping import CheckPoint
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.popping import FROM_MAX, PeekMessageRequest, PopMessageRequest
from remoting.record import Message, decode_properties
from tests.broker.pop.world import Popper, offset, pop_records, popped


async def test_messages_are_given_once_with_a_checkpoint_in_front(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        for number in range(5):
            await made.send(node.address, b"%d" % number)
        answer = await popper.ask(node, queue=0, count=3)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
        assert answer.ext["startOffsetInfo"] == "0 0 0"
        assert answer.ext["msgOffsetInfo"] == "0 0 0,1,2"
        assert answer.ext["restNum"] == "2"
        assert [each.body for each in popped(answer, "T", "G")] == [b"0", b"1", b"2"]
        (record,) = pop_records(node)
        checkpoint = records.read(record.message)
        assert checkpoint == CheckPoint(
            0, int(answer.ext["popTime"]), 60_000, 3, 0, "T", "G", diffs=[0, 1, 2], broker_name="a")
        assert decode_properties(record.message.properties)["REAL_QID"] == answer.ext["reviveQid"]
        assert offset(node) == 3
        assert [each.body for each in await popper.pop(node, queue=0)] == [b"3", b"4"]
        assert await popper.pop(node, queue=0) == []
        assert offset(node) == 5


async def test_all_queues_are_looked_at_where_none_is_named(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        for number in range(8):
            await made.send(node.address, b"%d" % number, queue=number % 4)
        found = await popper.pop(node)
        assert sorted(each.body for each in found) == [b"%d" % number for number in range(8)]
        assert {each.receipt.queue_id for each in found} == {0, 1, 2, 3}
        assert len(pop_records(node)) == 4
        assert len({each.receipt.revive_qid for each in found}) == 1, "one for each POP"


@pytest.mark.parametrize("queues", [1, 3])
async def test_checkpoints_go_to_as_many_revive_queues_as_are_configured(
        autojump_clock: MockClock, queues: int) -> None:
    async with cluster() as made:
        node, popper = await made.node(reviveQueueNum=str(queues)), Popper(made)
        found: list[int] = []
        for number in range(6):
            await made.send(node.address, b"%d" % number)
            found += [each.receipt.revive_qid for each in await popper.pop(node, invisible_ms=1_000)]
        assert sorted(found) == sorted([*range(queues)] * (6 // queues)), "in turn"
        await trio.sleep(10)
        assert [bool(pop_records(node, f"rmq_sys_REVIVE_LOG_{CLUSTER}", queue)) for queue in range(4)] == [
            queue < queues for queue in range(4)]


async def test_nothing_is_answered_when_the_wait_is_over(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        await made.send(node.address, b"x", queue=1)
        answer = await popper.ask(node, queue=0)
        assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        assert answer.ext["invisibleTime"] == "60000"
        began = trio.current_time()
        assert (await popper.ask(node, queue=0, poll_ms=5_000)).code == ResponseCode.POLLING_TIMEOUT
        assert 4.9 <= trio.current_time() - began <= 5.1


@pytest.mark.parametrize("queue", [0, -1])
async def test_a_message_ends_the_wait(autojump_clock: MockClock, queue: int) -> None:
    async with cluster() as made, trio.open_nursery() as nursery:
        node, popper = await made.node(), Popper(made)
        await made.send(node.address, b"x", queue=1)
        if queue == -1:
            await popper.pop(node)
        found: list[bytes] = []

        async def wait() -> None:
            found.extend(each.body for each in await popper.pop(node, queue=queue, poll_ms=15_000))

        nursery.start_soon(wait)
        await trio.sleep(1)
        assert not found
        await made.send(node.address, b"y")
        await trio.sleep(0.05)
        assert found == [b"y"]


BAD_EXPRESSIONS = [
    ("a" * 1_000_000, "1000000 characters"), ("(" * 1_000 + "a = 5" + ")" * 1_000, "within each other"),
    ("a > " + "9" * 10_000, "64 bits"), ("a > 1e" + "9" * 10_000, "1.8E308")]


@pytest.mark.parametrize(("change", "code", "words"), [
    ({"max_msg_nums": 33}, 29, "greater than 32"), ({"max_msg_nums": 0}, 29, "less than 1"),
    ({"born_time": 1_600_000_000_000}, 210, "timeout too much"), ({"topic": "unknown"}, 17, "not exist"),
    ({"queue_id": 4}, 29, "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4]"),
    ({"consumer_group": "no group!"}, 26, "does not exist"), ({"invisible_time": -1}, 29, "invisibleTime"),
    ({"exp": "a ||", "exp_type": "SQL92"}, 23, "parse the consumer's subscription failed"),
    ({"exp": "a", "exp_type": "SQL99"}, 23, "parse the consumer's subscription failed"),
    *(({"exp": text, "exp_type": "SQL92"}, 23, words) for text, words in BAD_EXPRESSIONS),
    ({"topic": "W"}, 16, "the topic[W] peeking message is forbidden"),
    ({"consumer_group": "stopped"}, 16, "subscription group no permission, stopped")])
async def test_what_is_refused(autojump_clock: MockClock, change: dict[str, Any], code: int, words: str) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.send(node.address, b"x")
        node.topics.update([TopicConfig("W", 1, 1, 2)])
        node.groups.update([SubscriptionGroup("stopped", consume_enable=False)])
        header = attrs.evolve(PopMessageRequest("G", "T", 0, 1, 60_000, 1_000, wall_ms()), **change)
        answer = await made.ask(node.address, RequestCode.POP_MESSAGE, header)
        assert answer.code == code, answer
        assert words in (answer.remark or "") and len(answer.remark or "") < 400
        assert not pop_records(node)


@pytest.mark.parametrize(("keys", "code", "words"), [
    ({"timerWheelEnable": "false"}, 1, "because timerWheelEnable is false"),
    ({"brokerPermission": "2"}, 16, "pop message is forbidden"),
    ({"autoCreateSubscriptionGroup": "false"}, 26, "subscription group [G] does not exist")])
async def test_what_a_broker_refuses_by_its_keys(
        autojump_clock: MockClock, keys: dict[str, str], code: int, words: str) -> None:
    async with cluster() as made:
        node = await made.node(**keys)
        node.topics.update([TopicConfig("T", 1, 1)])
        answer = await Popper(made).ask(node)
        assert answer.code == code, answer
        assert words in (answer.remark or "")


async def test_when_too_many_wait_the_next_one_is_told_so(autojump_clock: MockClock) -> None:
    async with cluster() as made, trio.open_nursery() as nursery:
        node, popper = await made.node(popPollingSize="2"), Popper(made)
        await made.send(node.address, b"x", queue=1)
        codes: list[int] = []

        async def wait() -> None:
            codes.append((await popper.ask(node, queue=0, poll_ms=5_000)).code)

        for _ in range(2):
            nursery.start_soon(wait)
        await trio.sleep(0.1)
        began = trio.current_time()
        answer = await popper.ask(node, queue=0, poll_ms=5_000)
        assert (answer.code, answer.remark, answer.body) == (ResponseCode.POLLING_FULL, "NO_MESSAGE_IN_QUEUE", b"")
        assert answer.ext["invisibleTime"] == "60000" and trio.current_time() - began < 0.1
        assert [each.body for each in await popper.pop(node, queue=1, poll_ms=5_000)] == [b"x"], "another line"
        await trio.sleep(6)
        assert codes == [ResponseCode.POLLING_TIMEOUT] * 2


async def test_a_group_begins_where_it_asks_to(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(initPopOffsetByCheckMsgInMem="false")
        for number in range(9):
            await made.send(node.address, b"%d" % number)
        assert [each.body for each in await Popper(made, "last").pop(node, queue=0, init_mode=FROM_MAX)] == [b"8"]
        assert len(await Popper(made, "all").pop(node, queue=0)) == 9
        assert await Popper(made, "none").pop(node, queue=1, init_mode=FROM_MAX) == []


async def test_a_new_group_gets_all_of_a_young_queue(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.send(node.address, b"x")
        await made.send(node.address, b"y")
        assert len(await Popper(made).pop(node, queue=0, init_mode=FROM_MAX)) == 2


async def test_what_a_filter_leaves_out_is_passed(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(enablePropertyFilter="true"), Popper(made)
        for number in range(30):
            tag = "ab"[number % 3 == 0]
            await made.send(node.address, b"%d" % number, properties=f"TAGS\x01{tag}\x02n\x01{number}\x02")
        first = await popper.pop(node, queue=0, count=2, exp="b", exp_type="TAG")
        assert [each.body for each in first] == [b"0", b"3"]
        assert {each.receipt.start_offset for each in first} == {0}
        again = await popper.pop(node, queue=0, exp="TAGS = 'b' AND n > 20", exp_type="SQL92")
        assert [each.body for each in again] == [b"21", b"24", b"27"]
        assert offset(node) == 30, "all was looked at"
        assert await popper.pop(node, queue=0) == []
        for number in range(2_000):
            node.broker.journal.append([Message(b"T", b"%d" % number, 0, b"TAGS\x01a\x02")])
        await made.send(node.address, b"far", properties="TAGS\x01b\x02")
        assert [each.body for each in await popper.pop(node, queue=0, exp="b")] == [b"far"]


UNWANTED = 40
SQL = {"exp": "n > 20", "exp_type": "SQL92"}
TAG = {"exp": "b", "exp_type": "TAG"}


async def fill(made: Cluster, node: Node) -> None:
    """Each of four queues gets messages that nobody wants, and the second one that somebody does behind them."""
    for queue in range(4):
        for _ in range(UNWANTED):
            await made.send(node.address, b"x", queue=queue, properties="TAGS\x01a\x02n\x011\x02")
    await made.send(node.address, b"far", queue=1, properties="TAGS\x01b\x02n\x0121\x02")


def steps(node: Node) -> list[int]:
    """How many messages each POP looks at from now on, over all queues: it grows with each."""
    popping = node.broker.parts[PopPart].popping
    found, take = list[int](), popping._take

    def where() -> int:
        return sum(offset(node, queue=queue) or 0 for queue in range(4))

    def taken(*asked: Any) -> Any:
        before = where()
        got = take(*asked)
        found.append(where() - before)
        return got

    popping._take = taken  # type: ignore[method-assign, assignment]
    return found


@pytest.mark.parametrize(("asked", "work", "most"), [
    (SQL, 15, 15), (TAG, 3, UNWANTED), ({**SQL, "order": True}, 15, 15)])
async def test_a_pop_looks_at_so_much_of_all_queues_and_goes_on_in_a_later_turn(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], work: int,
        most: int) -> None:
    monkeypatch.setattr("broker.pulling.reading._EFFORT", work)
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        await fill(made, node)
        looked, began = steps(node), trio.current_time()
        answer = await popper.ask(node, poll_ms=10_000, attempt_id="A", **asked)
        assert [each.body for each in popped(answer, "T", "G")] == [b"far"]
        assert trio.current_time() - began < 1, "it does not wait for anything"
        assert len(looked) > 1 and 0 < max(looked) <= most, "no turn is long"
        assert all(looked[:-1]), "and none is for nothing"


@pytest.mark.parametrize("asked", [SQL, TAG])
async def test_who_cannot_wait_is_told_that_there_is_more_and_goes_on_behind_what_was_looked_at(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> None:
    monkeypatch.setattr("broker.pulling.reading._EFFORT", 3)
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        await fill(made, node)
        rests = [4 * UNWANTED + 1]
        while (answer := await popper.ask(node, **asked)).code == ResponseCode.POLLING_TIMEOUT:
            rests.append(int(answer.ext["restNum"]))
            assert 0 < rests[-1] < rests[-2]
        assert [each.body for each in popped(answer, "T", "G")] == [b"far"] and len(rests) > 1


async def test_what_a_pop_found_is_given_though_it_looked_at_some_queues_alone(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.pulling.reading._EFFORT", 2)
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        for number in range(8):
            await made.send(node.address, b"%d" % number, queue=number % 4, properties="n\x0121\x02")
        found: list[bytes] = []
        while some := await popper.pop(node, **SQL):
            assert len({each.receipt.queue_id for each in some}) == 1
            found += [each.body for each in some]
        assert sorted(found) == [b"%d" % number for number in range(8)]


async def test_hash_collisions_of_tags_are_the_client_s_to_tell(autojump_clock: MockClock) -> None:
    """As for pulls: AaAa and BBBB have one hash."""
    async with cluster() as made:
        node = await made.node()
        await made.send(node.address, b"x", properties="TAGS\x01AaAa\x02")
        await made.send(node.address, b"y", properties="TAGS\x01BBBB\x02")
        await made.send(node.address, b"z", properties="TAGS\x01C\x02")
        assert [each.body for each in await Popper(made).pop(node, queue=0, exp="BBBB")] == [b"x", b"y"]


@pytest.mark.parametrize("v2", [False, True])
async def test_what_comes_back_is_of_the_topic_again(autojump_clock: MockClock, v2: bool) -> None:
    async with cluster() as made:
        node, popper = await made.node(enableRetryTopicV2=str(v2).lower()), Popper(made)
        retry = pop_retry_topic("T", "G", v2=v2)
        node.topics.create_if_absent(retry, 1)
        await made.send(node.address, b"x")
        node.broker.journal.append([Message(retry.encode(), b"again", 0, b"A\x01b\x02", reconsume_times=2)])
        found = {each.body: each for each in await popper.pop(node)}
        assert set(found) == {b"x", b"again"}
        again = found[b"again"]
        assert again.record.message.topic == b"T"
        assert again.record.message.reconsume_times == 2
        assert again.properties["A"] == "b"
        assert again.receipt.retry_flag == 1 + v2
        assert again.topic == retry
        assert (await popper.ack(node, again)).code == ResponseCode.SUCCESS
        assert "POP_CK" not in found[b"x"].properties, "as it stands in the log"


@pytest.mark.parametrize(("keys", "bodies"), [
    ({"retrieveMessageFromPopRetryTopicV1": "false"}, {b"new"}), ({}, {b"new", b"old"})])
async def test_the_old_retry_topic_is_read_as_long_as_a_key_says_so(
        autojump_clock: MockClock, keys: dict[str, str], bodies: set[bytes]) -> None:
    async with cluster() as made:
        node, popper = await made.node(enableRetryTopicV2="true", **keys), Popper(made)
        await made.send(node.address, b"x")
        for name, body in ((pop_retry_topic("T", "G"), b"old"), (pop_retry_topic("T", "G", v2=True), b"new")):
            node.topics.create_if_absent(name, 1)
            node.broker.journal.append([Message(name.encode(), body, 0)])
        found = [each.body for _ in range(3) for each in await popper.pop(node, queue=0)]
        assert sorted(found) == sorted({b"x"} | bodies)


@pytest.mark.parametrize("percent", [0, 100])
async def test_how_often_what_comes_back_is_first(autojump_clock: MockClock, percent: int) -> None:
    async with cluster() as made:
        node, popper = await made.node(popFromRetryProbability=str(percent)), Popper(made)
        retry = pop_retry_topic("T", "G")
        node.topics.create_if_absent(retry, 1)
        for _ in range(9):
            await made.send(node.address, b"x")
            node.broker.journal.append([Message(retry.encode(), b"again", 0)])
        found = [each.body for _ in range(9) for each in await popper.pop(node, queue=0, count=1)]
        assert found == [b"again" if percent else b"x"] * 9


PRIORITIES = TopicConfig("T", 4, 4, attributes={"message.type": "PRIORITY"})


async def in_all_queues(made: Cluster, node: Node) -> None:
    """A message in each queue: its number."""
    for queue in (0, 3, 1, 2):
        await made.send(node.address, b"%d" % queue, queue=queue)


@pytest.mark.parametrize("last_first", [True, False])
async def test_a_topic_of_priorities_gives_its_highest_queue_first(
        autojump_clock: MockClock, last_first: bool) -> None:
    async with cluster() as made:
        node = await made.node(priorityOrderAsc=str(last_first).lower())
        node.topics.update([PRIORITIES])
        await in_all_queues(made, node)
        found = [each.body for _ in range(4) for each in await Popper(made).pop(node, count=1)]
        assert found == [b"3", b"2", b"1", b"0"][::1 if last_first else -1]


@pytest.mark.parametrize(("factor", "order", "first"), [
    ("100", False, b"3"), ("51", False, b"3"), ("50", False, b"1"), ("0", False, b"1"), ("100", True, b"1")])
async def test_priorities_count_as_often_as_the_group_says_and_not_in_order(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, factor: str, order: bool, first: bytes) -> None:
    """As in Java, by its bytecode."""
    async with cluster() as made:
        node = await made.node()
        node.topics.update([PRIORITIES])
        node.groups.update([SubscriptionGroup("G", attributes={"priority.factor": factor})])
        await in_all_queues(made, node)
        monkeypatch.setattr(node.broker.parts[PopPart].popping._rng, "randrange", lambda most: most // 2)
        found = await Popper(made).pop(node, count=1, order=order, attempt_id="A")
        assert [each.body for each in found] == [first]


@pytest.mark.parametrize("percent", [0, 100])
async def test_how_often_what_comes_back_is_first_in_a_topic_of_priorities(
        autojump_clock: MockClock, percent: int) -> None:
    async with cluster() as made:
        node = await made.node(
            popFromRetryProbability=str(100 - percent), popFromRetryProbabilityForPriority=str(percent))
        retry = pop_retry_topic("T", "G")
        node.topics.update([PRIORITIES, TopicConfig(retry, 1, 1)])
        for _ in range(9):
            await made.send(node.address, b"x")
            node.broker.journal.append([Message(retry.encode(), b"again", 0)])
        found = [each.body for _ in range(9) for each in await Popper(made).pop(node, queue=0, count=1)]
        assert found == [b"again" if percent else b"x"] * 9


async def test_a_peek_takes_nothing(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        await made.send(node.address, b"x")
        await made.send(node.address, b"y")
        for _ in range(2):
            answer = await popper.peek(node, count=1)
            assert (answer.code, answer.ext["restNum"]) == (ResponseCode.SUCCESS, "1")
        await popper.pop(node, count=1)
        answer = await popper.peek(node)
        assert (answer.code, answer.ext["restNum"]) == (ResponseCode.SUCCESS, "0")
        await popper.pop(node)
        assert (await popper.peek(node)).code == ResponseCode.PULL_NOT_FOUND
        assert len(pop_records(node)) == 2


@pytest.mark.parametrize(("keys", "change", "code", "words"), [
    ({"brokerPermission": "2"}, {}, 16, "peeking message is forbidden"), ({}, {"topic": "unknown"}, 17, "not exist"),
    ({}, {"topic": "W"}, 16, "the topic[W] peeking message is forbidden"),
    ({}, {"queue_id": 4}, 29, "queueId[4] is illegal"), ({}, {"consumer_group": "no group!"}, 26, "does not exist"),
    ({}, {"consumer_group": "stopped"}, 16, "subscription group no permission, stopped")])
async def test_what_is_not_shown(
        autojump_clock: MockClock, keys: dict[str, str], change: dict[str, Any], code: int, words: str) -> None:
    async with cluster() as made:
        node = await made.node(**keys)
        node.topics.update([TopicConfig("T", 4, 4), TopicConfig("W", 1, 1, 2)])
        node.groups.update([SubscriptionGroup("stopped", consume_enable=False)])
        answer = await made.ask(node.address, RequestCode.PEEK_MESSAGE, attrs.evolve(
            PeekMessageRequest("G", "T", 0, 1), **change))
        assert (answer.code, words in (answer.remark or "")) == (code, True), answer


async def test_where_no_checkpoint_can_be_stored_nothing_is_given(autojump_clock: MockClock) -> None:
    """Neither to this POP nor lost for the next."""
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        await made.send(node.address, b"x")
        node.broker.journal.refusing = "the disk is full"
        answer = await popper.ask(node, queue=0)
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert "the disk is full" in (answer.remark or "")
        assert node.broker.parts[PopPart].popping.counters.refused == 1
        answer = await popper.ask(node, queue=0, invisible_ms=300_000_000)
        assert "no checkpoint: timer message illegal" in (answer.remark or "")
        node.broker.journal.refusing = ""
        assert [each.body for each in await popper.pop(node, queue=0)] == [b"x"]
        assert offset(node) == 1


async def test_a_reset_takes_the_group_back(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        for number in range(3):
            await made.send(node.address, b"%d" % number)
        assert len(await popper.pop(node, queue=0)) == 3
        node.offsets.reset("G", "T", 0, 1)
        assert [each.body for each in await popper.pop(node, queue=0)] == [b"1", b"2"]
        await until(lambda: offset(node) == 3)
