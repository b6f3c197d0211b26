"""The few file operations that the store is built on, and a directory in memory that forgets what was not synced.

It calls nothing of the operating system: ``broker.store.directory`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs


class File(Protocol):
    """An open file. Errors are ``OSError`` as the system raises them."""

    def pread(self, size: int, offset: int) -> bytes:
        """Fewer bytes only at the end of the file."""
        raise NotImplementedError

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """All of it, or ``OSError``."""
        raise NotImplementedError

    def size(self) -> int:
        raise NotImplementedError

    def resize(self, size: int) -> None:
        """Cut off what is behind ``size``, or grow by zeros that take no room yet."""
        raise NotImplementedError

    def reserve(self, offset: int, size: int) -> None:
        """Room on the disk for that part, which keeps its content. Raises OSError ENOSPC without it."""
        raise NotImplementedError

    def sync(self) -> None:
        """Data and size reach the disk. May be called from another thread than the rest; nothing once it is closed."""
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
        """For reading and writing; ``create`` makes it, and the folders above, if it is not there."""
        raise NotImplementedError

    def exists(self, path: str) -> bool:
        raise NotImplementedError

    def space(self) -> Space:
        """Of the disk it is on."""
        raise NotImplementedError

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted; [] if there is none."""
        raise NotImplementedError

    def rename(self, old: str, new: str) -> None:
        """Replaces ``new`` at one stroke."""
        raise NotImplementedError

    def remove(self, path: str) -> None:
        raise NotImplementedError

    def remove_folder(self, path: str) -> None:
        """If it is empty."""
        raise NotImplementedError

    def sync_dir(self, path: str) -> None:
        """Names in this folder reach the disk."""
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
    """Replace a small file: after any crash it is the old one or the new one, and the old one stays as ``.bak``."""
    folder = path.rpartition("/")[0]
    new = f"{path}.tmp"
    _write(files, new, data)
    old = read_whole(files, path)
    if old is not None:
        _write(files, f"{path}.bak.tmp", old)
        files.rename(f"{path}.bak.tmp", f"{path}.bak")
    files.rename(new, path)
    files.sync_dir(folder)


def _write(files: Files, path: str, data: bytes) -> None:
    file = files.open(path, create=True)
    try:
        file.resize(0)
        file.pwrite(data, 0)
        file.sync()
    finally:
        file.close()


# --- in memory -----------------------------------------------------------------------------------------------

Survivors = Callable[[int], int]
"""Of so many bytes that were not synced, how many the crash leaves."""


@attrs.define(eq=False)
class MemoryFile:
    """Implements ``File``. ``fault`` is raised by the next write or sync."""

    data: bytearray = attrs.field(factory=bytearray)
    synced: bytes = b""
    writes: list[tuple[int, bytes]] = attrs.field(factory=list)
    """Since the last sync."""
    fault: OSError | None = None

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._fail()
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data
        self.writes.append((offset, bytes(data)))

    def size(self) -> int:
        return len(self.data)

    def resize(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
            self.writes.append((-1, b""))
        else:
            self.data.extend(bytes(size - len(self.data)))

    def reserve(self, offset: int, size: int) -> None:
        self._fail()

    def sync(self) -> None:
        self._fail()
        self.synced = bytes(self.data)
        self.writes.clear()

    def close(self) -> None:
        """Nothing to release."""

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault

    def crash(self, survivors: Survivors) -> None:
        """Of each write since the last sync only so many bytes reached the disk."""
        size, cut = len(self.data), any(offset < 0 for offset, _ in self.writes)
        kept = bytearray(self.data if cut else self.synced.ljust(size, b"\0"))
        for offset, data in self.writes if not cut else ():
            left = survivors(len(data))
            kept[offset : offset + left] = data[:left]
        self.data, self.writes, self.fault, self.synced = kept, [], None, bytes(kept)


@attrs.define(eq=False)
class MemoryFiles:
    """Implements ``Files``. Names are durable at once; content is when it was synced."""

    content: dict[str, MemoryFile] = attrs.field(factory=dict)
    disk: Space = Space(1 << 40, 1 << 40)

    def space(self) -> Space:
        return self.disk

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self.content:
            if not create:
                raise FileNotFoundError(path)
            self.content[path] = MemoryFile()
        return self.content[path]

    def exists(self, path: str) -> bool:
        return path in self.content

    def list(self, path: str) -> list[str]:
        front = f"{path}/" if path else ""
        return sorted({name[len(front) :].partition("/")[0] for name in self.content if name.startswith(front)})

    def rename(self, old: str, new: str) -> None:
        self.content[new] = self.content.pop(old)

    def remove(self, path: str) -> None:
        del self.content[path]

    def remove_folder(self, path: str) -> None:
        """Folders are nothing but parts of names."""

    def sync_dir(self, path: str) -> None:
        """Names are durable at once."""

    def lock(self) -> None:
        """Nobody else is here."""

    def unlock(self) -> None:
        """Nobody else is here."""

    def crash(self, survivors: Survivors = lambda size: 0) -> None:
        """Lose what was not synced, but for what ``survivors`` leaves of each write."""
        for file in self.content.values():
            file.crash(survivors)
