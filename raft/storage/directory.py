"""``Files`` on a real directory: the one module of the storage that calls the operating system.

Linux. macOS by F_FULLFSYNC and without preallocation of extents: written from its manual, not run here. Other systems
are refused in words, because what their sync promises is not known to this library.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from raft.errors import UsageError, WrongDirectory
from raft.storage.identity import LOCK_NAME

_BUFFERS_MAX: Final = 512
"""Most buffers in one write: below every system's IOV_MAX."""
_MACOS: Final = sys.platform == "darwin"


def _sync_fd(fd: int) -> None:
    if _MACOS:
        fcntl.fcntl(fd, getattr(fcntl, "F_FULLFSYNC", 51))  # on macOS fsync leaves the data in the drive's cache
    else:
        os.fdatasync(fd)


class DirectoryFile:
    """Implements ``File`` on a descriptor."""

    __slots__ = ("_fd", "_has_name")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._has_name = os.fstat(fd).st_nlink > 0  # some file systems count no names

    def _check_name(self) -> None:
        """Raise ``OSError`` if this file was deleted since it was opened: the system takes what is written to it, and
        forgets it with this process."""
        if self._has_name and not os.fstat(self._fd).st_nlink:
            where = "a file of the data directory"
            with contextlib.suppress(OSError):
                where = os.readlink(f"/proc/self/fd/{self._fd}").removesuffix(" (deleted)")
            raise OSError(errno.ENOENT, f"{where} was deleted while its node runs: leave a data directory alone, and "
                                        "take this node in again as one that lost its disk")

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts, done = [data], len(data)
        while done < size and data:
            data = os.pread(self._fd, size - done, offset + done)
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pwrite(self, buffers: Sequence[bytes], offset: int) -> None:
        for start in range(0, len(buffers), _BUFFERS_MAX):
            part = buffers[start : start + _BUFFERS_MAX]
            size = sum(map(len, part))
            done = os.pwritev(self._fd, part, offset)
            if done < size:
                self._write_rest(b"".join(part), done, offset)
            offset += size

    def _write_rest(self, data: bytes, done: int, offset: int) -> None:
        """Write the rest after a partial write. If it fails, the system now says why."""
        while done < len(data):
            done += os.pwrite(self._fd, data[done:], offset + done)

    def sync(self) -> None:
        _sync_fd(self._fd)
        self._check_name()

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def allocate(self, size: int) -> None:
        if _MACOS:
            os.ftruncate(self._fd, size)  # without fallocate; the writer's zeros allocate the extents
        else:
            os.posix_fallocate(self._fd, 0, size)

    def truncate(self, size: int) -> None:
        if size < self.size():
            os.ftruncate(self._fd, size)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class DirectoryFiles:
    """Implements ``Files`` under ``root``, which ``lock`` creates."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if not (_MACOS or sys.platform == "linux"):
            raise UsageError(f"no storage for {sys.platform}: nobody knows what its sync promises; use Linux or macOS")
        self.root = Path(root)
        self._lock_fd = -1
        self._synced_fds: dict[str, int] = {}
        """Directories that were synced while the lock is held: they are synced again without another descriptor."""

    def open(self, path: str, *, create: bool = False) -> DirectoryFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return DirectoryFile(os.open(self.root / path, flags, 0o640))

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / path))
        except FileNotFoundError:
            return []

    def rename(self, old: str, new: str) -> None:
        os.replace(self.root / old, self.root / new)

    def remove(self, path: str) -> None:
        os.unlink(self.root / path)

    def make_dir(self, path: str) -> None:
        os.makedirs(self.root / path, mode=0o750, exist_ok=True)

    def sync_dir(self, path: str) -> None:
        if self._lock_fd < 0:
            _sync_directory(self.root / path)
            return
        if path not in self._synced_fds:
            self._synced_fds[path] = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        os.fsync(self._synced_fds[path])

    def lock(self) -> None:
        if self._lock_fd >= 0:
            return
        _make_directory(self.root, 0o750)
        fd = os.open(self.root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise WrongDirectory(f"{self.root} is in use: another process has locked {LOCK_NAME!r} in it") from None
        except BaseException:
            os.close(fd)
            raise
        self._lock_fd = fd

    def unlock(self) -> None:
        while self._synced_fds:
            os.close(self._synced_fds.popitem()[1])
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def free_bytes(self) -> int:
        room = os.statvfs(self.root)
        return room.f_bavail * room.f_frsize


class ReadOnlyFile(DirectoryFile):
    """A file that is only read. Its read errors carry the path, since the system names a path only when it opens
    one."""

    __slots__ = ("_path",)

    def __init__(self, fd: int, path: Path) -> None:
        super().__init__(fd)
        self._path = path

    def pread(self, size: int, offset: int) -> bytes:
        try:
            return super().pread(size, offset)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error


class ReadOnlyFiles(DirectoryFiles):
    """A directory that a command looks at: opens for reading, takes no lock, changes nothing."""

    def open(self, path: str, *, create: bool = False) -> DirectoryFile:
        if create:
            raise UsageError("this directory is only looked at")
        return ReadOnlyFile(os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC), self.root / path)

    def lock(self) -> None:
        """Takes no lock: it may look while another process writes."""

    def rename(self, old: str, new: str) -> None:
        raise UsageError("this directory is only looked at")

    def remove(self, path: str) -> None:
        raise UsageError("this directory is only looked at")

    def make_dir(self, path: str) -> None:
        raise UsageError("this directory is only looked at")


def _make_directory(path: Path, mode: int) -> None:
    """Make a directory, and all that are missing above it. Each name is on disk before the next one is made; also the
    name of the last one that was there, since a process may have been killed right after it made it."""
    try:
        there, missing = path.resolve(), list[Path]()
    except RuntimeError as error:  # of Python before 3.13; the system would say so
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    while not there.is_dir():
        missing.append(there)
        there = there.parent
    with contextlib.suppress(PermissionError):  # then another user made it
        _sync_directory(there.parent)
    for made in reversed(missing):
        try:
            os.mkdir(made, mode if made is missing[0] else 0o777)
        except FileExistsError:
            if not made.is_dir():
                raise
        _sync_directory(made.parent)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
