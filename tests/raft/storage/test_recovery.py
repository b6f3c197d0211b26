"""Torn tail or rot, footer or scan, this life or another: directed cases, each with the words of its refusal."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs
import pytest

from raft.errors import DamagedLog
from raft.frame import Frame
from raft.messages import HardState, Recovered, Write
from raft.sim.disk import VirtualDisk, seeded
from raft.storage.blocks import (
    TRAILER_BYTES,
    BlockHeader,
    LocalKind,
    Position,
    check_block,
    encode_hard_state,
    encode_local,
    encode_position,
    encode_trailer,
)
from raft.storage.catalog import encode_footer
from raft.storage.conformance import frames, read_all, snapshot_at
from raft.storage.identity import format_directory
from raft.storage.model import LogImage, differs
from raft.storage.recovery import Head, read_footer, read_head, recover, scrub, segment_of
from raft.storage.segment import SegmentStorage
from tests.raft.storage.forged import OWNER, SEGMENT_BYTES, CountingDisk, Record, forged, framed, state

FIRST = "log/00000000000000000001.seg"
SECOND = "log/00000000000000000002.seg"


def fresh(seed: int = 1) -> tuple[VirtualDisk, SegmentStorage]:
    disk = VirtualDisk(seeded(seed))
    return disk, formatted(disk)


def formatted(disk: VirtualDisk) -> SegmentStorage:
    format_directory(disk, "c", "n", b"incarnation-0001")
    storage = reopen(disk)
    storage.open()
    return storage


def reopen(disk: VirtualDisk, life: int = 1) -> SegmentStorage:
    return SegmentStorage(disk, "c", "n", segment_bytes=SEGMENT_BYTES, rng=Random(life))


def put(storage: SegmentStorage, log: list[Frame], *, sync: bool = True) -> None:
    """A block per frame."""
    for frame in log:
        storage.write([Write(frame.first, 1, frames=[frame])])
        if sync:
            storage.sync()


def blocks(disk: VirtualDisk, path: str) -> list[tuple[int, BlockHeader]]:
    """(offset, header) of a segment's blocks in order."""
    file = disk.open(path)
    data, at, out = file.pread(file.size(), 0), 0, []
    while isinstance(header := check_block(data, at), BlockHeader) and header.segment == int(path[4:24]):
        out.append((at, header))
        at += 64 + header.length
    return out


def found(disk: VirtualDisk, life: int = 2) -> tuple[Recovered, list[Frame]]:
    storage = reopen(disk, life)
    recovered = storage.open()[1]
    return recovered, read_all(storage, 1, recovered.purged_index + 1)


def synced_log(count: int = 5) -> tuple[VirtualDisk, list[Frame]]:
    disk, storage = fresh()
    log = frames(count)
    put(storage, log)
    disk.crash()
    disk.restart()
    return disk, log


# --- torn tail or rot ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["header", "record header", "payload"])
@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_rot_before_a_later_block_is_refused(block: int, place: str) -> None:
    disk, _ = synced_log()
    at = blocks(disk, FIRST)[block][0]
    disk.rot(FIRST, at + {"header": 30, "record header": 80, "payload": 150}[place])
    with pytest.raises(DamagedLog, match="knows it to be synced") as error:
        found(disk)
    assert (error.value.path, error.value.offset) == (FIRST, at)


def test_damage_of_the_last_block_is_cut() -> None:
    """Nobody can tell it from a write that the crash tore."""
    disk, log = synced_log()
    disk.rot(FIRST, blocks(disk, FIRST)[-1][0] + 150)
    recovered, kept = found(disk)
    assert not differs(LogImage(frames=tuple(log[:-1])), recovered, kept)


def test_closing_protects_the_last_block() -> None:
    disk, storage = fresh()
    put(storage, frames(3))
    storage.close()
    disk.rot(FIRST, blocks(disk, FIRST)[-2][0] + 150)
    with pytest.raises(DamagedLog, match="knows it to be synced"):
        found(disk)


