"""Parses the words of an expression to nodes: how tightly words bind, and which may stand together.

    or    := and (OR and)*                and := equal (AND equal)*
    equal := compared ( = compared | <> compared | IS [NOT] NULL )*
    compared := unary ( > >= < <= unary | [NOT] CONTAINS|STARTSWITH|ENDSWITH text | [NOT] BETWEEN unary AND unary
                      | [NOT] IN ( text {, text} ) )*
    unary := + unary | - unary | NOT unary | literal | property | ( or )

As in Java, only one word after a whole expression is looked at. NOT binds more tightly than ``=``.
Source: ``SelectorParser.jj``, ``ComparisonExpression`` and ``ConstantExpression`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from broker.filters import nodes
from broker.filters.errors import FilterIllegal
from broker.filters.nodes import NUMBERS, Node, Type
from broker.filters.numbers import INT_MAX, LONG_MAX
from broker.filters.tokens import Kind, Token, Tokens

DEPTH_MAX: Final = 100
"""Ours: most brackets, signs and NOT within each other, and most nodes. In Java the stack is the limit."""
_ORDERS: Final[dict[Kind, Callable[[Any, Any], bool]]] = {
    Kind.GREATER: operator.gt, Kind.AT_LEAST: operator.ge, Kind.LESS: operator.lt, Kind.AT_MOST: operator.le}
_SEARCHES: Final[dict[Kind, Callable[[str, str], bool]]] = {
    Kind.CONTAINS: operator.contains, Kind.STARTSWITH: str.startswith, Kind.ENDSWITH: str.endswith}
_ALIKE: Final = (Kind.EQUAL, Kind.UNEQUAL)
_LONG_DIGITS: Final = 19


class Parser:
    """Parses one expression, once. ``names``: properties, in the order of their places."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._depth = 0
        self.names: dict[str, int] = {}

    def parse(self) -> Node:
        """The node of the whole expression. Raises ``FilterIllegal``."""
        at = self._tokens.token.at
        return self._truth(self._or(), at)

    def _or(self) -> Node:
        at = self._tokens.token.at
        node = self._and()
        if self._tokens.token.kind is not Kind.OR:
            return node
        parts = [self._truth(node, at)]
        while self._accept(Kind.OR):
            at = self._tokens.token.at
            parts.append(self._truth(self._and(), at))
        return self._checked(nodes.some(parts), at)

    def _and(self) -> Node:
        at = self._tokens.token.at
        node = self._equal()
        if self._tokens.token.kind is not Kind.AND:
            return node
        parts = [self._truth(node, at)]
        while self._accept(Kind.AND):
            at = self._tokens.token.at
            parts.append(self._truth(self._equal(), at))
        return self._checked(nodes.every(parts), at)

    def _equal(self) -> Node:
        left = self._compared()
        while True:
            token = self._tokens.token
            if token.kind in _ALIKE:
                self._tokens.take()
                right = self._compared()
                for side in (left, right):
                    if side.literal and side.value is None:
                        raise FilterIllegal(token.at, "NULL is compared by IS NULL and IS NOT NULL")
                if left.literal and right.literal and left.is_truth and not right.is_truth:
                    raise FilterIllegal(token.at, f"{left.type.value} cannot be compared with {right.type.value}")
                left = nodes.equal(left, right)
                if token.kind is Kind.UNEQUAL:
                    left = nodes.inverse(left)
            elif token.kind is Kind.IS:
                self._tokens.take()
                negated = self._accept(Kind.NOT)
                self._expect(Kind.NULL)
                left = nodes.is_null(left, wanted=not negated)
            else:
                return left
            self._checked(left, token.at)

    def _compared(self) -> Node:
        left = self._unary()
        while True:
            token = self._tokens.token
            if (how := _ORDERS.get(token.kind)) is not None:
                self._tokens.take()
                right = self._unary()
                left = self._ordered(left, right, how, token)
            elif token.kind in (Kind.NOT, Kind.BETWEEN, Kind.IN, *_SEARCHES):
                negated = self._accept(Kind.NOT)
                left = self._special(left, wanted=not negated)
            else:
                return left
            self._checked(left, token.at)

    def _special(self, left: Node, *, wanted: bool) -> Node:
        token = self._tokens.take()
        if token.kind is Kind.BETWEEN:
            return self._between(left, token, wanted=wanted)
        if (how := _SEARCHES.get(token.kind)) is not None:
            return nodes.holds(left, self._text(), how, wanted=wanted)
        if token.kind is not Kind.IN:
            raise FilterIllegal(token.at, "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH must follow NOT here")
        if left.place is None:
            raise FilterIllegal(token.at, "a property must stand before IN")
        self._expect(Kind.OPEN)
        texts = [self._text()]
        while self._accept(Kind.COMMA):
            texts.append(self._text())
        self._expect(Kind.CLOSE)
        return nodes.among(left, frozenset(texts), wanted=wanted)

    def _between(self, left: Node, token: Token, *, wanted: bool) -> Node:
        low = self._unary()
        self._expect(Kind.AND)
        high = self._unary()
        if wanted:
            sides = [self._ordered(left, low, operator.ge, token), self._ordered(left, high, operator.le, token)]
        else:
            sides = [self._ordered(left, low, operator.lt, token), self._ordered(left, high, operator.gt, token)]
        if wanted and low.literal and high.literal and not nodes.before(low, high):
            raise FilterIllegal(token.at, "the first number must not be above the second")
        return nodes.every(sides) if wanted else nodes.some(sides)

    def _ordered(self, left: Node, right: Node, how: Callable[[Any, Any], bool], token: Token) -> Node:
        for side in (left, right):
            if side.is_truth or (side.literal and side.type not in NUMBERS):
                raise FilterIllegal(token.at, f"{side.type.value} is not less or more than anything")
        return nodes.compared(left, right, how)

    def _unary(self) -> Node:
        token = self._tokens.take()
        kind = token.kind
        if kind is Kind.NAME:
            return nodes.named(self.names.setdefault(token.text, len(self.names)))
        if kind is Kind.INTEGER:
            return _integer(token)
        if kind is Kind.TEXT:
            return nodes.literal(Type.TEXT, token.text[1:-1].replace("''", "'"))
        if kind is Kind.FLOAT:
            return _float(token)
        if kind in (Kind.TRUE, Kind.FALSE):
            return nodes.literal(Type.TRUTH, kind is Kind.TRUE)
        if kind is Kind.NULL:
            return nodes.literal(Type.TRUTH, None)
        if kind not in (Kind.OPEN, Kind.NOT, Kind.MINUS, Kind.PLUS):
            raise FilterIllegal(
                token.at, "a value is missing" if kind is Kind.END else f"a value is missing, not {token.text[:40]}")
        if self._depth >= DEPTH_MAX:
            raise FilterIllegal(token.at, f"more than {DEPTH_MAX} brackets and signs within each other")
        self._depth += 1
        if kind is Kind.OPEN:
            node = self._or()
            self._expect(Kind.CLOSE)
        else:
            at = self._tokens.token.at
            node = self._unary()
            if kind is Kind.NOT:
                node = nodes.inverse(self._truth(node, at))
            elif kind is Kind.MINUS:
                node = nodes.negative(node)
        self._depth -= 1
        return node

    def _text(self) -> str:
        return self._expect(Kind.TEXT).text[1:-1].replace("''", "'")

    def _accept(self, kind: Kind) -> bool:
        if self._tokens.token.kind is not kind:
            return False
        self._tokens.take()
        return True

    def _expect(self, kind: Kind) -> Token:
        token = self._tokens.token
        if token.kind is not kind:
            raise FilterIllegal(token.at, f"{kind.name} must stand here")
        return self._tokens.take()

    def _truth(self, node: Node, at: int) -> Node:
        if node.is_truth:
            return node
        if node.place is None:
            raise FilterIllegal(at, f"{node.type.value} is neither true nor false")
        return nodes.cast(node)

    def _checked(self, node: Node, at: int) -> Node:
        if node.depth > DEPTH_MAX:
            raise FilterIllegal(at, f"more than {DEPTH_MAX} comparisons within each other")
        return node


def _integer(token: Token) -> Node:
    digits = token.text.rstrip("lL")
    if len(digits) > _LONG_DIGITS or int(digits) > LONG_MAX:
        raise FilterIllegal(token.at, "a number of more than 64 bits")
    value = int(digits)
    return nodes.literal(Type.INT if value <= INT_MAX else Type.LONG, value)


def _float(token: Token) -> Node:
    value = float(token.text)
    if not 0 < value < math.inf:
        raise FilterIllegal(token.at, "a number with a point must be above 0 and below 1.8E308, as in Java")
    return nodes.literal(Type.DOUBLE, value)
