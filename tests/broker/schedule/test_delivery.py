"""Delayed messages from a send to the consumer's queue, in virtual time: crashes, changes of master, clock jumps."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.ha.acks import QuorumConfig
from broker.schedule.delivery import ScheduleConfig
from broker.schedule.levels import SCHEDULE_TOPIC
from broker.store.consumequeue import ENTRY_BYTES
from broker.store.tables import DelayOffsets, SubscriptionGroup, load
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import ResponseCode
from remoting.command import Command, request
from remoting.record import Message, decode, decode_properties, encode_properties
from tests.broker.sending.test_sendback import back
from tests.broker.sending.test_sending import Slaves
from tests.broker.sending.world import UNIQ, World, running, send

ONCE_MORE_S = 1.2
"""From a start to the first delivery of what was due before."""


def delayed(level: int, body: bytes = b"hello") -> Command:
    return send(body=body, queue_id=2, properties={"UNIQ_KEY": UNIQ, "DELAY": str(level), "TAGS": "a"})


def bodies(world: World, topic: bytes = b"Orders", queue_id: int = 2) -> list[bytes]:
    messages = world.journal.messages
    found: list[bytes] = []
    while records := messages.get(topic, queue_id, len(found)):
        found += [decode(raw).message.body for raw in records]
    return found


def orders(world: World) -> None:
    world.topics.update([TopicConfig("Orders", 4, 4)])


async def test_a_message_comes_when_it_is_due(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        answer = await world.ask(delayed(3))
        assert answer.code == ResponseCode.SUCCESS
        assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("2", "0")
        await world.ask(delayed(1, b"soon"))
        assert (await world.last())[0] == "SCHEDULE_TOPIC_XXXX"
        await trio.sleep(0.9)
        assert bodies(world) == []
        await trio.sleep(0.4)
        assert bodies(world) == [b"soon"]
        await trio.sleep(8.5)
        assert bodies(world) == [b"soon"]
        await trio.sleep(0.5)
        assert bodies(world) == [b"soon", b"hello"]
        message = (await world.records())[-1].message
        properties = decode_properties(message.properties)
        assert (properties["DELAY"], properties["TAGS"], properties["UNIQ_KEY"]) == ("3", "a", UNIQ)
        assert world.delayed.delivered == 2
        assert world.delayed.running_stats() == {"scheduleMessageOffset_1": "1,1", "scheduleMessageOffset_3": "1,1"}
        table = DelayOffsets.from_json((await world.ask(request(45))).body)
        assert table.offset_table == {1: 1, 3: 1}


async def test_a_retry_comes_back_and_ends_with_the_dead_letters(autojump_clock: MockClock) -> None:
    async with running(schedule=ScheduleConfig(message_delay_level="1s 2s 3s 4s 5s")) as world:
        orders(world)
        world.groups.known["g"] = SubscriptionGroup("g", retry_max_times=3)
        await world.ask(send())
        for tries in range(1, 4):
            await world.ask(back((await world.records())[-1].offset))
            await trio.sleep(6)
            found = (await world.records())[-1].message
            assert (found.topic, found.reconsume_times) == (b"%RETRY%g", tries)
        await world.ask(back((await world.records())[-1].offset))
        assert (await world.records())[-1].message.topic == b"%DLQ%g"


async def test_positions_are_saved_at_intervals_and_at_the_end(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        await world.ask(delayed(1))
        await trio.sleep(5)
        assert bodies(world) == [b"hello"]
        assert load(world.files, DelayOffsets).offset_table == {}
        await world.journal.sync()
        await trio.sleep(6)
        assert load(world.files, DelayOffsets).offset_table == {1: 1}
        await world.ask(delayed(1))
        await trio.sleep(2)
        world.delayed.stop()
        await trio.sleep(0.1)
        assert load(world.files, DelayOffsets).offset_table == {1: 2}
        await world.ask(delayed(1))
        await trio.sleep(30)
        assert len(bodies(world)) == 2  # not a master's business any more
        world.delayed.replace(DelayOffsets({1: 3}))
        await trio.sleep(0.1)
        assert load(world.files, DelayOffsets).offset_table == {1: 3}


@pytest.mark.parametrize("stops", [False, True])
async def test_positions_on_disk_are_behind_what_the_disk_has_of_the_log(
        autojump_clock: MockClock, stops: bool) -> None:
    """Else a power cut takes a delivery, and the next process passes its message over."""
    async with running(schedule=ScheduleConfig(flush_delay_offset_interval_ms=2_000)) as world:
        orders(world)
        await world.ask(delayed(1))
        await trio.sleep(0.5)
        world.store.flush()
        await trio.sleep(4)
        assert bodies(world) == [b"hello"] and world.delayed.offsets().offset_table == {1: 1}
        if stops:
            world.delayed.stop()
        await trio.sleep(2)
        assert world.journal.log.flushed_offset < world.journal.end
        assert not load(world.files, DelayOffsets).offset_table.get(1)
    world.files.crash(lambda size: 0)
    async with running(World(world.files)) as world:
        assert bodies(world) == [], "the power cut took it"
        await trio.sleep(2)
        assert bodies(world) == [b"hello"]
        await trio.sleep(30)
        assert load(world.files, DelayOffsets).offset_table == {1: 1}, "the log was flushed meanwhile"


@pytest.mark.parametrize("killed_after_s", [0.5, 1.05, 3, 12])
async def test_killed_and_started_again(autojump_clock: MockClock, killed_after_s: float) -> None:
    """Everything that was acknowledged comes at least once; what came twice is behind the last saved position."""
    async with running() as world:
        orders(world)
        for number in range(10):
            answer = await world.ask(delayed(1 if number % 2 else 2, b"%d" % number))
            assert answer.code == ResponseCode.SUCCESS
        await trio.sleep(killed_after_s)
        world.store.flush()
    world.files.crash(lambda size: 0)
    async with running(World(world.files)) as world:
        await trio.sleep(6)
        found = [int(body) for body in bodies(world)]
        assert set(found) == set(range(10))
        for level in (0, 1):
            mine = [number for number in found if number % 2 == level]
            assert list(dict.fromkeys(mine)) == sorted(set(mine))
        assert len(found) <= 20


async def test_nothing_is_passed_over_while_nobody_serves(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        for number in range(3):
            await world.ask(delayed(1, b"%d" % number))
        world.puts.fence("no slave is left")
        await trio.sleep(5)
        assert bodies(world) == [] and world.delayed.offsets().offset_table == {1: 0}
        world.puts.serve(Slaves(accepted=0))
        await trio.sleep(5)
        assert bodies(world) == []
        world.serve()
        await trio.sleep(ONCE_MORE_S)
        assert bodies(world) == [b"0", b"1", b"2"]


async def test_the_position_waits_for_replicas(autojump_clock: MockClock) -> None:
    async with running(quorum=QuorumConfig(3, 2, 1)) as world:
        orders(world)
        slaves = Slaves(acknowledges=True)
        world.puts.serve(slaves)
        await world.ask(delayed(1))
        await trio.sleep(0.5)
        slaves.acknowledges = False
        await trio.sleep(2)
        assert world.delayed.offsets().offset_table == {1: 0}
        slaves.acknowledges = True
        await trio.sleep(5)
        assert world.delayed.offsets().offset_table == {1: 1}


async def test_no_level_waits_for_what_another_one_put(autojump_clock: MockClock) -> None:
    """So there is nothing that ``enableScheduleAsyncDeliver`` could choose, in whose absence Java's wait for a put."""
    async with running(quorum=QuorumConfig(3, 2, 1), schedule=ScheduleConfig(message_delay_level="1s 2s")) as world:
        orders(world)
        slaves = Slaves(acknowledges=True)
        world.puts.serve(slaves)
        for level in (1, 2):
            await world.ask(delayed(level, b"%d" % level))
        slaves.acknowledges = False
        end = world.journal.end
        await trio.sleep(2.5)
        assert world.delayed.offsets().offset_table == {1: 0, 2: 0}, "neither is acknowledged"
        put = [found[6] for found in world.journal.log.scan(end)]
        assert put.count(b"Orders") >= 2, "and both are put"
        slaves.acknowledges = True
        await trio.sleep(5)
        assert world.delayed.offsets().offset_table == {1: 1, 2: 1}


