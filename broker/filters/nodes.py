"""Compiles the words of an expression to functions of a message's properties, made once and called for each message.

Each node knows what its value will be, so how two are compared is settled when it is made. Values are True, False,
None where that is not known, text and numbers. ``Unreadable``: a property is not what it is compared with.
Source: ``ComparisonExpression``, ``UnaryExpression`` and ``LogicExpression`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from broker.filters.numbers import order, parse_double, parse_int, parse_long

Values = Sequence[str | None]
"""Values of the properties that an expression names, in that order; None where a message has none."""
Run = Callable[[Values], Any]
Unreadable = ValueError


class Type(enum.Enum):
    """Types of a value that is not None."""

    TEXT = "a text"
    INT = "a number of 32 bits"
    LONG = "a number of 64 bits"
    DOUBLE = "a number with a point"
    TRUTH = "true or false"
    NOTHING = "nothing"


NUMBERS: Final = (Type.INT, Type.LONG, Type.DOUBLE)
_PARSERS: Final[dict[Type, Callable[[str], Any]]] = {
    Type.INT: parse_int, Type.LONG: parse_long, Type.DOUBLE: parse_double,
    Type.TRUTH: lambda text: len(text) == 4 and text.lower() == "true"}
_PARSE_STEPS: Final = 10
"""Steps that it takes to read a number in a property, where to call a function is one: measured."""
_AS_IT_IS: Final[Callable[[Any], Any]] = lambda value: value  # noqa: E731 - it stands for a parser


@attrs.frozen
class Node:
    """A node. ``depth`` counts this one and those below; ``work``: steps of one evaluation, if nothing cuts it short;
    ``literal``: its ``value`` is written in the expression."""

    type: Type
    run: Run
    depth: int = 1
    work: int = 1
    literal: bool = False
    value: Any = None
    place: int | None = None
    """For a property: its place among the values."""
    is_truth: bool = False
    """Java's ``BooleanExpression``: it may stand beside AND and OR."""


def literal(type_: Type, value: Any) -> Node:
    return Node(type_, lambda values: value, literal=True, value=value, is_truth=type_ is Type.TRUTH)


def named(place: int) -> Node:
    """Make the node of the property at this place among the values."""
    return Node(Type.TEXT, operator.itemgetter(place), place=place)


def _truth(run: Run, *parts: Node, parsed: int = 0) -> Node:
    """Make a node above others that reads so many numbers in properties."""
    return Node(Type.TRUTH, run, 1 + max(part.depth for part in parts),
                1 + sum(part.work for part in parts) + _PARSE_STEPS * parsed, is_truth=True)


def cast(node: Node) -> Node:
    """Make a truth of a property that stands alone: a text is never true."""
    run = node.run
    return _truth(lambda values: None if run(values) is None else False, node)


def negative(node: Node) -> Node:
    """Make minus a node; unknown if it is no number."""
    run, number = node.run, node.type in NUMBERS

    def negate(values: Values) -> Any:
        value = run(values)
        return -value if number else None

    return Node(node.type if number else Type.NOTHING, negate, 1 + node.depth, 1 + node.work)


def inverse(node: Node) -> Node:
    """Make NOT of a node; unknown stays unknown."""
    run = node.run

    def invert(values: Values) -> bool | None:
        value = run(values)
        return None if value is None else not value

    return _truth(invert, node)


def every(nodes: Sequence[Node]) -> Node:
    """Make AND of nodes: those after a false one are not evaluated."""
    runs = tuple(node.run for node in nodes)

    def check(values: Values) -> bool | None:
        known: bool | None = True
        for run in runs:
            value = run(values)
            if value is None:
                known = None
            elif not value:
                return False
        return known

    return _truth(check, *nodes)


def some(nodes: Sequence[Node]) -> Node:
    """Make OR of nodes: those after a true one are not evaluated."""
    runs = tuple(node.run for node in nodes)

    def check(values: Values) -> bool | None:
        known: bool | None = False
        for run in runs:
            value = run(values)
            if value is None:
                known = None
            elif value:
                return True
        return known

    return _truth(check, *nodes)


def among(node: Node, texts: frozenset[str], *, wanted: bool) -> Node:
    """Make IN or NOT IN; ``node`` is a property."""
    run = node.run

    def check(values: Values) -> bool | None:
        value = run(values)
        return None if value is None else (value in texts) is wanted

    return _truth(check, node)


def holds(node: Node, search: str, how: Callable[[str, str], bool], *, wanted: bool) -> Node:
    """Make CONTAINS, STARTSWITH, ENDSWITH or their NOT: false without a text, or without a text to search for."""
    run = node.run
    if not search:
        return _truth(lambda values: False, node)

    def check(values: Values) -> bool:
        value = run(values)
        return type(value) is str and how(value, search) is wanted

    return _truth(check, node)


def is_null(node: Node, *, wanted: bool) -> Node:
    run = node.run
    return _truth(lambda values: (run(values) is None) is wanted, node)


def equal(left: Node, right: Node) -> Node:
    """Make the comparison for equality: a text is read as the other's type; a number is no truth."""
    left_run, right_run = left.run, right.run
    read_left, read_right = _readers(left.type, right.type)
    alike = left.type is right.type or Type.TEXT in (left.type, right.type) or (
        left.type in NUMBERS and right.type in NUMBERS)

    def check(values: Values) -> bool | None:
        one, other = left_run(values), right_run(values)
        if one is None or other is None:
            return None if other is not None else one is None
        return alike and bool(read_left(one) == read_right(other))

    types = (left.type, right.type)
    return _truth(check, left, right, parsed=Type.TEXT in types and (types[0] in NUMBERS or types[1] in NUMBERS))


def compared(left: Node, right: Node, how: Callable[[Any, Any], bool]) -> Node:
    """Make a comparison by order; ``how`` is one of < <= > >=. Two texts are both read as numbers with a point."""
    left_run, right_run = left.run, right.run
    if left.type is Type.TEXT is right.type:
        def check(values: Values) -> bool | None:
            if (one := left_run(values)) is None or (other := right_run(values)) is None:
                return None
            return how(order(parse_double(one), parse_double(other)), 0)
    else:
        read_left, read_right = _readers(left.type, right.type)

        def check(values: Values) -> bool | None:
            if (one := left_run(values)) is None or (other := right_run(values)) is None:
                return None
            one, other = read_left(one), read_right(other)
            if one != one or other != other:  # NaN is above all numbers
                return how(order(one, other), 0)
            return how(one, other)

    return _truth(check, left, right, parsed=(left.type, right.type).count(Type.TEXT))


def _readers(left: Type, right: Type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return functions that make the values of two types comparable."""
    if left is Type.TEXT:
        return _PARSERS.get(right, _AS_IT_IS), _AS_IT_IS
    if right is Type.TEXT:
        if left is Type.TRUTH:
            return _fail, _AS_IT_IS
        return _AS_IT_IS, _PARSERS.get(left, _AS_IT_IS)
    if Type.DOUBLE in (left, right):
        return float, float
    return _AS_IT_IS, _AS_IT_IS


def _fail(_: bool) -> bool:
    """Fail as Java does: it cannot compare a truth on the left with a text on the right."""
    raise Unreadable("a text that stands behind a truth")


def before(left: Node, right: Node) -> bool:
    """Return whether the number of one literal is at most that of another."""
    read_left, read_right = _readers(left.type, right.type)
    return bool(read_left(left.value) <= read_right(right.value))
