"""Store directories of one side opened by the other: Java's by our store, ours by Java's broker.

It starts Java programs and opens directories; it knows no server of ours.
"""

from __future__ import annotations

import re
from pathlib import Path

import trio

from broker.store.directory import DirectoryFiles
from broker.store.store import MessageStore, StoreConfig
from broker.store.tables import ConsumerOffsets, Topics, load, save
from harness.processes import java
from harness.processes.java import settings
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import tool
from remoting import record as codec
from remoting.bodies.namesrv import DataVersion, TopicConfig
from remoting.record import Message

TOPIC = "Orders"
COUNT = 300
SIZES = StoreConfig(log_file_bytes=settings.COMMITLOG_FILE_BYTES, queue_file_bytes=20 * 3_000,
                    index_slots=10_000, index_entries=40_000)
"""File sizes of ``harness.processes.java.settings``."""


def opened(files: DirectoryFiles) -> MessageStore:
    store = MessageStore(files, SIZES)
    store.open()
    store.visible.advance()
    return store


def numbered(store: MessageStore, topic: str) -> dict[tuple[int, int], int]:
    """The number at the head of each body, by (queue id, queue offset)."""
    found = {}
    for queue in store.messages.queues():
        if queue[0] != topic.encode():
            continue
        at = store.messages.min_offset(*queue)
        while records := store.messages.get(*queue, at):
            for raw in records:
                record = codec.decode(raw)
                expect((record.message.topic, record.message.queue_id, record.queue_offset) == (*queue, at),
                       f"at {at} of {queue} stands {record}")
                found[queue[1], at] = int(record.message.body.split()[0])
                at += 1
    return found


