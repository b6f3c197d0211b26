"""From a POP to what comes back, and what does not: whole brokers in virtual time."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.pop.part import PopPart
from harness.simulation.worlds.brokers import Cluster, Node, cluster, new_master, three, until
from remoting.bodies.popping import BatchAck, BatchAckRequest, bits_of
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.queries import TopicRequest
from remoting.headers.sending import ConsumerSendMsgBackRequest
from remoting.record import decode_properties
from tests.broker.pop.world import ALL_ACK, Popped, Popper, pop_records

OK = ResponseCode.SUCCESS


async def given(made: Cluster, node: Node, count: int, invisible_ms: int = 10_000) -> list[Popped]:
    for number in range(count):
        assert (await made.send(node.address, b"%d" % number)).code == OK
    return await Popper(made).pop(node, queue=0, invisible_ms=invisible_ms)


async def back(made: Cluster, node: Node, *, within_s: float = 60) -> list[Popped]:
    """All that comes back in that time; it is acknowledged."""
    found: list[Popped] = []
    popper = Popper(made)
    with trio.move_on_after(within_s):
        while True:
            for message in await popper.pop(node, poll_ms=5_000):
                found.append(message)
                assert (await popper.ack(node, message)).code == OK
    return found


async def test_what_nobody_acknowledges_comes_back_in_time(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        first, second, _ = await given(made, node, 3)
        began = trio.current_time()
        assert (await Popper(made).ack(node, second)).code == OK
        (again, *more) = await Popper(made).pop(node, poll_ms=25_000)
        assert 10 <= trio.current_time() - began <= 10 + 7
        found = [again, *more, *await back(made, node)]
        assert sorted(each.body for each in found) == [b"0", b"2"]
        assert all(each.record.message.topic == b"T" for each in found)
        assert all(each.record.message.reconsume_times == 1 for each in found)
        assert all(each.properties["1ST_POP_TIME"] == str(first.receipt.pop_time_ms) for each in found)


async def test_what_is_acknowledged_in_time_never_does(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        for message in await given(made, node, 5):
            assert (await Popper(made).ack(node, message)).code == OK
        assert await back(made, node) == []


async def test_an_acknowledgement_that_comes_too_late_changes_nothing(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        (message,) = await given(made, node, 1)
        found = await back(made, node, within_s=20)
        assert [each.body for each in found] == [b"0"]
        assert (await Popper(made).ack(node, message)).code == OK
        assert await back(made, node) == []


FORGED: dict[str, list[Any]] = {
    "start_offset": [-1, 1, 2, 77, 2**63 - 1], "pop_time_ms": [-1, 0, 1, 2**62],
    "revive_qid": [-1, *range(9), 999, 2**31 - 1], "broker_name": ["", "b", "a b", "x" * 300],
    "invisible_ms": [-1, 0, 2**62], "retry_flag": [1, 2, 9], "queue_id": [-1, 3, 2**31 - 1], "offset": [-1, 2, 99]}
UNBOUND = ("start_offset", "pop_time_ms", "revive_qid", "broker_name")
"""Of these one at least is another one: else it is an acknowledgement, by who has a right to it."""


async def test_forged_receipts_acknowledge_nothing(autojump_clock: MockClock) -> None:
    """Cut off, of another broker, or with other numbers: an answer with a code and words, and all comes back."""
    async with cluster() as made:
        node, popper, rng, codes = await made.node(), Popper(made), Random(17), Counter[int]()
        messages = await given(made, node, 3, 60_000)
        receipt = messages[0].receipt
        text = receipt.encode()
        texts = {text[:length] for length in range(len(text) - 12)} | {f"{text}é", text.replace(" ", "  ")}
        for _ in range(200):
            names = {rng.choice(UNBOUND), *rng.choices([*FORGED], k=2)}
            change = {name: rng.choice(FORGED[name]) for name in sorted(names)}
            change = {name: value for name, value in change.items() if value != getattr(receipt, name)}
            if change.keys() & {*UNBOUND}:
                texts.add(attrs.evolve(receipt, **change).encode())
        for each in sorted(texts):
            for answer in (await popper.ack(node, messages[0], extra_info=each),
                           await popper.change(node, messages[1], 50_000, extra_info=each)):
                codes[answer.code] += 1
                assert answer.code == OK or (answer.remark and len(answer.remark) < 400), (each, answer)
        assert not node.broker.server.counters.failed
        assert codes.keys() <= {0, 1, 13} and codes[0] > 20 and codes[1] > 100, codes
        again = await back(made, node, within_s=120)
        assert {message.body for message in again} == {b"0", b"1", b"2"}


async def test_a_receipt_of_a_former_life_of_its_topic_acknowledges_no_message_of_this_one(
        autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        (old,) = await given(made, node, 1)
        assert (await made.ask(node.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("T"))).code == OK
        assert (await popper.ack(node, old)).code == ResponseCode.TOPIC_NOT_EXIST
        (new,) = await given(made, node, 1)
        assert new.offset == old.offset and new.receipt != old.receipt
        assert (await popper.ack(node, old)).code == OK, "it is stored, and of no checkpoint here"
        assert [message.body for message in await back(made, node, within_s=20)] == [b"0"]


async def test_what_is_popped_may_be_given_back_by_its_place_in_the_log(autojump_clock: MockClock) -> None:
    """36: for the dead letters, as proxies do, or for members of the group that pull; whether it came back or not."""
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        (first,) = await given(made, node, 1)
        (again,) = await popper.pop(node, poll_ms=25_000)
        assert again.topic == "%RETRY%G_T"
        for message, level in ((first, -1), (again, -1), (again, 1)):
            answer = await made.ask(node.address, RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(
                message.record.offset, "G", level, origin_topic="T"))
            assert answer.code == OK, answer.remark
        assert (await popper.ack(node, again)).code == OK
        dead = pop_records(node, "%DLQ%G")
        assert [decode_properties(each.message.properties)["RETRY_TOPIC"] for each in dead] == ["T", again.topic]
        assert all("POP_CK" not in decode_properties(each.message.properties) for each in dead)
        await trio.sleep(30)
        (retry,) = pop_records(node, "%RETRY%G")
        assert (retry.message.body, retry.message.reconsume_times) == (b"0", 2)
        assert await back(made, node) == [], "what is acknowledged does not come back besides"


async def test_a_dead_letter_that_came_back_before_does_not_again_after_a_failover(autojump_clock: MockClock) -> None:
    """Each replica knows still that its checkpoint is done with, though its offset was not copied yet."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK)
        assert (await made.send(master.address, b"0", queue=0, properties="UNIQ_KEY\x01U\x02")).code == OK
        popper = Popper(made)
        (_,) = await popper.pop(master, queue=0, invisible_ms=5_000)
        (again,) = await popper.pop(master, poll_ms=25_000)
        answer = await made.ask(master.address, RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(
            again.record.offset, "G", -1, origin_topic="T"))
        assert answer.code == OK, answer.remark
        assert (await popper.ack(master, again)).code == OK
        await master.kill()
        new = await new_master(*others)
        assert await back(made, new) == []
        assert len(pop_records(new, "%RETRY%G_T")) == len(pop_records(new, "%DLQ%G")) == 1


