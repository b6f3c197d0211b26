"""Checkpoints and acknowledgements as messages: where they wait, what they are called, and how they are read again."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from broker.pop.records import Records, as_one, named, read
from broker.properties import POP_PROGRESS
from broker.rules import Chain, Refusal
from broker.timer.admission import Timers
from broker.timer.keys import TimerKeys
from broker.topics.names import TIMER, pop_retry_topic, popped_from
from remoting.bodies.popping import BatchAckMessage
from remoting.codes import ResponseCode
from remoting.errors import BodyError
from remoting.record import NOTED, Message, decode_properties
from tests.remoting.test_popping import ACK, CHECKPOINT

NOW_MS = 1_700_000_000_000
HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
REVIVE = "rmq_sys_REVIVE_LOG_c"


def records(now_ms: int = NOW_MS, **keys: bool | int) -> Records:
    timers = Timers(TimerKeys(**keys), "brk", lambda: now_ms, lambda slot_ms: 0, lambda: 0.5)  # type: ignore[arg-type]
    return Records("c", HOST, lambda: now_ms, Chain(timers.rule))


def made(message: Message | Refusal) -> tuple[Message, dict[str, str]]:
    assert isinstance(message, Message), message
    return message, decode_properties(message.properties)


def test_a_checkpoint_waits_as_a_timer_until_a_second_before_its_time() -> None:
    message, values = made(records().checkpoint(CHECKPOINT, 3))
    assert message.topic.decode() == TIMER
    assert values == {
        "TAGS": "ck", "UNIQ_KEY": "T1@2@100@G1@1700000000000@brk@ck", "TIMER_DELIVER_MS": "1700000059000",
        "TIMER_OUT_MS": "1700000058000", "REAL_TOPIC": REVIVE, "REAL_QID": "3"}
    assert read(message) == CHECKPOINT
    assert message.sys_flag == NOTED, "every replica hears of it: its messages must stay"
    assert (message.born_time_ms, message.born_host, message.store_host) == (NOW_MS, HOST, HOST)


def test_one_that_is_due_goes_to_the_revive_topic() -> None:
    message, values = made(records().checkpoint(attrs.evolve(CHECKPOINT, invisible_ms=900), 3))
    assert (message.topic.decode(), message.queue_id) == (REVIVE, 3)
    assert "REAL_TOPIC" not in values


def test_every_replica_hears_of_one_that_takes_its_group_on() -> None:
    message, values = made(records().checkpoint(CHECKPOINT, 3, "0 100 106 2 G1 T1"))
    assert message.sys_flag == NOTED
    assert values[POP_PROGRESS] == "0 100 106 2 G1 T1"


def test_acknowledgements_wait_until_the_time_of_their_checkpoint() -> None:
    message, values = made(records().ack(ACK, 3, 60_000))
    assert (values["TAGS"], values["UNIQ_KEY"]) == ("ack", "T1@2@101@G1@1700000000000@brk@ack")
    assert (values["TIMER_DELIVER_MS"], values["REAL_QID"]) == ("1700000060000", "3")
    assert read(message) == ACK
    batch = BatchAckMessage([101, 105], 100, "G1", "T1", 2, NOW_MS, "brk")
    message, values = made(records().ack(batch, 3, 60_000))
    assert (values["TAGS"], values["UNIQ_KEY"]) == ("bAck", "T1@2@-1@G1@1700000000000@brk@ack")
    assert read(message) == batch
    assert isinstance(read(message), BatchAckMessage)
    late, _ = made(records(NOW_MS + 60_000).ack(ACK, 3, 60_000))
    assert late.topic.decode() == REVIVE


def test_acknowledgements_of_one_checkpoint_are_one() -> None:
    two, three = attrs.evolve(ACK, ack_offset=100), attrs.evolve(ACK, ack_offset=107)
    assert as_one([ACK, two, ACK, three]) == BatchAckMessage([101, 100, 107], *attrs.astuple(ACK)[1:])
    assert as_one([two, two]) == two


def test_what_timers_refuse_is_refused() -> None:
    refused = records(timer_wheel_enable=False).ack(ACK, 3, 60_000)
    assert isinstance(refused, Refusal)
    assert "timerWheelEnable" in refused.remark
    made(records(timer_max_delay_sec=59).checkpoint(CHECKPOINT, 3))
    refused = records(timer_max_delay_sec=58).checkpoint(CHECKPOINT, 3)
    assert isinstance(refused, Refusal)
    assert "58000ms" in refused.remark


@pytest.mark.parametrize("change", [{"group": "G\x02a\x01b"}, {"topic": "T\x01"}])
def test_names_that_would_make_other_properties_are_refused(change: dict[str, Any]) -> None:
    for refused in (records().checkpoint(attrs.evolve(CHECKPOINT, **change), 3),
                    records(NOW_MS + 60_000).ack(attrs.evolve(ACK, **change), 3, 60_000)):
        assert isinstance(refused, Refusal) and refused.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(("tags", "body"), [
    ("x", ACK.to_json()), ("", b"{}"), ("ck", b""), ("ck", b"{}"), ("ck", b"[]"), ("ack", b"{"),
    ("bAck", b'{"aol":[1]}'), ("ck", attrs.evolve(CHECKPOINT, count=5).to_json())])
def test_what_is_no_record_of_pop_is_refused(tags: str, body: bytes) -> None:
    with pytest.raises(BodyError):
        read(Message(REVIVE.encode(), body, 0, f"TAGS\x01{tags}\x02".encode()))


@pytest.mark.parametrize("broker", ["brk", "", "eu@a", "@", "a@ck"])
def test_a_checkpoint_is_known_by_its_unique_id(broker: str) -> None:
    _, values = made(records().checkpoint(attrs.evolve(CHECKPOINT, broker_name=broker), 3))
    assert named(values["UNIQ_KEY"]) == ("T1", "2", "100", "G1", broker)
    for other in ("", "T1@2@100@G1", f"T1@2@101@G1@5@{broker}@ack", "T1@2@100@G1@5@ck"):
        assert named(other) is None


def test_retry_topics_have_two_kinds_of_names() -> None:
    assert pop_retry_topic("T1", "G1") == "%RETRY%G1_T1"
    assert pop_retry_topic("T1", "G1", v2=True) == "%RETRY%G1+T1"
    assert popped_from("%RETRY%G1_T1", "G1") == popped_from("%RETRY%G1+T1", "G1") == "T1"
    assert popped_from("T1", "G1") == "T1"
    assert popped_from("%RETRY%G1", "G1") == "%RETRY%G1"
