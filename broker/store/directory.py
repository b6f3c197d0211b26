"""``Files`` on a real directory: the one module of the store that calls the operating system. Knows no format."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.store.errors import WrongStore
from broker.store.files import Files, Space
from broker.store.trial import PATH as TRIAL
from remoting.daemon.files import make_folder

_LOCK = "lock"
"""The file that a Java broker locks the first byte of."""
_MODE: Final = 0o640
"""Messages are for the broker's user and group alone."""
_RWF_DONTCACHE: Final = 0x80
"""Flag of Linux 6.14 and later that keeps a write out of the page cache. Not every file system knows it."""


class DirectoryFile:
    """Implements ``File`` on a descriptor."""

    __slots__ = ("_fd", "_has_name", "_passes", "_path", "_syncing", "_writing")

    def __init__(self, fd: int, path: Path) -> None:
        self._fd, self._path = fd, path
        self._has_name = os.fstat(fd).st_nlink > 0  # some file systems count no names
        self._passes = True  # until the system says that it cannot
        # Another thread may sync, or write the index. ``close`` waits for it, or the system might give the descriptor
        # to another file meanwhile. There are two locks, since a write must not wait for a sync.
        self._syncing, self._writing = threading.Lock(), threading.Lock()

    def pread(self, size: int, offset: int, *, cached: bool = True) -> bytes:
        data = os.pread(self._fd, size, offset) if cached else self._read_past(size, offset)
        while 0 < len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def data_from(self, offset: int) -> int | None:
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)  # where the file stands is of no use: all else says where
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that knows no holes
                return offset
            raise

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        with self._writing:
            done = os.pwrite(self._fd, data, offset)
            if done < len(data):
                self._write_rest(data, offset, done)

    def write_past(self, parts: Sequence[bytes | memoryview], offset: int) -> None:
        with self._writing:
            done = self._pass(parts, offset)
            if done < sum(map(len, parts)):
                self._write_rest(b"".join(parts), offset, done)

    def _write_rest(self, data: bytes | bytearray | memoryview, offset: int, done: int) -> None:
        while done < len(data):  # a write that ended early says why at the next attempt
            done += os.pwrite(self._fd, memoryview(data)[done:], offset + done)

    def _read_past(self, size: int, offset: int) -> bytes:
        if self._passes:
            data = bytearray(size)
            try:
                return bytes(memoryview(data)[: os.preadv(self._fd, [data], offset, _RWF_DONTCACHE)])
            except OSError as error:
                self._cannot_pass(error)
        return os.pread(self._fd, size, offset)

    def _pass(self, parts: Sequence[bytes | memoryview], offset: int) -> int:
        if self._passes:
            try:
                return os.pwritev(self._fd, parts, offset, _RWF_DONTCACHE)
            except OSError as error:
                self._cannot_pass(error)
        return os.pwritev(self._fd, parts, offset)

    def _cannot_pass(self, error: OSError) -> None:
        if error.errno != errno.EOPNOTSUPP:
            raise error
        self._passes = False

    def read_ahead(self, wanted: bool) -> None:
        with contextlib.suppress(OSError):  # some file systems take no advice
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_NORMAL if wanted else os.POSIX_FADV_RANDOM)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def resize(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, offset: int, size: int) -> None:
        os.posix_fallocate(self._fd, offset, size)

    def sync(self) -> None:
        with self._syncing:
            if self._fd >= 0:
                os.fdatasync(self._fd)
                if self._has_name and not os.fstat(self._fd).st_nlink:
                    raise _deleted(self._path)  # the system forgets it with this process

    def close(self) -> None:
        with self._syncing, self._writing:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def _deleted(path: Path) -> OSError:
    return OSError(errno.ENOENT, "deleted while its broker runs; leave the store alone", str(path))


class DirectoryFiles:
    """Implements ``Files`` on the directory ``root``."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._lock_fd = -1

    def open(self, path: str, *, create: bool = False) -> DirectoryFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        where = self.root / path
        try:
            return DirectoryFile(os.open(where, flags, _MODE), where)
        except FileNotFoundError:
            if not create:
                raise
        if self._lock_fd >= 0 and not (self.root / _LOCK).exists():
            raise _deleted(self.root)  # a folder that is made anew would hide that
        os.makedirs(where.parent, exist_ok=True)
        return DirectoryFile(os.open(where, flags, _MODE), where)

    def exists(self, path: str) -> bool:
        return (self.root / path).is_file()

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / path))
        except FileNotFoundError:
            return []

    def rename(self, old: str, new: str) -> None:
        os.replace(self.root / old, self.root / new)

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self.root / path)

    def space(self) -> Space:
        of = os.statvfs(self.root)
        return Space((of.f_blocks - of.f_bfree + of.f_bavail) * of.f_frsize, of.f_bavail * of.f_frsize)

    def disks(self) -> Sequence[Files]:
        return (self,)

    def sync_dir(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def lock(self) -> None:
        if self._lock_fd >= 0:
            return
        make_folder(self.root)
        fd = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)  # what FileChannel.tryLock(0, 1) takes
        except (BlockingIOError, PermissionError):
            os.close(fd)
            raise WrongStore(f"{self.root} is in use: another broker holds {_LOCK!r} in it") from None
        self._lock_fd = fd

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


class LogDirectory(DirectoryFiles):
    """A folder in which Java takes every file for one of the log: nothing else gets a name there."""

    def __init__(self, root: str | os.PathLike[str], *, made: bool = True) -> None:
        """``made``: it is made if it is not there."""
        super().__init__(root)
        self._made = made

    def open(self, path: str, *, create: bool = False) -> DirectoryFile:
        if create and path == TRIAL:
            with contextlib.suppress(OSError):  # some file systems know no files without names
                return DirectoryFile(os.open(self.root, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), self.root)
        return super().open(path, create=create)

    def lock(self) -> None:
        """Lock the folder against other brokers of ours; Java locks the store's directory alone."""
        if self._lock_fd >= 0:
            return
        if self._made:
            make_folder(self.root)
        try:
            fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise WrongStore(f"{self.root} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise WrongStore(f"{self.root} is in use: another broker's log is there") from None
        except OSError:
            pass  # NFS, for one, locks no folders
        self._lock_fd = fd


class FileDirectory(DirectoryFiles):
    """The folder of a file that stands apart; others may have files in it."""

    def lock(self) -> None:
        make_folder(self.root)
