"""Segments in waiting: preallocated and written once, so that rolling neither allocates nor pays for extents.

Overwriting blocks that are allocated and written costs a fifth of extending a file. Purged segments come back
here. Knows names and sizes; never looks into a segment. Safe to call from a second thread.
"""

from __future__ import annotations

import re
import threading
from typing import Final

from raft.errors import DiskFull
from raft.storage.interface import Files
from raft.storage.recovery import LOG_DIR
from raft.storage.trouble import FULL

_PREFIX: Final = "spare-"
_KEPT: Final = 2
_ZEROS: Final = bytes(1 << 20)
_SYNC_EVERY: Final = 4 << 20


class SparePool:
    """Spare segments of ``segment_bytes`` each."""

    def __init__(self, files: Files, segment_bytes: int) -> None:
        self._files, self._bytes = files, segment_bytes
        self._lock = threading.Lock()
        self._paths: list[str] = []
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
                size = file.size()
                file.close()
                if size == self._bytes and len(self._paths) < _KEPT:
                    self._paths.append(path)
                else:
                    self._files.remove(path)

    def ready(self) -> int:
        """Return how many spare files are at hand."""
        return len(self._paths)

    def require(self, count: int) -> None:
        """Have ``count`` spares. Raises ``DiskFull``, or OSError for anything worse."""
        with self._lock:
            while len(self._paths) < count:
                self._paths.append(self._make())

    def take(self, path: str) -> None:
        """Rename a spare to ``path``, durably."""
        with self._lock:
            if not self._paths:
                self._paths.append(self._make())
            self._files.rename(self._paths[0], path)
            del self._paths[0]
            self._files.sync_dir(LOG_DIR)

    def give(self, path: str, size: int) -> None:
        """A segment is not needed any more. Durable before this returns, so names never vanish out of order."""
        with self._lock:
            if size == self._bytes and len(self._paths) < _KEPT:
                spare = self._name()
                self._files.rename(path, spare)
                self._paths.append(spare)
            else:
                self._files.remove(path)
            self._files.sync_dir(LOG_DIR)

    def _name(self) -> str:
        self._number += 1
        return f"{LOG_DIR}/{_PREFIX}{self._number:010d}"

    def _make(self) -> str:
        path = self._name()
        try:
            file = self._files.open(path, create=True)
            try:
                file.allocate(self._bytes)
                for offset in range(0, self._bytes, len(_ZEROS)):
                    file.pwrite([_ZEROS[: self._bytes - offset]], offset)
                    if offset % _SYNC_EVERY == 0:
                        file.sync()  # in small steps, as the writer's syncs would wait for a large one
                file.sync()
            finally:
                file.close()
        except OSError as error:
            if error.errno not in FULL:
                raise
            if path.rpartition("/")[2] in self._files.list(LOG_DIR):
                self._files.remove(path)
            raise DiskFull(f"no room for another segment of {self._bytes} bytes: {error}") from error
        return path
