"""A machine that loses power takes deliveries along that were not synced, and never a timer that was."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.store.files import Files
from broker.timer.checkpoint import PATH, TimerCheckpoint
from broker.timer.part import TimersPart
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until, wall_ms
from tests.broker.timer.small import at, everything, offsets, opened, put
from tests.broker.timer.test_timers import bodies, good, records


async def _sends(made: Cluster, node: Node) -> None:
    while True:
        await made.send(node.address, b"beside", "Other")
        await trio.sleep(0.7)


@pytest.mark.parametrize("later_s", [1.2, 3, 6])
async def test_a_timer_whose_delivery_is_lost_comes_again(autojump_clock: MockClock, later_s: float) -> None:
    async with cluster() as made:
        node = await made.node()
        await trio.sleep(3)
        due_ms = (wall_ms() // 1_000 + 30) * 1_000
        await good(made, node, TIMER_DELIVER_MS=due_ms)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_sends, made, node)
            await until(lambda: bodies(node) == [b"x"])
            delivered = records(node)[0].offset
            await trio.sleep(later_s)
            nursery.cancel_scope.cancel()
        was_synced = node.broker.journal.log.flushed_offset > delivered
        assert not was_synced or later_s > 3
        await node.kill()
        await node.start()
        await until(lambda: bodies(node) == [b"x"], within_s=10)
        await trio.sleep(60)
        assert bodies(node) == [b"x"]


async def test_after_a_stop_in_order_the_disk_says_all_that_was_delivered(autojump_clock: MockClock) -> None:
    """RocketMQ's broker, which may take the directory over, has nothing else to tell it."""
    async with cluster() as made:
        node = await made.node()
        await good(made, node, TIMER_DELAY_SEC=5)
        await until(lambda: bodies(node) == [b"x"])
        await trio.sleep(1.5)
        done_before_ms = node.broker.parts[TimersPart].done_before_ms
        assert done_before_ms > records(node)[0].store_time_ms - 1_000
        await node.stop()
        kept = TimerCheckpoint.decode(bytes(node.store.content[PATH].data))
        assert kept is not None and kept.read_time_ms >= done_before_ms
        await node.start()
        await trio.sleep(20)
        assert bodies(node) == [b"x"]
        assert node.broker.parts[TimersPart].counters.passed_over == 0


def test_the_disk_says_that_a_slot_is_done_when_it_has_the_deliveries(files: Files) -> None:
    store = opened(files)
    end, flushed = 1_000, 1_000
    store.commit_log = lambda: (end, flushed)
    put(store, 3, 100)
    put(store, 9, 200)
    store.flush()
    end = 2_000
    store.done_before(at(5))
    early = store.is_unflushed
    assert not early, "nothing may be said yet"
    store.flush()
    assert store.settled[0] < at(5)
    before = opened(files)
    assert (before.read_time_ms, offsets(before, 3)) == (at(0), [100])
    flushed = 2_000
    waits = store.is_unflushed, store.only_time_passed
    assert waits == (True, False)
    store.flush()
    assert store.settled == (at(5), 201)
    after = opened(files)
    assert after.read_time_ms == at(5)
    assert everything(after) == {9: [200]}
