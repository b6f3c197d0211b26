"""Jepsen's files: old and new ones, keys told from values, and written so that Jepsen's own reader takes them."""

from __future__ import annotations

import pytest

from harness.histories.events import INFO, INVOKE, NEMESIS, OK, Event, HistoryError, checked
from harness.histories.jepsen import is_text, line_of, parse, parse_text

KEYED = """\
{:process 0, :type :invoke, :f :cas, :value [7 [1 2]], :time 10, :index 0}
{:process :nemesis, :type :info, :f :start, :value "isolated", :time 11, :index 1}
{:process 1, :type :invoke, :f :read, :value [7 nil], :time 12, :index 2}
{:process 0, :type :info, :f :cas, :value [7 [1 2]], :time 13, :index 3, :error :timeout}
{:process 1, :type :ok, :f :read, :value [7 2], :time 14, :index 4}
""".splitlines(keepends=True)


def test_keys_are_told_from_values() -> None:
    events = [*parse(KEYED)]
    assert [(each.key, each.value) for each in events] == [
        (7, [1, 2]), (None, "isolated"), (7, None), (7, [1, 2]), (7, 2)]
    assert events[3].error == "timeout"
    assert events[1].process == NEMESIS
    assert next(parse(KEYED, keyed=False)).value == [7, [1, 2]]


def test_a_cas_of_two_values_is_no_key() -> None:
    plain = [line.replace("[7 nil]", "nil").replace("[7 2]", "2").replace("[7 [1 2]]", "[1 2]") for line in KEYED]
    assert [each.key for each in parse(plain)] == [None] * 5


def test_what_is_written_is_read() -> None:
    events = [*parse(KEYED)]
    assert [*parse([line_of(event) for event in events])] == [
        event._replace(line=number) for number, event in enumerate(events, 1)]


@pytest.mark.parametrize(("f", "key", "value", "told"), [
    ("send", "q", "a", {"offset": 1}), ("drain", None, None, ["a"]), ("receive", "q", None, [["a", 1]]),
    ("acquire", 7, None, None), ("read", ["a", 1], None, [1, 2]), ("cas", None, [1, 2], [1, 2])])
def test_a_key_that_is_written_is_read_whatever_was_asked(f: str, key: object, value: object, told: object) -> None:
    """Queues and locks have no reads by which [key value] was told from a value."""
    events = [Event(0, INVOKE, 0, "send", "q", "a", 0), Event(1, OK, 0, "send", "q", "a", 1),
              Event(2, INVOKE, 0, f, key, value, 2), Event(3, OK, 0, f, key, told, 3)]
    lines = [line_of(event) for event in events]
    assert [each._replace(line=0) for each in parse(lines)] == events
    assert [each._replace(line=0) for each in parse(lines[2:])] == events[2:]


def test_one_vector_holds_the_whole_history() -> None:
    assert len([*parse(["[", *KEYED, "]"])]) == 5


def test_text_with_a_loggers_words() -> None:
    lines = ["; said aside\n", "INFO  jepsen.util - 0\t:invoke\t:cas\t[3 4]\n", "0\t:info\t:cas\t:timed-out\n",
             "INFO [2026] :nemesis :info :start nil\n", "2\t:invoke\t:read\tnil\n", "2\t:ok\t:read\t4\t:error\n"]
    assert is_text(lines[1].strip())
    events = [*parse_text(lines)]
    assert [(each.type, each.process, each.value) for each in events] == [
        (INVOKE, 0, [3, 4]), (INFO, 0, None), (INFO, NEMESIS, None), (INVOKE, 2, None), (OK, 2, 4)]
    assert events[1].error == "timed-out"
    assert events[4] == Event(4, OK, 2, "read", None, 4, 4, "error", 6)
    for nothing in ("#_", "#_ 3", "; said aside"):
        (event,) = parse_text([f"0\t:invoke\t:read\t{nothing}\n"])
        assert (event.value, event.error) == (None, None)


@pytest.mark.parametrize(("text", "words"), [
    ("3", "is a map"), ("{:type :ok, :process 0}", ":f"), ("{:type :maybe, :process 0, :f :x}", "invoke, :ok"),
    ("{:type :ok, :process [], :f :x}", "a number or :nemesis"),
    ("{:type :ok, :process true, :f :x}", "a number or :nemesis"),
    ("{:type :ok :process 0 :f :x :time 1.5}", "whole numbers"),
])
def test_a_form_that_is_no_operation(text: str, words: str) -> None:
    with pytest.raises(HistoryError, match=words):
        list(parse([text]))


def test_a_line_that_is_no_text_of_jepsens() -> None:
    with pytest.raises(HistoryError, match="line 1: no line of Jepsen's text"):
        list(parse_text(["hello\n"]))
    with pytest.raises(HistoryError, match="line 1: the file ends"):
        list(parse_text(["0 :ok :read [1\n"]))


def test_a_time_that_runs_back_is_that_of_the_event_above() -> None:
    late = [line.replace(":time 13", ":time 3") for line in KEYED]
    assert [each.time_ns for each in checked(parse(late))] == [10, 11, 12, 12, 14]
