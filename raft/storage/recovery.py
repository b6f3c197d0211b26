"""Makes a catalog from the bytes of segments: it cuts off a torn tail, and refuses rot.

A crash can only have damaged blocks that no later block knows to be synced. So the first bad block ends the log if
nothing behind it says ``synced`` >= its write sequence; otherwise, and anywhere in a sealed segment, it is rot.
Stale bytes of a recycled segment or of an earlier life carry another segment sequence or break the chain.
Reads through ``Files``; writes nothing, so that it serves a live directory too. Knows nothing of rolling or purging.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import attrs
from google_crc32c import value as crc32c

from raft.errors import DamagedLog, MalformedMessage
from raft.frame import HEADER_BYTES, MAGIC, check
from raft.storage.blocks import (
    BLOCK_BYTES,
    BLOCK_MAGIC,
    FIRST,
    LOCAL_BYTES,
    TRAILER_BYTES,
    BlockHeader,
    GroupState,
    LocalKind,
    check_block,
    check_trailer,
    decode_hard_state,
    decode_position,
    decode_state,
    parse_local,
)
from raft.storage.catalog import Catalog, Footer, Segment, decode_footer
from raft.storage.interface import Files

LOG_DIR: Final = "log"
SUFFIX: Final = ".seg"
_NAME: Final = re.compile("[0-9]{20}[.]seg")
_MARK: Final = struct.Struct("<I")

FrameFact = tuple[int, int, int, int, int, int, int, int]
"""(group, first, last, term, kind, chain, mark, offset)."""
LocalFact = tuple[LocalKind, int, bytes]
Fact = FrameFact | LocalFact


def segment_path(sequence: int) -> str:
    return f"{LOG_DIR}/{sequence:020d}{SUFFIX}"


@attrs.define
class Cursor:
    """The place that a scan has reached: right after the last good block."""

    offset: int
    sequence: int
    chain: int


@attrs.define
class Recovery:
    """The outcome of ``recover``. ``cursor`` is where the newest segment goes on."""

    catalog: Catalog
    cursor: Cursor
    discarded: list[str]
    """A segment that was begun and holds nothing."""
    cut: str = ""
    """Reason why the scan of the newest segment ended, for people."""
    footers: int = 0
    """Sealed segments that did not need a scan."""


def read_block(path: str, data: bytes, header: BlockHeader, offset: int) -> list[Fact] | str:
    """The records of the block at ``offset``, all checked; or in words why they are not."""
    position = offset + BLOCK_BYTES
    end = position + header.length
    facts: list[Fact] = []
    marks: list[int] = []
    try:
        while position < end:
            if data.startswith(MAGIC, position):
                group, first, last, term, frame_kind, _, chain, mark, behind = check(data, position, end)
                facts.append((group, first, last, term, frame_kind, chain, mark, position))
                marks.append(mark)
                position = behind
            else:
                kind, group, body, mark = parse_local(data, position, end)
                facts.append((kind, group, body))
                marks.append(mark)
                position += LOCAL_BYTES + len(body)
    except MalformedMessage as error:
        return str(error)
    assert position == end, "records fill their block"
    packed = _MARK.pack(marks[0]) if len(marks) == 1 else struct.pack(f"<{len(marks)}I", *marks)
    if len(marks) != header.records or crc32c(packed) != header.digest:
        return "the records differ from the block header's marks"
    return facts


def scan(
    path: str, data: bytes, owner: int, segment: int, cursor: Cursor, apply: Callable[[str, int, list[Fact]], None],
) -> str:
    """Take blocks while they are good, moving ``cursor``; returns why it stopped."""
    while True:
        offset = cursor.offset
        header = check_block(data, offset)
        if isinstance(header, str):
            return header
        if header.owner != owner or header.segment != segment:
            return "a block that belongs to another segment or directory"
        if header.sequence != cursor.sequence + 1 or header.chain != cursor.chain:
            return "a block that does not follow the one before it"
        facts = read_block(path, data, header, offset)
        if isinstance(facts, str):
            return facts
        apply(path, offset, facts)
        cursor.offset = offset + BLOCK_BYTES + header.length
        assert cursor.offset <= len(data), "a good block is whole"
        cursor.sequence, cursor.chain = header.sequence, header.crc


def applier(catalog: Catalog) -> Callable[[str, int, list[Fact]], None]:
    """Adds scanned records to ``catalog``; raises ``DamagedLog`` if good blocks contradict each other."""

    add, groups = catalog.frame, catalog.groups

    def apply(path: str, offset: int, facts: list[Fact]) -> None:
        for fact in facts:
            if len(fact) == 8:
                number, first, last, term, kind, chain, mark, at = fact
                group = groups.get(number) or catalog.group(number)
                index, _, before = group.last
                if first != index + 1 or (0 not in (before, chain) and chain != before):
                    raise DamagedLog(path, at, f"frame {first} of group {number} does not continue entry {index}")
                add(number, first, last, term, kind, mark, at)
            else:
                apply_local(path, offset, fact)

    def apply_local(path: str, offset: int, fact: LocalFact) -> None:
        kind, number, body = fact
        try:
            if kind is LocalKind.HARD_STATE:
                catalog.group(number).hard_state = decode_hard_state(body)
            elif kind is LocalKind.TRUNCATE:
                catalog.truncate(number, decode_position(body))
            elif kind is LocalKind.INSTALL:
                catalog.install(number, decode_position(body))
        except MalformedMessage as error:
            raise DamagedLog(path, offset, str(error)) from error

    return apply


def find_proof(data: bytes, start: int, owner: int, segment: int, sequence: int) -> int | None:
    """Offset of a block at or behind ``start`` that knows write ``sequence`` to be synced."""
    at = data.find(BLOCK_MAGIC, start)
    while at >= 0:
        header = check_block(data, at)
        if isinstance(header, BlockHeader) and (header.owner, header.segment) == (owner, segment) and (
                header.synced >= sequence):
            return at
        at = data.find(BLOCK_MAGIC, at + len(BLOCK_MAGIC))
    return None


def read_file(files: Files, path: str) -> bytes:
    """A whole segment. Short where the file is."""
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


@attrs.define
class Head:
    """The facts about a segment that its first block tells."""

    sequence: int
    path: str
    size: int
    header: BlockHeader
    states: dict[int, GroupState]


def read_head(files: Files, owner: int, sequence: int) -> Head | str:
    path = segment_path(sequence)
    file = files.open(path)
    try:
        size, data = file.size(), file.pread(BLOCK_BYTES, 0)
        header = check_block(data, 0)
        if isinstance(header, str):
            return header
        data += file.pread(header.length, BLOCK_BYTES)
    finally:
        file.close()
    if header.owner != owner or header.segment != sequence or not header.flags & FIRST:
        return "its first block is of another segment or directory"
    facts = read_block(path, data, header, 0)
    if isinstance(facts, str):
        return facts
    states = {}
    for fact in facts:
        if len(fact) != 3 or fact[0] is not LocalKind.STATE:
            return "its first block holds more than states"
        try:
            states[fact[1]] = decode_state(fact[2])
        except MalformedMessage as error:
            return str(error)
    return Head(sequence, path, size, header, states)


def segment_sequences(files: Files) -> list[int]:
    """Sequences of the segment files, rising. Raises ``DamagedLog`` if one is missing between others."""
    found = sorted(int(name[:20]) for name in files.list(LOG_DIR) if _NAME.fullmatch(name))
    for before, after in itertools.pairwise(found):
        if after != before + 1:
            raise DamagedLog(segment_path(before + 1), 0, "this segment is missing")
    return found


def recover(files: Files, owner: int, *, trust_footers: bool = True) -> Recovery | None:
    """Read the log; None if it has no segment with anything in it. Raises ``DamagedLog``."""
    heads: list[Head] = []
    sequences = segment_sequences(files)
    discarded: list[str] = []
    for sequence in sequences:
        head = read_head(files, owner, sequence)
        if isinstance(head, Head):
            heads.append(head)
        elif sequence != sequences[-1]:
            raise DamagedLog(segment_path(sequence), 0, head)
        else:
            discarded.append(segment_path(sequence))
    assert len(discarded) <= 1, "only the newest may have been begun in vain"
    if not heads:
        for sequence in sequences:  # one, or none
            if find_proof(read_file(files, segment_path(sequence)), 0, owner, sequence, 1) is not None:
                raise DamagedLog(segment_path(sequence), 0, "the first block is bad, yet known to be synced")
        return None
    catalog = Catalog()
    recovery = Recovery(catalog, start_of(heads[-1]), discarded)
    for head, after in itertools.zip_longest(heads, heads[1:]):
        begin_segment(catalog, head, oldest=head is heads[0])
        if after is None:
            _recover_newest(files, owner, head, recovery)
        elif trust_footers and _adopt_footer(files, owner, head, after, catalog):
            recovery.footers += 1
        else:
            _scan_sealed(files, owner, head, after, catalog)
    assert len(catalog.segments) == len(heads), "each is in the catalog"
    return recovery


def begin_segment(catalog: Catalog, head: Head, *, oldest: bool) -> None:
    """Check a segment's states against what the segments before it hold, and take them over."""
    for number, state in head.states.items():
        group = catalog.group(number)
        if oldest:
            group.purged = group.last = state.last
        elif group.last != state.last:
            raise DamagedLog(head.path, 0, f"group {number} ended at {group.last}, this segment says {state.last}")
        group.hard_state = state.hard_state
    if unknown := catalog.groups.keys() - head.states.keys():
        raise DamagedLog(head.path, 0, f"the states of groups {sorted(unknown)} are missing")
    assert catalog.groups.keys() == head.states.keys(), "each segment begins with the states of all groups"


