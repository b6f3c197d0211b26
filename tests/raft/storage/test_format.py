"""The format on disk is fixed: these bytes must not change, and the reference page tells them as the code has them."""

from __future__ import annotations

import contextlib
import re
import struct
from pathlib import Path
from random import Random

import cbor2
import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from raft import frame
from raft.errors import MalformedMessage
from raft.messages import HardState, Write
from raft.sim.disk import VirtualDisk
from raft.storage import blocks, snapshots
from raft.storage.blocks import (
    LOCAL_BYTES,
    BlockHeader,
    GroupState,
    LocalKind,
    Position,
    check_block,
    check_trailer,
    decode_hard_state,
    decode_position,
    decode_state,
    encode_block,
    encode_hard_state,
    encode_local,
    encode_position,
    encode_state,
    encode_trailer,
    parse_local,
)
from raft.storage.catalog import decode_footer
from raft.storage.conformance import frames, snapshot_at
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "storage-format.md"
U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
POSITIONS = st.builds(Position, U64, U64, U32)
HARD_STATES = st.builds(HardState, U64, st.none() | st.text(max_size=60))


def test_the_bytes_of_a_directory_do_not_change() -> None:
    disk = VirtualDisk()
    format_directory(disk, "cluster", "node", bytes(range(16)))
    storage = SegmentStorage(disk, "cluster", "node", segment_bytes=32 << 10, rng=Random(1))
    storage.open()
    log = frames(30, size=2_000)
    storage.write([Write(1, 1, hard_state=HardState(3, "node"), frames=log[:20]), Write(1, 7, hard_state=HardState(1))])
    storage.write([Write(2, 1, truncate_from=15)])
    storage.write([Write(3, 1, frames=frames(16, term=3, after=log[13], size=2_000))])
    sink = storage.create_snapshot(1, snapshot_at(log[9]))
    sink.write(b"state" * 1000)
    sink.finish()
    storage.sync()
    storage.close()
    found = {}
    for path in ("identity", "log/00000000000000000001.seg", "log/00000000000000000002.seg",
                 "snapshots/1-00000000000000000010-1.snap"):
        file = disk.open(path)
        found[path] = crc32c(file.pread(file.size(), 0))
    assert found == {
        "identity": GOLDEN[0], "log/00000000000000000001.seg": GOLDEN[1], "log/00000000000000000002.seg": GOLDEN[2],
        "snapshots/1-00000000000000000010-1.snap": GOLDEN[3],
    }


GOLDEN = (3897455466, 102652909, 112491105, 364609006)


def tables() -> dict[str, list[tuple[int, str]]]:
    """Heading -> (offset, type) of each row of the byte tables below it."""
    out: dict[str, list[tuple[int, str]]] = {}
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        match = re.match(r"\| (\d+) \| (4 bytes|u8|u16|u32|u64) \|", line)
        if match:
            out.setdefault(heading, []).append((int(match[1]), match[2]))
    return out


CODES = {"4 bytes": "4s", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}


@pytest.mark.parametrize(("heading", "count", "layout"), [
    ("Frame", 14, frame._WHOLE),
    ("Block", 13, blocks._BLOCK_WHOLE),
    ("Local record", 9, blocks._LOCAL_WHOLE),
    ("Footer and trailer", 10, struct.Struct(blocks._TRAILER.format + "I")),
])
def test_the_reference_page_has_the_layouts_of_the_code(heading: str, count: int, layout: struct.Struct) -> None:
    rows = tables()[heading]
    assert len(rows) == count
    assert "<" + "".join(CODES[kind] for _, kind in rows) == layout.format
    at = 0
    for offset, kind in rows:
        assert offset == at
        at += struct.calcsize("<" + CODES[kind])
    assert at == layout.size


def test_the_reference_page_has_the_snapshot_layouts() -> None:
    rows = tables()["Snapshot"]
    for part, layout in ((rows[:8], snapshots._HEADER), (rows[8:], snapshots._END)):
        assert "<" + "".join(CODES[kind] for _, kind in part) == layout.format + "I"


# --- codecs --------------------------------------------------------------------------------------------------


@given(st.booleans(), U64, U64, U64, U64, U32, U32, st.lists(U32, max_size=5), U32)
def test_block_headers(
    first: bool, owner: int, segment: int, sequence: int, synced: int, life: int, length: int, marks: list[int],
    chain: int,
) -> None:
    length = max(length, LOCAL_BYTES * len(marks))
    data, crc = encode_block(first=first, owner=owner, segment=segment, sequence=sequence, synced=synced, life=life,
                             length=length, marks=marks, chain=chain)
    header = check_block(b"xx" + data, 2)
    assert isinstance(header, BlockHeader)
    assert header[:7] == (int(first), owner, segment, sequence, synced, life, length)
    assert (header.records, header.chain, header.crc) == (len(marks), chain, crc)
    for at in range(len(data)):
        assert isinstance(check_block(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 0), str)
        assert isinstance(check_block(data[:at], 0), str)


@given(st.sampled_from(LocalKind), U64, st.binary(max_size=50))
def test_local_records(kind: LocalKind, group: int, body: bytes) -> None:
    data, mark = encode_local(kind, group, body)
    assert parse_local(b"y" + data + b"z", 1, 1 + len(data)) == (kind, group, body, mark)
    for at in range(len(data)):
        with pytest.raises(MalformedMessage):
            parse_local(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], 0, len(data))
        with pytest.raises(MalformedMessage):
            parse_local(data, 0, at)


