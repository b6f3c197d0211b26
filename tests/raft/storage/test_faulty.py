"""The fault wrappers do what they say, and storages keep their promises under them."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from raft.errors import DamagedLog, DiskFull, WriteFailed
from raft.messages import HardState, Write
from raft.sim.disk import VirtualDisk
from raft.storage.conformance import StorageConformance, frames, read_all, snapshot_at
from raft.storage.directory import DirectoryFiles
from raft.storage.faulty import FaultyFiles, FaultyStorage
from raft.storage.identity import format_directory
from raft.storage.interface import Storage
from raft.storage.memory import MemoryStorage
from raft.storage.model import LogImage, differs
from raft.storage.segment import SegmentStorage


def on(files: FaultyFiles) -> SegmentStorage:
    return SegmentStorage(files, "c", "n", segment_bytes=64 << 10, rng=Random(1))


class TestPowerCutsOnARealDirectory(StorageConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path, self.count = tmp_path, 0

    def make(self) -> Storage:
        self.count += 1
        self.files = FaultyFiles(DirectoryFiles(self.path / str(self.count)))
        format_directory(self.files, "c", "n", bytes(16))
        return on(self.files)

    def reopen(self, storage: Storage) -> Storage:
        storage.close()
        return on(self.files)

    def crash(self, storage: Storage, rng: Random) -> Storage:
        self.files.power_cut(rng)
        self.files.unlock()
        return on(self.files)

    def fill(self, storage: Storage) -> bool:
        self.files.full = True
        return True

    def relieve(self, storage: Storage) -> None:
        self.files.full = False

    def test_cuts_happened(self) -> None:
        self.test_a_crash_leaves_a_prefix_with_everything_synced()
        assert {"write kept", "write lost", "write torn"} <= self.files.counts.keys()


def opened() -> tuple[FaultyFiles, SegmentStorage]:
    files = FaultyFiles(VirtualDisk())
    format_directory(files, "c", "n", bytes(16))
    storage = on(files)
    storage.open()
    return files, storage


def test_a_lying_sync_loses_what_was_promised() -> None:
    files, storage = opened()
    log = frames(30)
    files.lying_syncs = True
    storage.write([Write(1, 1, frames=log)])
    storage.sync()
    for seed in range(20):
        files.power_cut(Random(seed))
    files.unlock()
    files.lying_syncs = False
    assert on(files).open() == {}
    assert files.counts["lying sync"] == 1


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_errors_of_files_are_final_for_the_log(operation: str) -> None:
    files, storage = opened()
    log = frames(3)
    storage.write([Write(1, 1, frames=log[:1])])
    storage.sync()
    files.fail(operation, errno.EIO)

    def both() -> None:
        storage.write([Write(2, 1, frames=log[1:])])
        storage.sync()

    with pytest.raises(WriteFailed):
        both()
    with pytest.raises(WriteFailed):
        storage.sync()
    assert files.counts[operation] == 1
    files.power_cut(Random(1))
    files.unlock()
    found = on(files)
    recovered = found.open()[1]
    kept = read_all(found, 1, 1)
    assert kept
    assert not differs(LogImage(frames=tuple(log[: len(kept)])), recovered, kept)


def test_a_full_disk_of_files() -> None:
    files, storage = opened()
    files.full = True
    log = frames(200, size=2_000)
    with pytest.raises(DiskFull):
        storage.write([Write(1, 1, frames=log)])
    storage.write([Write(1, 1, hard_state=HardState(2))])
    with pytest.raises(DiskFull):
        storage.create_snapshot(1, snapshot_at(log[0]))
    files.full = False
    storage.write([Write(2, 1, frames=log)])
    assert files.counts["full"] >= 2


def test_a_flipped_bit_is_reported_with_its_place() -> None:
    files, storage = opened()
    storage.write([Write(1, 1, frames=frames(3))])
    storage.sync()
    files.flip = ("log/00000000000000000001.seg", 300)
    with pytest.raises(DamagedLog) as error:
        read_all(storage, 1, 1)
    assert error.value.path == "log/00000000000000000001.seg"
    assert files.counts["flip"]


def test_a_read_error_is_damage_that_is_told() -> None:
    files, storage = opened()
    storage.write([Write(1, 1, frames=frames(3))])
    files.fail("read", skip=0)
    with pytest.raises(DamagedLog, match="cannot be read"):
        storage.read(1, 1, 100)
    assert len(storage.read(1, 1, 100)) == 1


def test_slow_files_wait() -> None:
    waits: list[float] = []
    files = FaultyFiles(VirtualDisk(), sleep=waits.append)
    format_directory(files, "c", "n", bytes(16))
    storage = on(files)
    storage.open()
    files.slow_s = 0.25
    storage.write([Write(1, 1, hard_state=HardState(1))])
    storage.sync()
    assert waits == [0.25, 0.25, 0.25]  # block, sync, mark


def test_faulty_storage_fails_for_good() -> None:
    for operation in ("write", "sync"):
        storage = FaultyStorage(MemoryStorage())
        storage.open()
        storage.fail(operation, skip=1)
        storage.write([Write(1, 1, hard_state=HardState(1))])
        storage.sync()

        def both(storage: FaultyStorage = storage) -> None:
            storage.write([Write(2, 1, hard_state=HardState(2))])
            storage.sync()

        with pytest.raises(WriteFailed):
            both()
        with pytest.raises(WriteFailed):
            both()
        assert storage.counts == {operation: 1}


def test_faulty_storage_is_full_damaged_or_slow_on_demand() -> None:
    waits: list[float] = []
    storage, log = FaultyStorage(MemoryStorage(), sleep=waits.append), frames(3)
    storage.open()
    storage.write([Write(1, 1, frames=log[:2])])
    storage.full = True
    with pytest.raises(DiskFull):
        storage.write([Write(2, 1, frames=log[2:])])
    with pytest.raises(DiskFull):
        storage.receive_snapshot(1, snapshot_at(log[0]))
    storage.write([Write(2, 1, hard_state=HardState(1))])
    storage.full = False
    storage.flip = True
    with pytest.raises(DamagedLog):
        storage.read(1, 1, 100)
    with pytest.raises(DamagedLog):
        storage.read_snapshot(1, 1, 0, 100)
    storage.flip = False
    storage.slow_s = 0.5
    storage.sync()
    assert waits == [0.5]
    assert len(storage.read(1, 1, 1000)) == 2
    assert storage.counts == {"full": 2, "flip": 2, "slow": 1}


class TestNothingWrong(StorageConformance):
    """A wrapper without faults changes nothing."""

    def make(self) -> Storage:
        return FaultyStorage(MemoryStorage())

    def reopen(self, storage: Storage) -> Storage:
        return storage
