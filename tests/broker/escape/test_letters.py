"""What is sent to another master, and to which."""

from __future__ import annotations

import attrs
import pytest

from broker.escape.letters import in_turn, parcel, places
from remoting.bodies.namesrv import BrokerData, QueueData, TopicRouteData
from remoting.record import COMPRESSED, NOTED, Message, decode_properties, encode_properties

MESSAGE = Message(b"T", b"body", 3, encode_properties({
    "UNIQ_KEY": "u1", "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "3", "TAGS": "a", "__QUORATE_TIMER": "77"}),
    flag=5, sys_flag=COMPRESSED | NOTED | 8, born_time_ms=1_000, reconsume_times=2)


def values(text: str) -> dict[str, str]:
    return decode_properties(text.encode())


def test_what_says_something_of_this_log_stays_here() -> None:
    made = parcel(MESSAGE, "own")
    assert (made.topic, made.queue, made.body) == ("T", 3, b"body")
    assert values(made.fields["i"]) == {"UNIQ_KEY": "u1", "TAGS": "a"}
    assert {made.fields[name] for name in "fghj"} == {"1", "1000", "5", "2"}
    assert made.fields["a"] == "own"
    named = attrs.evolve(MESSAGE, properties=encode_properties({"PGROUP": "P"}))
    assert parcel(named, "own").fields["a"] == "P"


def test_a_timer_that_would_wait_on_here_waits_there() -> None:
    waits = attrs.evolve(MESSAGE, topic=b"rmq_sys_wheel_timer", queue_id=0, properties=encode_properties({
        "REAL_TOPIC": "T", "REAL_QID": "2", "TIMER_OUT_MS": "9000", "TIMER_DELAY_SEC": "5"}))
    made = parcel(waits, "own")
    assert (made.topic, made.queue) == ("T", 2)
    assert values(made.fields["i"]) == {"TIMER_DELIVER_MS": "10000"}, "its slot is over then"
    for asked_ms, due_ms in (("9001", "9001"), ("9500", "9500"), ("10000", "10000"), ("8000", "10000"), ("x", "10000")):
        asks = attrs.evolve(waits, properties=encode_properties({
            "REAL_TOPIC": "T", "REAL_QID": "2", "TIMER_OUT_MS": "9000", "TIMER_DELIVER_MS": asked_ms}))
        assert values(parcel(asks, "own").fields["i"]) == {"TIMER_DELIVER_MS": due_ms}
    assert values(parcel(waits, "own", 100).fields["i"]) == {"TIMER_DELIVER_MS": "9100"}
    late = attrs.evolve(waits, topic=b"SCHEDULE_TOPIC_XXXX", properties=encode_properties({
        "REAL_TOPIC": "T", "REAL_QID": "2", "DELAY": "3"}))
    assert (parcel(late, "own").topic, values(parcel(late, "own").fields["i"])) == ("T", {"DELAY": "3"})
    due = attrs.evolve(waits, topic=b"T")
    assert values(parcel(due, "own").fields["i"]) == {}


@pytest.mark.parametrize("queue_id", ["1e9", "", "-1"])
def test_what_names_no_queue_of_its_own_is_sent_all_the_same(queue_id: str) -> None:
    odd = encode_properties({"REAL_TOPIC": "T", "REAL_QID": queue_id, "TIMER_OUT_MS": "9000"})
    assert parcel(attrs.evolve(MESSAGE, topic=b"rmq_sys_wheel_timer", properties=odd), "own").queue == 0


def test_a_half_escapes_as_a_half() -> None:
    kept = {"UNIQ_KEY": "u1", "PGROUP": "P", "DELAY": "3", "TIMER_DELAY_SEC": "5", "TRANSACTION_CHECK_TIMES": "2"}
    made = parcel(attrs.evolve(MESSAGE, topic=b"RMQ_SYS_TRANS_HALF_TOPIC", queue_id=0, properties=encode_properties({
        **kept, "REAL_TOPIC": "T", "REAL_QID": "2", "TRAN_PREPARED_QUEUE_OFFSET": "7", "__QUORATE_HALF": "9"})), "own")
    assert (made.topic, made.queue, made.fields["a"]) == ("T", 2, "P")
    assert values(made.fields["i"]) == {**kept, "TRAN_MSG": "true"}


def test_a_key_tells_messages_apart_and_is_the_same_for_one() -> None:
    keys = {parcel(each, "own").key for each in (
        MESSAGE, attrs.evolve(MESSAGE, topic=b"U"), attrs.evolve(MESSAGE, queue_id=4),
        attrs.evolve(MESSAGE, properties=encode_properties({"UNIQ_KEY": "u2"})),
        attrs.evolve(MESSAGE, properties=encode_properties({"UNIQ_KEY": "u2", "__QUORATE_TIMER": "78"})))}
    assert len(keys) == 5
    again = encode_properties({**decode_properties(MESSAGE.properties), "TIMER_DEQUEUE_MS": "4"})
    assert parcel(attrs.evolve(MESSAGE, properties=again), "own").key in keys
    assert parcel(Message(b"T", b""), "own").key == ""


ROUTE = TopicRouteData(
    [QueueData("a", 4, 4, 6), QueueData("b", 1, 2, 6), QueueData("d", 1, 1, 6), QueueData("e", 4, 4, 4),
     QueueData("f", 1, 1, 6), QueueData("g", 1, 1, 6)],
    [BrokerData("a", "c", {0: "a:1"}), BrokerData("b", "c", {0: "b:1", 1: "b:2"}), BrokerData("d", "c", {0: "d:1"}),
     BrokerData("e", "c", {0: "e:1"}), BrokerData("f", "other", {0: "f:1"}), BrokerData("g", "c", {1: "g:2"})])


def test_only_masters_of_this_cluster_that_may_be_written_to_and_never_the_own_group() -> None:
    assert [(each.broker_name, each.queue_id, each.address) for each in places(ROUTE, "c", "a")] == [
        ("b", 0, "b:1"), ("b", 1, "b:1"), ("d", 0, "d:1")]


def test_a_queue_goes_to_one_queue_and_to_another_broker_where_that_one_refused() -> None:
    found = places(ROUTE, "c", "a")
    one = attrs.evolve(parcel(MESSAGE, "own"), queue=4)
    assert [(each.broker_name, each.queue_id) for each in in_turn(found, one, ())] == [("b", 1), ("d", 0)]
    assert [each.broker_name for each in in_turn(found, one, ("b",))] == ["d", "b"]
    assert list(in_turn([], one, ())) == []
