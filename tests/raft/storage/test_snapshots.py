"""Snapshot files besides what the conformance class asks: crashes, resuming, trouble, damage in every byte."""

from __future__ import annotations

import errno
from random import Random

import pytest
from google_crc32c import value as crc32c

from raft.errors import DamagedLog, DiskFull, UsageError, WriteFailed
from raft.membership import Membership
from raft.messages import SnapshotMeta
from raft.sim.disk import SimulatedCrash, VirtualDisk, seeded
from raft.storage import snapshots
from raft.storage.snapshots import SnapshotStore


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "CHUNK_BYTES", 1_000)


def store(disk: VirtualDisk) -> SnapshotStore:
    disk.make_dir("snapshots")
    made = SnapshotStore(disk)
    made.load()
    return made


def meta(state: bytes, index: int = 5) -> SnapshotMeta:
    return SnapshotMeta(index, 2, 9, Membership(voters=("a",)), 0, len(state), crc32c(state))


def whole(held: SnapshotStore, index: int = 5) -> bytes:
    out = b""
    while piece := held.read(1, index, len(out), 700):
        out += piece
    return out


STATE = Random(1).randbytes(4_321)


@pytest.mark.parametrize("received", [False, True])
def test_crash_in_every_operation(received: bool) -> None:
    """The older one or both are there afterwards, each whole; what was staged is no obstacle."""
    for seed in range(12):
        for crash_at in range(1, 40):
            disk = VirtualDisk(seeded(seed))
            held = store(disk)
            old = held.create(1, meta(b"old", 3))
            old.write(b"old")
            old.finish()
            disk.crash_at(disk.operations + crash_at)
            try:
                sink = held.receive(1, meta(STATE)) if received else held.create(1, meta(STATE))
                for start in range(0, len(STATE), 600):
                    sink.write(STATE[start : start + 600])
                sink.finish()
            except SimulatedCrash:
                pass
            disk.crash()
            disk.restart()
            held = store(disk)
            newest = held.newest(1)
            assert newest is not None
            assert whole(held, newest.index) == (STATE if newest.index == 5 else b"old")
            assert whole(held, 3) == b"old"
            sink = held.receive(1, meta(STATE))
            assert sink.offset % 1_000 == 0
            sink.write(STATE[sink.offset :])
            assert sink.finish() == meta(STATE) == held.newest(1)
            assert whole(held) == STATE


def test_resuming_takes_over_only_whole_sound_chunks() -> None:
    disk = VirtualDisk()
    held = store(disk)
    held.receive(1, meta(STATE)).write(STATE[:3_500])
    held.close()
    path = "snapshots/1-00000000000000000005-2.part"
    assert store(disk).receive(1, meta(STATE)).offset == 3_000
    start = disk.open(path).size() - 3 * 1_016
    disk.rot(path, start + 1_016 + 100)
    sink = store(disk).receive(1, meta(STATE))
    assert sink.offset == 1_000
    sink.write(STATE[1_000:])
    assert sink.finish() == meta(STATE)
    assert disk.list("snapshots") == ["1-00000000000000000005-2.snap"]


def test_another_snapshot_starts_afresh_and_drops_what_was_staged() -> None:
    disk = VirtualDisk()
    held = store(disk)
    held.receive(1, meta(STATE)).write(STATE[:3_500])
    sink = held.receive(1, meta(STATE[:2_000], index=8))
    assert sink.offset == 0
    assert disk.list("snapshots") == ["1-00000000000000000008-2.part"]
    other = held.receive(2, meta(STATE))
    assert other.offset == 0
    assert len(disk.list("snapshots")) == 2, "another group's staging is its own"


def test_half_written_own_snapshots_are_removed_when_opening() -> None:
    disk = VirtualDisk()
    store(disk).create(1, meta(STATE)).write(STATE)
    assert disk.list("snapshots") == ["1-00000000000000000005-2.tmp"]
    assert store(disk).groups() == []
    assert disk.list("snapshots") == []


@pytest.mark.parametrize(("operation", "code", "kind"), [
    ("write", errno.EIO, WriteFailed), ("write", errno.ENOSPC, DiskFull), ("sync", errno.EIO, WriteFailed),
    ("rename", errno.EIO, WriteFailed), ("sync", errno.EDQUOT, DiskFull),
])
def test_trouble_ends_this_snapshot_and_leaves_nothing(
    operation: str, code: int, kind: type[Exception]
) -> None:
    disk = VirtualDisk()
    held = store(disk)
    sink = held.create(1, meta(STATE))
    disk.fail(operation, code)

    def rest() -> None:
        sink.write(STATE)
        sink.finish()

    with pytest.raises(kind, match="snapshot 5 of group 1"):
        rest()
    assert held.newest(1) is None
    if operation != "rename":  # then it was synced already, and may stay staged
        assert disk.list("snapshots") == []
    with pytest.raises(UsageError):
        sink.write(b"more")
    sink = held.create(1, meta(STATE))
    sink.write(STATE)
    assert sink.finish().size == len(STATE)


@pytest.mark.parametrize("operation", ["list", "remove"])
def test_trouble_before_the_first_chunk_ends_this_snapshot_only(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of a node could not be listed, and that ended its whole program."""
    disk = VirtualDisk()
    held = store(disk)
    held.receive(1, meta(STATE, 4)).write(STATE)
    held.close()

    def fails(path: str) -> None:
        raise OSError(errno.EIO, "no answer of the disk")

    with monkeypatch.context() as patched:
        patched.setattr(disk, operation, fails)
        with pytest.raises(WriteFailed, match="snapshot 5 of group 1: no answer of the disk"):
            held.receive(1, meta(STATE))
    sink = held.receive(1, meta(STATE))
    sink.write(STATE)
    assert sink.finish().size == len(STATE)


def test_a_snapshot_is_there_although_an_older_one_stays() -> None:
    disk = VirtualDisk()
    held = store(disk)
    for index in (3, 4, 5):
        sink = held.create(1, meta(STATE, index))
        sink.write(STATE)
        if index == 5:
            disk.fail("remove")
        sink.finish()
    newest = held.newest(1)
    assert newest is not None and newest.index == 5 and len(disk.list("snapshots")) == 3


def test_every_damaged_byte_of_a_snapshot_is_noticed() -> None:
    disk = VirtualDisk()
    held = store(disk)
    sink = held.create(1, meta(STATE))
    sink.write(STATE)
    sink.finish()
    path = "snapshots/1-00000000000000000005-2.snap"
    for offset in range(0, disk.open(path).size(), 7):
        disk.rot(path, offset, 0x20)
        again = store(disk)
        assert again.newest(1) is None, f"byte {offset}"
        assert again.broken_words(1).startswith(f"; {path} at byte ")
        disk.rename(path + ".broken", path)
        disk.rot(path, offset, 0x20)
    assert whole(store(disk)) == STATE


def test_damage_after_opening_is_noticed_when_it_is_read() -> None:
    disk = VirtualDisk()
    held = store(disk)
    sink = held.create(1, meta(STATE))
    sink.write(STATE)
    sink.finish()
    disk.rot("snapshots/1-00000000000000000005-2.snap", 1_500)
    with pytest.raises(DamagedLog, match="chunk 1 of the snapshot fails its CRC"):
        whole(held)


def test_an_empty_state() -> None:
    disk = VirtualDisk()
    held = store(disk)
    assert held.create(1, meta(b"")).finish().size == 0
    assert held.read(1, 5, 0, 10) == b""
    assert store(disk).newest(1) is not None
