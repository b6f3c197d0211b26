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

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import attrs

from remoting.errors import HeaderError
from remoting.fields import Int32, Int64, decimal, described, int_range, shown, wire_name

__all__ = ["Header", "Int32", "Int64", "header", "wire_name"]

_Read = Callable[[str], Any]


@attrs.frozen
class Header:
    """Base of every ``@header`` class."""

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
                values[attribute] = text if read is str else read(text)
            except ValueError as error:
                raise HeaderError(cls.__name__, wire, f"= {shown(text)}: {error}") from None
        return cls(**values)


_H = TypeVar("_H", bound=type[Header])


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field, wire_name))
def header(cls: _H) -> _H:
    """Class decorator: a frozen attrs class with ``to_ext`` and ``from_ext``."""
    made = attrs.frozen(cls)
    made._fields = tuple(
        (field.attribute, field.wire, _reader(field.hint), field.required) for field in described(made)
    )
    return made


def _reader(hint: Any) -> _Read:
    if hint is str:
        return str
    if hint is bool:
        return lambda text: text.lower() == "true"
    least, most = int_range(hint)
    digits = len(str(most))

    def read(text: str) -> int:
        if len(text) < digits and text.isdecimal():
            return int(text)  # so short a number is always within the range
        number = decimal(text)
        if number is None:
            raise ValueError("not a decimal number")
        if not least <= number <= most:
            raise ValueError(f"not within {least}..{most}")
        return number

    return read
