"""Walking segments that were put together by hand: what is good, what is torn, what is damaged."""

from __future__ import annotations

import pytest

from analysis.parsing.tables import Cut, Frames, tabulate
from analysis.parsing.walk import Cursor, Damage, Walk, walk
from tests.analysis.by_hand import (
    OWNER,
    Log,
    crc,
    frame,
    frames,
    hard_state,
    install,
    mark_of,
    state,
    truncate,
)


def test_the_hand_made_crc_is_castagnoli() -> None:
    assert crc(b"123456789") == 0xE3069283


def take(
    data: bytes, *, sealed: bool = False, after: tuple[int, int] | None = None,
) -> tuple[Frames, Walk, list[Damage]]:
    found = walk(data, OWNER, 1, Cursor(), sealed=sealed, after=after)
    frames, damages = tabulate(data, found, {})
    return frames, found, damages


def simple() -> tuple[Log, list[bytes]]:
    """Three frames in two blocks, a vote before them, and a last block that knows them to be synced."""
    log, made = Log(), frames(1, [2, 1, 3])
    log.begin()
    log.block(hard_state(1, 1, "n0"))
    log.block(made[0], made[1])
    log.block(made[2])
    log.block()
    return log, made


def test_frames_and_records_in_file_order() -> None:
    log, made = simple()
    good, found, damages = take(log.data(1))
    assert not damages
    assert good.first.tolist() == [1, 3, 4]
    assert good.last.tolist() == [2, 3, 6]
    assert good.head["mark"].tolist() == [mark_of(each) for each in made]
    assert good.write.tolist() == [3, 3, 4] and good.synced.tolist() == [2, 2, 3]
    assert [log.data(1)[at : at + 4] for at in good.offset.tolist()] == [b"QRf1"] * 3
    assert [record.group for record in found.locals] == [1]
    assert [opening.life for opening in found.openings] == [7]
    assert (found.blocks, found.cursor.sequence, found.cursor.chain) == (5, 5, log.chain)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_a_flipped_byte_in_a_body_costs_its_frame() -> None:
    log, made = simple()
    at = log.starts[2][1] + 64
    good, _, damages = take(flipped(log.data(1), at + len(made[0]) - 1))
    assert [(each.offset, each.code) for each in damages] == [(at, "crc")]
    assert "body of frame 1" in damages[0].reason
    assert good.first.tolist() == [3, 4]


def test_a_flipped_byte_in_a_frame_header_costs_the_rest_of_its_block() -> None:
    log, _ = simple()
    at = log.starts[2][1] + 64
    good, _, damages = take(flipped(log.data(1), at + 20))
    assert [(each.offset, each.code) for each in damages] == [(at, "crc")]
    assert good.first.tolist() == [4]


def test_a_flipped_byte_in_a_block_header_costs_the_block() -> None:
    log, _ = simple()
    at = log.starts[2][1]
    good, _, damages = take(flipped(log.data(1), at + 9))
    assert [(each.offset, each.code) for each in damages] == [(at, "crc")]
    assert good.first.tolist() == [4]


def test_what_no_later_block_knows_to_be_synced_is_a_torn_tail() -> None:
    log, made = Log(), frames(1, [1, 1])
    log.begin()
    log.block(made[0])
    log.block(made[1])
    at = log.starts[2][1]
    for torn in (flipped(log.data(1), at + 70), flipped(log.data(1), at + 5), log.data(1)[:at] + bytes(1000)):
        good, found, damages = take(torn)
        assert not damages
        assert good.first.tolist() == [1] and found.cursor.offset == at


def test_in_a_sealed_segment_nothing_is_torn() -> None:
    log, made = Log(), frames(1, [1, 1])
    log.begin()
    log.block(made[0])
    log.block(made[1])
    at = log.starts[2][1]
    good, _, damages = take(flipped(log.data(1), at + 5), sealed=True, after=(4, log.chain))
    assert [(each.offset, each.code) for each in damages] == [(at, "crc")]
    assert good.first.tolist() == [1]


def test_leftovers_of_an_earlier_life_end_the_log() -> None:
    """A crash lost block 3 but not block 4; the next life wrote another, longer 3. Block 4 lies behind it for ever."""
    old, made = Log(), frames(1, [1, 1, 1])
    old.begin()
    old.block(made[0])
    old.block(made[1], synced=2)
    old.block(made[2], synced=2)
    new = Log(life=8)
    new.begin()
    new.life = 7
    new.segments[1] = bytearray(old.segments[1][: old.starts[2][1]])
    crc_at = old.starts[1][1] + 60
    new.sequence, new.chain = 2, int.from_bytes(old.segments[1][crc_at : crc_at + 4], "little")
    new.life = 8
    new.block(frame(2, b"x" * 300, chain=mark_of(made[0])))
    data = bytearray(new.data(1))
    stale = bytes(old.segments[1][old.starts[3][1] :])
    data[len(new.segments[1]) : len(new.segments[1]) + len(stale)] = stale
    good, found, damages = take(bytes(data))
    assert not damages
    assert good.last.tolist() == [1, 2]
    assert [opening.life for opening in found.openings] == [7, 8]


