"""Tables as people keep them: an event a row or an operation a row, in many names, and words for what is none."""

from __future__ import annotations

import pytest

from harness.histories.events import FAIL, INFO, INVOKE, OK, HistoryError, checked
from harness.histories.tables import parse, recognise

WHOLE = """\
Client,Op,Key,Value,start_ms,end_ms,Status,Result
a,GET,x,,12,15,200,1
a,PUT,x,1,0,12,ok,
b,PUT,x,2,3,,timeout,
b,PUT,x,3,4,5,failed,
""".splitlines(keepends=True)


def test_whole_operations_are_sorted_into_events() -> None:
    assert recognise(WHOLE[0]) == ","
    events = [*checked(parse(WHOLE, ","))]
    assert [(each.type, each.process, each.f, each.value) for each in events] == [
        (INVOKE, "a", "put", 1), (INVOKE, "b", "put", 2), (INVOKE, "b/1", "put", 3), (FAIL, "b/1", "put", None),
        (INVOKE, "a/1", "get", None), (OK, "a", "put", 1), (OK, "a/1", "get", 1)], "what touches is concurrent"
    assert [each.time_ns // 10**6 for each in events] == [0, 3, 4, 5, 12, 12, 15]


def test_events_stay_in_their_order() -> None:
    lines = ["process\ttype\tf\tvalue\ttime_s\n", "0\tinvoke\twrite\t\"a\"\t0.5\n", "0\tinfo\twrite\t\t1.25\n"]
    assert recognise(lines[0]) == "\t"
    assert [(each.type, each.value, each.time_ns) for each in parse(lines, "\t")] == [
        (INVOKE, "a", 500_000_000), (INFO, None, 1_250_000_000)]


def test_a_time_without_unit_is_seconds_where_it_has_a_point() -> None:
    lines = ["client;op;start;end\n", "a;read;1.5;2.0\n", "b;read;1.0;2.5\n"]
    assert [each.time_ns for each in parse(lines, ";")] == [0, 500_000_000, 1_000_000_000, 1_500_000_000]


@pytest.mark.parametrize(("rows", "line"), [
    (("a,write,0.1,0.2", "b,read,1,2"), 3), (("a,write,0.1,0.2", "b,read,,3"), 3), (("a,write,1,2.5",), 2),
    (("a,write,1,2", "b,read,6e-05,7e-05"), 3)])
def test_times_of_one_table_have_one_unit(rows: tuple[str, ...], line: int) -> None:
    """1 among seconds was taken for a nanosecond: a stale read was put before the write that it missed."""
    with pytest.raises(HistoryError, match=f"line {line}: .*name the columns with _s or _ns"):
        list(parse(["client,op,start,end\n", *(f"{row}\n" for row in rows)], ","))


@pytest.mark.parametrize("text", ["6e-05", "6E-05", "0.00006"])
def test_a_power_of_ten_is_a_point_too(text: str) -> None:
    lines = ["client,op,start,end\n", "a,read,0.00001,0.00002\n", f"b,read,{text},\n"]
    assert [each.time_ns for each in parse(lines, ",")] == [0, 10_000, 50_000]


def test_a_column_with_a_unit_says_nothing_of_others() -> None:
    lines = ["client,op,start_s,end\n", "a,read,0.5,600000000\n", "b,read,1,2000000000\n"]
    assert [each.time_ns for each in parse(lines, ",")] == [0, 100_000_000, 500_000_000, 1_500_000_000]


@pytest.mark.parametrize("text", [
    "007", "+7", "7_0", "-0", "07", "-07", "\u0667", "7.0", "0x7", "\u00b2", "-", "7 7", "9" * 5_000, "NaN"])
def test_what_is_not_written_as_a_number_is_compared_as_it_stands(text: str) -> None:
    """A value, a key and a client: 007 was taken for 7, so a read of the one was no loss of the other."""
    lines = ["client,op,key,value,start,end\n", f"{text},write,{text},{text},1,2\n"]
    for event in parse(lines, ","):
        assert (event.process, event.key, event.value) == (text, text, text)


@pytest.mark.parametrize("number", [0, 7, -7, 1000, 10**30])
def test_numbers_are_numbers(number: int) -> None:
    lines = ["client,op,key,value,start,end\n", f"a,write,{number},{number},1,2\n"]
    assert all((event.key, event.value) == (number, number) for event in parse(lines, ","))


def test_what_has_no_end_is_unknown() -> None:
    lines = ["client,op,value,start,end\n", "a,write,1,1,\n", "b,read,1,2,3\n"]
    events = [*parse(lines, ",")]
    assert [each.type for each in events] == [INVOKE, INVOKE, OK]


@pytest.mark.parametrize("header", ["a,b,c", "process,f", "hello", "process type f"])
def test_a_line_that_names_no_columns(header: str) -> None:
    assert recognise(header) is None


@pytest.mark.parametrize(("header", "row", "words"), [
    ("client,op,start,end", "a,read,1", "3 cells where the first line names 4"),
    ("client,op,start,end", ",read,1,2", "says its process"),
    ("client,op,start,end", "a,read,,2", "no time of its start"),
    ("client,op,start,end", "a,read,soon,2", "start is a time, a number, not soon"),
    ("client,op,start_ms,End_ms", "a,read,1,NaN", "End_ms is a time, a number, not NaN"),
    ("client,op,start,end", "a,read,-inf,2", "start is a time, a number, not -inf"),
    ("client,op,start,end", "a,read,1e99999,2", "start is a time, a number, not 1e99999"),
    ("client,op,start,end", "a,read,sNaN,2", "start is a time, a number, not sNaN"),
    ("client,op,start,end", "a,read,3,2", "ends before"),
    ("client,op,start,end,status", "a,read,3,,ok", "without a time of its end"),
    ("client,op,start,end,status", "a,read,3,4,invoke", "a whole operation"),
    ("client,op,type", "a,read,maybe", "invoke, ok, fail or info"),
    ("client,op,type,time", "a,read,ok,", "has no time"),
])
def test_a_row_that_is_none(header: str, row: str, words: str) -> None:
    with pytest.raises(HistoryError, match=f"line 2: .*{words}"):
        list(parse([header + "\n", row + "\n"], ","))


@pytest.mark.parametrize(("header", "words"), [
    ('"client,op,start,end', "line 1: the first line of a table names .*; here none of them: a quote in it may be"),
    ('client,op,"start,end', "line 1: the first line of a table names .*; here process, f: a quote"),
    ("client,op,start,end," + "x" * 140_000, "line 1: no CSV: field larger")])
def test_a_first_line_that_names_columns_only_at_first_sight(header: str, words: str) -> None:
    assert recognise(header) == ","
    with pytest.raises(HistoryError, match=words):
        list(parse([header + "\n", "a,read,1,2\n"], ","))


def test_too_many_to_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.histories.tables.OPERATIONS_MAX", 1)
    with pytest.raises(HistoryError, match="more than 1 operations"):
        list(parse(WHOLE, ","))
