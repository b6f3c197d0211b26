"""What consumers give back: retries, dead letters, and both again when the consumer sends by itself."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from broker.rules import NOT_YET, Refusal, Verdict, rule
from broker.sending.sendback import SendBack
from broker.store.tables import SubscriptionGroup
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import ResponseCode
from remoting.command import Command, request
from remoting.headers.sending import ConsumerSendMsgBackRequest
from remoting.record import NOTED, PROPERTIES_BYTES_MAX, decode_properties, message_id, parse_message_id
from tests.broker.sending.test_sending import Slaves
from tests.broker.sending.world import STORE_HOST, UNIQ, World, running, send

OLD_CLIENT = 120
"""Before ``V3_4_9``."""


def back(offset: int, group: str = "g", delay_level: int = 0, version: int | None = None, **fields: Any) -> Command:
    command = request(36, ConsumerSendMsgBackRequest(offset=offset, group=group, delay_level=delay_level, **fields))
    if version is not None:
        command.version = version
    return command


async def stored(world: World, **fields: Any) -> int:
    """Where a message of topic Orders stands in the log."""
    world.topics.update([TopicConfig("Orders", 4, 4)])
    world.groups.known.setdefault("g", SubscriptionGroup("g"))
    answer = await world.ask(send(properties={"UNIQ_KEY": UNIQ, "TAGS": "a", "WAIT": "true"}, sys_flag=1, **fields))
    return parse_message_id(answer.ext["msgId"])[1]


async def test_a_message_is_tried_again_later(autojump_clock: MockClock) -> None:
    async with running() as world:
        offset = await stored(world, reconsume_times=2, flag=5)
        assert (await world.ask(back(offset))).code == ResponseCode.SUCCESS
        record = (await world.records())[-1]
        message = record.message
        assert (message.topic, message.queue_id, message.body) == (b"SCHEDULE_TOPIC_XXXX", 4, b"hello")
        assert (message.reconsume_times, message.flag, message.sys_flag, message.born_time_ms) == (3, 5, 1, 7)
        assert decode_properties(message.properties) == {
            "UNIQ_KEY": UNIQ, "TAGS": "a", "WAIT": "false", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster", "RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": message_id(STORE_HOST, offset),
            "DELAY": "5", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"}
        assert world.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)
        assert (await world.ask(back(record.offset, origin_topic="Orders"))).code == ResponseCode.SUCCESS
        again = (await world.records())[-1].message
        assert again.reconsume_times == 4
        properties = decode_properties(again.properties)
        assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == (
            "Orders", message_id(STORE_HOST, offset))
        assert world.sending.counters.sent_back == 2


@pytest.mark.parametrize(("level", "reconsumed", "fields", "version", "queue_id"), [
    (0, 0, {}, None, 2),
    (1, 0, {}, None, 0),
    (18, 3, {}, None, 17),
    (99, 0, {}, None, 17),
    (0, 15, {}, None, 17),
    (0, 16, {}, None, None),  # retryMaxTimes
    (-1, 0, {}, None, None),
    (0, 1, {"max_reconsume_times": 1}, None, None),
    (0, 1, {"max_reconsume_times": 1}, OLD_CLIENT, 3),
    (0, 16, {"max_reconsume_times": 20}, None, 17),
])
async def test_retry_or_dead_letter(
    autojump_clock: MockClock, level: int, reconsumed: int, fields: dict[str, Any], version: int | None,
    queue_id: int | None,
) -> None:
    async with running() as world:
        offset = await stored(world, reconsume_times=reconsumed)
        assert (await world.ask(back(offset, delay_level=level, version=version, **fields))).code == 0
        topic, found, properties = await world.last()
        if queue_id is None:
            assert (topic, found, properties["DELAY"]) == ("%DLQ%g", 0, "0")
            assert world.topics.get("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1, 6)
            assert world.sending.counters.dead_letters == 1
        else:
            assert (topic, found, properties["DELAY"]) == ("SCHEDULE_TOPIC_XXXX", queue_id, str(queue_id + 1))


async def test_a_group_that_has_more_queues_than_its_retry_topic_loses_nothing(autojump_clock: MockClock) -> None:
    """An administrator raised ``retryQueueNums`` of a group that is there already; its retry topic stays as it is."""
    async with running() as world:
        world.topics.create_for_retry("g", 2)
        world.groups.known["g"] = SubscriptionGroup("g", retry_queue_nums=8)
        offset = await stored(world)
        found = set()
        for _ in range(40):
            assert (await world.ask(back(offset))).code == ResponseCode.SUCCESS
            found.add((await world.last())[2]["REAL_QID"])
        assert found == {"0", "1"}


async def test_a_count_of_tries_ends_where_its_field_does(autojump_clock: MockClock) -> None:
    async with running() as world:
        offset = await stored(world, reconsume_times=2**31 - 1)
        assert (await world.ask(back(offset))).code == ResponseCode.SUCCESS
        assert (await world.records())[-1].message.reconsume_times == 2**31 - 1


@pytest.mark.parametrize("level", [0, -1])
async def test_what_a_broker_noted_for_its_replicas_is_not_copied(autojump_clock: MockClock, level: int) -> None:
    """Else each replica would take the copy for a timer that was delivered, or for a message that came back."""
    async with running() as world:
        await stored(world)
        model = (await world.records())[0].message
        marked = b"a\x01b\x02__QUORATE_TIMER\x015\x02__QUORATE_REVIVED\x010 1 2\x02"
        world.puts.put([attrs.evolve(model, properties=marked, sys_flag=1 | NOTED)], lambda _: None)
        offset = (await world.records())[-1].offset
        assert (await world.ask(back(offset, delay_level=level))).code == ResponseCode.SUCCESS
        message = (await world.records())[-1].message
        assert message.sys_flag == 1 and b"a\x01b\x02" in message.properties
        assert b"__QUORATE" not in message.properties


async def filled(world: World, size: int) -> int:
    """Where a noted message whose properties have ``size`` bytes stands in the log."""
    model = (await world.records())[0].message
    world.puts.put([attrs.evolve(model, properties=b"a\x01" + b"x" * (size - 3) + b"\x02", sys_flag=1 | NOTED)],
                   lambda _: None)
    return (await world.records())[-1].offset


@pytest.mark.parametrize("level", [0, -1])
async def test_full_properties_go_to_the_dead_letters_as_they_are(
        autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, level: int) -> None:
    """What a retry adds has no room: the message was refused, and its consumer tried it for ever."""
    async with running() as world:
        await stored(world)
        offset = await filled(world, PROPERTIES_BYTES_MAX)
        assert (await world.ask(back(offset, delay_level=level))).code == ResponseCode.SUCCESS
        given, message = [record.message for record in (await world.records())[-2:]]
        assert (message.topic, message.queue_id, message.body, message.reconsume_times) == (b"%DLQ%g", 0, b"hello", 1)
        assert message.properties == given.properties and message.sys_flag == 1
        assert world.topics.get("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1, 6)
        counters = world.sending.counters
        assert (counters.dead_letters, counters.sent_back_of) == (1, {"Orders@g": 1})
        assert f"message {message_id(STORE_HOST, offset)} of Orders, group g, is now a dead letter" in caplog.text


async def test_only_properties_with_too_little_room_make_a_dead_letter(autojump_clock: MockClock) -> None:
    async with running() as world:
        await stored(world)
        size, topics = PROPERTIES_BYTES_MAX - 200, []
        for added in (0, None, 1):
            if added is None:  # all that a retry leaves is filled
                added = PROPERTIES_BYTES_MAX - len((await world.records())[-1].message.properties)
            size += added
            assert (await world.ask(back(await filled(world, size)))).code == ResponseCode.SUCCESS
            topics.append((await world.last())[0])
        assert topics == ["SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX", "%DLQ%g"]


async def test_refusals_in_order(autojump_clock: MockClock) -> None:
    async with running() as world:
        offset = await stored(world)
        group = world.groups.known.pop("g")
        world.slave = True
        world.puts.fence("follows")
        world.sending.permission = 4

        async def told(**changes: Any) -> tuple[int, str | None]:
            answer = await world.ask(back(**{"offset": offset, **changes}))
            return answer.code, answer.remark

        assert await told() == (
            ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
        world.serve()
        assert await told() == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group not exist, g")
        world.groups.known["g"] = SubscriptionGroup("g", retry_queue_nums=0)
        assert await told() == (
            ResponseCode.NO_PERMISSION, "the broker[127.0.0.1] sending message is forbidden")
        world.sending.permission = 6
        assert await told() == (ResponseCode.SUCCESS, None)  # a group without retries wants none
        world.groups.known["g"] = group
        world.topics.update([TopicConfig("%RETRY%g", 1, 1, 4)])
        assert await told() == (ResponseCode.NO_PERMISSION, "the topic[%RETRY%g] sending message is forbidden")
        world.topics.update([TopicConfig("%RETRY%g", 1, 1, 6)])
        for wrong in (offset + 1, 1 << 40, -1):
            assert await told(offset=wrong) == (ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {wrong}")
        assert len(await world.records()) == 1
        assert await told() == (ResponseCode.SUCCESS, None)


async def test_it_is_taken_when_replicas_hold_it(autojump_clock: MockClock) -> None:
    async with running() as world:
        offset = await stored(world)
        world.puts.serve(Slaves(accepted=0))
        answer = await world.ask(back(offset))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "IN_SYNC_REPLICAS_NOT_ENOUGH 0 replicas are in sync, 1 are needed: nothing was written")
        assert len(await world.records()) == 1


async def test_its_delay_wins_over_timers_that_it_came_with(autojump_clock: MockClock) -> None:
    """They were served before, or counted for nothing."""
    async with running() as world:
        world.topics.update([TopicConfig("Orders", 4, 4)])
        world.groups.known["g"] = SubscriptionGroup("g")
        answer = await world.ask(send(properties={"UNIQ_KEY": UNIQ, "TIMER_DELAY_MS": "1", "TIMER_OUT_MS": "2"}))
        assert (await world.ask(back(parse_message_id(answer.ext["msgId"])[1]))).code == ResponseCode.SUCCESS
        properties = (await world.last())[2]
        assert "TIMER_DELAY_MS" not in properties and properties["TIMER_OUT_MS"] == "2"


async def test_a_rule_may_refuse_it_or_have_it_wait(autojump_clock: MockClock) -> None:
    world = World()
    verdicts: list[Verdict] = [NOT_YET, Refusal(13, "not this one"), NOT_YET, None]
    world.sendback = SendBack(
        world.sending, world.topics, world.topics_file, world.groups, world.puts, world.journal.log.record,
        STORE_HOST, Random(1), of_parts=[rule(lambda draft: verdicts.pop(0))])
    async with running(world):
        offset = await stored(world)
        answer = await world.ask(back(offset))
        assert (answer.code, answer.remark) == (13, "not this one")
        assert (await world.ask(back(offset))).code == ResponseCode.SUCCESS
        assert (await world.last())[0] == "%RETRY%g" and not verdicts


# --- a consumer that sends to its retry topic by itself ------------------------------------------------------


@pytest.mark.parametrize(("reconsumed", "fields", "version", "locked", "dead"), [
    (16, {}, None, False, False),
    (17, {}, None, False, True),
    (0, {}, None, True, True),  # consumes in order, so it has given up on it
    (1, {"max_reconsume_times": 1}, None, False, False),
    (2, {"max_reconsume_times": 1}, None, False, True),
    (2, {"max_reconsume_times": 1}, OLD_CLIENT, False, False),
])
async def test_a_retry_sent_by_the_consumer(
    autojump_clock: MockClock, reconsumed: int, fields: dict[str, Any], version: int | None, locked: bool, dead: bool,
) -> None:
    async with running() as world:
        world.groups.known["g"] = SubscriptionGroup("g")
        if locked:
            world.groups.locked.add("g")
        timer = {} if dead else {"TIMER_DELAY_MS": "1"}  # the level wins
        properties = {"UNIQ_KEY": UNIQ, "DELAY": "3", "RETRY_TOPIC": "Orders", **timer}
        answer = await world.ask(send(
            "%RETRY%g", queue_id=0, reconsume_times=reconsumed, properties=properties, version=version, **fields))
        assert answer.code == ResponseCode.SUCCESS
        topic, queue_id, kept = await world.last()
        if dead:
            assert (topic, queue_id, kept["DELAY"]) == ("%DLQ%g", 0, "-1")
            assert world.topics.get("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1, 6)
        else:
            assert (topic, queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
            assert (kept["DELAY"], kept["REAL_TOPIC"], kept["REAL_QID"]) == ("3", "%RETRY%g", "0")
            assert "TIMER_DELAY_MS" not in kept
        assert kept["RETRY_TOPIC"] == "Orders"
        assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("0", "0")
