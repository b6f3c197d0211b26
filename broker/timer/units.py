"""Formats of the timer log and the timer wheel: a unit for each waiting message, one record for each slot.

A unit says where its message stands in the commit log. A slot points to its last unit, and each unit to
the one before. It knows bytes and no file. Source: ``TimerLog``, ``Slot`` of RocketMQ 5.5.0.
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
"""Position that means: there is no unit."""

MESSAGE: Final = 1
"""Bit of a unit's kind that every unit has."""
ROLL: Final = 2
"""Bit of a unit's kind: the message is due after its slot, and is put again when the slot is over."""
DELETE: Final = 4
"""Bit of a unit's kind: a marker, which recalls a message of its slot."""
MOVED: Final = 8
"""Bit of a unit's kind, ours: the message was put again before its slot came, so this unit is void. RocketMQ ignores
it."""
_KINDS: Final = frozenset(range(MESSAGE, 16, 2))
_DELAY_MAX: Final = (1 << 31) - 1


@attrs.frozen
class Unit:
    """A waiting message: its place in the commit log, its slot and its kind."""

    offset: int
    """Offset of the message in the commit log."""
    size: int
    topic_hash: int = 0
    """Java's string hash of the topic that it is meant for."""
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
        """Return whether it is a marker of this slot; one that rolls recalls nothing yet."""
        return self.kind & (DELETE | ROLL) == DELETE


Fields = tuple[int, int, int, int, int, int, int, int, int]
"""Fields of a unit, in the order of ``UNIT``."""


def pack(before: int, unit: Unit, slot_ms: int, write_time_ms: int) -> bytes:
    """The bytes of a unit. Raises ``ValueError``: slot and time of writing lie too far apart for the format."""
    delay_ms = slot_ms - write_time_ms
    if not -_DELAY_MAX <= delay_ms <= _DELAY_MAX:
        raise ValueError(f"a slot {delay_ms} ms after its time of writing; {_DELAY_MAX} ms is the most")
    return UNIT.pack(UNIT_BYTES, before, unit.kind, write_time_ms, delay_ms, unit.offset, unit.size, unit.topic_hash, 0)


def is_whole(fields: Fields, at: int) -> bool:
    """Return whether these fields can be a unit at ``at`` that was wholly written. A half-written one, with zeros for
    the rest, lacks its own size or that of its message."""
    size, before, kind, write_time_ms, delay_ms, offset, message_size, _, _ = fields
    return (size == UNIT_BYTES and NONE <= before < at and kind in _KINDS and offset >= 0 and message_size > 0
            and write_time_ms + delay_ms >= 0)


def unit_of(fields: Fields, at: int) -> Unit:
    _, _, kind, write_time_ms, delay_ms, offset, size, topic_hash, _ = fields
    return Unit(offset, size, topic_hash, kind, write_time_ms + delay_ms, write_time_ms, at)


def counted(kind: int) -> int:
    """Return what a unit adds to its slot's count, as in RocketMQ: 1 for a message, -1 for a marker."""
    if kind & MOVED:
        return 0
    return -1 if kind & DELETE else 1


def blank(left: int) -> bytes:
    """The blank that fills the last ``left`` bytes of a file."""
    return _BLANK.pack(left, 0, _BLANK_MAGIC).ljust(left, b"\0")
