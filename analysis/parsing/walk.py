"""One pass over a segment's blocks and records: where the good ones lie, and what is damaged.

Blocks say how long they are, so a damaged record costs itself and a damaged block itself: the walk goes on at the next
block that belongs to this segment. What a crash may leave behind is told from damage as the storage does it: a bad
block is damage if the segment is sealed, or if a later block knows it to be synced; else the log ends there.
A step of Python for each block and frame, which checks every CRC; all that is per entry is in ``tables``. No I/O.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import attrs
from google_crc32c import value as crc32c

from raft.errors import MalformedMessage
from raft.frame import HEADER_BYTES, MAGIC, VERSION
from raft.storage.blocks import (
    BLOCK_BYTES,
    BLOCK_MAGIC,
    LOCAL_BYTES,
    UPKEEP,
    BlockHeader,
    LocalKind,
    check_block,
    parse_local,
)

_BLOCK: Final = struct.Struct("<4sHHQQQQIIIIII")
_FRAME: Final = struct.Struct("<6xH28xI8xI")
"""Version, body length and body CRC of a frame."""
_CRC: Final = struct.Struct("<I")
_NOTHING: Final[tuple[Any, ...]] = (b"", *[0] * 12)
_NEVER_TORN: Final = frozenset({"cut", "version", "foreign"})
"""Damage that no crash leaves: files have their full size from the start, and come only from this directory."""


@attrs.frozen
class Damage:
    """Bytes that are not what was written. ``after_frames``: good frames found before it."""

    offset: int
    code: str
    """A code of ``schemas.DAMAGE``."""
    reason: str
    after_frames: int = 0


@attrs.frozen
class LocalRecord:
    """A record of the node's own, where it lies. ``after_frames``: good frames found before it."""

    offset: int
    write: int
    kind: LocalKind
    group: int
    body: bytes
    mark: int
    after_frames: int
    upkeep: str = ""
    """"carried" or "removed": the storage cut the log for itself, no leader did."""

    @property
    def name(self) -> str:
        """Its kind as a row tells it."""
        return self.upkeep or self.kind.name.lower()


@attrs.frozen
class Opening:
    """The first block of another life than the block before: a process opened the log."""

    offset: int
    write: int
    life: int
    after_frames: int


@attrs.define
class Cursor:
    """Behind the last block taken. ``sequence`` and ``chain`` are those of that block; None: not known yet."""

    offset: int = 0
    sequence: int | None = None
    chain: int = 0
    life: int | None = None


@attrs.define
class Walk:
    """Contents of a segment in file order. ``heads``, ``offsets``, ``writes`` and ``synced`` are of good frames."""

    cursor: Cursor
    heads: list[bytes] = attrs.field(factory=list)
    offsets: list[int] = attrs.field(factory=list)
    writes: list[int] = attrs.field(factory=list)
    synced: list[int] = attrs.field(factory=list)
    locals: list[LocalRecord] = attrs.field(factory=list)
    openings: list[Opening] = attrs.field(factory=list)
    damages: list[Damage] = attrs.field(factory=list)
    blocks: int = 0

    def damage(self, offset: int, code: str, reason: str) -> None:
        self.damages.append(Damage(offset, code, reason, len(self.offsets)))

    def cut(self, frames: int, local_records: int) -> None:
        """Keep only so many frames and local records."""
        del self.heads[frames:], self.offsets[frames:], self.writes[frames:], self.synced[frames:]
        del self.locals[local_records:]


def walk(
    data: bytes, owner: int, segment: int, cursor: Cursor, *, sealed: bool, after: tuple[int, int] | None = None,
    verify: bool = True, carried: bool = True,
) -> Walk:
    """Take a segment's blocks from ``cursor`` on, which moves along.

    ``sealed``: a later segment exists. ``after``: write sequence and chain that continue this segment, where known; a
    sealed segment that does not reach them is damaged. ``verify=False`` skips the CRCs of frames' bodies and the
    digests of blocks, to find local records fast. ``carried=False`` leaves out what was written before and carried
    forward: a reader that goes on where it was has read it.
    """
    found = Walk(cursor)
    unpack, size = _BLOCK.unpack_from, len(data)
    at, chain, life = cursor.offset, cursor.chain, cursor.life
    due = None if cursor.sequence is None else cursor.sequence + 1
    while after is None or (due, chain) != after:
        magic, version, flags, own, number, sequence, synced, lives, length, count, digest, before, crc = (
            unpack(data, at) if at + BLOCK_BYTES <= size else _NOTHING)
        if not (magic == BLOCK_MAGIC and crc32c(data[at : at + 60]) == crc and version == 1 and own == owner
                and number == segment and (due is None or (sequence == due and before == chain))
                and at + BLOCK_BYTES + length <= size):
            resumed = _resume(data, at, owner, segment, due, life, found, must_reach=sealed and after is not None)
            if resumed is None:
                break
            at, due = resumed, None
            continue
        stop = at + BLOCK_BYTES + length
        kept = len(found.offsets), len(found.locals)
        damages = _records(data, at, stop, sequence, synced, count, digest, found, verify,
                           _upkeep(flags, count))
        if damages:
            if not sealed and _later(data, stop, owner, segment, sequence, None) is None:
                found.cut(*kept)  # the tail is torn, or a writer is at work
                break
            found.damages += damages
        if not carried and _upkeep(flags, count) == "carried":
            found.cut(*kept)
        if lives != life:
            found.openings.append(Opening(at, sequence, lives, kept[0]))
        found.blocks += 1
        at, due, chain, life = stop, sequence + 1, crc, lives
        cursor.offset, cursor.sequence, cursor.chain, cursor.life = at, sequence, crc, life
    return found


