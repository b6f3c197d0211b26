"""Bytes of a segment: blocks, local records, the footer's trailer. Encode and check, nothing else.

One group commit is one block: a 64-byte header and the records behind it. A record is a frame, as the leader
built it, or a local record of this node (term and vote, truncation, boundary of an installed snapshot, state of a
group where a segment begins). Layout, little-endian, block header:

    0   4s  magic "QRb1"          40  u32 life: random, one per opening of the log
    4   u16 version, 1            44  u32 bytes of records
    6   u16 flags: see below      48  u32 count of records
    8   u64 owner (incarnation)   52  u32 digest: CRC-32C of the records' marks, u32 each
    16  u64 segment sequence      56  u32 chain: the CRC of the block before, across segments
    24  u64 write sequence        60  u32 CRC-32C of bytes 0..59
    32  u64 last write sequence known to be synced when this block was written

Local record, 32 bytes and a body:

    0   4s  magic "QRl1"          16  u32 bytes of body
    4   u8  kind                  20  u32 CRC-32C of the body
    5   u8  flags, 0              24  u32 reserved, 0
    6   u16 version, 1            28  u32 CRC-32C of bytes 0..27: its mark
    8   u64 group

A frame's mark is ``Frame.mark``. So a header vouches for every byte of its block although it reads none of the
frames' bodies again, and a block of another life, segment or directory cannot be taken for a part of this one.
This module does no I/O.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs
from google_crc32c import value as crc32c

from raft.errors import MalformedMessage
from raft.messages import HardState

BLOCK_MAGIC: Final = b"QRb1"
LOCAL_MAGIC: Final = b"QRl1"
TRAILER_MAGIC: Final = b"QRt1"
VERSION: Final = 1
BLOCK_BYTES: Final = 64
LOCAL_BYTES: Final = 32
TRAILER_BYTES: Final = 48
FIRST: Final = 1
"""Flag of a segment's first block, which holds one STATE record for each group."""
UPKEEP: Final = 2
"""Flag of a block that the storage wrote for itself: a TRUNCATE, and after it the same entries again, carried forward
so that older segments may go. Without entries the group was removed. No leader truncated anything."""

_BLOCK: Final = struct.Struct("<4sHHQQQQIIIII")
_BLOCK_WHOLE: Final = struct.Struct("<4sHHQQQQIIIIII")
_LOCAL: Final = struct.Struct("<4sBBHQIII")
_LOCAL_WHOLE: Final = struct.Struct("<4sBBHQIIII")
_TRAILER: Final = struct.Struct("<4sHHQQQIII")
_CRC: Final = struct.Struct("<I")
_POSITION: Final = struct.Struct("<QQI")
_HARD: Final = struct.Struct("<QBH")
assert _BLOCK_WHOLE.size == BLOCK_BYTES and _LOCAL_WHOLE.size == LOCAL_BYTES
assert _TRAILER.size + _CRC.size == TRAILER_BYTES


class Position(NamedTuple):
    """A begin or an end of a log: index and term of an entry that ends a frame, and the frame's mark."""

    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int = 0
    mark: int = 0


ORIGIN: Final = Position()


class LocalKind(enum.IntEnum):
    """The kinds of local records."""

    HARD_STATE = 1
    TRUNCATE = 2
    """The log now ends at this position."""
    INSTALL = 3
    """The log is empty after this position: a snapshot covers what is before it."""
    STATE = 4
    """Term, vote and last position of a group where the segment begins."""


class BlockHeader(NamedTuple):
    """The header of a block, with its checksum verified."""

    flags: int
    owner: int
    segment: int
    sequence: int
    synced: int
    life: int
    length: int
    records: int
    digest: int
    chain: int
    crc: int


@attrs.frozen
class GroupState:
    """Body of a STATE record."""

    hard_state: HardState
    last: Position


def encode_block(
    *, first: bool, owner: int, segment: int, sequence: int, synced: int, life: int, length: int,
    marks: Sequence[int], chain: int, upkeep: bool = False,
) -> tuple[bytes, int]:
    """A block header for records of ``length`` bytes with these marks, and its CRC (the next block's ``chain``)."""
    count = len(marks)
    assert length >= LOCAL_BYTES * count, "no record is shorter"
    digest = crc32c(struct.pack(f"<{count}I", *marks))
    flags = (FIRST if first else 0) | (UPKEEP if upkeep else 0)
    head = _BLOCK.pack(BLOCK_MAGIC, VERSION, flags, owner, segment, sequence, synced, life,
                       length, count, digest, chain)
    crc: int = crc32c(head)
    return head + _CRC.pack(crc), crc


