"""The segment log: all groups' writes in one sequence of preallocated files, one block per group commit.

``write`` lays records out as a block and writes it with one call; ``sync`` makes it durable. Knows files through
``Files`` only. Threads: one writer calls ``write`` and ``sync``; any one other thread may call ``read``,
``maintain``, ``scrub`` and the snapshot calls at the same time. See ``docs/reference/storage-format.md``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, TypeVar

import attrs

from raft.errors import DamagedLog, DiskFull, StorageError, UsageError, WriteFailed
from raft.frame import Frame
from raft.messages import HardState, Recovered, SnapshotMeta, Write
from raft.storage.blocks import (
    BLOCK_BYTES,
    ORIGIN,
    TRAILER_BYTES,
    GroupState,
    LocalKind,
    Position,
    encode_block,
    encode_hard_state,
    encode_local,
    encode_position,
    encode_state,
    encode_trailer,
)
from raft.storage.catalog import Catalog, Segment, encode_footer
from raft.storage.identity import Identity, check_identity
from raft.storage.interface import File, Files, SnapshotSink
from raft.storage.mark import Mark
from raft.storage.reading import SegmentReader
from raft.storage.recovery import LOG_DIR, recover, scrub, segment_path, segment_sequences
from raft.storage.snapshots import SnapshotStore
from raft.storage.spares import SparePool
from raft.storage.trouble import NO_DESCRIPTOR, lacks_descriptor

_ROOM_BYTES_MIN: Final = 4096
SEGMENT_BYTES_MIN: Final = 32 << 10
SEGMENTS_KEPT: Final = 2
"""A log of more segments gives up its oldest: entries that only quiet groups need there are carried forward."""
CARRY_SHARE: Final = 16
"""A group with more live bytes than this share of a segment is not carried: it is to take a snapshot."""
CARRY_STEP_BYTES: Final = 1 << 20
"""Most bytes that one group commit carries forward; a single group may exceed it."""
T = TypeVar("T")


def _limits(segment_bytes: int) -> tuple[int, int]:
    """Return where frames end in a segment of this size, and where local records do."""
    room = max(_ROOM_BYTES_MIN, segment_bytes // 64)
    local_limit = segment_bytes - room - BLOCK_BYTES
    return local_limit - room, local_limit


_Local = tuple[LocalKind, int, HardState | Position]


@attrs.define(eq=False)
class _Unit:
    """Records that go into one block together: those of one write, or one frame of a write too large for that."""

    buffers: list[bytes] = attrs.field(factory=list)
    marks: list[int] = attrs.field(factory=list)
    facts: list[Frame | _Local] = attrs.field(factory=list)
    size: int = 0
    frames: bool = False
    upkeep: bool = False
    """A block of its own, which no leader asked for."""

    def frame(self, frame: Frame) -> None:
        self.buffers.append(frame.data)
        self.marks.append(frame.mark)
        self.facts.append(frame)
        self.size += len(frame.data)

    def local(self, kind: LocalKind, group: int, value: HardState | Position) -> None:
        body = encode_hard_state(value) if isinstance(value, HardState) else encode_position(value)
        data, mark = encode_local(kind, group, body)
        self.buffers.append(data)
        self.marks.append(mark)
        self.facts.append((kind, group, value))
        self.size += len(data)

    def add(self, other: _Unit) -> None:
        self.buffers += other.buffers
        self.marks += other.marks
        self.facts += other.facts
        self.size += other.size


@attrs.define(eq=False)
class _Tail:
    """A group's log as it will be, while a call is laid out: what is written up to ``base``, then ``frames``."""

    base: Position
    reset: bool = False
    frames: list[Frame] = attrs.field(factory=list)

    @property
    def last(self) -> Position:
        if self.frames:
            frame = self.frames[-1]
            return Position(frame.first + frame.count - 1, frame.term, frame.mark)
        return self.base