def test_unsynced_blocks_behind_a_lost_one_are_cut() -> None:
    """A later block that survived proves nothing if it did not know the lost one to be synced."""
    disk, storage = fresh()
    log = frames(6)
    put(storage, log[:2])
    put(storage, log[2:], sync=False)
    lost = blocks(disk, FIRST)[3][0]
    disk.open(FIRST).sync()
    disk.rot(FIRST, lost + 70)  # all others reached the disk
    disk.crash()
    disk.restart()
    recovered, kept = found(disk)
    assert not differs(LogImage(frames=tuple(log[:2])), recovered, kept)


def test_a_rotten_first_block_is_refused() -> None:
    disk, _ = synced_log()
    disk.rot(FIRST, 10)
    with pytest.raises(DamagedLog, match="first block is bad") as error:
        found(disk)
    assert (error.value.path, error.value.offset) == (FIRST, 0)


@pytest.mark.parametrize(("synced", "refused"), [(0, False), (1, True)])
def test_a_first_block_that_never_was_synced_was_begun_in_vain(synced: int, refused: bool) -> None:
    log = forged(state())
    log.block(*framed(*frames(1)), synced=synced)
    log.disk.rot(FIRST, 10)
    if not refused:
        assert recover(log.disk, OWNER) is None
        return
    with pytest.raises(DamagedLog, match="first block is bad"):
        recover(log.disk, OWNER)


def test_a_log_whose_older_segments_are_gone_does_not_begin_anew() -> None:
    """The newest one's torn first block knows writes before it to be synced."""
    disk, _ = sealed_log()
    *older, newest = segments(disk)
    for path in older:
        disk.remove(path)
    for at, _ in blocks(disk, newest)[1:]:
        disk.rot(newest, at)
    disk.rot(newest, 70)
    with pytest.raises(DamagedLog, match="first block is bad") as error:
        found(disk)
    assert (error.value.path, error.value.offset) == (newest, 0)


@pytest.mark.parametrize("size", [4_000, 8 << 10, SEGMENT_BYTES - 1])
def test_a_newest_segment_that_was_cut_short_is_refused(size: int) -> None:
    disk, _ = synced_log()
    disk.open(FIRST).truncate(size)
    with pytest.raises(DamagedLog, match="cut short") as refused:
        found(disk)
    assert (refused.value.path, refused.value.offset) == (FIRST, size)


def test_blocks_of_another_life_are_not_taken_up() -> None:
    """Life A loses block 3 and keeps block 4. Life B writes a block 3 of the same size: A's block 4 must not follow."""
    disk, storage = fresh()
    log = frames(4)
    put(storage, log[:2])
    put(storage, log[2:], sync=False)
    (lost, _), (kept, _) = blocks(disk, FIRST)[3:]
    disk.open(FIRST).sync()
    disk.rot(FIRST, lost + 40)
    disk.crash()
    disk.restart()
    storage = reopen(disk, life=2)
    assert storage.open()[1].last_index == 2
    put(storage, [log[2]])
    assert blocks(disk, FIRST)[-1][0] == kept, "the stale block lies where the next one would be"
    disk.crash()
    disk.restart()
    recovered, log_found = found(disk, life=3)
    assert not differs(LogImage(frames=tuple(log[:3])), recovered, log_found)


def test_stale_records_are_not_taken_up_for_new_ones() -> None:
    """Life A's vote survives without its header; life B's header reaches the disk without its vote."""
    disk, storage = fresh()
    storage.write([Write(1, 1, hard_state=HardState(1, "a"))])
    at = blocks(disk, FIRST)[1][0]
    disk.open(FIRST).sync()
    disk.rot(FIRST, at)  # A's header is lost
    disk.crash()
    disk.restart()
    file = disk.open(FIRST)
    stale = file.pread(512, at + 64)
    storage = reopen(disk, life=2)
    assert storage.open() == {}
    storage.write([Write(1, 1, hard_state=HardState(2, "b"))])
    file = disk.open(FIRST)
    file.pwrite([stale], at + 64)
    file.sync()
    disk.crash()
    disk.restart()
    assert reopen(disk, life=3).open() == {}


