"""Typed bodies: attrs classes that become JSON and are made from it, as ``remoting.header`` does for ext fields.

    @body
    class SyncStateSet(Body):
        sync_state_set: frozenset[Int64]
        sync_state_set_epoch: Int32 = 0

An annotation is ``str``, ``Int32``, ``Int64``, ``bool``, ``float``, another body, ``list[T]``, ``frozenset[T]``,
``dict[str, T]``, ``dict[Int64, T]``, ``dict[B, T]`` with a body for a key, ``Any`` (plain JSON, passed on as it is) or
one of these ``| None``.
Reading takes what Java peers take: digits in quotes, ``1.0`` for 1, a null for a field that has a default, fields that
nobody knows. A field without a default is required. All else is a ``BodyError`` that names the place.
Writing leaves out ``None``, sorts keys and sets, and puts numeric keys in quotes, which every known client reads.

Source: ``RemotingSerializable`` of Apache RocketMQ.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import attrs

from remoting.errors import BodyError
from remoting.fastjson import BODY_BYTES_MAX, Pairs, dumps, loads
from remoting.fields import decimal, described, int_range, shown, wire_name

_Convert = Callable[[Any], Any]


class _Misfit(Exception):
    """A value that its field cannot hold. ``path`` grows from the inside out."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason, self.path = reason, path


@attrs.frozen
class Body:
    """Base of every ``@body`` class."""

    _fields: ClassVar[tuple[tuple[str, str, _Convert, _Convert | None, bool], ...]] = ()
    """Attribute, wire name, reader, writer where the value is not written as it is, whether required."""
    json_bytes_max: ClassVar[int] = BODY_BYTES_MAX
    """Less for what is small by its nature: values take twenty times the memory of their JSON."""

    def to_plain(self) -> dict[str, Any]:
        """Return the content of ``to_json`` as dicts, lists, strings, numbers and booleans."""
        plain = {}
        for attribute, wire, _, write, _ in self._fields:
            value = getattr(self, attribute)
            if value is not None:
                plain[wire] = value if write is None else write(value)
        return plain

    def to_json(self, *, ascii_only: bool = False) -> bytes:
        """Strict JSON; ``ascii_only`` escapes all other characters."""
        return dumps(self.to_plain(), ascii_only=ascii_only)

    @classmethod
    def from_plain(cls, value: Any) -> Self:
        """Raises ``BodyError`` naming the place and what is wrong there."""
        try:
            return cls._read(value)
        except _Misfit as misfit:
            raise BodyError(f"{cls.__name__}{misfit.path} {misfit.reason}") from None

    @classmethod
    def from_json(cls, data: bytes, bytes_max: int | None = None) -> Self:
        """As ``from_plain``, of strict JSON or what fastjson makes of it."""
        return cls.from_plain(loads(data, cls.json_bytes_max if bytes_max is None else bytes_max))

    @classmethod
    def _read(cls, value: Any) -> Self:
        if type(value) is not dict:
            raise _Misfit(f"is {shown(value)}; an object is needed")
        values = {}
        for attribute, wire, read, _, required in cls._fields:
            found = value.get(wire)
            if found is not None:
                try:
                    values[attribute] = read(found)
                except _Misfit as misfit:
                    misfit.path = f".{wire}{misfit.path}"
                    raise
            elif required:
                raise _Misfit("is missing", f".{wire}")
        return cls(**values)


_B = TypeVar("_B", bound=type[Body])


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field, wire_name))
def body(cls: _B) -> _B:
    """Class decorator: a frozen attrs class with ``to_json`` and ``from_json``."""
    made = attrs.frozen(cls)
    made._fields = tuple(
        (field.attribute, field.wire, _reader(field.hint), _writer(field.hint), field.required)
        for field in described(made)
    )
    return made


# --- one type each -------------------------------------------------------------------------------------------


