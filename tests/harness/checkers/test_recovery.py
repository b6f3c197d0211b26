"""Recovery times by hand: each definition, each key, up to the next fault; and figures over many."""

from __future__ import annotations

from typing import Any

import pytest

from harness.checkers.recovery import (
    Fault,
    faults_from_json,
    faults_of,
    figures,
    outages,
    percentile,
    recoveries,
    unserved,
)
from harness.histories.events import FAIL, INFO, INVOKE, NEMESIS, OBSERVER, OK, Event

MS = 1_000_000


def history(*rows: tuple[int, str, int | str, str, object, object]) -> list[Event]:
    return [Event(number, kind, process, f, key, value, at * MS)
            for number, (at, kind, process, f, key, value) in enumerate(rows)]


EVENTS = history(
    (0, INVOKE, 0, "send", "a", 1), (10, OK, 0, "send", "a", 1),
    (100, INFO, NEMESIS, "kill", None, "start"),
    (110, INVOKE, 0, "send", "a", 2), (150, FAIL, 0, "send", "a", 2),
    (160, INVOKE, 0, "send", "a", 3),
    (300, INFO, OBSERVER, "elected", "a", 7),
    (400, OK, 0, "send", "a", 3),
    (410, INVOKE, 1, "receive", None, None), (420, OK, 1, "receive", None, [1]),
    (430, INVOKE, 1, "receive", None, None), (450, OK, 1, "receive", None, [{"body": 3, "offset": 1}]),
    (500, INFO, NEMESIS, "kill", None, "end"),
    (600, INFO, NEMESIS, "cut", None, None),
    (610, INVOKE, 0, "send", "b", 4), (620, INFO, 0, "send", "b", 4))


def test_the_four_definitions() -> None:
    first, second = recoveries(EVENTS, faults_of(EVENTS))
    assert first.as_json() == {
        "fault": "kill", "on": [], "at_ms": 100.0, "key": "a", "refused": 290.0, "elected": 200.0, "accepted": 300.0,
        "consumed": 350.0}
    assert (second.fault.name, second.key, second.accepted, second.refused) == ("cut", "b", None, None)


def test_an_election_without_a_key_is_of_every_key_of_its_fault() -> None:
    events = history(
        (100, INFO, NEMESIS, "kill", None, "start"), (110, INVOKE, 0, "write", "a", 1), (120, FAIL, 0, "write", "a", 1),
        (200, INFO, OBSERVER, "elected", None, 7), (250, INFO, OBSERVER, "elected", None, 8),
        (260, INVOKE, 0, "write", "b", 2), (270, OK, 0, "write", "b", 2),
        (500, INFO, NEMESIS, "kill", None, "start"), (510, INVOKE, 0, "write", "a", 3), (520, OK, 0, "write", "a", 3))
    assert [(each.key, each.elected) for each in recoveries(events, faults_of(events))] == [
        ("a", 100.0), ("b", 100.0), ("a", None)]


def test_faults_begin_and_end() -> None:
    assert faults_of(EVENTS) == [Fault("kill", 100 * MS, 500 * MS), Fault("cut", 600 * MS)]
    jepsens = history((1, INFO, NEMESIS, "start", None, None), (2, INFO, NEMESIS, "stop", None, None),
                      (3, INFO, NEMESIS, "start-kill", None, None), (4, INFO, NEMESIS, "stop-kill", None, None))
    assert faults_of(jepsens) == [Fault("fault", MS, 2 * MS), Fault("kill", 3 * MS, 4 * MS)]
    rows = [{"time_ns": 1, "fault": "cut", "on": ["n1"], "phase": "start"},
            {"time_ns": 2, "fault": "kill", "phase": "once"},
            {"time_ns": 3, "fault": "cut", "on": ["n1"], "phase": "end"}]
    assert faults_from_json(rows) == [Fault("cut", 1, 3, ("n1",)), Fault("kill", 2)]
    assert faults_from_json(rows[:2]) == [Fault("cut", 1, None, ("n1",), over=False), Fault("kill", 2)]
    assert faults_of(jepsens[:3]) == [Fault("fault", MS, 2 * MS), Fault("kill", 3 * MS, over=False)]


