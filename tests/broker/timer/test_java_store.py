"""A Java broker, unmodified, takes up timers that wait in our files, and ours what it leaves."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from broker.store.directory import DirectoryFiles
from broker.store.store import MessageStore, StoreConfig
from broker.store.tables import Topics, save
from broker.timer.letters import TOPIC as TIMERS
from broker.timer.store import TimerStore
from broker.timer.units import Unit
from harness.processes import java
from harness.processes.java import settings
from remoting import record as codec
from remoting.bodies.namesrv import DataVersion, TopicConfig
from remoting.hashing import java_hash
from remoting.record import Message
from tests.harness.processes.rocketmq import current_release

TOPIC = "TopicTest"
SIZES = StoreConfig(log_file_bytes=settings.COMMITLOG_FILE_BYTES, queue_file_bytes=20 * 3_000, index_slots=10_000,
                    index_entries=40_000)
"""Those of the Java brokers of ``harness.processes``."""
TIMER_LOG_BYTES = 1 << 20
SOON, LATE, SOON_MS = 12, 5, 8_000
"""Timers that come due while Java runs, so long from now at the earliest, and timers of tomorrow."""


@pytest.fixture
def rocketmq() -> java.Release:
    return current_release()


def written_by_us(root: Path) -> int:
    """The queue has all of them, and so has the wheel: a checkpoint says so, and Java looks no more into the queue."""
    now_ms = time.time_ns() // 1_000_000_000 * 1_000
    files = DirectoryFiles(root)
    store = MessageStore(files, SIZES)
    store.open()
    timers = TimerStore(files, log_file_bytes=TIMER_LOG_BYTES)
    assert timers.recover(0) == ""
    timers.done_before(now_ms - 1_000)
    host = codec.packed_host("127.0.0.1", 10911)
    for number in range(SOON + LATE):
        out_ms = now_ms + (SOON_MS + number % 3 * 1_000 if number < SOON else 86_400_000 + number * 1_000)
        properties = codec.encode_properties({
            "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": TOPIC, "REAL_QID": str(number % 4), "TIMER_DELAY_SEC": "8",
            "KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}"})
        put = store.writer.put(Message(
            TIMERS, f"{number} ".encode().ljust(100, b"."), 0, properties, born_time_ms=now_ms, born_host=host,
            store_host=host), now_ms)
        assert timers.insert(out_ms, Unit(put.offset, put.size, java_hash(TOPIC)), now_ms)
        timers.queue_offset = timers.master_queue_offset = number + 1
    store.visible.advance()
    save(files, Topics({TOPIC: TopicConfig(TOPIC, 4, 4)}, DataVersion(0, 1_700_000_000_000, 1)))
    timers.flush()
    timers.close()
    store.close()
    return now_ms


@pytest.mark.java
@pytest.mark.slow
async def test_java_delivers_what_waits_in_our_wheel_and_ours_finds_what_is_left(
    rocketmq: java.Release, tmp_path: Path,
) -> None:
    async with (
        java.namesrv(rocketmq, tmp_path / "namesrv") as namesrv,
        java.broker(rocketmq, tmp_path / "a", namesrv=[namesrv.address], start=False, extra={
            "timerWheelEnable": True, "mappedFileSizeTimerLog": TIMER_LOG_BYTES,
            "timerFlushIntervalMs": 60_000}) as broker,
    ):
        began_ms = written_by_us(broker.store)
        await broker.start()
        async with java.receiver(rocketmq, tmp_path / "receiver", namesrv=[namesrv.address], topic=TOPIC) as receiver:
            reports = await receiver.wait_for("received", lambda found: len(found) >= SOON, timeout_s=120)
        assert sorted(report["sequence"] for report in reports) == list(range(SOON)), "each once"
        await broker.stop()
        files = DirectoryFiles(broker.store)
        store = MessageStore(files, SIZES)
        store.open()
        timers = TimerStore(files, log_file_bytes=TIMER_LOG_BYTES)
        found = timers.recover(store.log.max_offset, queue_end=store.messages.max_offset(TIMERS, 0),
                               place_of=lambda offset: store.log.record(offset).queue_offset,
                               now_ms=time.time_ns() // 1_000_000)
        assert found == ""
        assert timers.queue_offset == SOON + LATE
        assert timers.read_time_ms > began_ms + SOON_MS, "it passed the slots of those that it delivered"
        waiting = [store.log.record(unit.offset).message.body.split()[0]
                   for slot in timers._wheel.all_pending() for unit in timers.slot(slot * 1_000)]
        assert waiting == [b"%d" % number for number in range(SOON, SOON + LATE)]
        timers.close()
        store.close()
