"""``spark.readStream.format("raftlog")``: the same rows of logs that grow, as far as they are written.

An offset is, for every log, the end of the last block that was taken: segment, byte, write sequence and chain, so a
stream goes on where it was after a restart. A block counts once all its bytes are there. ``truncated`` tells what was
known when a row was read; later truncations come as events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from analysis.errors import NothingToRead
from analysis.files.filesystem import ReadFile, Tree
from analysis.files.finding import find_logs
from analysis.parsing.rows import batches, damage_batch
from analysis.parsing.tables import tabulate
from analysis.parsing.walk import Cursor, Damage, walk
from analysis.schemas import DAMAGE_KIND
from analysis.source.options import Options
from analysis.source.planning import Log, look, open_log
from analysis.source.reading import Reader
from raft.storage.blocks import BLOCK_BYTES, BlockHeader, check_block
from raft.storage.recovery import segment_path

WINDOW_BYTES: Final = 1 << 20
Offset = dict[str, list[int | None]]
"""Segment, byte, write sequence, chain and life by directory; at a segment's start the last three are None."""


@attrs.frozen
class Spot:
    """Position of a stream in one log."""

    segment: int
    cursor: Cursor

    def encode(self) -> list[int | None]:
        cursor = self.cursor
        return [self.segment, cursor.offset, cursor.sequence, cursor.chain, cursor.life]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> Spot:
        segment, offset, sequence, chain, life = values
        return cls(segment, Cursor(offset, sequence, chain, life))


@attrs.frozen
class Piece:
    """Blocks of one segment, from ``start`` to ``stop``; None: to its end, for it is sealed.

    ``lost``: segments that were purged before they were read.
    """

    log: Log
    segment: int
    start: Cursor
    stop: Cursor | None
    lost: int = 0


class StreamPart(InputPartition):
    """``value`` is a tuple of pieces."""


class RaftLogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One per query, in a process of its own that Spark keeps."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._goal: Offset | None = None

    def initialOffset(self) -> Offset:
        """Before everything, or, with start=latest, behind all that is there now."""
        logs = self._logs()
        if self.options.latest:
            return {log.root: self._end(tree, log, _start(log), 1 << 62).encode() for tree, log in logs if log.segments}
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit this run to what is there now."""
        self._goal = {log.root: self._end(tree, log, _start(log, log.segments[-1][0]), 1 << 62).encode()
                      for tree, log in self._logs() if log.segments}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """As far as whole blocks go, at most ``max_mb_per_batch`` further than ``start`` over all logs."""
        out = dict(start)
        logs = [(tree, log) for tree, log in self._logs() if log.segments]
        for tree, log in logs:
            at = Spot.decode(start[log.root]) if log.root in start else _start(log)
            end = self._end(tree, log, at, max(1, self.options.max_bytes_per_batch // len(logs)))
            goal = self._goal.get(log.root) if self._goal is not None else None
            if self._goal is not None:
                if goal is None:
                    continue  # the log came after the goal was set
                stop = Spot.decode(goal)
                if (stop.segment, stop.cursor.offset) < (end.segment, end.cursor.offset):
                    end = stop
            out[log.root] = end.encode()
        return out

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One per log that has grown."""
        parts = []
        for tree, log in self._logs():
            if log.root in end and log.segments:
                begin = Spot.decode(start[log.root]) if log.root in start else _start(log)
                pieces = tuple(_pieces(log, begin, Spot.decode(end[log.root]), _lost(tree, log, begin)))
                if pieces:
                    parts.append(StreamPart(pieces))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for piece in partition.value or ():
            tree = Tree.of(piece.log.root)
            yield from self.options.cut(read_piece(tree, piece, Reader(tree, self.options.wanted)))

    def commit(self, end: Offset) -> None:
        """Nothing is held back for a stream: the node purges as it is configured to."""

    def stop(self) -> None:
        """Does nothing, as no file stays open."""

    def _logs(self) -> list[tuple[Tree, Log]]:
        selection = self.options.wanted.selection
        found = find_logs(self.options.paths)
        logs = [(each.tree, open_log(each)) for each in found if not each.java]
        if not logs:
            raise NothingToRead(f"{', '.join(self.options.paths)}: only Java DLedger directories are here, and those "
                                "can be read at once (spark.read), not as a stream")
        return [(tree, log) for tree, log in logs if selection.wants_node(log.node)]

    def _end(self, tree: Tree, log: Log, at: Spot, budget: int) -> Spot:
        """Return the end of whole blocks from ``at`` on, after at most ``budget`` bytes, but at least one block."""
        sequences = [sequence for sequence, _ in log.segments]
        sizes = dict(log.segments)
        if at.segment not in sizes and at.segment < sequences[0]:
            at = _start(log)  # the segment was purged before it was read
        while True:
            if at.segment in sizes:
                cursor, full = _hop(tree, log, at, budget)
                budget -= cursor.offset - at.cursor.offset
                at = Spot(at.segment, cursor)
                if full or budget <= 0:
                    return at
            later = [sequence for sequence in sequences if sequence > at.segment]
            if not later:
                return at
            at = Spot(later[0], Cursor())


def _start(log: Log, segment: int | None = None) -> Spot:
    return Spot(log.segments[0][0] if segment is None else segment, Cursor())


