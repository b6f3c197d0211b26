"""Frames: what is built parses back, and no damaged byte gets through."""

from __future__ import annotations

import struct
from random import Random

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from raft.errors import MalformedMessage
from raft.frame import HEADER_BYTES, MAGIC, Frame, Kind, build, frame_bytes, parse, peek_size

NUMBERS = st.integers(1, (1 << 62) - 1)


@st.composite
def built(draw: st.DrawFn) -> tuple[Frame, list[bytes]]:
    kind = draw(st.sampled_from(Kind))
    count = st.lists(st.binary(max_size=40), min_size=1, max_size=8 if kind is Kind.COMMANDS else 1)
    payloads = draw(count)
    frame = build(kind=kind, group=draw(st.integers(0, (1 << 64) - 1)), term=draw(NUMBERS), first=draw(NUMBERS),
                  payloads=payloads, wall_ms=draw(st.integers(0, (1 << 64) - 1)),
                  chain=draw(st.integers(0, (1 << 32) - 1)))
    return frame, payloads


def fields(frame: Frame) -> tuple[object, ...]:
    return (frame.data, frame.kind, frame.group, frame.term, frame.first, frame.count, frame.wall_ms, frame.chain,
            frame.mark, frame.last, frame.size)


@given(built(), st.binary(max_size=20), st.binary(max_size=20))
def test_round_trip_wherever_it_lies(made: tuple[Frame, list[bytes]], before: bytes, behind: bytes) -> None:
    frame, payloads = made
    assert frame.payloads() == payloads
    assert frame.size == frame_bytes(len(payloads), sum(map(len, payloads))) == peek_size(frame.data[:HEADER_BYTES])
    end = len(before) + frame.size
    parsed = parse(before + frame.data + behind, len(before), end=end)
    assert fields(parsed) == fields(frame)
    assert parsed.payloads() == payloads
    assert fields(parse(frame.data)) == fields(frame)


@given(built())
def test_every_damaged_byte_is_noticed(made: tuple[Frame, list[bytes]]) -> None:
    frame, _ = made
    for at in range(frame.size):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(frame.data)
            damaged[at] ^= mask
            with pytest.raises(MalformedMessage):
                parse(bytes(damaged))


@given(built())
def test_every_cut_is_noticed(made: tuple[Frame, list[bytes]]) -> None:
    frame, _ = made
    for size in range(frame.size):
        with pytest.raises(MalformedMessage):
            parse(frame.data[:size])
        with pytest.raises(MalformedMessage):
            parse(frame.data, end=size)


@given(st.binary(max_size=200), st.integers(0, 210))
def test_foreign_bytes_raise_nothing_else(data: bytes, offset: int) -> None:
    for attempt in (data, MAGIC + data):
        with pytest.raises(MalformedMessage):
            parse(attempt, offset)


def checked(**changes: int) -> bytes:
    """A frame of one command whose header says something else and has a right CRC."""
    frame = build(kind=Kind.COMMANDS, group=1, term=2, first=3, payloads=[b"abcd"], wall_ms=4, chain=5)
    names = ("kind", "flags", "version", "group", "term", "first", "count", "body", "wall", "crc", "chain", "reserved")
    values = dict(zip(names, struct.unpack("<BBHQQQIIQIII", frame.data[4:60]), strict=True))
    values.update(changes)
    head = MAGIC + struct.pack("<BBHQQQIIQIII", *(values[name] for name in names))
    return head + struct.pack("<I", crc32c(head)) + frame.data[HEADER_BYTES:]


@pytest.mark.parametrize("changes", [
    {"kind": 0}, {"kind": 99}, {"flags": 1}, {"version": 2}, {"term": 0}, {"first": 0}, {"count": 0}, {"count": 3},
    {"reserved": 1}, {"body": 3}, {"body": 1 << 31}, {"term": 1 << 63}, {"first": 1 << 63},
    {"kind": Kind.NOOP, "count": 2}, {"crc": 1},
], ids=str)
def test_rules_of_a_header_hold_even_with_a_right_crc(changes: dict[str, int]) -> None:
    with pytest.raises(MalformedMessage):
        parse(checked(**changes))


def test_numbers_may_be_as_large_as_63_bits_hold() -> None:
    largest = (1 << 63) - 1
    assert fields(parse(checked(term=largest, first=largest)))[3:5] == (largest, largest)


