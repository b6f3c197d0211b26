"""The segment log besides crashes: full disk, failed syncs, odd sizes, directories that are not ours."""

from __future__ import annotations

import errno
import os
from random import Random
from typing import Any

import pytest

from raft.errors import DiskFull, StorageError, UsageError, WriteFailed
from raft.frame import Frame, Kind, build
from raft.messages import HardState, Write
from raft.sim.disk import VirtualDisk, VirtualFile, seeded
from raft.storage.conformance import frames, read_all, snapshot_at
from raft.storage.identity import format_directory
from raft.storage.model import LogImage, differs
from raft.storage.segment import SegmentStorage

SEGMENT_BYTES = 32 << 10


def make(disk: VirtualDisk, *, background: bool = False) -> SegmentStorage:
    return SegmentStorage(disk, "c", "n", segment_bytes=SEGMENT_BYTES, rng=Random(1), background=background)


def fresh(*, background: bool = False) -> tuple[VirtualDisk, SegmentStorage]:
    disk = VirtualDisk(seeded(1))
    format_directory(disk, "c", "n", bytes(16))
    storage = make(disk, background=background)
    assert storage.open() == {}
    return disk, storage


def put(storage: SegmentStorage, log: list[Frame]) -> None:
    for frame in log:
        storage.write([Write(frame.first, 1, frames=[frame])])
        storage.sync()


def fill(storage: SegmentStorage, log: list[Frame]) -> int:
    """Write frames until the disk is full; how many were kept."""
    for number, frame in enumerate(log):
        try:
            storage.write([Write(frame.first, 1, frames=[frame])])
        except DiskFull:
            return number
        storage.sync()
    raise AssertionError("the disk never got full")


# --- a full disk ---------------------------------------------------------------------------------------------


def test_full_disk_keeps_nothing_of_the_call_and_still_takes_votes() -> None:
    disk, storage = fresh()
    log = frames(100, size=2_000)
    put(storage, log[:5])
    disk.faults.capacity_bytes = disk.used_bytes()
    kept = 5 + fill(storage, log[5:])
    with pytest.raises(DiskFull, match="no room for another segment"):
        storage.write([Write(100, 1, hard_state=HardState(9, "z")), Write(101, 1, frames=log[kept : kept + 1])])
    for term in range(1, 40):
        storage.write([Write(200 + term, 1, hard_state=HardState(term, "a-node-with-a-name"))])
        storage.sync()
    assert not storage.has_room()
    assert [frame.first for frame in read_all(storage, 1, 1)] == list(range(1, kept + 1))
    storage.close()
    storage = make(disk)
    found = storage.open()[1]
    image = LogImage(HardState(39, "a-node-with-a-name"), frames=tuple(log[:kept]))
    assert not differs(image, found, read_all(storage, 1, 1))


def test_room_lets_frames_in_again() -> None:
    disk, storage = fresh()
    log = frames(100, size=2_000)
    disk.faults.capacity_bytes = disk.used_bytes()
    kept = fill(storage, log)
    assert not [name for name in disk.list("log") if name.startswith("spare")], "half a spare was left behind"
    disk.faults.capacity_bytes += SEGMENT_BYTES
    assert storage.has_room()
    put(storage, log[kept : kept + 10])
    assert len(read_all(storage, 1, 1)) == kept + 10


def test_purging_makes_room_on_a_full_disk() -> None:
    disk, storage = fresh()
    log = frames(100, size=2_000)
    put(storage, log[:40])
    disk.faults.capacity_bytes = disk.used_bytes() + 2_000
    kept = 40 + fill(storage, log[40:])
    storage.create_snapshot(1, snapshot_at(log[kept - 1])).finish()
    storage.write([Write(500, 1, purge_to=kept)])
    storage.write([Write(501, 1, hard_state=HardState(1))])
    storage.sync()
    put(storage, log[kept : kept + 3])
    assert [frame.first for frame in read_all(storage, 1, kept + 1)] == [kept + 1, kept + 2, kept + 3]


