"""Numbers as Java reads and orders them: ``Integer``, ``Long`` and ``Double`` made of a text. Raises ``ValueError``."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Final

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
_TRIMMED: Final = "".join(map(chr, range(33)))
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?P<odd>NaN|Infinity)|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)")
_QUICK_DIGITS: Final = 9
_DIGITS_MAX: Final = 19
_LONG_LENGTH: Final = 64
"""Characters of a text that is read once, though an expression may compare it thousands of times."""
_REMEMBERED: Final = 64


def _whole(most: int, text: str) -> int:
    if len(text) <= _QUICK_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return (_parse if len(text) < _LONG_LENGTH else _parse_long_text)(text, most)


parse_int: Final[Callable[[str], int]] = partial(_whole, INT_MAX)
"""Reads a number of 32 bits, as a property has it."""
parse_long: Final[Callable[[str], int]] = partial(_whole, LONG_MAX)
"""Reads a number of 64 bits, as a property has it."""


def _parse(text: str, most: int) -> int:
    if not text.isascii():
        text = "".join(map(_digit, text))
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("no whole number")
    negative, digits = text[0] == "-", text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _DIGITS_MAX or int(digits) > most + negative:
        raise ValueError("out of range")
    return -int(digits) if negative else int(digits)


_parse_long_text = lru_cache(_REMEMBERED)(_parse)


def _digit(char: str) -> str:
    """Return the digit; those of other scripts count too, if they have 16 bits."""
    return char if char.isascii() or char > "\uffff" else str(unicodedata.decimal(char))


def parse_double(text: str) -> float:
    """Read a number with a point, as a property has it."""
    return (_double if len(text) < _LONG_LENGTH else _double_of_long_text)(text)


def _double(text: str) -> float:
    found = _DOUBLE.fullmatch(text.strip(_TRIMMED))
    if found is None:
        raise ValueError("no number")
    value = math.nan if found["odd"] == "NaN" else math.inf
    if found["decimal"] is not None:
        value = float(found["decimal"])
    elif found["hex"] is not None:
        with suppress(OverflowError):
            value = float.fromhex(found["hex"])
    return -value if found[0][0] == "-" else value


_double_of_long_text = lru_cache(_REMEMBERED)(_double)


def order(left: float, right: float) -> int:
    """Compare as Java does; returns below 0, 0, or above 0. -0.0 is below 0.0; NaN equals itself and is above all."""
    return (left > right) - (left < right) or _rank(left) - _rank(right)


def _rank(value: float) -> int:
    return math.isnan(value) - (value == 0 and math.copysign(1, value) < 0)
