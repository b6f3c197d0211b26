"""A simulated disk, whose files have a volatile and a durable image: a crash decides which unsynced writes survive.

Implements ``Files``, so that the real storage runs on it. At a crash each un-synced write is kept, dropped or torn
at sectors, in any order; a file may keep its new size and lose the data; names that were not synced with their
directory may be old or new. Also rot, misdirected and short writes, errors, a full disk, and a sync that fails
once and then claims success. All chance comes from ``draw`` (a ``Tape.draw`` fits). Every fault that happened is
counted in ``counts``. Directories themselves are durable at once. No clock, no host file is touched.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Protocol, TypeVar

import attrs

T = TypeVar("T")
Chance = Callable[[], float]
SECTOR_BYTES: Final = 512


class Draw(Protocol):
    """Makes one decision of a named stream, given its boring value. ``Tape.draw`` is one."""

    def __call__(self, stream: str, default: T, generator: Callable[[Chance], T], /) -> T: ...


class _Seeded:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def __call__(self, stream: str, default: T, generator: Callable[[Chance], T], /) -> T:
        return generator(self._random.random)


def seeded(seed: int) -> Draw:
    """Make decisions from a seed alone, without a tape."""
    return _Seeded(seed)


class SimulatedCrash(BaseException):
    """The simulated machine crashed. A ``BaseException``, so that no handler of the code under test swallows it."""


@attrs.define
class DiskFaults:
    """Probabilities of faults in one operation. With all 0 only a crash loses data."""

    read_error: float = 0.0
    write_error: float = 0.0
    short_write: float = 0.0
    misdirected_write: float = 0.0
    sync_error: float = 0.0
    """The sync fails, the dirty pages are dropped, and the next one claims success."""
    capacity_bytes: int = 1 << 62


@attrs.define(eq=False)
class _Node:
    """A file's content: the image that reads see, the image that survives, and the writes between them."""

    volatile: bytearray = attrs.field(factory=bytearray)
    durable: bytearray = attrs.field(factory=bytearray)
    pending: list[tuple[int, bytes | None]] = attrs.field(factory=list)
    """(offset, data) of a write, or (size, None) of a new size."""


_NameChange = tuple[str, str, _Node | None]
"""A change of names: ("create" | "remove" | the new name's path, path, node)."""


def _put(image: bytearray, offset: int, data: bytes) -> None:
    end = offset + len(data)
    if len(image) < end:
        image.extend(bytes(end - len(image)))
    image[offset:end] = data


def _resize(image: bytearray, size: int) -> None:
    if len(image) < size:
        image.extend(bytes(size - len(image)))
    else:
        del image[size:]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


