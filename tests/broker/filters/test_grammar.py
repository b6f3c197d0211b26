"""Which expressions are none, where and why; and how deep they may be."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from broker.filters.expressions import FilterIllegal, compiled
from broker.filters.grammar import DEPTH_MAX
from harness.scenarios.interop.vectors import ILLEGAL, PROPERTIES, each
from remoting.record import encode_properties

RAW = encode_properties(PROPERTIES)


def test_what_java_does_not_compile_is_refused_with_the_place_and_words() -> None:
    for text in each(ILLEGAL):
        with pytest.raises(FilterIllegal, match=r"^Invalid MessageSelector\. At character \d+: .") as refused:
            compiled(text)
        assert 0 <= refused.value.position <= len(text), text
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize(("text", "position", "words"), [
    ("a > 3;", 5, "nothing begins with ';'"),
    ("a = 5 AND", 9, "a value is missing"),
    ("a = 5 AND )", 10, "a value is missing, not )"),
    ("a = 'x", 4, "a text without its closing quote"),
    ("a IN ('x', 5)", 11, "TEXT must stand here"),
    ("5", 0, "a number of 32 bits is neither true nor false"),
    ("TRUE AND 1.5", 9, "a number with a point is neither true nor false"),
    ("a > 'x'", 2, "a text is not less or more than anything"),
    ("a = 0.0", 4, "a number with a point must be above 0 and below 1.8E308, as in Java"),
    ("a = NULL", 2, "NULL is compared by IS NULL and IS NOT NULL"),
    ("TRUE = 5", 5, "true or false cannot be compared with a number of 32 bits"),
    ("a NOT LIKE 'x'", 6, "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH must follow NOT here"),
    ("a BETWEEN 9 AND 1", 2, "the first number must not be above the second"),
    ("5 IN ('x')", 2, "a property must stand before IN"),
    ("a = 99999999999999999999", 4, "a number of more than 64 bits"),
])
def test_words_and_place_of_what_is_wrong(text: str, position: int, words: str) -> None:
    with pytest.raises(FilterIllegal) as refused:
        compiled(text)
    assert (refused.value.position, refused.value.words) == (position, words)


def nested(levels: int) -> str:
    return "(" * levels + "a = 5" + ")" * levels


@pytest.mark.parametrize("make", [
    nested, lambda levels: "NOT " * levels + "(a = 5)", lambda levels: "a > " + "-" * levels + "5",
    lambda levels: "a > " + "+" * levels + "3", lambda levels: "a = " * levels + "a",
    lambda levels: "a = 5" + " IS NULL" * levels, lambda levels: "a" + " CONTAINS 'x'" * levels,
    lambda levels: "-(" + "a = " * (levels // 2) + "a)" + " = a" * (levels // 2),
])
def test_what_nests_too_deep_is_refused_and_a_little_less_is_evaluated(make: Callable[[int], str]) -> None:
    """Whatever stands on the stack already."""
    compiled(make(DEPTH_MAX - 2)).matches(RAW)
    for levels in (DEPTH_MAX + 1, 1_000, 2_000):
        with pytest.raises(FilterIllegal, match=f"more than {DEPTH_MAX}"):
            compiled(make(levels))

    def deep(left: int) -> None:
        if left:
            return deep(left - 1)
        compiled(make(DEPTH_MAX - 3)).matches(RAW)
        return None

    deep(sys.getrecursionlimit() - 650 - _frames())


@pytest.mark.parametrize(("text", "depth"), [
    ("TRUE", 1), ("a", 2), ("a = 5", 2), ("(a = 5)", 2), ("NOT (a = 5)", 3), ("a = -b", 3), ("-(a = 5) = 1", 4),
    ("a = 5 AND b = 6 AND c = 7", 3), ("a > 1 IS NULL", 3)])
def test_depth_counts_what_is_evaluated_within_each_other(text: str, depth: int) -> None:
    assert compiled(text).depth == depth


def _frames() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


def test_all_that_nests_together_is_no_deeper() -> None:
    level = "NOT (x = 1 OR x = 2 AND b = ("
    text = level * 24 + "a > 3" + "))" * 24
    compiled(text).matches(RAW)
    with pytest.raises(FilterIllegal, match="within each other"):
        compiled(level * 51 + "a > 3" + "))" * 51)


@pytest.mark.parametrize("joined", [" OR ", " AND "])
def test_long_lists_are_no_depth(joined: str) -> None:
    text = joined.join(f"a <> {number}" for number in range(1_000))
    assert compiled(text).depth < 10
    assert compiled(text).matches(RAW) is (joined == " OR ")


def test_brackets_beside_each_other_are_no_depth() -> None:
    many = " OR ".join(["(NOT (a > 9))", "a > -3"] * (2 * DEPTH_MAX))
    assert compiled(many).matches(RAW)
    with pytest.raises(FilterIllegal, match="within each other"):
        compiled(f"{many} OR {nested(DEPTH_MAX + 1)}")
