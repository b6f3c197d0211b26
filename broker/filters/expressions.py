"""Expressions, ready for a message's properties as they stand in the log.

Only the properties that an expression names are read. Those that were compiled last are remembered, good or bad.
Source: ``SelectorParser.parse`` and ``ExpressionMessageFilter`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from broker.filters.errors import INVALID, FilterIllegal
from broker.filters.grammar import Parser
from broker.filters.nodes import Unreadable
from remoting.record import decode_properties

SQL92: Final = "SQL92"
"""The only kind of expression over properties."""
LENGTH_MAX: Final = 32 << 10
"""Ours: characters of an expression."""
_REMEMBERED: Final = 100
_REMEMBERED_LENGTH_MAX: Final = 4 << 10
"""Longest illegal expression that is remembered."""
_CHEAP_LENGTH: Final = 256
"""Characters that are evaluated at the cost of 1."""
_SEARCHED_MAX: Final = 4
"""Up to so many properties are searched for one by one; for more, all are read."""


class Expression:
    """A compiled expression. ``names``: properties that it names; ``cost``: of its evaluation, 1 for a short one."""

    __slots__ = ("_markers", "_run", "cost", "depth", "names", "text")

    def __init__(self, text: str) -> None:
        """Compile ``text``. Raises ``FilterIllegal`` as ``compiled`` does, except for length and kind."""
        parser = Parser(text)
        node = parser.parse()
        self.text, self.names, self.depth = text, tuple(parser.names), node.depth
        self.cost = 1 + len(text) // _CHEAP_LENGTH
        self._run = node.run
        self._markers = tuple(f"{name}\x01".encode() for name in self.names)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return True, False, or None for unknown. Raises ``Unreadable``: a property's text is no such value."""
        value = self._run([properties.get(name) for name in self.names])
        assert value is None or isinstance(value, bool), "the grammar says so"
        return value

    def matches(self, properties: bytes) -> bool:
        """Return whether a message with these properties is wanted: not if the value is unknown or unreadable."""
        if len(self._markers) > _SEARCHED_MAX:
            values = decode_properties(properties)
            found = [values.get(name) for name in self.names]
        else:
            found = [_last_value(properties, marker) for marker in self._markers]
        try:
            return self._run(found) is True
        except Unreadable:
            return False


def _last_value(raw: bytes, marker: bytes) -> str | None:
    """Return the property's value as ``decode_properties`` has it: the last one that is not empty."""
    upto = len(raw)
    while (at := raw.rfind(marker, 0, upto)) >= 0:
        upto = at + len(marker) - 1
        if at > 0 and raw[at - 1] != 2:  # it is the end of a longer name, or within a value
            continue
        end = raw.find(b"\x02", upto + 1)
        if value := raw[upto + 1 :] if end < 0 else raw[upto + 1 : end]:
            return value.decode(errors="replace")
    return None


def compiled(text: str | None, kind: str | None = SQL92) -> Expression:
    """The expression of this text and kind. Raises ``FilterIllegal``."""
    if kind != SQL92:
        raise FilterIllegal(0, f"expressions of kind {str(kind)[:40]} are not known, {SQL92} is")
    if text is None:
        raise FilterIllegal(0, "there is no expression")
    if len(text) > LENGTH_MAX:
        raise FilterIllegal(LENGTH_MAX, f"the expression has {len(text)} characters; {LENGTH_MAX} may be")
    found = _compiled(text) if len(text) <= _REMEMBERED_LENGTH_MAX else _attempt(text)
    if isinstance(found, FilterIllegal):
        raise FilterIllegal(found.position, found.words)
    return found


def _attempt(text: str) -> Expression | FilterIllegal:
    try:
        return Expression(text)
    except FilterIllegal as error:
        return error.with_traceback(None)


_compiled = lru_cache(_REMEMBERED)(_attempt)

__all__ = ["INVALID", "LENGTH_MAX", "SQL92", "Expression", "FilterIllegal", "Unreadable", "compiled"]
