"""Which messages of a topic a consumer wants: by tags, ``new || old``, all, ``*``, or by properties, ``Sql("a > 3")``.

The broker sorts out by the hash of a tag; two tags may share one, so the client looks at the tag itself. Source:
``FilterAPI`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final

from remoting.bodies.consumers import ALL, SubscriptionData
from remoting.hashing import java_hash

SQL92: Final = "SQL92"


class Sql(str):
    """An expression of SQL92 over properties, in the place of one of tags. Brokers filter by it, and by nothing else.
    """

    __slots__ = ()


def subscribe(topic: str, expression: str = ALL, version: int = 0) -> SubscriptionData:
    """``version`` must rise when the expression changes. Raises ``ValueError`` for an expression that names no tag."""
    if isinstance(expression, Sql):
        return SubscriptionData(topic, str(expression), sub_version=version, expression_type=SQL92)
    if expression.strip() in ("", ALL):
        return SubscriptionData(topic, ALL, sub_version=version)
    tags = frozenset(filter(None, map(str.strip, expression.split("||"))))
    if not tags:
        raise ValueError(f"subscription of {topic!r}: {expression!r} names no tag; write 'a || b', or '*' for all")
    return SubscriptionData(topic, expression, tags, frozenset(map(java_hash, tags)), version)


def wants(subscription: SubscriptionData, tag: str | None) -> bool:
    """The exact question, of the tag's text."""
    return not subscription.tags_set or tag in subscription.tags_set
