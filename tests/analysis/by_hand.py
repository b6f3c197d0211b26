"""Raft directories put together byte by byte from the storage format's tables, without the library's own writer.

Even the CRC is worked out here, bit by bit, so that reader and writer cannot share a mistake.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import attrs
import cbor2

OWNER = 0x1122334455667788
INCARNATION = struct.pack("<Q", OWNER) + bytes(8)
SEGMENT_BYTES = 32 << 10


@lru_cache(None)
def _table() -> tuple[int, ...]:
    out = []
    for byte in range(256):
        rest = byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
        out.append(rest)
    return tuple(out)


def crc(data: bytes) -> int:
    """CRC-32C (Castagnoli, reflected)."""
    table, rest = _table(), 0xFFFFFFFF
    for byte in data:
        rest = rest >> 8 ^ table[(rest ^ byte) & 255]
    return rest ^ 0xFFFFFFFF


def sealed_header(head: bytes) -> bytes:
    """A header with its own CRC behind it."""
    return head + struct.pack("<I", crc(head))


def mark_of(record: bytes) -> int:
    """The CRC of a record's header: at byte 60 of a frame, at byte 28 of a local record."""
    found: int = struct.unpack_from("<I", record, 60 if record[:3] == b"QRf" else 28)[0]
    return found


def frame(
    first: int, *payloads: bytes, term: int = 1, group: int = 1, kind: int = 1, wall_ms: int = 0, chain: int = 0,
    version: int = 1,
) -> bytes:
    body = b"".join(struct.pack("<I", len(payload)) for payload in payloads) + b"".join(payloads)
    head = struct.pack("<4sBBHQQQIIQIII", b"QRf1", kind, 0, version, group, term, first, len(payloads), len(body),
                       wall_ms, crc(body), chain, 0)
    return sealed_header(head) + body


def frames(first: int, counts: Sequence[int], *, term: int = 1, group: int = 1, chain: int = 0, wall_ms: int = 0,
           text: str = "entry") -> list[bytes]:
    """Frames one behind the other, of so many entries each, every one naming its index."""
    out = []
    for count in counts:
        payloads = [f"{text} {index}".encode() for index in range(first, first + count)]
        out.append(frame(first, *payloads, term=term, group=group, chain=chain, wall_ms=wall_ms + first))
        first, chain = first + count, mark_of(out[-1])
    return out


def local(kind: int, group: int, body: bytes) -> bytes:
    return sealed_header(struct.pack("<4sBBHQIII", b"QRl1", kind, 0, 1, group, len(body), crc(body), 0)) + body


def hard_state(group: int, term: int, vote: str | None) -> bytes:
    name = (vote or "").encode()
    return local(1, group, struct.pack("<QBH", term, vote is not None, len(name)) + name)


def truncate(group: int, index: int, term: int, mark: int) -> bytes:
    return local(2, group, struct.pack("<QQI", index, term, mark))


def install(group: int, index: int, term: int, mark: int) -> bytes:
    return local(3, group, struct.pack("<QQI", index, term, mark))


def state(group: int, index: int, term: int, mark: int, *, hard_term: int = 0, vote: str | None = None) -> bytes:
    name = (vote or "").encode()
    return local(4, group, struct.pack("<QQI", index, term, mark)
                 + struct.pack("<QBH", hard_term, vote is not None, len(name)) + name)


@attrs.define
class Log:
    """A log being laid out: blocks in segments, with the sequences and chains that they must carry."""

    segments: dict[int, bytearray] = attrs.field(factory=dict)
    sequence: int = 0
    chain: int = 0
    life: int = 7
    owner: int = OWNER
    starts: list[tuple[int, int]] = attrs.field(factory=list)
    """(segment, offset) of every block."""
    _footers: dict[int, tuple[int, int, int]] = attrs.field(factory=dict)

    @property
    def newest(self) -> int:
        return max(self.segments)

    def begin(self, *states: bytes, sequence: int = 0) -> int:
        """A new segment; its first block."""
        number = sequence or (self.newest + 1 if self.segments else 1)
        self.segments[number] = bytearray()
        self.block(*states, flags=1)
        return number

    def block(self, *records: bytes, synced: int | None = None, flags: int = 0) -> int:
        """A block of these records; where it begins. By default all before it is synced."""
        self.sequence += 1
        marks = b"".join(struct.pack("<I", mark_of(record)) for record in records)
        body = b"".join(records)
        head = struct.pack(
            "<4sHHQQQQIIIII", b"QRb1", 1, flags, self.owner, self.newest, self.sequence,
            self.sequence - 1 if synced is None else synced, self.life, len(body), len(records), crc(marks), self.chain)
        segment = self.segments[self.newest]
        at = len(segment)
        self.starts.append((self.newest, at))
        segment += sealed_header(head) + body
        self.chain = crc(head)
        return at

    def footer(self, *spans: object) -> None:
        """Seal the newest segment with these spans, as its footer has them."""
        number = self.newest
        segment = self.segments[number]
        first_write = struct.unpack_from("<Q", segment, 24)[0]
        body = cbor2.dumps([first_write, self.sequence, self.chain, len(segment), list(spans)])
        at = SEGMENT_BYTES - 48 - len(body)
        assert at >= len(segment)
        segment += bytes(at - len(segment)) + body
        segment += sealed_header(struct.pack(
            "<4sHHQQQIII", b"QRt1", 1, 0, self.owner, number, at, len(body), crc(body), 0))

    def data(self, number: int) -> bytes:
        """A segment as the file has it: filled up with zeros."""
        return bytes(self.segments[number]).ljust(SEGMENT_BYTES, b"\0")

    def save(self, root: Path, *, cluster: str = "c", node: str = "n0") -> Path:
        save_identity(root, cluster=cluster, node=node)
        (root / "log").mkdir(parents=True, exist_ok=True)
        for number in self.segments:
            segment_file(root, number).write_bytes(self.data(number))
        return root


def span(group: int, first: int, last: tuple[int, int, int], offset: int, term: int = 1, base: object = None) -> object:
    """One group's span of a footer, with a sparse index of one entry."""
    return [group, base, first, list(last), struct.pack("<Q", first), struct.pack("<Q", offset), [[first, term]], []]


def save_identity(root: Path, *, cluster: str = "c", node: str = "n0", form: int = 1) -> None:
    root.mkdir(parents=True, exist_ok=True)
    body = cbor2.dumps({"format": form, "cluster": cluster, "node": node, "incarnation": INCARNATION})
    (root / "identity").write_bytes(b"QRi1" + struct.pack("<I", crc(body)) + body)


def segment_file(root: Path, number: int) -> Path:
    return root / "log" / f"{number:020d}.seg"
