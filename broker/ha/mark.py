"""The file that keeps up to where a replica was told that its log is confirmed, so that its next start shows as much.

It is written in place and synced only before the log is cut below it: after a kill it is what consumers could see,
after a power cut it may trail that, and never leads it. It knows ``Files``; Java leaves the file alone.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import Final
from zlib import crc32

from broker.store.files import File, Files

logger = logging.getLogger("broker")

PATH: Final = "confirmed"
"""Below ``storePathRootDir``."""
_OFFSET: Final = Struct(">q")
_SUM: Final = Struct(">I")
_BYTES: Final = _OFFSET.size + _SUM.size


class ConfirmMark:
    """The mark of one broker; ``open`` comes first."""

    def __init__(self, files: Files, path: str = PATH) -> None:
        self._files, self._path = files, path
        self._file: File | None = None
        self._written = 0

    def open(self, end: int) -> int:
        """Open the mark of a log that ends at ``end``. Returns the offset known to be confirmed, 0 if none. Raises
        ``OSError``."""
        self._file = self._files.open(self._path, create=True)
        raw = self._file.pread(_BYTES, 0)
        if len(raw) == _BYTES and _SUM.unpack_from(raw, _OFFSET.size)[0] == crc32(raw[:_OFFSET.size]):
            self._written = _OFFSET.unpack_from(raw)[0]
        self.cut(end)
        return self._written

    def write(self, offset: int) -> None:
        """Hand a new mark to the system, without a sync. What it refuses is tried again with the next mark."""
        if offset == self._written or self._file is None:
            return
        raw = _OFFSET.pack(offset)
        try:
            self._file.pwrite(raw + _SUM.pack(crc32(raw)), 0)
        except OSError as error:
            logger.warning("the file that says how far the log is confirmed cannot be written, tried again: %s", error)
        else:
            self._written = offset

    def cut(self, offset: int) -> None:
        """Lower and sync the mark before the log is cut there: other bytes may follow. Raises ``OSError``."""
        if self._written > offset and self._file is not None:
            raw = _OFFSET.pack(offset)
            self._file.pwrite(raw + _SUM.pack(crc32(raw)), 0)
            self._file.sync()
            self._written = offset

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
