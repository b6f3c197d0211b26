"""Turns the system's errors about a data directory into words: what is wrong, where, and what to do.

For opening, for groups that begin, end or are removed. A log that is written has words of its own (``segment``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, Final, TypeVar

from raft.errors import DiskFull, StorageError, WrongDirectory

T = TypeVar("T")
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""No room on the disk."""
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""No file could be opened: nothing was changed, and nothing is wrong with what is there."""
PASSING: Final = FULL | NO_DESCRIPTOR
"""What was not kept may be tried again."""

_WORDS: Final[dict[int | None, str]] = {
    errno.EACCES: "this process may not read and write there; give its user the directory and all that is in it",
    errno.EPERM: "this process may not read and write there; give its user the directory and all that is in it",
    errno.EROFS: "the file system is mounted read-only; mount it to be written, or name another directory",
    errno.ENOENT: "it is gone; leave a data directory alone while its node runs, and see that its disk is mounted",
    errno.EIO: "the disk does not read or write; look into the system's log, and replace it",
    errno.EMFILE: "this process has too many open files; raise its limit (ulimit -n)",
    errno.ENFILE: "this machine has too many open files; raise its limit (fs.file-max)",
    errno.ENOLCK: "the file system gives no locks; name a directory on a local disk",
    errno.EOPNOTSUPP: "the file system cannot do what a log needs; name a directory on a local disk",
    errno.ENAMETOOLONG: "the name is too long; name another directory",
    errno.ELOOP: "symbolic links lead in a circle; name the directory itself",
}
_NO_DIRECTORY: Final = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR)


def trouble(error: OSError, directory: str = "") -> StorageError:
    """The error to raise instead of the system's. It names the file that the system named, else ``directory``."""
    where = str(error.filename or directory or "the data directory")
    if directory and not where.startswith(directory):
        where = f"{directory} ({where})"
    said = error.strerror or str(error)
    if error.errno in FULL:
        return DiskFull(f"{where}: {said}; make room on that disk")
    if error.errno in _NO_DIRECTORY:
        return WrongDirectory(f"{where}: {said}: a data directory is a directory, and what is in it is its node's; "
                              "name another, or move what stands there away")
    words = _WORDS.get(error.errno, "look into the system's log")
    return StorageError(f"{where}: {said}: {words}")


def lacks_descriptor(error: StorageError) -> bool:
    """Return whether there was no file descriptor to open what should be read: try it again later."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_DESCRIPTOR


def in_words(function: Callable[..., T], directory: str = "") -> Callable[..., T]:
    """The function, raising ``StorageError`` where the system raises ``OSError``."""

    def called(*args: Any) -> T:
        try:
            return function(*args)
        except OSError as error:
            raise trouble(error, directory) from error

    return called