async def test_a_backlog_flows(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        world.delayed.stop()
        for number in range(500):
            await world.ask(delayed(1, b"%d" % number))
        await trio.sleep(10)
        world.delayed.start()
        await trio.sleep(ONCE_MORE_S)
        assert bodies(world) == [b"%d" % number for number in range(500)]


@pytest.mark.parametrize(("skew_ms", "after_s"), [(3_600_000, 0.3), (-3_600_000, 0.3)])
async def test_the_clock_is_set(autojump_clock: MockClock, skew_ms: int, after_s: float) -> None:
    """Forward, and it is due; back, and nobody waits for longer than the level says."""
    async with running() as world:
        orders(world)
        await trio.sleep(2)
        await world.ask(delayed(4))
        await trio.sleep(1)
        assert bodies(world) == []
        world.skew_ms = skew_ms
        await trio.sleep(after_s)
        assert bodies(world) == [b"hello"]


async def test_messages_of_a_level_whose_queue_is_damaged_wait_until_it_is_mended(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        for number in range(4):
            await world.ask(delayed(2, b"m%d" % number))
        world.store.flush()
        [name] = [name for name in world.files.content if name.startswith("consumequeue/SCHEDULE_TOPIC_XXXX/1/")]
        world.files.content[name].data[ENTRY_BYTES : 2 * ENTRY_BYTES - 8] = b"\xff" * (ENTRY_BYTES - 8)
        await trio.sleep(18)
        assert (bodies(world), world.delayed.dropped) == ([b"m0", b"m1", b"m2", b"m3"], 0)


async def test_what_cannot_be_delivered_is_dropped_and_the_rest_comes(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        good = {"UNIQ_KEY": UNIQ, "DELAY": "1", "REAL_TOPIC": "Orders", "REAL_QID": "2"}
        for properties in (good, {"DELAY": "1"}, good | {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC"}, good):
            world.puts.put([Message(SCHEDULE_TOPIC, b"x", 0, encode_properties(properties))], lambda result: None)
        await trio.sleep(3)
        assert len(bodies(world)) == 2
        assert (world.delayed.dropped, world.delayed.delivered) == (2, 2)
        assert world.delayed.offsets().offset_table == {1: 4}
