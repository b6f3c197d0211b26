"""Timers from a send to the consumer's queue, on whole brokers in virtual time."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.timer.handles import Handle
from broker.timer.part import TimersPart
from broker.topics.names import TIMER
from harness.simulation.worlds.brokers import (
    EPOCH_MS,
    Cluster,
    Node,
    cluster,
    in_sync,
    new_master,
    three,
    until,
    wall_ms,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.transactions import RecallMessageRequest
from remoting.record import Record, decode, decode_properties, encode_properties

ALL = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
UNIQ = "7F0000010B2C18B4AAC2355A1D8C0001"


async def send(made: Cluster, node: Node, body: bytes = b"x", uniq: str = UNIQ, **timer: Any) -> Command:
    properties = encode_properties({"UNIQ_KEY": uniq, **{name: str(value) for name, value in timer.items()}}).decode()
    return await made.send(node.address, body, properties=properties)


async def good(made: Cluster, node: Node, body: bytes = b"x", uniq: str = UNIQ, **timer: Any) -> Command:
    answer = await send(made, node, body, uniq, **timer)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def records(node: Node, topic: str = "T", queue: int = 0) -> list[Record]:
    messages = node.broker.journal.messages
    found: list[Record] = []
    while raws := messages.get(topic.encode(), queue, len(found), bytes_max=1 << 24):
        found += [decode(raw) for raw in raws]
    return found


def bodies(node: Node, topic: str = "T", queue: int = 0) -> list[bytes]:
    return [record.message.body for record in records(node, topic, queue)]


async def recall(made: Cluster, node: Node, handle: str, topic: str = "T") -> Command:
    return await made.ask(node.address, RequestCode.RECALL_MESSAGE, RecallMessageRequest(topic, handle, "P"))


@pytest.mark.parametrize(("name", "value", "due_ms"), [
    ("TIMER_DELAY_MS", 5_300, 5_300), ("TIMER_DELAY_SEC", 5, 5_000), ("TIMER_DELIVER_MS", EPOCH_MS + 9_000, 9_000)])
async def test_it_comes_within_a_second_of_its_time_and_never_before(
        autojump_clock: MockClock, name: str, value: int, due_ms: int) -> None:
    async with cluster() as made:
        node = await made.node()
        begun_ms = 0 if name == "TIMER_DELIVER_MS" else wall_ms() - EPOCH_MS
        timer: dict[str, Any] = {name: value}
        await good(made, node, **timer)
        while not bodies(node):
            await trio.sleep(0.01)
        came_ms = wall_ms() - EPOCH_MS - begun_ms
        assert due_ms <= came_ms < due_ms + 1_200
        values = decode_properties(records(node)[0].message.properties)
        assert values[name] == str(value)
        assert "REAL_TOPIC" not in values
        assert int(values["TIMER_DEQUEUE_MS"]) >= int(values["TIMER_OUT_MS"]) + 1_000
        await trio.sleep(20)
        assert bodies(node) == [b"x"]


async def test_what_is_due_passes_and_what_is_too_far_is_refused(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        answer = await good(made, node, b"past", TIMER_DELIVER_MS=wall_ms())
        assert "recallHandle" not in answer.ext
        await until(lambda: bodies(node) == [b"past"], within_s=1)
        for timer in ({"TIMER_DELAY_SEC": 259_201}, {"TIMER_DELIVER_MS": 2**63 - 1}, {"TIMER_DELIVER_MS": 2**70},
                      {"TIMER_DELAY_MS": "soon"}, {"TIMER_DELAY_SEC": 2**62},
                      {"TIMER_DELIVER_MS": wall_ms(), "TIMER_DEL_UNIQKEY": UNIQ}):
            answer = await send(made, node, **timer)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, timer
            assert "259200000ms" in (answer.remark or "")
        await good(made, node, b"limit", TIMER_DELAY_SEC=259_200)
        assert bodies(node) == [b"past"]


async def test_a_message_that_waits_for_longer_than_the_window_rolls_and_comes_once(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(timerRollWindowSlot="4", recallMessageEnable="true")
        begun_ms = wall_ms()
        await good(made, node, TIMER_DELAY_SEC=15)
        kept = await good(made, node, b"recalled", "U2", TIMER_DELAY_SEC=15)
        await trio.sleep(7)
        assert (await recall(made, node, kept.ext["recallHandle"])).code == ResponseCode.SUCCESS
        await until(lambda: bodies(node))
        assert 15_000 <= wall_ms() - begun_ms < 16_200
        values = decode_properties(records(node)[0].message.properties)
        assert int(values["TIMER_ROLL_TIMES"]) >= 2
        await trio.sleep(20)
        assert bodies(node) == [b"x"]
        assert len(bodies(node, TIMER)) > 6


async def test_a_recalled_message_never_comes(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(recallMessageEnable="true")
        answer = await good(made, node, TIMER_DELAY_SEC=10)
        handle = answer.ext["recallHandle"]
        fields = urlsafe_b64decode(handle).decode().split(" ")
        assert (fields[:3], fields[4]) == (["v1", "T", "a"], UNIQ)
        await good(made, node, b"stays", "U2", TIMER_DELAY_SEC=10)
        assert (await recall(made, node, handle)).ext["msgId"] == UNIQ
        await trio.sleep(15)
        assert bodies(node) == [b"stays"]
        assert node.broker.parts[TimersPart].counters.recalled == 1


async def test_who_may_recall_what(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        answer = await good(made, node, TIMER_DELAY_SEC=10)
        await good(made, node, b"x", "U2", TIMER_DELAY_SEC=0)
        handle = answer.ext["recallHandle"]
        assert (await recall(made, node, handle)).code == ResponseCode.NO_PERMISSION
        await node.stop()
        node.settings["recallMessageEnable"] = "true"
        await node.start()
        at_ms = wall_ms() + 5_000
        for wrong, topic, code in (
                (handle, "Unknown", ResponseCode.TOPIC_NOT_EXIST), (handle, "TBW102", ResponseCode.ILLEGAL_OPERATION),
                ("", "T", ResponseCode.ILLEGAL_OPERATION), ("§", "T", ResponseCode.ILLEGAL_OPERATION),
                (handle[1:], "T", ResponseCode.ILLEGAL_OPERATION), ("A" * 10_000, "T", ResponseCode.ILLEGAL_OPERATION),
                *((attrs.evolve(Handle("T", "a", at_ms, UNIQ), **change).encode(), "T", ResponseCode.ILLEGAL_OPERATION)
                  for change in ({"broker_name": "b"}, {"time_ms": wall_ms()}, {"time_ms": wall_ms() + 259_200_001},
                                 {"topic": "Other"}))):
            assert (await recall(made, node, wrong, topic)).code == code, (wrong, topic)
        await trio.sleep(12)
        assert bodies(node) == [b"x", b"x"]


async def test_another_topics_handle_takes_nothing_back(autojump_clock: MockClock) -> None:
    """The unique id alone is not enough: it is the sender's, and another one may know it."""
    async with cluster() as made:
        node = await made.node(recallMessageEnable="true")
        await good(made, node, TIMER_DELAY_SEC=10)
        other = await made.send(node.address, b"y", "Other", properties=encode_properties(
            {"UNIQ_KEY": UNIQ, "TIMER_DELAY_SEC": "10"}).decode())
        assert (await recall(made, node, other.ext["recallHandle"], "Other")).code == ResponseCode.SUCCESS
        await trio.sleep(15)
        assert (bodies(node), bodies(node, "Other")) == ([b"x"], [])