# --- sealed segments and their footers -----------------------------------------------------------------------


def sealed_log() -> tuple[VirtualDisk, list[Frame]]:
    """Three segments and a bit, some of it truncated and rewritten across a boundary."""
    disk, storage = fresh()
    log = frames(40, size=2_000)
    put(storage, log[:25])
    storage.write([Write(100, 1, truncate_from=10)])
    rewritten = frames(30, term=2, after=log[8], size=2_000)
    put(storage, rewritten)
    storage.close()
    return disk, [*log[:9], *rewritten]


def segments(disk: VirtualDisk) -> list[str]:
    return [f"log/{name}" for name in disk.list("log") if name.endswith(".seg")]


def footers_used(disk: VirtualDisk) -> int:
    recovery = recover(disk, OWNER)
    assert recovery is not None
    return recovery.footers


def test_sealed_segments_open_by_their_footers() -> None:
    disk, log = sealed_log()
    assert len(segments(disk)) >= 3
    assert footers_used(disk) == len(segments(disk)) - 1
    recovered, kept = found(disk)
    assert not differs(LogImage(frames=tuple(log)), recovered, kept)


@pytest.mark.parametrize("where", [1, TRAILER_BYTES + 5])
def test_a_lost_footer_only_costs_a_scan(where: int) -> None:
    disk, log = sealed_log()
    for path in segments(disk)[:-1]:
        disk.rot(path, SEGMENT_BYTES - where)
    assert footers_used(disk) == 0
    recovered, kept = found(disk)
    assert not differs(LogImage(frames=tuple(log)), recovered, kept)


def test_a_footer_of_an_earlier_life_is_not_believed() -> None:
    """Sealed, then the next segment was lost in a crash and this one went on: its old footer is not its content."""
    disk, storage = fresh()
    log = frames(40, size=2_000)
    put(storage, log[:3])
    storage._seal(storage._catalog.segments[-1])
    disk.crash()
    disk.restart()
    old_footer = disk.open(FIRST).pread(2_000, SEGMENT_BYTES - 2_000)
    storage = reopen(disk, life=2)
    storage.open()
    put(storage, log[3:])
    storage.close()
    disk.open(FIRST).pwrite([old_footer], SEGMENT_BYTES - 2_000)
    assert footers_used(disk) == len(segments(disk)) - 2
    recovered, kept = found(disk, life=3)
    assert not differs(LogImage(frames=tuple(log)), recovered, kept)


def test_rot_in_a_sealed_segment_without_footer_is_refused() -> None:
    disk, _ = sealed_log()
    disk.rot(FIRST, SEGMENT_BYTES - 1)
    at = blocks(disk, FIRST)[3][0]
    disk.rot(FIRST, at + 100)
    with pytest.raises(DamagedLog) as error:
        found(disk)
    assert (error.value.path, error.value.offset) == (FIRST, at)
    assert str(error.value).startswith(f"{FIRST} at byte {at}: ")


def test_rot_behind_a_good_footer_is_found_by_reading_and_by_scrubbing() -> None:
    disk, _ = sealed_log()
    at = blocks(disk, FIRST)[3][0]
    disk.rot(FIRST, at + 64 + 100)
    storage = reopen(disk, 2)
    storage.open()
    with pytest.raises(DamagedLog, match="fails its CRC"):
        read_all(storage, 1, 1)
    with pytest.raises(DamagedLog) as error:
        list(storage.scrub(step_bytes=4_000))
    assert (error.value.path, error.value.offset) == (FIRST, at)


@pytest.mark.parametrize("step_bytes", [100, 1_700, 4_000, 10_000])
def test_a_good_log_scrubs_clean(step_bytes: int) -> None:
    disk, _ = sealed_log()
    storage = reopen(disk, 2)
    storage.open()
    assert set(storage.scrub(step_bytes=step_bytes)) == set(segments(disk)[:-1])


