"""The frame is the unit on disk, on the wire and in memory. This module builds, checks and slices frames.

A frame holds ``count`` consecutive entries of one term. The leader writes its bytes once; nobody re-encodes
them. Layout, little-endian, 64 bytes of header, then a table of ``count`` u32 lengths, then the payloads:

    0   4s  magic "QRf1"          32  u32 count
    4   u8  kind                  36  u32 body length (table + payloads)
    5   u8  flags, 0              40  u64 wall clock of the leader, ms (for people, decides nothing)
    6   u16 version, 1            48  u32 CRC-32C of the body
    8   u64 group                 52  u32 chain: the header CRC of the group's previous frame, 0 if unknown
    16  u64 term                  56  u32 reserved, 0
    24  u64 first index           60  u32 header CRC: CRC-32C of bytes 0..59

A header holds its body's CRC and the predecessor's header CRC (``chain``), so one header CRC (``Frame.mark``) stands
for the whole log up to it. The chain detects accidents; it never replaces the (index, term) check.
This module does no I/O and knows no roles.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final

import attrs
from google_crc32c import value as crc32c

from raft.errors import MalformedMessage

MAGIC: Final = b"QRf1"
VERSION: Final = 1
HEADER_BYTES: Final = 64
_HEADER: Final = struct.Struct("<4sBBHQQQIIQIII")
_CRC: Final = struct.Struct("<I")
_WHOLE: Final = struct.Struct("<4sBBHQQQIIQIIII")
assert _HEADER.size + _CRC.size == _WHOLE.size == HEADER_BYTES


class Kind(enum.IntEnum):
    """The kinds of a frame's entries. A frame of any kind but COMMANDS holds exactly one entry."""

    COMMANDS = 1
    NOOP = 2
    """First frame of a leadership: CBOR that says how it was won, for analysis."""
    MEMBERSHIP = 3
    """CBOR of a ``Membership``, effective on append."""
    SESSION = 4
    """Reserved for client sessions, which do not exist yet."""


_KINDS: Final = frozenset(map(int, Kind))


@attrs.define(eq=False, repr=False)
class Frame:
    """One parsed frame. ``data`` is the whole frame, never changed. ``mark`` is its header CRC."""

    data: bytes
    kind: int
    group: int
    term: int
    first: int
    count: int
    wall_ms: int
    chain: int
    mark: int

    @property
    def last(self) -> int:
        """Index of the last entry."""
        return self.first + self.count - 1

    @property
    def size(self) -> int:
        """Bytes of header and body."""
        return len(self.data)

    def payloads(self) -> list[bytes]:
        """The entries' payloads, in order."""
        data, count = self.data, self.count
        start = HEADER_BYTES + 4 * count
        if count == 1:
            return [data[start:]]
        out = []
        for length in struct.unpack_from(f"<{count}I", data, HEADER_BYTES):
            end = start + length
            out.append(data[start:end])
            start = end
        assert start == len(data), "lengths and payloads are all there is"
        return out

    def __repr__(self) -> str:
        return f"<{Kind(self.kind).name} {self.first}..{self.last} term {self.term}, {self.size} bytes>"


def build(
    *, kind: int, group: int, term: int, first: int, payloads: Sequence[bytes], wall_ms: int, chain: int
) -> Frame:
    """Build a frame from at least one payload. ``chain`` is the ``mark`` of the group's previous frame, or 0."""
    count = len(payloads)
    assert count > 0 and term > 0 and first > 0
    body = struct.pack(f"<{count}I", *map(len, payloads)) + b"".join(payloads)
    head = _HEADER.pack(
        MAGIC, kind, 0, VERSION, group, term, first, count, len(body), wall_ms, crc32c(body), chain, 0
    )
    mark = crc32c(head)  # without its own 4 bytes: the CRC of data that ends with its CRC is a constant
    return Frame(head + _CRC.pack(mark) + body, kind, group, term, first, count, wall_ms, chain, mark)


def frame_bytes(payload_count: int, payload_bytes: int) -> int:
    """Return the size of a frame of ``payload_count`` entries with ``payload_bytes`` in all."""
    return HEADER_BYTES + 4 * payload_count + payload_bytes


def peek_size(header: bytes) -> int:
    """Return the whole size of the frame that starts with this 64-byte header. Raises ``MalformedMessage`` if
    damaged."""
    return _check_header(header)[8] + HEADER_BYTES


def _check_header(header: bytes) -> tuple[bytes, int, int, int, int, int, int, int, int, int, int, int, int, int]:
    if len(header) != HEADER_BYTES:
        raise MalformedMessage(f"a frame header is {HEADER_BYTES} bytes, got {len(header)}")
    fields: tuple[bytes, int, int, int, int, int, int, int, int, int, int, int, int, int] = _WHOLE.unpack(header)
    magic, kind, flags, version, _group, term, first, count, body, _wall, _crc, _chain, reserved, header_crc = fields
    if magic != MAGIC:
        raise MalformedMessage(f"not a frame: magic {magic!r}")
    if crc32c(header[:60]) != header_crc:
        raise MalformedMessage("frame header fails its CRC")
    if version != VERSION:
        raise MalformedMessage(f"frame version {version}, this build reads {VERSION}")
    if kind not in _KINDS or flags or reserved or not term or not first or not count or 4 * count > body:
        raise MalformedMessage(f"frame header breaks a rule: {kind=} {flags=} {term=} {first=} {count=} {body=}")
    if kind != Kind.COMMANDS and count != 1:
        raise MalformedMessage(f"a {Kind(kind).name} frame holds one entry, not {count}")
    if first + count > 1 << 63 or term >= 1 << 63:
        raise MalformedMessage("index or term beyond 63 bits")
    return fields


def check(data: bytes, offset: int, end: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Check the frame at ``offset`` and copy nothing: a scan's inner loop. Reads nothing at or beyond ``end``.

    Returns (group, first index, last index, term, kind, leader's wall clock in ms, chain, mark, offset behind it).
    Raises ``MalformedMessage`` for anything but a whole, undamaged frame.
    """
    start = offset + HEADER_BYTES
    if start > end:
        raise MalformedMessage(f"{end - offset} bytes left where a frame header is due")
    header = data[offset:start]
    _, kind, _, _, group, term, first, count, length, wall_ms, body_crc, chain, _, mark = _check_header(header)
    stop = start + length
    if stop > end:
        raise MalformedMessage(f"frame {first} is {stop - end} bytes short")
    if crc32c(data[start:stop]) != body_crc:
        raise MalformedMessage(f"body of frame {first} (term {term}) fails its CRC")
    if 4 * count + sum(struct.unpack_from(f"<{count}I", data, start)) != length:
        raise MalformedMessage(f"lengths of frame {first} do not add up to its body")
    return group, first, first + count - 1, term, kind, wall_ms, chain, mark, stop


def parse(data: bytes, offset: int = 0, *, end: int | None = None) -> Frame:
    """Check the frame at ``offset`` and return it. Raises as ``check`` does."""
    group, first, last, term, kind, wall_ms, chain, mark, stop = check(data, offset, len(data) if end is None else end)
    return Frame(data[offset:stop], kind, group, term, first, last - first + 1, wall_ms, chain, mark)
