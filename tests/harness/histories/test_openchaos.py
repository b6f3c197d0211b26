"""OpenChaos' files: batches, messages that come unasked, unknown outcomes; and rows as its own recorder writes them."""

from __future__ import annotations

import pytest

from harness.histories.events import FAIL, INFO, INVOKE, NEMESIS, OK, HistoryError, checked
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
