"""Computes the bits of Java's Bloom filter for a group and its topic: a Java broker drops a file with other bits.

This broker does not filter by them. Source: ``BloomFilter`` of RocketMQ 5.5.0, ``murmur3_128`` of Guava.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

BITS: Final = 112
"""Bits of the filter for ``maxErrorRateOfBloomFilter`` 20 and ``expectConsumerNumUseFilter`` 32, the defaults."""
_HASHES: Final = 3
_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_PAIR: Final = Struct("<QQ")


def positions(group: str, topic: str) -> list[int]:
    """Return a position for each hash; two may be the same."""
    found = murmur3(f"{group}#{topic}".encode())
    low, high = _signed(found), _signed(found >> 32)
    bits = []
    for number in range(1, _HASHES + 1):
        combined = _signed(low + number * high)
        bits.append((~combined if combined < 0 else combined) % BITS)
    return bits


def _signed(value: int) -> int:
    """The lower 32 bits as a Java int."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def murmur3(data: bytes) -> int:
    """The first 64 of the 128 bits, with seed 0."""
    one = other = 0
    whole = len(data) - len(data) % 16
    for low, high in _PAIR.iter_unpack(data[:whole]):
        one = ((_turned(one ^ _mixed_low(low), 27) + other) * 5 + 0x52DCE729) & _MASK
        other = ((_turned(other ^ _mixed_high(high), 31) + one) * 5 + 0x38495AB5) & _MASK
    low, high = _PAIR.unpack(data[whole:].ljust(16, b"\0"))
    one ^= _mixed_low(low) ^ len(data)
    other ^= _mixed_high(high) ^ len(data)
    one = (one + other) & _MASK
    other = (other + one) & _MASK
    return (_spread(one) + _spread(other)) & _MASK


def _mixed_low(value: int) -> int:
    return _turned(value * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_high(value: int) -> int:
    return _turned(value * _C2 & _MASK, 33) * _C1 & _MASK


def _turned(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _spread(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
