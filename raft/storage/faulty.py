"""Faults for any storage: ``FaultyFiles`` around the files below it, ``FaultyStorage`` around the storage itself.

``FaultyFiles`` makes every ``Files`` forget: a power cut loses, tears and, by keeping later writes and losing
earlier ones, reorders what was not synced. Both raise errors on demand, lie, flip bits and wait, and count in
``counts`` what happened. They decide nothing by themselves: a test says what and when, an ``rng`` what a cut leaves.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final

import attrs

from raft.errors import DamagedLog, DiskFull, StorageError, WriteFailed
from raft.frame import Frame
from raft.messages import Recovered, SnapshotMeta, Write
from raft.storage.interface import File, Files, SnapshotSink, Storage

SECTOR_BYTES: Final = 512


def _no_wait(_seconds: float) -> None:
    """Stands for ``sleep`` where no operation is slow."""


class _Planned:
    """Failures that were ordered: by operation, after how many good ones."""

    def __init__(self) -> None:
        self._plans: dict[str, list[tuple[int, Exception]]] = {}
        self.counts: Counter[str] = Counter()

    def add(self, operation: str, error: Exception, skip: int) -> None:
        self._plans.setdefault(operation, []).append((skip, error))

    def take(self, operation: str) -> Exception | None:
        plans = self._plans.get(operation)
        for at, (skip, error) in enumerate(plans or ()):
            assert plans is not None
            if skip:
                plans[at] = skip - 1, error
            else:
                del plans[at]
                self.counts[operation] += 1
                return error
        return None


@attrs.define(eq=False)
class _Undo:
    """The bytes that a write covered, and the size of the file before it."""

    offset: int
    before: bytes
    written: int
    size: int


@attrs.define(eq=False)
class _Name:
    """The name of a file, which may change while the file is open."""

    path: str


class FaultyFiles:
    """Implements ``Files`` around another one. Names are as durable as below; data is what a cut may take."""

    def __init__(self, files: Files, *, sleep: Callable[[float], None] = _no_wait) -> None:
        self.files = files
        self.slow_s = 0.0
        """Seconds that every write and sync takes."""
        self.lying_syncs = False
        """Syncs claim success and do nothing."""
        self.full = False
        """True: no file may grow."""
        self.flip: tuple[str, int] | None = None
        """(path, offset): this byte reads wrong."""
        self._planned = _Planned()
        self._sleep = sleep
        self._undo: dict[str, list[_Undo]] = {}
        self._names: dict[str, _Name] = {}

    @property
    def counts(self) -> Counter[str]:
        """Faults that happened, by operation."""
        return self._planned.counts

    def fail(self, operation: str, code: int = errno.EIO, *, skip: int = 0) -> None:
        """Let the next "read", "write" (half of it is done), "sync" (what it covered is lost) or "allocate" fail."""
        self._planned.add(operation, OSError(code, os.strerror(code)), skip)

    def power_cut(self, rng: Random) -> None:
        """Every write since its file's last sync is kept, lost or torn at sectors, each on its own."""
        for path, undone in self._undo.items():
            file = self.files.open(path)
            try:
                for each in reversed(undone):
                    self._decide(file, each, rng)
                file.sync()
            finally:
                file.close()
        self._undo.clear()

    def _decide(self, file: File, undo: _Undo, rng: Random) -> None:
        fate = rng.choice(["kept", "lost", "torn"])
        self.counts[f"write {fate}"] += 1
        if fate == "kept":
            return
        before = undo.before + bytes(undo.written - len(undo.before))
        for start in range(0, undo.written, SECTOR_BYTES):
            if fate == "lost" or rng.random() < 0.5:
                file.pwrite([before[start : start + SECTOR_BYTES]], undo.offset + start)
        if fate == "lost" and file.size() > undo.size >= undo.offset:
            file.truncate(undo.size)

    def trouble(self, operation: str) -> None:
        error = self._planned.take(operation)
        if error is not None:
            raise error

    def wait(self) -> None:
        if self.slow_s:
            self.counts["slow"] += 1
            self._sleep(self.slow_s)

    def planned_write(self) -> Exception | None:
        return self._planned.take("write")

    def remember(self, path: str, undo: _Undo) -> None:
        self._undo.setdefault(path, []).append(undo)

    def synced(self, path: str) -> None:
        self._undo.pop(path, None)

    def open(self, path: str, *, create: bool = False) -> _FaultyFile:
        file = self.files.open(path, create=create)
        return _FaultyFile(self, file, self._names.setdefault(path, _Name(path)))

    def list(self, path: str) -> list[str]:
        return self.files.list(path)

    def rename(self, old: str, new: str) -> None:
        self.files.rename(old, new)
        self._undo.pop(new, None)
        if old in self._undo:
            self._undo[new] = self._undo.pop(old)
        self._names.pop(new, None)
        if old in self._names:
            name = self._names[new] = self._names.pop(old)
            name.path = new

    def remove(self, path: str) -> None:
        self.files.remove(path)
        self._names.pop(path, None)
        self._undo.pop(path, None)

    def make_dir(self, path: str) -> None:
        self.files.make_dir(path)

    def sync_dir(self, path: str) -> None:
        self.trouble("sync_dir")
        self.files.sync_dir(path)

    def lock(self) -> None:
        self.files.lock()

    def unlock(self) -> None:
        self.files.unlock()

    def free_bytes(self) -> int:
        return 0 if self.full else self.files.free_bytes()