def _lost(tree: Tree, log: Log, start: Spot) -> int:
    """Count segments that are gone and were not read to their end.

    The oldest segment that is left tells: it knows the block before it.
    """
    sequence, size = log.segments[0]
    if start.segment >= sequence:
        return 0
    seen, read_to = look(tree, log, sequence, size, footer=False), start.cursor.sequence
    if read_to is not None and seen.good and (seen.first_write, seen.chain) == (read_to + 1, start.cursor.chain):
        return 0
    return sequence - start.segment


def _pieces(log: Log, start: Spot, end: Spot, lost: int) -> Iterator[Piece]:
    sequences = [sequence for sequence, _ in log.segments if start.segment <= sequence <= end.segment]
    for sequence in sequences:
        begin = start.cursor if sequence == start.segment else Cursor()
        stop = end.cursor if sequence == end.segment else None
        if stop is None or stop.offset > begin.offset or lost:
            yield Piece(log, sequence, begin, stop, lost)
        lost = 0


def _hop(tree: Tree, log: Log, at: Spot, budget: int) -> tuple[Cursor, bool]:
    """Return the place behind the last whole block, by block headers alone, and whether the budget ended it.

    The last block's records are checked: a writer may be at it.
    """
    cursor = attrs.evolve(at.cursor)
    try:
        file = tree.open(segment_path(at.segment))
    except OSError:
        return cursor, False
    try:
        size, limit = file.size(), at.cursor.offset + budget
        before, window = attrs.evolve(cursor), _Window(file)
        while True:
            header = check_block(window.get(cursor.offset, BLOCK_BYTES), 0)
            if not isinstance(header, BlockHeader) or (header.owner, header.segment) != (log.owner, at.segment) or (
                    cursor.sequence is not None
                    and (header.sequence, header.chain) != (cursor.sequence + 1, cursor.chain)):
                break
            end = cursor.offset + BLOCK_BYTES + header.length
            if end > size or (end > limit and cursor.offset > at.cursor.offset):
                break
            before = attrs.evolve(cursor)
            cursor.offset, cursor.sequence, cursor.chain, cursor.life = end, header.sequence, header.crc, header.life
        full = limit - cursor.offset <= 0 or _more(window, cursor, limit)
        if cursor.offset > before.offset:
            data = file.pread(cursor.offset - before.offset, before.offset)
            again = attrs.evolve(before, offset=0)
            seen = walk(data, log.owner, at.segment, again, sealed=False)
            if again.offset != len(data) or seen.damages:
                newest = at.segment == log.segments[-1][0]
                if newest and not _proved(window, cursor, log, at.segment):
                    return before, full
        return cursor, full
    except OSError:
        return attrs.evolve(at.cursor), False
    finally:
        file.close()


def _more(window: _Window, cursor: Cursor, limit: int) -> bool:
    """Return whether the next block follows the cursor and goes on beyond ``limit``, where the budget ended."""
    header = check_block(window.get(cursor.offset, BLOCK_BYTES), 0)
    return (isinstance(header, BlockHeader) and (header.sequence, header.chain) == (
        (cursor.sequence or 0) + 1, cursor.chain) and cursor.offset + BLOCK_BYTES + header.length > limit)


def _proved(window: _Window, cursor: Cursor, log: Log, segment: int) -> bool:
    """Return whether the block at the cursor knows the one before as synced: then that is damaged, not in writing."""
    header = check_block(window.get(cursor.offset, BLOCK_BYTES), 0)
    return (isinstance(header, BlockHeader) and (header.owner, header.segment) == (log.owner, segment)
            and header.synced >= (cursor.sequence or 0))


class _Window:
    """A piece of a file that moves forward."""

    def __init__(self, file: ReadFile) -> None:
        self._file, self._start, self._data = file, 0, b""

    def get(self, offset: int, size: int) -> bytes:
        at = offset - self._start
        if at < 0 or at + size > len(self._data):
            self._data, self._start, at = self._file.pread(WINDOW_BYTES, offset), offset, 0
        return self._data[at : at + size]


def read_piece(tree: Tree, piece: Piece, reader: Reader) -> Iterator[pa.RecordBatch]:
    """Reads the rows of one piece, batch by batch."""
    log, wanted, path = piece.log, reader.wanted, segment_path(piece.segment)
    damaged = wanted.selection.wants_kind(DAMAGE_KIND)
    if piece.lost and damaged:
        gone = piece.segment - 1
        yield damage_batch(wanted.form, log.place(tree.path_of(segment_path(gone)), gone), [Damage(
            0, "missing", f"{piece.lost} segments up to this one were purged before the stream had read them")])
    place = log.place(tree.path_of(path), piece.segment, piece.start.offset)
    try:
        if piece.stop is None:
            data = tree.read(path, piece.start.offset)
            after = reader.after(log, piece.segment)
        else:
            file = tree.open(path)
            try:
                data = file.pread(piece.stop.offset - piece.start.offset, piece.start.offset)
            finally:
                file.close()
            after = None if piece.stop.sequence is None else (piece.stop.sequence + 1, piece.stop.chain)
    except OSError as error:
        if damaged and not (isinstance(error, FileNotFoundError) and reader.purged(piece.segment)):
            yield damage_batch(wanted.form, place, [Damage(0, "unreadable", str(error))])
        return
    found = walk(data, log.owner, piece.segment, attrs.evolve(piece.start, offset=0), sealed=True, after=after,
                 carried=False)
    frames, damages = tabulate(data, found, {})
    if wanted.form == "events" and piece.start.sequence is None and piece.segment > 1 and found.openings and (
            found.openings[0].offset == 0):
        del found.openings[0]  # the life that ended the segment before is not known here
    yield from batches(frames, found, damages, place, wanted)
