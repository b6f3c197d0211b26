"""Expressions on a message's bytes, those that are remembered, and how little bad ones cost."""

from __future__ import annotations

import contextlib
import gc
import time
import weakref
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.filters import expressions
from broker.filters.expressions import LENGTH_MAX, Expression, FilterIllegal, Unreadable, compiled
from harness.scenarios.interop.vectors import PROPERTIES
from remoting.record import PROPERTIES_BYTES_MAX, decode_properties, encode_properties
from tests.broker.filters.generated import as_stored, chance

RAW = encode_properties(PROPERTIES)


@pytest.mark.parametrize(("text", "kind", "words"), [
    ("a = 5", "SQL93", "expressions of kind SQL93 are not known, SQL92 is"),
    ("a = 5", None, "expressions of kind None are not known, SQL92 is"),
    (None, "SQL92", "there is no expression"),
])
def test_other_kinds_are_refused(text: str | None, kind: str | None, words: str) -> None:
    with pytest.raises(FilterIllegal, match=words) as refused:
        compiled(text, kind)
    assert refused.value.position == 0


# --- properties as they stand in the log -------------------------------------------------------------------------


@pytest.mark.parametrize(("raw", "wanted"), [
    (b"a\x015\x02", True),
    (b"a\x015", True),
    (b"ba\x015\x02", False),
    (b"ba\x015\x02a\x015", True),
    (b"b\x01a\x015\x02", False),
    (b"a\x014\x02a\x015\x02", True),  # the last one counts
    (b"a\x015\x02a\x014\x02", False),
    (b"a\x015\x02ca\x014\x02", True),
    (b"a\x02a\x015\x02", True),
    (b"", False),
    (b"a", False),
    (b"\x02a\x015\x02\xff", True),
    (b"a\x015\x02a\x01\x02", True),  # Java passes over what is empty
    (b"a\x015\x02a\x01", True),
])
def test_a_property_is_found_among_the_bytes(raw: bytes, wanted: bool) -> None:
    assert compiled("a = '5'").matches(raw) is wanted
    many = " OR ".join(f"y{number} = 1" for number in range(9)) + " OR a = '5'"
    assert compiled(many).matches(raw) is wanted, "all are read where many are named"
    for around in (b"a\x015", b"a\x014\x02", b"\x02a\x01", b"5"):
        inside = around + raw + around, len(around), len(around) + len(raw)
        for text in ("a = '5'", "a = '5' AND x IS NULL", many):
            assert compiled(text).matches(*inside) is wanted, f"what stands around counts: {around!r}, {text}"


@pytest.mark.parametrize("many", ["", "".join(f" AND y{number} IS NULL" for number in range(9))])
def test_an_empty_property_is_none(many: str) -> None:
    """As Java has it, which loses empty values when it reads a record."""
    for raw in (b"e\x01\x02", b"e\x01", b"b\x017\x02e\x01\x02c\x018\x02"):
        assert compiled("e IS NULL" + many).matches(raw)
        for text in ("e = ''", "e IS NOT NULL", "e <> 'EU'"):
            assert not compiled(text + many).matches(raw)


@given(st.randoms(use_true_random=False))
def test_verdicts_are_those_of_properties_read_one_by_one(rng: Random) -> None:
    """Also where they are remembered, and where some are forgotten."""
    text, _ = chance(rng)
    try:
        expression = Expression(text)
    except FilterIllegal:
        return
    stored = [as_stored(rng, chance(rng)[1]) for _ in range(5)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expressions, "_VERDICTS_MAX", 2)
        matches = expression.matches
        for raw in stored + stored[:3] + stored[::-1]:
            try:
                wanted = expression.evaluate(decode_properties(raw)) is True
            except Unreadable:
                wanted = False
            assert (text, raw, matches(raw)) == (text, raw, wanted)
            assert matches(raw + raw[::-1] + raw, len(raw), 2 * len(raw)) == matches(raw[::-1])