class _FaultyFile:
    """A file whose operations fail as ``FaultyFiles`` plans it."""

    def __init__(self, files: FaultyFiles, file: File, name: _Name) -> None:
        self._files, self._file, self._name = files, file, name

    def pread(self, size: int, offset: int) -> bytes:
        self._files.trouble("read")
        data = self._file.pread(size, offset)
        if self._files.flip is not None:
            path, at = self._files.flip
            if path == self._name.path and offset <= at < offset + len(data):
                self._files.counts["flip"] += 1
                at -= offset
                return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        return data

    def pwrite(self, buffers: Sequence[bytes], offset: int) -> None:
        files, size = self._files, self._file.size()
        files.wait()
        data = b"".join(buffers)
        if offset + len(data) > size:
            self._demand()
        error = files.planned_write()
        if error is not None:
            data = data[: len(data) // 2]
        files.remember(self._name.path, _Undo(offset, self._file.pread(len(data), offset), len(data), size))
        self._file.pwrite([data], offset)
        if error is not None:
            raise error

    def _demand(self) -> None:
        if self._files.full:
            self._files.counts["full"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._name.path)

    def sync(self) -> None:
        self._files.wait()
        self._files.trouble("sync")
        if self._files.lying_syncs:
            self._files.counts["lying sync"] += 1
            return
        self._file.sync()
        self._files.synced(self._name.path)

    def size(self) -> int:
        return self._file.size()

    def allocate(self, size: int) -> None:
        self._files.trouble("allocate")
        if size > self._file.size():
            self._demand()
        self._file.allocate(size)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


class FaultyStorage:
    """Implements ``Storage`` around another one: what a node must live with, whatever its storage is made of."""

    def __init__(self, storage: Storage, *, sleep: Callable[[float], None] = _no_wait) -> None:
        self.storage = storage
        self.slow_s = 0.0
        """Seconds that every write and sync takes."""
        self.full = False
        """Frames raise ``DiskFull``; term and vote still get through."""
        self.flip = False
        """Reading frames or snapshots finds damage."""
        self._planned = _Planned()
        self._sleep = sleep
        self._failed: StorageError | None = None

    @property
    def counts(self) -> Counter[str]:
        """Faults that happened, by operation."""
        return self._planned.counts

    def fail(self, operation: str, *, skip: int = 0) -> None:
        """Let the next "write" or "sync" raise ``WriteFailed``, and by promise 3 everything after it."""
        self._planned.add(operation, WriteFailed(f"injected: the {operation} failed"), skip)

    def _step(self, operation: str) -> None:
        if self.slow_s:
            self.counts["slow"] += 1
            self._sleep(self.slow_s)
        if self._failed is not None:
            raise self._failed
        error = self._planned.take(operation)
        if error is not None:
            assert isinstance(error, StorageError)
            self._failed = error
            raise error

    def open(self) -> dict[int, Recovered]:
        return self.storage.open()

    def write(self, writes: Sequence[Write]) -> None:
        self._step("write")
        if self.full and any(write.frames for write in writes):
            self.counts["full"] += 1
            raise DiskFull("injected: no room")
        self.storage.write(writes)

    def sync(self) -> None:
        self._step("sync")
        self.storage.sync()

    def read(self, group: int, first: int, max_bytes: int) -> list[Frame]:
        if self.flip:
            self.counts["flip"] += 1
            raise DamagedLog("injected", first, "a bit flipped")
        return self.storage.read(group, first, max_bytes)

    def create_snapshot(self, group: int, meta: SnapshotMeta) -> SnapshotSink:
        self._snapshot_room()
        return self.storage.create_snapshot(group, meta)

    def receive_snapshot(self, group: int, meta: SnapshotMeta) -> SnapshotSink:
        self._snapshot_room()
        return self.storage.receive_snapshot(group, meta)

    def _snapshot_room(self) -> None:
        if self.full:
            self.counts["full"] += 1
            raise DiskFull("injected: no room for a snapshot")

    def newest_snapshot(self, group: int) -> SnapshotMeta | None:
        return self.storage.newest_snapshot(group)

    def read_snapshot(self, group: int, index: int, offset: int, max_bytes: int) -> bytes | None:
        if self.flip:
            self.counts["flip"] += 1
            raise DamagedLog("injected", offset, "a bit of the snapshot flipped")
        return self.storage.read_snapshot(group, index, offset, max_bytes)

    def drop_snapshots(self, group: int) -> None:
        self.storage.drop_snapshots(group)

    def recovered(self, group: int) -> Recovered:
        return self.storage.recovered(group)

    def close(self) -> None:
        self.storage.close()

    @property
    def kind(self) -> str:
        return self.storage.kind

    def only_appends(self, size: int) -> bool:
        return self.storage.only_appends(size)

    @property
    def needs_maintenance(self) -> bool:
        return self.storage.needs_maintenance

    def maintain(self) -> bool:
        return self.storage.maintain()

    def has_room(self) -> bool:
        return not self.full and self.storage.has_room()

    def scrub(self, *, step_bytes: int = 1 << 20) -> Iterator[str]:
        return self.storage.scrub(step_bytes=step_bytes)

    @property
    def log_bytes(self) -> int:
        return self.storage.log_bytes

    @property
    def too_large(self) -> Mapping[int, int]:
        return self.storage.too_large

    @property
    def damaged(self) -> Mapping[int, DamagedLog]:
        return self.storage.damaged
