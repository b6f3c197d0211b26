"""Declares names and types of fields on the wire, for headers and bodies that are attrs classes.

A field's wire name is its own in camel case unless ``wire_name`` gives another. Knows annotations, no encoding.
"""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any

import attrs


@attrs.frozen
class _Range:
    least: int
    most: int


Int32 = Annotated[int, _Range(-(2**31), 2**31 - 1)]
Int64 = Annotated[int, _Range(-(2**63), 2**63 - 1)]


def wire_name(name: str, *, default: Any = attrs.NOTHING, factory: Any = None) -> Any:
    """A field whose wire name is not its own in camel case."""
    if factory is not None:
        return attrs.field(factory=factory, metadata={"wire": name})
    return attrs.field(default=default, metadata={"wire": name})


@attrs.frozen
class Described:
    """One field: its attribute, its wire name, its annotation without ``| None``, whether it has no default."""

    attribute: str
    wire: str
    hint: Any
    required: bool


def described(cls: type) -> list[Described]:
    """The fields of an attrs class, in their order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return [
        Described(field.name, field.metadata.get("wire") or _camel(field.name), _without_none(hints[field.name]),
                  field.default is attrs.NOTHING)
        for field in attrs.fields(cls)
    ]


def int_range(hint: Any) -> tuple[int, int]:
    """Bounds of ``Int32`` or ``Int64``; the assertion fails for what is neither."""
    base, *extra = typing.get_args(hint) or (hint,)
    assert base is int and extra and isinstance(extra[0], _Range), f"{hint} is no type that the wire has"
    return extra[0].least, extra[0].most


def decimal(text: str) -> int | None:
    """Return the number that ``Long.parseLong`` reads, of any range; None where it would fail."""
    if len(text) > 20:
        return None
    if text.isdecimal() or (text[:1] in ("-", "+") and text[1:].isdecimal()):
        return int(text)
    return None


def shown(value: object) -> str:
    """Return a peer's value for a message, cut where it is long."""
    text = repr(value) if not isinstance(value, dict | list) else type(value).__name__
    return text if len(text) <= 40 else text[:40] + "…"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    return hint