@pytest.mark.parametrize(("row", "words"), [
    (3, "3 is no object"), ([1], r"\[1\] is no object"),
    ({"fault": "kill", "phase": "once", "time_ns": "3"}, "time_ns is a whole number, not '3'"),
    ({"fault": "kill", "phase": "once", "time_ns": 0.5}, "time_ns is a whole number, not 0.5"),
    ({"fault": "kill", "phase": "once", "time_ns": 3, "on": 7}, "not iterable")])
def test_what_is_no_fault_is_said(row: Any, words: str) -> None:
    """A time in quotes was taken, and ended the check without a verdict when it was compared."""
    with pytest.raises(TypeError, match=words):
        faults_from_json([row])


def test_who_accepts_nothing_more_is_told() -> None:
    def send(at: int, key: str, told: str) -> list[tuple[int, str, int | str, str, object, object]]:
        return [(at, INVOKE, 0, "write", key, at), (at + 5, told, 0, "write", key, at)]

    faults = [Fault("kill", 100 * MS, 200 * MS), Fault("cut", 300 * MS, 400 * MS)]

    def keys(*sends: list[tuple[int, str, int | str, str, object, object]]) -> list[object]:
        return [each.key for each in unserved(recoveries(history(*(row for rows in sends for row in rows)), faults))]

    assert keys(send(250, "a", FAIL)) == ["a"]
    assert keys(send(250, "a", FAIL), send(450, "a", OK)) == []
    assert keys(send(250, "a", OK), send(350, "a", FAIL)) == [], "nobody asked when the cut was over"
    assert keys(send(250, "a", OK), send(450, "a", INFO), send(460, "b", OK)) == ["a"]
    faults[1] = Fault("cut", 300 * MS, over=False)
    assert keys(send(250, "a", FAIL)) == ["a"]
    assert keys(send(250, "a", OK), send(450, "a", FAIL)) == [], "the cut is not over"


Row = tuple[int, str, int | str, str, object, object]


def write(begun: int, end: int, told: str = OK, key: str = "a") -> list[Row]:
    return [(begun, INVOKE, 0, "write", key, begun), (end, told, 0, "write", key, begun)]


def told(faults: list[Fault], *writes: list[Row]) -> list[tuple[object, str, float, bool, int]]:
    found = outages(history(*(row for rows in writes for row in rows)), faults)
    return [(each.key, each.fault.name, each.ms, each.over, each.later) for each in found]


KILL, CUT = Fault("kill", 100 * MS), Fault("cut", 300 * MS)


def test_an_outage_goes_on_behind_further_faults() -> None:
    assert told([KILL, CUT], write(10, 20), write(110, 120, FAIL), write(390, 400)) == [("a", "kill", 300.0, True, 1)]
    assert told([KILL, CUT], write(10, 20), write(310, 400)) == [("a", "kill", 300.0, True, 1)]
    assert told([KILL, CUT], write(10, 20), write(110, 320), write(390, 400)) == [
        ("a", "kill", 220.0, True, 1), ("a", "cut", 100.0, True, 0)], "what began between says nothing of the second"
    assert told([KILL, CUT], write(10, 110), write(190, 200), write(310, 320)) == [
        ("a", "kill", 100.0, True, 0), ("a", "cut", 20.0, True, 0)]


def test_an_outage_without_an_end_is_as_long_as_somebody_tried() -> None:
    assert told([KILL], write(10, 20), write(110, 120, FAIL), write(600, 700, INFO)) == [("a", "kill", 600.0, False, 0)]
    assert told([KILL], write(10, 20)) == [], "nobody asked"
    assert told([KILL, CUT], write(310, 320, key="b")) == [("b", "cut", 20.0, True, 0)], "nobody knows of it before"


def test_figures_count_what_was_not_seen() -> None:
    found = figures(recoveries(EVENTS, faults_of(EVENTS)), "accepted")
    assert found is not None
    assert (found.seen, found.missing, found.most) == (1, 1, 300.0)
    assert figures([], "accepted") is None
    assert [percentile(range(1, 101), at) for at in (0, 50, 99, 100)] == [1, 50, 99, 100]
