"""What is told of timers that wait: by topic, to operators, and in words."""

from __future__ import annotations

import re

import pytest
import trio
from trio.testing import MockClock

from broker.metrics import BrokerMetrics
from broker.store.files import Space
from broker.timer import delivery
from broker.timer.checkpoint import TimerCheckpoint
from broker.timer.metrics import TOPICS_MAX, TimerMetrics, TopicTimers, Waiting
from broker.timer.part import TimersPart
from harness.simulation.worlds.brokers import Node, cluster, controlled, three, until, wall_ms
from remoting.bodies.namesrv import DataVersion
from remoting.codes import RequestCode, ResponseCode
from remoting.hashing import java_hash
from tests.broker.timer.test_timers import bodies, good


def test_topics_are_counted_and_go_with_their_last_timer() -> None:
    waiting = Waiting(TimerMetrics({"Kept": TopicTimers(1, 5)}), lambda: 7)
    for topic in ("T", "T", "S"):
        waiting.came(topic)
    waiting.left(java_hash("S"))
    waiting.left(java_hash("Unknown"))
    waiting.left(java_hash("Kept"))
    assert waiting.table().timing_count == {"T": TopicTimers(2, 7)}
    assert TimerMetrics.from_json(waiting.table().to_json()) == waiting.table()


def test_each_change_is_another_version() -> None:
    """A Java slave copies the table of a master when its version is another."""
    waiting = Waiting(TimerMetrics(), lambda: 7)
    waiting.state_version = 3
    waiting.came("T")
    assert waiting.table().data_version == DataVersion(3, 7, 1)
    waiting.left(java_hash("T"))
    assert waiting.table().data_version == DataVersion(3, 7, 2)
    slave = Waiting(TimerMetrics(), lambda: 8)
    slave.copy(waiting.table().to_json())
    assert slave.table() == waiting.table()


def test_the_table_is_bounded() -> None:
    waiting = Waiting(TimerMetrics(), lambda: 7)
    for number in range(TOPICS_MAX + 10):
        waiting.came(f"T{number}")
    assert len(waiting.table().timing_count) == len(waiting._names) == TOPICS_MAX


