"""The few file operations that the store is built on, and a directory in memory that forgets what was not synced.

It calls nothing of the operating system: ``broker.store.directory`` does.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import attrs


class File(Protocol):
    """An open file. Errors are ``OSError`` as the system raises them."""

    def pread(self, size: int, offset: int, *, cached: bool = True) -> bytes:
        """Read ``size`` bytes, fewer only at the end of the file.

        ``cached`` False: nobody wants them again soon, so the system need not keep them in memory."""
        raise NotImplementedError

    def data_from(self, offset: int) -> int | None:
        """Return the first place from ``offset`` on that may hold more than zeros; None: none does up to the end."""
        raise NotImplementedError

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of it, or raise ``OSError``."""
        raise NotImplementedError

    def write_past(self, parts: Sequence[bytes | memoryview], offset: int) -> None:
        """Write the parts, one after the other at once. The system begins at once to bring them to the disk, and need
        not keep them in memory once they are there; they are no more durable than other data before ``sync``."""
        raise NotImplementedError

    def read_ahead(self, wanted: bool) -> None:
        """Say whether the system may fetch bytes after those that are read. A file may ignore it."""
        raise NotImplementedError

    def size(self) -> int:
        raise NotImplementedError

    def resize(self, size: int) -> None:
        """Cut off what is after ``size``, or grow by zeros that take no room yet."""
        raise NotImplementedError

    def reserve(self, offset: int, size: int) -> None:
        """Take room on the disk for that part, which keeps its content. Raises OSError ENOSPC if there is none."""
        raise NotImplementedError

    def sync(self) -> None:
        """Bring data and size to the disk. Any thread may call it; does nothing once the file is closed."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


@attrs.frozen
class Space:
    """Bytes of a disk; ``free`` are those that an ordinary process may take."""

    total: int
    free: int

    @property
    def used_ratio(self) -> float:
        return 1 - self.free / self.total if self.total else 0.0


class Files(Protocol):
    """A directory tree. Paths are relative, with ``/``."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; ``create`` makes it, and the folders above, if it is not there."""
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        raise NotImplementedError

    def space(self) -> Space:
        """Return the size and the free room of the disk that these files are on."""
        raise NotImplementedError

    def disks(self) -> Sequence[Files]:
        """Return a tree on each of the disks that are written to now."""
        raise NotImplementedError

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted; [] if there is none."""
        raise NotImplementedError

    def rename(self, old: str, new: str) -> None:
        """Replace ``new`` at one stroke."""
        raise NotImplementedError

    def remove(self, path: str) -> None:
        """Remove the file, if it is there: an operator who needed the room may have removed it."""
        raise NotImplementedError

    def remove_folder(self, path: str) -> None:
        """Remove the folder if it is empty."""
        raise NotImplementedError

    def sync_dir(self, path: str) -> None:
        """Bring the names in this folder to the disk."""
        raise NotImplementedError

    def lock(self) -> None:
        """Hold the tree against other processes, a Java broker among them. Raises ``WrongStore``."""
        raise NotImplementedError

    def unlock(self) -> None:
        raise NotImplementedError


def read_whole(files: Files, path: str) -> bytes | None:
    """The content of a small file; None if it is not there."""
    if not files.exists(path):
        return None
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_whole(files: Files, path: str, data: bytes) -> None:
    """Replace a small file: after any crash it is the old one or the new one.

    The old one stays as ``.bak``, which is not synced: a power cut right now may damage the copy, and leaves the file
    itself whole. On a disk without room the spare gives way."""
    with_spare(files, lambda: _replace(files, path, data))


def _replace(files: Files, path: str, data: bytes) -> None:
    folder = path.rpartition("/")[0]
    new = f"{path}.tmp"
    _write(files, new, data)
    old = read_whole(files, path)
    if old is not None:
        _write(files, f"{path}.bak.tmp", old, sync=False)
        files.rename(f"{path}.bak.tmp", f"{path}.bak")
    files.rename(new, path)
    files.sync_dir(folder)
    while old is None and folder:  # the folder may be new as well
        folder = folder.rpartition("/")[0]
        files.sync_dir(folder)


def _write(files: Files, path: str, data: bytes, *, sync: bool = True) -> None:
    file = files.open(path, create=True)
    try:
        file.resize(0)
        file.pwrite(data, 0)
        if sync:
            file.sync()
    finally:
        file.close()


# --- a disk without room -------------------------------------------------------------------------------------

SPARE: Final = "spare"
SPARE_BYTES: Final = (256 << 10, 64 << 10, 16 << 10)
"""Sizes of a spare; the first that there is room for is taken."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def no_room(error: OSError) -> bool:
    """Return whether the error says that the disk is full, or this user's quota."""
    return error.errno in _NO_ROOM


