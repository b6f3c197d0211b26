"""OpenChaos' files: batches, messages that come unasked, unknown outcomes; and rows as its own recorder writes them."""

from __future__ import annotations

import pytest

from harness.histories.events import FAIL, INFO, INVOKE, NEMESIS, OK, Event, HistoryError, checked
from harness.histories.openchaos import Writer, parse

ROWS = """\
0\tenqueue\tREQUEST\ta\tk1\t1000\tnull
0\tenqueue\tRESPONSE\tUNKNOWN\ta\tk1\t1003\t3\ttimeout\t0
fault\tminor-kill\tstart\t1004
0\tenqueue\tREQUEST\tb\tk1\t1005\tnull
1\tdequeue\tREQUEST\tnull\tnull\t1004\tnull
0\tenqueue\tRESPONSE\tSUCCESS\tb\tk1\t1009\t4\tid\t0
1\tdequeue\tRESPONSE\tSUCCESS\ta\tk1\t1011\t7\tnull\t8
1\tdequeue\tRESPONSE\tSUCCESS\tb\tk1\t1011\t7\tnull\t2
1\tdequeue\tREQUEST\tnull\tnull\t1012\tnull
1\tdequeue\tRESPONSE\tFAILURE\tnull\tnull\t1013\t1\tnull\t0
fault\tminor-kill\tend\t1020
""".splitlines(keepends=True)


def test_each_answer_is_an_operation() -> None:
    events = [*checked(parse(ROWS))]
    assert [(each.type, each.process, each.value) for each in events] == [
        (INVOKE, "0/enqueue", "a"), (INFO, "0/enqueue", "a"), (INFO, NEMESIS, "start"), (INVOKE, "0/enqueue/1", "b"),
        (INVOKE, "1/dequeue", None), (OK, "0/enqueue/1", "b"), (OK, "1/dequeue", "a"), (INVOKE, "1/dequeue", None),
        (OK, "1/dequeue", "b"), (INVOKE, "1/dequeue", None), (FAIL, "1/dequeue", None), (INFO, NEMESIS, "end")]
    assert [each.time_ns // 10**6 for each in events][:5] == [0, 3, 4, 5, 5], "a row may stand behind its time"
    assert events[1].error == "timeout"


def test_what_is_written_says_the_same_again() -> None:
    events = [*parse(ROWS)]
    writer = Writer(begin_ms=1_000)
    again = [*parse(filter(None, map(writer.line_of, events)))]
    assert [(each.type, each.f, each.key, each.value) for each in again] == [
        (each.type, each.f, each.key, each.value) for each in events]


def rows_of(*events: tuple[str, str, object]) -> list[str]:
    writer = Writer()
    return [writer.line_of(Event(number, kind, 0, f, None, value, 0)) for number, (kind, f, value) in enumerate(events)]


@pytest.mark.parametrize("f", ["dequeue", "pop", "receive", "poll", "consume", "drain"])
@pytest.mark.parametrize(("value", "bodies"), [
    (["a", {"body": "b", "offset": 1}, "c"], ["a", "b", "c"]), ([], [None]), (None, [None]), ("a", ["a"]),
    ({"body": "a", "offset": 0}, ["a"])])
def test_each_message_of_an_answer_has_a_row(f: str, value: object, bodies: list[object]) -> None:
    """Lists were one row, as Python shows them, so nothing that was sent had come."""
    rows = rows_of((INVOKE, f, {"most": 3}), (OK, f, value))
    assert rows[0].split("\t")[3] == "null"
    again = [*checked(parse("".join(rows).splitlines(keepends=True)))]
    assert [each.value for each in again if each.type == OK] == bodies


@pytest.mark.parametrize(("sent", "told"), [
    ("a", None), ("a", "a"), ("a", {"offset": 4}), ({"body": "a", "delay_ms": 5}, {"body": "a", "offset": 4})])
def test_what_is_sent_is_its_body(sent: object, told: object) -> None:
    rows = rows_of((INVOKE, "enqueue", sent), (OK, "enqueue", told))
    assert [each.value for each in parse(rows)] == ["a", "a"]


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, True, "null", "a\tb", "a\nb"])
def test_what_a_row_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"is a text|as another"):
        rows_of((INVOKE, "enqueue", value))


@pytest.mark.parametrize(("row", "words"), [
    ("0\tenqueue\tASK\ta", "no row of OpenChaos"), ("fault\tkill\tmiddle\t3", "start or end"),
    ("0\tenqueue\tREQUEST\ta\tk\tsoon\tnull", "whole number of milliseconds"),
    ("0\tenqueue\tRESPONSE\tSUCCESS\ta\tk\t3\t1\tnull\t0", "has not asked"),
    ("0\tdequeue\tRESPONSE\tMAYBE\ta\tk\t3\t1\tnull\t0", "SUCCESS, FAILURE or UNKNOWN"),
])
def test_a_row_that_is_none(row: str, words: str) -> None:
    with pytest.raises(HistoryError, match=words):
        list(parse([row]))


def test_a_client_asks_twice() -> None:
    with pytest.raises(HistoryError, match="asked at line 1"):
        list(parse([ROWS[0], ROWS[0]]))