def segment_of(head: Head) -> Segment:
    return Segment(head.sequence, head.path, head.size, head.header.sequence, head.states)


def start_of(head: Head) -> Cursor:
    return Cursor(0, head.header.sequence - 1, head.header.chain)


def read_footer(files: Files, owner: int, head: Head) -> Footer | None:
    """A sealed segment's footer; None if it has none, or a damaged one."""
    file = files.open(head.path)
    try:
        trailer = check_trailer(file.pread(TRAILER_BYTES, head.size - TRAILER_BYTES), owner, head.sequence)
        if trailer is None:
            return None
        offset, length, crc = trailer
        data = file.pread(length, offset)
    finally:
        file.close()
    with suppress(MalformedMessage):
        if crc32c(data) == crc:
            return decode_footer(data)
    return None


def _adopt_footer(files: Files, owner: int, head: Head, after: Head, catalog: Catalog) -> bool:
    footer = read_footer(files, owner, head)
    if footer is None or (footer.first_write, footer.last_write + 1, footer.last_crc) != (
            head.header.sequence, after.header.sequence, after.header.chain):
        return False  # or the footer is of an earlier life, which sealed the segment before it was continued
    segment = segment_of(head)
    segment.spans, segment.end = footer.spans, footer.end
    try:
        catalog.adopt(segment)
    except MalformedMessage as error:
        raise DamagedLog(head.path, footer.end, str(error)) from error
    return True