def _upkeep(flags: int, count: int) -> str:
    if not flags & UPKEEP:
        return ""
    return "carried" if count > 1 else "removed"


def _records(
    data: bytes, block: int, stop: int, write: int, synced: int, count: int, digest: int, found: Walk, verify: bool,
    upkeep: str,
) -> list[Damage]:
    """Take the good records of one block whose header is good; returns what is damaged."""
    at = block + BLOCK_BYTES
    heads, offsets = found.heads, found.offsets
    kept, kept_locals = len(offsets), len(found.locals)
    damages: list[Damage] = []
    marks: list[bytes] = []
    while at < stop:
        if data.startswith(MAGIC, at):
            begin = at + HEADER_BYTES
            head = data[at:begin]
            if begin > stop or crc32c(head[:60]) != _CRC.unpack_from(head, 60)[0]:
                damages.append(Damage(at, "crc", "a frame header fails its CRC; the rest of its block cannot be read",
                                      len(offsets)))
                break
            version, length, body_crc = _FRAME.unpack_from(head)
            end = begin + length
            if version != VERSION or end > stop:
                damages.append(
                    Damage(at, "crc", "a frame is longer than its block", len(offsets)) if version == VERSION else
                    Damage(at, "version", f"frame version {version}; this build reads {VERSION}", len(offsets)))
                break
            marks.append(head[60:])
            if verify and crc32c(data[begin:end]) != body_crc:
                first = int.from_bytes(head[24:32], "little")
                damages.append(Damage(at, "crc", f"the body of frame {first} fails its CRC", len(offsets)))
            else:
                heads.append(head)
                offsets.append(at)
            at = end
            continue
        try:
            kind, group, body, mark = parse_local(data, at, stop)
        except MalformedMessage as error:
            damages.append(Damage(at, "crc", f"{error}; the rest of its block cannot be read", len(offsets)))
            break
        found.locals.append(LocalRecord(at, write, kind, group, body, mark, len(offsets), upkeep))
        marks.append(_CRC.pack(mark))
        at += LOCAL_BYTES + len(body)
    if verify and not damages and (len(marks) != count or crc32c(b"".join(marks)) != digest):
        found.cut(kept, kept_locals)
        damages.append(Damage(block, "crc", "the records are not those that the block header vouches for", kept))
    more = len(offsets) - kept
    if more == 1:
        found.writes.append(write)
        found.synced.append(synced)
    elif more:
        found.writes += [write] * more
        found.synced += [synced] * more
    return damages


def _resume(
    data: bytes, at: int, owner: int, segment: int, due: int | None, life: int | None, found: Walk, *, must_reach: bool,
) -> int | None:
    """The walk met something that is not the block due: record it if it is damage, and say where the walk goes on."""
    code, reason = _why(data, at, owner, segment, due)
    proof = _later(data, at, owner, segment, due or 0, None)
    if not (must_reach or proof is not None or code in _NEVER_TORN):
        return None  # nothing proves more: the log ends here
    later = _later(data, at, owner, segment, due or 0, life)
    if code == "stale":
        code = "foreign"
    elif code == "end":
        code = "cut"
    elif at == 0 and later is None and code == "crc":
        code = "empty"
    found.damage(at, code, reason)
    return later


def _later(data: bytes, at: int, owner: int, segment: int, due: int, life: int | None) -> int | None:
    """Return the first block at or behind ``at`` that was written in place.

    It knows ``due`` to be synced, or, if ``life`` is given, it is of that life. Neither holds for blocks that an
    earlier life left behind the end of the log.
    """
    at = data.find(BLOCK_MAGIC, at)
    while at >= 0:
        header = check_block(data, at)
        if isinstance(header, BlockHeader) and (header.owner, header.segment) == (owner, segment) and (
                header.synced >= due or (life is not None and header.life == life and header.sequence >= due)) and (
                at + BLOCK_BYTES + header.length <= len(data)):
            return at
        at = data.find(BLOCK_MAGIC, at + 1)
    return None


def _why(data: bytes, at: int, owner: int, segment: int, due: int | None) -> tuple[str, str]:
    """Return the code and the words for what is at ``at`` instead of the due block."""
    if at == len(data):
        return "end", f"the file ends at byte {at}, before the end of the log"
    if at + BLOCK_BYTES > len(data):
        return "cut", f"the file ends at byte {len(data)}, inside a block header"
    header = check_block(data, at)
    if isinstance(header, str):
        return ("version" if "version" in header else "crc"), header
    if header.owner != owner:
        return "foreign", "a block of another node's log"
    if header.segment != segment:
        return "stale", f"a block of segment {header.segment}"
    if at + BLOCK_BYTES + header.length > len(data):
        return "cut", f"the file ends at byte {len(data)}, inside a block of {BLOCK_BYTES + header.length} bytes"
    return "chain", f"block {header.sequence} does not follow the one before it"
