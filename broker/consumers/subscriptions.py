"""A group's wish for a topic, ready for reading a queue: the codes of tags, a filter over properties, or everything.

Pure. Expressions over properties are known as such; ``broker.filters`` reads them.
Source: ``FilterAPI``, ``ExpressionType`` and ``ExpressionMessageFilter`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Final, Protocol

import attrs

from remoting.bodies.consumers import ALL, TAG, SubscriptionData
from remoting.hashing import java_hash
from remoting.subscription import subscribe

_REMEMBERED_MAX: Final = 256
"""Characters of an expression, and of its kind, that are not parsed at each pull."""


class SubscriptionIllegal(ValueError):
    """An expression that says nothing."""


class Filter(Protocol):
    """A filter over a message's properties, made of a group's expression."""

    @property
    def cost(self) -> int:
        """The cost of one evaluation: 1 for a short one."""
        ...

    @property
    def memory_bytes(self) -> int:
        """About what it takes in memory."""
        ...

    def matches(self, raw: bytes, begin: int = 0, end: int | None = None, /) -> bool:
        """Return whether a message is wanted whose properties, as they stand in the log, are ``raw[begin:end]``."""
        ...


@attrs.frozen
class Subscribed:
    """``codes``: of the tags that are wanted; None where all messages are. ``by_tag``: its kind is that of tags."""

    data: SubscriptionData
    codes: frozenset[int] | None
    by_tag: bool
    filter: Filter | None = None
    """Decides, too."""

    def wants(self, tags_code: int, properties: bytes) -> bool:
        """A message with this code in its queue and these properties."""
        return (self.codes is None or tags_code in self.codes) and (
            self.filter is None or self.filter.matches(properties))


def subscribed(data: SubscriptionData) -> Subscribed:
    """Read the subscription of a heartbeat. Codes are the client's, or made of its tags where it sent none."""
    by_tag = is_by_tag(data.expression_type)
    if not by_tag or data.class_filter_mode or data.sub_string in (None, "", ALL):
        return Subscribed(data, None, by_tag)
    codes = data.code_set or frozenset(map(java_hash, data.tags_set))
    if not codes:
        with contextlib.suppress(ValueError):  # nothing matches it
            codes = subscribe(data.topic, data.sub_string or ALL).code_set
    return Subscribed(data, codes, by_tag)


def parse(topic: str, expression: str | None, kind: str | None) -> Subscribed:
    """Read the subscription that a pull brings. Raises ``SubscriptionIllegal``."""
    if len(expression or "") + len(kind or "") > _REMEMBERED_MAX:
        return _parse(topic, expression, kind)
    return _parsed(topic, expression, kind)


def _parse(topic: str, expression: str | None, kind: str | None) -> Subscribed:
    if not is_by_tag(kind):
        if not expression:
            raise SubscriptionIllegal(f"an expression of kind {kind} is empty")
        return Subscribed(SubscriptionData(topic, expression, expression_type=kind), None, False)
    try:
        found = subscribe(topic, expression or ALL)
    except ValueError as error:
        raise SubscriptionIllegal(str(error)) from None
    return Subscribed(found, found.code_set or None, True)


_parsed = lru_cache(4_096)(_parse)


def is_by_tag(kind: str | None) -> bool:
    """Return whether an expression of this kind names tags; so does one of no kind."""
    return kind is None or kind in ("", TAG)


def no_property_filter(kind: str | None) -> str:
    """Return the refusal for a client that wants to filter by properties."""
    return f"The broker does not support consumer to filter message by {kind}"
