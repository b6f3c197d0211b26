"""The file that keeps what a broker's next run must know: how far its log is confirmed, and which members it asked for.

It is written in place. *The mark* is synced only before the log is cut below it: after a kill it is what consumers
could see, after a power cut it may trail that, and never leads it. *The members* (``broker.ha.insync``) are never
synced: they count after a kill alone, since after a power cut nobody goes on with an epoch. It knows ``Files``; Java
leaves the file alone.
"""

from __future__ import annotations

import logging
from struct import Struct, pack, unpack_from
from typing import Final
from zlib import crc32

import attrs

from broker.store.files import File, Files

logger = logging.getLogger("broker")

PATH: Final = "confirmed"
"""Below ``storePathRootDir``."""
_OFFSET: Final = Struct(">q")
_SUM: Final = Struct(">I")
_BYTES: Final = _OFFSET.size + _SUM.size
_ASKED: Final = Struct(">qqI")
"""Behind the mark: both epochs and the number of members, which follow, and a sum."""


@attrs.frozen
class MembersAsked:
    """Members that a master of ``epoch`` asked for beside those of the SyncStateSet of ``set_epoch``."""

    epoch: int = -1
    set_epoch: int = -1
    members: frozenset[int] = frozenset()

    def to_bytes(self) -> bytes:
        raw = _ASKED.pack(self.epoch, self.set_epoch, len(self.members)) + pack(
            f">{len(self.members)}q", *sorted(self.members))
        return raw + _SUM.pack(crc32(raw))


def _asked(raw: bytes) -> MembersAsked:
    """Read ``to_bytes``; what is damaged says nothing."""
    if len(raw) >= _ASKED.size:
        epoch, set_epoch, count = _ASKED.unpack_from(raw)
        end = _ASKED.size + 8 * count
        if len(raw) >= end + _SUM.size and _SUM.unpack_from(raw, end)[0] == crc32(raw[:end]):
            return MembersAsked(epoch, set_epoch, frozenset(unpack_from(f">{count}q", raw, _ASKED.size)))
    return MembersAsked()


class ConfirmMark:
    """The mark of one broker; ``open`` comes first."""

    def __init__(self, files: Files, path: str = PATH) -> None:
        self._files, self._path = files, path
        self._file: File | None = None
        self._written = 0
        self.asked = MembersAsked()
        """What ``note`` was told last, in this run or in one before."""

    def open(self, end: int) -> int:
        """Open the mark of a log that ends at ``end``. Returns the offset known to be confirmed, 0 if none. Raises
        ``OSError``."""
        self._file = self._files.open(self._path, create=True)
        raw = self._file.pread(_BYTES, 0)
        if len(raw) == _BYTES and _SUM.unpack_from(raw, _OFFSET.size)[0] == crc32(raw[:_OFFSET.size]):
            self._written = _OFFSET.unpack_from(raw)[0]
        self.asked = _asked(self._file.pread(max(0, self._file.size() - _BYTES), _BYTES))
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

    def note(self, asked: MembersAsked) -> bool:
        """Hand this to the system, without a sync. False: it refused."""
        if self._file is None:
            return False
        try:
            self._file.pwrite(asked.to_bytes(), _BYTES)
        except OSError as error:
            logger.warning("the file that says which replicas are asked for cannot be written, tried again: %s", error)
            return False
        self.asked = asked
        return True

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
