"""What is handed to a sibling, to which, and what that makes of it."""

from __future__ import annotations

import attrs
import pytest

from broker.properties import REAL_QID, REAL_TOPIC
from broker.rules import Refusal
from broker.siblings.handover import (
    REFUSED_S,
    Choice,
    HandOverRequest,
    foreign,
    missing_retry,
    placed,
    read,
    record,
    stays,
)
from broker.topics.table import READ, WRITE, TopicsConfig, TopicTable
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import ResponseCode
from remoting.record import COMMIT, COMPRESSED, NOTED, Message, decode_properties, encode_properties

HOST, HERE = b"\x0a\0\0\x01\0\0\x2a\x9f", b"\x0a\0\0\x02\0\0\x2a\x9f"
MESSAGE = Message(
    b"T", b"body", 3, encode_properties({
        "UNIQ_KEY": "u1", "DELAY": "3", "TIMER_OUT_MS": "0", "TAGS": "a", "__QUORATE_TIMER": "77",
        "MY__QUORATE_": "x"}),
    flag=5, sys_flag=COMPRESSED | NOTED | COMMIT, born_time_ms=1_000, born_host=HOST, store_host=HOST,
    reconsume_times=2, prepared_offset=99)


def timer(topic: str = "T", queue: str = "6") -> Message:
    return Message(b"rmq_sys_wheel_timer", b"late", 0, encode_properties(
        {REAL_TOPIC: topic, REAL_QID: queue, "TIMER_OUT_MS": "9000"}))


def level(number: int, topic: str = "T") -> Message:
    return Message(b"SCHEDULE_TOPIC_XXXX", b"late", number - 1, encode_properties(
        {REAL_TOPIC: topic, REAL_QID: "6", "DELAY": str(number)}))


def table(*topics: TopicConfig) -> TopicTable:
    made = TopicTable(TopicsConfig(broker_cluster_name="c", broker_name="b"), lambda: 0)
    made.update([TopicConfig("T", 4, 4), *topics])
    return made


def test_the_record_stays_as_it_is_but_for_places_of_its_old_log() -> None:
    found = read(record(MESSAGE))
    assert found == attrs.evolve(
        MESSAGE, sys_flag=COMPRESSED, prepared_offset=0, properties=encode_properties({
            "UNIQ_KEY": "u1", "DELAY": "3", "TIMER_OUT_MS": "0", "TAGS": "a", "MY__QUORATE_": "x"}))
    odd = b"a\x01\xff\x02no pair\x02__QUORATE_X\x011\x02b\x012"
    assert read(record(attrs.evolve(MESSAGE, properties=odd))) == attrs.evolve(
        MESSAGE, sys_flag=COMPRESSED, prepared_offset=0, properties=b"a\x01\xff\x02no pair\x02b\x012")


@pytest.mark.parametrize(("body", "words"), [
    (b"", "the body is no record"), (b"\0" * 200, "magic"), (record(MESSAGE)[:-1], "the body is no record"),
    (record(MESSAGE) + b"x", "1 bytes behind"), (record(MESSAGE).replace(b"body", b"b0dy"), "CRC")])
def test_a_body_that_is_no_record_is_told_in_words(body: bytes, words: str) -> None:
    found = read(body)
    assert isinstance(found, Refusal)
    assert found.code == ResponseCode.MESSAGE_ILLEGAL and words in found.remark


def test_siblings_are_asked_in_one_order_and_not_at_once_again() -> None:
    choice = Choice()
    assert list(choice.in_turn(["b", "a", "c"], 0.0)) == ["a", "b", "c"]
    choice.refused("a", ResponseCode.SERVICE_NOT_AVAILABLE, "it follows", 0.0)
    choice.refused("b", ResponseCode.TOPIC_NOT_EXIST, "no topic", 0.0)
    assert list(choice.in_turn(["b", "a", "c"], 0.0)) == ["b", "c"], "another message may be taken"
    assert choice.why_left_alone(0.0) == "it follows"
    choice.refused("c", None, "no answer", 1.0)
    assert list(choice.in_turn(["b", "a", "c"], REFUSED_S)) == ["a", "b"]
    assert choice.why_left_alone(REFUSED_S) == "no answer"
    assert list(choice.in_turn(["b", "a", "c"], REFUSED_S + 1)) == ["a", "b", "c"]
    assert choice.why_left_alone(REFUSED_S + 1) == ""
    assert list(choice.in_turn([], 0.0)) == []


