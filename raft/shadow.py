"""A log as its ``Write``s make it, kept beside the real one, so that a checker can compare memory, disk and recovery.

Built from writes alone, never from the log that it shadows. ``Ghost`` keeps two such logs of a node, and what else was
seen of it. Compares nothing and calls no replica.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Final

from raft.frame import Frame, Kind
from raft.membership import Membership
from raft.messages import Role, SnapshotMeta, Write
from raft.replica import Replica

MEMBERSHIP: Final = Kind.MEMBERSHIP

Directory = tuple[str, bytes]
"""A node's name, and the incarnation of its directory."""


class LogShadow:
    """A log as its ``Write``s make it: frames by last index, and the point that the first follows. Ignores purging."""

    __slots__ = ("base", "cut", "frames", "last", "lasts", "marks", "memberships", "term", "vote")

    def __init__(self, bootstrap: Membership) -> None:
        self.base = (0, 0, 0)
        """(index, term, mark) that the first frame follows."""
        self.frames: list[Frame] = []
        self.lasts: list[int] = []
        self.last = 0
        """Index of the last entry."""
        self.marks: dict[int, int] = {0: 0}
        """Index at a frame's end, or of the base -> hash of the whole prefix that ends there."""
        self.cut: dict[int, frozenset[int]] = {}
        """Index -> all such hashes of prefixes that were here once and were dropped."""
        self.memberships: list[tuple[int, Membership]] = [(0, bootstrap)]
        self.term = 0
        self.vote: str | None = None

    def copy(self) -> LogShadow:
        """Return an independent shadow in the same state."""
        other = LogShadow(Membership())
        other.base, other.frames, other.lasts = self.base, self.frames[:], self.lasts[:]
        other.last, other.marks, other.cut = self.last, self.marks.copy(), self.cut.copy()
        other.memberships, other.term, other.vote = self.memberships[:], self.term, self.vote
        return other

    @property
    def end(self) -> tuple[int, int, int]:
        """(index, term, mark) of the last entry."""
        if self.frames:
            frame = self.frames[-1]
            return self.last, frame.term, frame.mark
        return self.base

    def frame_at(self, index: int) -> Frame | None:
        """Return the frame that holds ``index``; None if there is none."""
        at = bisect_left(self.lasts, index)
        if at < len(self.lasts) and self.frames[at].first <= index:
            return self.frames[at]
        return None

    def mark_at(self, index: int) -> int:
        """Return the hash of the whole prefix that ends at ``index``; 0 if that is no frame's end, or is before the
        base."""
        return self.marks.get(index, 0)

    def may_hold(self, index: int, mark: int | None) -> bool:
        """Return whether ``index`` is here, with this mark if both marks are known."""
        if self.last < index:
            return False
        held = self.marks.get(index)
        return not held or not mark or held == mark

    def term_at(self, index: int) -> int:
        """Return the term of an entry; 0 if it is not known."""
        if index == self.base[0]:
            return self.base[1]
        frame = self.frame_at(index)
        return frame.term if frame else 0

    def apply(self, write: Write) -> None:
        """Change the log as this write does."""
        if write.install is not None or write.truncate_from or write.hard_state is not None:
            self.prepare(write)
        for frame in write.frames:
            self.append(frame)

    def prepare(self, write: Write) -> None:
        """Change the log as this write does, but without its frames."""
        if write.install is not None:
            self.install(write.install)
        if write.truncate_from:
            self.truncate(write.truncate_from)
        if write.hard_state is not None:
            self.term, self.vote = write.hard_state.term, write.hard_state.voted_for

    def append(self, frame: Frame) -> None:
        """Append this frame after the last one."""
        assert frame.first == self.last + 1, (frame, self.last)
        self.last = last = frame.first + frame.count - 1
        self.frames.append(frame)
        self.lasts.append(last)
        self.marks[last] = frame.mark
        if frame.kind == MEMBERSHIP:
            self.memberships.append((frame.first, Membership.decode(frame.payloads()[0])))

    def install(self, meta: SnapshotMeta) -> None:
        """Replace the log by a snapshot, unless it holds the snapshot's last entry already."""
        if meta.index < self.base[0] or self.term_at(meta.index) == meta.term:
            return
        self.base = (meta.index, meta.term, meta.mark)
        self.frames, self.lasts = [], []
        for last in self.marks:
            self._drop(last)
        self.last, self.marks = meta.index, {meta.index: meta.mark}
        assert not self.frames and self.end == (meta.index, meta.term, meta.mark)
        self.memberships = [(meta.membership_index, meta.membership)]

    def truncate(self, first: int) -> None:
        """Drop everything at and after ``first``."""
        keep = bisect_left(self.lasts, first)
        for last in self.lasts[keep:]:
            self._drop(last)
            del self.marks[last]
        del self.frames[keep:], self.lasts[keep:]
        self.last = self.lasts[-1] if keep else self.base[0]
        assert len(self.frames) == len(self.lasts) == len(self.marks) - 1 and self.last < first
        while len(self.memberships) > 1 and self.memberships[-1][0] >= first:
            self.memberships.pop()

    def _drop(self, last: int) -> None:
        self.cut[last] = self.cut.get(last, frozenset()) | {self.marks[last]}


