"""Strings hashed as Java hashes them: codes of tags and keys on disk, and queues that clients choose by a key.

It knows text, and nobody who asks.
"""

from __future__ import annotations

from operator import mul
from typing import Final

_WEIGHTS: Final = tuple(pow(31, power, 1 << 32) for power in range(255, -1, -1))


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, signed 32 bits."""
    units: bytes | list[int]
    if text.isascii():
        units = text.encode()
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        units = [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]
    code = 0
    for at in range(0, len(units), 256):
        part = units[at : at + 256]
        code = code * pow(31, len(part), 1 << 32) + sum(map(mul, part, _WEIGHTS[256 - len(part) :])) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code