@pytest.mark.parametrize("path", [FIRST, SECOND])
@pytest.mark.parametrize("step_bytes", [100, 1_700, 4_000, 100_000])
def test_every_damaged_block_is_scrubbed_out(step_bytes: int, path: str) -> None:
    disk, _ = sealed_log()
    storage = reopen(disk, 2)
    storage.open()
    for at, header in blocks(disk, path):
        for inside in (5, min(70, 63 + header.length), 63 + header.length):
            disk.rot(path, at + inside)
            with pytest.raises(DamagedLog) as error:
                list(storage.scrub(step_bytes=step_bytes))
            assert (error.value.path, error.value.offset) == (path, at)
            disk.rot(path, at + inside)


def test_a_missing_segment_is_refused() -> None:
    disk, _ = sealed_log()
    disk.remove(SECOND)
    with pytest.raises(DamagedLog, match="this segment is missing") as error:
        found(disk)
    assert (error.value.path, error.value.offset) == (SECOND, 0)


def test_a_lost_newest_segment_is_noticed_by_nobody_but_its_footer_is_no_harm() -> None:
    """The last segment's loss leaves a log that ends earlier; the one before it is scanned, not believed."""
    disk, log = sealed_log()
    disk.remove(segments(disk)[-1])
    assert footers_used(disk) == len(segments(disk)) - 1
    recovered, kept = found(disk)
    assert recovered.last_index == kept[-1].last < log[-1].last


def test_the_name_of_a_segment_is_not_believed() -> None:
    disk, _ = sealed_log()
    paths = segments(disk)
    disk.rename(paths[0], "log/x")
    disk.rename(paths[1], paths[0])
    disk.rename("log/x", paths[1])
    with pytest.raises(DamagedLog, match="another segment") as error:
        found(disk)
    assert (error.value.path, error.value.offset) == (FIRST, 0)


def test_a_tail_that_a_lost_first_block_hides_is_still_known_to_be_synced() -> None:
    """The next segment lost its first block and kept its second: that one knows the rotten tail to be synced."""
    disk, storage = fresh()
    log = frames(40, size=2_000)
    put(storage, log[:20])
    storage.close()
    (first, _), (second, header), *_ = blocks(disk, SECOND)
    assert header.synced >= blocks(disk, FIRST)[-1][1].sequence
    disk.rot(SECOND, first + 5)
    for at, _ in blocks(disk, SECOND)[2:]:
        disk.rot(SECOND, at + 5)
    end = blocks(disk, FIRST)[-1][0]
    disk.rot(FIRST, end + 100)
    with pytest.raises(DamagedLog, match=f"the block at byte {second} of {SECOND} knows it to be synced") as error:
        found(disk)
    assert (error.value.path, error.value.offset) == (FIRST, end)


def test_a_tail_is_known_to_be_synced_by_a_first_block_whose_records_are_torn() -> None:
    disk, storage = fresh()
    put(storage, frames(30, size=2_000))
    storage.close()
    for at, _ in blocks(disk, SECOND)[1:]:
        disk.rot(SECOND, at)
    disk.rot(SECOND, 70)
    end = blocks(disk, FIRST)[-1][0]
    disk.rot(FIRST, end + 100)
    with pytest.raises(DamagedLog, match=f"the block at byte 0 of {SECOND} knows it to be synced") as error:
        found(disk)
    assert (error.value.path, error.value.offset) == (FIRST, end)


def test_a_log_is_as_long_by_its_footers_as_by_a_scan() -> None:
    disk, _ = sealed_log()
    lengths = []
    for sealed in (segments(disk)[:-1], []):
        storage = reopen(disk, 2)
        storage.open()
        lengths.append(storage.log_bytes)
        disk.kill()
        for path in sealed:
            disk.rot(path, SEGMENT_BYTES - 1)
    assert footers_used(disk) == 0 and lengths == [lengths[0]] * 2


