"""Whole records of a log that comes in pieces: a master's frames, and what one read brings, cut them anywhere.

A record that is written at once is there after a power cut, or fails its checks; of one that was written in pieces, a
piece in front of the last may be lost where no checksum looks. So what has come of a record waits for the rest, and so
does a blank at a file's end. This module knows where records begin and end, and no log.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from broker.ha.wire import HaFrameError
from remoting.record import MAGIC, MAGIC_BLANK, MAGIC_LONG_TOPIC, RECORD_BYTES_MAX, RECORD_BYTES_MIN

_FRONT: Final = Struct(">ii")
"""Size and magic, of records and blanks."""
_FRONT_ORDER: Final = (3, 2, 1, 0, 4, 5, 6, 7)
"""In which its bytes are compared: that which differs most comes first."""
_ALIKE: Final = 128
"""Records of one size that are compared at first; fewer cost less one by one."""


class WholeRecords:
    """Of one connection; ``file_bytes``: of the log that they are for."""

    def __init__(self, file_bytes: int) -> None:
        self._file_bytes = file_bytes
        self._held = bytearray()
        self._needed = 0
        """Size of the record of which a part is held; 0 while its front is not all here."""

    @property
    def bytes_held(self) -> int:
        return len(self._held)

    def take(self, data: bytes | memoryview, offset: int) -> list[bytes | memoryview]:
        """What is whole now that ``data`` has come, which stands at ``offset`` of the log, behind all that came before.
        Raises ``HaFrameError``."""
        whole: list[bytes | memoryview] = []
        at, size = 0, len(data)
        if self._held:
            at = self._fill(data, offset)
            if not self._needed or len(self._held) < self._needed:
                return whole
            whole.append(bytes(self._held))
            self._held.clear()
        end = self._end(data, at, offset)
        if end > at:
            whole.append(data[at:end])
        if end < size:
            self._held += data[end:]
            self._needed = self._size(self._held, 0, offset + end) if size - end >= _FRONT.size else 0
        return whole

    def _fill(self, data: bytes | memoryview, offset: int) -> int:
        """Add to what is held what it lacks; returns how much that was."""
        held, at = self._held, 0
        if not self._needed:
            begin = offset - len(held)
            at = min(_FRONT.size - len(held), len(data))
            held += data[:at]
            if len(held) < _FRONT.size:
                return at
            self._needed = self._size(held, 0, begin)
        more = min(self._needed - len(held), len(data) - at)
        held += data[at : at + more]
        return at + more

    def _end(self, data: bytes | memoryview, at: int, offset: int) -> int:
        """Where the last record ends that is whole in ``data``, of those that begin at ``at``."""
        unpack, record, most = _FRONT.unpack_from, 0, _ALIKE
        size = len(data)
        last = size - _FRONT.size
        while at <= last:
            before = record
            record, magic = unpack(data, at)
            if magic != MAGIC or record < RECORD_BYTES_MIN:
                record = self._size(data, at, offset + at)
            elif record == before and most and size - at >= _ALIKE * record:  # as of one producer's messages
                count = _alike(data, at, record, most)
                most = 2 * most if count == most else 0  # in vain once is enough
                at += count * record
                continue
            at += record
        return at if at <= size else at - record

    def _size(self, data: bytes | bytearray | memoryview, at: int, offset: int) -> int:
        """Of the record, or blank, whose front is at ``at`` and which stands at ``offset``. Raises ``HaFrameError``."""
        size, magic = _FRONT.unpack_from(data, at)
        left = self._file_bytes - offset % self._file_bytes
        if magic == MAGIC_BLANK and size == left:
            return left
        if magic in (MAGIC, MAGIC_LONG_TOPIC) and RECORD_BYTES_MIN <= size <= min(RECORD_BYTES_MAX, left):
            return int(size)
        raise HaFrameError(f"the master sent no message at offset {offset}: size {size}, magic "
                           f"{magic & 0xFFFFFFFF:#010x}, where a file of {self._file_bytes} bytes has {left} left. Is "
                           "mappedFileSizeCommitLog the master's, and does this log end behind a message?")


def _alike(data: bytes | memoryview, at: int, size: int, most: int) -> int:
    """How many records, ``most`` at most, follow one behind the other in ``data`` with the front of the one at ``at``,
    which says that size; 1 at least. Each byte of their fronts is compared of all at once."""
    count = max(1, min((len(data) - at) // size, most))
    for place in _FRONT_ORDER:
        column = bytes(data[at + place : at + (count - 1) * size + place + 1 : size])
        count -= len(column.lstrip(column[:1]))
    return count