async def test_others_of_a_batch_come_back(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        receipt = (await given(made, node, 5))[0].receipt
        entry = BatchAck("G", "T", receipt.start_offset, 0, receipt.revive_qid, receipt.pop_time_ms,
                         receipt.invisible_ms, bits_of([0, 3]))
        body = BatchAckRequest("a", [entry]).to_json()
        assert (await made.ask(node.address, RequestCode.BATCH_ACK_MESSAGE, body=body)).code == OK
        assert sorted(each.body for each in await back(made, node)) == [b"1", b"2", b"4"]


async def test_another_time_holds_each_time(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        (message,) = await given(made, node, 1)
        changed = await popper.changed(node, await popper.changed(node, message, 15_000), 15_000)
        began = trio.current_time()
        (again,) = await popper.pop(node, poll_ms=29_000)
        assert 15 <= trio.current_time() - began <= 22
        assert (await popper.ack(node, changed)).code == OK
        assert (await popper.ack(node, again)).code == OK
        assert await back(made, node) == []


@pytest.mark.parametrize("keys", [{}, {"enablePopBufferMerge": "true"}])
async def test_a_master_killed_loses_nothing_and_brings_nothing_back_twice(
        autojump_clock: MockClock, keys: dict[str, str]) -> None:
    """What was acknowledged in time stays so; all else comes from the next master."""
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **ALL_ACK, **keys)
        found = await given(made, master, 6)
        for message in found[:3]:
            assert (await Popper(made).ack(master, message)).code == OK
        await master.kill()
        leader = await new_master(*slaves)
        await until(leader.broker.parts[PopPart]._is_ready)
        for number in range(6, 9):
            assert (await made.send(leader.address, b"%d" % number)).code == OK
        assert sorted(each.body for each in await back(made, leader)) == [b"%d" % number for number in range(3, 9)]


@pytest.mark.parametrize("dies_s", [1, 9.5, 12.5])
async def test_a_killed_master_delays_what_comes_back_by_no_more_than_it_is_missed(
        autojump_clock: MockClock, dies_s: float) -> None:
    """While it is out, as its time ends, and as it would have come back."""
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **ALL_ACK)
        popped_at = trio.current_time()
        found = await given(made, master, 6)
        await trio.sleep_until(popped_at + dies_s)
        await master.kill()
        killed_at = trio.current_time()
        leader = await new_master(*slaves)
        await until(leader.broker.parts[PopPart]._is_ready)
        outage_s, left = trio.current_time() - killed_at, {each.body for each in found}
        popper = Popper(made)
        with trio.move_on_at(popped_at + 10 + 7 + outage_s):
            while left:
                for message in await popper.pop(leader, poll_ms=1_000):
                    assert trio.current_time() >= popped_at + 10
                    assert (await popper.ack(leader, message)).code == OK
                    left.remove(message.body)
        assert not left and outage_s < 30
