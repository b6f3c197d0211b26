"""Files that hold given bytes and may only be read: what a decoder of stored bytes gets to see."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from raft.storage.interface import File, Files


def _no(*_: object) -> NoReturn:
    raise AssertionError("reading what is stored must change nothing")


class HeldFile(File):
    """A file of these bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, size: int, offset: int) -> bytes:
        assert size >= 0 <= offset, f"a read of {size} bytes at {offset}"
        return self._data[offset : offset + size]

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        return None

    def pwrite(self, buffers: Sequence[bytes], offset: int) -> None:
        _no(buffers, offset)

    def sync(self) -> None:
        _no()

    def allocate(self, size: int) -> None:
        _no(size)

    def truncate(self, size: int) -> None:
        _no(size)


class HeldFiles(Files):
    """A directory tree of these files."""

    def __init__(self, held: dict[str, bytes]) -> None:
        self._held = held

    def open(self, path: str, *, create: bool = False) -> File:
        assert not create and path in self._held, f"opens {path!r}"
        return HeldFile(self._held[path])

    def list(self, path: str) -> list[str]:
        return sorted(os.path.basename(name) for name in self._held if os.path.dirname(name) == path)

    def rename(self, old: str, new: str) -> None:
        _no(old, new)

    def remove(self, path: str) -> None:
        _no(path)

    def make_dir(self, path: str) -> None:
        _no(path)

    def sync_dir(self, path: str) -> None:
        _no(path)

    def lock(self) -> None:
        _no()

    def unlock(self) -> None:
        _no()

    def free_bytes(self) -> int:
        return 1 << 40