def test_a_call_larger_than_a_segment_is_all_or_nothing_when_full() -> None:
    disk, storage = fresh()
    log = frames(100, size=2_000)
    disk.faults.capacity_bytes = disk.used_bytes() + SEGMENT_BYTES + 100
    with pytest.raises(DiskFull):
        storage.write([Write(1, 1, frames=log)])
    assert storage.read(1, 1, 100) == []
    disk.faults.capacity_bytes = 1 << 40
    storage.write([Write(1, 1, hard_state=HardState(3), frames=log)])
    storage.sync()
    storage.close()
    storage = make(disk)
    assert not differs(LogImage(HardState(3), frames=tuple(log)), storage.open()[1], read_all(storage, 1, 1))


def test_a_frame_larger_than_a_segment_is_a_mistake_of_the_caller() -> None:
    _, storage = fresh()
    huge = build(kind=Kind.COMMANDS, group=1, term=1, first=1, payloads=[bytes(SEGMENT_BYTES)], wall_ms=0, chain=0)
    with pytest.raises(UsageError, match="does not fit into a segment"):
        storage.write([Write(1, 1, frames=[huge])])
    put(storage, frames(1))


@pytest.mark.parametrize("size", [20_000, 26_000])
def test_frames_of_almost_a_segment_fit(size: int) -> None:
    disk, storage = fresh()
    log = frames(3, size=size)
    put(storage, log)
    storage.close()
    storage = make(disk)
    assert not differs(LogImage(frames=tuple(log)), storage.open()[1], read_all(storage, 1, 1))


# --- failures ------------------------------------------------------------------------------------------------


def test_a_failed_sync_is_final_even_when_the_next_one_would_succeed() -> None:
    disk, storage = fresh()
    log = frames(5)
    put(storage, log[:2])
    disk.fail("sync")
    storage.write([Write(3, 1, frames=[log[2]])])
    with pytest.raises(WriteFailed, match="Input/output error"):
        storage.sync()
    for call in (storage.sync, lambda: storage.write([Write(4, 1, hard_state=HardState(5))])):
        with pytest.raises(WriteFailed, match="not known any more"):
            call()
    storage.close()
    disk.crash()
    disk.restart()  # the dropped pages never reached the disk
    storage = make(disk)
    assert not differs(LogImage(frames=tuple(log[:2])), storage.open()[1], read_all(storage, 1, 1))


@pytest.mark.parametrize("operation", ["write", "short_write"])
def test_a_failed_write_is_final(operation: str) -> None:
    disk, storage = fresh()
    log = frames(5)
    put(storage, log[:2])
    disk.fail(operation)
    with pytest.raises(WriteFailed):
        storage.write([Write(3, 1, frames=[log[2]])])
    with pytest.raises(WriteFailed):
        storage.sync()
    assert [frame.first for frame in read_all(storage, 1, 1)] == [1, 2], "reading goes on"
    storage.close()
    storage = make(disk)
    assert not differs(LogImage(frames=tuple(log[:2])), storage.open()[1], read_all(storage, 1, 1))


@pytest.mark.parametrize("operation", ["rename", "sync_dir"])
def test_a_failure_while_rolling_is_final(operation: str) -> None:
    disk, storage = fresh(background=True)
    assert storage.maintain()
    log = frames(40, size=2_000)
    disk.fail(operation)
    with pytest.raises(WriteFailed):
        put(storage, log)
    with pytest.raises(WriteFailed):
        storage.sync()


def test_a_spare_that_cannot_be_made_harms_nothing() -> None:
    disk, storage = fresh(background=True)
    disk.fail("allocate", errno.EIO)
    assert storage.needs_maintenance
    assert not storage.maintain()
    put(storage, frames(3))
    assert storage.maintain()
    assert not storage.needs_maintenance


def test_a_prepared_spare_leaves_nothing_to_allocate_when_rolling() -> None:
    disk, storage = fresh(background=True)
    assert storage.maintain()
    disk.journal = []
    put(storage, frames(20, size=2_000))
    assert [line for line in disk.journal if line.startswith("rename")]
    assert not [line for line in disk.journal if line.startswith(("create", "allocate"))]


