"""Bytes of the timer log and of the timer wheel: a unit for each message that waits, a slot for each moment.

A unit says where its message stands in the commit log; its slot leads to the last unit of that moment, and each unit
to the one before. It knows bytes and no file. Source: ``TimerLog``, ``Slot`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import attrs

UNIT: Final = Struct(">iqiqiqiiq")
"""Size, position of the unit before, kind, time of writing, ms from there to its slot, offset in the commit log, size
there, hash of the real topic, unused."""
UNIT_BYTES: Final = UNIT.size
SLOT: Final = Struct(">qqqii")
"""Time in units of the precision, positions of the first and the last unit, messages, unused."""
SLOT_BYTES: Final = SLOT.size
_BLANK: Final = Struct(">iqi")
"""Bytes to the end of the file, zero, magic."""
BLANK_BYTES: Final = _BLANK.size
_BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
NONE: Final = -1
"""Position of a unit that is not there."""

MESSAGE: Final = 1
"""Bits of a unit's kind: every unit has this one."""
ROLL: Final = 2
"""Its slot is not its time yet: put again when that comes."""
DELETE: Final = 4
"""It takes back a message of its slot, which its record names."""
MOVED: Final = 8
"""Ours: its message was put again before its slot came, so this unit is none any more. Java looks past this bit."""
_KINDS: Final = frozenset(range(MESSAGE, 16, 2))
_DELAY_MAX: Final = (1 << 31) - 1


@attrs.frozen
class Unit:
    """A message that waits: where it stands in the commit log, and what is to be done with it."""

    offset: int
    """In the commit log."""
    size: int
    topic_hash: int = 0
    """Of the real topic, as Java's strings have it."""
    kind: int = MESSAGE
    slot_ms: int = 0
    write_time_ms: int = 0
    """When it was put into its slot."""
    at: int = NONE
    """Position in the timer log."""

    @property
    def rolls(self) -> bool:
        return bool(self.kind & ROLL)

    @property
    def deletes(self) -> bool:
        """A marker that is to be rolled takes nothing back yet."""
        return self.kind & (DELETE | ROLL) == DELETE


Fields = tuple[int, int, int, int, int, int, int, int, int]
"""Of a unit, as ``UNIT`` has them."""


def pack(before: int, unit: Unit, slot_ms: int, write_time_ms: int) -> bytes:
    """Raises ``ValueError``: slot and time of writing lie too far apart for the format."""
    delay_ms = slot_ms - write_time_ms
    if not -_DELAY_MAX <= delay_ms <= _DELAY_MAX:
        raise ValueError(f"a slot {delay_ms} ms behind its time of writing; {_DELAY_MAX} ms is the most")
    return UNIT.pack(UNIT_BYTES, before, unit.kind, write_time_ms, delay_ms, unit.offset, unit.size, unit.topic_hash, 0)


def is_whole(fields: Fields, at: int) -> bool:
    """Whether these fields may be those of a unit at ``at``: all of it was written, by somebody who writes units. A
    half of one, with zeros for the rest, has no size in front or no size of its message."""
    size, before, kind, write_time_ms, delay_ms, offset, message_size, _, _ = fields
    return (size == UNIT_BYTES and NONE <= before < at and kind in _KINDS and offset >= 0 and message_size > 0
            and write_time_ms + delay_ms >= 0)


def unit_of(fields: Fields, at: int) -> Unit:
    _, _, kind, write_time_ms, delay_ms, offset, size, topic_hash, _ = fields
    return Unit(offset, size, topic_hash, kind, write_time_ms + delay_ms, write_time_ms, at)


def counted(kind: int) -> int:
    """What a unit adds to the number of its slot, as Java counts: a message one, a deletion takes one off."""
    if kind & MOVED:
        return 0
    return -1 if kind & DELETE else 1


def blank(left: int) -> bytes:
    """Fills a file of which so many bytes are left."""
    return _BLANK.pack(left, 0, _BLANK_MAGIC).ljust(left, b"\0")


def is_blank(data: bytes) -> bool:
    """The rest of this file holds no unit."""
    return len(data) >= BLANK_BYTES and _BLANK.unpack_from(data)[2] == _BLANK_MAGIC
