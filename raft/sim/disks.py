"""What a simulated node may keep its bytes on: memory, fast, or the real segment log on a virtual disk.

Knows storages and what a power cut leaves of them; knows no replicas and no time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from raft.sim.disk import VirtualDisk
from raft.sim.tape import Tape
from raft.storage.identity import format_directory
from raft.storage.interface import Storage
from raft.storage.memory import MemoryStorage
from raft.storage.segment import SegmentStorage

CLUSTER: Final = "simulated"
SEGMENT_BYTES: Final = 1 << 18


class SimDisk(Protocol):
    """Where a node's bytes are: makes storages, and decides what a crash leaves."""

    def storage(self) -> Storage:
        """The storage, as a process that starts now finds it."""
    def crash(self, survivors: Callable[[int], int]) -> int:
        """Power is cut: of n un-synced writes the first ``survivors(n)`` are kept. Returns how many were lost."""


class MemoryDisk:
    """A ``SimDisk`` on ``MemoryStorage``: fast, no bytes."""

    def __init__(self) -> None:
        self._storage = MemoryStorage()

    def storage(self) -> MemoryStorage:
        return self._storage

    def crash(self, survivors: Callable[[int], int]) -> int:
        waiting = self._storage.unsynced
        kept = survivors(waiting) if waiting else 0
        self._storage.crash(lambda _: kept)
        return waiting - kept


class SegmentDisk:
    """A ``SimDisk`` on the segment log and a ``VirtualDisk``: every byte, torn sectors and lost names, much slower.

    What a crash leaves is the virtual disk's choice, from its own streams of the tape.
    """

    def __init__(self, name: str, tape: Tape, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._name, self._segment_bytes = name, segment_bytes
        self._bits = tape.bits(f"disk/{name}")
        self.files = VirtualDisk(tape.draw, name=f"disk/{name}")
        self._crashed = False
        format_directory(self.files, CLUSTER, name, self._bits.getrandbits(128).to_bytes(16, "big"))

    def storage(self) -> SegmentStorage:
        if self._crashed:
            self.files.restart()
            self._crashed = False
        return SegmentStorage(self.files, CLUSTER, self._name, segment_bytes=self._segment_bytes, rng=self._bits)

    def crash(self, survivors: Callable[[int], int]) -> int:
        self.files.crash()
        self._crashed = True
        return 0