def test_a_table_of_lengths_that_leaves_its_body_is_not_read() -> None:
    frame = build(kind=Kind.COMMANDS, group=1, term=2, first=3, payloads=[bytes(11)], wall_ms=4, chain=5)
    head = bytearray(frame.data[:60])
    head[32:36] = struct.pack("<I", 4)  # of the body's 15 bytes four lengths would take 16
    with pytest.raises(MalformedMessage, match="breaks a rule"):
        parse(bytes(head) + struct.pack("<I", crc32c(bytes(head))) + frame.data[HEADER_BYTES:])


def test_only_commands_come_several_in_a_frame() -> None:
    for kind in set(Kind) - {Kind.COMMANDS}:
        frame = build(kind=kind, group=1, term=2, first=3, payloads=[b"", b""], wall_ms=4, chain=5)
        with pytest.raises(MalformedMessage, match=f"a {kind.name} frame holds one entry, not 2"):
            parse(frame.data)


def test_a_header_of_another_thing_is_told_apart_though_its_crc_is_right() -> None:
    head = b"QRf2" + checked()[4:60]
    with pytest.raises(MalformedMessage, match="not a frame: magic b'QRf2'"):
        peek_size(head + struct.pack("<I", crc32c(head)))


@pytest.mark.parametrize("size", [0, HEADER_BYTES - 1, HEADER_BYTES + 1])
def test_a_size_is_told_from_exactly_a_header(size: int) -> None:
    with pytest.raises(MalformedMessage, match=f"is 64 bytes, got {size}"):
        peek_size(checked()[:size])


def test_what_is_missing_is_told() -> None:
    data = b"head" + checked()
    for end, why in ((14, "10 bytes left where a frame header is due"), (68, "frame 3 is 8 bytes short"),
                     (75, "frame 3 is 1 bytes short")):
        for given_bytes in (data, data[:end]):
            with pytest.raises(MalformedMessage, match=f"^{why}$"):
                parse(given_bytes, 4, end=end)


def test_a_frame_that_is_all_there_is_is_not_copied() -> None:
    data = checked()
    assert parse(data).data is data
    assert len({parse(data), parse(data)}) == 2, "nor compared byte by byte"


def test_kinds_and_bytes_are_what_stands_on_disks() -> None:
    assert {kind.name: int(kind) for kind in Kind} == {"COMMANDS": 1, "NOOP": 2, "MEMBERSHIP": 3, "SESSION": 4}
    frame = build(kind=1, group=2, term=3, first=4, payloads=[b"a", b"bc"], wall_ms=5, chain=6)
    assert frame.data.hex() == (
        "5152663101000100020000000000000003000000000000000400000000000000020000000b0000000500000000000000648489bb06000000"
        "000000005437a9e60100000002000000616263")


def test_lengths_must_add_up() -> None:
    body = struct.pack("<I", 5) + b"abcd"
    with pytest.raises(MalformedMessage, match="do not add up"):
        parse(checked(crc=crc32c(body))[:HEADER_BYTES] + body)


def test_the_mark_stands_for_the_whole_log() -> None:
    """Two logs that differ in one byte of one payload have different marks from there on."""

    def marks(changed: int) -> list[int]:
        chain, out = 0, []
        for index in range(1, 20):
            payload = b"other" if index == changed else b"same."
            frame = build(kind=Kind.COMMANDS, group=1, term=1, first=index, payloads=[payload], wall_ms=0, chain=chain)
            chain = frame.mark
            out.append(chain)
        return out

    plain = marks(0)
    assert len(set(plain)) == len(plain)
    for changed in range(1, 20):
        other = marks(changed)
        assert other[: changed - 1] == plain[: changed - 1]
        assert all(one != two for one, two in zip(other[changed - 1 :], plain[changed - 1 :], strict=True))


def test_many_frames_in_a_row() -> None:
    rng, frames, index = Random(1), list[Frame](), 1
    for _ in range(50):
        payloads = [rng.randbytes(rng.randint(0, 30)) for _ in range(rng.randint(1, 9))]
        frame = build(kind=Kind.COMMANDS, group=1, term=1, first=index, payloads=payloads, wall_ms=0, chain=7)
        frames.append(frame)
        index = frame.last + 1
    data = b"head" + b"".join(frame.data for frame in frames)
    offset = 4
    for frame in frames:
        assert fields(parse(data, offset)) == fields(frame)
        offset += len(frame.data)
    assert offset == len(data)
    with pytest.raises(MalformedMessage):
        parse(data[:-1], offset - len(frames[-1].data))


def test_a_frame_shows_itself_in_words() -> None:
    frame = build(kind=Kind.NOOP, group=1, term=2, first=3, payloads=[b""], wall_ms=4, chain=5)
    assert repr(frame) == "<NOOP 3..3 term 2, 68 bytes>"
