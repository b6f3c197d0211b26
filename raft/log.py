"""The log as the core sees it: pointers, runs of terms, membership history and a window of recent frames.

    purged <= snapshot <= applied <= committed <= last      durable <= last

No object per entry: terms are runs, frames older than the window live in storage only. A frame is atomic here:
appended, truncated and purged whole. This module does no I/O and knows no roles.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final

from raft.frame import Frame, Kind
from raft.membership import Membership
from raft.messages import Recovered, SnapshotMeta

MEMBERSHIP: Final = Kind.MEMBERSHIP
BOUNDARY_ENTRIES = 512
"""Entries between remembered ends of frames, at which the log may be purged."""
BOUNDARY_BYTES = 1 << 20
"""Bytes between remembered ends of frames."""
BOUNDARIES_MAX = 100_000


class RaftLog:
    """Single source of truth about the log's ends, terms and memberships (dledger F5)."""

    def __init__(self, recovered: Recovered, bootstrap: Membership, cache_bytes_max: int) -> None:
        self.snapshot: SnapshotMeta | None = recovered.snapshot
        self.purged_index, self.purged_term = recovered.purged_index, recovered.purged_term
        self.last_index, self.last_term, self.last_mark = (
            recovered.last_index, recovered.last_term, recovered.last_mark)
        self.durable_index = self.last_index
        self._run_starts = [first for first, _ in recovered.term_runs]
        self._run_terms = [term for _, term in recovered.term_runs]
        assert self.purged_index <= self.last_index, (self.purged_index, self.last_index)
        assert not self._run_terms or self._run_terms[-1] == self.last_term, (self._run_terms[-1], self.last_term)
        base = (self.snapshot.membership_index, self.snapshot.membership) if self.snapshot else (0, bootstrap)
        self.memberships: list[tuple[int, Membership]] = [base]
        for frame in recovered.memberships:
            if frame.first > base[0]:
                self.memberships.append((frame.first, Membership.decode(frame.payloads()[0])))
        self._cache_bytes_max = cache_bytes_max
        self._cache: list[Frame] = []
        self._cache_firsts: list[int] = []
        self._cache_bytes = 0
        self._boundaries: deque[int] = deque(
            sorted({self.purged_index, self.last_index, self.snapshot.index if self.snapshot else 0}))
        self._sizes: deque[int] = deque([0] * len(self._boundaries))
        """Bytes appended in this life, up to each boundary."""
        self._appended = self._appended_at = 0
        """Bytes appended in this life, up to the end of the log and up to the newest boundary."""

    # --- looking

    @property
    def membership(self) -> Membership:
        """The latest membership in the log, committed or not: it takes effect when it is appended."""
        return self.memberships[-1][1]

    @property
    def membership_index(self) -> int:
        return self.memberships[-1][0]

    def membership_at(self, index: int) -> tuple[int, Membership]:
        """Return the index of the entry that set the membership in effect at ``index``, and that membership."""
        for entry in reversed(self.memberships):
            if entry[0] <= index:
                return entry
        return self.memberships[0]

    def term_at(self, index: int) -> int:
        """Return the term of an entry between ``purged_index`` and ``last_index``; 0 outside, and for index 0."""
        if index > self.last_index or index < self.purged_index:
            return 0
        if index == self.purged_index:
            return self.purged_term
        return self._run_terms[bisect_right(self._run_starts, index) - 1]

    def last_with_term_up_to(self, index: int, term: int) -> tuple[int, int]:
        """Return the largest index <= ``index`` whose term is <= ``term``, with that term. One step skips a whole run.

        Below the purged boundary the answer is the boundary itself.
        """
        index = min(index, self.last_index)
        run = bisect_right(self._run_starts, index) - 1
        while index > self.purged_index and self._run_terms[run] > term:
            index = self._run_starts[run] - 1
            run -= 1
        if index <= self.purged_index:
            return self.purged_index, self.purged_term
        assert self._run_starts[run] <= index, "the run holds the entry"
        return index, self._run_terms[run]

    def cached(self, first: int, max_bytes: int) -> list[Frame] | None:
        """Return frames from the one that holds ``first``, as many as fit (at least one); None if storage must be
        read."""
        firsts = self._cache_firsts
        if not firsts or first < firsts[0] or first > self.last_index:
            return None
        if first >= firsts[-1]:
            return [self._cache[-1]]
        at = bisect_right(firsts, first) - 1
        out: list[Frame] = []
        assert firsts[at] <= first < firsts[at + 1], "the newest frame was looked at before"
        for position in range(at, len(firsts)):
            frame = self._cache[position]
            max_bytes -= len(frame.data)
            if out and max_bytes < 0:
                break
            out.append(frame)
        return out

    def purge_point(self, index: int) -> int:
        """Return the largest known frame end <= ``index``, never below ``purged_index``."""
        best = self.purged_index
        for boundary in self._boundaries:
            if boundary > index:
                break
            best = max(best, boundary)
        assert best <= self.last_index, "boundaries go with what is truncated"
        return best

    @property
    def kept_bytes(self) -> int:
        """Return the bytes that were appended in this life and not purged."""
        kept = self._appended - (self._sizes[0] if self._sizes else 0)
        assert kept >= 0, (self._appended, kept)
        return kept

    def tail_start(self, index: int, tail_bytes: int) -> int:
        """Return the first known frame end with no more than ``tail_bytes`` between it and entry ``index``; 0 if the
        whole log is no longer than that."""
        sizes = [size for boundary, size in zip(self._boundaries, self._sizes, strict=True) if boundary <= index]
        if not sizes or sizes[-1] <= tail_bytes:
            return 0
        return self._boundaries[bisect_left(sizes, sizes[-1] - tail_bytes)]

    # --- changing

    def note_end(self, index: int) -> None:
        """Note that a frame ends at ``index``: the log may be purged up to it."""
        assert index <= self.last_index, (index, self.last_index)
        at = bisect_right(self._boundaries, index)
        if not at or self._boundaries[at - 1] == index:
            return
        size, firsts = self._sizes[at - 1], self._cache_firsts
        if firsts and firsts[0] <= index + 1:
            size = self._appended - sum(len(frame.data) for frame in self._cache[bisect_right(firsts, index):])
            if at < len(self._sizes):  # entries truncated since count as appended, but after those that stay
                size = min(size, self._sizes[at])
        assert size >= self._sizes[at - 1], "sizes rise with the boundaries"
        self._boundaries.insert(at, index)
        self._sizes.insert(at, size)

    def append(self, frame: Frame) -> None:
        """Append the next frame. It must follow the last entry and not lower the term.

        Raises ``MalformedMessage`` if its membership does not decode; nothing is appended then.
        """
        membership = Membership.decode(frame.payloads()[0]) if frame.kind == MEMBERSHIP else None
        first, term = frame.first, frame.term
        assert first == self.last_index + 1, (frame, self.last_index)
        assert term >= self.last_term, (frame, self.last_term)
        if term != self.last_term or not self._run_starts:
            self._run_starts.append(first)
            self._run_terms.append(term)
            self.last_term = term
        self.last_index = last = first + frame.count - 1
        self.last_mark = frame.mark
        self._cache.append(frame)
        self._cache_firsts.append(first)
        size = len(frame.data)
        self._cache_bytes += size
        self._appended = appended = self._appended + size
        if self._cache_bytes > self._cache_bytes_max:
            self._evict()
        if (not self._boundaries or last - self._boundaries[-1] >= BOUNDARY_ENTRIES
                or appended - self._appended_at >= BOUNDARY_BYTES):
            self._note_boundary(last)
        if membership is not None:
            self.memberships.append((first, membership))

    def _note_boundary(self, last: int) -> None:
        self._boundaries.append(last)
        self._sizes.append(self._appended)
        self._appended_at = self._appended
        assert len(self._boundaries) == len(self._sizes)
        if len(self._boundaries) > BOUNDARIES_MAX:  # thin the older half
            half = BOUNDARIES_MAX // 2
            for each in (self._boundaries, self._sizes):
                kept = list(each)
                each.clear()
                each.extend(kept[:half:2] + kept[half:])

    def _evict(self) -> None:
        """Forget the oldest durable frames, down to three quarters of the window, so that this is seldom needed."""
        excess, drop, durable = self._cache_bytes - self._cache_bytes_max * 3 // 4, 0, self.durable_index
        for frame in self._cache:
            if excess <= 0 or frame.first + frame.count - 1 > durable:  # the newest frame is never durable here
                break
            size = len(frame.data)
            excess -= size
            self._cache_bytes -= size
            drop += 1
        assert drop < len(self._cache) and self._cache_bytes > 0, "the newest frame is not durable yet, so it stays"
        del self._cache[:drop], self._cache_firsts[:drop]

    def truncate(self, first: int) -> None:
        """Drop ``first`` (a frame's first entry, behind the snapshot) and all behind it."""
        assert self.purged_index < first <= self.last_index, (self.purged_index, first, self.last_index)
        last = first - 1
        self.last_term = self.term_at(last)
        self.last_index = last
        while self._run_starts and self._run_starts[-1] > last:
            self._run_starts.pop()
            self._run_terms.pop()
        while self._cache_firsts and self._cache_firsts[-1] >= first:
            self._cache_firsts.pop()
            self._cache_bytes -= len(self._cache.pop().data)
        while self._boundaries and self._boundaries[-1] > last:
            self._boundaries.pop()
            self._sizes.pop()
        assert self.memberships[0][0] <= last, "the first is in effect since a snapshot or from the start"
        while self.memberships[-1][0] > last:
            self.memberships.pop()
        self.last_mark = self._cache[-1].mark if self._cache else 0
        self.durable_index = min(self.durable_index, last)
        assert self.last_term >= self.purged_term and bool(self._cache) == (self._cache_bytes > 0)

    def purge(self, index: int) -> None:
        """Forget entries up to ``index``, a frame's end. The membership in effect there stays."""
        if index <= self.purged_index:
            return
        assert index <= self.last_index
        self.purged_term = self.term_at(index)
        self.purged_index = index
        gone = bisect_right(self._run_starts, index + 1) - 1 if index < self.last_index else len(self._run_starts)
        del self._run_starts[:gone], self._run_terms[:gone]
        while self._boundaries and self._boundaries[0] < index:
            self._boundaries.popleft()
            self._sizes.popleft()
        base = self.membership_at(index)
        assert base[0] <= index, "the membership in effect stays"
        self.memberships = [base, *(entry for entry in self.memberships if entry[0] > base[0])]
        drop = 0
        while drop < len(self._cache) and self._cache[drop].last <= index:
            self._cache_bytes -= len(self._cache[drop].data)
            drop += 1
        del self._cache[:drop], self._cache_firsts[:drop]

    def install(self, meta: SnapshotMeta) -> None:
        """Replace the whole log by a snapshot. The log is empty after it."""
        assert self.snapshot is None or meta.index > self.snapshot.index, "snapshots only go forward"
        self.snapshot = meta
        self.purged_index, self.purged_term = meta.index, meta.term
        self.last_index, self.last_term, self.last_mark = meta.index, meta.term, meta.mark
        self.durable_index = 0
        self._run_starts, self._run_terms = [], []
        self.memberships = [(meta.membership_index, meta.membership)]
        self._boundaries, self._sizes = deque([meta.index]), deque([self._appended])
        self._cache, self._cache_firsts, self._cache_bytes = [], [], 0

