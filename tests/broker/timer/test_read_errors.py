"""A disk that does not give what was asked for at once: it is asked again, and the broker lives."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from broker.store.consumequeue import ConsumeQueue
from broker.timer.log import TimerLog
from broker.timer.part import TimersPart
from harness.simulation.worlds.brokers import cluster, wall_ms
from remoting.record import encode_properties
from tests.broker.timer.test_timers import bodies, good, recall


async def test_a_slot_that_cannot_be_read_is_opened_again(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        node = await made.node()
        for number, delay_s in enumerate((3, 5, 8)):
            await good(made, node, b"%d" % number, f"U{number}", TIMER_DELAY_SEC=delay_s)
        await trio.sleep(4.5)
        failed: list[Any] = []
        before = TimerLog.before

        def fails(log: TimerLog, *where: int) -> tuple[bytes, int]:
            if len(failed) < 2:
                failed.append(where)
                raise OSError(errno.EIO, "Input/output error")
            return before(log, *where)

        monkeypatch.setattr(TimerLog, "before", fails)
        await trio.sleep(20)
        assert len(failed) == 2
        assert bodies(node) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("before_ms", "after_ms"), [(100, 1_000), (1_000, 100)])
async def test_a_timer_is_recalled_after_slots_got_another_length(
        autojump_clock: MockClock, before_ms: int, after_ms: int) -> None:
    async with cluster() as made:
        node = await made.node(timerPrecisionMs=str(before_ms), recallMessageEnable="true")
        answer = await good(made, node, TIMER_DELIVER_MS=(wall_ms() // 1_000 + 30) * 1_000 + 350)
        await trio.sleep(2)
        await node.stop()
        node.settings["timerPrecisionMs"] = str(after_ms)
        await node.start()
        await trio.sleep(2)
        assert (await recall(made, node, answer.ext["recallHandle"])).code == 0
        await trio.sleep(60)
        assert bodies(node) == []


async def test_a_recall_that_is_moved_counts_as_no_timer_that_left(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(recallMessageEnable="true", mappedFileSizeCommitLog=str(1 << 16))
        handles = [(await good(made, node, b"%d" % number, f"U{number}", TIMER_DELAY_SEC=600)).ext["recallHandle"]
                   for number in range(5)]
        for handle in handles[:3]:
            assert (await recall(made, node, handle)).code == 0
        await made.fill_files(node)
        await trio.sleep(3)
        part = node.broker.parts[TimersPart]
        counted = part._waiting.table().timing_count["T"].count
        part.make_way(1 << 16)
        await trio.sleep(3)
        assert part.counters.moved == 8
        assert part._waiting.table().timing_count["T"].count == counted


async def test_a_timer_that_was_put_again_waits_until_its_old_unit_can_be_read(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        node = await made.node()
        await good(made, node, TIMER_DELAY_SEC=100)
        await trio.sleep(3)
        failed: list[int] = []
        find = TimerLog.find

        def fails(log: TimerLog, offset: int) -> int | None:
            if len(failed) < 2:
                failed.append(offset)
                raise OSError(errno.EIO, "Input/output error")
            return find(log, offset)

        monkeypatch.setattr(TimerLog, "find", fails)
        part = node.broker.parts[TimersPart]
        part.make_way(1 << 16)
        await trio.sleep(150)
        assert len(failed) == 2 and part.counters.moved == 1
        assert bodies(node) == [b"x"], "the old unit, too, would bring it"


async def test_queues_of_timers_and_levels_that_cannot_be_read_end_no_broker(
        autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as made:
        node = await made.node()
        await good(made, node, b"before", "U0", TIMER_DELAY_SEC=1)
        level = encode_properties({"DELAY": "1"}).decode()
        assert (await made.send(node.address, b"before, too", properties=level)).code == 0
        await trio.sleep(3)
        assert sorted(bodies(node)) == [b"before", b"before, too"]
        failed: list[ConsumeQueue] = []
        read = ConsumeQueue.read

        def fails(queue: ConsumeQueue, queue_offset: int, count: int) -> bytes:
            if queue in waiting and len(failed) < 10:
                failed.append(queue)
                raise OSError(errno.EIO, "Input/output error")
            return read(queue, queue_offset, count)

        messages = node.broker.journal.messages
        waiting = [messages.queue(topic, 0) for topic in (b"rmq_sys_wheel_timer", b"SCHEDULE_TOPIC_XXXX")]
        monkeypatch.setattr(ConsumeQueue, "read", fails)
        await good(made, node, b"timer", "U1", TIMER_DELAY_SEC=2)
        assert (await made.send(node.address, b"level", properties=level)).code == 0
        await trio.sleep(30)
        assert {*failed} == {*waiting}
        assert sorted(bodies(node)) == [b"before", b"before, too", b"level", b"timer"]