def test_purged_segments_wait_for_the_background() -> None:
    disk, storage = fresh(background=True)
    log = frames(60, size=2_000)
    put(storage, log)
    storage.maintain()
    storage.create_snapshot(1, snapshot_at(log[-1])).finish()
    storage.write([Write(500, 1, purge_to=60)])
    storage.write([Write(501, 1, hard_state=HardState(1))])
    before = disk.list("log")
    storage.sync()
    assert disk.list("log") == before
    assert storage.needs_maintenance
    assert storage.maintain()
    assert len([name for name in disk.list("log") if name.endswith(".seg")]) == 1


def test_it_tells_before_a_write_whether_that_would_touch_another_file() -> None:
    """What it promises costs one write and one sync: no segment is sealed, made or dropped."""
    disk, storage = fresh(background=True)
    log, quick = frames(60, size=1_500), 0
    names, rolls = set(disk.list("log")), 0
    for frame in log:
        promised = storage.only_appends(len(frame.data))
        put(storage, [frame])
        now = set(disk.list("log"))
        assert promised == (now == names), frame
        names, rolls, quick = now, rolls + (not promised), quick + promised
    assert rolls >= 2 and quick > 40
    storage.create_snapshot(1, snapshot_at(log[-1])).finish()
    storage.write([Write(100, 1, purge_to=log[-1].last)])
    assert not storage.only_appends(1), "the next sync may drop segments"
    storage.sync()
    assert storage.only_appends(1)
    storage.close()


def test_scrubbing_while_the_log_rolls_finds_no_damage() -> None:
    """The newest segment may be there without its first block yet: that is no damage."""
    _, storage = fresh()
    write_block, rolls = storage._write_block, [0]

    def beside(unit: Any, *, first: bool = False) -> None:
        if first:
            rolls[0] += 1
            for path in storage.scrub():
                assert path.endswith(".seg")
        write_block(unit, first=first)

    storage._write_block = beside  # type: ignore[method-assign]
    put(storage, frames(60, size=2_000))
    assert rolls[0] > 2


# --- no descriptors ------------------------------------------------------------------------------------------


def out_of_descriptors(disk: VirtualDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *, create: bool = False) -> VirtualFile:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(disk, "open", refuse)