@pytest.mark.parametrize("count", [5, 40], ids=["scanned", "by its footer"])
def test_a_truncation_below_the_first_segment_left(count: int) -> None:
    """The oldest segment says where the log ended when it began; a truncation in it went below that."""
    disk, storage = fresh()
    log = frames(60, size=2_000)
    put(storage, log[:20])
    begins = storage._catalog.segments[-1].states[1].last.index
    assert 10 < begins < 20
    cut = begins - 3
    storage.write([Write(100, 1, truncate_from=cut + 1)])
    rewritten = frames(count, term=2, after=log[cut - 1], size=2_000)
    put(storage, rewritten)
    storage.create_snapshot(1, snapshot_at(log[cut - 1])).finish()
    storage.write([Write(101, 1, purge_to=cut)])
    storage.sync()
    assert segments(disk)[0] == SECOND
    assert footers_used(disk) == len(segments(disk)) - 1
    assert (len(segments(disk)) > 1) is (count == 40)
    storage.close()
    recovered, kept = found(disk)
    assert recovered.purged_index == cut
    assert not differs(LogImage(frames=(*log[:cut], *rewritten)), recovered, kept)


def test_a_footer_that_does_not_fit_is_left_out() -> None:
    disk, storage = fresh()
    logs = {group: frames(1, group=group, size=4) for group in range(1, 160)}
    for log in logs.values():
        storage.write([Write(1, log[0].group, frames=log)])
    assert len(segments(disk)) == 1
    while storage._active_end() < storage._local_limit - 200:  # votes may use the reserve, too
        storage.write([Write(2, 200, hard_state=HardState(1, "x" * 40))])
    storage.write([Write(2, 200, frames=frames(60, group=200, size=1_000))])
    storage.close()
    assert len(segments(disk)) > 2
    assert footers_used(disk) < len(segments(disk)) - 1
    storage = reopen(disk, 2)
    found = storage.open()
    assert found.keys() == {*logs, 200}
    assert found[200].hard_state == HardState(1, "x" * 40)
    for group, log in logs.items():
        assert [frame.data for frame in read_all(storage, group, 1)] == [frame.data for frame in log]


# --- good blocks that contradict each other ------------------------------------------------------------------

ONE, TWO, THREE = frames(3)
MARKED = Position(1, 1, ONE.mark)
HARD = encode_local(LocalKind.HARD_STATE, 1, encode_hard_state(HardState(7, "n" * 40)))


def local(kind: LocalKind, body: bytes) -> Record:
    return encode_local(kind, 1, body)


@pytest.mark.parametrize(("first", "changes", "words"), [
    ([state()], {"owner": 9}, "of another segment or directory"),
    ([state()], {"segment": 2}, "of another segment or directory"),
    ([state()], {"first": False}, "of another segment or directory"),
    ([state()], {"first": False, "upkeep": True}, "of another segment or directory"),
    ([state(), HARD], {}, "holds more than states"), ([state(), *framed(ONE)], {}, "holds more than states"),
    ([local(LocalKind.STATE, b"x")], {}, "not a hard state"), ([state()], {"marks": [5]}, "differ from the block"),
    ([state()], {"length": SEGMENT_BYTES}, "a local record"),
])
def test_a_segment_begins_with_its_groups_states_and_nothing_else(
    first: list[Record], changes: dict[str, Any], words: str,
) -> None:
    log = forged(*first, **changes)
    found = read_head(log.disk, OWNER, 1)
    assert isinstance(found, str) and words in found
    log.segment = 1
    log.begin(state())
    for call in (lambda: recover(log.disk, OWNER), lambda: list(scrub(log.disk, OWNER, 1, step_bytes=1_000))):
        with pytest.raises(DamagedLog, match=words) as error:
            call()
        assert (error.value.path, error.value.offset) == (FIRST, 0)


def test_a_first_block_of_many_groups_is_read_whole() -> None:
    log = forged(*[state(group, Position(group)) for group in range(1, 90)])
    head = read_head(log.disk, OWNER, 1)
    assert isinstance(head, Head) and [each.last.index for each in head.states.values()] == list(range(1, 90))