@pytest.mark.parametrize("lost", [1, 63, 70, 130])
def test_a_cut_tail_is_seen_because_files_have_their_full_size(lost: int) -> None:
    log, _ = simple()
    log.block(frame(7, b"y" * 200, chain=0))
    data = bytes(log.segments[1])[:-lost]
    _, _, damages = take(data)
    assert [(each.offset, each.code) for each in damages] == [(log.starts[-1][1], "cut")]
    assert str(len(data)) in damages[0].reason


def test_a_cut_sealed_segment() -> None:
    log, _ = simple()
    cut = log.data(1)[: log.starts[3][1]]
    good, _, damages = take(cut, sealed=True, after=(6, log.chain))
    assert [(each.offset, each.code) for each in damages] == [(len(cut), "cut")]
    assert good.first.tolist() == [1, 3]


def test_a_frame_that_does_not_continue_its_log() -> None:
    log, made = Log(), frames(1, [1, 1])
    other = frames(2, [1], chain=12345)
    log.begin()
    log.block(made[0])
    log.block(other[0])
    log.block()
    good, _, damages = take(log.data(1))
    assert [(each.offset, each.code) for each in damages] == [(log.starts[2][1] + 64, "chain")]
    assert good.first.tolist() == [1, 2]


def test_a_gap_in_a_group_beside_a_sound_one() -> None:
    log = Log()
    log.begin(state(2, 9, 3, 55))
    log.block(*frames(1, [1]), *frames(10, [2], group=2, chain=55, term=3))
    log.block(*frames(14, [1], group=2, term=3))
    log.block()
    _, _, damages = take(log.data(1))
    assert [(each.code, each.offset) for each in damages] == [("chain", log.starts[2][1] + 64)]
    assert "entry 11" in damages[0].reason


def test_a_segment_that_begins_where_its_states_say() -> None:
    log = Log()
    log.begin(state(2, 9, 3, 55))
    log.block(*frames(11, [1], group=2, term=3))
    log.block()
    _, _, damages = take(log.data(1))
    assert [each.code for each in damages] == ["chain"]


def test_what_was_truncated_or_replaced_is_marked() -> None:
    log, made = Log(), frames(1, [2, 2, 2])
    log.begin()
    log.block(*made)
    log.block(truncate(1, 4, 1, mark_of(made[1])), frame(5, b"new", term=2, chain=mark_of(made[1])))
    good, _, damages = take(log.data(1))
    assert not damages
    assert list(zip(good.first.tolist(), good.truncated.tolist(), strict=True)) == [
        (1, False), (3, False), (5, True), (5, False)]
    log.block(install(1, 100, 2, 77), frame(101, b"z", term=2, chain=77))
    good, _, damages = take(log.data(1))
    assert not damages
    assert good.truncated.tolist() == [True] * 4 + [False]


def test_a_cut_by_a_later_segment() -> None:
    log, made = Log(), frames(1, [2, 2, 2])
    log.begin()
    log.block(*made, *frames(1, [1], group=2))
    data = log.data(1)
    found = walk(data, OWNER, 1, Cursor(), sealed=False)
    good, _ = tabulate(data, found, {1: Cut(2)})
    assert good.truncated.tolist() == [False, True, True, False]


def test_versions_and_foreign_blocks_are_named() -> None:
    log = Log()
    log.begin()
    log.block(frame(1, b"a", version=2))
    log.block()
    _, _, damages = take(log.data(1))
    assert [each.code for each in damages] == ["version"] and "version 2" in damages[0].reason
    foreign = Log(owner=99)
    foreign.begin()
    assert [each.code for each in take(foreign.data(1))[2]] == ["foreign"]


def test_a_fresh_file_is_no_damage_unless_it_is_sealed() -> None:
    assert take(bytes(4096))[2] == []
    damages = take(bytes(4096), sealed=True, after=(3, 5))[2]
    assert [(each.offset, each.code) for each in damages] == [(0, "empty")]


def test_blocks_that_vouch_for_other_records() -> None:
    """A good frame in the place of another good frame: only the digest tells."""
    log, made = Log(), frames(1, [1, 1])
    log.begin()
    log.block(made[0])
    log.block(made[1])
    log.block()
    at = log.starts[2][1] + 64
    forged = frame(2, b"entrY 2", chain=mark_of(made[0]), wall_ms=2)
    assert len(forged) == len(made[1])
    data = log.data(1)
    data = data[:at] + forged + data[at + len(forged) :]
    good, _, damages = take(data)
    assert [(each.offset, each.code) for each in damages] == [(log.starts[2][1], "crc")]
    assert good.first.tolist() == [1]
