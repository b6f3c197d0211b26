"""Disks of simulated nodes: a fast one in memory, and the real segment log on a virtual disk.

Knows storages, what a power cut leaves of them, and which rot must be noticed; knows no replicas and no time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from raft.sim.disk import SECTOR_BYTES, VirtualDisk
from raft.sim.neighbours import SEGMENT_BYTES, place_of
from raft.sim.tape import Tape
from raft.storage.audit import records
from raft.storage.blocks import BLOCK_BYTES
from raft.storage.identity import format_directory
from raft.storage.interface import Storage
from raft.storage.memory import MemoryStorage
from raft.storage.recovery import SUFFIX
from raft.storage.segment import SegmentStorage

CLUSTER: Final = "simulated"


class SimDisk(Protocol):
    """A node's disk: it opens storages, and decides which writes survive a crash."""

    def storage(self) -> Storage:
        """Return the storage as a process that starts now finds it."""
    def crash(self, survivors: Callable[[int], int]) -> int:
        """Cut the power: of n unsynced writes keep the first ``survivors(n)``. Return how many were lost."""


class MemoryDisk:
    """A ``SimDisk`` on ``MemoryStorage``: fast, and without bytes."""

    def __init__(self) -> None:
        self._storage = MemoryStorage()

    def copy(self) -> MemoryDisk:
        """Copy the disk of a node that is down."""
        other = MemoryDisk()
        other._storage = self._storage.copy()
        return other

    def storage(self) -> MemoryStorage:
        return self._storage

    def crash(self, survivors: Callable[[int], int]) -> int:
        waiting = self._storage.unsynced
        kept = survivors(waiting) if waiting else 0
        self._storage.crash(lambda _: kept)
        return waiting - kept


class SegmentDisk:
    """A ``SimDisk`` on the segment log and a ``VirtualDisk``: every byte, torn sectors and lost names, much slower.

    The virtual disk decides what survives a crash, from its own streams of the tape.
    """

    def __init__(self, name: str, tape: Tape, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._name, self._segment_bytes = name, segment_bytes
        self._bits = tape.bits(f"disk/{name}")
        self.files = VirtualDisk(tape.draw, name=f"disk/{name}")
        self._crashed = False
        format_directory(self.files, CLUSTER, name, self._bits.getrandbits(128).to_bytes(16, "big"))

    def storage(self) -> SegmentStorage:
        self._restart()
        return SegmentStorage(self.files, CLUSTER, self._name, segment_bytes=self._segment_bytes, rng=self._bits)

    def crash(self, survivors: Callable[[int], int]) -> int:
        self.files.crash()
        self._crashed = True
        return 0

    def _restart(self) -> None:
        if self._crashed:
            self.files.restart()
            self._crashed = False

    def damage(self, where: float, how: int) -> bool:
        """Flip a bit on a crashed disk's medium, or (odd ``how``) overwrite a sector as a misdirected write does.

        ``where``, in [0, 1), chooses among all bytes whose damage no crash explains: snapshots, and the log before its
        last block, whose damage looks like a torn write (see the storage's explanation). Every eighth damage flips a
        bit in the quiet group's last entry. Returns False if there is no such byte yet.
        """
        self._restart()
        if how % 8 == 2 and (place := place_of(self.files)) is not None:
            path, offset, size = place
            self.files.rot(path, offset + int(where * size), 1 << (how >> 4) % 8)
            return True
        spans = self._spans()
        at = int(where * sum(size for _, size in spans))
        for path, size in spans:
            if at >= size:
                at -= size
                continue
            if how % 2 and size >= SECTOR_BYTES:
                start = min(at // SECTOR_BYTES * SECTOR_BYTES, size - SECTOR_BYTES)
                self.files.overwrite(path, start, self._sector(how >> 1))
            else:
                self.files.rot(path, at, 1 << (how >> 1) % 8)
            return True
        return False

    def _spans(self) -> list[tuple[str, int]]:
        """Return files, each with the number of its first bytes that may be damaged."""
        spans = [(path, self.files.open(path).size()) for path in (
            f"snapshots/{name}" for name in self.files.list("snapshots")) if path.endswith(".snap")]
        last, start = None, 0
        for record in records(self.files):
            if last is None or (record.path, record.write) != (last.path, last.write):
                last, start = record, max(0, record.offset - BLOCK_BYTES)
        if last is not None:
            for path in (f"log/{name}" for name in self.files.list("log")):
                if path.endswith(SUFFIX) and path <= last.path:
                    spans.append((path, start if path == last.path else self.files.open(path).size()))
        return [span for span in spans if span[1]]

    def _sector(self, number: int) -> bytes:
        """Return the data of a misdirected write: some sector of this disk's newest segment."""
        newest = max(name for name in self.files.list("log") if name.endswith(SUFFIX))
        file = self.files.open(f"log/{newest}")
        return file.pread(SECTOR_BYTES, number % (file.size() // SECTOR_BYTES) * SECTOR_BYTES)
