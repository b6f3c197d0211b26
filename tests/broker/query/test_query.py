"""Looking at messages, queues and progress, over the wire."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.query.cleaning import Cleaning
from broker.query.messages import MessageQueries, QueryConfig
from broker.query.positions import PositionRequests
from broker.query.progress import Progress
from broker.query.stats import GROUP_GET_NUMS, TOPIC_PUT_NUMS, Stats
from broker.store.tables import SubscriptionGroup
from remoting.bodies.consumers import MessageQueue
from remoting.bodies.namesrv import TopicConfig
from remoting.bodies.queries import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.record import Message as StoredMessage
from remoting.record import decode, decode_all, encode_properties
from tests.broker.consumers.world import World, running


def queue(queue_id: int = 0, topic: str = "t") -> MessageQueue:
    return MessageQueue(topic, "b", queue_id)


def serve(world: World, config: QueryConfig | None = None) -> Stats:
    def now_ns() -> int:
        return int(trio.current_time() * 1e9)

    journal, messages = world.journal, world.journal.messages
    stats = Stats("c", lambda: {"t": messages.max_offset(b"t", 0)}, now_ns)
    world.handlers |= MessageQueries(config or QueryConfig(), messages, journal.visible).handlers()
    world.handlers |= PositionRequests(messages, world.consumers, journal.veil).handlers()
    world.handlers |= Progress(
        messages, topics=world.topics, groups=world.groups, offsets=world.offsets, consumers=world.consumers,
        stats=stats, standing=world.standing, wall_ms=lambda: now_ns() // 1_000_000).handlers()
    return stats


async def at_seconds(world: World, *seconds: int) -> None:
    """A message at each of these seconds."""
    for second in seconds:
        await trio.sleep_until(second)
        await world.put("a")


# --- messages ------------------------------------------------------------------------------------------------


async def test_messages_by_key_by_id_and_by_place(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world, QueryConfig(default_query_max_num=2, max_msgs_num_batch=3))
        for number in range(5):
            await trio.sleep(1)
            world.journal.append([StoredMessage(b"t", b"%d" % number, 0, encode_properties(
                {"UNIQ_KEY": "U", "KEYS": f"k all k{number}"}))])
            await trio.testing.wait_all_tasks_blocked()
            world.journal.confirm(world.journal.end)
        await trio.sleep(1)
        asked = {"topic": "t", "maxNum": "9", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}

        async def found(**ext: str) -> list[str]:
            answer = await world.ask(RequestCode.QUERY_MESSAGE, asked | ext)
            assert (answer.code == ResponseCode.QUERY_NOT_FOUND) is (answer.body == b"")
            assert {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"} <= answer.ext.keys()
            return [record.message.body.decode() for record in decode_all(answer.body)]

        assert await found(key="k3") == ["3"]
        assert await found(key="all") == ["4", "3", "2"], "no more than max_msgs_num_batch"
        assert await found(key="all", maxNum="1") == ["4"]
        assert await found(key="all", beginTimestamp="2000", endTimestamp="3000") == ["2", "1"]
        assert await found(key="U", _UNIQUE_KEY_QUERY="true") == ["4", "3"]
        assert await found(key="x") == await found(key="k3", topic="u") == []
        refused = await world.ask(RequestCode.QUERY_MESSAGE, asked | {"key": "a", "indexType": "T"})
        assert (refused.code, "indexType T" in (refused.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)
        record = world.journal.log.record(0)
        viewed = await world.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
        assert decode(viewed.body) == record
        for offset in ("1", "-1", str(1 << 40)):
            answer = await world.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
            assert (answer.code, offset in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


# --- positions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("time_ms", "lower", "upper"), [
    (0, 0, 0), (999, 0, 0), (1_000, 0, 1), (1_500, 2, 1), (3_000, 2, 2), (3_001, 3, 2), (99_000, 3, 2),
])
async def test_positions_by_time(autojump_clock: MockClock, time_ms: int, lower: int, upper: int) -> None:
    """Messages at 1, 1 and 3 seconds."""
    async with running() as world:
        serve(world)
        await at_seconds(world, 1, 1, 3)
        ext = {"topic": "t", "queueId": "0", "timestamp": str(time_ms)}
        for boundary, expected in ((None, lower), ("LOWER", lower), ("upper", upper), ("UPPER", upper)):
            more = {} if boundary is None else {"boundaryType": boundary}
            answer = await world.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext | more)
            assert answer.ext == {"offset": str(expected)}
        ext |= {"queueId": "9", "boundaryType": "upper"}
        empty = await world.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        assert empty.ext == {"offset": "0"}


async def test_bounds_of_queues(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world)
        await at_seconds(world, 2, 3)
        for code, first, none in (
            (RequestCode.GET_MAX_OFFSET, {"offset": "2"}, {"offset": "0"}),
            (RequestCode.GET_MIN_OFFSET, {"offset": "0"}, {"offset": "0"}),
            (RequestCode.GET_EARLIEST_MSG_STORETIME, {"timestamp": "2000"}, {"timestamp": "-1"}),
        ):
            for queue_id, expected in ((0, first), (1, none)):
                answer = await world.ask(code, {"topic": "t", "queueId": str(queue_id), "committed": "true"})
                assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, expected)


async def test_entries_of_a_queue(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world)
        await world.heartbeat("g", "t", expression="a")
        await world.put("a", "b", "")
        ext = {"topic": "t", "queueId": "0", "index": "1", "count": "9"}
        answer = await world.ask(RequestCode.QUERY_CONSUME_QUEUE, ext)
        body = QueryConsumeQueueResponseBody.from_json(answer.body)
        assert (body.min_queue_index, body.max_queue_index, [one.tags_code for one in body.queue_data]) == (
            0, 3, [ord("b"), 0])
        second = world.journal.log.record(body.queue_data[0].physic_offset)
        assert (second.size, second.message.body) == (body.queue_data[0].physic_size, b"b 1")
        for group, online in (("g", True), ("h", False)):
            answer = await world.ask(RequestCode.QUERY_CONSUME_QUEUE, ext | {"consumerGroup": group})
            body = QueryConsumeQueueResponseBody.from_json(answer.body)
            assert (body.subscription_data is not None) is online
            assert body.filter_data == ("null" if online else "h@t is not online!")
        outside = await world.ask(RequestCode.QUERY_CONSUME_QUEUE, ext | {"index": "3"})
        assert (outside.code, bool(outside.remark)) == (ResponseCode.SUCCESS, True)
        assert QueryConsumeQueueResponseBody.from_json(outside.body).queue_data == []
        nowhere = await world.ask(RequestCode.QUERY_CONSUME_QUEUE, ext | {"queueId": "3"})
        assert nowhere.code == ResponseCode.SYSTEM_ERROR


# --- progress ------------------------------------------------------------------------------------------------


async def test_how_full_a_topic_is(autojump_clock: MockClock) -> None:
    async with running() as world:
        stats = serve(world)
        stats.sample()
        await at_seconds(world, 1, 2)
        await trio.sleep_until(10)
        answer = await world.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "t"})
        assert b'{"brokerName":"b","queueId":0,"topic":"t"}:{"lastUpdateTimestamp":2000' in answer.body
        table = TopicStatsTable.from_json(answer.body)
        empty = TopicOffset(0, 0, 0)
        assert table.offset_table == {
            queue(0): TopicOffset(0, 2, 2_000), queue(1): empty, queue(2): empty, queue(3): empty}
        stats.sample()
        answer = await world.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "t"})
        assert TopicStatsTable.from_json(answer.body).topic_put_tps == pytest.approx(0.2)
        answer = await world.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "x"})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_how_far_groups_are(autojump_clock: MockClock) -> None:
    async with running() as world:
        stats = serve(world)
        world.topics.update([TopicConfig("u", 1, 1, order=True)])
        world.groups.update([SubscriptionGroup("g")])
        await at_seconds(world, 1, 2, 3)
        world.offsets.commit("g", "t", 0, 2)
        world.offsets.commit("g", "u", 0, 0)
        world.offsets.commit("g", "gone", 0, 0)
        world.offsets.pulled("g", "t", 0, 3)
        stats.got("g", "t", 20, 100)
        await trio.sleep_until(13)
        answer = await world.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
        found = ConsumeStats.from_json(answer.body)
        assert found.offset_table[queue()] == OffsetWrapper(3, 2, 3, 2_000)
        assert found.offset_table[queue(topic="u")] == OffsetWrapper(0, 0, 0, 0)
        assert len(found.offset_table) == 5
        assert found.consume_tps == pytest.approx(2.0)
        for ext in ({"topic": "u"}, {"topicList": "u;x;"}):
            answer = await world.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"} | ext)
            assert list(ConsumeStats.from_json(answer.body).offset_table) == [queue(topic="u")]
        every = ConsumeStatsList.from_json((await world.ask(RequestCode.GET_BROKER_CONSUME_STATS)).body)
        mine, = [each["g"] for each in every.consume_stats_list if "g" in each]
        assert (len(mine), every.total_diff, every.total_inflight_diff, every.broker_addr) == (
            2, 1, 1, "10.0.0.1:10911")
        ordered = await world.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "true"})
        assert ConsumeStatsList.from_json(ordered.body).total_diff == 0
        await world.heartbeat("g", "u")
        answer = await world.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
        assert list(ConsumeStats.from_json(answer.body).offset_table) == [queue(topic="u")], "it wants no more of t"


async def test_times_of_what_was_consumed(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world)
        world.topics.update([TopicConfig("t", 2, 2)])
        await at_seconds(world, 1, 2, 4)
        await trio.sleep_until(10)
        for offset, consumed, delay in ((None, 1_000, 9_000), (1, 1_000, 8_000), (3, 4_000, 0)):
            if offset is not None:
                world.offsets.commit("g", "t", 0, offset)
            answer = await world.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "t", "group": "g"})
            assert ConsumeTimeSpans.from_json(answer.body).consume_time_span_set == [
                QueueTimeSpan(queue(0), 1_000, 4_000, consumed, delay), QueueTimeSpan(queue(1), -1, -1, -1, 0)]
        answer = await world.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "x", "group": "g"})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_counters_are_shown(autojump_clock: MockClock) -> None:
    async with running() as world:
        stats = serve(world)
        stats.got("g", "t", 7, 70)
        shown = await world.ask(RequestCode.VIEW_BROKER_STATS_DATA, {
            "statsName": GROUP_GET_NUMS, "statsKey": "t@g"})
        assert BrokerStatsData.from_json(shown.body).stats_minute.sum_ == 7
        for name, key in ((GROUP_GET_NUMS, "x"), (TOPIC_PUT_NUMS, "t")):
            answer = await world.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
            assert (answer.code, bool(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)


async def test_cleaning_is_passed_on(autojump_clock: MockClock) -> None:
    async with running() as world:
        done: list[str] = []
        world.handlers |= Cleaning(
            expired_queues=lambda: done.append("queues"), unused_topics=lambda: done.append("topics"),
            expired_log=lambda: done.append("log")).handlers()
        for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC,
                     RequestCode.DELETE_EXPIRED_COMMITLOG):
            assert (await world.ask(code)).code == ResponseCode.SUCCESS
        assert done == ["queues", "topics", "log"]
