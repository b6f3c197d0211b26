"""Reads the words of an expression one at a time, so errors after the last word that is asked for are not found.

The longest word wins. Source: ``SelectorParser.jj`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from broker.filters.errors import FilterIllegal

Kind = enum.Enum("Kind", (
    "END", "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH",
    "INTEGER", "FLOAT", "TEXT", "NAME", "EQUAL", "UNEQUAL", "GREATER", "AT_LEAST", "LESS", "AT_MOST",
    "OPEN", "CLOSE", "COMMA", "PLUS", "MINUS"))


class Token(NamedTuple):
    """A word: ``text`` as it is written; ``at``: where it begins."""

    kind: Kind
    text: str
    at: int


_KEYWORDS: Final = {kind.name: kind for kind in (
    Kind.NOT, Kind.AND, Kind.OR, Kind.BETWEEN, Kind.IN, Kind.TRUE, Kind.FALSE, Kind.NULL, Kind.IS, Kind.CONTAINS,
    Kind.STARTSWITH, Kind.ENDSWITH)}
_SIGNS: Final = {
    "=": Kind.EQUAL, "<>": Kind.UNEQUAL, ">": Kind.GREATER, ">=": Kind.AT_LEAST, "<": Kind.LESS, "<=": Kind.AT_MOST,
    "(": Kind.OPEN, ")": Kind.CLOSE, ",": Kind.COMMA, "+": Kind.PLUS, "-": Kind.MINUS}
_BLANK: Final = re.compile(r"(?:[ \t\n\r\f]+|/\*.*?\*/)+", re.DOTALL)
_LINE: Final = re.compile(r"--[^\n\r]*(?:\r\n|\n|\r)")
_NUMBER: Final = re.compile(r"(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
                            r"|[0-9]+[eE][+-]?[0-9]+)|0|[1-9][0-9]*[lL]?")
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_TEXT: Final = re.compile(r"'[^']*(?:''[^']*)*'")
_SIGN: Final = re.compile(r"<>|>=|<=|[=<>(),+-]")


class Tokens:
    """The words of an expression: ``token`` is the present one, ``take`` goes on to the next."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._lines_end = max(text.rfind("\n"), text.rfind("\r"))
        """A comment that begins after this has no end, so it is none."""
        self.token = self._next()

    def take(self) -> Token:
        """Return the present word, and go on to the next. Raises ``FilterIllegal``: there is none."""
        taken = self.token
        self.token = self._next()
        return taken

    def _next(self) -> Token:
        at = self._at = self._behind_blanks(self._at)
        text = self._text
        if at == len(text):
            return Token(Kind.END, "", at)
        kind, end = self._match(at)
        self._at = end
        return Token(kind, text[at:end], at)

    def _behind_blanks(self, at: int) -> int:
        while True:
            found = _BLANK.match(self._text, at)
            if found is None and at < self._lines_end:
                found = _LINE.match(self._text, at)
            if found is None:
                return at
            at = found.end()

    def _match(self, at: int) -> tuple[Kind, int]:
        text = self._text
        if (name := _NAME.match(text, at)) is not None:
            return _KEYWORDS.get(name[0].upper(), Kind.NAME), name.end()
        if (number := _NUMBER.match(text, at)) is not None:
            return Kind.INTEGER if number["float"] is None else Kind.FLOAT, number.end()
        if (quoted := _TEXT.match(text, at)) is not None:
            return Kind.TEXT, quoted.end()
        if (sign := _SIGN.match(text, at)) is not None:
            return _SIGNS[sign[0]], sign.end()
        raise FilterIllegal(at, "a text without its closing quote" if text[at] == "'"
                            else f"nothing begins with {text[at]!r}")
