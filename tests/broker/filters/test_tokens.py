"""The words of expressions: the longest wins, and comments are none."""

from __future__ import annotations

import pytest

from broker.filters.errors import FilterIllegal
from broker.filters.tokens import Kind, Tokens


def words(text: str) -> list[str]:
    tokens, found = Tokens(text), []
    while tokens.token.kind is not Kind.END:
        token = tokens.take()
        assert text[token.at :].startswith(token.text)
        found.append(f"{token.kind.name} {token.text}")
    return found


@pytest.mark.parametrize(("text", "wanted"), [
    ("", []), (" \t\n\r\f", []), ("a<=5", ["NAME a", "AT_MOST <=", "INTEGER 5"]),
    ("a<>b", ["NAME a", "UNEQUAL <>", "NAME b"]), ("a< >b", ["NAME a", "LESS <", "GREATER >", "NAME b"]),
    ("not Not notx", ["NOT not", "NOT Not", "NAME notx"]), ("$a_1", ["NAME $a_1"]), ("a.5", ["NAME a", "FLOAT .5"]),
    ("5.5.5", ["FLOAT 5.5", "FLOAT .5"]), ("5.", ["FLOAT 5."]), ("1e5", ["FLOAT 1e5"]), ("1e", ["INTEGER 1", "NAME e"]),
    ("1e+5", ["FLOAT 1e+5"]), ("007", ["INTEGER 0", "INTEGER 0", "INTEGER 7"]), ("007.", ["FLOAT 007."]),
    ("5L", ["INTEGER 5L"]), ("0L", ["INTEGER 0", "NAME L"]), ("12ab", ["INTEGER 12", "NAME ab"]), ("e5", ["NAME e5"]),
    ("'it''s' 'x'", ["TEXT 'it''s'", "TEXT 'x'"]), ("'a\nb'", ["TEXT 'a\nb'"]), ("''", ["TEXT ''"]),
    ("a--b\nc", ["NAME a", "NAME c"]), ("a--b\r\nc", ["NAME a", "NAME c"]), ("a--b", ["NAME a", "MINUS -", "MINUS -",
    "NAME b"]),
    ("a/*b*/c/**/d/***/", ["NAME a", "NAME c", "NAME d"]), ("/*a\n*/b", ["NAME b"]), ("-- a\n-- b",
    ["MINUS -"] * 2 + ["NAME b"]),
    ("(,)+-=", ["OPEN (", "COMMA ,", "CLOSE )", "PLUS +", "MINUS -", "EQUAL ="]),
])
def test_words(text: str, wanted: list[str]) -> None:
    assert words(text) == wanted


@pytest.mark.parametrize(("text", "at"), [
    ("'a", 0), ("'a''b", 3), ("/*/", 0), ("a /* b", 2), (";", 0), ("é", 0), ("a\v", 1), ("a .", 2), ("a\xa0b", 1),
    ("٥", 0)])
def test_what_is_no_word_is_told_with_its_place(text: str, at: int) -> None:
    with pytest.raises(FilterIllegal) as refused:
        words(text)
    assert refused.value.position == at


def test_what_nobody_asks_for_is_not_looked_at() -> None:
    tokens = Tokens("a b ;")
    tokens.take()
    assert tokens.token.text == "b"
