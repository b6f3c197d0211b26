"""What expressions of SQL92 mean, as RocketMQ 5.5.0 has them."""

from __future__ import annotations

import pytest

from broker.filters.expressions import compiled
from broker.filters.nodes import Unreadable
from harness.scenarios.interop.vectors import FALSE, PROPERTIES, TRUE, UNKNOWN, UNREADABLE, each
from remoting.record import decode_properties, encode_properties

RAW = encode_properties(PROPERTIES)


@pytest.mark.parametrize(("texts", "value"), [(TRUE, True), (FALSE, False), (UNKNOWN, None)])
def test_expressions_have_the_values_that_java_finds(texts: str, value: bool | None) -> None:
    for text in each(texts):
        expression = compiled(text)
        assert (text, expression.evaluate(PROPERTIES)) == (text, value)
        stored = value if "e" not in expression.names else expression.evaluate(decode_properties(RAW))
        assert (text, expression.matches(RAW)) == (text, stored is True), "only what is true is wanted"


def test_what_is_no_number_is_more_than_any() -> None:
    for text, value in (
            ("n > 1.5", True), ("n < 1.5", False), ("1.5 < n", True), ("1.5 >= n", False), ("n >= n", True)):
        assert (text, compiled(text).evaluate({"n": "NaN"})) == (text, value)


def test_what_cannot_be_read_is_not_wanted() -> None:
    for text in each(UNREADABLE):
        expression = compiled(text)
        with pytest.raises(Unreadable):
            expression.evaluate(PROPERTIES)
        assert not expression.matches(RAW)
