"""What pulls say that they want: parsed once while it is short, and never remembered when it is long."""

from __future__ import annotations

import pytest

from broker.consumers import subscriptions
from broker.consumers.subscriptions import parse


@pytest.mark.parametrize(("expression", "kind"), [
    ("a || " * 1_000 + "b", None),
    ("a > 1", "X" * 900_000),
    ("b" * 200, "Y" * 200),
])
def test_a_client_cannot_fill_the_memory_with_expressions(expression: str, kind: str | None) -> None:
    before = subscriptions._parsed.cache_info().currsize
    assert parse("T", expression, kind).by_tag == (kind is None)
    assert subscriptions._parsed.cache_info().currsize == before


def test_a_short_expression_is_parsed_once() -> None:
    assert parse("T", "a || b", "TAG") is parse("T", "a || b", "TAG")