def _reader(hint: Any) -> _Convert:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if _is_body(hint):
        reads: _Convert = hint._read
        return reads
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, frozenset):
        return _list_reader(_reader(arguments[0]), origin)
    if origin is dict:
        read = _pairs_reader if _is_body(arguments[0]) else _dict_reader
        return read(_reader(arguments[0]), _reader(arguments[1]))
    return _int_reader(*int_range(hint))


def _writer(hint: Any) -> _Convert | None:
    """None where the value is written as it is."""
    if _is_body(hint):
        writes: _Convert = hint.to_plain
        return writes
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, frozenset):
        ordered: _Convert = sorted if origin is frozenset else list
        each = _writer(arguments[0])
        return ordered if each is None else lambda values: [each(value) for value in ordered(values)]
    if origin is dict:
        write = _writer(arguments[1]) or _as_is
        if _is_body(arguments[0]):
            return lambda values: Pairs([(key.to_plain(), write(value)) for key, value in values.items()])
        if arguments[0] is not str:
            return lambda values: {str(key): write(value) for key, value in values.items()}
        if write is not _as_is:
            return lambda values: {key: write(value) for key, value in values.items()}
    return None


def _is_body(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Body)


def _as_is(value: Any) -> Any:
    return value


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int or type(value) is float:
        return str(value)
    raise _Misfit(f"is {shown(value)}; a string is needed")


def _boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value in (0, 1):
        return bool(value)
    raise _Misfit(f"is {shown(value)}; true or false is needed")


def _float(value: Any) -> float:
    try:
        if type(value) is not bool and isinstance(value, int | float | str):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise _Misfit(f"is {shown(value)}; a number is needed")


def _int_reader(least: int, most: int) -> _Convert:
    def read(value: Any) -> int:
        number = value
        if type(value) is str:
            number = decimal(value)
        elif type(value) is float and value.is_integer():
            number = int(value)
        if type(number) is not int:
            raise _Misfit(f"is {shown(value)}; a whole number is needed")
        if not least <= number <= most:
            raise _Misfit(f"is {number}; it must be within {least}..{most}")
        return number

    return read


def _list_reader(read: _Convert, make: _Convert) -> _Convert:
    def read_all(value: Any) -> Any:
        if type(value) is not list:
            raise _Misfit(f"is {shown(value)}; an array is needed")
        values = []
        for at, each in enumerate(value):
            try:
                values.append(read(each))
            except _Misfit as misfit:
                misfit.path = f"[{at}]{misfit.path}"
                raise
        return values if make is list else make(values)

    return read_all


def _dict_reader(read_key: _Convert, read: _Convert) -> _Convert:
    def read_all(value: Any) -> Any:
        if type(value) is not dict:
            raise _Misfit(f"is {shown(value)}; an object is needed")
        values = {}
        for key, each in value.items():
            if each is None:
                continue
            try:
                values[read_key(key)] = read(each)
            except _Misfit as misfit:
                misfit.path = f"[{shown(key)}]{misfit.path}"
                raise
        return values

    return read_all


def _pairs_reader(read_key: _Convert, read: _Convert) -> _Convert:
    """Objects as keys; fastjson 1 also emits their JSON in a string."""

    def read_all(value: Any) -> Any:
        if isinstance(value, Pairs):
            items = value.items
        elif type(value) is dict:
            items = list(value.items())
        else:
            raise _Misfit(f"is {shown(value)}; an object is needed")
        values = {}
        for key, each in items:
            if each is None:
                continue
            try:
                values[read_key(loads(key.encode()) if type(key) is str else key)] = read(each)
            except BodyError as error:
                raise _Misfit(str(error), f"[{shown(key)}]") from None
            except _Misfit as misfit:
                misfit.path = f"[{shown(key)}]{misfit.path}"
                raise
        return values

    return read_all


_PLAIN: dict[Any, _Convert] = {str: _string, bool: _boolean, float: _float, Any: _as_is}
