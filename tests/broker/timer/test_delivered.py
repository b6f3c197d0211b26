"""What the log says of delivered timers, and for how long it is known."""

from __future__ import annotations

from broker.noted import is_noted
from broker.timer.delivered import Delivered
from broker.timer.letters import TOPIC, Letter
from broker.timer.units import Unit
from remoting.record import NOTED, Message, Outline, encode_properties


def outline(at: int, offset: object, time_ms: object = 5_000, topic: bytes = b"T", **more: str) -> Outline:
    properties = {"UNIQ_KEY": "U", "__QUORATE_TIMER": str(offset), "TIMER_DEQUEUE_MS": str(time_ms), **more}
    return at, 90, 0, 0, NOTED, 0, topic, encode_properties(properties)


def test_what_was_delivered_is_known_by_place_topic_and_id() -> None:
    known = Delivered()
    known.hear(outline(1_000, 100))
    assert known.has(100, "T", "U")
    assert not (known.has(100, "S", "U") or known.has(100, "T", "V") or known.has(200, "T", "U"))


def test_what_was_put_again_is_known_by_its_real_topic() -> None:
    known = Delivered()
    known.hear(outline(1_000, 100, topic=b"rmq_sys_wheel_timer", REAL_TOPIC="T"))
    assert known.has(100, "T", "U")


def test_what_rolled_is_known_though_it_was_set_aside_since() -> None:
    """Its copy among the undeliverable says the same offset, and is no delivery of it: a new master would roll it."""
    properties = encode_properties({"UNIQ_KEY": "U", "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": "5"})
    rolled = Letter.of(Message(TOPIC, b"x", properties=properties)).rolled(Unit(100, 9), 8)
    known = Delivered()
    for at, found in ((1_000, rolled), (2_000, Letter.of(rolled).set_aside())):
        if is_noted(found.sys_flag):
            known.hear((at, 90, 0, 0, found.sys_flag, 0, found.topic, found.properties))
    assert known.has(100, "T", "U")


def test_marks_that_say_nothing_are_passed_over() -> None:
    """Transactions bear marks, too, and anybody may claim what nobody can know yet."""
    known = Delivered()
    for found in (outline(1_000, ""), outline(1_000, "x"), outline(1_000, -1), outline(1_000, 1_000),
                  outline(1_000, 5_000), outline(1_000, 100, "x"), outline(1_000, 100, "")):
        known.hear(found)
    assert len(known) == 0 and known.begins(7) == 7


def test_it_is_forgotten_when_the_slots_of_its_time_are_done() -> None:
    known = Delivered()
    known.hear(outline(1_000, 100, 5_000))
    known.hear(outline(1_090, 200, 6_000))
    for read_time_ms, below in ((5_000, 300), (5_001, 100)):
        known.pass_to(read_time_ms, below)
        assert known.has(100, "T", "U") and known.begins(9_999) == 1_000
    known.pass_to(5_001, 101)
    assert not known.has(100, "T", "U") and known.begins(9_999) == 1_090
    known.pass_to(7_000, 201)
    assert len(known) == 0 and known.begins(9_999) == 9_999


def test_a_log_that_is_cut_takes_it_back() -> None:
    known = Delivered()
    known.hear(outline(1_000, 100))
    known.hear(outline(1_090, 200))
    known.cut(1_090)
    assert known.has(100, "T", "U") and not known.has(200, "T", "U")
    known.cut(0)
    assert len(known) == 0
