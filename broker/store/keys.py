"""What a message is found by, and the hash that the key index keeps of it.

``keys_of`` says it in words; ``KeyHashes`` comes to the same numbers without a string for each key.
Source: ``IndexService.buildIndex`` and ``IndexFile.indexKeyHashMethod`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from operator import mul
from typing import Final

from broker.store.consumequeue import java_hash
from remoting.record import KEYS, ROLLBACK, TAGS, UNIQ_KEY, Outline, value_behind

_MASK: Final = 0xFFFFFFFF
_BACK: Final = 12
"""A unique id begins with its producer and the hour; so many characters change with each message."""
_BACK_WEIGHTS: Final = tuple(pow(31, power, 1 << 32) for power in range(_BACK - 1, -1, -1))
_BACK_SHIFT: Final = pow(31, _BACK, 1 << 32)
_KNOWN_MAX: Final = 4_096


def key_hash(key: str) -> int:
    """Never negative."""
    return _positive(java_hash(key) & _MASK)


def keys_of(found: Outline) -> list[str]:
    """What a message is found by: its unique id, each of its keys, its tag. None for a rolled back one."""
    if found[4] & ROLLBACK == ROLLBACK:
        return []
    topic, properties = found[6].decode(errors="replace"), found[7]
    keys = []
    unique = value_behind(properties, UNIQ_KEY)
    if unique:
        keys.append(f"{topic}#{unique.decode(errors='replace')}")
    for key in (value_behind(properties, KEYS) or b"").split(b" "):
        if key:
            keys.append(f"{topic}#{key.decode(errors='replace')}")
    tags = value_behind(properties, TAGS)
    if tags:
        keys.append(f"{topic}#T#{tags.decode(errors='replace')}")
    return keys


class KeyHashes:
    """``key_hash`` of each of ``keys_of``. Remembers the fronts of keys."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], int] = {}
        self._tags: dict[tuple[bytes, bytes], int] = {}

    def of(self, found: Outline) -> list[int]:
        if found[4] & ROLLBACK == ROLLBACK:
            return []
        topic, properties = found[6], found[7]
        hashes = []
        unique = value_behind(properties, UNIQ_KEY)
        if unique:
            hashes.append(self._hash(topic, unique))
        keys = value_behind(properties, KEYS)
        if keys:
            hashes += [self._hash(topic, key) for key in keys.split(b" ") if key]
        tags = value_behind(properties, TAGS)
        if tags:
            code = self._tags.get((topic, tags))
            if code is None:
                if len(self._tags) >= _KNOWN_MAX:
                    self._tags.clear()
                code = self._tags[topic, tags] = self._hash(topic, b"T#" + tags)
            hashes.append(code)
        return hashes

    def _hash(self, topic: bytes, key: bytes) -> int:
        if not key.isascii():
            return key_hash(f"{topic.decode(errors='replace')}#{key.decode(errors='replace')}")
        front, back = key[:-_BACK], key[-_BACK:]
        code = self._known.get((topic, front))
        if code is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            code = self._known[topic, front] = java_hash(f"{topic.decode(errors='replace')}#{front.decode()}") & _MASK
        if len(back) == _BACK:
            return _positive(code * _BACK_SHIFT + sum(map(mul, back, _BACK_WEIGHTS)) & _MASK)
        for unit in back:
            code = code * 31 + unit
        return _positive(code & _MASK)


def _positive(code: int) -> int:
    """``Math.abs``; the smallest has none, and counts as 0."""
    if code < 1 << 31:
        return code
    return (1 << 32) - code if code > 1 << 31 else 0