def check_block(data: bytes, offset: int) -> BlockHeader | str:
    """The block header at ``offset``, or in words why there is none."""
    header = data[offset : offset + BLOCK_BYTES]
    if len(header) < BLOCK_BYTES:
        return "the rest is shorter than a block header"
    magic, version, flags, owner, segment, sequence, synced, life, length, count, digest, chain, crc = (
        _BLOCK_WHOLE.unpack(header))
    if magic != BLOCK_MAGIC:
        return "no block begins here"
    if crc32c(header[:60]) != crc:
        return "the block header fails its CRC"
    if version != VERSION:
        return f"block version {version}, this build reads {VERSION}"
    return BlockHeader(flags, owner, segment, sequence, synced, life, length, count, digest, chain, crc)


def encode_local(kind: LocalKind, group: int, body: bytes) -> tuple[bytes, int]:
    """A local record and its mark."""
    head = _LOCAL.pack(LOCAL_MAGIC, kind, 0, VERSION, group, len(body), crc32c(body), 0)
    mark: int = crc32c(head)
    return head + _CRC.pack(mark) + body, mark


def parse_local(data: bytes, offset: int, end: int) -> tuple[LocalKind, int, bytes, int]:
    """(kind, group, body, mark) of the local record at ``offset``; raises ``MalformedMessage``."""
    start = offset + LOCAL_BYTES
    header = data[offset:start]
    if start > end or len(header) < LOCAL_BYTES:
        raise MalformedMessage("a local record is cut short")
    magic, kind, flags, version, group, length, body_crc, reserved, mark = _LOCAL_WHOLE.unpack(header)
    if magic != LOCAL_MAGIC or crc32c(header[:28]) != mark:
        raise MalformedMessage("a local record fails the CRC of its header")
    if version != VERSION or flags or reserved:
        raise MalformedMessage(f"local record version {version}, flags {flags}")
    body = data[start : start + length]
    if start + length > end or len(body) < length or crc32c(body) != body_crc:
        raise MalformedMessage("a local record fails its CRC")
    try:
        return LocalKind(kind), group, body, mark
    except ValueError as error:
        raise MalformedMessage(f"local record of unknown kind {kind}") from error


def encode_hard_state(state: HardState) -> bytes:
    vote = b"" if state.voted_for is None else state.voted_for.encode()
    assert len(vote) < 1 << 16, "an id has room in 16 bits of length"
    return _HARD.pack(state.term, state.voted_for is not None, len(vote)) + vote


def decode_hard_state(body: bytes, offset: int = 0) -> HardState:
    """Raises ``MalformedMessage`` for bytes that are no hard state."""
    try:
        term, voted, length = _HARD.unpack_from(body, offset)
        start = offset + _HARD.size
        vote = body[start : start + length].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessage(f"not a hard state: {error}") from error
    if len(body) != start + length or voted > 1:
        raise MalformedMessage("a hard state with surplus bytes")
    return HardState(term, vote if voted else None)


def encode_position(position: Position) -> bytes:
    return _POSITION.pack(*position)


def decode_position(body: bytes) -> Position:
    """Raises ``MalformedMessage`` for bytes that are no position."""
    if len(body) != _POSITION.size:
        raise MalformedMessage("not a position")
    return Position(*_POSITION.unpack(body))


def encode_state(state: GroupState) -> bytes:
    return _POSITION.pack(*state.last) + encode_hard_state(state.hard_state)


def decode_state(body: bytes) -> GroupState:
    """Raises ``MalformedMessage`` for bytes that are no group's state."""
    return GroupState(decode_hard_state(body, _POSITION.size), decode_position(body[: _POSITION.size]))


def encode_trailer(owner: int, segment: int, offset: int, footer: bytes) -> bytes:
    """The last 48 bytes of a sealed segment: where its footer is."""
    head = _TRAILER.pack(TRAILER_MAGIC, VERSION, 0, owner, segment, offset, len(footer), crc32c(footer), 0)
    return head + _CRC.pack(crc32c(head))


def check_trailer(data: bytes, owner: int, segment: int) -> tuple[int, int, int] | None:
    """(offset, length, CRC) of the footer; None if these 48 bytes are not this segment's trailer."""
    if data[44:] != _CRC.pack(crc32c(data[:44])):
        return None
    magic, version, _flags, found_owner, found, offset, length, crc, _ = _TRAILER.unpack_from(data)
    if magic != TRAILER_MAGIC or version != VERSION or found_owner != owner or found != segment:
        return None
    return offset, length, crc
