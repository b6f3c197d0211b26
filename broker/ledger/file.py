"""The ledger's file: entries one behind the other, synced before anybody is told; what a crash tore off is cut.

Many entries that come while a sync runs go with the next one. When most of the file is of entries that count no more,
it is written anew, off the event loop. It knows ``Files``, and of entries how they are read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import trio

from broker.ledger.entries import Entry, decode
from broker.store.files import File, Files, read_whole, write_whole
from broker.tablefile import PAUSE_AFTER_FAILURE_S, RunSync
from remoting.wakeup import Bell

logger = logging.getLogger("broker.ledger")

PATH: Final = "config/actingLedger"
SLACK_BYTES: Final = 1 << 20
"""More than the double of what counts, and that: then it is written anew."""


class LedgerFile:
    """``load`` first; ``run`` must be running for anything to be kept."""

    def __init__(self, files: Files, run_sync: RunSync, counts: Callable[[], Iterable[Entry]], *,
                 slack_bytes: int = SLACK_BYTES) -> None:
        """``counts``: entries that count, for when the file is written anew."""
        self._files, self._run_sync, self._counts, self._slack_bytes = files, run_sync, counts, slack_bytes
        self._size = self._live_bytes = 0
        """Of what is on disk; of what counted when it was written anew."""
        self._entries = 0
        """On disk, or about to be."""
        self._gathered: list[bytes] = []
        self._calls: deque[tuple[int, Callable[[], None]]] = deque()
        self._noted = self._kept = 0
        """Entries; so many of them are on disk."""
        self._anew = False
        self._bell = Bell()

    def load(self) -> list[Entry]:
        """What is whole in it; what comes next is written behind that. Raises ``OSError``."""
        raw = read_whole(self._files, PATH) or b""
        entries, end = decode(raw)
        if end < len(raw):
            logger.warning("%s is whole up to byte %d of %d: what stood behind is cut", PATH, end, len(raw))
            self._anew = True
        self._size, self._entries = end, len(entries)
        return entries

    # --- what is to be kept ------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        self._gathered.append(entry.to_bytes())
        self._noted += 1
        self._entries += 1
        self._bell.ring()

    def dropped(self, left: int) -> None:
        """Entries went, so many are left; it is no harm if they are there again after a crash. It is written anew when
        at most half of it counts."""
        if 2 * left <= self._entries:
            self.anew()

    def anew(self) -> None:
        """Much of it counts no more."""
        self._anew = True
        self._noted += 1
        self._bell.ring()

    def when_kept(self, call: Callable[[], None]) -> None:
        """All that was appended so far is synced: at once, or when it is."""
        if self._kept == self._noted:
            call()
        else:
            self._calls.append((self._noted, call))

    async def kept(self) -> None:
        """Returns when all that was appended so far is synced."""
        done = trio.Event()
        self.when_kept(done.set)
        await done.wait()

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
                    logger.error("%s is not written: %s", PATH, error)

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
            self._anew = True  # whatever came of it
            await trio.sleep(PAUSE_AFTER_FAILURE_S)
            return
        self._kept = noted
        while self._calls and self._calls[0][0] <= noted:
            self._calls.popleft()[1]()

    def _append(self, data: bytes, at: int) -> None:
        is_new = not self._files.exists(PATH)
        file: File = self._files.open(PATH, create=True)
        try:
            file.pwrite(data, at)
            file.sync()
        finally:
            file.close()
        if is_new:
            for folder in ("config", ""):
                self._files.sync_dir(folder)