def _scan_sealed(files: Files, owner: int, head: Head, after: Head, catalog: Catalog) -> None:
    segment = segment_of(head)
    catalog.begin(segment)
    cursor = start_of(head)
    reason = scan(head.path, read_file(files, head.path), owner, head.sequence, cursor, applier(catalog))
    if (cursor.sequence + 1, cursor.chain) != (after.header.sequence, after.header.chain):
        raise DamagedLog(head.path, cursor.offset, reason)
    segment.end = cursor.offset


def _recover_newest(files: Files, owner: int, head: Head, recovery: Recovery) -> None:
    segment = segment_of(head)
    recovery.catalog.begin(segment)
    data = read_file(files, head.path)
    cursor = recovery.cursor
    recovery.cut = scan(head.path, data, owner, head.sequence, cursor, applier(recovery.catalog))
    segment.end = cursor.offset
    due = cursor.sequence + 1
    proof = find_proof(data, cursor.offset, owner, head.sequence, due)
    where = head.path
    for path in recovery.discarded if proof is None else ():
        proof, where = find_proof(read_file(files, path), 0, owner, head.sequence + 1, due), path
    if proof is not None:
        raise DamagedLog(head.path, cursor.offset,
                         f"{recovery.cut}; the block at byte {proof} of {where} knows it to be synced")


def scrub(files: Files, owner: int, sequence: int, *, step_bytes: int) -> Iterator[int]:
    """Check every block of a sealed segment, about ``step_bytes`` at a time; yields how far it is.

    Raises ``DamagedLog``. Holds one step in memory, not the segment.
    """
    path = segment_path(sequence)
    head, after = read_head(files, owner, sequence), read_head(files, owner, sequence + 1)
    if isinstance(head, str):
        raise DamagedLog(path, 0, head)
    if isinstance(after, str):
        raise DamagedLog(segment_path(sequence + 1), 0, after)
    at, cursor = 0, start_of(head)
    while True:
        data = _read_step(files, path, at, step_bytes)
        cursor.offset = 0
        reason = scan(path, data, owner, sequence, cursor, lambda *_: None)
        moved, at = cursor.offset, at + cursor.offset
        if (cursor.sequence + 1, cursor.chain) == (after.header.sequence, after.header.chain):
            return
        if not moved:
            raise DamagedLog(path, at, reason)
        yield at


def _read_step(files: Files, path: str, at: int, step_bytes: int) -> bytes:
    """Read so many bytes from ``at`` on, or the whole block there if that is longer."""
    file = files.open(path)
    try:
        data = file.pread(step_bytes, at)
        header = check_block(data, 0)
        if isinstance(header, BlockHeader) and BLOCK_BYTES + header.length > len(data):
            data = file.pread(BLOCK_BYTES + header.length, at)
        return data
    finally:
        file.close()


assert HEADER_BYTES == BLOCK_BYTES