class SegmentStorage:
    """Implements ``Storage``, with all its capabilities, on a formatted directory.

    ``rng`` needs only be different each time; pass a seeded one to a simulation. With ``background`` the caller
    runs ``maintain`` in another thread when ``needs_maintenance`` says so; otherwise ``sync`` does it inline. With
    ``opened_before`` there was a log here: it is not begun anew.
    """

    kind: Final = "segments"

    def __init__(
        self, files: Files, cluster: str, node_id: str, *, segment_bytes: int = 64 << 20, rng: Random | None = None,
        background: bool = False, opened_before: bool = False,
    ) -> None:
        if segment_bytes < SEGMENT_BYTES_MIN:
            raise UsageError(f"segment_bytes={segment_bytes}: must be {SEGMENT_BYTES_MIN} or more")
        self._files, self._cluster, self._node_id = files, cluster, node_id
        self._rng = rng if rng is not None else Random()
        self._background, self._opened_before = background, opened_before
        self._spares, self._fresh_limits = SparePool(files, segment_bytes), _limits(segment_bytes)
        self.snapshots = SnapshotStore(files)
        self.identity: Identity | None = None
        self._owner = self._life = 0
        self._mark = Mark(files, 0)
        self._catalog = Catalog()
        self._map_lock = threading.Lock()
        self._reader = SegmentReader(files)
        self._active: Segment | None = None
        self._file: File | None = None
        self._data_limit = self._local_limit = 0
        self._sequence = self._synced = self._chain = 0
        self._purge_to: dict[int, int] = {}
        self._purge_pending = False
        self._retired: list[Segment] = []
        self._survey_due = False
        self._to_carry: list[int] = []
        """Groups that keep the oldest segment, none of them with too much."""
        self.too_large: dict[int, int] = {}
        """Groups that keep the oldest segment of a log that should be shorter, with more live bytes than are carried:
        so many at least."""
        self.damaged: dict[int, DamagedLog] = {}
        """Replaced, never changed: others look at it from their threads."""
        self._carry_bytes = 0
        """Size in bytes of what the next group needs carried, as far as it is known."""
        self._credit = segment_bytes
        """Bytes that may be carried: no more than are written for others."""
        self._failed: str | None = None
        self._is_open = False

    # --- opening and closing ---------------------------------------------------------------------------------

    def open(self) -> dict[int, Recovered]:
        """Recover. Also raises ``DiskFull`` if there is no room for a first segment."""
        if self._is_open:
            raise UsageError("this storage is open already")
        self._files.lock()
        try:
            return self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> dict[int, Recovered]:
        self.identity = check_identity(self._files, self._cluster, self._node_id)
        self._owner, self._life = self.identity.owner, self._rng.getrandbits(32)
        for directory in (LOG_DIR, "snapshots"):
            self._files.make_dir(directory)
        self._files.sync_dir("")
        self._files.sync_dir(LOG_DIR)  # a killed process may have left names in the cache only
        found = recover(self._files, self._owner)
        self.snapshots.load()
        self._spares.load()
        if found is None:
            self._begin_empty()
        else:
            for path in found.discarded:
                self._spares.give(path, self._size_of(path))
            self._catalog = found.catalog
            self._continue()
            self._sequence = self._synced = found.cursor.sequence
            self._chain = found.cursor.chain
        self._is_open = self._survey_due = True
        self._stand_on_snapshots()
        self._remember(found.cursor.sequence if found is not None else 0)
        return {number: self.recovered(number) for number in sorted(self._catalog.groups)}

    def _begin_empty(self) -> None:
        """A directory that was never opened to the end before: its first segment."""
        if self.snapshots.groups():
            raise DamagedLog(LOG_DIR, 0, "there are snapshots but no log; term and vote are lost")
        if self._opened_before:
            raise DamagedLog(LOG_DIR, 0, "the log is gone, and term and votes with it. If it is on a disk of its own, "
                             "mount that; if it is lost, let the node join anew with an empty directory")
        for sequence in segment_sequences(self._files):
            path = segment_path(sequence)
            self._spares.give(path, self._size_of(path))
        self._spares.require(1)
        self._guard(self._roll)
        self._is_open = True
        self.sync()

    def _continue(self) -> None:
        """Go on in the newest segment. What was read may still be in the system's cache only: sync it first."""
        segment = self._catalog.segments[-1]
        if segment.size < SEGMENT_BYTES_MIN:
            raise DamagedLog(segment.path, segment.size,
                             f"the file was cut short here: a segment has {SEGMENT_BYTES_MIN} bytes or more")
        file = self._files.open(segment.path)
        file.sync()
        self._activate(segment, file)

    def _activate(self, segment: Segment, file: File) -> None:
        """Make this the newest segment. Its end has room for the footer, and for local records while the disk is
        full."""
        self._active, self._file = segment, file
        self._data_limit, self._local_limit = _limits(segment.size)

    def _size_of(self, path: str) -> int:
        file = self._files.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _stand_on_snapshots(self) -> None:
        """A snapshot that became visible just before a crash is installed now; one behind a gap is refused."""
        for number in self.snapshots.groups():
            newest = self.snapshots.newest(number)
            if newest is not None and not self._catalog.holds(number, newest.index, newest.term):
                self.write([Write(0, number, install=newest)])
                self.sync()
        for number, group in self._catalog.groups.items():
            newest = self.snapshots.newest(number)
            if group.purged.index > (newest.index if newest is not None else 0):
                have = f"the newest good snapshot ends at {newest.index}" if newest is not None else "no good snapshot"
                raise DamagedLog(self._catalog.segments[0].path, 0,
                                 f"the log of group {number} begins behind entry {group.purged.index}, but {have}"
                                 f"{self.snapshots.broken_words(number)}")

    def _remember(self, sequence: int) -> None:
        """Compare what was found, up to write ``sequence``, with what was marked as synced."""
        self._mark = mark = Mark(self._files, self._owner)
        self._guard(mark.load)
        newest = {number: meta.index for number in self.snapshots.groups()
                  if (meta := self.snapshots.newest(number)) is not None}
        for number, hard_state in self._guard(mark.judge, self._catalog, sequence, newest).items():
            self.write([Write(0, number, hard_state=hard_state)])
            self.sync()

    def recovered(self, group: int) -> Recovered:
        state = self._catalog.groups.get(group)
        if state is None:
            return Recovered()
        memberships = [
            self.read(group, index, 1)[0]
            for segment in self._catalog.segments if group in segment.spans
            for index, _ in segment.spans[group].memberships
        ]
        return Recovered(state.hard_state, *state.purged, *state.last, self._catalog.term_runs(group), memberships,
                         self.snapshots.newest(group), self._mark.lapse(group), self._mark.told(group))

    def close(self) -> None:
        """Leaves word that everything is synced, so that the next opening can tell rot in the very last block."""
        if self._file is not None:
            if self._failed is None and self._is_open and self._sequence == self._synced:
                try:
                    self._write_block(_Unit())
                except (OSError, StorageError):
                    self._failed = "failed while closing"
            self._file.close()
        self._file = None
        self._is_open = False
        self._reader.close()
        self._mark.close()
        self._spares.close()
        self.snapshots.close()
        self._files.unlock()

    # --- writing ---------------------------------------------------------------------------------------------

    def write(self, writes: Sequence[Write]) -> None:
        """A write whose records exceed a segment may be split between frames; all others are atomic."""
        self._usable()
        tails: dict[int, _Tail] = {}
        units: list[_Unit] = []
        writes = [write for write in writes if self._takes(write, tails, units)]
        active, place = self._active, _Unit()
        assert active is not None
        rolls = self._rolls(units)
        if rolls:
            self._guard(lambda: self._spares.require(rolls))
        for unit in units:
            if unit.upkeep and place.buffers:
                self._guard(self._write_block, place)
                place = _Unit()
            limit = self._data_limit if unit.frames else self._local_limit
            if self._active_end() + BLOCK_BYTES + place.size + unit.size > limit:
                if place.buffers:
                    self._guard(self._write_block, place)
                    place = _Unit()
                self._guard(self._roll)
            if unit.upkeep:
                self._guard(self._write_block, unit)
            elif place.buffers or len(units) > 1:
                place.add(unit)
            else:
                place = unit
        if place.buffers:
            self._guard(self._write_block, place)
        self._credit = min(self._credit + sum(unit.size for unit in units), active.size)
        if self._to_carry:
            self._carry()
        for write in writes:
            self._mark.touched.add(write.group)
            if write.lapse is not None:
                self._mark.keep_lapse(write.group, write.lapse)
            self._purge_pending = self._purge_pending or write.forget
            if write.purge_to > self._purge_to.get(write.group, 0):
                self._purge_to[write.group] = write.purge_to
                self._purge_pending = True

    @property
    def log_bytes(self) -> int:
        """Size of all segments, as far as they are written."""
        with self._map_lock:
            return sum(segment.end for segment in self._catalog.segments)

    def only_appends(self, size: int) -> bool:
        """Return whether a frame of ``size`` bytes can be written now without beginning or dropping a segment.
        Cheap."""
        return self._active_end() + BLOCK_BYTES + size <= self._data_limit and not (
            self._purge_pending or self._to_carry)

    def _active_end(self) -> int:
        assert self._active is not None
        return self._active.end

    def _takes(self, write: Write, tails: dict[int, _Tail], units: list[_Unit]) -> bool:
        """Lay out one write; False: its group's entries are damaged, and it is left out, as is all that follows it."""
        number = write.group
        if write.forget:
            with self._map_lock:
                self.damaged = {other: error for other, error in self.damaged.items() if other != number}
        if number in self.damaged:
            return False
        try:
            self._lay_out(write, tails, units)
        except DamagedLog as error:
            self._found(number, error)
            return False
        except StorageError as error:
            if lacks_descriptor(error):
                raise DiskFull(str(error)) from error
            raise
        return True

    def _found(self, number: int, error: DamagedLog) -> None:
        """A group's entries are damaged. Nothing of it is written or let go any more."""
        with self._map_lock:
            self.damaged = {**self.damaged, number: error}

    def _lay_out(self, write: Write, tails: dict[int, _Tail], units: list[_Unit]) -> None:
        """Check one write against the log and turn it into records."""
        number = write.group
        unit = _Unit()
        tail = tails.get(number)
        if tail is None:
            tail = tails[number] = _Tail(self._catalog.group(number).last)
        if write.forget:
            tail.base, tail.reset, tail.frames = ORIGIN, True, []
            gone = _Unit(upkeep=True)
            gone.local(LocalKind.TRUNCATE, number, ORIGIN)
            units.append(gone)
        if write.install is not None:
            self._lay_out_install(write.install, number, tail, unit)
        if write.truncate_from:
            unit.local(LocalKind.TRUNCATE, number, self._cut(number, tail, write.truncate_from - 1))
        if write.hard_state is not None:
            unit.local(LocalKind.HARD_STATE, number, write.hard_state)
        end = tail.last
        due, chain = end.index + 1, end.mark
        for frame in write.frames:
            if frame.first != due or (0 not in (chain, frame.chain) and frame.chain != chain) or frame.group != number:
                raise UsageError(f"{frame!r} of group {frame.group} does not continue group {number} behind {due - 1}")
            due, chain = due + frame.count, frame.mark
            unit.frame(frame)
        if write.frames:
            unit.frames = True
            tail.frames += write.frames
        if unit.buffers:
            units += [unit] if unit.size <= self._capacity() else self._split(unit)

    def _lay_out_install(self, meta: SnapshotMeta, number: int, tail: _Tail, unit: _Unit) -> None:
        newest = self.snapshots.newest(number)
        if newest is None or newest.index < meta.index:
            raise UsageError(f"snapshot {meta.index} of group {number} is not on disk")
        for frame in tail.frames:
            if frame.first <= meta.index <= frame.last:
                if frame.term == meta.term:
                    return
                break
        else:
            if meta.index == tail.base.index and meta.term == tail.base.term:
                return
            if meta.index < tail.base.index and not tail.reset and self._catalog.holds(number, meta.index, meta.term):
                return
        boundary = Position(meta.index, meta.term, meta.mark)
        tail.base, tail.reset = boundary, True
        tail.frames = []
        unit.local(LocalKind.INSTALL, number, boundary)

    def _cut(self, number: int, tail: _Tail, index: int) -> Position:
        """Shorten ``tail`` to end at ``index``."""
        if index > tail.last.index:
            raise UsageError(f"cannot truncate group {number} behind entry {index}: it ends at {tail.last.index}")
        while tail.frames and tail.frames[-1].first > index:
            tail.frames.pop()
        if not tail.frames and index < tail.base.index:
            purged = self._catalog.group(number).purged
            if tail.reset or index < purged.index:
                raise UsageError(f"cannot truncate group {number} behind entry {index}: that is purged")
            if index == purged.index:
                tail.base = purged
            else:
                frame = self.read(number, index, 1)[0]
                tail.base = Position(frame.last, frame.term, frame.mark)
        if tail.last.index != index:
            raise UsageError(f"cannot truncate group {number} behind entry {index}: no frame ends there")
        return tail.last

    def _capacity(self) -> int:
        """Bytes of records that surely fit into a fresh segment, in one block. The newest may have another size."""
        return self._fresh_limits[0] - 2 * BLOCK_BYTES - self._states_bytes()

    def _states_bytes(self) -> int:
        return sum(128 + 4 * len(group.hard_state.voted_for or "") for group in self._catalog.groups.values())

    def _split(self, unit: _Unit) -> list[_Unit]:
        units = [_Unit(buffers=[data], marks=[mark], facts=[fact], size=len(data), frames=True)
                 for data, mark, fact in zip(unit.buffers, unit.marks, unit.facts, strict=True)]
        largest = max(each.size for each in units)
        if largest > self._capacity():
            raise UsageError(f"a frame of {largest} bytes does not fit into a segment with room for {self._capacity()}")
        return units

    def _rolls(self, units: Sequence[_Unit]) -> int:
        """Return how many fresh segments these units will need."""
        end, rolls, limits = self._active_end() + BLOCK_BYTES, 0, (self._data_limit, self._local_limit)
        for unit in units:
            if end + unit.size > limits[0 if unit.frames else 1]:
                rolls, limits = rolls + 1, self._fresh_limits
                end = 2 * BLOCK_BYTES + self._states_bytes()
            end += unit.size
        return rolls

    def _write_block(self, unit: _Unit, *, first: bool = False) -> None:
        segment, file = self._active, self._file
        assert segment is not None and file is not None
        offset = segment.end
        header, crc = encode_block(
            first=first, owner=self._owner, segment=segment.sequence, sequence=self._sequence + 1, synced=self._synced,
            life=self._life, length=unit.size, marks=unit.marks, chain=self._chain, upkeep=unit.upkeep)
        file.pwrite([header, *unit.buffers], offset)
        self._sequence += 1
        self._chain = crc
        catalog, at = self._catalog, offset + BLOCK_BYTES
        with self._map_lock:
            for data, fact in zip(unit.buffers, unit.facts, strict=False):  # a first block's states are no facts
                if isinstance(fact, Frame):
                    last = fact.first + fact.count - 1
                    catalog.frame(fact.group, fact.first, last, fact.term, fact.kind, fact.mark, at)
                else:
                    self._apply_local(*fact)
                at += len(data)
            segment.end = offset + BLOCK_BYTES + unit.size

    def _apply_local(self, kind: LocalKind, number: int, value: HardState | Position) -> None:
        if isinstance(value, HardState):
            self._catalog.group(number).hard_state = value
        elif kind is LocalKind.TRUNCATE:
            self._catalog.truncate(number, value)
        else:
            self._catalog.install(number, value)
            self._purge_pending = True

    def _roll(self) -> None:
        """Seal the newest segment, everything in it synced, and begin the next one."""
        if self._active is not None:
            self._seal(self._active)
        sequence = self._active.sequence + 1 if self._active is not None else 1
        path = segment_path(sequence)
        file = self._spares.take(path)
        if self._file is not None:
            self._file.close()
        states = {number: GroupState(group.hard_state, group.last) for number, group in self._catalog.groups.items()}
        segment = Segment(sequence, path, file.size(), self._sequence + 1, states)
        with self._map_lock:
            self._catalog.begin(segment)
        self._activate(segment, file)
        unit = _Unit()
        for number, state in sorted(states.items()):
            data, mark = encode_local(LocalKind.STATE, number, encode_state(state))
            unit.buffers.append(data)
            unit.marks.append(mark)
            unit.size += len(data)
        self._write_block(unit, first=True)
        self._purge_pending = bool(self._purge_to) or self._purge_pending
        self._survey_due = True

    def _seal(self, segment: Segment) -> None:
        file = self._file
        assert file is not None
        footer = encode_footer(segment, self._sequence, self._chain)
        offset = segment.size - TRAILER_BYTES - len(footer)
        if offset >= segment.end:  # if the footer has no room, the next opening scans this segment
            file.pwrite([footer, encode_trailer(self._owner, segment.sequence, offset, footer)], offset)
        file.sync()
        self._synced = self._sequence

    def sync(self) -> None:
        self._usable()
        if self._synced != self._sequence:
            assert self._file is not None
            self._guard(self._file.sync)
            self._synced = self._sequence
        if self._mark.touched:
            self._guard(self._mark.keep, self._catalog, self._synced)
        if self._purge_pending:
            self._guard(self._retire)
        if self._survey_due and not self._background:
            self._survey()

    def _usable(self) -> None:
        if self._failed is not None:
            raise WriteFailed(self._failed)
        if not self._is_open:
            raise UsageError("this storage is not open")

    def _guard(self, step: Callable[..., T], *args: object) -> T:
        """Run a step whose failure is final: afterwards nobody knows what the disk holds."""
        try:
            return step(*args)
        except OSError as error:
            self._failed = f"{error.strerror or error} (errno {error.errno}); what the disk holds is not known any more"
            raise WriteFailed(self._failed) from error

    # --- purging and spares ----------------------------------------------------------------------------------

    def _retire(self) -> None:
        """Let go of the oldest segments. Only right behind a sync: what made them dead must be durable."""
        self._purge_pending = False
        limits = {number: self._limit(number) for number in self._purge_to}
        with self._map_lock:
            count = self._catalog.droppable(limits)
            if count:
                self._retired += self._catalog.drop(count)
        self._survey_due = True
        if not self._background:
            self._recycle()

    def _limit(self, number: int) -> int:
        """The group's entries up to here are not needed."""
        return min(self._purge_to.get(number, 0), self._snapshot_index(number))

    def _snapshot_index(self, number: int) -> int:
        newest = self.snapshots.newest(number)
        return newest.index if newest is not None else 0

    # --- what quiet groups keep ------------------------------------------------------------------------------

    def _survey(self) -> bool:
        """Find out who keeps the oldest segment of a log that should be shorter. Beside the writer: it only reads.
        False: it could not for want of a descriptor, and is due again."""
        self._survey_due = False
        catalog = self._catalog
        with self._map_lock:
            if len(catalog.segments) <= SEGMENTS_KEPT or self._to_carry:
                return True
            oldest = catalog.segments[0]
            holders = catalog.holders({number: self._limit(number) for number in tuple(self._purge_to)})
        holders = [number for number in holders if number not in self.damaged]
        large = {}
        for number in holders:
            try:
                size = self._live_bytes(number, oldest.size // CARRY_SHARE)
            except DamagedLog as error:
                self._found(number, error)
            except StorageError as error:
                if not lacks_descriptor(error):
                    raise
                self._survey_due = True
                return False
            else:
                if size > oldest.size // CARRY_SHARE:
                    large[number] = size
        self.too_large = large
        if not large:
            self._to_carry = [number for number in holders if number not in self.damaged]
        return True

    def _live_limit(self, number: int) -> int:
        """Return the index before the first entry that must be kept of a group. A quiet group needs only its snapshot,
        without a tail for slow followers."""
        with self._map_lock:
            quiet = self._catalog.is_quiet(number, SEGMENTS_KEPT)
            purged = self._catalog.groups[number].purged.index
        return max(purged, self._snapshot_index(number) if quiet else self._limit(number))

    def _live_bytes(self, number: int, most: int) -> int:
        """Return the size of the entries that must be kept of a group, in bytes. It stops counting above ``most``."""
        at, size = self._live_limit(number) + 1, 0
        while size <= most and (frames := self.read(number, at, CARRY_STEP_BYTES)):
            size += sum(len(frame.data) for frame in frames)
            at = frames[-1].last + 1
        return size

    def _carry(self) -> None:
        """Write again, behind all else, what the oldest segment is kept for, so that it may go once this is durable."""
        room = CARRY_STEP_BYTES
        while self._to_carry and room > 0 and self._has_place(self._carry_bytes):
            try:
                unit, limit = self._carried(self._to_carry[-1])
            except DamagedLog as error:
                self._found(self._to_carry.pop(), error)
                self._carry_bytes = 0
                continue
            except StorageError as error:
                if lacks_descriptor(error):
                    return  # the next write tries it again
                raise
            self._carry_bytes = unit.size
            if unit.size > self._capacity():  # it has grown since the last look
                self._to_carry, self._carry_bytes, self._survey_due = [], 0, True
                return
            if not self._has_place(unit.size):
                return
            number = self._to_carry.pop()
            if unit.buffers:
                self._guard(self._write_block, unit)
            self._purge_to[number] = max(limit, self._purge_to.get(number, 0))
            self._credit -= unit.size
            self._carry_bytes = 0
            room -= unit.size
        self._purge_pending = self._purge_pending or not self._to_carry

    def _has_place(self, size: int) -> bool:
        """Return whether ``size`` bytes may be carried into the newest segment now."""
        return size <= self._credit and self._active_end() + BLOCK_BYTES + size <= self._data_limit

    def _carried(self, number: int) -> tuple[_Unit, int]:
        """A block that says what is left of a group's log, all of it, and the entry behind which that begins.

        In one block, which comes back whole or not at all: half of it would be the loss of the other half.
        """
        limit, unit = self._live_limit(number), _Unit(upkeep=True)
        end, at, chain = self._catalog.group(number).last, limit + 1, 0
        while frames := self.read(number, at, CARRY_STEP_BYTES):
            if not unit.facts:
                limit, chain = frames[0].first - 1, frames[0].chain
                with self._map_lock:
                    base = self._catalog.position_at(number, limit, chain)
                unit.local(LocalKind.TRUNCATE, number, base)
            for frame in frames:
                if frame.chain != chain and 0 not in (frame.chain, chain):
                    raise self._foreign(number, frame.first)
                unit.frame(frame)
                at, chain = frame.last + 1, frame.mark
        if limit < end.index and (at - 1, chain) != (end.index, end.mark):
            raise self._foreign(number, end.index)
        return unit, limit

    def _foreign(self, number: int, index: int) -> DamagedLog:
        """Return the error for entries that are whole and belong elsewhere: a misdirected write brought them here."""
        return DamagedLog(self._catalog.segments[0].path, 0, f"entry {index} of group {number} is not what was written")

    def _recycle(self) -> None:
        with self._reader.lock:  # the writer's helper and nodes that ask for room may call this at the same time
            while self._retired:
                segment = self._retired[0]
                with self._reader.without(segment):
                    self._spares.give(segment.path, segment.size)
                self._retired.pop(0)

    @property
    def needs_maintenance(self) -> bool:
        """Return whether ``maintain`` has something to do. Cheap."""
        return bool(self._retired) or self._survey_due or not self._spares.ready()

    def maintain(self) -> bool:
        """Recycle purged segments, see who keeps the oldest one, and have a spare ready. From any thread; False if the
        disk is too full for that."""
        self._guard(self._recycle)
        looked = not self._survey_due or self._survey()
        try:
            self._spares.require(1)
        except (OSError, DiskFull):
            return False  # a missing spare does no harm yet
        return looked

    def has_room(self) -> bool:
        """Try after ``DiskFull`` whether frames can be written again, and return that."""
        return self.maintain()

    def scrub(self, *, step_bytes: int = 1 << 20) -> Iterator[str]:
        """Check every byte of the sealed segments, oldest first, ``step_bytes`` between yields of the path at hand.

        Raises ``DamagedLog``. A segment that is recycled meanwhile is left out.
        """
        with self._map_lock:
            segments = self._catalog.segments
            # The newest proves where the one before it ends, once its own first block is written.
            sealed = segments[: -1 if segments and segments[-1].end else -2]
        for segment in sealed:
            steps = scrub(self._files, self._owner, segment.sequence, step_bytes=step_bytes)
            while True:
                try:
                    if next(steps, None) is None:
                        break
                except (DamagedLog, OSError) as error:
                    with self._map_lock:
                        if segment not in self._catalog.segments:
                            break
                    if not isinstance(error, OSError) or error.errno not in NO_DESCRIPTOR:
                        raise
                    steps = scrub(self._files, self._owner, segment.sequence, step_bytes=step_bytes)  # another time
                yield segment.path

    # --- reading and snapshots -------------------------------------------------------------------------------

    def read(self, group: int, first: int, max_bytes: int) -> list[Frame]:
        """Raises ``DamagedLog`` if what it reads fails its checks."""
        with self._reader.lock:
            with self._map_lock:
                found = self._catalog.locate(group, first, max_bytes)
            if found is None:
                return []
            return self._reader.read(found[0], found[1], group, first, max_bytes)

    def create_snapshot(self, group: int, meta: SnapshotMeta) -> SnapshotSink:
        return self.snapshots.create(group, meta)

    def receive_snapshot(self, group: int, meta: SnapshotMeta) -> SnapshotSink:
        return self.snapshots.receive(group, meta)

    def newest_snapshot(self, group: int) -> SnapshotMeta | None:
        return self.snapshots.newest(group)

    def drop_snapshots(self, group: int) -> None:
        self.snapshots.drop(group)

    def read_snapshot(self, group: int, index: int, offset: int, max_bytes: int) -> bytes | None:
        return self.snapshots.read(group, index, offset, max_bytes)
