"""Small files that are read whole and replaced whole: key-value tables, configurations.

``Files`` is what servers take; ``DiskFiles`` is the real one, ``MemoryFiles`` that of simulated servers and tests. What
is in the files is for others to know.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Protocol

import attrs


class Files(Protocol):
    """Errors are ``OSError`` as the system raises them."""

    def read(self, path: str) -> bytes | None:
        """The content; None: there is no such file."""

    def replace(self, path: str, content: bytes) -> None:
        """Make this the content, durably: after a crash the file has the old content or the new. Makes folders."""

    def remove(self, path: str) -> None:
        """No such file any more, durably; well if there was none."""


class DiskFiles:
    """Files of the operating system; ``~`` is the user's home. Blocks for as long as the disk takes."""

    def __init__(self) -> None:
        self._durable: set[Path] = set()
        """Folders whose names are on disk."""

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).expanduser().read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes) -> None:
        target = Path(path).expanduser()
        if target.parent not in self._durable or not target.parent.is_dir():
            make_folder(target.parent)
            self._durable.add(target.parent)
        fd, new = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), _mode(target))
                os.fsync(file.fileno())
            os.replace(new, target)
        except BaseException:
            Path(new).unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def remove(self, path: str) -> None:
        target = Path(path).expanduser()
        try:
            target.unlink()
        except FileNotFoundError:
            return
        _sync_folder(target.parent)


def make_folder(path: Path) -> None:
    """Make a folder, and all missing ones above it.

    Each name is on disk before the next one is made. This includes the lowest one that was there: a process may have
    been killed right after it made that.
    """
    there, missing = path.resolve(), list[Path]()
    while not there.is_dir():
        missing.append(there)
        there = there.parent
    with contextlib.suppress(PermissionError):  # this process did not make a folder that it may not open
        _sync_folder(there.parent)
    for made in reversed(missing):
        try:
            made.mkdir()
        except FileExistsError:
            if not made.is_dir():
                raise
        _sync_folder(made.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _mode(path: Path) -> int:
    """That of the file in the place, so that replacing it changes nobody's access."""
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return 0o640


@attrs.define
class MemoryFiles:
    """A disk in a dict. ``error`` is raised by every change while it is set."""

    contents: dict[str, bytes] = attrs.field(factory=dict)
    error: OSError | None = None

    def read(self, path: str) -> bytes | None:
        return self.contents.get(path)

    def replace(self, path: str, content: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.contents[path] = content

    def remove(self, path: str) -> None:
        if self.error is not None:
            raise self.error
        self.contents.pop(path, None)