async def test_a_delivered_timer_is_no_timer_again(autojump_clock: MockClock) -> None:
    """Whoever sends on what was received, or gives it back, has it at once, or by its delay level."""
    async with cluster() as made:
        node = await made.node()
        await good(made, node, TIMER_DELAY_SEC=2, TIMER_OUT_MS=1)
        await until(lambda: bodies(node) == [b"x"], within_s=1)


async def test_a_delay_level_wins_over_a_timer(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await good(made, node, TIMER_DELAY_SEC=1_000, DELAY=1)
        await until(lambda: bodies(node) == [b"x"], within_s=4)


async def test_a_thousand_survive_a_restart_in_order_and_a_kill(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        for number in range(1_000):
            await good(made, node, b"%d" % number, f"U{number}", TIMER_DELIVER_MS=EPOCH_MS + 30_000 + number * 10)
        await node.stop()
        await node.start()
        await trio.sleep(max(0, EPOCH_MS / 1e3 + 33 - wall_ms() / 1e3))
        await node.kill()
        await node.start()
        await trio.sleep(20)
        found = [int(body) for body in bodies(node)]
        assert set(found) == set(range(1_000))
        assert len(found) < 1_400, "what was delivered in the last second before the kill comes again"


async def test_a_new_master_delivers_what_the_former_had(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        nodes = await three(made, **ALL, recallMessageEnable="true")
        master, *others = nodes
        begun_ms = wall_ms()
        kept = []
        for number in range(100):
            kept.append(await good(made, master, b"%d" % number, f"U{number}", TIMER_DELAY_MS=20_000 + number * 100))
        for answer in kept[::10]:
            assert (await recall(made, master, answer.ext["recallHandle"])).code == ResponseCode.SUCCESS
        await trio.sleep((begun_ms + 24_000 - wall_ms()) / 1e3)
        await master.kill()
        after = await new_master(*others)
        await trio.sleep(25)
        found = [int(body) for body in bodies(after)]
        assert set(found) == {number for number in range(100) if number % 10}
        assert all(found.count(number) <= 2 for number in found)
        await master.start()
        await in_sync(after, 2)
        await trio.sleep(30)
        assert [int(body) for body in bodies(after)] == found, "the former master has nothing to add"


async def test_what_slaves_know_to_be_delivered_no_new_master_delivers_again(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        nodes = await three(made, **ALL)
        master, *others = nodes
        for number in range(5):
            await good(made, master, b"%d" % number, f"U{number}", TIMER_DELAY_SEC=5)
        await until(lambda: len(bodies(master)) == 5)
        await trio.sleep(8)
        assert all(node.broker.parts[TimersPart].places == (5, 5) for node in nodes), "in the wheel, or through it"
        await master.kill()
        after = await new_master(*others)
        await trio.sleep(20)
        assert sorted(bodies(after)) == [b"%d" % number for number in range(5)]


async def test_too_few_replicas_at_the_due_time_put_off_and_lose_nothing(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        nodes = await three(made, **{**ALL, "minInSyncReplicas": "3", "youngMasterHoldMs": "0"})
        master, first, _ = nodes
        await good(made, master, TIMER_DELAY_SEC=20)
        await trio.sleep(5)
        await first.kill()
        await trio.sleep(30)
        assert bodies(master) == []
        await rejoined(master, first)
        await until(lambda: bodies(master) == [b"x"], within_s=5)
        await trio.sleep(10)
        assert bodies(master) == [b"x"]


async def rejoined(master: Node, back: Node) -> None:
    await back.start()
    await in_sync(master, 2)