@pytest.mark.parametrize("message", [
    Message(b"RMQ_SYS_TRANS_HALF_TOPIC", b"half"), Message(b"RMQ_SYS_TRANS_OP_HALF_TOPIC", b"mark"),
    level(3, "RMQ_SYS_TRANS_HALF_TOPIC"), Message(b"rmq_sys_REVIVE_LOG_c", b"checkpoint"),
    Message(b"rmq_sys_pop_resets", b"reset"), timer("rmq_sys_REVIVE_LOG_c"), timer("RMQ_SYS_TRANS_HALF_TOPIC")])
def test_records_of_a_groups_own_are_for_its_master(message: Message) -> None:
    assert stays(message).endswith(": messages of this broker's own topics wait for its master")
    refused = placed(message, "", table(), HERE, timers=True, levels=18)
    assert isinstance(refused, Refusal) and refused.code == ResponseCode.NO_PERMISSION


def test_others_may_go() -> None:
    assert [stays(each) for each in (
        MESSAGE, timer(), level(3), Message(b"rmq_sys_timer_undeliverable", b""))] == [""] * 4


def test_a_slave_of_another_cluster_or_of_the_own_group_is_refused() -> None:
    assert foreign(HandOverRequest("c", "a"), "c", "b") is None
    for asked in (HandOverRequest("d", "a"), HandOverRequest("c", "b")):
        refused = foreign(asked, "c", "b")
        assert refused is not None and refused.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_the_master_stores_it_in_a_queue_that_the_topic_has_there() -> None:
    narrow = TopicConfig("N", 2, 2)
    found = placed(attrs.evolve(MESSAGE, topic=b"N"), "", table(narrow), HERE, timers=True, levels=18)
    assert found == attrs.evolve(MESSAGE, topic=b"N", queue_id=1, store_host=HERE)
    waits = placed(timer(), "", table(), HERE, timers=True, levels=18)
    assert isinstance(waits, Message)
    assert (waits.topic, waits.queue_id, waits.store_host) == (b"rmq_sys_wheel_timer", 0, HERE)
    assert decode_properties(waits.properties) == {REAL_TOPIC: "T", REAL_QID: "2", "TIMER_OUT_MS": "9000"}
    last = placed(level(18), "", table(), HERE, timers=False, levels=18)
    assert isinstance(last, Message)
    assert (last.topic, last.queue_id) == (b"SCHEDULE_TOPIC_XXXX", 17), "the queue says which level"
    assert decode_properties(last.properties) == {REAL_TOPIC: "T", REAL_QID: "2", "DELAY": "18"}


@pytest.mark.parametrize(("message", "beside", "timers", "code", "words"), [
    (attrs.evolve(MESSAGE, topic=b"U"), "", True, ResponseCode.TOPIC_NOT_EXIST, "topic[U] not exist here"),
    (attrs.evolve(MESSAGE, topic=b"R"), "", True, ResponseCode.NO_PERMISSION, "topic[R] cannot be written to"),
    (attrs.evolve(MESSAGE, topic=b"Z"), "", True, ResponseCode.NO_PERMISSION, "topic[Z] cannot be written to"),
    (timer("U"), "", True, ResponseCode.TOPIC_NOT_EXIST, "topic[U] not exist here"),
    (timer(), "", False, ResponseCode.NO_PERMISSION, "timerWheelEnable"),
    (level(19), "", True, ResponseCode.NO_PERMISSION, "18 delay levels, and not level 19"),
    (level(3, "U"), "", True, ResponseCode.TOPIC_NOT_EXIST, "topic[U] not exist here"),
    (MESSAGE, "U", True, ResponseCode.NO_PERMISSION, "topic[U] cannot be read"),
    (MESSAGE, "W", True, ResponseCode.NO_PERMISSION, "topic[W] cannot be read")])
def test_where_no_consumer_would_find_it_it_is_refused(
        message: Message, beside: str, timers: bool, code: int, words: str) -> None:
    topics = table(TopicConfig("R", 4, 4, READ), TopicConfig("Z", 4, 0), TopicConfig("W", 4, 4, WRITE))
    refused = placed(message, beside, topics, HERE, timers=timers, levels=18)
    assert isinstance(refused, Refusal)
    assert refused.code == code and words in refused.remark


def test_a_retry_topic_is_made_where_its_messages_can_be_consumed() -> None:
    back = Message(b"%RETRY%G_T", b"back")
    assert missing_retry(back, "T", table()) == "%RETRY%G_T"
    assert missing_retry(back, "", table()) == "%RETRY%G_T"
    assert missing_retry(back, "U", table()) == ""
    assert missing_retry(back, "T", table(TopicConfig("%RETRY%G_T", 1, 1))) == ""
    assert missing_retry(MESSAGE, "T", table()) == ""
    assert missing_retry(Message(b"%RETRY%\xff", b"back"), "T", table()) == "", "no topic can have that name"