def keep_spare(files: Files) -> None:
    """Keep room for the smallest files, which say who this replica is and what its log is worth, on a full disk."""
    for size in SPARE_BYTES:
        if files.exists(SPARE):
            return
        try:
            spare = files.open(SPARE, create=True)
            try:
                spare.reserve(0, size)
            finally:
                spare.close()
        except OSError:
            files.remove(SPARE)


def with_spare(files: Files, write: Callable[[], None]) -> None:
    """Run ``write``; without room run it again, in the room of the spare. Raises what ``write`` raises."""
    try:
        write()
    except OSError as error:
        if not no_room(error) or not files.exists(SPARE):
            raise
        files.remove(SPARE)
        try:
            write()
        finally:
            keep_spare(files)


# --- in memory -----------------------------------------------------------------------------------------------

Survivors = Callable[[int], int]
"""Chooses what a crash leaves: given a number of unsynced changes, returns how many of them survive."""
SECTOR_BYTES: Final = 512
"""Size of a sector: a disk writes it whole or not at all."""
ZEROS_FROM: Final = 4 << 20
"""So many zeros at the end of a file in memory are counted, and not stored."""


Hook = Callable[[str], None]
"""Called with what is about to happen: write, resize, reserve, sync, rename, remove, sync_dir."""


def _nothing(what: str) -> None:
    pass


