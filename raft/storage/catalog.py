"""The catalog of segments, in memory: where each group's log begins and ends, and which entries lie where in each
segment.

One truth for the writer, which adds what it has written, and for recovery, which adds what it has read. Sparse: one
index entry per 64 KiB of a group's frames, no object per frame. Footers are this, per segment, as bytes.
Knows blocks' values; does no I/O and takes no lock.
"""

from __future__ import annotations

import enum
import struct
from array import array
from bisect import bisect_right
from operator import itemgetter
from typing import Final, NamedTuple

import attrs
import cbor2

from raft.errors import MalformedMessage
from raft.frame import Kind
from raft.messages import HardState
from raft.storage.blocks import ORIGIN, GroupState, Position

_MEMBERSHIP: Final = int(Kind.MEMBERSHIP)
_FIRST: Final = itemgetter(0)
INDEX_BYTES: Final = 64 << 10
"""Distance between two entries of a sparse index."""


class Base(enum.IntEnum):
    """The relation of a segment to the log that came before it."""

    CUT = 1
    """It now ends at the position."""
    RESET = 2
    """It is gone; the position is the boundary of an installed snapshot."""


class Extent(NamedTuple):
    """Frames of a group that lie in order in a segment, other records between them: from the one that begins with
    entry ``first`` at ``offset`` to the one that ends with ``last``, below ``limit`` bytes."""

    first: int
    last: int
    offset: int
    limit: int


def _index() -> array[int]:
    return array("Q")


@attrs.define(eq=False)
class Span:
    """The part of one group's log that one segment holds, and what the segment did to the part before it."""

    base: tuple[Base, Position] | None = None
    first: int = 0
    """First entry held, 0 for none."""
    end: Position = ORIGIN
    firsts: array[int] = attrs.field(factory=_index)
    offsets: array[int] = attrs.field(factory=_index)
    runs: list[tuple[int, int]] = attrs.field(factory=list)
    """Runs of one term, as (first index, term)."""
    memberships: list[tuple[int, int]] = attrs.field(factory=list)
    """(index, offset) of MEMBERSHIP frames."""
    jump: bool = True
    """The next frame does not follow the one before it in the file, so it needs an index entry."""

    def clear(self) -> None:
        self.first, self.end, self.jump = 0, ORIGIN, True
        self.firsts, self.offsets = _index(), _index()
        self.runs, self.memberships = [], []

    def clip(self, end: Position) -> None:
        """Forget what is behind ``end``, which is within or before this span."""
        assert end.index <= self.end.index, "what is cut does not grow"
        index = end.index
        if index < self.first:
            self.clear()
            return
        keep = bisect_right(self.firsts, index)
        del self.firsts[keep:], self.offsets[keep:]
        while self.runs and self.runs[-1][0] > index:
            self.runs.pop()
        while self.memberships and self.memberships[-1][0] > index:
            self.memberships.pop()
        self.end, self.jump = end, True

    def term_at(self, index: int) -> int:
        assert self.first <= index <= self.end.index, "it is held here"
        return self.runs[bisect_right(self.runs, index, key=_FIRST) - 1][1]


@attrs.define(eq=False)
class Segment:
    """Facts about one segment file that need no reading of it."""

    sequence: int
    path: str
    size: int
    """Size of the file in bytes."""
    first_write: int
    """Number of the write that wrote its first block."""
    states: dict[int, GroupState]
    spans: dict[int, Span] = attrs.field(factory=dict)
    end: int = 0
    """Offset after its last block."""


@attrs.define(eq=False)
class Group:
    """Begin and end of one group's log, and what the group must not forget."""

    hard_state: HardState = attrs.field(factory=HardState)
    purged: Position = ORIGIN
    last: Position = ORIGIN


