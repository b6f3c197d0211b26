"""The mark beside the log: what was synced and is not there any more is noticed, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from raft.errors import WrongDirectory
from raft.frame import Frame
from raft.membership import Membership
from raft.messages import WHOLE, HardState, Lapse, Recovered, SnapshotMeta, Write
from raft.sim.disk import VirtualDisk, seeded
from raft.storage.audit import records
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.mark import NAME, SLOT_BYTES, Mark
from raft.storage.segment import SegmentStorage
from tests.raft.script import frame


def formatted(seed: int = 1) -> VirtualDisk:
    disk = VirtualDisk(seeded(seed))
    format_directory(disk, "c", "n0", b"i" * 16)
    return disk


def opened(disk: VirtualDisk) -> tuple[SegmentStorage, Recovered]:
    storage = SegmentStorage(disk, "c", "n0", segment_bytes=64 << 10, rng=Random(disk.operations))
    return storage, storage.open().get(1, Recovered())


def frames(count: int, term: int = 1, first: int = 1, chain: int = 0) -> list[Frame]:
    made: list[Frame] = []
    for index in range(first, first + count):
        made.append(frame(index, term, b"%d" % index, chain=made[-1].mark if made else chain))
    return made


def written(disk: VirtualDisk, count: int = 3) -> SegmentStorage:
    """A block for each entry, every one synced; term 1, a vote for n1."""
    storage, _ = opened(disk)
    storage.write([Write(1, 1, hard_state=HardState(1, "n1"))])
    storage.sync()
    for number, each in enumerate(frames(count)):
        storage.write([Write(2 + number, 1, frames=[each])])
        storage.sync()
    return storage


def rot_last_block(disk: VirtualDisk) -> None:
    last = list(records(disk))[-1]
    disk.rot(last.path, last.offset + 5, 0x40)


def test_BUG_F10_an_end_that_rots_while_the_process_is_dead_is_missed() -> None:
    """CTRL (FAST 2018): rot at the end is taken for a torn write, and an acknowledgement forgotten. Guards the mark."""
    disk = formatted()
    written(disk)
    disk.kill()
    rot_last_block(disk)
    _, found = opened(disk)
    assert (found.last_index, found.lapse) == (2, Lapse(3, 1))


def test_BUG_F11_a_lapse_is_kept_until_it_is_said_to_be_over() -> None:
    """Also while the log grows again beyond the blocks that were lost."""
    disk = formatted()
    written(disk)
    disk.kill()
    rot_last_block(disk)
    for number in range(3):
        storage, found = opened(disk)
        assert found.lapse == Lapse(3, 1)
        storage.write([Write(1, 1, hard_state=HardState(2 + number))])
        storage.sync()
        if number == 1:
            disk.crash()
            disk.restart()
        else:
            disk.kill()
    storage, _ = opened(disk)
    storage.write([Write(1, 1, lapse=WHOLE)])
    storage.sync()
    disk.crash()
    disk.restart()
    _, found = opened(disk)
    assert found.lapse is None and found.hard_state == HardState(4)


def test_BUG_F12_a_vote_that_rots_is_given_back_by_the_mark() -> None:
    """CTRL (FAST 2018): a vote rots, and is given twice. Guards the hard state in the mark."""
    disk = formatted()
    storage = written(disk)
    storage.write([Write(9, 1, hard_state=HardState(7, "n2"))])
    storage.sync()
    disk.kill()
    rot_last_block(disk)
    _, found = opened(disk)
    assert found.hard_state == HardState(7, "n2")
    assert (found.last_index, found.lapse) == (3, None)  # no entry is missing


@pytest.mark.parametrize("seed", range(60))
def test_BUG_F13_no_power_cut_looks_like_a_loss(seed: int) -> None:
    """The mark may trail the log; it is never ahead of it, whatever the system wrote back first."""
    disk, rng = formatted(seed), Random(seed)
    storage, found = opened(disk)
    due, chain = 1, 0
    for _ in range(6):
        for _ in range(rng.randrange(4)):
            (each,) = frames(1, first=due, chain=chain)
            storage.write([Write(due, 1, frames=[each])])
            due, chain = due + 1, each.mark
            if rng.random() < 0.6:
                storage.sync()
        if rng.random() < 0.3:
            disk.kill()
        else:
            disk.crash()
            disk.restart()
        storage, found = opened(disk)
        assert found.lapse is None
        due, chain = found.last_index + 1, found.last_mark


def test_a_snapshot_that_covers_what_rotted_makes_up_for_it() -> None:
    disk = formatted()
    storage = written(disk)
    last = storage.read(1, 3, 1)[0]
    sink = storage.create_snapshot(1, SnapshotMeta(3, 1, last.mark, Membership(("n0",)), 0))
    sink.write(b"state")
    sink.finish()
    disk.kill()
    rot_last_block(disk)
    _, found = opened(disk)
    assert found.lapse is None and found.last_index == 3


def test_a_mark_that_is_damaged_or_of_another_directory_says_nothing() -> None:
    disk = formatted()
    written(disk)
    disk.kill()
    rot_last_block(disk)
    disk.rot(NAME, 40)
    _, found = opened(disk)
    assert (found.last_index, found.lapse) == (2, None)
    other = formatted()
    written(other)
    mark = Mark(other, 12345)
    mark.load()
    assert mark.lapse(1) is None and mark.judge(opened(other)[0]._catalog, 0, {}) == {}


def test_many_groups_are_marked_a_few_at_a_time() -> None:
    disk = formatted()
    storage, _ = opened(disk)
    storage.write([Write(1, group, hard_state=HardState(1)) for group in range(1, 21)])
    storage.sync()
    assert disk.open(NAME).size() // SLOT_BYTES == 7
    for _ in range(2):
        storage.write([Write(2, 1, hard_state=HardState(2))])
        storage.sync()
    assert disk.open(NAME).size() // SLOT_BYTES == 19


def test_on_a_real_directory(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    format_directory(files, "c", "n0", b"i" * 16)
    storage = SegmentStorage(files, "c", "n0", segment_bytes=64 << 10)
    storage.open()
    storage.write([Write(1, 1, hard_state=HardState(1), frames=frames(2))])
    storage.sync()
    assert 0 < (tmp_path / NAME).stat().st_size <= SLOT_BYTES
    storage.close()
    with pytest.raises(WrongDirectory):
        format_directory(files, "c", "n1", b"j" * 16)