@attrs.define(eq=False)
class MemoryFile:
    """Implements ``File``. ``fault`` is raised by the next write or sync."""

    data: bytearray = attrs.field(factory=bytearray)
    synced: bytearray = attrs.field(factory=bytearray, converter=bytearray)
    """What the last sync left on the disk."""
    changes: list[tuple[int, bytes | None]] = attrs.field(factory=list)
    """Changes since the last sync: where what was written, or the new size and None."""
    fault: OSError | None = None
    hook: Hook = _nothing
    reads_ahead: bool = True
    zeros: int = 0
    """How many zeros follow ``data``: a large file that is not written yet takes no memory."""
    synced_zeros: int = 0
    """How many zeros follow ``synced``."""

    def read_ahead(self, wanted: bool) -> None:
        self.reads_ahead = wanted

    def pread(self, size: int, offset: int, *, cached: bool = True) -> bytes:
        assert size >= 0 and offset >= 0, "the system refuses less than nothing"
        part = bytes(self.data[offset : offset + size])
        if self.zeros:
            part += bytes(max(min(size, self.size() - offset) - len(part), 0))
        return part

    def data_from(self, offset: int) -> int | None:
        assert offset >= 0, "the system refuses less than nothing"
        return offset if offset < self.size() else None

    def write_past(self, parts: Sequence[bytes | memoryview], offset: int) -> None:
        self.pwrite(b"".join(parts), offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        assert offset >= 0, "the system refuses less than nothing"
        self._begin("write")
        self.zeros = _write_into(self.data, self.zeros, offset, data)
        self.changes.append((offset, bytes(data)))

    def size(self) -> int:
        return len(self.data) + self.zeros

    def resize(self, size: int) -> None:
        assert size >= 0, "the system refuses less than nothing"
        self._begin("resize")
        self.zeros = _resize(self.data, size)
        self.changes.append((size, None))

    def reserve(self, offset: int, size: int) -> None:
        assert offset >= 0 and size > 0, "the system refuses to reserve nothing"
        self._begin("reserve")

    def sync(self) -> None:
        self._begin("sync")
        for at, data in self.changes:
            self.synced_zeros = (_resize(self.synced, at) if data is None
                                 else _write_into(self.synced, self.synced_zeros, at, data))
        self.changes.clear()

    def close(self) -> None:
        """Nothing to do: memory is released with the object."""

    def _begin(self, what: str) -> None:
        self.hook(what)
        if self.fault is not None:
            raise self.fault

    def crash(self, survivors: Survivors) -> None:
        """Lose changes: each sector is as of the last sync or of a later change of it, whatever others are."""
        kept, zeros, left = self.synced, self.synced_zeros, self._left(survivors)
        for at, data in self.changes:
            if data is None:
                if survivors(1) or at > len(kept) + zeros:  # a start repairs files that are too short
                    zeros = _resize(kept, at)
                continue
            for sector, begin, part in _sectors(at, data):
                assert begin // SECTOR_BYTES == (begin + len(part) - 1) // SECTOR_BYTES == sector, "of one sector"
                if left[sector]:
                    left[sector] -= 1
                    zeros = _write_into(kept, zeros, begin, part)
        self.data, self.changes, self.fault = kept[:], [], None
        self.zeros = self.synced_zeros = zeros

    def _left(self, survivors: Survivors) -> dict[int, int]:
        """Return by sector how many of its changes reached the disk. A change reaches it only with all earlier changes
        of its sector."""
        changes = Counter(
            sector for at, data in self.changes if data is not None for sector, _, _ in _sectors(at, data))
        left = {sector: survivors(count) for sector, count in changes.items()}
        assert all(0 <= left[sector] <= count for sector, count in changes.items()), "no more is left than there was"
        return left


def _sectors(at: int, data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, place and bytes of each part of ``data``, which is at ``at``."""
    while data:
        part = data[: SECTOR_BYTES - at % SECTOR_BYTES]
        yield at // SECTOR_BYTES, at, part
        at, data = at + len(part), data[len(part) :]


def _resize(data: bytearray, size: int) -> int:
    """Cut ``data``, or lengthen it by zeros. Returns how many are to follow it instead, if they are many."""
    assert size >= 0, "no file is shorter than nothing"
    more = size - len(data)
    if more >= ZEROS_FROM:
        return more
    if more < 0:
        del data[size:]
    else:
        data.extend(bytes(more))
    return 0


def _write_into(data: bytearray, zeros: int, at: int, what: bytes | bytearray | memoryview) -> int:
    """Write into ``data``, which so many zeros follow. Returns how many follow it then."""
    assert at >= 0 and zeros >= 0, "all of a file is behind its beginning"
    size = max(len(data) + zeros, at + len(what))
    if at > len(data):
        data.extend(bytes(at - len(data)))
    data[at : at + len(what)] = what
    return size - len(data)


@attrs.define(eq=False)
class MemoryFiles:
    """Implements ``Files``. Content is durable when its file was synced, a name when its folder was."""

    content: dict[str, MemoryFile] = attrs.field(factory=dict)
    disk: Space = Space(1 << 40, 1 << 40)
    hook: Hook = _nothing
    _durable: dict[str, dict[str, MemoryFile | None]] = attrs.field(factory=dict)
    """By folder, names as they were when it was synced; None is a folder."""

    def space(self) -> Space:
        return self.disk

    def disks(self) -> Sequence[Files]:
        return (self,)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self.content:
            if not create:
                raise FileNotFoundError(path)
            self.content[path] = MemoryFile(hook=self.hook)
        return self.content[path]

    def exists(self, path: str) -> bool:
        return path in self.content

    def list(self, path: str) -> list[str]:
        return sorted(self._names(path))

    def rename(self, old: str, new: str) -> None:
        assert old in self.content, "only what is there gets another name"
        self.hook("rename")
        self.content[new] = self.content.pop(old)

    def remove(self, path: str) -> None:
        self.hook("remove")
        self.content.pop(path, None)

    def remove_folder(self, path: str) -> None:
        """Folders are nothing but parts of names."""

    def sync_dir(self, path: str) -> None:
        self.hook("sync_dir")
        self._durable[path] = self._names(path)

    def lock(self) -> None:
        """Nothing to do: no other process is here."""

    def unlock(self) -> None:
        """Nothing to do: no other process is here."""

    def crash(self, survivors: Survivors = lambda size: 0) -> None:
        """Lose what was not synced, but for what ``survivors`` leaves of the changes of each sector and name."""
        found: dict[str, MemoryFile] = {}
        self._recover("", survivors, found)
        self.content = found
        for file in {id(file): file for file in found.values()}.values():
            file.crash(survivors)
            file.hook = self.hook
        self._all_named()
        assert not any(file.changes for file in found.values()), "what a crash left is on disk"

    def copied(self) -> dict[str, MemoryFile]:
        """Return a copy of all files as they are, which is on disk."""
        return {path: MemoryFile(bytearray(file.data), file.data, hook=self.hook, zeros=file.zeros,
                                 synced_zeros=file.zeros) for path, file in self.content.items()}

    def put_back(self, copy: dict[str, MemoryFile]) -> None:
        """Have these files, and no others."""
        self.content = MemoryFiles(copy, hook=self.hook).copied()
        self._all_named()

    def _all_named(self) -> None:
        """All names are on disk."""
        self._durable.clear()
        for folder in {path.rpartition("/")[0] for path in self.content} | {""}:
            while folder not in self._durable:
                self._durable[folder] = self._names(folder)
                folder = folder.rpartition("/")[0]

    def _recover(self, folder: str, survivors: Survivors, found: dict[str, MemoryFile]) -> None:
        durable, now = self._durable.get(folder, {}), self._names(folder)
        for name in sorted(durable.keys() | now.keys()):
            if name in durable and (durable.get(name) is now.get(name, ...) or not survivors(1)):
                file = durable[name]
            elif name in now and (name in durable or survivors(1)):
                file = now[name]
            else:
                continue
            path = f"{folder}/{name}" if folder else name
            if file is None:
                self._recover(path, survivors, found)
            else:
                found[path] = file

    def _names(self, folder: str) -> dict[str, MemoryFile | None]:
        front = f"{folder}/" if folder else ""
        names: dict[str, MemoryFile | None] = {}
        for path, file in self.content.items():
            if path.startswith(front):
                name, _, below = path[len(front) :].partition("/")
                names[name] = None if below else file
        return names