@attrs.define(eq=False)
class Catalog:
    """All groups and segments, oldest segment first."""

    groups: dict[int, Group] = attrs.field(factory=dict)
    segments: list[Segment] = attrs.field(factory=list)

    def group(self, number: int) -> Group:
        found = self.groups.get(number)
        if found is None:
            found = self.groups[number] = Group()
        return found

    def begin(self, segment: Segment) -> None:
        """``segment`` is the newest now."""
        assert not self.segments or self.segments[-1].sequence < segment.sequence, "the oldest stands first"
        self.segments.append(segment)

    def frame(self, number: int, first: int, last: int, term: int, kind: int, mark: int, offset: int) -> None:
        """A frame at ``offset`` of the newest segment follows its group's last one."""
        segment = self.segments[-1]
        span = segment.spans.get(number)
        if span is None:
            span = segment.spans[number] = Span()
        assert span.end.index < first <= last, "frames go on, behind one another"
        if span.jump or offset - span.offsets[-1] >= INDEX_BYTES:
            span.firsts.append(first)
            span.offsets.append(offset)
            span.jump = False
            if not span.first:
                span.first = first
        if not span.runs or span.runs[-1][1] != term:
            span.runs.append((first, term))
        if kind == _MEMBERSHIP:
            span.memberships.append((first, offset))
        group = self.groups.get(number)
        if group is None:
            group = self.groups[number] = Group()
        span.end = group.last = Position(last, term, mark)

    def truncate(self, number: int, end: Position) -> None:
        """The group's log now ends at ``end``; a record of the newest segment says so."""
        group = self.group(number)
        self._clip(number, end)
        newest = self.segments[-1]
        span = newest.spans.setdefault(number, Span())
        if not span.first and (span.base is None or span.base[0] is Base.CUT):
            span.base = Base.CUT, end
        if end.index < group.purged.index:
            group.purged = end
        group.last = end

    def install(self, number: int, boundary: Position) -> None:
        """The group's log is empty behind ``boundary``; a record of the newest segment says so."""
        for segment in self.segments:
            span = segment.spans.get(number)
            if span is not None:
                span.clear()
        self.segments[-1].spans.setdefault(number, Span()).base = Base.RESET, boundary
        group = self.group(number)
        group.purged = group.last = boundary

    def _clip(self, number: int, end: Position) -> None:
        for segment in reversed(self.segments):
            span = segment.spans.get(number)
            if span is None or not span.first:
                continue
            if span.end.index <= end.index:
                break
            span.clip(end)

    def adopt(self, segment: Segment) -> None:
        """``segment`` with spans as a footer tells them is the newest now."""
        for number, span in segment.spans.items():
            group = self.group(number)
            if span.base is not None:
                kind, position = span.base
                if kind is Base.RESET:
                    for older in self.segments:
                        if number in older.spans:
                            older.spans[number].clear()
                    group.purged = position
                else:
                    self._clip(number, position)
                    if position.index < group.purged.index:
                        group.purged = position
                group.last = position
            if span.first:
                if span.first != group.last.index + 1:
                    raise MalformedMessage(
                        f"group {number} continues with entry {span.first} after {group.last.index}")
                group.last = span.end
        self.begin(segment)

    def holds(self, number: int, index: int, term: int) -> bool:
        """Return whether the log has this entry, with this term; purged entries count as held."""
        group = self.group(number)
        if index <= group.purged.index:
            return index < group.purged.index or term == group.purged.term
        span = self._span(number, index)
        return span is not None and span[1].term_at(index) == term

    def _span(self, number: int, index: int) -> tuple[Segment, Span] | None:
        for segment in reversed(self.segments):
            span = segment.spans.get(number)
            if span is not None and span.first and span.first <= index:
                return (segment, span) if index <= span.end.index else None
        return None

    def locate(self, number: int, index: int, max_bytes: int) -> tuple[Segment, list[Extent]] | None:
        """Return a segment and the extents in it that hold entry ``index`` and up to about ``max_bytes`` after it."""
        found = self._span(number, index)
        if found is None:
            return None
        segment, span = found
        at = bisect_right(span.firsts, index) - 1
        stop = min(len(span.firsts), at + max_bytes // INDEX_BYTES + 2)
        out = []
        for entry in range(at, stop):
            behind = entry + 1 < len(span.firsts)
            out.append(Extent(
                span.firsts[entry], span.firsts[entry + 1] - 1 if behind else span.end.index,
                span.offsets[entry], span.offsets[entry + 1] if behind else segment.end,
            ))
        return segment, out

    def droppable(self, purge_to: dict[int, int]) -> int:
        """Return how many of the oldest segments hold nothing after ``purge_to`` of any group. The newest one never
        counts."""
        for count, segment in enumerate(self.segments[:-1]):
            for number, span in segment.spans.items():
                if span.first and span.end.index > purge_to.get(number, 0):
                    return count
        return max(0, len(self.segments) - 1)

    def drop(self, count: int) -> list[Segment]:
        """Forget the ``count`` oldest segments; what they held is purged."""
        assert 0 <= count < max(1, len(self.segments)), "the newest stays"
        gone = self.segments[:count]
        del self.segments[:count]
        for segment in gone:
            for number, span in segment.spans.items():
                if span.first:
                    self.groups[number].purged = span.end
        return gone

    def holders(self, purge_to: dict[int, int]) -> list[int]:
        """Groups with entries behind ``purge_to`` in the oldest segment: they keep it."""
        return [number for number, span in self.segments[0].spans.items()
                if span.first and span.end.index > purge_to.get(number, 0)]

    def is_quiet(self, number: int, segments: int) -> bool:
        """Return whether no frame of the group lies in the newest ``segments`` segments."""
        assert segments > 0, "the newest is one of them"
        return not any(
            number in segment.spans and segment.spans[number].first for segment in self.segments[-segments:])

    def position_at(self, number: int, index: int, mark: int) -> Position:
        """Return the position of an entry that ends a frame, or of the log's begin; ``mark`` is that frame's mark."""
        group = self.group(number)
        if index == group.purged.index:
            return group.purged
        span = self._span(number, index)
        return Position(index, span[1].term_at(index) if span is not None else 0, mark)

    def term_runs(self, number: int) -> list[tuple[int, int]]:
        runs: list[tuple[int, int]] = []
        for segment in self.segments:
            span = segment.spans.get(number)
            for first, term in span.runs if span is not None else ():
                if not runs or runs[-1][1] != term:
                    runs.append((first, term))
        return runs


def encode_footer(segment: Segment, last_write: int, last_crc: int) -> bytes:
    """A sealed segment's spans, with the write sequence and CRC of its last block."""
    spans = []
    for number, span in sorted(segment.spans.items()):
        base = None if span.base is None else [int(span.base[0]), *span.base[1]]
        assert len(span.offsets) == len(span.firsts) and bool(span.firsts) == (span.first > 0), "all is indexed"
        count = len(span.firsts)
        spans.append([number, base, span.first, list(span.end), struct.pack(f"<{count}Q", *span.firsts),
                      struct.pack(f"<{count}Q", *span.offsets), span.runs, span.memberships])
    return cbor2.dumps([segment.first_write, last_write, last_crc, segment.end, spans])


@attrs.frozen
class Footer:
    """The content of a segment's footer."""

    first_write: int
    last_write: int
    last_crc: int
    """CRC of the last block: what the next segment's first block must have as ``chain``."""
    end: int
    spans: dict[int, Span]


def decode_footer(data: bytes) -> Footer:
    """Raises ``MalformedMessage`` for bytes that are no footer."""
    try:
        first_write, last_write, last_crc, end, packed = cbor2.loads(data)
        spans = {}
        for number, base, first, last, firsts, offsets, runs, memberships in packed:
            count = len(firsts) // 8
            span = Span(
                None if base is None else (Base(base[0]), Position(*base[1:])), first, Position(*last),
                array("Q", struct.unpack(f"<{count}Q", firsts)), array("Q", struct.unpack(f"<{count}Q", offsets)),
                [(int(index), int(term)) for index, term in runs],
                [(int(index), int(offset)) for index, offset in memberships],
            )
            if bool(span.first) != bool(span.firsts) or len(span.firsts) != len(span.offsets) or not all(
                    type(each) is int and each >= 0 for each in (number, first, *span.end)):
                raise ValueError(f"span of group {number}")
            spans[number] = span
        if not all(type(each) is int for each in (first_write, last_write, last_crc, end)):
            raise ValueError("a number is due")
    except (ValueError, TypeError, LookupError, struct.error, cbor2.CBORError, OverflowError, RecursionError,
            MemoryError) as error:
        raise MalformedMessage(f"not a footer: {error}") from error
    return Footer(first_write, last_write, last_crc, end, spans)
