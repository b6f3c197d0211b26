"""A storage in memory that forgets at a crash what was not synced: the segment log's twin for simulator and tests.

Knows writes, frames and the promises of ``interface``; knows nothing of files, threads or the replica. Cheap on
purpose: a write appends to a list and remembers how to undo itself, a sync forgets the undo.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

import attrs
from google_crc32c import extend as crc32c_extend

from raft.errors import DamagedLog, UsageError
from raft.frame import Frame, Kind
from raft.messages import HardState, Lapse, Recovered, SnapshotMeta, Write
from raft.storage.interface import Storage

SNAPSHOTS_KEPT = 2


@attrs.define(eq=False)
class _Log:
    """One group: its frames behind (purged_index, purged_term, purged_mark)."""

    group: int
    hard_state: HardState = attrs.field(factory=HardState)
    purged: tuple[int, int, int] = (0, 0, 0)
    frames: list[Frame] = attrs.Factory(list)
    firsts: list[int] = attrs.Factory(list)
    purge_to: int = 0
    lapse: Lapse | None = None
    told: tuple[int, ...] = ()

    @property
    def end(self) -> tuple[int, int, int]:
        """(index, term, mark) of the last entry, or of the last purged one."""
        if self.frames:
            frame = self.frames[-1]
            return frame.first + frame.count - 1, frame.term, frame.mark
        return self.purged

    def holds(self, index: int, term: int) -> bool:
        """Return whether the log holds entry ``index`` with this term. Purged entries count, the last one only with its
        term."""
        if index <= self.purged[0]:
            return index < self.purged[0] or term == self.purged[1]
        at = bisect_right(self.firsts, index) - 1
        return at >= 0 and index <= self.frames[at].last and self.frames[at].term == term

    def install(self, meta: SnapshotMeta) -> None:
        if not self.holds(meta.index, meta.term):
            self.frames, self.firsts, self.purged = [], [], (meta.index, meta.term, meta.mark)
        assert self.holds(meta.index, meta.term), "the log stands on the snapshot"

    def truncate(self, index: int) -> None:
        at = bisect_right(self.firsts, index - 1)
        if index <= self.purged[0] or (at < len(self.firsts) and self.firsts[at] != index) or index > self.end[0] + 1:
            raise UsageError(f"cannot truncate from {index}: not the first entry of a frame in this log")
        del self.frames[at:], self.firsts[at:]
        assert self.end[0] == index - 1, "the log ends right before"

    def purge(self, index: int) -> None:
        """Drop whole frames up to ``index``."""
        count = bisect_right(self.firsts, index)
        if count and self.frames[count - 1].last > index:
            count -= 1
        if count:
            last = self.frames[count - 1]
            self.purged = last.last, last.term, last.mark
            del self.frames[:count], self.firsts[:count]
        assert not self.firsts or self.firsts[0] == self.purged[0] + 1, "what is left follows what went"


_Undo = tuple[_Log, int, HardState, tuple[list[Frame], list[int], tuple[int, int, int]] | None]


class MemoryStorage(Storage):
    """Snapshots are durable when finished; staged ones are lost in a crash."""

    def __init__(self) -> None:
        self._logs: dict[int, _Log] = {}
        self._undo: list[_Undo] = []
        self._lapses: list[tuple[_Log, Lapse]] = []
        """Lapses to be kept with the next sync, behind it as a mark is."""
        self._synced: list[_Undo] = []
        """Undo records of the last synced group commit: a rotten end of the log would lose that."""
        self._snapshots: dict[int, list[tuple[SnapshotMeta, bytes]]] = {}
        self._staged: dict[int, _MemorySink] = {}

    def open(self) -> dict[int, Recovered]:
        out = {}
        for group in sorted({*self._logs, *self._snapshots}):
            log = self._logs.setdefault(group, _Log(group))
            newest = self.newest_snapshot(group)
            if newest is not None:
                log.install(newest)
            elif log.purged[0]:
                raise DamagedLog("memory", 0,
                                 f"the log of group {group} begins behind entry {log.purged[0]}, but no snapshot")
            out[group] = self.recovered(group)
        return out

    def recovered(self, group: int) -> Recovered:
        log = self._logs.get(group)
        if log is None:
            return Recovered()
        runs: list[tuple[int, int]] = []
        for frame in log.frames:
            if not runs or runs[-1][1] != frame.term:
                runs.append((frame.first, frame.term))
        memberships = [frame for frame in log.frames if frame.kind == Kind.MEMBERSHIP]
        return Recovered(log.hard_state, *log.purged, *log.end, runs, memberships, self.newest_snapshot(group),
                         log.lapse, log.told)

    def write(self, writes: Sequence[Write]) -> None:
        logs, undo = self._logs, self._undo
        for write in writes:
            log = logs.get(write.group)
            if log is None:
                log = logs[write.group] = _Log(write.group)
            held = log.frames
            if write.install is None and not write.truncate_from and not write.forget:
                undo.append((log, len(held), log.hard_state, None))
            else:
                undo.append((log, len(held), log.hard_state, (held[:], log.firsts[:], log.purged)))
                if write.forget:
                    log.frames, log.firsts, log.purged = [], [], (0, 0, 0)
                if write.install is not None:
                    log.install(write.install)
                if write.truncate_from:
                    log.truncate(write.truncate_from)
                held = log.frames
            if write.hard_state is not None:
                log.hard_state = write.hard_state
            if write.frames:
                last = held[-1] if held else None
                due, chain = (last.first + last.count, last.mark) if last is not None else (
                    log.purged[0] + 1, log.purged[2])
                for frame in write.frames:
                    if frame.first != due or (frame.chain != chain and frame.chain and chain):
                        raise UsageError(f"{frame!r} does not continue group {write.group} behind {due - 1}")
                    due += frame.count
                    chain = frame.mark
                    held.append(frame)
                    log.firsts.append(frame.first)
                assert len(log.frames) == len(log.firsts)
            if write.lapse is not None:
                self._lapses.append((log, write.lapse))
            if write.purge_to > log.purge_to:
                log.purge_to = write.purge_to

    def sync(self) -> None:
        undo = self._undo
        if undo:
            for entry in undo:
                if entry[0].purge_to:
                    self._purge(entry[0])
            self._synced, self._undo = undo, []
        for log, lapse in self._lapses:
            log.lapse, log.told = lapse if lapse.index else None, lapse.told
        self._lapses.clear()

    def _purge(self, log: _Log) -> None:
        newest = self.newest_snapshot(log.group)
        log.purge(min(log.purge_to, newest.index if newest is not None else 0))
        log.purge_to = 0

    def crash(self, survivors: Callable[[int], int] | None = None) -> None:
        """Lose staged snapshots and the un-synced writes but the first ``survivors(n)`` of n. Call ``open`` next."""
        undo = self._undo
        keep = survivors(len(undo)) if survivors is not None and undo else 0
        assert 0 <= keep <= len(undo)
        for log, count, hard_state, saved in reversed(undo[keep:]):
            if saved is not None:
                log.frames, log.firsts, log.purged = saved
            else:
                del log.frames[count:], log.firsts[count:]
            log.hard_state = hard_state
        for log in self._logs.values():
            log.purge_to = 0
        if keep:
            self._synced = []  # it is not the last block any more
        undo.clear()
        self._lapses.clear()
        self._staged.clear()

    def may_rot(self, group: int, *, known: bool) -> bool:
        """Return whether the last synced block may be lost to rot: it holds entries of this group, and (unless the end
        is ``known``, by a mark) no term and no vote."""
        log, lost = self._logs.get(group), self._synced
        if log is None or not lost or any(entry[0] is not log or entry[3] is not None for entry in lost):
            return False
        return lost[0][1] < len(log.frames) and (known or lost[0][2] == log.hard_state)

    def rot(self, group: int, *, known: bool) -> bool:
        """Let the last synced block rot, after a crash. ``known``: it was marked, so the loss is noticed.

        Returns False if it may not rot (``may_rot``).
        """
        if not self.may_rot(group, known=known):
            return False
        log, count = self._logs[group], self._synced[0][1]
        end, self._synced = log.end, []
        del log.frames[count:], log.firsts[count:]
        assert log.end[0] < end[0], "rot takes entries"
        if known:
            log.lapse = log.lapse or Lapse(end[0], end[1], log.told)
        return True

    def copy(self) -> MemoryStorage:
        """Return another storage with what was synced. Frames and snapshots are shared, since nobody changes them."""
        assert not self._undo and not self._staged, "copied after a crash"
        other = MemoryStorage()
        for number, log in self._logs.items():
            twin = other._logs[number] = _Log(number, log.hard_state, log.purged, log.frames[:], log.firsts[:])
            twin.lapse, twin.told = log.lapse, log.told
        other._snapshots = {number: held[:] for number, held in self._snapshots.items()}
        return other

    @property
    def unsynced(self) -> int:
        """Writes that a crash would lose."""
        return len(self._undo)

    def read(self, group: int, first: int, max_bytes: int) -> list[Frame]:
        log = self._logs.get(group)
        if log is None:
            return []
        frames = log.frames
        at = bisect_right(log.firsts, first) - 1
        if at < 0 or frames[at].last < first:
            return []
        assert frames[at].first <= first <= frames[at].last
        out = [frames[at]]
        room = max_bytes - len(frames[at].data)
        for frame in frames[at + 1 : at + 4097]:
            room -= len(frame.data)
            if room < 0:
                break
            out.append(frame)
        return out

    def create_snapshot(self, group: int, meta: SnapshotMeta) -> _MemorySink:
        return _MemorySink(self, group, meta, received=False)

    def receive_snapshot(self, group: int, meta: SnapshotMeta) -> _MemorySink:
        staged = self._staged.get(group)
        if staged is None or staged.meta != meta:
            staged = self._staged[group] = _MemorySink(self, group, meta, received=True)
        return staged

    def newest_snapshot(self, group: int) -> SnapshotMeta | None:
        held = self._snapshots.get(group)
        return held[-1][0] if held else None

    def read_snapshot(self, group: int, index: int, offset: int, max_bytes: int) -> bytes | None:
        for meta, data in self._snapshots.get(group, ()):
            if meta.index == index:
                return data[offset : offset + max_bytes]
        return None

    def drop_snapshots(self, group: int) -> None:
        self._snapshots.pop(group, None)
        self._staged.pop(group, None)

    def close(self) -> None:
        """Nothing to release; what was written stays for the next ``open``."""

    def _finished(self, sink: _MemorySink, meta: SnapshotMeta, data: bytes) -> None:
        assert (meta.index, meta.size) == (sink.meta.index, len(data)), "it is the snapshot that was begun"
        self._dropped(sink)
        held = self._snapshots.setdefault(sink.group, [])
        held[:] = [each for each in held if each[0].index != meta.index]
        held.append((meta, data))
        held.sort(key=lambda each: each[0].index)
        del held[:-SNAPSHOTS_KEPT]

    def _dropped(self, sink: _MemorySink) -> None:
        if self._staged.get(sink.group) is sink:
            del self._staged[sink.group]


class _MemorySink:
    """Implements ``SnapshotSink``: bytes that are staged in memory."""

    def __init__(self, storage: MemoryStorage, group: int, meta: SnapshotMeta, *, received: bool) -> None:
        self.group, self.meta, self.offset = group, meta, 0
        self._storage, self._received, self._parts, self._crc = storage, received, list[bytes](), 0

    def write(self, data: bytes) -> None:
        self._parts.append(bytes(data))
        self._crc = crc32c_extend(self._crc, self._parts[-1])
        self.offset += len(data)

    def finish(self) -> SnapshotMeta:
        meta = attrs.evolve(self.meta, size=self.offset, crc=self._crc)
        if self._received and meta != self.meta:
            self.abort()
            raise DamagedLog("memory", self.offset,
                             f"snapshot {meta.index} of group {self.group} is not what its meta says")
        self._storage._finished(self, meta, b"".join(self._parts))
        return meta

    def abort(self) -> None:
        self._storage._dropped(self)
