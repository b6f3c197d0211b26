"""Quiet groups beside a busy one on one log: it stays short, nothing of theirs is lost, whenever the power goes."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from raft.bounds import INV_R39
from raft.errors import DamagedLog, DiskFull
from raft.frame import Frame, Kind, build
from raft.membership import Membership
from raft.messages import HardState, Recovered, SnapshotMeta, Write
from raft.sim.disk import SimulatedCrash, VirtualDisk, seeded
from raft.storage.audit import audit, records
from raft.storage.identity import format_directory
from raft.storage.model import Images, LogImage, apply, differs
from raft.storage.segment import SegmentStorage
from tests.raft.test_descriptors import no_descriptors

SEGMENT_BYTES = 32 << 10
BUSY = 1
QUIET = (2, 3, 4)


def everything(storage: SegmentStorage, group: int, first: int) -> list[Frame]:
    out: list[Frame] = []
    while found := storage.read(group, out[-1].last + 1 if out else first, 3_000):
        out += found
    return out


class Host:
    """One disk, its storage, and what every group must come back as."""

    def __init__(
        self, seed: int = 1, fate: int = 1, background: bool = False, segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.segment_bytes = segment_bytes
        self.disk, self.rng, self.background = VirtualDisk(seeded(fate)), Random(seed), background
        self.history: list[Images] = [{}]
        """Images after each write since the last synced one, which is the first."""
        self.removed: set[int] = set()
        self.token = 0
        format_directory(self.disk, "c", "n", bytes(16))
        self.storage = self.make()

    def make(self) -> SegmentStorage:
        return SegmentStorage(self.disk, "c", "n", segment_bytes=self.segment_bytes, rng=Random(self.rng.random()),
                              background=self.background)

    @property
    def now(self) -> Images:
        return self.history[-1]

    def image(self, group: int) -> LogImage:
        return self.now.get(group, LogImage())

    def frame(self, group: int, size: int, kind: Kind = Kind.COMMANDS, term: int = 1) -> Frame:
        index, _, mark = self.image(group).last
        return build(kind=kind, group=group, term=term, first=index + 1, payloads=[self.rng.randbytes(size)],
                     wall_ms=index, chain=mark)

    def write(self, *writes: Write) -> None:
        for write in writes:
            self.history.append(apply(self.now, write))
        self.storage.write(writes)

    def sync(self) -> None:
        self.storage.sync()
        del self.history[:-1]

    def put(self, group: int, size: int = 300, count: int = 1) -> None:
        for _ in range(count):
            self.token += 1
            self.write(Write(self.token, group, frames=[self.frame(group, size)]))
        self.sync()

    def vote(self, group: int, term: int, candidate: str | None) -> None:
        self.token += 1
        self.write(Write(self.token, group, hard_state=HardState(term, candidate)))
        self.sync()

    def snapshot(self, group: int) -> None:
        """Of everything, and nothing before it is kept."""
        index, term, mark = self.image(group).last
        newest = self.storage.newest_snapshot(group)
        if not index or (newest is not None and newest.index >= index):
            return
        sink = self.storage.create_snapshot(group, SnapshotMeta(index, term, mark, Membership(voters=("n",)), 0))
        sink.write(b"state")
        sink.finish()
        self.token += 1
        self.write(Write(self.token, group, purge_to=index))
        self.sync()

    def forget(self, group: int) -> None:
        """As a host does it: in this order."""
        self.removed.add(group)
        self.token += 1
        self.write(Write(self.token, group, forget=True))
        self.sync()
        self.storage.drop_snapshots(group)

    def busy(self, kilobytes: int) -> None:
        """So much from the busy group, which takes snapshots."""
        for turn in range(kilobytes):
            self.put(BUSY, 1_000)
            if turn % 16 == 15:
                self.snapshot(BUSY)
        self.snapshot(BUSY)

    @property
    def log_bytes(self) -> int:
        """As far as it is written."""
        return sum(segment.end for segment in self.storage._catalog.segments)

    def live(self, groups: Iterable[int]) -> int:
        """Bytes of entries that no snapshot holds, and of term, vote and boundary."""
        out = 80 * len(tuple(groups))
        for group in groups:
            newest = self.storage.newest_snapshot(group)
            floor = newest.index if newest is not None else 0
            out += sum(len(frame.data) for frame in self.image(group).frames if frame.first > floor)
        return out

    def reopen(self) -> None:
        self.storage = self.make()
        self.check(self.storage.open())

    def check(self, found: dict[int, Recovered]) -> None:
        reasons = []
        groups = {group for images in self.history for group in images}
        for images in reversed(self.history):
            reason = ""
            for group in groups:
                recovered = found.get(group, Recovered())
                reason = reason or differs(images.get(group, LogImage()), recovered,
                                           everything(self.storage, group, recovered.purged_index + 1))
            if not reason:
                self.history = [images]
                return
            reasons.append(reason)
        raise AssertionError(f"none of {len(self.history)} prefixes came back: {reasons}")

    def recover(self) -> None:
        """The machine starts again, and a removal that was interrupted is finished."""
        self.disk.restart()
        for group in self.removed:  # a snapshot that is still there stands for the log until the removal is finished
            newest = [name for name in self.disk.list("snapshots") if name.startswith(f"{group}-")]
            if newest:
                self.history = [{**images, group: images[group]} for images in self.history]
        self.storage = self.make()
        found = self.storage.open()
        for group in self.removed:
            if self.storage.newest_snapshot(group) is not None or found.get(group, Recovered()).last_index:
                self.token += 1
                self.storage.write([Write(self.token, group, forget=True)])
                self.storage.sync()
                self.storage.drop_snapshots(group)
                self.history = [{**images, group: LogImage(images.get(group, LogImage()).hard_state)}
                                for images in self.history]
                found[group] = self.storage.recovered(group)
        self.check(found)


def opened(**options: int | bool) -> Host:
    host = Host(**options)  # type: ignore[arg-type]
    host.check(host.storage.open())
    return host


def upkeep(host: Host) -> int:
    """Blocks in the log that the storage wrote for itself."""
    return len({(record.path, record.write) for record in records(host.disk) if record.upkeep})


def test_BUG_G4_one_quiet_group_does_not_keep_the_log() -> None:
    """It has three entries, no snapshot, a vote; the busy one writes thirty segments."""
    host = opened()
    for group in QUIET:
        host.vote(group, 3, "n1")
        host.put(group, count=3)
    for _ in range(30):
        host.busy(32)
        INV_R39(host.log_bytes, SEGMENT_BYTES, 0, host.live(QUIET))
    host.storage.close()
    host.reopen()
    assert all(host.image(group).hard_state == HardState(3, "n1") for group in QUIET)
    assert all(len(everything(host.storage, group, 1)) == 3 for group in QUIET)
    assert upkeep(host) and not audit(host.disk).problems


def test_BUG_G4_a_group_whose_snapshot_holds_all_is_not_written_again() -> None:
    """What was kept behind the snapshot for slow followers goes: a follower that needs it gets the snapshot."""
    host = opened()
    host.put(2, count=3)
    index, term, mark = host.image(2).last
    sink = host.storage.create_snapshot(2, SnapshotMeta(index, term, mark, Membership(voters=("n",)), 0))
    sink.finish()
    for _ in range(5):
        host.busy(32)
    INV_R39(host.log_bytes, SEGMENT_BYTES, 0, 0)
    assert not upkeep(host)
    host.storage.close()
    host.reopen()


def test_BUG_G4_a_group_with_too_much_is_named_and_not_copied() -> None:
    """It keeps the log until it takes a snapshot."""
    host = opened()
    host.put(2, 1_000, count=5)
    host.put(3)
    for _ in range(5):
        host.busy(32)
    assert host.storage.too_large.keys() == {2} and host.log_bytes > 3 * SEGMENT_BYTES and not upkeep(host)
    host.snapshot(2)
    host.busy(40)
    INV_R39(host.log_bytes, SEGMENT_BYTES, 0, host.live((3,)))
    assert not host.storage.too_large


def test_BUG_G4_a_group_that_writes_seldom_is_carried_with_its_newest_entries() -> None:
    """An entry comes now and then, also between the look and the copy."""
    host = opened(background=True)
    for turn in range(40):
        host.put(2, 50)
        host.busy(20)
        host.storage.maintain()
        host.put(2, 50)
        if turn > 3:
            INV_R39(host.log_bytes, SEGMENT_BYTES, SEGMENT_BYTES, host.live((2,)))
        if turn % 8 == 7:
            host.snapshot(2)
    assert upkeep(host)
    host.storage.close()
    host.reopen()


def test_BUG_G4_only_as_much_is_carried_as_is_written() -> None:
    """Quiet groups hold more than a segment: the log is cleaned at the pace of the writes, never faster."""
    host = opened(segment_bytes=4 * SEGMENT_BYTES)
    groups, carried, written = range(2, 202), set[tuple[int, int]](), 0
    for group in groups:
        host.put(group, 900)
    for _ in range(40):
        host.busy(32)
        written += 32 * 1_000
        carried |= {(record.write, record.frame.size) for record in records(host.disk)
                    if record.upkeep and record.frame is not None}
    assert written // 4 < sum(size for _, size in carried) <= written + 4 * SEGMENT_BYTES
    INV_R39(host.log_bytes, 4 * SEGMENT_BYTES, 0, host.live(groups))


def test_what_is_truncated_and_installed_after_it_was_carried_is_as_ever() -> None:
    host = opened()
    host.put(2, count=4)
    host.put(3, count=4)
    for _ in range(4):
        host.busy(32)
    assert upkeep(host)
    host.write(Write(900, 2, truncate_from=3, frames=[]))
    host.write(Write(901, 2, frames=[host.frame(2, 100, term=5)]))
    host.sync()
    meta = SnapshotMeta(50, 5, 7, Membership(voters=("n",)), 0, 0, 0)
    host.storage.receive_snapshot(3, meta).finish()
    host.write(Write(902, 3, install=meta))
    host.sync()
    host.busy(100)
    host.storage.close()
    host.reopen()
    assert [frame.term for frame in everything(host.storage, 2, 1)] == [1, 1, 5]


def test_BUG_G5_a_removed_group_gives_the_log_back_and_keeps_its_vote() -> None:
    host = opened()
    host.vote(2, 7, "n1")
    host.put(2, 1_000, count=5)
    host.snapshot(2)
    host.busy(100)
    assert host.storage.recovered(2).purged_index == 5
    host.put(2, 1_000, count=5)
    host.forget(2)
    assert not [name for name in host.disk.list("snapshots") if name.startswith("2-")]
    for _ in range(4):
        host.busy(32)
    INV_R39(host.log_bytes, SEGMENT_BYTES, 0, 0)
    host.storage.close()
    host.reopen()
    found = host.storage.recovered(2)
    assert (found.hard_state, found.last_index, found.snapshot) == (HardState(7, "n1"), 0, None)


def test_BUG_G5_entries_behind_a_removal_begin_anew() -> None:
    """In the very write that removes a group, too: nothing of what was there is continued."""
    host = opened()
    host.put(2, count=3)
    fresh = build(kind=Kind.NOOP, group=2, term=9, first=1, payloads=[b""], wall_ms=0, chain=0)
    host.write(Write(900, 2, forget=True, frames=[fresh]))
    host.sync()
    host.storage.close()
    host.reopen()
    assert [frame.term for frame in everything(host.storage, 2, 1)] == [9]


def scene(host: Host) -> None:
    """Everything that upkeep does, in a few hundred operations."""
    host.check(host.storage.open())
    for group in QUIET:
        host.vote(group, 2, "n1")
        host.put(group, 200, count=2)
    host.snapshot(3)
    host.put(3, 200)
    for turn in range(3):
        host.busy(36)
        host.put(4, 100)
        if turn == 1:
            host.forget(3)
    host.write(Write(900, 2, truncate_from=2))
    host.sync()
    host.busy(40)


def test_BUG_G4_a_crash_in_every_operation_of_upkeep() -> None:
    """Carried entries, a removed group, segments that go: nothing of what was synced is missing afterwards."""
    whole = Host(5, 5)
    formatting = whole.disk.operations
    journal: list[str] = []
    whole.disk.journal = journal
    scene(whole)
    assert upkeep(whole) and any("spare-" in line and line.startswith("rename log/0") for line in journal)
    for crash_at in range(formatting + 1, whole.disk.operations + 1):
        host = Host(5, 1_000 + crash_at)
        host.disk.crash_at(crash_at)
        with pytest.raises(SimulatedCrash):
            scene(host)
        host.recover()
        host.busy(40)
        host.storage.close()
        host.reopen()


@pytest.mark.parametrize("seed", range(12))
def test_crash_again_and_again(seed: int) -> None:
    """Many groups write now and then, or never again; the power goes at any moment."""
    host = Host(seed, seed)
    host.check(host.storage.open())
    for _ in range(10):
        host.disk.crash_at(host.disk.operations + host.rng.randint(20, 400))
        try:
            while True:
                group, luck = host.rng.randint(2, 7), host.rng.random()
                if luck < 0.7:
                    host.put(BUSY, 1_000, count=8)
                    host.snapshot(BUSY)
                elif luck < 0.85 or group in host.removed:
                    if group not in host.removed:
                        host.put(group, 100)
                elif luck < 0.92:
                    host.vote(group, host.image(group).hard_state.term + 1, "n1")
                elif luck < 0.96:
                    host.snapshot(group)
                elif len(host.removed) < 2:
                    host.forget(group)
        except SimulatedCrash:
            host.recover()
    for _ in range(5):
        host.busy(32)
    INV_R39(host.log_bytes, SEGMENT_BYTES, 0, host.live(range(2, 8)))


# --- what rots meanwhile -------------------------------------------------------------------------------------


def place_of(host: Host, group: int, index: int) -> tuple[str, int, bytes]:
    """File, offset and bytes of the newest frame that holds this entry."""
    found = [(record.path, record.offset, record.frame.data) for record in records(host.disk)
             if record.group == group and record.frame is not None and record.frame.first == index]
    return found[-1]


def rot(host: Host, group: int, index: int) -> str:
    path, offset, data = place_of(host, group, index)
    host.disk.rot(path, offset + len(data) - 1)
    return path


def goes_on_without(host: Host, damaged: int) -> None:
    """The others write, and come back with all they had; of the damaged group nothing passes for good."""
    kept = host.storage._catalog.segments[0].path
    host.busy(100)
    assert host.storage.damaged.keys() == {damaged}
    assert host.storage._catalog.segments[0].path == kept, "the damaged bytes are all there is of that group"
    assert not [record for record in records(host.disk) if record.upkeep and record.group == damaged]
    host.storage.close()
    storage = host.storage = host.make()
    storage.open()
    for group in (BUSY, *QUIET):
        if group != damaged:
            recovered, image = storage.recovered(group), host.image(group)
            assert differs(image, recovered, everything(storage, group, recovered.purged_index + 1)) == ""


def test_BUG_G6_rot_in_a_quiet_groups_entries_stops_that_group_alone() -> None:
    """It is met by the look at who keeps the log, which must neither raise at everybody nor say nothing."""
    host = opened()
    for group in QUIET:
        host.put(group, count=3)
    path = rot(host, 3, 2)
    for _ in range(4):
        host.busy(32)
    assert host.storage.damaged.keys() == {3} and path in str(host.storage.damaged[3])
    before = host.image(3).last[0]
    host.storage.write([Write(900, 3, frames=[host.frame(3, 100)]), Write(901, 2, hard_state=HardState(9, "n2"))])
    host.storage.sync()
    assert host.storage.recovered(3).last_index == before and host.storage.recovered(2).hard_state.term == 9
    host.history = [apply(host.now, Write(901, 2, hard_state=HardState(9, "n2")))]
    goes_on_without(host, 3)
    with pytest.raises(DamagedLog):
        everything(host.storage, 3, 1)


def test_BUG_G6_rot_that_is_met_while_entries_are_carried_forward_is_not_copied() -> None:
    """It comes between the look and the copy, in the middle of a group commit of others."""
    host = opened(background=True)
    for group in QUIET:
        host.put(group, count=3)
    while not host.storage._to_carry:
        host.busy(8)
        host.storage.maintain()
    rot(host, 3, 2)
    host.put(BUSY)
    goes_on_without(host, 3)


@pytest.mark.parametrize("behind", [0, 1])
def test_BUG_G6_a_misdirected_write_of_a_whole_older_frame_is_not_copied(behind: int) -> None:
    """Its checks are good. What gives it away is the frame behind it, or, of the last one, what the log ended with."""
    host = opened()
    host.put(3, count=2)
    old = place_of(host, 3, 2)[2]
    host.write(Write(800, 3, truncate_from=2))
    for number in range(1 + behind):
        host.write(Write(801 + number, 3, frames=[host.frame(3, 300, term=2)]))
    host.sync()
    path, offset, data = place_of(host, 3, 2)
    assert len(data) == len(old) and data != old
    host.disk.overwrite(path, offset, old)
    for _ in range(4):
        host.busy(32)
    assert "of group 3 is not what was written" in str(host.storage.damaged[3])
    goes_on_without(host, 3)


def test_BUG_G6_a_truncation_that_needs_damaged_bytes_fails_for_its_group_alone() -> None:
    """Other groups' writes of the same group commit are kept, and what follows of that group is not."""
    host = opened()
    for group in QUIET:
        host.put(group, count=3)
    rot(host, 3, 2)
    entry = host.frame(2, 100)
    host.storage.write([
        Write(900, 3, truncate_from=3), Write(901, 2, frames=[entry]), Write(902, 3, hard_state=HardState(5, "n"))])
    host.storage.sync()
    assert host.storage.damaged.keys() == {3}
    assert [frame.data for frame in everything(host.storage, 2, 4)] == [entry.data]
    assert host.storage.recovered(3).last_index == 3 and host.storage.recovered(3).hard_state.term == 0


