"""Files of logs on any file system that Arrow reads: local paths, ``s3://``, ``gs://``, ``hdfs://``, ``abfs://``...

Local files are read through a plain descriptor, which costs least; all others through ``pyarrow.fs``. Also gives the
storage's own readers of identities, heads and footers what they ask for (``Files``), for reading only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

import attrs
from pyarrow import ArrowException, ArrowInvalid
from pyarrow import fs as arrow_fs

from analysis.errors import NothingToRead


@attrs.frozen
class Entry:
    """One name in a directory. ``modified_ms``: since 1970 UTC; 0: not known."""

    name: str
    is_dir: bool
    size: int
    modified_ms: int = 0
    is_link: bool = False


@attrs.define(eq=False)
class Tree:
    """A directory and what is in it. ``root`` as the user wrote it; names below it are joined by ``/``.

    ``read_bytes`` counts what was read through it, for the metric.
    """

    root: str
    _system: arrow_fs.FileSystem | None = None
    _path: str = ""
    read_bytes: int = 0

    @classmethod
    def of(cls, path: str) -> Tree:
        """Raises ``NothingToRead`` for a file system that Arrow does not know."""
        scheme = urlsplit(path).scheme if "://" in path else ""
        if not scheme:
            return cls(path, None, os.path.abspath(path.removeprefix("file:")))
        if scheme == "file":
            return cls(path, None, unquote(urlsplit(path).path))
        try:
            system, inside = arrow_fs.FileSystem.from_uri(path)
        except (ArrowException, ArrowInvalid, OSError, ValueError) as error:
            raise NothingToRead(
                f"{path}: no file system for {scheme}:// here ({error}); Arrow reads local paths, s3://, gs://, "
                "abfs:// and hdfs:// (which needs libhdfs and CLASSPATH)") from error
        return cls(path, system, inside)

    @classmethod
    def holding(cls, file: str) -> tuple[Tree, str]:
        """The directory of a file that ``path_of`` named, and its name there."""
        address, mark, query = _parted(file)
        directory, _, name = address.rpartition("/")
        return cls.of(directory + mark + query), name

    def below(self, name: str) -> Tree:
        """A directory within this one."""
        return Tree(self.path_of(name), self._system, f"{self._path.rstrip('/')}/{name}")

    def name(self) -> str:
        """The last part of its path."""
        return self._path.rstrip("/").rpartition("/")[2]

    @property
    def is_local(self) -> bool:
        """It is on this machine, or mounted there."""
        return self._system is None

    def full_path(self) -> str:
        """Its absolute path on this machine; its address elsewhere."""
        return (self._path if self._system is None else self.root).rstrip("/")

    def place(self) -> str:
        """The same for all names of one directory: where it is behind links on this machine; its address elsewhere."""
        return os.path.realpath(self._path) if self._system is None else self.full_path()

    def path_of(self, name: str) -> str:
        """Return the name of a file below, as rows and messages give it."""
        address, mark, query = _parted(self.root)
        return f"{address.rstrip('/')}/{name}{mark}{query}" if name else self.root

    def entries(self, name: str = "") -> list[Entry] | None:
        """Return the entries of a directory by name; None: no such directory."""
        path = f"{self._path.rstrip('/')}/{name}" if name else self._path
        if self._system is None:
            try:
                with os.scandir(path) as found:
                    return sorted(_local_entries(found), key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                return None
        try:
            infos = self._system.get_file_info(arrow_fs.FileSelector(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return sorted((Entry(info.base_name, info.type == arrow_fs.FileType.Directory, info.size or 0,
                             (info.mtime_ns or 0) // 1_000_000) for info in infos), key=lambda entry: entry.name)

    def is_file(self) -> bool:
        if self._system is None:
            return os.path.isfile(self._path)
        return bool(self._system.get_file_info(self._path).type == arrow_fs.FileType.File)

    def open(self, name: str, *, create: bool = False) -> ReadFile:
        """Raises ``OSError``, ``FileNotFoundError`` among them."""
        assert not create
        path = f"{self._path.rstrip('/')}/{name}"
        if self._system is None:
            return _Descriptor(self, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return _Stream(self, self._system.open_input_file(path))

    def list(self, name: str) -> list[str]:
        """Names, [] for no such directory: as ``raft.storage.interface.Files`` has it."""
        return [entry.name for entry in self.entries(name) or ()]

    def read(self, name: str, start: int = 0) -> bytes:
        """A whole file, from ``start`` on. Raises ``OSError``."""
        file = self.open(name)
        try:
            return file.pread(max(0, file.size() - start), start)
        finally:
            file.close()


def _parted(path: str) -> tuple[str, str, str]:
    """An address and what follows its question mark, as in ``s3://bucket/logs?endpoint_override=host:9000``."""
    return path.partition("?") if "://" in path else (path, "", "")


def _local_entries(found: Iterable[os.DirEntry[str]]) -> Iterable[Entry]:
    for each in found:
        try:
            stat = each.stat()
            yield Entry(each.name, each.is_dir(), stat.st_size, stat.st_mtime_ns // 1_000_000, each.is_symlink())
        except OSError as error:  # the file was recycled meanwhile, or the link leads to itself
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                raise


class ReadFile:
    """An open file. Its methods are those of ``raft.storage.interface.File`` that read."""

    def pread(self, size: int, offset: int) -> bytes: raise NotImplementedError

    def size(self) -> int: raise NotImplementedError

    def close(self) -> None: raise NotImplementedError


@attrs.define(eq=False)
class _Descriptor(ReadFile):
    _tree: Tree
    _fd: int

    def pread(self, size: int, offset: int) -> bytes:
        parts: list[bytes] = []
        while size > 0 and (data := os.pread(self._fd, size, offset)):
            parts.append(data)
            size -= len(data)
            offset += len(data)
            self._tree.read_bytes += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        os.close(self._fd)


@attrs.define(eq=False)
class _Stream(ReadFile):
    _tree: Tree
    _file: arrow_fs.FileSystem

    def pread(self, size: int, offset: int) -> bytes:
        data: bytes = self._file.read_at(min(size, max(0, self._file.size() - offset)), offset)
        self._tree.read_bytes += len(data)
        return data

    def size(self) -> int:
        return int(self._file.size())

    def close(self) -> None:
        self._file.close()