@pytest.mark.parametrize("text", ["a = 5", "a = 5 AND b = 6", "a = 5" + " " * 300])
def test_few_verdicts_are_remembered_and_none_for_long_values(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_VERDICTS_MAX", 2)
    asked: list[str | None] = []

    def wants(_: Expression, values: list[str | None]) -> bool:
        asked.append(values[0])
        return values[0] == "5"

    monkeypatch.setattr(Expression, "wants", wants)
    matches = Expression(text).matches

    def asks(*values: str) -> int:
        before = len(asked)
        for value in values:
            assert matches(encode_properties({"a": value, "b": "6"})) is (value == "5")
        return len(asked) - before

    assert asks("5", "7", "5", "7", "5") == 2
    assert asks("8", "8", "5") == 2, "the first two made room"
    assert asks("5" * 65, "5" * 65) == 2


def test_texts_are_utf_8_and_what_is_not_is_replaced() -> None:
    assert compiled("s = 'ünï'").matches("s\x01ünï\x02".encode())
    assert compiled("s = '\ufffd'").matches(b"s\x01\xff\x02")


# --- what bad ones cost ----------------------------------------------------------------------------------------------


def test_long_expressions_are_refused_unread() -> None:
    assert compiled("a = 5 " + "x" * (LENGTH_MAX - 6)).matches(RAW)
    for text in ("a = 5 " + "x" * (LENGTH_MAX - 5), "(" * (1 << 20), "a" * (1 << 20), "9" * (1 << 20)):
        with pytest.raises(FilterIllegal, match=f"{LENGTH_MAX} may be"):
            compiled(text)


@pytest.mark.parametrize("text", [
    "a > " + "9" * 32_000, "a > 1e" + "9" * 32_000, "a > ." + "0" * 32_000, "a = '" + "''" * 16_000, "'" * 32_001,
    "/*" * 16_000, "a =" + "/*" * 16_000, "a = 5 OR a > " + "--" * 16_000, "-" * 32_000, "a > -" + "- -" * 10_000,
    "a > --1 OR " * 2_900 + "TRUE", "a > --1 OR " * 2_900 + "TRUE\n", "/*" + "*" * 32_000,
    "a IN (" + "'x'," * 8_000 + "'y')",
    "e" * 32_000, "a = 5" + " " * 32_000 + ";", "a = " + "\n" * 32_000 + "5", "-- \n" * 8_000 + "a = 5",
])
def test_odd_expressions_cost_little(text: str) -> None:
    """In processor time, with room for a machine that does other things; none takes a tenth of it."""
    began = time.process_time()
    with contextlib.suppress(FilterIllegal):
        compiled(text).matches(RAW)
    assert time.process_time() - began < 2


def test_properties_as_long_as_they_may_be_are_read_once() -> None:
    """Thousands of names do not search thousands of times, and a number of thousands of digits is one of too many."""
    raw = encode_properties({"a": "7" * (PROPERTIES_BYTES_MAX - 20)})
    many = compiled(" OR ".join(f"n{number} = 1" for number in range(2_500)))
    began = time.process_time()
    for _ in range(100):
        assert not many.matches(raw)
    assert not compiled("a > 5").matches(raw)
    assert compiled("a = 1.5").matches(encode_properties({"a": "1.5" + "0" * 30_000}))
    assert compiled("a = 5").matches(encode_properties({"a": "0" * 30_000 + "5"}))
    assert time.process_time() - began < 5


def test_each_256_characters_cost_as_much_as_a_short_expression() -> None:
    assert [Expression("a = 5" + " " * more).cost for more in (0, 250, 251, 506, 507)] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(("text", "cost"), [
    ("a > 5", 1), ("a > 5 AND region IN ('eu', 'us')", 1), ("a > 5 AND b <= 7 OR c = 1.5", 1),
    (" OR ".join(["a > 5"] * 30), 8), (" OR ".join(["a=9"] * 30), 8), (" OR ".join(["9=a"] * 30), 8),
    (" OR ".join(["a>b"] * 30), 14),
    (" OR ".join(["a NOT BETWEEN 1 AND 5"] * 10), 6), (" OR ".join(["-a = -1"] * 30), 4),
    (" OR ".join(["a = 'x'"] * 30), 2), ("a IN (" + "'x'," * 60 + "'y')", 1), ("a > 5 OR " * 2_000 + "b", 521)])
def test_numbers_that_are_read_cost_more_than_texts(text: str, cost: int) -> None:
    assert Expression(text).cost == cost


# --- remembering -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("terms", "others"), [(1, expressions._REMEMBERED), (1_000, expressions._LONG_REMEMBERED)])
def test_who_wants_the_same_shares_what_is_compiled_for_as_long_as_somebody_keeps_it(terms: int, others: int) -> None:
    def others_are_compiled(what: str) -> None:
        for number in range(others):
            compiled(f"a > {number} OR {what}" + " OR b" * terms)

    text = " OR ".join(f"shared = {number}" for number in range(terms))
    kept = compiled(text)
    others_are_compiled("b")
    assert compiled(text) is kept
    gone = weakref.ref(kept)
    del kept
    others_are_compiled("c")
    gc.collect()
    assert gone() is None


def test_some_long_expressions_are_remembered() -> None:
    def text(number: int) -> str:
        return " OR ".join(f"a = {number}{each}" for each in range(1_000))

    kept = [weakref.ref(compiled(text(number))) for number in range(9)]
    gc.collect()
    assert [each() is None for each in kept] == [True] + [False] * 8
    assert compiled(text(1)) is kept[1]()
    for _ in range(2):
        with pytest.raises(FilterIllegal, match="a value is missing"):
            compiled(text(9) + " OR")


def test_what_was_compiled_is_remembered_good_or_bad() -> None:
    assert compiled("a = 77") is compiled("a = 77")
    kept = [weakref.ref(compiled(f"a = {number}")) for number in range(1_000, 1_101)]
    gc.collect()
    assert compiled("a = 1001") is kept[1]()
    assert kept[0]() is None, "a hundred are"
    for _ in range(2):
        with pytest.raises(FilterIllegal, match="';'"):
            compiled("a = 78 ;")


def test_names_are_those_of_the_expression_once_each() -> None:
    assert Expression("a = 5 OR b > 3 OR a < 2 OR $x IS NULL").names == ("a", "b", "$x")
