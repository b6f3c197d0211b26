"""Expressions, ready for a message's properties as they stand in the log.

Only the properties that an expression names are read. Those that were compiled last are remembered, good or bad.
Source: ``SelectorParser.parse`` and ``ExpressionMessageFilter`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

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
_LONG_REMEMBERED: Final = 8
"""Longer ones that are remembered: a POP brings its expression each time, and the longest takes 0.1 s to compile."""
_CHEAP_LENGTH: Final = 256
_CHEAP_WORK: Final = 50
"""Characters, and steps of nodes, that are evaluated at the cost of 1: about what a message takes that a short
expression looks at."""
_BYTES: Final = 500
_CHARACTER_BYTES: Final = 100
"""About what a compiled expression takes, and what each of its characters does: measured."""
_SEARCHED_MAX: Final = 4
"""Up to so many properties are searched for one by one; for more, all are read."""
_VERDICTS_MAX: Final = 512
_VERDICT_BYTES_MAX: Final = 64
"""Verdicts that each of the last short expressions remembers, and most bytes of the values that they are for."""


class Matches(Protocol):
    """Tells whether a message is wanted whose properties stand in these bytes, from ``begin`` to ``end``."""

    def __call__(self, raw: bytes, begin: int = 0, end: int | None = None, /) -> bool: ...


class Expression:
    """A compiled expression. ``names``: properties that it names; ``cost``: of its evaluation, 1 for a short one;
    ``memory_bytes``: about what it takes."""

    __slots__ = ("__weakref__", "_last", "_run", "cost", "depth", "memory_bytes", "names", "text")

    def __init__(self, text: str) -> None:
        """Compile ``text``. Raises ``FilterIllegal`` as ``compiled`` does, except for length and kind."""
        parser = Parser(text)
        node = parser.parse()
        self.text, self.names, self.depth = text, tuple(parser.names), node.depth
        self.cost = 1 + max(len(text) // _CHEAP_LENGTH, node.work // _CHEAP_WORK)
        self.memory_bytes = _BYTES + _CHARACTER_BYTES * len(text)
        self._run = node.run
        self._last: tuple[Sequence[str | None] | None, bool] = None, False
        """Values that were looked at last, and the verdict: all who wait with this expression ask for one message."""

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return True, False, or None for unknown. Raises ``Unreadable``: a property's text is no such value."""
        value = self._run([properties.get(name) for name in self.names])
        assert value is None or isinstance(value, bool), "the grammar says so"
        return value

    @property
    def matches(self) -> Matches:
        """Tell whether a message with these properties is wanted: not if the value is unknown or unreadable. Who asks
        for many messages takes this once."""
        return _remembering(self) if len(self.text) < _CHEAP_LENGTH else _matcher(self)

    def wants(self, values: Sequence[str | None]) -> bool:
        """``matches`` for the values of ``names``."""
        known, verdict = self._last
        if self.cost > 1 and known == values:
            return verdict
        try:
            verdict = self._run(values) is True
        except Unreadable:
            verdict = False
        if self.cost > 1:
            self._last = values, verdict
        return verdict


def _matcher(expression: Expression) -> Matches:
    """Make ``matches`` of it, which remembers verdicts: many messages share the values of what is named."""
    names, wants, known = expression.names, expression.wants, dict[Any, bool]()
    if len(names) > _SEARCHED_MAX:
        def many(raw: bytes, begin: int = 0, end: int | None = None) -> bool:
            values = decode_properties(raw[begin:end])
            return wants([values.get(name) for name in names])

        return many

    def decide(key: Any, values: Sequence[bytes | None]) -> bool:
        verdict = wants([None if value is None else value.decode(errors="replace") for value in values])
        if sum(map(len, filter(None, values))) <= _VERDICT_BYTES_MAX:
            if len(known) == _VERDICTS_MAX:
                known.clear()
            known[key] = verdict
        return verdict

    markers = [f"{name}\x01".encode() for name in names]
    if len(markers) == 1:
        marker, length = markers[0], len(markers[0])

        def one(raw: bytes, begin: int = 0, end: int | None = None) -> bool:
            at = raw.rfind(marker, begin, end)  # as ``_last_value``: one call less for each message
            if at < 0:
                value = None
            else:
                stop = raw.find(b"\x02", behind := at + length, end)
                value = raw[behind:end] if stop < 0 else raw[behind:stop]
                if not value or (at > begin and raw[at - 1] != 2):
                    value = _last_value(raw, marker, begin, end)
            verdict = known.get(value)
            return decide(value, (value,)) if verdict is None else verdict

        return one

    def some(raw: bytes, begin: int = 0, end: int | None = None) -> bool:
        values = tuple([_last_value(raw, marker, begin, end) for marker in markers])
        verdict = known.get(values)
        return decide(values, values) if verdict is None else verdict

    return some


_remembering = lru_cache(_REMEMBERED)(_matcher)


def _last_value(raw: bytes, marker: bytes, begin: int, end: int | None) -> bytes | None:
    """Return the property's value as ``decode_properties`` has it: the last one that is not empty."""
    at = raw.rfind(marker, begin, end)
    while at >= 0:
        if at == begin or raw[at - 1] == 2:  # else it is the end of a longer name, or within a value
            stop = raw.find(b"\x02", behind := at + len(marker), end)
            if value := raw[behind:end] if stop < 0 else raw[behind:stop]:
                return value
        at = raw.rfind(marker, begin, at + len(marker) - 1)
    return None


def compiled(text: str | None, kind: str | None = SQL92) -> Expression:
    """The expression of this text and kind. Raises ``FilterIllegal``."""
    if kind != SQL92:
        raise FilterIllegal(0, f"expressions of kind {str(kind)[:40]} are not known, {SQL92} is")
    if text is None:
        raise FilterIllegal(0, "there is no expression")
    if len(text) > LENGTH_MAX:
        raise FilterIllegal(LENGTH_MAX, f"the expression has {len(text)} characters; {LENGTH_MAX} may be")
    found = (_compiled if len(text) <= _REMEMBERED_LENGTH_MAX else _compiled_long)(text)
    if isinstance(found, FilterIllegal):
        raise FilterIllegal(found.position, found.words)
    return found


def _attempt(text: str) -> Expression | FilterIllegal:
    found = _in_use.get(text)
    if found is None:
        try:
            found = _in_use[text] = Expression(text)
        except FilterIllegal as error:
            return error.with_traceback(None)
    return found


_compiled = lru_cache(_REMEMBERED)(_attempt)
_compiled_long = lru_cache(_LONG_REMEMBERED)(_attempt)
_in_use: Final[WeakValueDictionary[str, Expression]] = WeakValueDictionary()
"""Expressions that somebody keeps, by their text: those who want the same share one."""

__all__ = ["INVALID", "LENGTH_MAX", "SQL92", "Expression", "FilterIllegal", "Unreadable", "compiled"]
