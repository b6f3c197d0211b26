"""Segments in waiting: preallocated and written once, so that rolling neither allocates nor pays for extents.

Overwriting blocks that are allocated and written costs a fifth of extending a file. Purged segments come back
here. Knows names and sizes; never looks into a segment. Safe to call from a second thread.
"""

from __future__ import annotations

import re
import threading
from typing import Final

from raft.errors import DiskFull
from raft.storage.interface import File, Files
from raft.storage.recovery import LOG_DIR
from raft.storage.trouble import FULL, NO_DESCRIPTOR, PASSING

_PREFIX: Final = "spare-"
_KEPT: Final = 2
_ZEROS: Final = bytes(1 << 20)
_SYNC_EVERY: Final = 4 << 20


class SparePool:
    """Spare segments of ``segment_bytes`` each. They are open already, so that beginning one opens no file."""

    def __init__(self, files: Files, segment_bytes: int) -> None:
        self._files, self._bytes = files, segment_bytes
        self._lock = threading.Lock()
        self._spares: list[tuple[str, File]] = []
        self._number = 0

    def load(self) -> None:
        """Take up what an earlier life left; remove what is half made or of another size."""
        with self._lock:
            for name in self._files.list(LOG_DIR):
                if not re.fullmatch(_PREFIX + "[0-9]{10}", name):
                    continue
                path = f"{LOG_DIR}/{name}"
                self._number = max(self._number, int(name[len(_PREFIX) :]))
                file = self._files.open(path)
                if file.size() == self._bytes and len(self._spares) < _KEPT:
                    self._spares.append((path, file))
                else:
                    file.close()
                    self._files.remove(path)

    def close(self) -> None:
        """Close the files. They stay spares of the next life."""
        with self._lock:
            while self._spares:
                self._spares.pop()[1].close()

    def ready(self) -> int:
        """Return how many spare files are at hand."""
        return len(self._spares)

    def require(self, count: int) -> None:
        """Have ``count`` spares. Raises ``DiskFull``, or OSError for anything worse."""
        with self._lock:
            while len(self._spares) < count:
                self._spares.append(self._make())

    def take(self, path: str) -> File:
        """Rename a spare to ``path``, durably, and return it."""
        with self._lock:
            if not self._spares:
                self._spares.append(self._make())
            spare, file = self._spares[0]
            self._files.rename(spare, path)
            self._files.sync_dir(LOG_DIR)
            del self._spares[0]
            return file

    def give(self, path: str, size: int) -> None:
        """A segment is not needed any more. Durable before this returns, so names never vanish out of order."""
        with self._lock:
            file = self._opened(path) if size == self._bytes and len(self._spares) < _KEPT else None
            if file is not None:
                spare = self._name()
                self._files.rename(path, spare)
                self._spares.append((spare, file))
            else:
                self._files.remove(path)
            self._files.sync_dir(LOG_DIR)

    def _opened(self, path: str) -> File | None:
        """Open a file; None if there is no descriptor for it."""
        try:
            return self._files.open(path)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
            return None

    def _name(self) -> str:
        self._number += 1
        return f"{LOG_DIR}/{_PREFIX}{self._number:010d}"

    def _make(self) -> tuple[str, File]:
        path, file = self._name(), None
        try:
            file = self._files.open(path, create=True)
            file.allocate(self._bytes)
            for offset in range(0, self._bytes, len(_ZEROS)):
                file.pwrite([_ZEROS[: self._bytes - offset]], offset)
                if offset % _SYNC_EVERY == 0:
                    file.sync()  # in small steps, as the writer's syncs would wait for a large one
            file.sync()
        except BaseException as error:
            if file is not None:
                file.close()
            if not isinstance(error, OSError) or error.errno not in PASSING:
                raise
            if error.errno in FULL and path.rpartition("/")[2] in self._files.list(LOG_DIR):
                self._files.remove(path)
            raise DiskFull(f"no room for another segment of {self._bytes} bytes: {error}") from error
        return path, file
