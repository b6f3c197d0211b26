"""Frames out of segments: from an entry of the sparse index, walk headers to the frames wanted, check and take them.

Runs beside the writer on files of its own. Knows extents and record sizes; nothing of the catalog behind them.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from raft.errors import DamagedLog, MalformedMessage
from raft.frame import HEADER_BYTES, MAGIC, Frame, parse
from raft.storage.blocks import BLOCK_BYTES, BLOCK_MAGIC, LOCAL_BYTES, LOCAL_MAGIC
from raft.storage.catalog import Extent, Segment
from raft.storage.interface import File, Files
from raft.storage.trouble import NO_DESCRIPTOR, trouble

_WINDOW_BYTES: Final = 128 << 10
_FILES_OPEN: Final = 16
_FRAME_PART: Final = struct.Struct("<QQQII")
"""Group, term, first, count and body length, at byte 8 of a frame."""
_LENGTH: Final = struct.Struct("<I")


class _Window:
    """A piece of a file in memory that moves forward."""

    def __init__(self, file: File, path: str, start: int, limit: int) -> None:
        self._file, self.path, self.start, self.limit = file, path, start, limit
        self.data = b""

    def need(self, position: int, size: int) -> int:
        """Have ``size`` bytes from ``position``; returns where in ``data`` they begin."""
        at = position - self.start
        if at + size > len(self.data):
            want = max(size, min(_WINDOW_BYTES, self.limit - position))
            try:
                self.data = self._file.pread(want, position)
            except OSError as error:
                raise DamagedLog(self.path, position, f"cannot be read: {error}") from error
            self.start, at = position, 0
            if len(self.data) < size:
                raise DamagedLog(self.path, position, f"{size} bytes are due, the file has {len(self.data)}")
        return at


class SegmentReader:
    """Open files of a few segments. ``lock`` keeps a segment from being recycled while it is read."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.lock = threading.RLock()
        self._open: dict[int, File] = {}

    def read(self, segment: Segment, extents: Sequence[Extent], group: int, first: int, max_bytes: int) -> list[Frame]:
        """Frames of ``group`` from the one that holds ``first``: one, then while they fit. Hold ``lock``."""
        out: list[Frame] = []
        file, room = self._file(segment), max_bytes
        for extent in extents:
            window = _Window(file, segment.path, extent.offset, extent.limit)
            room = _take(window, extent, group, first, room, out)
            if room <= 0:
                break
        return out

    def _file(self, segment: Segment) -> File:
        file = self._open.get(segment.sequence)
        if file is None:
            try:
                file = self._files.open(segment.path)
            except OSError as error:
                if error.errno in NO_DESCRIPTOR:
                    raise trouble(error) from error
                raise DamagedLog(segment.path, 0, f"cannot be opened: {error}") from error
            while len(self._open) >= _FILES_OPEN:
                self._open.pop(next(iter(self._open))).close()
            self._open[segment.sequence] = file
        return file

    @contextmanager
    def without(self, segment: Segment) -> Iterator[None]:
        """No read of ``segment`` is under way, and none begins, within."""
        with self.lock:
            file = self._open.pop(segment.sequence, None)
            if file is not None:
                file.close()
            yield

    def close(self) -> None:
        with self.lock:
            while self._open:
                self._open.popitem()[1].close()


def _take(window: _Window, extent: Extent, group: int, first: int, room: int, out: list[Frame]) -> int:
    """Append the wanted frames of one extent to ``out``; returns the room left, 0 when the next would not fit."""
    path, position, due = window.path, extent.offset, extent.first
    while due <= extent.last:
        at = window.need(position, LOCAL_BYTES)
        magic = window.data[at : at + 4]
        if magic == MAGIC:
            at = window.need(position, HEADER_BYTES)
            number, _term, begins, count, length = _FRAME_PART.unpack_from(window.data, at + 8)
            size = HEADER_BYTES + length
            if number == group:
                if begins != due:
                    raise DamagedLog(path, position, f"entry {due} of group {group} is due, entry {begins} is there")
                due += count
                if due > first:
                    if out and size > room:
                        return 0
                    at = window.need(position, size)
                    out.append(_parse(path, window.data, at, size, position))
                    room -= size
        elif magic == LOCAL_MAGIC:
            size = LOCAL_BYTES + _LENGTH.unpack_from(window.data, at + 16)[0]
        elif magic == BLOCK_MAGIC:
            size = BLOCK_BYTES
        else:
            raise DamagedLog(path, position, f"no record begins here; entry {due} of group {group} is due")
        position += size
    return max(room, 0)


def _parse(path: str, data: bytes, at: int, size: int, position: int) -> Frame:
    try:
        return parse(data, at, end=at + size)
    except MalformedMessage as error:
        raise DamagedLog(path, position, str(error)) from error
