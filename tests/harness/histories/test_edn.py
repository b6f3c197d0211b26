"""EDN, read and written: what it writes it reads, and what is no EDN is told with its line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.histories.edn import Keyword, Symbol, forms, text_of
from harness.histories.events import HistoryError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.sampled_from(
    [Keyword("read"), Keyword("a/b"), Symbol("nemesis")])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
    st.text() | st.integers(), inner, max_size=3) | st.frozensets(st.integers() | st.text(), max_size=3), max_leaves=8)


@given(st.lists(VALUES, max_size=3))
def test_what_is_written_is_read(values: list[Any]) -> None:
    assert [value for _, value in forms([text_of(value) + "\n" for value in values])] == values


@pytest.mark.parametrize(("text", "value"), [
    ("nil", None), ("[true false]", [True, False]), ("{:a 1, :b [2 3]}", {"a": 1, "b": [2, 3]}),
    ("#{1 2}", frozenset({1, 2})),
    ("42N", 42), ("1.5M", 1.5), ("-3e2", -300.0), ('"a\\n\\u0041"', "a\nA"), ("\\newline", "\n"), ("\\A", "A"),
    ("#_ ignored 3", 3), ("#_ #_ a b 3", 3), ("(1 ; said aside\n 2)", [1, 2]), ("#inst \"2026\"", "2026"),
    ("#jepsen.history.Op{:f :read}", {"f": "read"}), ("##Inf", float("inf")),
    ("{[1 {:a 2}] 3}", {(1, frozenset({("a", 2)})): 3}), ('"\\ud83d\\ude00"', "\U0001f600"),
])
def test_forms(text: str, value: Any) -> None:
    assert [found for _, found in forms(text.splitlines(keepends=True))] == [value]


def test_each_form_says_its_line_and_what_is_around_all_is_passed_over() -> None:
    lines = ["[{:a 1}\n", " {:a\n", "  2}\n", ' "x\n', 'y"]\n']
    assert [*forms(lines, unwrap=True)] == [(1, {"a": 1}), (2, {"a": 2}), (4, "x\ny")]


@pytest.mark.parametrize(("text", "line", "words"), [
    ("{:a 1\n", 1, "ends within"), ("1\n\"open\n", 2, "ends within"), ("1\n]\n", 2, "closes nothing"),
    ("[1\n}\n", 2, "opened at line 1"), ("{:a}", 1, "as many values"), ("\"\\q\"", 1, "no string has"),
    ("[" * 300, 1, "deep"), ('1\n"a\\ud800"', 2, "'a.ud800' has half a letter"), ("\\ude00", 1, "has half a letter"),
])
def test_what_is_none_is_told_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(HistoryError, match=words) as caught:
        list(forms(text.splitlines(keepends=True)))
    assert caught.value.line == line


def test_what_edn_has_not_is_not_written() -> None:
    with pytest.raises(TypeError, match="no object"):
        text_of(object())