async def test_a_slave_copies_its_masters(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        nodes = [await made.node(**controlled()) for _ in range(2)]
        await until(lambda: any(node.serves for node in nodes))
        master, slave = sorted(nodes, key=lambda node: not node.serves)
        await good(made, master, TIMER_DELAY_SEC=1_000)
        waiting = slave.broker.parts[TimersPart]._waiting
        await until(lambda: waiting.table().timing_count)
        answer = await made.ask(slave.address, RequestCode.GET_TIMER_METRICS)
        table = TimerMetrics.from_json(answer.body)
        assert (table.timing_count["T"].count, table.data_version.state_version) == (1, 1)
        found = await made.ask(slave.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        assert b"it follows a master" in found.body


async def test_why_a_timer_waits_is_said(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        part = node.broker.parts[TimersPart]
        await good(made, node, TIMER_DELIVER_MS=wall_ms() + 2_000)
        await until(lambda: part.runtime_info()["timerCongestNum"] == "1")
        assert part.runtime_info()["timerWaitsFor"] == ""
        for key, words in (("timerStopDequeue", "timerStopDequeue is true"),
                           ("timerStopEnqueue", "timerStopEnqueue is true")):
            body = f"{key}=true".encode()
            assert (await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0
            if key == "timerStopDequeue":
                assert part.runtime_info()["timerWaitsFor"] == words
        await good(made, node, b"y", "U2", TIMER_DELIVER_MS=wall_ms() + 2_000)
        await until(lambda: int(part.runtime_info()["timerReadBehind"]) > 5)
        assert part.runtime_info()["timerOffsetBehind"] == "1" and bodies(node) == []
        page = BrokerMetrics(node.broker).exposition().decode()
        for line in ("rocketmq_timing_messages{", "rocketmq_timer_enqueue_lag{",
                     "rocketmq_timer_dequeue_latency_milliseconds{", "broker_timers_set_aside_total{"):
            assert line in page
        for key in ("timerStopDequeue", "timerStopEnqueue"):
            await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}=false".encode())
        await until(lambda: bodies(node) == [b"x", b"y"], within_s=3)
        assert part.runtime_info()["timerReadBehind"] == "0"
        await until(lambda: not part._waiting.table().timing_count)


def waits_for(node: Node) -> str:
    return node.broker.parts[TimersPart].runtime_info()["timerWaitsFor"]


async def test_a_full_disk_that_keeps_a_due_timer_back_is_said(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await good(made, node, TIMER_DELAY_SEC=5)
        await trio.sleep(2)
        node.store.disk = Space(100, 1)
        await trio.sleep(15)
        assert bodies(node) == []
        assert re.match(r"tried again: \S+ the disk is 99% full", waits_for(node)), waits_for(node)
        node.store.disk = Space(100, 50)
        await until(lambda: bodies(node) == [b"x"])
        await until(lambda: waits_for(node) == "")


async def test_too_few_replicas_that_keep_a_due_timer_back_are_said(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, allAckInSyncStateSet="true", minInSyncReplicas="2", youngMasterHoldMs="0")
        await good(made, master, TIMER_DELAY_SEC=5)
        for slave in slaves:
            await slave.kill()
        await trio.sleep(20)
        assert bodies(master) == []
        assert waits_for(master).startswith("tried again: IN_SYNC_REPLICAS_NOT_ENOUGH"), waits_for(master)
        for slave in slaves:
            await slave.start()
        await until(lambda: bodies(master) == [b"x"])
        await until(lambda: waits_for(master) == "")


async def test_what_came_into_the_wheel_and_left_it_is_counted_by_topic(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of topics beyond a bound together."""
    monkeypatch.setattr(delivery, "TOPICS_MAX", 2)
    async with cluster() as made:
        node = await made.node(timerMaxDelaySec="100", timerRollWindowSlot="20")
        for number, topic in enumerate(("T", "T", "U", "V", "W", "T")):
            await made.send(node.address, b"x", topic=topic, properties=(
                f"UNIQ_KEY\1U{number}\2TIMER_DELAY_SEC\1{2 if number < 5 else 90}\2"))
        await trio.sleep(10)
        text = BrokerMetrics(node.broker).exposition().decode()
        found = {name: dict(re.findall(rf'^rocketmq_timer_{name}_total{{.*topic="(\w*)".*}} (\d+)', text, re.MULTILINE))
                 for name in ("enqueue", "dequeue")}
        assert found == {"enqueue": {"T": "3", "U": "1", "": "2"}, "dequeue": {"T": "2", "U": "1", "": "2"}}


async def test_how_many_are_due_soon_and_how_long_some_wait_for_the_wheel(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        for number, delay_s in enumerate((4, 30, 59, 200, 86_000, 90_000)):
            await good(made, node, uniq=f"U{number}", TIMER_DELAY_SEC=delay_s)
        part = node.broker.parts[TimersPart]
        await until(lambda: part.runtime_info()["timerCongestNum"] == "6")
        found = dict(part._snapshot())
        assert {bound: count for bound, count in found.items() if count} == {5: 1, 60: 2, 300: 1, 86_400: 1}
        assert part._delivery.enqueue_behind_ms == 0
        await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"timerStopEnqueue=true")
        await good(made, node, uniq="U9", TIMER_DELAY_SEC=100)
        await trio.sleep(3)
        assert 3_000 <= part._delivery.enqueue_behind_ms < 4_000
        page = BrokerMetrics(node.broker).exposition().decode()
        for line in ('timer_bound_s="86400"} 1.0', "rocketmq_timer_enqueue_latency_milliseconds{"):
            assert line in page


async def test_a_slave_of_java_is_told_what_it_may_put_into_its_wheel_and_what_is_done(
        autojump_clock: MockClock) -> None:
    """Java's go in the queue as far as the fourth number of the answer to 60, and deliver from the first one on."""
    async with cluster(controllers=3) as made:
        master, *_ = await three(made)
        for number, delay_s in enumerate((5, 100, 200)):
            await good(made, master, uniq=f"U{number}", TIMER_DELAY_SEC=delay_s)
        began_ms = wall_ms()
        await trio.sleep(20)
        answer = await made.ask(master.address, RequestCode.GET_TIMER_CHECK_POINT)
        told = TimerCheckpoint.decode(answer.body)
        assert told is not None and len(answer.body) == 56, "a log that begins at 0 needs no number of ours behind them"
        assert (told.queue_offset, told.master_queue_offset, told.state_version) == (3, 3, 1)
        assert began_ms + 18_000 <= told.read_time_ms <= wall_ms()


async def test_without_a_wheel_nothing_is_told(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(timerWheelEnable="false")
        for code in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS, RequestCode.SWITCH_TIMER_ENGINE):
            answer = await made.ask(node.address, code)
            assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
        assert not node.store.exists("timerwheel")
        assert node.broker.parts[TimersPart].runtime_info()["timerWaitsFor"] == "timerWheelEnable is false"
