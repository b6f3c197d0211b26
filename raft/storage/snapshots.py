"""Snapshots on disk: one file each, written aside, synced, renamed; received ones can go on after a crash.

File: header, encoded meta, chunks of ``CHUNK_BYTES`` each with a CRC, trailer with size and CRC of the whole state;
``docs/reference/storage-format.md`` has the tables. The newest good one counts, two are kept. A broken one is set
aside under another name, never deleted unseen. Knows nothing of the log. Safe to use from several threads.
"""

from __future__ import annotations

import contextlib
import re
import struct
import threading
from collections.abc import Iterator
from typing import Final

import attrs
from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from raft.errors import DamagedLog, DiskFull, MalformedMessage, StorageError, UsageError, WriteFailed
from raft.messages import SnapshotMeta
from raft.snapshotmeta import META_BYTES_MAX, decode_meta, encode_meta
from raft.storage.interface import File, Files
from raft.storage.trouble import NO_DESCRIPTOR, PASSING, trouble

DIRECTORY: Final = "snapshots"
CHUNK_BYTES: Final = 1 << 20
KEPT: Final = 2
VERSION: Final = 1
_MAGIC: Final = b"QRs1"
_END_MAGIC: Final = b"QRe1"
_HEADER: Final = struct.Struct("<4sHHQIII")
_CHUNK: Final = struct.Struct("<QII")
_END: Final = struct.Struct("<4sIQQI")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
END_BYTES: Final = _END.size + _CRC.size
_NAME: Final = re.compile(r"([0-9]+)-([0-9]{20})-([0-9]+)\.(snap|part|tmp)")


def _path(group: int, index: int, term: int, suffix: str) -> str:
    return f"{DIRECTORY}/{group}-{index:020d}-{term}.{suffix}"


@attrs.frozen
class StoredSnapshot:
    """A snapshot file whose header, and trailer if it has one, are good."""

    path: str
    group: int
    meta: SnapshotMeta
    start: int
    """Offset of the first chunk."""
    chunk_bytes: int

    def chunk_offset(self, number: int) -> int:
        return self.start + number * (_CHUNK.size + self.chunk_bytes)


def _encode_header(group: int, meta: bytes) -> bytes:
    head = _HEADER.pack(_MAGIC, VERSION, 0, group, CHUNK_BYTES, len(meta), crc32c(meta))
    return head + _CRC.pack(crc32c(head)) + meta


