"""Bytes that the released Java classes wrote, and halves of units."""

from __future__ import annotations

import pytest

from broker.timer import units
from broker.timer.checkpoint import OwnFacts, TimerCheckpoint
from broker.timer.units import DELETE, MESSAGE, MOVED, NONE, ROLL, SLOT, UNIT, UNIT_BYTES, Unit
from remoting.hashing import java_hash

JAVA_UNIT = bytes.fromhex("00000034 ffffffffffffffff 00000001 0000018bcfe56800 00001388 0000000000001000 000000c8"
                          "00000a5d 0000000000000000")
JAVA_BLANK = bytes.fromhex("0000001e 0000000000000000 cbd43194")
JAVA_SLOT = bytes.fromhex("000000006553f105 0000000000000000 0000000000000068 00000003 00000000")
NOW = 1_700_000_000_000


def test_a_unit_is_javas() -> None:
    unit = Unit(4096, 200, java_hash("T1"))
    assert units.pack(NONE, unit, NOW + 5_000, NOW) == JAVA_UNIT
    fields = UNIT.unpack(JAVA_UNIT)
    assert units.is_whole(fields, 0)
    assert units.unit_of(fields, 52) == Unit(4096, 200, 0xA5D, MESSAGE, NOW + 5_000, NOW, 52)


def test_a_slot_and_the_end_of_a_file_are_javas() -> None:
    assert SLOT.pack(1_700_000_005, 0, 104, 3, 0) == JAVA_SLOT
    assert units.blank(30) == JAVA_BLANK.ljust(30, b"\0")


def test_of_a_unit_in_two_sectors_no_half_passes_for_a_whole_one() -> None:
    """But for its last words, of which nothing here depends."""
    for split in range(4, UNIT_BYTES, 4):
        front = UNIT.unpack(JAVA_UNIT[:split].ljust(UNIT_BYTES, b"\0"))
        assert units.is_whole(front, 0) == (split >= 40), split
        assert not units.is_whole(UNIT.unpack(JAVA_UNIT[split:].rjust(UNIT_BYTES, b"\0")), 0), split


@pytest.mark.parametrize(("index", "value"), [
    (0, 53), (1, -2), (1, 104), (2, 0), (2, 2), (2, 16), (5, -1), (6, 0), (6, -5), (3, -6_000)])
def test_what_nobody_writes_is_no_unit(index: int, value: int) -> None:
    fields = list(UNIT.unpack(JAVA_UNIT))
    fields[index] = value
    assert not units.is_whole(tuple(fields), 104)


def test_a_slot_too_far_from_the_time_of_writing_is_refused() -> None:
    for far in (1 << 31, -(1 << 31)):
        with pytest.raises(ValueError, match="ms after its time of writing"):
            units.pack(NONE, Unit(0, 1), NOW + far, NOW)
    assert UNIT.unpack(units.pack(NONE, Unit(0, 1), NOW + (1 << 31) - 1, NOW))[4] == (1 << 31) - 1


def test_kinds() -> None:
    assert [units.counted(kind) for kind in (MESSAGE, MESSAGE | ROLL, MESSAGE | DELETE, MESSAGE | DELETE | ROLL)] == [
        1, 1, -1, -1]
    assert units.counted(MESSAGE | MOVED) == units.counted(MESSAGE | DELETE | MOVED) == 0
    assert Unit(0, 1, kind=MESSAGE | DELETE).deletes
    assert not Unit(0, 1, kind=MESSAGE | DELETE | ROLL).deletes, "it takes its message back where it is rolled to"
    assert Unit(0, 1, kind=MESSAGE | DELETE | ROLL).rolls
    assert not Unit(0, 1).rolls


def test_a_checkpoint_is_javas_with_ours_behind_it() -> None:
    checkpoint = TimerCheckpoint(NOW, 104, 7, 8, 3, NOW + 1, 2)
    body = b"".join(number.to_bytes(8, "big") for number in (NOW, 104, 7, 8, 3, NOW + 1, 2))
    assert checkpoint.body() == body
    assert checkpoint.encode() == body.ljust(4096, b"\0")
    assert TimerCheckpoint.decode(checkpoint.encode()) == checkpoint
    assert TimerCheckpoint.decode(body) == checkpoint
    ours = TimerCheckpoint(NOW, 104, 7, 8, 3, NOW + 1, 2, OwnFacts(100, 5, NOW - 1))
    raw = ours.encode()
    assert raw[:56] == body
    assert len(raw) == 4096
    assert TimerCheckpoint.decode(raw) == ours


def test_a_checkpoint_that_java_wrote_over_ours_is_javas() -> None:
    raw = TimerCheckpoint(NOW, 104, 7, 8, own=OwnFacts(100, 5, NOW - 1)).encode()
    found = TimerCheckpoint.decode(TimerCheckpoint(NOW, 156, 8, 8).body() + raw[56:])
    assert found == TimerCheckpoint(NOW, 156, 8, 8)


@pytest.mark.parametrize("raw", [b"", bytes(55), b"\xff" * 56, bytes(8) + b"\xff" * 48])
def test_a_damaged_checkpoint_says_nothing(raw: bytes) -> None:
    assert TimerCheckpoint.decode(raw) is None
