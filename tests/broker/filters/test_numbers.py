"""Numbers as Java reads and orders them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest

from broker.filters import numbers
from broker.filters.numbers import order, parse_double, parse_int, parse_long


@pytest.mark.parametrize(("text", "value"), [
    ("5", 5), ("-5", -5), ("+5", 5), ("0", 0), ("-0", 0), ("0000000000000000000005", 5), ("2147483647", 2147483647),
    ("-2147483648", -2147483648), ("٥", 5), ("-５", -5), ("0" * 6_000 + "1", 1),
])
def test_whole_numbers(text: str, value: int) -> None:
    assert parse_int(text) == parse_long(text) == value


@pytest.mark.parametrize("text", [
    "", "+", "-", " 5", "5 ", "1_0", "1.5", "abc", "--5", "+-5", "\U0001d7d3", "5L", "²", "²³", "५x", "9" * 5_000,
    "9223372036854775808", "-9223372036854775809",
])
def test_what_is_no_whole_number(text: str) -> None:
    for parse in (parse_int, parse_long):
        with pytest.raises(ValueError):
            parse(text)


@pytest.mark.parametrize("value", [2147483648, -2147483649, 12345678901, (1 << 63) - 1, -(1 << 63)])
def test_long_ones_are_no_int(value: int) -> None:
    assert parse_long(str(value)) == value
    with pytest.raises(ValueError, match="range"):
        parse_int(str(value))


@pytest.mark.parametrize(("text", "value"), [
    ("5", 5.0), (" 5\n", 5.0), ("\x1f5\x00", 5.0), ("5.", 5.0), (".5", 0.5), ("1e1", 10.0), ("1E+1", 10.0), ("5f", 5.0),
    ("5.0D", 5.0), ("0x1p3", 8.0), ("-0x.8P1f", -1.0), ("1e400", math.inf), ("-1e400", -math.inf), ("1e-400", 0.0),
    ("Infinity", math.inf), ("-Infinity", -math.inf), ("+1.5", 1.5), ("0x1p99999", math.inf), ("0x1p-99999", 0.0),
])
def test_numbers_with_a_point(text: str, value: float) -> None:
    assert parse_double(text) == value


@pytest.mark.parametrize("text", [
    "", " ", "abc", "inf", "nan", "infinity", "1_0", "\xa05", "0x1", "e5", ".", "1e", "５", "+ 5", "NaNf", "5fd", "!5"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_double(text)


def test_the_order_has_a_place_for_each() -> None:
    ordered = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, parse_double("NaN")]
    for at, left in enumerate(ordered):
        for other, right in enumerate(ordered):
            assert (order(left, right) > 0, order(left, right) < 0) == (at > other, at < other)
    assert math.isnan(parse_double("-NaN"))
    assert math.copysign(1, parse_double("-0.0")) == -1


@pytest.mark.parametrize("parse", [parse_int, parse_long, parse_double])
def test_a_long_text_is_read_once(parse: Callable[[str], float], monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression may compare it thousands of times."""
    asked = list[str]()

    class Noting:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self._pattern = pattern

        def fullmatch(self, text: str) -> re.Match[str] | None:
            asked.append(text)
            return self._pattern.fullmatch(text)

    for name in ("_WHOLE", "_DOUBLE"):
        monkeypatch.setattr(numbers, name, Noting(getattr(numbers, name)))
    long, other = "-" + "0" * 5_000 + "77", "-" + "0" * 5_000 + "78"
    for _ in range(10):
        assert (parse(long), parse(other)) == (-77, -78)
    assert asked == [long, other]