@pytest.mark.parametrize("background", [False, True])
def test_a_process_without_descriptors_writes_until_its_spares_are_used_up_and_goes_on_later(
    background: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, storage = fresh(background=background)
    assert storage.maintain()
    log = frames(60, size=2_000)
    with monkeypatch.context() as short:
        out_of_descriptors(disk, short)
        kept = fill(storage, log)
        assert kept > SEGMENT_BYTES // 2_000, "the spare was used"
        storage.write([Write(99, 1, hard_state=HardState(3))])
        storage.sync()
        assert not storage.has_room()
    assert storage.has_room()
    put(storage, log[kept:])
    storage.close()
    storage = make(disk)
    assert not differs(LogImage(HardState(3), frames=tuple(log)), storage.open()[1], read_all(storage, 1, 1))


def test_a_segment_that_cannot_be_opened_for_want_of_a_descriptor_is_not_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, storage = fresh()
    log = frames(60, size=2_000)
    put(storage, log)
    storage.create_snapshot(1, snapshot_at(log[9])).finish()
    storage.close()
    storage = make(disk)
    storage.open()
    with monkeypatch.context() as short:
        out_of_descriptors(disk, short)
        for read in (lambda: storage.read(1, 1, 100), lambda: storage.read_snapshot(1, 10, 0, 100)):
            with pytest.raises(StorageError, match="ulimit") as refused:
                read()
            assert type(refused.value) is StorageError
        scrub = storage.scrub(step_bytes=4_096)
        first = [next(scrub) for _ in range(3)]
    assert set(first) == {"log/00000000000000000001.seg"}
    newest = storage._catalog.segments[-1].sequence
    assert {first[0], *scrub} == {f"log/{number:020d}.seg" for number in range(1, newest)}
    assert storage.read(1, 1, 100)[0].first == 1


def test_a_purged_segment_is_removed_where_there_is_no_descriptor_to_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, storage = fresh(background=True)
    log = frames(60, size=2_000)
    put(storage, log)
    storage.create_snapshot(1, snapshot_at(log[-1])).finish()
    storage.write([Write(500, 1, purge_to=60)])
    storage.write([Write(501, 1, hard_state=HardState(1))])
    storage.sync()
    out_of_descriptors(disk, monkeypatch)
    assert not storage.maintain(), "there is no spare"
    assert len([name for name in disk.list("log") if name.endswith(".seg")]) == 1
    storage.write([Write(502, 1, hard_state=HardState(2))])
    storage.sync()


# --- sizes ---------------------------------------------------------------------------------------------------


def test_another_segment_size_takes_over_with_the_next_segment() -> None:
    disk, storage = fresh()
    log = frames(60, size=2_000)
    put(storage, log[:20])
    storage.close()
    storage = SegmentStorage(disk, "c", "n", segment_bytes=2 * SEGMENT_BYTES, rng=Random(2))
    storage.open()
    put(storage, log[20:])
    storage.close()
    storage = make(disk)
    assert not differs(LogImage(frames=tuple(log)), storage.open()[1], read_all(storage, 1, 1))


def other_size(disk: VirtualDisk, storage: SegmentStorage, segment_bytes: int) -> SegmentStorage:
    storage.close()
    storage = SegmentStorage(disk, "c", "n", segment_bytes=segment_bytes, rng=Random(2))
    storage.open()
    return storage


@pytest.mark.parametrize("before", [1, 4, 25])
def test_a_frame_that_only_larger_segments_hold_begins_one_at_once(before: int) -> None:
    disk, storage = fresh()
    log = frames(before, size=2_000)
    put(storage, log)
    storage = other_size(disk, storage, 4 * SEGMENT_BYTES)
    log += (large := frames(2, after=log[-1], size=4 * SEGMENT_BYTES))
    storage.write([Write(before + 1, 1, frames=large)])
    storage.sync()
    storage.close()
    storage = make(disk)
    assert not differs(LogImage(frames=tuple(log)), storage.open()[1], read_all(storage, 1, 1))


def test_a_full_disk_keeps_nothing_of_a_call_that_needs_segments_of_a_smaller_size() -> None:
    disk = VirtualDisk(seeded(1))
    format_directory(disk, "c", "n", bytes(16))
    storage = SegmentStorage(disk, "c", "n", segment_bytes=8 * SEGMENT_BYTES, rng=Random(1))
    storage.open()
    log = frames(200, size=2_000)
    put(storage, log[:2])
    storage = other_size(disk, storage, SEGMENT_BYTES)
    disk.faults.capacity_bytes = disk.used_bytes() + 2 * SEGMENT_BYTES
    with pytest.raises(DiskFull):
        storage.write([Write(200, 1, frames=log[2:])])
    assert len(read_all(storage, 1, 1)) == 2
    put(storage, log[2:10])
    assert len(read_all(storage, 1, 1)) == 10


def test_files_of_others_in_the_directory_are_left_alone() -> None:
    disk, storage = fresh()
    put(storage, frames(3))
    storage.close()
    strangers = ["log/notes.txt", "log/spare-abc", "log/spare-²²²²²²²²²²", "log/1.seg", "log/²²²²²²²²²²²²²²²²²²²².seg",
                 "snapshots/1-2-3.snap", "snapshots/x", "snapshots/1-00000000000000000005-2.snap.broken"]
    for path in strangers:
        disk.open(path, create=True)
    storage = make(disk)
    assert storage.open()[1].last_index == 3
    assert {path.rpartition("/")[2] for path in strangers} <= {*disk.list("log"), *disk.list("snapshots")}


def test_segment_bytes_has_a_least_value() -> None:
    with pytest.raises(UsageError, match="segment_bytes=1000"):
        SegmentStorage(VirtualDisk(), "c", "n", segment_bytes=1000)


def test_calls_in_the_wrong_state_are_refused() -> None:
    _, storage = fresh()
    with pytest.raises(UsageError, match="open already"):
        storage.open()
    with pytest.raises(UsageError, match="not on disk"):
        storage.write([Write(1, 1, install=snapshot_at(frames(1)[0]))])
    storage.close()
    with pytest.raises(UsageError, match="not open"):
        storage.write([])
