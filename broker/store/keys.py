"""Finds the keys of a message, and hashes them as the key index does.

``keys_of`` says it in words; ``KeyHashes`` comes to the same numbers without a string for each key.
Source: ``IndexService.buildIndex`` and ``IndexFile.indexKeyHashMethod`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import Final

from remoting.hashing import java_hash
from remoting.record import KEYS, ROLLBACK, TAGS, UNIQ_KEY, Outline, value_behind

_MASK: Final = 0xFFFFFFFF
_BACK: Final = 12
"""A unique id begins with its producer and the hour; so many characters change with each message."""
_BACK_SHIFTS: Final = tuple(pow(31, size, 1 << 32) for size in range(_BACK + 1))
_BACK_WEIGHTS: Final = tuple(_BACK_SHIFTS[:size][::-1] for size in range(_BACK + 1))
"""By how many characters there are."""
_KNOWN_MAX: Final = 4_096
_NONE: Final = b"", 0
Entry = tuple[int, int, int]
"""Hash of a key, offset and store time of its message."""


def key_hash(key: str) -> int:
    """The index's hash of a key, never negative."""
    code = _positive(java_hash(key) & _MASK)
    assert 0 <= code < 1 << 31, "it finds its slot by what is left of a division"
    return code


def keys_of(found: Outline) -> list[str]:
    """Return the texts that a message is found by: its unique id, each of its keys, its tag. A rolled back message has
    none."""
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
        self._last: dict[bytes, tuple[bytes, int]] = {}
        """By topic: the last unique id without the four characters at its end, which count its producer's messages,
        and the hash of both."""

    def of(self, run: Sequence[Outline]) -> list[Entry]:
        """Return index entries for the messages of ``run``, in their order."""
        entries: list[Entry] = []
        add, top = entries.append, 1 << 31
        last, last_topic = self._last, b""
        last_front, front_code = _NONE
        for offset, _, _, _, sys_flag, time_ms, topic, properties in run:
            if sys_flag & ROLLBACK == ROLLBACK:
                continue
            unique = value_behind(properties, UNIQ_KEY)
            if unique is None:
                pass
            elif len(unique) > 4 and unique.isascii():
                front = unique[:-4]
                if topic != last_topic:
                    last_topic, (last_front, front_code) = topic, last.get(topic, _NONE)
                if front != last_front:
                    if len(last) >= _KNOWN_MAX:
                        last.clear()
                    last_front, front_code = last[topic] = front, self._hash(topic, front)
                a, b, c, d = unique[-4:]
                code = front_code * 923_521 + a * 29_791 + b * 961 + c * 31 + d & _MASK  # powers of 31
                add((code if code < top else _positive(code), offset, time_ms))
            elif unique:
                add((_positive(self._hash(topic, unique)), offset, time_ms))
            if properties.find(KEYS) >= 0:  # quicker than ``in``
                for key in (value_behind(properties, KEYS) or b"").split(b" "):
                    if key:
                        add((_positive(self._hash(topic, key)), offset, time_ms))
            if properties.find(TAGS) >= 0:
                tags = value_behind(properties, TAGS)
                if tags:
                    add((self._tags_hash(topic, tags), offset, time_ms))
        return entries

    def _tags_hash(self, topic: bytes, tags: bytes) -> int:
        code = self._tags.get((topic, tags))
        if code is None:
            if len(self._tags) >= _KNOWN_MAX:
                self._tags.clear()
            code = self._tags[topic, tags] = _positive(self._hash(topic, b"T#" + tags))
        return code

    def _hash(self, topic: bytes, key: bytes) -> int:
        """Return Java's hash of ``topic#key`` as 32 bits without a sign; it is not made non-negative yet."""
        if not key.isascii():
            return java_hash(f"{topic.decode(errors='replace')}#{key.decode(errors='replace')}") & _MASK
        front, back = key[:-_BACK], key[-_BACK:]
        code = self._known.get((topic, front))
        if code is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            code = self._known[topic, front] = java_hash(f"{topic.decode(errors='replace')}#{front.decode()}") & _MASK
        hashed: int = sum(map(mul, back, _BACK_WEIGHTS[len(back)]), code * _BACK_SHIFTS[len(back)]) & _MASK
        return hashed


def _positive(code: int) -> int:
    """Return ``Math.abs`` of a Java int; the smallest has none, and counts as 0."""
    assert 0 <= code < 1 << 32, "32 bits without a sign"
    if code < 1 << 31:
        return code
    return (1 << 32) - code if code > 1 << 31 else 0
