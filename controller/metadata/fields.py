"""Typed readers of what CBOR gives: each returns the value, or raises ``ValueError`` that says what is wrong.

CBOR can hold anything anywhere, so nothing read from it is trusted to have its type. Knows no commands and no groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

INT64: Final = 2**63
_SHOWN: Final = 40
"""Characters that are shown of what is wrong."""


def integer(value: Any, least: int = -INT64) -> int:
    """A whole number of 64 bits, not below ``least``. True and False are none."""
    if type(value) is not int or not least <= value < INT64:
        raise _wrong(value, f"a number from {least} on")
    return value


def text(value: Any) -> str:
    if type(value) is not str:
        raise _wrong(value, "text")
    return value


def flag(value: Any) -> bool:
    if type(value) is not bool:
        raise _wrong(value, "true or false")
    return value


def items(value: Any, count: int | None = None) -> list[Any]:
    """A list, of ``count`` items if that is given."""
    if type(value) is not list or (count is not None and len(value) != count):
        raise _wrong(value, "a list" if count is None else f"a list of {count}")
    return value


def optional(value: Any, read: Callable[[Any], T]) -> T | None:
    return None if value is None else read(value)


def ids(value: Any) -> frozenset[int]:
    """A list of different numbers."""
    found = frozenset(map(integer, items(value)))
    if len(found) != len(value):
        raise ValueError(f"{str(value)[:_SHOWN]} names one id twice")
    return found


def _wrong(value: Any, due: str) -> ValueError:
    return ValueError(f"{str(value)[:_SHOWN]} where {due} is due")
