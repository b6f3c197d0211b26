"""What a history must be: one that breaks a rule is told where, and every prefix of one that breaks none is fine."""

from __future__ import annotations

import pytest

from harness.histories.events import (
    FAIL,
    INFO,
    INVOKE,
    NEMESIS,
    OK,
    Event,
    HistoryError,
    Operation,
    checked,
    operations,
)


def event(index: int, kind: str, process: int | str = 0, *, time_ns: int | None = None) -> Event:
    return Event(index, kind, process, "write", None, 1, index if time_ns is None else time_ns, None, index + 1)


def test_a_history_is_passed_on_as_it_is() -> None:
    events = [event(0, INVOKE), event(1, INFO, NEMESIS), event(2, INVOKE, 1), event(3, OK), event(4, INFO, 1),
              event(5, INVOKE)]
    assert [*checked(events)] == events
    done = operations(events)
    assert [each.ended and each.ended.type for each in done] == [OK, INFO, None]
    assert [each.words() for each in done] == [
        "process 0: write 1, ok (line 4)", "process 1: write 1, unknown (line 5)",
        "process 0: write 1, unknown (line 6)"]


def test_numbers_begin_at_nought() -> None:
    assert [each.index for each in checked([event(7, INVOKE), event(8, OK)])] == [0, 1]


@pytest.mark.parametrize(("events", "line", "words"), [
    ([event(0, INVOKE), event(2, OK)], 3, "missing, doubled or out of order"),
    ([event(0, INVOKE, time_ns=5), event(1, OK, time_ns=4)], 2, "sort the events"),
    ([event(0, INVOKE), event(1, OK, time_ns=1 << 63)], 2, "no time has more than 63 bits"),
    ([event(0, INVOKE), event(1, INVOKE)], 2, "a process of its own"),
    ([event(0, OK)], 1, "has not begun"),
    ([event(0, INVOKE), event(1, FAIL), event(2, FAIL)], 3, "has not begun"),
    ([event(0, INVOKE), event(1, INFO), event(2, INVOKE)], 3, "as a new process"),
])
def test_what_no_history_has_is_told(events: list[Event], line: int, words: str) -> None:
    with pytest.raises(HistoryError, match=words) as caught:
        list(checked(events))
    assert caught.value.line == line


def test_an_answer_of_nothing_is_told_where_somebody_asked() -> None:
    def told(f: str, asked: object, answer: object) -> str | None:
        return Operation(Event(0, "invoke", 1, f, "k", asked, 0), Event(1, "ok", 1, f, "k", answer, 1)).answer

    assert told("read", None, None) == "nothing"
    assert told("read", None, 3) == "3"
    assert told("write", 3, 3) is told("release", None, None) is None
