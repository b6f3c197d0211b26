"""Typed headers: attrs classes that become ext fields and are made from them.

A field's wire name is its own in camel case (``broker_name`` is ``brokerName``) unless ``wire_name`` gives another.
Its annotation is ``str``, ``Int32``, ``Int64``, ``bool`` or one of these ``| None``; ``None`` is left out on the wire.
A field without a default is required. Java drops what it cannot read and goes on with a null, which later surfaces as
an unrelated exception; here the reader gets a ``HeaderError`` that names the field, and a server answers with it.

    @header
    class GetReplicaInfoRequest(Header):
        broker_name: str

Source: ``CommandCustomHeader`` and ``RemotingCommand.decodeCommandCustomHeader`` of Apache RocketMQ.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar, dataclass_transform

import attrs

from remoting.errors import HeaderError


@attrs.frozen
class _Range:
    least: int
    most: int


Int32 = Annotated[int, _Range(-(2**31), 2**31 - 1)]
Int64 = Annotated[int, _Range(-(2**63), 2**63 - 1)]

_Read = Callable[[str], Any]


class Header:
    """What every ``@header`` class has."""

    __slots__ = ()
    _fields: ClassVar[tuple[tuple[str, str, _Read, bool], ...]] = ()
    """Attribute, wire name, reader, whether required."""

    def to_ext(self) -> dict[str, str]:
        """Ext fields, all strings; ``None`` is left out."""
        ext = {}
        for attribute, wire, _, _ in self._fields:
            value = getattr(self, attribute)
            if value is True:
                ext[wire] = "true"
            elif value is False:
                ext[wire] = "false"
            elif value is not None:
                ext[wire] = str(value)
        return ext

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """Raises ``HeaderError`` for a required field that is missing and for one that cannot be read."""
        values = {}
        for attribute, wire, read, required in cls._fields:
            text = ext.get(wire)
            if text is None:
                if required:
                    raise HeaderError(cls.__name__, wire, "is missing")
                continue
            try:
                values[attribute] = read(text)
            except ValueError as error:
                raise HeaderError(cls.__name__, wire, f"= {_shown(text)}: {error}") from None
        return cls(**values)


_H = TypeVar("_H", bound=type[Header])


def wire_name(name: str, *, default: Any = attrs.NOTHING) -> Any:
    """A field whose wire name is not its own in camel case."""
    return attrs.field(default=default, metadata={"wire": name})


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field, wire_name))
def header(cls: _H) -> _H:
    """Class decorator: a frozen attrs class with ``to_ext`` and ``from_ext``."""
    made = attrs.frozen(cls)
    hints = typing.get_type_hints(made, include_extras=True)
    made._fields = tuple(
        (field.name, field.metadata.get("wire") or _camel(field.name), _reader(hints[field.name]),
         field.default is attrs.NOTHING)
        for field in attrs.fields(made)  # type: ignore[arg-type]  # the decorator's own class
    )
    return made


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _reader(hint: Any) -> _Read:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    if hint is str:
        return str
    if hint is bool:
        return lambda text: text.lower() == "true"
    base, *extra = typing.get_args(hint) or (hint,)
    assert base is int and isinstance(extra[0], _Range), f"{hint} is none of str, Int32, Int64, bool"
    return _int_reader(extra[0])


def _int_reader(range_: _Range) -> _Read:
    def read(text: str) -> int:
        if len(text) > 20 or not text.isascii():
            raise ValueError("not a decimal number")
        try:
            number = int(text)
        except ValueError:
            raise ValueError("not a decimal number") from None
        if not range_.least <= number <= range_.most:
            raise ValueError(f"not within {range_.least}..{range_.most}")
        return number

    return read


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
