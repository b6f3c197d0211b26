"""Our history files: what is written is read, and each line that is none is told in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.histories.events import FAIL, INFO, INVOKE, OK, Event, HistoryError
from harness.histories.jsonlines import line_of, parse

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2**53, 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2), max_leaves=5)
EVENTS = st.builds(Event, st.just(0), st.sampled_from([INVOKE, OK, FAIL, INFO]),
                   st.integers(0, 9) | st.text(min_size=1), st.text(min_size=1), JSON, JSON,
                   st.integers(0, 2**50), JSON)


@given(EVENTS)
def test_what_is_written_is_read(event: Event) -> None:
    assert [*parse([line_of(event)])] == [event._replace(line=1)]


@pytest.mark.parametrize("number", [2**64 - 1, 2**64, 18446744073709551999, -2**63 - 1, 10**40])
def test_an_integer_of_any_length_is_exact(number: int) -> None:
    """Beyond 64 bits it became a float, so the read of another value was the one that was written."""
    event = Event(0, OK, 0, "read", "\u00e4", [number, "\u00e4"], 0)
    assert f'[{number},"\u00e4"]'.encode() in line_of(event)
    assert [*parse([line_of(event)])] == [event._replace(line=1)]


@pytest.mark.parametrize("text", ["1e999", "NaN", "-Infinity", "[" * 100_000, "9" * 5_000, "}"])
def test_a_line_with_a_long_number_is_json_all_the_same(text: str) -> None:
    line = f'{{"type": "ok", "process": 0, "f": "x", "key": {10**20}, "value": {text}}}\n'
    with pytest.raises(HistoryError, match="line 1: no JSON"):
        list(parse([line.encode()]))


@pytest.mark.parametrize("value", [
    "\ud800", [float("nan"), 2**64], float("nan"), [1, {"a": float("inf")}], {None: [float("-inf")]}])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        line_of(Event(0, OK, 0, "read", None, value, 0))


def test_index_and_time_may_be_left_out() -> None:
    lines = [b'{"type": "invoke", "process": 0, "f": "read"}\n', b"\n",
             b'{"type": "ok", "process": 0, "f": "read", "value": 3}\n']
    assert [(each.index, each.time_ns, each.line) for each in parse(lines)] == [(0, 0, 1), (1, 1, 3)]


def test_what_json_has_not_becomes_a_list_or_words() -> None:
    assert b'"value":[1,2]' in line_of(Event(0, OK, 0, "read", None, frozenset({2, 1}), 0))


@pytest.mark.parametrize(("text", "words"), [
    (b'{"type": "ok", "proc', "head -n 0"), (b"[1]\n", "has type, process, f"),
    (b'{"type": "ok", "process": 0}\n', "has f"),
    (b'{"type": "done", "process": 0, "f": "x"}\n', "invoke, ok, fail or info"),
    (b'{"type": "ok", "process": [], "f": "x"}\n', "a number or a name"),
    (b'{"type": "ok", "process": true, "f": "x"}\n', "a number or a name"),
    (b'{"type": "ok", "process": 0, "f": "x", "index": true}\n', "whole numbers"),
    (b'{"type": "ok", "process": 0, "f": "x", "time_ns": 1.5}\n', "whole numbers"),
    (b'{"type": "ok", "process": 0, "f": "x", "topic": 1}\n', "put it into value"),
])
def test_a_line_that_is_none(text: bytes, words: str) -> None:
    with pytest.raises(HistoryError, match=words) as caught:
        list(parse([text]))
    assert caught.value.line == 1


def test_a_line_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.histories.jsonlines.LINE_BYTES_MAX", 10)
    long: Any = [b" " * 11]
    with pytest.raises(HistoryError, match="11 bytes long"):
        list(parse(long))
