"""The bytes of the log that were written last, in memory: replicas, queues and readers at its end want them at once.

It knows bytes and where they stand, and no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BYTES_MAX: Final = 1 << 20
WANTED_BYTES_MAX: Final = 4 << 20
"""Largest number of bytes of earlier turns that are kept for late readers."""


class Recent:
    """One run of bytes, up to the end of what was written."""

    def __init__(self) -> None:
        self._data: bytes | memoryview = b""
        self._at = 0
        self._room = memoryview(b"")
        """Memory that is used again and again: fresh memory would cost more than the copy."""

    def clear(self) -> None:
        self._data = b""

    def wrote(self, data: bytes | memoryview, offset: int) -> None:
        """Keep these bytes instead of the former ones, if they are immutable and at most ``BYTES_MAX``."""
        assert not self._data or self._at + len(self._data) <= offset, "what is written stands behind what was"
        if type(data) is bytes and len(data) <= BYTES_MAX:
            self._data, self._at, self._room = data, offset, memoryview(b"")

    def went_on(self, parts: Sequence[bytes | memoryview], offset: int, wanted: int) -> None:
        """Keep a copy of these bytes, after those from ``wanted`` on that are kept now, if they are not too many."""
        old, size = self._data, sum(map(len, parts))
        kept = 0
        if self._at + len(old) == offset:
            kept = max(0, min(offset - wanted, len(old), WANTED_BYTES_MAX))
        if len(self._room) < kept + size:
            self._room = memoryview(bytearray(2 * (kept + size)))
        room = self._room
        room[:kept] = old[len(old) - kept :]
        at = kept
        for part in parts:
            room[at : at + len(part)] = part
            at += len(part)
        self._data, self._at = room[:at], offset - kept
        assert self._at + len(self._data) == offset + size, "one run of bytes, up to the end of what was written"

    def read(self, offset: int, size: int) -> bytes | None:
        """Return these bytes; None: not all of them are here."""
        at = offset - self._at
        return bytes(self._data[at : at + size]) if 0 <= at <= len(self._data) - size else None
