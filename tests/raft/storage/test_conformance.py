"""The shipped storages keep the promises of the interface, each on each medium; and the class notices who does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from raft.messages import Recovered, Write
from raft.sim.disk import VirtualDisk, seeded
from raft.storage.conformance import StorageConformance
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.interface import Files, Storage
from raft.storage.memory import MemoryStorage
from raft.storage.segment import SegmentStorage


def on(files: Files) -> SegmentStorage:
    return SegmentStorage(files, "c", "n", segment_bytes=64 << 10, rng=Random(1))


class TestMemory(StorageConformance):
    def make(self) -> Storage:
        return MemoryStorage()

    def reopen(self, storage: Storage) -> Storage:
        storage.close()
        return storage

    def crash(self, storage: Storage, rng: Random) -> Storage:
        assert isinstance(storage, MemoryStorage)
        storage.crash(lambda count: rng.randint(0, count))
        return storage


class TestSegmentsOnVirtualDisk(StorageConformance):
    def make(self) -> Storage:
        self.disk = VirtualDisk(seeded(1))
        format_directory(self.disk, "c", "n", bytes(16))
        return on(self.disk)

    def reopen(self, storage: Storage) -> Storage:
        storage.close()
        return on(self.disk)

    def crash(self, storage: Storage, rng: Random) -> Storage:
        self.disk.crash()
        self.disk.restart()
        return on(self.disk)


class TestSegmentsOnRealDisk(StorageConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path, self.count = tmp_path, 0

    def make(self) -> Storage:
        self.count += 1
        self.files = DirectoryFiles(self.path / str(self.count))
        format_directory(self.files, "c", "n", bytes(16))
        return on(self.files)

    def reopen(self, storage: Storage) -> Storage:
        storage.close()
        return on(self.files)

    def crash(self, storage: Storage, rng: Random) -> Storage:
        self.files.unlock()  # a killed process: nothing closed, nothing lost
        self.files = DirectoryFiles(self.path / str(self.count))
        return on(self.files)


class Forgetful(MemoryStorage):
    """Says that it synced."""

    def sync(self) -> None:
        pass


class Reordering(MemoryStorage):
    """Takes a call's writes in any order that fits."""

    def write(self, writes: Sequence[Write]) -> None:
        for write in writes:
            hard_state, write.hard_state = write.hard_state, None
            super().write([Write(write.token, write.group, hard_state=hard_state)])
            super().write([write])


class Amnesiac(MemoryStorage):
    """Loses term and vote."""

    def open(self) -> dict[int, Recovered]:
        return {group: Recovered(last_index=found.last_index, last_term=found.last_term, last_mark=found.last_mark,
                                 term_runs=found.term_runs) for group, found in super().open().items()}


def failing(kind: type[MemoryStorage]) -> list[str]:
    class Broken(TestMemory):
        def make(self) -> Storage:
            return kind()

    out = []
    for name in dir(Broken):
        if name.startswith("test_"):
            try:
                getattr(Broken(), name)()
            except AssertionError:
                out.append(name)
    return out


def test_a_lost_sync_is_noticed() -> None:
    assert "test_a_crash_leaves_a_prefix_with_everything_synced" in failing(Forgetful)


def test_writes_torn_apart_are_noticed() -> None:
    assert "test_a_crash_leaves_a_prefix_with_everything_synced" in failing(Reordering)


def test_a_lost_vote_is_noticed() -> None:
    assert {"test_term_and_vote_alone", "test_fields_apply_in_order"} <= set(failing(Amnesiac))


def test_the_sound_one_passes() -> None:
    assert failing(MemoryStorage) == []