def read_header(file: File, path: str) -> StoredSnapshot:
    """Raises ``DamagedLog`` unless the header is whole and of this version."""
    data = file.pread(HEADER_BYTES, 0)
    if len(data) < HEADER_BYTES or crc32c(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:
        raise DamagedLog(path, 0, "the snapshot's header fails its CRC")
    magic, version, _flags, group, chunk_bytes, length, meta_crc = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != VERSION or not 0 < chunk_bytes <= 1 << 30 or length > META_BYTES_MAX:
        raise DamagedLog(path, 0, f"not a snapshot of version {VERSION}")
    meta = file.pread(length, HEADER_BYTES)
    if crc32c(meta) != meta_crc:
        raise DamagedLog(path, HEADER_BYTES, "the snapshot's meta fails its CRC")
    try:
        return StoredSnapshot(path, group, decode_meta(meta), HEADER_BYTES + length, chunk_bytes)
    except MalformedMessage as error:
        raise DamagedLog(path, HEADER_BYTES, str(error)) from error


def read_stored(file: File, path: str) -> StoredSnapshot:
    """Header and trailer of a finished snapshot. Raises ``DamagedLog``."""
    found = read_header(file, path)
    at = file.size() - END_BYTES
    data = file.pread(END_BYTES, max(at, 0))
    if len(data) < END_BYTES or crc32c(data[: _END.size]) != _CRC.unpack_from(data, _END.size)[0]:
        raise DamagedLog(path, max(at, 0), "the snapshot's trailer fails its CRC")
    magic, crc, size, chunks, _ = _END.unpack_from(data)
    if magic != _END_MAGIC or at != found.start + chunks * _CHUNK.size + size:
        raise DamagedLog(path, at, "the snapshot's trailer does not fit its file")
    return attrs.evolve(found, meta=attrs.evolve(found.meta, size=size, crc=crc))


def read_chunk(file: File, stored: StoredSnapshot, number: int, length: int) -> bytes:
    """One chunk of ``length`` bytes. Raises ``DamagedLog``."""
    at = stored.chunk_offset(number)
    try:
        data = file.pread(_CHUNK.size + length, at)
    except OSError as error:
        raise DamagedLog(stored.path, at, f"cannot be read: {error}") from error
    if len(data) == _CHUNK.size + length:
        offset, found, crc = _CHUNK.unpack_from(data)
        body = data[_CHUNK.size :]
        if (offset, found) == (number * stored.chunk_bytes, length) and crc32c(body) == crc:
            return body
    raise DamagedLog(stored.path, at, f"chunk {number} of the snapshot fails its CRC")


def verify(file: File, stored: StoredSnapshot) -> Iterator[int]:
    """Check every chunk and the whole; yields bytes so far. Raises ``DamagedLog``."""
    done, crc = 0, 0
    while done < stored.meta.size:
        data = read_chunk(file, stored, done // stored.chunk_bytes, min(stored.chunk_bytes, stored.meta.size - done))
        crc = crc32c_extend(crc, data)
        done += len(data)
        yield done
    if crc != stored.meta.crc:
        raise DamagedLog(stored.path, stored.start, "the snapshot as a whole fails its CRC")


class SnapshotStore:
    """The snapshots of all groups in one directory."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.RLock()
        self._stored: dict[int, list[StoredSnapshot]] = {}
        self._broken: dict[int, list[str]] = {}
        self._receiving: dict[int, _Sink] = {}
        self._reading: tuple[StoredSnapshot, File] | None = None

    def load(self) -> None:
        """Find what is there; the newest of each group is checked to the last byte."""
        with self._lock:
            self._stored, self._broken = {}, {}
            self._files.sync_dir(DIRECTORY)  # a name that a killed process left in the cache must not vanish later
            for name in self._files.list(DIRECTORY):
                match = _NAME.fullmatch(name)
                path = f"{DIRECTORY}/{name}"
                if match is None:
                    continue
                if match[4] == "tmp":
                    self._files.remove(path)
                elif match[4] == "snap":
                    self._load(path, int(match[1]))
            for group, held in self._stored.items():
                held.sort(key=lambda each: (each.meta.index, each.meta.term))
                while held and not self._good(held[-1]):
                    self._set_aside(held.pop().path, group)

    def _load(self, path: str, group: int) -> None:
        file = self._files.open(path)
        try:
            stored = read_stored(file, path)
        except DamagedLog as error:
            self._set_aside(path, group, str(error))
        else:
            self._stored.setdefault(group, []).append(stored)
        finally:
            file.close()

    def _good(self, stored: StoredSnapshot) -> bool:
        file = self._files.open(stored.path)
        try:
            for _ in verify(file, stored):
                pass
        except DamagedLog as error:
            self._broken.setdefault(stored.group, []).append(str(error))
            return False
        finally:
            file.close()
        return True

    def _set_aside(self, path: str, group: int, reason: str = "") -> None:
        if reason:
            self._broken.setdefault(group, []).append(reason)
        self._files.rename(path, path + ".broken")

    def broken_words(self, group: int) -> str:
        """Return words about broken snapshots of the group, to add to a sentence; "" if there are none."""
        return "".join(f"; {words}" for words in self._broken.get(group, ()))

    def groups(self) -> list[int]:
        """Groups with a good snapshot."""
        return sorted(group for group, held in self._stored.items() if held)

    def newest(self, group: int) -> SnapshotMeta | None:
        held = self._stored.get(group)
        return held[-1].meta if held else None

    def create(self, group: int, meta: SnapshotMeta) -> _Sink:
        """A sink for this node's own snapshot."""
        meta = attrs.evolve(meta, size=0, crc=0)
        path = _path(group, meta.index, meta.term, "tmp")
        return _Sink(self, self._files, group, meta, path, received=False)

    def receive(self, group: int, meta: SnapshotMeta) -> _Sink:
        """A sink for a leader's snapshot: the one in use, one that goes on behind what is staged, or a fresh one."""
        with self._lock:
            sink = self._receiving.get(group)
            if sink is not None and sink.meta == meta and not sink.ended:
                return sink
            if sink is not None:
                sink.abort()
            path = _path(group, meta.index, meta.term, "part")
            try:
                for name in self._files.list(DIRECTORY):
                    if name.startswith(f"{group}-") and name.endswith(".part") and f"{DIRECTORY}/{name}" != path:
                        self._files.remove(f"{DIRECTORY}/{name}")
            except OSError as error:
                raise _trouble(group, meta, error) from error
            sink = self._receiving[group] = _Sink(self, self._files, group, meta, path, received=True)
            return sink

    def finished(self, stored: StoredSnapshot, staged: str) -> None:
        """Make a staged and synced file visible, then let go of those beyond the newest two."""
        with self._lock:
            self._forget_reader()
            self._files.rename(staged, stored.path)
            self._files.sync_dir(DIRECTORY)
            held = [each for each in self._stored.get(stored.group, ()) if each.path != stored.path]
            held.append(stored)
            held.sort(key=lambda each: (each.meta.index, each.meta.term))
            self._stored[stored.group] = held[-KEPT:]
            for each in held[:-KEPT]:
                with contextlib.suppress(OSError):  # it goes some time after the next opening
                    self._files.remove(each.path)

    def drop(self, group: int) -> None:
        """Remove every file of a group, also what was received in part or set aside."""
        with self._lock:
            self._forget_reader()
            sink = self._receiving.pop(group, None)
            if sink is not None:
                sink.abort()
            self._stored.pop(group, None)
            self._broken.pop(group, None)
            for name in self._files.list(DIRECTORY):
                if name.startswith(f"{group}-"):
                    self._files.remove(f"{DIRECTORY}/{name}")
            self._files.sync_dir(DIRECTORY)

    def read(self, group: int, index: int, offset: int, max_bytes: int) -> bytes | None:
        """Return up to ``max_bytes``, no more than to the end of a chunk. Raises ``DamagedLog``."""
        with self._lock:
            for stored in self._stored.get(group, ()):
                if stored.meta.index == index:
                    break
            else:
                return None
            if self._reading is None or self._reading[0] is not stored:
                self._forget_reader()
                try:
                    self._reading = stored, self._files.open(stored.path)
                except OSError as error:
                    if error.errno in NO_DESCRIPTOR:
                        raise trouble(error) from error
                    raise DamagedLog(stored.path, 0, f"cannot be opened: {error}") from error
            if offset >= stored.meta.size:
                return b""
            number, start = divmod(offset, stored.chunk_bytes)
            length = min(stored.chunk_bytes, stored.meta.size - number * stored.chunk_bytes)
            return read_chunk(self._reading[1], stored, number, length)[start : start + max_bytes]

    def _forget_reader(self) -> None:
        if self._reading is not None:
            self._reading[1].close()
        self._reading = None

    def close(self) -> None:
        with self._lock:
            self._forget_reader()
            for sink in self._receiving.values():
                sink.leave()
            self._receiving.clear()


def _trouble(group: int, meta: SnapshotMeta, error: OSError) -> StorageError:
    words = f"snapshot {meta.index} of group {group}: {error.strerror or error}"
    return DiskFull(words) if error.errno in PASSING else WriteFailed(words)


class _Sink:
    """Implements ``SnapshotSink``. Its failures end this snapshot only, not the storage."""

    def __init__(
        self, store: SnapshotStore, files: Files, group: int, meta: SnapshotMeta, path: str, *, received: bool
    ) -> None:
        self._store, self._files, self.group, self.meta, self._path = store, files, group, meta, path
        self._received, self.ended = received, False
        self._header = _encode_header(group, encode_meta(meta))
        self._start = len(self._header)
        self._buffer = bytearray()
        self._written = self._crc = 0
        self._file: File | None = None
        try:
            self._begin()
        except OSError as error:
            raise self._trouble(error) from error

    @property
    def offset(self) -> int:
        return self._written + len(self._buffer)

    def _begin(self) -> None:
        name = self._path.rpartition("/")[2]
        if name in self._files.list(DIRECTORY):
            if self._received:
                self._file = self._files.open(self._path)
                if self._resume(self._file):
                    return
                self._file.close()
            self._files.remove(self._path)
        self._file = self._files.open(self._path, create=True)
        self._file.pwrite([self._header], 0)

    def _resume(self, file: File) -> bool:
        """Take over the whole chunks that are staged for the same meta."""
        if file.pread(self._start, 0) != self._header:
            return False
        stored = StoredSnapshot(self._path, self.group, self.meta, self._start, CHUNK_BYTES)
        while self._written + CHUNK_BYTES <= self.meta.size:
            try:
                data = read_chunk(file, stored, self._written // CHUNK_BYTES, CHUNK_BYTES)
            except DamagedLog:
                break
            self._crc = crc32c_extend(self._crc, data)
            self._written += len(data)
        return True

    def write(self, data: bytes) -> None:
        """Raises ``DiskFull`` or ``WriteFailed``; the snapshot is dropped then."""
        if self._file is None:
            raise UsageError("this snapshot is finished or aborted")
        self._buffer += data
        try:
            while len(self._buffer) >= CHUNK_BYTES:
                self._write_chunk(self._file, bytes(self._buffer[:CHUNK_BYTES]))
                del self._buffer[:CHUNK_BYTES]
        except OSError as error:
            raise self._trouble(error) from error

    def _write_chunk(self, file: File, data: bytes) -> None:
        number = self._written // CHUNK_BYTES
        at = self._start + number * (_CHUNK.size + CHUNK_BYTES)
        file.pwrite([_CHUNK.pack(self._written, len(data), crc32c(data)), data], at)
        self._crc = crc32c_extend(self._crc, data)
        self._written += len(data)

    def finish(self) -> SnapshotMeta:
        """Raises ``DamagedLog`` if what was received is not what its meta says, ``DiskFull``, ``WriteFailed``."""
        if self._file is None:
            raise UsageError("this snapshot is finished or aborted")
        try:
            if self._buffer:
                self._write_chunk(self._file, bytes(self._buffer))
                self._buffer.clear()
            meta = attrs.evolve(self.meta, size=self._written, crc=self._crc)
            if self._received and meta != self.meta:
                self.abort()
                raise DamagedLog(self._path, 0, f"the received snapshot has size {meta.size} and CRC {meta.crc}, "
                                                f"its meta says {self.meta.size} and {self.meta.crc}")
            chunks = -(-self._written // CHUNK_BYTES)
            end = _END.pack(_END_MAGIC, self._crc, self._written, chunks, 0)
            at = self._start + self._written + chunks * _CHUNK.size
            self._file.pwrite([end + _CRC.pack(crc32c(end))], at)
            self._file.truncate(at + END_BYTES)
            self._file.sync()
            self._file.close()
            self._file, self.ended = None, True
            path = _path(self.group, meta.index, meta.term, "snap")
            self._store.finished(StoredSnapshot(path, self.group, meta, self._start, CHUNK_BYTES), self._path)
        except OSError as error:
            raise self._trouble(error) from error
        return meta

    def _trouble(self, error: OSError) -> StorageError:
        self.abort()
        return _trouble(self.group, self.meta, error)

    def abort(self) -> None:
        """Drop what is staged, and its file."""
        if self.ended:
            return
        self.leave()
        with contextlib.suppress(OSError):  # the next snapshot or opening removes it
            self._files.remove(self._path)

    def leave(self) -> None:
        """Close, keeping what is staged for another time."""
        self.ended = True
        if self._file is not None:
            self._file.close()
            self._file = None
