"""What a disk holds after a power cut, from a recording of what a process did to its files.

Covered by a completed sync: kept. Everything else, each write on its own: kept, dropped, or torn at 512-byte sectors;
names made or moved since their directory was synced: kept or gone. Sectors are atomic; nothing else is promised.
Knows the recorder's format; knows nothing of Raft.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import attrs

OPENED, CLOSED, WRITTEN, TRUNCATED, SYNC_BEGUN, SYNC_DONE, RENAMED, REMOVED, MADE_DIR = range(1, 10)
_HEAD = struct.Struct("<BiQI")
O_CREAT, O_TRUNC = 0o100, 0o1000
SECTOR = 512


@attrs.frozen
class Record:
    """One call. ``data`` is what was written, or the path (two, split by NUL, for a rename)."""

    op: int
    fd: int
    offset: int
    data: bytes


def records(recording: bytes) -> Iterator[Record]:
    """All whole records; a kill may have cut the last one."""
    at = 0
    while at + _HEAD.size <= len(recording):
        op, fd, offset, length = _HEAD.unpack_from(recording, at)
        at += _HEAD.size
        if at + length > len(recording):
            return
        yield Record(op, fd, offset, recording[at : at + length])
        at += length


@attrs.define(eq=False)
class _File:
    """Synced content, and what was done since: (offset, data), or (size, None) for a truncation."""

    synced: bytearray = attrs.Factory(bytearray)
    since: list[tuple[int, bytes | None]] = attrs.Factory(list)
    covered: int = 0
    """How many of ``since`` a running sync covers."""

    def sync(self) -> None:
        for offset, data in self.since[: self.covered]:
            _write(self.synced, offset, data)
        del self.since[: self.covered]
        self.covered = 0

    def after_cut(self, rng: Random) -> bytes:
        """One image this file may have when power fails now."""
        image = bytearray(self.synced)
        keep = rng.choice((0.0, 0.5, 0.9, 1.0))
        for offset, data in self.since:
            if data is None:
                if rng.random() < keep:
                    _write(image, offset, None)
                continue
            first = offset - offset % SECTOR
            whole = rng.random() < keep
            for sector in range(first, offset + len(data), SECTOR):
                if whole or rng.random() < keep / 2:
                    start, end = max(sector, offset), min(sector + SECTOR, offset + len(data))
                    _write(image, start, data[start - offset : end - offset])
        return bytes(image)


_Change = tuple[str, str, _File]
"""(old name or "" for a new file, new name or "" for a removed one, the file)."""


def _write(image: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del image[offset:]
        image.extend(bytes(offset - len(image)))
        return
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


class Disk:
    """Files below one root while a recording is played; ``cut`` gives what survives a power cut at this point."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.durable: dict[str, _File] = {}
        """Names as the directories have them on disk."""
        self.names: dict[str, _File] = {}
        """Names as the process sees them."""
        self._since: dict[str, list[_Change]] = {}
        """Changes of each directory's names since its last sync, in order."""
        self._fds: dict[int, tuple[str, _File | None]] = {}
        self._dir_covered: dict[str, int] = {}
        self.syncs = 0

    def play(self, record: Record) -> None:
        """Take one record."""
        if record.op in (RENAMED, REMOVED):
            self._renamed(record)
        elif record.op == OPENED:
            self._opened(record)
        elif record.op == CLOSED:
            self._fds.pop(record.fd, None)
        elif record.op in (SYNC_BEGUN, SYNC_DONE):
            self._synced(record)
        elif record.op in (WRITTEN, TRUNCATED):
            file = self._fds[record.fd][1]
            assert file is not None
            file.since.append((record.offset, record.data if record.op == WRITTEN else None))

    def _opened(self, record: Record) -> None:
        path = record.data.decode()
        file = self.names.get(path)
        if file is None and record.offset & O_CREAT:
            file = self.names[path] = _File()
            self._change(path, ("", path, file))
        elif file is not None and record.offset & O_TRUNC:
            file.since.append((0, None))
        self._fds[record.fd] = path, file

    def _renamed(self, record: Record) -> None:
        old, _, new = record.data.decode().partition("\0")
        file = self.names.pop(old)
        if record.op == RENAMED:
            self.names[new] = file
        self._change(old, (old, new, file))

    def _change(self, path: str, change: _Change) -> None:
        self._since.setdefault(path.rsplit("/", 1)[0], []).append(change)

    def _synced(self, record: Record) -> None:
        path, file = self._fds[record.fd]
        if file is None:  # a directory
            if record.op == SYNC_BEGUN:
                self._dir_covered[path] = len(self._since.get(path, ()))
            else:
                self._settle(path, self._dir_covered.pop(path, 0))
        elif record.op == SYNC_BEGUN:
            file.covered = len(file.since)
        else:
            self.syncs += 1
            file.sync()

    def _settle(self, directory: str, count: int) -> None:
        changes = self._since.get(directory, [])
        _rename_all(self.durable, changes[:count])
        del changes[:count]

    def cut(self, target: Path, rng: Random) -> None:
        """Write one image of the disk after a power cut now below ``target``."""
        survivors = dict(self.durable)
        for directory in sorted(self._since):
            changes = self._since[directory]
            _rename_all(survivors, changes[: rng.randint(0, len(changes))])
        for path in sorted(survivors):
            made = target / path[len(self.root) + 1 :]
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(survivors[path].after_cut(rng))


def _rename_all(names: dict[str, _File], changes: list[_Change]) -> None:
    """Carry out a prefix of a directory's changes. Directories order their changes (ext4, XFS journal them)."""
    for old, new, file in changes:
        names.pop(old, None)
        if new:
            names[new] = file