@pytest.mark.parametrize(("records", "end"), [
    (framed(ONE, TWO), (2, TWO.mark)), (framed(ONE, TWO, THREE), (3, THREE.mark)),
    ([*framed(ONE), local(LocalKind.TRUNCATE, encode_position(Position(1, 1, 0))), *framed(TWO)], (2, TWO.mark)),
    (framed(*frames(1), *frames(1, after=attrs.evolve(ONE, mark=0))), (2, None)),
    ([local(LocalKind.INSTALL, encode_position(MARKED)), *framed(TWO)], (2, TWO.mark)),
], ids=["two", "three", "its mark is not known", "the chain is not known", "behind a snapshot"])
def test_what_continues_is_taken(records: list[Record], end: tuple[int, int | None]) -> None:
    log = forged(state())
    log.block(*records)
    recovery = recover(log.disk, OWNER)
    assert recovery is not None
    group = recovery.catalog.groups[1]
    assert (group.last.index, group.last.mark) == (end[0], end[1] or group.last.mark)
    assert group.purged == (MARKED if records[0][0][4] == LocalKind.INSTALL else Position())


@pytest.mark.parametrize(("records", "words"), [
    (framed(ONE, THREE), "frame 3 of group 1 does not continue entry 1"),
    (framed(TWO), "frame 2 of group 1 does not continue entry 0"),
    (framed(ONE, *frames(1, after=attrs.evolve(ONE, mark=77))), "frame 2 of group 1 does not continue entry 1"),
])
def test_frames_that_do_not_continue_their_log_are_refused(records: list[Record], words: str) -> None:
    log = forged(state())
    block = log.block(*records)
    with pytest.raises(DamagedLog, match=words) as error:
        recover(log.disk, OWNER)
    assert error.value.offset == block + 64 + sum(len(data) for data, _ in records[:-1])


@pytest.mark.parametrize("kind", [LocalKind.HARD_STATE, LocalKind.TRUNCATE, LocalKind.INSTALL])
def test_a_good_record_with_a_body_of_no_sense_is_refused(kind: LocalKind) -> None:
    log = forged(state())
    block = log.block(local(kind, b"x"))
    with pytest.raises(DamagedLog, match="not a") as error:
        recover(log.disk, OWNER)
    assert (error.value.path, error.value.offset) == (FIRST, block)


@pytest.mark.parametrize("changes", [{"owner": 9}, {"segment": 2}, {"sequence": 7}, {"chain": 7}], ids=str)
def test_a_block_of_elsewhere_is_not_taken_up(changes: dict[str, Any]) -> None:
    log = forged(state())
    log.block(*framed(ONE), **changes)
    recovery = recover(log.disk, OWNER)
    assert recovery is not None and recovery.catalog.groups[1].last.index == 0 and recovery.cursor.sequence == 1


@pytest.mark.parametrize(("second", "words"), [
    ([state(1, Position(3, 1)), state(2)], r"group 1 ended at .*index=1.*, this segment says .*index=3"),
    ([state(1, MARKED)], r"the states of groups \[2\] are missing"),
    ([state(1, MARKED), state(2), state(3, Position(1, 1))], "group 3 ended at"),
])
def test_a_segment_says_where_the_one_before_it_ended(second: list[Record], words: str) -> None:
    log = forged(state(), state(2))
    log.block(*framed(ONE))
    log.begin(*second)
    with pytest.raises(DamagedLog, match=words) as error:
        recover(log.disk, OWNER)
    assert (error.value.path, error.value.offset) == (SECOND, 0)


@pytest.mark.parametrize("begins", [2, 4])
def test_a_footer_that_continues_nothing_is_refused(begins: int) -> None:
    """Its CRC is good, and it names the blocks that are there."""
    disk, _ = sealed_log()
    path, head = SECOND, read_head(disk, OWNER, 2)
    assert isinstance(head, Head)
    footer = read_footer(disk, OWNER, head)
    assert footer is not None
    segment = segment_of(head)
    segment.spans, segment.end = footer.spans, footer.end
    segment.spans[1].first = begins
    data = encode_footer(segment, footer.last_write, footer.last_crc)
    disk.open(path).pwrite([data, encode_trailer(OWNER, 2, SEGMENT_BYTES - 48 - len(data), data)],
                           SEGMENT_BYTES - 48 - len(data))
    with pytest.raises(DamagedLog, match=f"continues with entry {begins}") as error:
        found(disk)
    assert (error.value.path, error.value.offset) == (path, footer.end)


