"""Makes whole records of a log that comes in pieces: a master's frames, and what one read brings, cut them anywhere.

A record that is written at once is there after a power cut, or fails its checks; of one that was written in pieces, a
piece in front of the last may be lost where no checksum looks. So what has come of a record waits for the rest, and so
does a blank at a file's end. This module knows where records begin and end, and no log.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Final

from broker.ha.wire import HaFrameError
from remoting.record import MAGIC, MAGIC_BLANK, MAGIC_LONG_TOPIC, RECORD_BYTES_MAX, RECORD_BYTES_MIN

_FRONT: Final = Struct(">ii")
"""Size and magic, of records and blanks."""
_ALIKE_MAX: Final = 1_024
"""Records of one size that are compared at a time."""


class WholeRecords:
    """Makes whole records of what one connection brings; ``file_bytes`` is the size of the log's files."""

    def __init__(self, file_bytes: int) -> None:
        self._file_bytes = file_bytes
        self._held = bytearray()
        self._needed = 0
        """Size of the record of which a part is held; 0 while its front is not all here."""

    @property
    def bytes_held(self) -> int:
        return len(self._held)

    def take(self, data: bytes | memoryview, offset: int) -> list[bytes | memoryview]:
        """Return the records that ``data`` completes. It stands at ``offset`` of the log, right after all bytes taken
        before. Raises ``HaFrameError``."""
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
        assert not self._needed or len(self._held) < self._needed, "what is whole is not held back"
        return whole

    def _fill(self, data: bytes | memoryview, offset: int) -> int:
        """Complete the record that is held with bytes of ``data``; returns how many it took."""
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
        """Return the end of the last record that is whole in ``data``; the first record begins at ``at``."""
        unpack, record, alike = _FRONT.unpack_from, 0, True
        size = len(data)
        last = size - _FRONT.size
        while at <= last:
            before = record
            record, magic = unpack(data, at)
            if magic != MAGIC or record < RECORD_BYTES_MIN:
                record = self._size(data, at, offset + at)
            elif record == before and alike and size - at >= 2 * record:  # perhaps one producer's messages
                count = min((size - at) // record, _ALIKE_MAX)
                found = _alike(data, at, record, count)
                alike = found == count  # after one failure it is not tried again
                at += found * record
                continue
            at += record
        return at if at <= size else at - record

    def _size(self, data: bytes | bytearray | memoryview, at: int, offset: int) -> int:
        """Return the size of the record or blank whose front is at ``at``; it stands at ``offset`` of the log. Raises
        ``HaFrameError``."""
        size, magic = _FRONT.unpack_from(data, at)
        left = self._file_bytes - offset % self._file_bytes
        if magic == MAGIC_BLANK and size == left:
            return left
        if magic in (MAGIC, MAGIC_LONG_TOPIC) and RECORD_BYTES_MIN <= size <= min(RECORD_BYTES_MAX, left):
            return int(size)
        raise HaFrameError(f"the master sent no message at offset {offset}: size {size}, magic "
                           f"{magic & 0xFFFFFFFF:#010x}, where a file of {self._file_bytes} bytes has {left} left. Is "
                           "mappedFileSizeCommitLog the master's, and does this log end behind a message?")


def _alike(data: bytes | memoryview, at: int, size: int, count: int) -> int:
    """Return how many of ``count`` records of ``size`` bytes from ``at`` on have the same front as the first, one after
    the other. One call reads all fronts: a step for each record costs four times as much."""
    fronts = unpack_from(">" + f"q{size - _FRONT.size}x" * count, data, at)
    if fronts.count(fronts[0]) == count:
        return count
    return next(number for number, front in enumerate(fronts) if front != fronts[0])