class VirtualDisk:
    """The files of one machine in memory, with faults: simulated ``Files``."""

    def __init__(self, draw: Draw | None = None, faults: DiskFaults | None = None, *, name: str = "disk") -> None:
        self._draw: Draw = draw if draw is not None else seeded(0)
        self.faults = faults if faults is not None else DiskFaults()
        self.name = name
        self.counts: Counter[str] = Counter()
        self.operations = 0
        """Number of changing operations so far: write, sync, allocate, truncate, create, rename, remove, sync_dir,
        make_dir."""
        self.dead: Callable[[str], BaseException] = SimulatedCrash
        """Makes the exception that a dead disk raises."""
        self.journal: list[str] | None = None
        """If set to a list, every changing operation is appended to it, in words."""
        self._names: dict[str, _Node] = {}
        self._durable_names: dict[str, _Node] = {}
        self._name_changes: dict[str, list[_NameChange]] = {}
        self._directories = {""}
        self._life = 0
        self._dead = False
        self._crash_at = 0
        self._planned: dict[str, list[tuple[int, int]]] = {}

    # --- faults on demand ------------------------------------------------------------------------------------

    def crash_at(self, operation: int) -> None:
        """Crash in the changing operation of this number (counted from 1 over the disk's life); 0: never."""
        self._crash_at = operation

    def fail(self, operation: str, code: int = errno.EIO, *, skip: int = 0) -> None:
        """Let an operation ("read", "write", "short_write", "sync", "allocate", ...) fail once with this errno, after
        ``skip`` more of them."""
        self._planned.setdefault(operation, []).append((skip, code))

    def rot(self, path: str, offset: int, mask: int = 0x01) -> None:
        """Flip bits of one byte on the medium."""
        node = self._names[path]
        for image in (node.volatile, node.durable):
            if offset < len(image):
                image[offset] ^= mask
        self.counts["bit rot"] += 1

    def overwrite(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes on the medium, as a misdirected write does; the file does not grow."""
        node = self._names[path]
        for image in (node.volatile, node.durable):
            image[offset : offset + len(data)] = data[: max(0, len(image) - offset)]
        self.counts["misdirected"] += 1

    def crash(self) -> None:
        """Stop the machine now. Every open file is dead; ``restart`` brings the disk back."""
        self._dead = True

    def kill(self) -> None:
        """Kill the process, not the machine: open files are dead, the cache keeps unsynced writes."""
        self._life += 1
        self._dead, self._crash_at = False, 0
        self.counts["kill"] += 1

    def restart(self) -> None:
        """Decide which unsynced changes survived, and serve again."""
        self._life += 1
        self._dead, self._crash_at = False, 0
        self._planned.clear()
        mode = self._draw(f"{self.name}.mode", 0, lambda chance: int(chance() * 5))
        for directory in sorted(self._name_changes):
            self._settle_names(self._name_changes[directory], mode)
        self._name_changes.clear()
        nodes = {id(node): node for node in (*self._durable_names.values(), *self._names.values())}
        for node in nodes.values():
            if node.pending:
                self._settle(node, mode)
        self._names = dict(self._durable_names)
        for node in self._names.values():
            node.volatile = bytearray(node.durable)
        self.counts["crash"] += 1

    def _choose(self, stream: str, mode: int, options: Sequence[str]) -> str:
        """Choose what becomes of a change: mode 0 loses all, 1 keeps all, others mix. ``options`` begin with lost and
        kept."""
        if mode < 2:
            return options[mode]
        return self._draw(f"{self.name}.{stream}", options[0], lambda chance: options[int(chance() * len(options))])

    def _settle_names(self, changes: list[_NameChange], mode: int) -> None:
        """Decide which name changes survive: for one file only a prefix, as in file systems; for several files any."""
        stuck: set[int] = set()
        for kind, path, node in changes:
            fate = self._choose("name", mode, ("lost", "kept"))
            if fate == "lost" or id(node) in stuck:
                self.counts["name lost"] += 1
                if node is not None:
                    stuck.add(id(node))
            elif kind == "remove":
                self._durable_names.pop(path, None)
            elif node is not None:
                if kind != "create" and self._durable_names.get(path) is node:
                    del self._durable_names[path]
                self._durable_names[path if kind == "create" else kind] = node

    def _settle(self, node: _Node, mode: int) -> None:
        """Decide which unsynced writes of a file survive; they take effect mostly in order, sometimes reversed."""
        pending = node.pending
        node.pending = []
        if mode == 4 and self._draw(f"{self.name}.order", False, lambda chance: chance() < 0.5):
            pending = pending[::-1]
            self.counts["reordered"] += 1
        for offset, data in pending:
            fate = self._choose("write", mode, ("dropped", "kept", "torn", "size only"))
            self.counts[f"write {fate}"] += 1
            if data is None:
                if fate != "dropped":
                    _resize(node.durable, offset)
            elif fate == "kept":
                _put(node.durable, offset, data)
            elif fate == "torn":
                self._tear(node, offset, data)
            elif fate == "size only" and len(node.durable) < offset + len(data):
                _resize(node.durable, offset + len(data))

    def _tear(self, node: _Node, offset: int, data: bytes) -> None:
        """Keep any sectors of a write."""
        start, end = offset, offset + len(data)
        while start < end:
            stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if self._draw(f"{self.name}.sector", False, lambda chance: chance() < 0.5):
                _put(node.durable, start, data[start - offset : stop - offset])
            start = stop

    # --- checks of every operation ---------------------------------------------------------------------------

    def step(self, operation: str, path: str, life: int | None = None) -> bool:
        """Count a changing operation. Return True if the machine crashes in it: the caller must call ``die``."""
        if self._dead or (life is not None and life != self._life):
            raise self.dead(f"{operation} {path} on a dead disk")
        self.operations += 1
        if self.journal is not None:
            self.journal.append(f"{operation} {path}")
        return self.operations == self._crash_at

    def die(self) -> None:
        self._dead = True
        raise SimulatedCrash(f"crash in operation {self.operations}")

    def happens(self, operation: str, probability: float = 0.0) -> int:
        """Return the errno of a fault that hits this operation; 0 for none."""
        for number, (skip, code) in enumerate(planned := self._planned.get(operation, [])):
            if skip:
                planned[number] = skip - 1, code
            else:
                del planned[number]
                self.counts[operation] += 1
                return code
        if probability > 0.0 and self._draw(f"{self.name}.{operation}", False, lambda chance: chance() < probability):
            self.counts[operation] += 1
            return errno.EIO
        return 0

    def trouble(self, operation: str, path: str, probability: float = 0.0) -> None:
        code = self.happens(operation, probability)
        if code:
            raise OSError(code, os.strerror(code), path)

    def _change(self, kind: str, path: str, node: _Node | None) -> None:
        self._name_changes.setdefault(_parent(path), []).append((kind, path, node))

    # --- Files -----------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> VirtualFile:
        if create:
            dies = self.step("create", path)
            self.trouble("create", path)
            if path in self._names:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            if _parent(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = self._names[path] = _Node()
            self._change("create", path, node)
            if dies:
                self.die()
        elif self._dead:
            raise self.dead(f"open {path} on a dead disk")
        found = self._names.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return VirtualFile(self, path, found, self._life)

    def list(self, path: str) -> list[str]:
        if self._dead:
            raise self.dead(f"list {path} on a dead disk")
        prefix = path + "/" if path else ""
        inside = {name[len(prefix) :].partition("/")[0]
                  for name in (*self._names, *self._directories) if name.startswith(prefix) and name != path}
        return sorted(inside - {""})

    def rename(self, old: str, new: str) -> None:
        dies = self.step("rename", f"{old} {new}")
        self.trouble("rename", old)
        node = self._names.pop(old, None)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        self._names[new] = node
        self._change(new, old, node)
        if dies:
            self.die()

    def remove(self, path: str) -> None:
        dies = self.step("remove", path)
        self.trouble("remove", path)
        if self._names.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._change("remove", path, None)
        if dies:
            self.die()

    def make_dir(self, path: str) -> None:
        dies = self.step("make_dir", path)
        self._directories.add(path)
        if dies:
            self.die()

    def sync_dir(self, path: str) -> None:
        dies = self.step("sync_dir", path)
        self.trouble("sync_dir", path)
        if dies:
            self.die()
        for kind, name, node in self._name_changes.pop(path, ()):
            if kind == "remove":
                self._durable_names.pop(name, None)
            elif node is not None:
                if kind != "create" and self._durable_names.get(name) is node:
                    del self._durable_names[name]
                self._durable_names[name if kind == "create" else kind] = node

    def lock(self) -> None:
        """Do nothing, since one object serves one process."""

    def unlock(self) -> None:
        """Do nothing, as ``lock`` does."""

    def free_bytes(self) -> int:
        return max(0, self.faults.capacity_bytes - self.used_bytes())

    def used_bytes(self) -> int:
        """Return the sum of the sizes of all files."""
        return sum(len(node.volatile) for node in self._names.values())

    def demand(self, path: str, more: int) -> None:
        """Raise ENOSPC unless ``more`` bytes fit."""
        if more > 0 and self.used_bytes() + more > self.faults.capacity_bytes:
            self.counts["no space"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def elsewhere(self, node_bytes: int) -> int:
        """Return the offset of the sector that a misdirected write hits."""
        sectors = max(1, node_bytes // SECTOR_BYTES)
        return self._draw(f"{self.name}.where", 0, lambda chance: int(chance() * sectors)) * SECTOR_BYTES


class VirtualFile:
    """One open file of a ``VirtualDisk``: a simulated ``File``."""

    def __init__(self, disk: VirtualDisk, path: str, node: _Node, life: int) -> None:
        self._disk, self._path, self._node, self._life = disk, path, node, life
        self._closed = False

    def _step(self, operation: str) -> bool:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return self._disk.step(operation, self._path, self._life)

    def pread(self, size: int, offset: int) -> bytes:
        disk = self._disk
        if disk._dead or self._life != disk._life:
            raise disk.dead(f"read {self._path} on a dead disk")
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        disk.trouble("read", self._path, disk.faults.read_error)
        return bytes(self._node.volatile[offset : offset + size])

    def pwrite(self, buffers: Sequence[bytes], offset: int) -> None:
        disk, node = self._disk, self._node
        dies = self._step("write")
        data = b"".join(buffers)
        disk.trouble("write", self._path, disk.faults.write_error)
        disk.demand(self._path, offset + len(data) - len(node.volatile))
        short = disk.happens("short_write", disk.faults.short_write)
        if short:
            data = data[: len(data) // 2]
        if disk.happens("misdirected_write", disk.faults.misdirected_write):
            offset = disk.elsewhere(len(node.volatile))
        _put(node.volatile, offset, data)
        node.pending.append((offset, data))
        if dies:
            disk.die()
        if short:
            raise OSError(errno.EIO, "short write", self._path)

    def sync(self) -> None:
        disk, node = self._disk, self._node
        if self._step("sync"):
            disk.die()
        code = disk.happens("sync", disk.faults.sync_error)
        if code:
            node.pending.clear()  # as on Linux, the pages count as clean and are never written again
            raise OSError(code, os.strerror(code), self._path)
        for offset, data in node.pending:
            if data is None:
                _resize(node.durable, offset)
            else:
                _put(node.durable, offset, data)
        node.pending.clear()

    def size(self) -> int:
        return len(self._node.volatile)

    def allocate(self, size: int) -> None:
        dies = self._step("allocate")
        self._disk.trouble("allocate", self._path)
        self._disk.demand(self._path, size - len(self._node.volatile))
        if size > len(self._node.volatile):
            _resize(self._node.volatile, size)
            self._node.pending.append((size, None))
        if dies:
            self._disk.die()

    def truncate(self, size: int) -> None:
        dies = self._step("truncate")
        if size < len(self._node.volatile):
            _resize(self._node.volatile, size)
            self._node.pending.append((size, None))
        if dies:
            self._disk.die()

    def close(self) -> None:
        self._closed = True
