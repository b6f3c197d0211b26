"""Attributes of a topic: how a change is written, and which attributes there are.

A change is ``+key=value`` to set and ``-key`` to remove, with commas between. Pure text.
Source: ``AttributeParser``, ``AttributeUtil`` and ``TopicAttributes`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from remoting.fields import decimal, shown


class AttributesIllegal(ValueError):
    """A change of attributes cannot be made. Says which key, and why."""


@attrs.frozen
class Attribute:
    """One attribute. ``fault`` returns what is wrong with a value, or None."""

    fault: Callable[[str], str | None]
    changeable: bool = True
    """True: it may change after the topic was made."""


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    return lambda value: None if value in allowed else f"is {shown(value)}; it must be one of {', '.join(allowed)}"


def _minutes(value: str) -> str | None:
    number = decimal(value)
    if number is not None and -1 <= number < 1 << 63:
        return None
    return f"is {shown(value)}; a whole number is needed, -1 or more"


def _unsupported(value: str) -> str | None:
    return "is not supported by this broker"


MIXED: Final = "MIXED"
MESSAGE_TYPE: Final = "message.type"
KNOWN: Final[Mapping[str, Attribute]] = {
    "queue.type": Attribute(_one_of("SimpleCQ"), changeable=False),  # batch queues have other entries on disk
    "cleanup.policy": Attribute(_one_of("DELETE"), changeable=False),  # nothing here compacts
    MESSAGE_TYPE: Attribute(_one_of(
        "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", MIXED, "PRIORITY", "LITE")),
    "reserve.time": Attribute(_unsupported),  # of tiered storage alone
    "lite.topic.expiration": Attribute(_minutes),
}


def parse(text: str | None) -> dict[str, str]:
    """Read the changes in ``text``, by key with its sign. Raises ``AttributesIllegal``."""
    changes: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if not (key.startswith("+") if equals else key.startswith("-")):
            raise AttributesIllegal(f"attribute {shown(part)}: +key=value sets it, -key removes it")
        if key in changes:
            raise AttributesIllegal(f"key duplication: {key}")
        changes[key] = value
    return changes


def changed(current: Mapping[str, str] | None, changes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes after ``changes``; ``current`` is None for a topic that is being made.

    Raises:
        AttributesIllegal: nothing is to be changed then.
    """
    result = dict(current or {})
    seen = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if sign not in ("+", "-") or not key or "+" in key or "-" in key:
            raise AttributesIllegal(f"attribute {shown(signed)}: +key=value sets it, -key removes it")
        if key in seen:
            raise AttributesIllegal(f"alter duplication key. key: {key}")
        seen.add(key)
        attribute = KNOWN.get(key)
        if current is None and sign == "-":
            raise AttributesIllegal(f"only add attribute is supported while creating topic. key: {key}")
        if sign == "-" and key not in result:
            raise AttributesIllegal(f"attempt to delete a nonexistent key: {key}")
        if attribute is None:
            raise AttributesIllegal(f"unsupported key: {key}; {', '.join(KNOWN)} are known")
        if current is not None and not attribute.changeable:
            raise AttributesIllegal(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            del result[key]
        elif (fault := attribute.fault(value)) is not None:
            raise AttributesIllegal(f"attribute {key} {fault}")
        else:
            result[key] = value
    return result
