"""A storage of one's own: the log of all groups in one SQLite file, snapshots in files as the library keeps them.

``raft.open_node(..., storage=SqliteStorage)`` uses it; ``docs/how-to/write-a-storage.md`` walks through it. It knows
SQL and the protocol ``raft.storage.interface.Storage``, and nothing of nodes.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from raft.errors import DamagedLog, DiskFull, MalformedMessage, StorageError, UsageError, WriteFailed, WrongDirectory
from raft.frame import Frame, Kind, parse
from raft.messages import HardState, Lapse, Recovered, SnapshotMeta, Write
from raft.storage.interface import SnapshotSink, Storage
from raft.storage.place import Place
from raft.storage.snapshots import DIRECTORY, SnapshotStore

TABLES = """
CREATE TABLE IF NOT EXISTS owner (incarnation BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS groups (
    number INTEGER PRIMARY KEY, term INTEGER NOT NULL DEFAULT 0, voted_for TEXT,
    purged_index INTEGER NOT NULL DEFAULT 0, purged_term INTEGER NOT NULL DEFAULT 0,
    purged_mark INTEGER NOT NULL DEFAULT 0,
    lapse_index INTEGER NOT NULL DEFAULT 0, lapse_term INTEGER NOT NULL DEFAULT 0, told TEXT NOT NULL DEFAULT '[]');
CREATE TABLE IF NOT EXISTS frames (
    number INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, term INTEGER NOT NULL,
    kind INTEGER NOT NULL, mark INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (number, first));
CREATE TABLE IF NOT EXISTS reserve (number INTEGER PRIMARY KEY, room BLOB NOT NULL);
"""
RESERVE = "INSERT OR IGNORE INTO reserve VALUES (?, randomblob(262144))"
"""Room for terms and votes, which must be kept when there is none for entries."""


class SqliteStorage(Storage):
    """A write joins the transaction that is open, a sync commits it. One lock: writer and readers take turns."""

    def __init__(self, place: Place) -> None:
        self._place, self._path = place, Path(place.directory) / "log.sqlite"
        self._snapshots = SnapshotStore(place.files)
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._unsynced: list[Sequence[Write]] = []
        """What ``write`` was given since the last sync."""
        self._failed: str | None = None

    # --- opening and closing

    def open(self) -> dict[int, Recovered]:
        files = self._place.files
        files.make_dir(DIRECTORY)
        files.sync_dir("")
        self._snapshots.load()
        if self._place.opened_before and not self._path.exists():
            raise DamagedLog(str(self._path), 0, "the log is gone, and term and votes with it")
        try:
            self._connect()
            files.sync_dir("")
            self._stand_on_snapshots()
            return {number: self.recovered(number) for (number,) in self._all("SELECT number FROM groups")}
        except BaseException as error:
            self._failed = "not opened"
            self.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise DamagedLog(str(self._path), 0, f"not what was written: {error}") from error
            raise

    def _connect(self) -> None:
        self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._all("PRAGMA journal_mode = PERSIST")  # a journal that keeps its room
        self._all("PRAGMA synchronous = FULL")
        if self._all("PRAGMA quick_check") != [("ok",)]:
            raise DamagedLog(str(self._path), 0, "SQLite's own check failed")
        self._database.executescript(TABLES)
        mine, owners = self._place.identity.incarnation, self._all("SELECT incarnation FROM owner")
        if owners not in ([], [(mine,)]):
            raise WrongDirectory(f"{self._path} is the log of another directory")
        if not owners:
            if self._place.opened_before:
                raise DamagedLog(str(self._path), 0, "the log is empty, and term and votes are gone")
            self._all("INSERT INTO owner VALUES (?)", mine)
        self._all(RESERVE, 1)

    def _stand_on_snapshots(self) -> None:
        """A snapshot that became visible just before a crash is installed; a log behind one that is gone is refused."""
        for number in self._snapshots.groups():
            newest = self._snapshots.newest(number)
            if newest is not None:
                self.write([Write(0, number, install=newest)])
        self.sync()
        for number, purged in self._all("SELECT number, purged_index FROM groups"):
            newest = self._snapshots.newest(number)
            if purged > (newest.index if newest is not None else 0):
                raise DamagedLog(str(self._path), 0, f"the log of group {number} begins behind entry {purged}, and no "
                                                     f"snapshot reaches it{self._snapshots.broken_words(number)}")

    def close(self) -> None:
        with self._lock:
            if self._database is not None:
                if self._failed is None:
                    with suppress(StorageError):
                        self.sync()
                self._database.close()
            self._database = None
            self._snapshots.close()

    # --- writing

    def write(self, writes: Sequence[Write]) -> None:
        with self._lock:
            self._usable()
            try:
                self._attempt(writes)
            except DiskFull:
                if any(write.frames for write in writes):
                    raise
                self._attempt(writes, give_up_reserve=True)
            self._unsynced.append(writes)

    def _attempt(self, writes: Sequence[Write], *, give_up_reserve: bool = False) -> None:
        """All of these, or none."""
        database = self._database
        assert database is not None
        if not database.in_transaction:
            self._all("BEGIN IMMEDIATE")
        self._all("SAVEPOINT attempt")
        try:
            if give_up_reserve:
                self._all("DELETE FROM reserve")
            for write in writes:
                self._apply(write)
            self._all("RELEASE attempt")
        except BaseException as error:
            kept = database.in_transaction or not self._unsynced  # else SQLite has undone what came before, too
            if database.in_transaction:
                self._all("ROLLBACK TO attempt")
                self._all("RELEASE attempt")
            if isinstance(error, sqlite3.Error):
                raise self._trouble(error, kept) from error
            raise

    def _trouble(self, error: sqlite3.Error, kept: bool) -> StorageError:
        """In the words that a node understands. ``kept``: nothing is lost but what was tried."""
        if kept and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            return DiskFull(f"{self._path}: {error}")
        self._failed = f"{self._path}: {error}; what the disk holds is not known any more"
        return WriteFailed(self._failed)

    def sync(self) -> None:
        with self._lock:
            self._usable()
            database, unsynced = self._database, self._unsynced
            assert database is not None
            if database.in_transaction:
                try:
                    self._all("COMMIT")
                except sqlite3.Error as error:
                    if database.in_transaction:
                        self._all("ROLLBACK")
                    self._unsynced = []
                    trouble = self._trouble(error, kept=len(unsynced) == 1)
                    if isinstance(trouble, WriteFailed) or any(write.frames for write in unsynced[0]):
                        raise trouble from error
                    self._attempt(unsynced[0], give_up_reserve=True)
                    try:
                        self._all("COMMIT")
                    except sqlite3.Error as again:
                        raise self._trouble(again, kept=False) from again
            self._unsynced = []

    def _usable(self) -> None:
        if self._failed is not None:
            raise WriteFailed(self._failed)
        if self._database is None:
            raise UsageError("this storage is not open")

    def _all(self, sql: str, *values: Any) -> list[Any]:
        assert self._database is not None
        return self._database.execute(sql, values).fetchall()

    # --- what a write means: its fields, in this order

    def _apply(self, write: Write) -> None:
        number = write.group
        self._all("INSERT OR IGNORE INTO groups (number) VALUES (?)", number)
        if write.forget:
            self._begin_behind(number, 0, 0, 0)
        if write.install is not None and not self._holds(number, write.install.index, write.install.term):
            self._begin_behind(number, write.install.index, write.install.term, write.install.mark)
        if write.truncate_from:
            self._truncate(number, write.truncate_from)
        if write.hard_state is not None:
            self._all("UPDATE groups SET term = ?, voted_for = ? WHERE number = ?",
                      write.hard_state.term, write.hard_state.voted_for, number)
        for frame in write.frames:
            self._append(number, frame)
        if write.lapse is not None:
            self._all("UPDATE groups SET lapse_index = ?, lapse_term = ?, told = ? WHERE number = ?",
                      write.lapse.index, write.lapse.term, json.dumps(write.lapse.told), number)
        if write.purge_to:
            self._purge(number, write.purge_to)

    def _begin_behind(self, number: int, index: int, term: int, mark: int) -> None:
        self._all("DELETE FROM frames WHERE number = ?", number)
        self._all("UPDATE groups SET purged_index = ?, purged_term = ?, purged_mark = ? WHERE number = ?",
                  index, term, mark, number)

    def _truncate(self, number: int, index: int) -> None:
        starts = self._all("SELECT 1 FROM frames WHERE number = ? AND first = ?", number, index)
        if not starts and index != self._end(number)[0] + 1:
            raise UsageError(f"cannot truncate from {index}: not the first entry of a frame in this log")
        self._all("DELETE FROM frames WHERE number = ? AND first >= ?", number, index)

    def _append(self, number: int, frame: Frame) -> None:
        last, _, mark = self._end(number)
        if frame.first != last + 1 or (frame.chain != mark and frame.chain and mark):
            raise UsageError(f"{frame!r} does not continue group {number} behind {last}")
        self._all("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?, ?)",
                  number, frame.first, frame.last, frame.term, frame.kind, frame.mark, frame.data)

    def _purge(self, number: int, index: int) -> None:
        """Whole frames, and none beyond the newest snapshot."""
        newest = self._snapshots.newest(number)
        limit = min(index, newest.index if newest is not None else 0)
        for last, term, mark in self._all("SELECT last, term, mark FROM frames WHERE number = ? AND last <= ? "
                                          "ORDER BY first DESC LIMIT 1", number, limit):
            self._all("DELETE FROM frames WHERE number = ? AND last <= ?", number, last)
            self._all("UPDATE groups SET purged_index = ?, purged_term = ?, purged_mark = ? WHERE number = ?",
                      last, term, mark, number)

    # --- reading

    def _purged(self, number: int) -> tuple[int, int, int]:
        found = self._all("SELECT purged_index, purged_term, purged_mark FROM groups WHERE number = ?", number)
        index, term, mark = found[0] if found else (0, 0, 0)
        return index, term, mark

    def _end(self, number: int) -> tuple[int, int, int]:
        """(index, term, mark) of the last entry, or of the last purged one."""
        for last, term, mark in self._all(
            "SELECT last, term, mark FROM frames WHERE number = ? ORDER BY first DESC LIMIT 1", number,
        ):
            return last, term, mark
        return self._purged(number)

    def _holds(self, number: int, index: int, term: int) -> bool:
        """Whether this very entry is in the log, or was before it was purged."""
        purged = self._purged(number)
        if index <= purged[0]:
            return index < purged[0] or term == purged[1]
        return bool(self._all("SELECT 1 FROM frames WHERE number = ? AND first <= ? AND last >= ? AND term = ?",
                              number, index, index, term))

    def read(self, group: int, first: int, max_bytes: int) -> list[Frame]:
        with self._lock:
            out: list[Frame] = []
            assert self._database is not None
            rows = self._database.execute(
                "SELECT first, data FROM frames WHERE number = ? AND last >= ? ORDER BY first", (group, first))
            try:
                for start, data in rows:
                    if (not out and start > first) or (out and max_bytes < len(data)):
                        break
                    out.append(self._checked(data, group, start))
                    max_bytes -= len(data)
            except sqlite3.DatabaseError as error:
                raise DamagedLog(str(self._path), first, str(error)) from error
            finally:
                rows.close()
            return out

    def _checked(self, data: bytes, group: int, first: int) -> Frame:
        """What SQLite gives back is checked as what a disk does."""
        try:
            frame = parse(data)
        except MalformedMessage as error:
            raise DamagedLog(str(self._path), first, str(error)) from error
        if (frame.group, frame.first) != (group, first):
            raise DamagedLog(str(self._path), first, f"{frame!r} stands at entry {first} of group {group}")
        return frame

    def recovered(self, group: int) -> Recovered:
        with self._lock:
            found = self._all(
                "SELECT term, voted_for, lapse_index, lapse_term, told FROM groups WHERE number = ?", group)
            if not found:
                return Recovered()
            term, voted_for, lost, lost_term, lives = found[0]
            told = tuple(json.loads(lives))
            runs: list[tuple[int, int]] = []
            for first, of_term in self._all("SELECT first, term FROM frames WHERE number = ? ORDER BY first", group):
                if not runs or runs[-1][1] != of_term:
                    runs.append((first, of_term))
            changes = self._all("SELECT first, data FROM frames WHERE number = ? AND kind = ? ORDER BY first",
                                group, Kind.MEMBERSHIP)
            return Recovered(
                HardState(term, voted_for), *self._purged(group), *self._end(group), runs,
                [self._checked(data, group, first) for first, data in changes], self._snapshots.newest(group),
                Lapse(lost, lost_term, told) if lost else None, told)

    # --- snapshots: the library's own, one file each

    def create_snapshot(self, group: int, meta: SnapshotMeta) -> SnapshotSink:
        return self._snapshots.create(group, meta)

    def receive_snapshot(self, group: int, meta: SnapshotMeta) -> SnapshotSink:
        return self._snapshots.receive(group, meta)

    def newest_snapshot(self, group: int) -> SnapshotMeta | None:
        return self._snapshots.newest(group)

    def read_snapshot(self, group: int, index: int, offset: int, max_bytes: int) -> bytes | None:
        return self._snapshots.read(group, index, offset, max_bytes)

    def drop_snapshots(self, group: int) -> None:
        self._snapshots.drop(group)

    # --- capabilities

    kind = "sqlite"  # noted in the directory; a renamed class is still the same storage

    def has_room(self) -> bool:
        """Whether the reserve, and as much again, can be had."""
        with self._lock:
            self._usable()
            assert self._database is not None
            if self._database.in_transaction:
                return False  # asked again later
            try:
                self._all(RESERVE, 1)
                self._all(RESERVE, 2)
                self._all("DELETE FROM reserve WHERE number = 2")
            except sqlite3.Error as error:
                if not isinstance(trouble := self._trouble(error, kept=True), DiskFull):
                    raise trouble from error
                return False
            return True
