"""Which messages wait for a slot, which one, and which are refused."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from broker.rules import Chain, Diverted, Draft, Refusal
from broker.timer.admission import ADDED_BYTES, Timers, slot_begin_ms
from broker.timer.handles import Handle
from broker.timer.keys import WINDOW_MOST, TimerKeys
from broker.timer.letters import Letter
from broker.timer.units import Unit
from remoting.record import NOTED, PROPERTIES_BYTES_MAX, Message, decode_properties, encode_properties

NOW_MS = 1_700_000_000_500


def timers(count: int = 0, chance: float = 0.5, **keys: Any) -> Timers:
    return Timers(TimerKeys(**keys), "brk", lambda: NOW_MS, lambda slot_ms: count, lambda: chance)


def draft(topic: str = "T1", level: int = 0, sys_flag: int = 0, **properties: Any) -> Draft:
    return Draft(topic, 3, {"UNIQ_KEY": "U1", **{name: str(value) for name, value in properties.items()}},
                 level=level, sys_flag=sys_flag)


def verdict(sent: Draft, **options: Any) -> object:
    return timers(**options).timers(sent)


@pytest.mark.parametrize(("sent", "slot_ms"), [
    ({"TIMER_DELIVER_MS": NOW_MS + 5_300}, 1_700_000_005_000),
    ({"TIMER_DELIVER_MS": 1_700_000_006_000}, 1_700_000_005_000),
    ({"TIMER_DELAY_MS": 1}, 1_700_000_000_000),
    ({"TIMER_DELAY_SEC": 3}, 1_700_000_003_000),
    ({"TIMER_DELAY_SEC": 3, "TIMER_DELAY_MS": 9_000, "TIMER_DELIVER_MS": "x"}, 1_700_000_003_000),
    ({"TIMER_DELAY_MS": 9_000, "TIMER_DELIVER_MS": "x"}, 1_700_000_009_000),
])
def test_a_timer_waits_for_the_slot_before_its_time(sent: dict[str, Any], slot_ms: int) -> None:
    """Seconds win over milliseconds, and those over a time."""
    waiting = draft(**sent)
    assert Chain(timers().rule).stops(waiting) is None
    assert (waiting.topic, waiting.queue_id) == ("rmq_sys_wheel_timer", 0)
    values = waiting.properties
    assert (values["TIMER_OUT_MS"], values["REAL_TOPIC"], values["REAL_QID"]) == (str(slot_ms), "T1", "3")
    assert waiting.answered == {"recallHandle": Handle("T1", "brk", slot_ms + 1, "U1").encode()}


@pytest.mark.parametrize("sent", [
    draft(TIMER_DELAY_SEC=3, level=2), draft(TIMER_DELAY_SEC=3, TIMER_OUT_MS=1), draft(TIMER_OUT_MS=1), draft(),
    draft(TIMER_DELAY_SEC=3, sys_flag=4), draft(TIMER_DELAY_SEC=3, sys_flag=12),
    draft("rmq_sys_wheel_timer", TIMER_DELAY_SEC=3),
    draft(TIMER_DELIVER_MS=NOW_MS),
    draft(TIMER_DELIVER_MS=-5), draft(TIMER_DELAY_MS=0), draft(TIMER_DELAY_SEC=-2**62),
])
def test_what_passes(sent: Draft) -> None:
    before = attrs.evolve(sent, properties=dict(sent.properties))
    assert verdict(sent) is None
    assert sent == before


def test_a_committed_message_may_be_a_timer() -> None:
    assert isinstance(verdict(draft(TIMER_DELAY_SEC=3, sys_flag=8)), Diverted)


@pytest.mark.parametrize("sent", [
    {"TIMER_DELAY_SEC": 259_201}, {"TIMER_DELAY_MS": 259_200_001}, {"TIMER_DELIVER_MS": NOW_MS + 259_200_001},
    {"TIMER_DELAY_SEC": 2**62}, {"TIMER_DELAY_SEC": 2**63}, {"TIMER_DELIVER_MS": -2**63 - 1}, {"TIMER_DELAY_MS": "1e3"},
    {"TIMER_DELAY_MS": ""}, {"TIMER_DELIVER_MS": "9" * 30}, {"TIMER_DEL_UNIQKEY": "U", "TIMER_DELIVER_MS": NOW_MS},
])
def test_absurd_times_are_illegal(sent: dict[str, Any]) -> None:
    refused = verdict(draft(**sent))
    assert isinstance(refused, Refusal) and refused.code == 13 and "259200000ms" in refused.remark


def test_the_limit_is_the_configured_one() -> None:
    assert isinstance(verdict(draft(TIMER_DELAY_SEC=10), timer_max_delay_sec=10), Diverted)
    refused = verdict(draft(TIMER_DELAY_SEC=11), timer_max_delay_sec=10)
    assert isinstance(refused, Refusal) and "10000ms" in refused.remark


def test_without_a_wheel_timers_are_refused() -> None:
    assert verdict(draft(TIMER_DELAY_SEC=1), timer_wheel_enable=False) == Refusal(
        1, "accurate timer message is not enabled, timerWheelEnable is false")
    assert verdict(draft(TIMER_DELAY_SEC=1, level=1), timer_wheel_enable=False) is None


@pytest.mark.parametrize(("count", "chance", "refused"), [
    (100, 0.0, False), (150, 0.49, True), (150, 0.51, False), (200, 0.999, True), (199, 0.999, False)])
def test_a_full_slot_refuses_some_and_then_all(count: int, chance: float, refused: bool) -> None:
    found = verdict(draft(TIMER_DELAY_SEC=1), count=count, chance=chance, timer_congest_num_each_slot=100)
    assert isinstance(found, Refusal) is refused
    if isinstance(found, Refusal):
        assert (found.code, found.remark[:35]) == (1, "timer message is under flow control")


def test_a_slot_is_as_long_as_the_precision() -> None:
    assert (slot_begin_ms(5_300, 100), slot_begin_ms(5_301, 100), slot_begin_ms(5_000, 1_000)) == (5_200, 5_300, 4_000)


def test_what_could_never_be_delivered_is_refused() -> None:
    """Whatever passes still fits when it was rolled and delivered, by the longest numbers."""
    most, unit = None, Unit(10**18, 100, write_time_ms=10**18)
    for size in range(PROPERTIES_BYTES_MAX - 600, PROPERTIES_BYTES_MAX):
        sent = draft(TIMER_DELAY_SEC=3, K="k" * (size - 40))
        found = Chain(timers().rule).stops(sent)
        if found is not None:
            assert isinstance(found, Refusal) and found.code == 13
            break
        most = sent
    assert most is not None
    letter = Letter.of(Message(b"rmq_sys_wheel_timer", b"x", properties=encode_properties(
        {**most.properties, "TIMER_ROLL_TIMES": str(2**31 - 1)})))
    for message in (letter.rolled(unit, 10**18), letter.delivered(unit, 10**18),
                    letter.rolled(unit, 10**18, moved=True)):
        assert len(message.properties) <= PROPERTIES_BYTES_MAX
    assert ADDED_BYTES < 300


@pytest.mark.parametrize(("asked", "window"), [(172_800, 172_800), (1, WINDOW_MOST), (604_741, WINDOW_MOST), (2, 2)])
def test_the_window_is_javas(asked: int, window: int) -> None:
    assert TimerKeys(timer_roll_window_slot=asked).window_slots == window


# --- handles -------------------------------------------------------------------------------------------------


def test_a_handle_has_javas_bytes() -> None:
    text = "djEgVDEgYnJrIDE3MDAwMDAwMDAwMDEgVTE="
    assert Handle("T1", "brk", 1_700_000_000_001, "U1").encode() == text
    assert Handle.decode(text) == Handle.decode(text.rstrip("=")) == Handle("T1", "brk", 1_700_000_000_001, "U1")


@pytest.mark.parametrize("text", [
    "", "=", "a", "v1", "§", "djE=", Handle("T", "b", 1, "").encode(), "djIgVDEgYnJrIDE3MDAwMDAwMDAwMDEgVTE=",
    "/" * 5_000])
def test_what_is_no_handle(text: str) -> None:
    assert Handle.decode(text) is None


def test_a_handle_whose_time_is_none() -> None:
    assert Handle.decode("djEgVCBiIHggVQ==") == Handle("T", "b", -1, "U")


# --- what is made of a message -------------------------------------------------------------------------------


def letter(**properties: object) -> Letter:
    return Letter.of(Message(b"rmq_sys_wheel_timer", b"x", properties=encode_properties(
        {name: str(value) for name, value in properties.items()})))


def test_a_delivered_message_is_where_it_was_meant_for_and_no_timer_again() -> None:
    waited = letter(REAL_TOPIC="T", REAL_QID=3, TIMER_OUT_MS=5, TIMER_DELAY_SEC=1, A="b")
    message = waited.delivered(Unit(100, 9, write_time_ms=7), 8)
    assert (message.topic, message.queue_id) == (b"T", 3)
    values = decode_properties(message.properties)
    assert values == {"TIMER_OUT_MS": "5", "TIMER_DELAY_SEC": "1", "A": "b", "TIMER_ENQUEUE_MS": "7",
                      "TIMER_DEQUEUE_MS": "8", "__QUORATE_TIMER": "100"}


def test_a_rolled_message_waits_on() -> None:
    once = letter(REAL_TOPIC="T", REAL_QID=3, TIMER_OUT_MS=5).rolled(Unit(100, 9, write_time_ms=7), 8)
    again = Letter.of(once).rolled(Unit(200, 9, write_time_ms=9), 10)
    assert again.topic == b"rmq_sys_wheel_timer"
    values = decode_properties(again.properties)
    assert (values["TIMER_ROLL_TIMES"], values["TIMER_ENQUEUE_MS"], values["REAL_TOPIC"]) == ("2", "9", "T")
    assert values["__QUORATE_TIMER"] == "200"
    assert again.sys_flag & NOTED


@pytest.mark.parametrize("properties", [
    {}, {"REAL_TOPIC": "T"}, {"REAL_QID": 1}, {"REAL_TOPIC": "T", "REAL_QID": "x"}, {"REAL_TOPIC": "T", "REAL_QID": -1},
    {"REAL_TOPIC": "T", "REAL_QID": 2**31}, {"REAL_TOPIC": "rmq_sys_wheel_timer", "REAL_QID": 0},
    {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": 0}])
def test_what_has_nowhere_to_go(properties: dict[str, object]) -> None:
    assert letter(**properties).lost


@pytest.mark.parametrize("out_ms", ["", "x", "-1", "9" * 20, str(2**62 + 1)])
def test_a_time_that_is_none_is_due_at_once(out_ms: str) -> None:
    assert letter(TIMER_OUT_MS=out_ms).out_ms == 0


@pytest.mark.parametrize("key", ["U", "T+U"])
def test_a_marker_of_either_release_names_its_message(key: str) -> None:
    message = letter(REAL_TOPIC="T", UNIQ_KEY="U", TIMER_OUT_MS=5)
    assert letter(REAL_TOPIC="T", TIMER_DEL_UNIQKEY=key, TIMER_OUT_MS=5).key_deleted == message.key
    for other in ({"REAL_TOPIC": "S"}, {"TIMER_OUT_MS": 6}, {"TIMER_DEL_UNIQKEY": "V"}):
        given = {"REAL_TOPIC": "T", "TIMER_DEL_UNIQKEY": key, "TIMER_OUT_MS": 5, **other}
        assert letter(**given).key_deleted != message.key