def test_BUG_G6_a_damaged_group_that_is_removed_gives_the_log_back() -> None:
    host = opened()
    for group in QUIET:
        host.put(group, count=3)
    rot(host, 3, 2)
    for _ in range(4):
        host.busy(32)
    assert host.storage.damaged and host.log_bytes > 3 * SEGMENT_BYTES
    host.forget(3)
    for _ in range(4):
        host.busy(32)
    assert not host.storage.damaged
    INV_R39(host.log_bytes, SEGMENT_BYTES, 0, host.live((2, 4)))
    host.storage.close()
    host.reopen()


# --- no descriptors ------------------------------------------------------------------------------------------


def test_quiet_groups_are_looked_at_when_there_is_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    host = opened()
    for group in QUIET:
        host.put(group, count=3)
    with no_descriptors(host.disk, "log/", monkeypatch):
        for _ in range(4):
            host.busy(32)
        assert host.log_bytes > 3 * SEGMENT_BYTES
    host.busy(32)
    INV_R39(host.log_bytes, SEGMENT_BYTES, 0, host.live(QUIET))
    host.storage.close()
    host.reopen()


def test_quiet_groups_are_carried_when_there_is_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    host = opened(background=True)
    for group in QUIET:
        host.put(group, count=3)
    with no_descriptors(host.disk, "log/", monkeypatch):
        for _ in range(4):
            host.busy(32)
        assert not host.storage.maintain() and not host.storage._to_carry
    while not host.storage._to_carry:
        assert host.storage.maintain()
    host.storage._reader.close()
    with no_descriptors(host.disk, "log/", monkeypatch):
        host.put(BUSY)
        assert {*host.storage._to_carry} == {*QUIET}
    host.put(BUSY)
    assert not host.storage._to_carry
    host.storage.close()
    host.reopen()
    assert upkeep(host)


def test_a_truncation_that_needs_a_descriptor_finds_the_disk_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the call is kept, and it is tried again when there may be room."""
    host = opened()
    host.put(3, count=3)
    writes = Write(900, 2, frames=[host.frame(2, 100)]), Write(901, 3, truncate_from=3)
    with no_descriptors(host.disk, "log/", monkeypatch), pytest.raises(DiskFull, match="ulimit"):
        host.storage.write(writes)
    host.storage.close()
    host.reopen()
    host.write(*writes)
    host.sync()
    host.storage.close()
    host.reopen()
