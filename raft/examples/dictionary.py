"""A replicated dictionary: bytes by text, each with a version, so that a change can depend on what was read.

Versions are counted over the whole dictionary and never used twice, not even by a key that was deleted and put again.
A client that repeats a ``Put`` with ``if_version``, because the outcome was unknown, does nothing twice.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

import attrs
import cbor2
from attrs.validators import ge, instance_of, optional

from raft.examples.commands import cbor_codec
from raft.statemachine import Codec, StateMachine

BYTES_MAX = 64 << 20


@attrs.frozen
class Put:
    """Sets a key. ``if_version``: only if the key has that version; 0: only if it is absent."""

    key: str = attrs.field(validator=instance_of(str))
    value: bytes = attrs.field(validator=instance_of(bytes))
    if_version: int | None = attrs.field(default=None, validator=optional((instance_of(int), ge(0))))


@attrs.frozen
class Delete:
    """Removes a key. ``if_version`` is as in ``Put``."""

    key: str = attrs.field(validator=instance_of(str))
    if_version: int | None = attrs.field(default=None, validator=optional((instance_of(int), ge(0))))


Change: TypeAlias = Put | Delete


class Changed(TypedDict):
    """The answer to a change."""

    why: Literal["", "version", "full"]
    """Reason of a refusal; "" if the change was done."""
    version: int
    """Present version of the key; 0: it is absent."""


class Entry(TypedDict):
    """A key's value and version."""

    value: bytes
    version: int


class Dictionary(StateMachine[Change, Changed, Entry | None]):
    """Holds keys and values of at most ``bytes_max`` bytes together, the same on all nodes.

    ``query`` takes a key in UTF-8 and answers with its entry, or ``None``.
    """

    codec: Codec[Change] = cbor_codec(Put, Delete)

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.entries: dict[str, Entry] = {}
        self.version = self.bytes = 0

    def apply(self, command: Change) -> Changed:
        held = self.entries.get(command.key)
        version = held["version"] if held is not None else 0
        if command.if_version not in (None, version):
            return {"why": "version", "version": version}
        size = self.bytes - (_size(command.key, held["value"]) if held is not None else 0)
        if isinstance(command, Delete):
            self.entries.pop(command.key, None)
            self.bytes = size
            return {"why": "", "version": 0}
        size += _size(command.key, command.value)
        if size > self.bytes_max:
            return {"why": "full", "version": version}
        self.version += 1
        self.entries[command.key] = {"value": command.value, "version": self.version}
        self.bytes = size
        assert len(self.entries) <= self.version
        return {"why": "", "version": self.version}

    def query(self, data: bytes) -> Entry | None:
        return self.entries.get(data.decode())

    def snapshot(self) -> bytes:
        return cbor2.dumps([self.version, self.bytes, self.entries])

    def restore(self, data: bytes) -> None:
        self.version, self.bytes, self.entries = cbor2.loads(data)


def _size(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value)