class Copy:
    """The content of a copy of a directory: its log, the lives that it had, and those of others that it met."""

    def __init__(self, ghost: Ghost) -> None:
        self.disk, self.own = ghost.disk.copy(), ghost.own.copy()
        self.kept = {peer: lives[:] for peer, lives in ghost.kept.items()}


class Ghost:
    """The checker's knowledge of one node, over all its lives."""

    def __init__(self, name: str, incarnation: bytes, bootstrap: Membership) -> None:
        self.name, self.incarnation = name, incarnation
        self.directory: Directory = name, incarnation
        self.replica: Replica | None = None
        """The node's replica; None while the node is down."""
        self.memory = LogShadow(bootstrap)
        self.disk = LogShadow(bootstrap)
        self.former: LogShadow | None = None
        """The disk's log before it was wiped: it counted when it was acknowledged."""
        self.pending: deque[Write] = deque()
        self.role, self.term = Role.FOLLOWER, 0
        self.vote: str | None = None
        self.commit = self.applied = 0
        self.snapshot = 0
        """Index of the newest finished snapshot on disk."""
        self.snapshot_seen = 0
        self.term_first = (0, 0)
        """(term, index) of the first entry that the node wrote as leader."""
        self.broken = False
        self.full = False
        """True while the disk lacks entries of the memory because it was full: writes then restore the disk, and change
        nothing else."""
        self.alone: tuple[int, int, int] | None = None
        """(connectivity version, samples since, term at the last one) while the node hears nobody."""
        self.lost: LogShadow | None = None
        """The disk's log before it lost its end, until it holds that again."""
        self.knows = False
        """True if the node knows of its loss: from its own mark, or from a peer that met a life which the copy never
        had."""
        self.was_told = False
        """True if a peer told the node of its loss in this life: messages that left before do not show it."""
        self.life = 0
        self.own: set[int] = set()
        """Lives that the disk had, and lives it was told of whose loss is over."""
        self.told_of: set[int] = set()
        self.words: dict[str, set[int]] = {}
        """Node that is no member -> lives of this directory that it said it met, and that this never had."""
        self.met: dict[Directory, list[int]] = {}
        """Directory of a peer -> its lives that were met, the newest last. This process knows ``met``, its disk
        ``kept``. Lives of a former directory do not count for a new one."""
        self.kept: dict[Directory, list[int]] = {}
        self.rotten = False
        """True if the disk gives back less than its writes allow: the checker then accepts what the next start
        finds."""
        self.said: set[tuple[str, int, int, int, int]] = set()
        """(leader, term, session, sequence, last index) of acknowledgements that left since the loss."""
        self.told: set[tuple[str, int]] = set()
        """(leader, term) of leaders that such an acknowledgement reached, so that they can know of the loss."""
        self.cut_since: int | None = None
        """Time, by this leader's own clock, when it was first seen without a quorum in reach."""

    def whole(self, committed: Mapping[int, int]) -> bool:
        """Return whether the disk holds again all that it lost of the committed log (index -> mark)."""
        if self.lost is None:
            return True
        lost, low, high = self.lost, 0, len(self.lost.lasts)
        while low < high:  # marks hash whole prefixes: if they are equal here, all before is equal
            middle = (low + high) // 2
            last = lost.lasts[middle]
            if committed.get(last) == lost.marks[last]:
                low = middle + 1
            else:
                high = middle
        reach = lost.lasts[low - 1] if low else lost.base[0]
        return self.disk.may_hold(reach, lost.marks.get(reach))

    def forget(self, copy: Copy | None) -> None:
        """Note that the disk lost its end (None), or was replaced by this older copy."""
        assert self.replica is None, "only a disk that is down loses something"
        if self.lost is None or self.lost.last < self.disk.last:
            self.lost = self.disk.copy()
        if copy is not None:
            self.disk, self.own, self.kept = copy.disk, copy.own, copy.kept
        self.pending.clear()
        self.rotten = copy is None
        self.knows = False
        self.said.clear()
        self.told.clear()

    def believe(self, term: int, vote: str | None, last: int) -> None:
        """Accept what a rotten disk gave back as its log."""
        assert self.rotten, "a sound disk gives back what was written"
        self.disk.truncate(last + 1)
        self.disk.term, self.disk.vote = term, vote
        self.rotten = False