async def _java_to_ours(stage: Stage) -> None:
    async with (
        java.namesrv(stage.release, stage.here / "namesrv") as namesrv,
        java.broker(stage.release, stage.here / "a", namesrv=[namesrv.address]) as broker,
    ):
        said: dict[tuple[int, int], int] = {}
        unsure: set[int] = set()
        for killed in (False, True):
            place = stage.here / f"sender-{killed}"
            async with java.sender(stage.release, place, namesrv=[namesrv.address], topic=TOPIC, count=COUNT,
                                   interval_ms=0, body_bytes=500) as sender:
                reports = await sender.wait_for("sent", lambda found: len(found) >= COUNT)
            said |= {(report["queue"], report["offset"]): report["sequence"] for report in reports if report["ok"]}
            unsure |= {report["sequence"] for report in reports if not report["ok"]}
            expect(len(unsure) < COUNT // 10, f"{len(unsure)} messages were not acknowledged")
            await (broker.kill() if killed else broker.stop())
            store = opened(DirectoryFiles(broker.store))
            mine = numbered(store, TOPIC)
            stage.say(f"Java {'killed' if killed else 'stopped'}: {len(mine)} messages, of {len(said)} sent")
            more = {place: number for place, number in mine.items() if place not in said}
            expect(mine == said | more and set(more.values()) <= unsure,
                   f"ours reads {len(mine)} messages, the sender was told of {len(said)}; differing: "
                   f"{sorted(set(mine.items()) ^ set(said.items()))[:5]}")
            store.close()
            if not killed:
                await broker.start()
                with trio.fail_after(60):
                    while not (await java.mqadmin(
                            stage.release, "topicRoute", "-n", namesrv.address, "-t", TOPIC)).ok:
                        await trio.sleep(0.5)


@scenario("5.5.0")
async def a_store_that_java_wrote_opens_in_ours(stage: Stage) -> None:
    """A Java broker, stopped and killed -9, leaves a store: ours reads each message at its queue offset."""
    await _java_to_ours(stage)


@scenario("5.3.3")
async def a_store_that_the_older_java_wrote_opens_in_ours(stage: Stage) -> None:
    """An older broker, stopped and killed -9, leaves a store: ours reads each message at its queue offset."""
    await _java_to_ours(stage)


def written_by_us(root: Path, count: int, *, closed: bool) -> tuple[dict[int, tuple[int, int]], str]:
    """Write ``count`` messages in four queues, more than one log file holds; returns their places and an id."""
    files = DirectoryFiles(root)
    store = opened(files)
    host = codec.packed_host("127.0.0.1", 10911)
    places, an_id = {}, ""
    for number in range(count):
        properties = codec.encode_properties({"TAGS": "TagA", "KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}"})
        put = store.writer.put(Message(
            TOPIC.encode(), f"{number} ".encode().ljust(20_000, b"."), number % 4, properties,
            born_time_ms=1_700_000_000_000 + number, born_host=host, store_host=host), 1_700_000_000_000 + number)
        places[number] = number % 4, put.queue_offset
        an_id = codec.message_id(host, put.offset)
    store.visible.advance()
    save(files, Topics({TOPIC: TopicConfig(TOPIC, 4, 4)}, DataVersion(0, 1_700_000_000_000, 1)))
    if closed:
        store.close()
    else:
        store.log.write()
        store.log.close()  # as a kill does: queues and checkpoint lag, and the file ``abort`` stays
        files.unlock()
    return places, an_id


async def _ours_to_java(stage: Stage, *, closed: bool) -> None:
    async with (
        java.namesrv(stage.release, stage.here / "namesrv") as namesrv,
        java.broker(stage.release, stage.here / "a", namesrv=[namesrv.address], start=False) as broker,
    ):
        places, an_id = written_by_us(broker.store, 2 * COUNT, closed=closed)
        await broker.start()
        async with java.receiver(stage.release, stage.here / "receiver", namesrv=[namesrv.address],
                                 topic=TOPIC) as receiver:
            reports = await receiver.wait_for("received", lambda found: len(found) >= len(places))
        got = {report["sequence"]: (report["queue"], report["offset"]) for report in reports}
        expect(got == places, f"Java received {len(got)} of {len(places)}; differing: "
               f"{sorted(set(got.items()) ^ set(places.items()))[:5]}")
        port = int(broker.address.rpartition(":")[2])
        here = codec.message_id(codec.packed_host("127.0.0.1", port), codec.parse_message_id(an_id)[1])
        shown = await tool(stage, "queryMsgById", "-n", namesrv.address, "-t", TOPIC, "-i", here)
        expect(shown.exit_code == 0 and f"[k{2 * COUNT - 1}]" in shown.stdout, str(shown))
        for key in (["-k", "k7"], ["-k", f"k{2 * COUNT - 1}"]):
            shown = await tool(stage, "queryMsgByKey", "-n", namesrv.address, "-t", TOPIC, *key)
            expect(shown.ok and re.search(r"[0-9A-F]{32}", shown.stdout), str(shown))
        async with java.sender(stage.release, stage.here / "sender", namesrv=[namesrv.address], topic=TOPIC, count=8,
                               interval_ms=0) as sender:
            more = await sender.wait_for("sent", lambda found: len(found) >= 8)
        expect(all(report["ok"] and report["offset"] >= COUNT // 2 for report in more),
               f"Java does not go on behind our queue offsets: {more}")
        await broker.stop()
        store = opened(DirectoryFiles(broker.store))
        expect(len(numbered(store, TOPIC)) == len(places) + 8, "ours does not read what Java added")
        read = load(DirectoryFiles(broker.store), ConsumerOffsets).offset_table.get(f"{TOPIC}@receiver")
        expect(read and all(0 < each <= COUNT // 2 for each in read.values()), f"the receiver's offsets are {read}")
        expect(TOPIC in load(DirectoryFiles(broker.store), Topics).topic_config_table, "ours does not know the topic")
        store.close()
        stage.say(f"{len(got)} messages received by Java at our queue offsets, {len(more)} added, all read by ours")


@scenario("5.5.0")
async def a_store_that_ours_wrote_opens_in_java(stage: Stage) -> None:
    """A store written by ours and closed: a Java broker serves each message at its queue offset, and goes on behind."""
    await _ours_to_java(stage, closed=True)


@scenario("5.3.3")
async def a_store_that_ours_wrote_opens_in_the_older_java(stage: Stage) -> None:
    """A store written by ours and closed: an older broker serves each message at its queue offset, and goes on."""
    await _ours_to_java(stage, closed=True)


@scenario("5.5.0")
async def a_store_that_ours_left_in_a_crash_opens_in_java(stage: Stage) -> None:
    """The same when ours was killed: queues and checkpoint are behind the log, and Java builds them again."""
    await _ours_to_java(stage, closed=False)