def resealed(data: bytes, at: int, byte: int, end: int) -> bytes:
    """One byte is another, and the CRC behind ``end`` is right."""
    head = data[:at] + bytes([byte]) + data[at + 1 : end]
    return head + struct.pack("<I", crc32c(head)) + data[end + 4 :]


@pytest.mark.parametrize("version", [0, 2])
def test_blocks_records_and_trailers_of_another_version_are_refused(version: int) -> None:
    block, _ = encode_block(first=True, owner=1, segment=1, sequence=1, synced=0, life=1, length=0, marks=[], chain=0)
    assert check_block(resealed(block, 4, version, 60), 0) == f"block version {version}, this build reads 1"
    record, _ = encode_local(LocalKind.TRUNCATE, 1, b"body")
    with pytest.raises(MalformedMessage, match=f"version {version}, flags 0"):
        parse_local(resealed(record, 6, version, 28), 0, len(record))
    trailer = encode_trailer(1, 1, 64, b"footer")
    assert check_trailer(resealed(trailer, 4, version, 44), 1, 1) is None


@pytest.mark.parametrize(("at", "byte", "words"), [
    (0, 0, "CRC of its header"), (5, 1, "flags 1"), (24, 1, "flags 0"), (4, 9, "unknown kind 9"),
    (16, 5, "fails its CRC"), (20, 0, "fails its CRC")])
def test_a_local_record_that_breaks_a_rule_is_refused_though_its_crc_is_good(at: int, byte: int, words: str) -> None:
    record, _ = encode_local(LocalKind.TRUNCATE, 1, b"body")
    with pytest.raises(MalformedMessage, match=words):
        parse_local(resealed(record, at, byte, 28) + bytes(8), 0, len(record) + 8)


def test_a_block_or_trailer_of_another_magic_is_none() -> None:
    block, _ = encode_block(first=True, owner=1, segment=1, sequence=1, synced=0, life=1, length=0, marks=[], chain=0)
    assert check_block(resealed(block, 0, 0, 60), 0) == "no block begins here"
    trailer = encode_trailer(1, 1, 64, b"footer")
    assert check_trailer(resealed(trailer, 0, 0, 44), 1, 1) is None
    assert check_trailer(trailer + b"x", 1, 1) is check_trailer(trailer[:46], 1, 1) is None


@pytest.mark.parametrize("body", [
    struct.pack("<QBH", 1, 2, 1) + b"n", struct.pack("<QBH", 1, 1, 1) + b"n.", struct.pack("<QBH", 1, 1, 2) + b"n"])
def test_a_hard_state_that_breaks_a_rule_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedMessage, match="surplus bytes"):
        decode_hard_state(body)


@given(HARD_STATES, POSITIONS)
def test_bodies(state: HardState, position: Position) -> None:
    assert decode_hard_state(encode_hard_state(state)) == state
    assert decode_position(encode_position(position)) == position
    assert decode_state(encode_state(GroupState(state, position))) == GroupState(state, position)


@given(st.binary(max_size=80))
def test_foreign_bytes_raise_nothing_else(data: bytes) -> None:
    for decode in (decode_hard_state, decode_position, decode_state, decode_footer):
        with contextlib.suppress(MalformedMessage):
            decode(data)
    assert isinstance(check_block(data, 0), str)
    assert check_trailer(data, 1, 1) is None


@pytest.mark.parametrize("span", [
    [-1, None, 1, [1, 1, 0], bytes(8), bytes(8), [], []], [1, None, -1, [1, 1, 0], bytes(8), bytes(8), [], []],
    [1, None, 1, [-1, 1, 0], bytes(8), bytes(8), [], []], [1, None, 0, [1, 1, 0], bytes(8), bytes(8), [], []],
])
def test_a_footer_counts_from_nothing_on(span: list[object]) -> None:
    """No number of a span is negative, and what is held is in its index."""
    with pytest.raises(MalformedMessage, match="not a footer: span of group"):
        decode_footer(cbor2.dumps([1, 2, 3, 4, [span]]))


@pytest.mark.parametrize("at", range(4))
def test_the_numbers_of_a_footer_are_numbers(at: int) -> None:
    fields: list[object] = [1, 2, 3, 4, []]
    assert decode_footer(cbor2.dumps(fields)).end == 4
    with pytest.raises(MalformedMessage, match="a number is due"):
        decode_footer(cbor2.dumps([*fields[:at], 1.5, *fields[at + 1 :]]))


@given(U64, U64, U64, st.binary(max_size=30))
def test_trailers(owner: int, segment: int, offset: int, footer: bytes) -> None:
    data = encode_trailer(owner, segment, offset, footer)
    assert check_trailer(data, owner, segment) == (offset, len(footer), crc32c(footer))
    assert check_trailer(data, owner ^ 1, segment) is None
    assert check_trailer(data, owner, segment ^ 1) is None
    for at in range(len(data)):
        assert check_trailer(data[:at] + bytes([data[at] ^ 2]) + data[at + 1 :], owner, segment) is None
