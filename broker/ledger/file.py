"""The ledger's file: appends entries and syncs them in groups, off the event loop.

Entries that come during a sync share the next one. The file is rewritten when most of it are replaced entries. A
half-written entry at its end, left by a crash, is cut.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import trio

from broker.ledger.entries import Entry, decode
from broker.store.files import Files, read_whole, write_whole
from broker.tablefile import PAUSE_AFTER_FAILURE_S, RunSync
from remoting.wakeup import Bell

logger = logging.getLogger("broker.ledger")

PATH: Final = "config/actingLedger"
SLACK_BYTES: Final = 1 << 20
"""The file is rewritten when it has this many bytes more than twice its valid ones."""


class LedgerFile:
    """Keeps entries on disk. Call ``load`` first; ``run`` must be running."""

    def __init__(self, files: Files, run_sync: RunSync, counts: Callable[[], Iterable[Entry]], *,
                 slack_bytes: int = SLACK_BYTES) -> None:
        """``counts`` returns the valid entries, for a rewrite."""
        self._files, self._run_sync, self._counts, self._slack_bytes = files, run_sync, counts, slack_bytes
        self._size = self._live_bytes = 0
        """Bytes of the file, and its bytes after the last rewrite."""
        self._entries = 0
        """Entries of the file, those of the next write included."""
        self._gathered: list[bytes] = []
        self._calls: deque[tuple[int, Callable[[], None]]] = deque()
        self._hopes: list[trio.Event] = []
        """Of tasks in ``synced``."""
        self._failure = ""
        """Why the last write failed."""
        self._noted = self._kept = 0
        """Number of changes that were ordered, and how many of them are on disk."""
        self._anew = True
        """The next write replaces the file, or makes it."""
        self._bell = Bell()

    def load(self) -> list[Entry]:
        """Read the whole entries of the file, which count as kept when ``run`` has rewritten it. Raises ``OSError``.

        A process that was killed may have left them in the system's memory alone. If its sync failed, those pages pass
        for written: to sync them again would prove nothing.
        """
        raw = read_whole(self._files, PATH) or b""
        entries, end = decode(raw)
        if end < len(raw):
            logger.warning("%s is damaged from byte %d of %d on: the rest is cut", PATH, end, len(raw))
        if raw:
            self.anew()
        self._entries = len(entries)
        return entries

    # --- changes -----------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        self._gathered.append(entry.to_bytes())
        self._noted += 1
        self._entries += 1
        self._bell.ring()

    def dropped(self, left: int) -> None:
        """Entries were dropped and ``left`` remain. The file is rewritten only when at most half of it is valid: a
        dropped entry may come back after a crash."""
        if 2 * left <= self._entries:
            self.anew()

    def anew(self) -> None:
        """Rewrite the file: the entries that went must not come back."""
        self._anew = True
        self._noted += 1
        self._bell.ring()

    def when_kept(self, call: Callable[[], None]) -> None:
        """Run ``call`` when all changes so far are synced, perhaps at once."""
        if self._kept == self._noted:
            call()
        else:
            self._calls.append((self._noted, call))

    async def kept(self) -> None:
        """Return when all changes so far are synced."""
        done = trio.Event()
        self.when_kept(done.set)
        await done.wait()

    async def synced(self) -> None:
        """Return when all changes so far are synced. Raises ``OSError`` if a write fails before; it is tried again."""
        done = trio.Event()
        self._hopes.append(done)
        self.when_kept(done.set)
        try:
            await done.wait()
        finally:
            self._hopes.remove(done)
        if self._failure:
            raise OSError(self._failure)

    # --- its task ------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write and sync, until cancelled."""
        task_status.started()
        try:
            while True:
                await self._bell.wait()
                while self._kept < self._noted:
                    await self._write()
        finally:
            if self._kept < self._noted:
                try:
                    self._rewrite(list(self._counts()))
                except OSError as error:
                    logger.error("%s could not be written at the end: %s", PATH, error)

    def _rewrite(self, entries: list[Entry]) -> None:
        whole = b"".join(entry.to_bytes() for entry in entries)
        write_whole(self._files, PATH, whole)
        self._size = self._live_bytes = len(whole)

    async def _write(self) -> None:
        noted, gathered = self._noted, b"".join(self._gathered)
        self._gathered.clear()
        if self._size + len(gathered) > 2 * self._live_bytes + self._slack_bytes:
            self._anew = True
        try:
            if self._anew:
                entries = list(self._counts())
                self._anew, self._entries = False, len(entries)
                await self._run_sync(lambda: self._rewrite(entries))
            else:
                size = self._size
                await self._run_sync(lambda: self._append(gathered, size))
                self._size += len(gathered)
        except OSError as error:
            logger.error("%s cannot be written, next attempt in %g s: %s", PATH, PAUSE_AFTER_FAILURE_S, error)
            self._anew = True  # the failed write may have left a part of an entry
            self._failure = f"{PATH} cannot be written: {error}"
            for each in self._hopes:
                each.set()
            await trio.sleep(PAUSE_AFTER_FAILURE_S)
            return
        self._kept, self._failure = noted, ""
        while self._calls and self._calls[0][0] <= noted:
            self._calls.popleft()[1]()

    def _append(self, data: bytes, at: int) -> None:
        file = self._files.open(PATH)
        try:
            file.pwrite(data, at)
            file.sync()
        finally:
            file.close()
