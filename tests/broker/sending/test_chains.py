"""The rules that every broker has, one by one, and the order in which messages pass them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.rules import NOT_YET, Chain, Diverted, Draft, Refusal, Rule
from broker.schedule.levels import DelayLevels
from broker.sending import chains
from broker.sending.config import SendingConfig
from broker.store.tables import SubscriptionGroup
from broker.timer.admission import Timers
from broker.timer.keys import TimerKeys
from broker.topics import TopicsConfig, TopicTable
from broker.transactions.conversion import Conversion
from tests.broker.sending.world import Groups

OWN = {"MSG_REGION": "here", "TRACE_ON": "true", "CLUSTER": "c"}
UNSERVED = chains.Unserved(SendingConfig(max_message_size=10))


def draft(topic: str = "Orders", **fields: Any) -> Draft:
    given: dict[str, Any] = {"topic": topic, "queue_id": 1, "properties": {}, "write_queues": 4} | fields
    return Draft(**given)


def sends(groups: Groups | None = None) -> Chain:
    groups = groups or Groups()
    return chains.of_sends(
        chains.DeadLetters(TopicTable(TopicsConfig(), lambda: 0), groups, groups), chains.Own(OWN, lambda: "new"),
        UNSERVED, Conversion().rule, timers(), DelayLevels().rule)


def batches() -> Chain:
    return chains.of_batches(UNSERVED, Conversion().rule, timers(), DelayLevels().rule)


def timers() -> Rule:
    return Timers(TimerKeys(), "a", lambda: 0, lambda slot_ms: 0, lambda: 0.0).rule


# --- the order -----------------------------------------------------------------------------------------------


def names(chain: Chain) -> list[str]:
    return [rule.name for rule in chain.rules]


def test_the_order_of_rules_is_javas() -> None:
    assert names(sends()) == [
        "dead_letters", "own_properties", "delay_level_is_read", "inner_batches", "light_topics", "priority",
        "transactions", "timers", "delay_levels"]
    assert names(batches()) == [
        "topic_is_short", "no_retry_topic", "batch_in_transaction", "delay_level_is_read", "inner_batches",
        "transactions", "timers", "delay_levels"]
    assert names(chains.of_given_back(timers(), DelayLevels().rule)) == ["timers", "delay_levels"]


@pytest.mark.parametrize(("earlier", "later", "words"), [
    ({"DELAY": "x"}, {"INNER_NUM": "1"}, "delay level"),
    ({"INNER_NUM": "1"}, {"__LITE_TOPIC": "t"}, "INNER_NUM"),
    ({"__LITE_TOPIC": "t"}, {"TIMER_DELAY_SEC": "x"}, "light"),
])
def test_the_first_rule_that_refuses_is_heard(earlier: dict[str, str], later: dict[str, str], words: str) -> None:
    stop = sends().stops(draft(properties={**later, **earlier}))
    assert isinstance(stop, Refusal) and words in stop.remark


def test_a_priority_is_looked_at_before_the_message_waits() -> None:
    """So it is the queue chosen by the priority that a delayed message would come back to; and a delay takes it."""
    delayed = draft(properties={"_SYS_MSG_PRIORITY_": "3", "DELAY": "2"})
    assert sends().stops(delayed) is None
    assert "_SYS_MSG_PRIORITY_" not in delayed.properties and delayed.properties["REAL_QID"] == "1"


def test_dead_letters_are_delayed_by_nothing() -> None:
    groups = Groups({"g": SubscriptionGroup("g")})
    chain = sends(groups)
    tried = {"retry_of": "g", "reconsume_times": 17}
    assert chain.stops(draft("%RETRY%g", **tried)) == NOT_YET
    dead = draft("%RETRY%g", **tried, properties={"DELAY": "3"})
    assert chain.stops(dead) is None
    assert (dead.topic, dead.queue_id, dead.dead, dead.properties["DELAY"]) == ("%DLQ%g", 0, True, "-1")


def test_a_message_without_special_properties_needs_no_rule() -> None:
    assert sends().looked_at == {
        *OWN, "POP_CK", "DELAY", "TRAN_MSG", "INNER_NUM", "__LITE_TOPIC", "TIMER_DELIVER_MS", "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC", "TIMER_OUT_MS", "_SYS_MSG_PRIORITY_"}
    plain = draft(properties={"UNIQ_KEY": "u", "TAGS": "a", "KEYS": "k", "WAIT": "false"})
    assert sends().stops(plain) is None
    assert (plain.topic, plain.queue_id) == ("Orders", 1)
    assert plain.properties == {"UNIQ_KEY": "u", "TAGS": "a", "KEYS": "k", "WAIT": "false", **OWN}


# --- one by one ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reconsumed", "locked", "asked", "version", "dead"), [
    (2, False, None, 200, False), (3, False, None, 200, True), (0, True, None, 200, True),
    (3, False, 5, 121, False), (3, False, 5, 120, True), (1, False, 0, 121, True),
])
def test_dead_letters(reconsumed: int, locked: bool, asked: int | None, version: int, dead: bool) -> None:
    groups = Groups({"g": SubscriptionGroup("g", retry_max_times=2)}, {"g"} if locked else set())
    topics = TopicTable(TopicsConfig(), lambda: 0)
    topics.create_for_dead_letters("g")
    sent = draft("%RETRY%g", retry_of="g", reconsume_times=reconsumed, max_reconsume_times=asked, version=version)
    assert chains.DeadLetters(topics, groups, groups).dead_letters(sent) is None
    assert sent.dead is dead and sent.topic == ("%DLQ%g" if dead else "%RETRY%g")


def test_dead_letters_of_no_group() -> None:
    groups = Groups()
    rule = chains.DeadLetters(TopicTable(TopicsConfig(), lambda: 0), groups, groups).dead_letters
    assert rule(draft()) is None
    assert rule(draft(retry_of="g")) == Refusal(26, "subscription group not exist, g")


def test_own_properties() -> None:
    bare = draft(properties={"POP_CK": "1 2", "CLUSTER": "theirs"})
    chains.Own(OWN, lambda: "new").own_properties(bare)
    assert bare.properties == {**OWN, "UNIQ_KEY": "new"}


@pytest.mark.parametrize(("text", "level"), [(None, 0), ("0", 0), ("3", 3), ("-1", -1), ("99", 99)])
def test_a_delay_level(text: str | None, level: int) -> None:
    sent = draft(properties={} if text is None else {"DELAY": text})
    assert chains.delay_level_is_read(sent) is None and sent.level == level


@pytest.mark.parametrize(("properties", "fields", "waits"), [
    ({"TRAN_MSG": "true"}, {}, True), ({"TRAN_MSG": "false"}, {}, False), ({}, {}, False),
    ({"TRAN_MSG": "TRUE"}, {"reconsume_times": 1}, True), ({"TRAN_MSG": "true"}, {"level": 3}, True),
    ({"TRAN_MSG": "true"}, {"reconsume_times": 1, "level": 3}, False), ({"TRAN_MSG": "true"}, {"dead": True}, False),
])
def test_transactions(properties: dict[str, str], fields: dict[str, Any], waits: bool) -> None:
    sent = draft(properties={"UNIQ_KEY": "u", "__QUORATE_HALF": "5", **properties}, sys_flag=4, **fields)
    verdict = Conversion().transactions(sent)
    assert verdict == (Diverted("RMQ_SYS_TRANS_HALF_TOPIC", 0) if waits else None)
    assert sent.sys_flag == (0 if waits else 4)
    assert ("__QUORATE_HALF" in sent.properties) is not waits


def test_a_half_waits_before_it_is_delayed() -> None:
    sent = draft(properties={"UNIQ_KEY": "u", "TRAN_MSG": "true", "DELAY": "3"})
    assert sends().stops(sent) is None
    assert (sent.topic, sent.properties["REAL_TOPIC"]) == ("RMQ_SYS_TRANS_HALF_TOPIC", "Orders")


def test_a_half_leaves_room_for_what_it_gets_when_it_is_put_back() -> None:
    long = draft(properties={"UNIQ_KEY": "u", "TRAN_MSG": "true", "x": "." * 32_300})
    assert isinstance(Conversion().transactions(long), Refusal)


@pytest.mark.parametrize(("properties", "level", "queue_id", "kept"), [
    ({"_SYS_MSG_PRIORITY_": "0"}, 0, 0, True), ({"_SYS_MSG_PRIORITY_": "9"}, 0, 3, True),
    ({"_SYS_MSG_PRIORITY_": "9"}, 1, 1, False), ({"_SYS_MSG_PRIORITY_": "-1"}, 0, 1, False), ({}, 0, 1, False),
    ({"_SYS_MSG_PRIORITY_": "2", "__SHARDINGKEY": "k"}, 0, 1, False),
])
def test_priority(properties: dict[str, str], level: int, queue_id: int, kept: bool) -> None:
    sent = draft(properties=properties, level=level)
    chains.priority(sent)
    assert (sent.queue_id, "_SYS_MSG_PRIORITY_" in sent.properties) == (queue_id, kept)


@pytest.mark.parametrize(("level", "sys_flag", "queue_id"), [
    (0, 0, None), (-1, 0, None), (1, 0, 0), (18, 0, 17), (99, 0, 17), (3, 8, 2), (3, 4, None), (3, 12, None)])
def test_delay_levels(level: int, sys_flag: int, queue_id: int | None) -> None:
    """What belongs to a transaction that is open or was rolled back is delayed by nothing."""
    sent = draft(properties={"TIMER_DELAY_MS": "1", "DELAY": str(level)}, level=level, sys_flag=sys_flag)
    verdict = DelayLevels().delay_levels(sent)
    if queue_id is None:
        assert verdict is None and sent.properties == {"TIMER_DELAY_MS": "1", "DELAY": str(level)}
    else:
        assert verdict == Diverted("SCHEDULE_TOPIC_XXXX", queue_id)
        assert sent.properties == {"DELAY": str(queue_id + 1)}


@pytest.mark.parametrize(("fields", "words"), [
    ({"topic": "t" * 128}, "too long 128"), ({"topic": "%RETRY%g", "retry_of": "g"}, "retry group %RETRY%g"),
    ({"sys_flag": 4}, "no transaction"), ({"sys_flag": 128}, "no transaction"),
    ({"properties": {"TRAN_MSG": "true"}}, "no transaction"), ({"properties": {"INNER_NUM": "2"}}, "INNER_NUM"),
    ({"properties": {"DELAY": "x"}}, "delay level"), ({"properties": {"DELAY": "0"}}, None),
    ({"properties": {"TIMER_DELIVER_MS": "x"}}, "timer message illegal"),
    ({"properties": {"TIMER_DELAY_SEC": "259201"}}, "timer message illegal"),
    ({"properties": {"TIMER_DELIVER_MS": "0"}}, None),  # due already
    ({"properties": {"TIMER_DELAY_MS": "8000", "TIMER_OUT_MS": "8000"}}, None),
])
def test_batches(fields: dict[str, Any], words: str | None) -> None:
    """By Java's answers to these, but for `DELAY` that is no number, which it answers with 1."""
    stop = batches().stops(draft(**fields))
    assert stop is None if words is None else isinstance(stop, Refusal) and words in stop.remark


@pytest.mark.parametrize("properties", [
    {"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}, {"DELAY": "1", "TIMER_DELAY_MS": "1000"}])
def test_a_batch_that_would_wait_is_diverted_and_so_refused(properties: dict[str, str]) -> None:
    sent = draft(properties=properties)
    assert batches().stops(sent) is None
    assert sent.topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")


@pytest.mark.parametrize(("body", "sys_flag", "code"), [
    (b"", 0, 13), (b"", 4, 13), (b"x", 128, 13), (b"x" * 11, 0, 13)])
def test_a_body_that_nobody_could_get(body: bytes, sys_flag: int, code: int) -> None:
    refused = UNSERVED.body(body, sys_flag)
    assert refused is not None and refused.code == code


def test_a_body_that_may_be_stored() -> None:
    assert UNSERVED.body(b"x" * 10, 0) is UNSERVED.body(b"x", 8) is None