def test_no_file_is_left_open() -> None:
    disk = CountingDisk()
    storage = formatted(disk)
    put(storage, frames(40, size=2_000))
    storage.close()
    disk.opened.clear()
    assert recover(disk, OWNER) and list(scrub(disk, OWNER, 1, step_bytes=1_000)) and len(disk.opened) > 20
    assert not disk.left_open


# --- recycling -----------------------------------------------------------------------------------------------


def test_stale_blocks_of_a_recycled_segment_are_ignored() -> None:
    disk, storage = fresh()
    log = frames(200, size=2_000)
    put(storage, log[:60])
    meta = snapshot_at(log[49])
    storage.create_snapshot(1, meta).finish()
    storage.write([Write(999, 1, purge_to=50)])
    storage.write([Write(1000, 1, hard_state=HardState(1))])
    storage.sync()
    assert storage._spares.ready() == 2, "purged segments wait to be used again"
    put(storage, log[60:78])
    path = segments(disk)[-1]
    storage.close()
    file = disk.open(path)
    end = blocks(disk, path)[-1][0]
    assert b"QRb1" in file.pread(SEGMENT_BYTES, end + 64), "no stale block lies behind the end"
    recovered, kept = found(disk)
    assert recovered.purged_index
    assert not differs(LogImage(HardState(1), frames=tuple(log[:78])), recovered, kept)


# --- snapshots against the log -------------------------------------------------------------------------------


def purged_log() -> VirtualDisk:
    disk, storage = fresh()
    log = frames(60, size=2_000)
    put(storage, log)
    for at in (10, 49):
        sink = storage.create_snapshot(1, snapshot_at(log[at]))
        sink.write(b"state %d" % at)
        sink.finish()
    storage.write([Write(999, 1, purge_to=50)])
    storage.write([Write(1000, 1, hard_state=HardState(1))])
    storage.sync()
    storage.close()
    return disk


def test_a_broken_newest_snapshot_over_a_gap_is_refused_in_words() -> None:
    disk = purged_log()
    disk.rot("snapshots/1-00000000000000000050-1.snap", 40)
    with pytest.raises(DamagedLog, match=r"begins behind entry .*, but the newest good snapshot ends at 11; .*CRC"):
        found(disk)


def test_a_log_without_its_snapshots_is_refused() -> None:
    disk = purged_log()
    for name in disk.list("snapshots"):
        disk.remove(f"snapshots/{name}")
    with pytest.raises(DamagedLog, match="no good snapshot"):
        found(disk)


def test_snapshots_without_their_log_are_refused() -> None:
    disk = purged_log()
    for path in segments(disk):
        disk.remove(path)
    with pytest.raises(DamagedLog, match="term and vote are lost"):
        reopen(disk, 2).open()


@pytest.mark.parametrize("where", [5, 40, 250, -5])
def test_a_broken_newest_snapshot_falls_back_where_the_log_reaches(where: int) -> None:
    disk, storage = fresh()
    log = frames(20)
    put(storage, log)
    for at in (5, 15):
        sink = storage.create_snapshot(1, snapshot_at(log[at]))
        sink.write(b"state %d" % at * 50)
        sink.finish()
    storage.close()
    path = "snapshots/1-00000000000000000016-1.snap"
    disk.rot(path, where if where > 0 else disk.open(path).size() + where)
    recovered, kept = found(disk)
    assert recovered.snapshot is not None and recovered.snapshot.index == 6
    assert kept[-1].last == 20
    assert path + ".broken" in [f"snapshots/{name}" for name in disk.list("snapshots")], "evidence is kept"
