"""What a step of the core leaves to be done, and how much of this group's log the disk holds.

The log in memory is ahead of the log on disk, as etcd's *unstable* log is. What a step changes in it, in the term or in
the vote gathers in one ``Write``. Writes are numbered: by a rising *token* the disk says up to which of them all is
durable, and a message names the one that it must not overtake (``Send.after``). So nothing here waits for the disk: a
step goes on, and whoever needs durability looks at ``durable_token`` or at the log's ``durable_index``.

A write changes the log in the order of its fields, so a truncation or a snapshot behind frames begins another one. What
a write made durable is the end of the log as it was then, less what was truncated since (etcd's append/ABA race).

A full disk kept nothing behind the durable token. Term and vote, or the snapshot that the log stands on, are then
written again at once: storage keeps a reserve for them. Frames stay in memory until there is room.

Knows no roles and no clock, decides nothing, calls nobody: the replica says what changes, and what the disk reports.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from raft.config import NEVER
from raft.frame import Frame
from raft.log import RaftLog
from raft.messages import HardState, Lapse, Output, PeerMessage, Send, SnapshotMeta, Write

WRITES_MAX: Final = 256
"""Writes that may be under way to the disk; what comes next joins one that waits here."""
WRITE_BYTES: Final = 256
"""What a write counts beside its frames."""


class Writes:
    """The outputs of one group, in order, and its writes that are not durable yet."""

    __slots__ = (
        "_group", "_install", "_log", "_next_token", "_outputs", "_owed", "_pending", "_under_way",
        "_unsynced_bytes_max", "_withheld", "disk_full", "durable_token", "hard_token", "install_token",
        "unsynced_bytes",
    )

    def __init__(self, group: int, log: RaftLog, unsynced_bytes_max: int) -> None:
        self._group, self._log, self._unsynced_bytes_max = group, log, unsynced_bytes_max
        self._outputs: list[Output] = []
        self._pending: Write | None = None
        """The write that this step adds to."""
        self._next_token = 1
        self.durable_token = 0
        self.hard_token = 0
        """Token that makes the present term and vote durable."""
        self.install_token = 0
        self._install: SnapshotMeta | None = None
        """The latest snapshot that the log came to stand on; ``install_token`` makes that durable."""
        self._under_way: deque[tuple[int, int, int, int]] = deque()
        """(token, log's last index after it, issued at, bytes) of writes that are not durable yet."""
        self.unsynced_bytes = 0
        """Of all of them, frames that were truncated since among them."""
        self.disk_full = False
        self._owed = False
        """The disk was full: frames behind the durable index are in memory only, to be written again."""
        self._withheld = False
        """Not even a term or vote finds room: no write leaves, nor what rests on it, until there is some."""

    # --- what a step changes

    def set_hard_state(self, hard_state: HardState) -> None:
        write = self._open()
        write.hard_state = hard_state
        self.hard_token = write.token

    def append(self, frame: Frame) -> None:
        """Append one frame, in memory now and on disk by the pending write."""
        self._log.append(frame)
        write = self._pending
        if write is None:
            write = self._open()
        assert frame.first > self._log.durable_index, "what is durable is not written again"
        write.frames.append(frame)
        self.unsynced_bytes += len(frame.data)

    def truncate(self, first: int, now: int) -> None:
        """Drop ``first`` and all behind it; what is under way will not make it durable."""
        assert first > self._log.purged_index, "what is purged is committed"
        self._reorder(now).truncate_from = first
        self._log.truncate(first)
        self._under_way = deque((token, min(last, first - 1), at, size) for token, last, at, size in self._under_way)

    def install(self, meta: SnapshotMeta, now: int) -> None:
        """Stand on a snapshot that is on disk; what is under way says nothing of the log behind it."""
        write = self._reorder(now)
        write.install = meta
        self._install, self.install_token = meta, write.token
        self._log.install(meta)
        self._under_way = deque((token, 0, at, size) for token, _, at, size in self._under_way)
        self._seal(now)

    def purge(self, index: int) -> bool:
        """Let the log go up to the last frame end at or below ``index``, durable and in the snapshot; whether there is
        any."""
        log = self._log
        assert log.snapshot is not None
        point = log.purge_point(min(index, log.snapshot.index, log.durable_index))
        if point <= log.purged_index:
            return False
        log.purge(point)
        assert log.purged_index == point <= min(log.snapshot.index, log.durable_index)
        self._open().purge_to = point
        return True

    def keep_lapse(self, lapse: Lapse) -> None:
        """Remember beside the log what this node is known to lack."""
        self._open().lapse = lapse

    def _open(self) -> Write:
        """The pending write; a fresh one if there is none."""
        write = self._pending
        if write is None:
            write = self._pending = Write(self._next_token, self._group)
            self._next_token += 1
        return write

    def _reorder(self, now: int) -> Write:
        """A pending write that changes nothing of the log so far."""
        write = self._pending
        if write is not None and (write.frames or write.install or write.truncate_from):
            self._seal(now)
        return self._open()

    # --- what leaves

    def output(self, output: Output) -> None:
        self._outputs.append(output)

    def send(self, peer: str, message: PeerMessage) -> None:
        """Every message speaks for this node's term and vote, so it waits until those are durable (paper §5.2).

        While no disk takes them it is not made at all: nobody knows how long it would wait, and how many with it.
        """
        after = self.hard_token if self.hard_token > self.durable_token else 0
        if not (after and self._withheld):
            self._outputs.append(Send(peer, message, after))

    def say_nothing(self) -> None:
        """What was to be said and has not left is not said."""
        self._outputs = [output for output in self._outputs if not isinstance(output, Send)]

    def drain(self, now: int) -> list[Output]:
        """What is to be done since the last call, in order."""
        if self._pending is not None and not self._withheld and len(self._under_way) < WRITES_MAX:
            self._seal(now)
        outputs, self._outputs = self._outputs, []
        return outputs

    def _seal(self, now: int) -> None:
        write = self._pending
        assert write is not None and not self._withheld
        assert not self._under_way or self._under_way[-1][0] < write.token, "tokens rise"
        last = self._kept_index() if self._owed else self._log.last_index
        size = WRITE_BYTES
        for frame in write.frames:
            size += len(frame.data)
        self._under_way.append((write.token, last, now, size))
        self.unsynced_bytes += WRITE_BYTES
        self._outputs.append(write)
        self._pending = None

    # --- what the disk reports

    def durable(self, token: int) -> None:
        """Every write up to ``token``, which is beyond all reported before, is on disk."""
        assert token > self.durable_token, (token, self.durable_token)
        self.durable_token = token
        last, under_way = 0, self._under_way
        while under_way and under_way[0][0] <= token:
            _, last, _, size = under_way.popleft()
            self.unsynced_bytes -= size
        assert self.unsynced_bytes >= 0, self.unsynced_bytes
        log = self._log
        assert last <= log.last_index, (last, log.last_index)
        if last > log.durable_index:
            log.durable_index = last

    @property
    def disk_lags(self) -> bool:
        """Whether so much is on its way to this node's disk that it takes nothing more until some of it is there."""
        return self.unsynced_bytes >= self._unsynced_bytes_max

    def oldest_unsynced_ns(self) -> int:
        """When the oldest write that is not durable was issued; ``NEVER`` if all are."""
        return self._under_way[0][2] if self._under_way else NEVER

    def disk_became_full(self, hard_state: HardState) -> None:
        """Forget the lost writes and say again, small enough for the reserve, what must not be forgotten.

        Frames that are not durable stay in memory, unacknowledged, until there is room. So does all the rest when the
        reserve is used up too: what failed on a full disk is not tried again before there is room.
        """
        self._withheld = self.disk_full and self.hard_token > self.durable_token
        self.disk_full = self._owed = True
        self._pending = None
        self._outputs = [output for output in self._outputs if not isinstance(output, Write)]
        self._under_way.clear()
        self.unsynced_bytes = 0
        write = self._open()
        if self.install_token > self.durable_token:
            write.install, self.install_token = self._install, write.token
        else:
            write.truncate_from = self._log.durable_index + 1  # a truncation may be among the lost writes
        self.set_hard_state(hard_state)

    def disk_has_room(self, now: int) -> None:
        """Write again what the full disk did not take."""
        if not self.disk_full:
            return
        self.disk_full = self._withheld = False
        if self._pending is not None:
            self._seal(now)
        self._owed = False
        log, kept = self._log, self._kept_index()
        if log.last_index > kept:
            frames = log.cached(kept + 1, NEVER)
            assert frames is not None and frames[0].first == kept + 1, "what is not durable is in memory"
            self._open().frames.extend(frames)
            self.unsynced_bytes += sum(len(frame.data) for frame in frames)

    def _kept_index(self) -> int:
        """What a write without frames leaves on the disk: also a snapshot that it says the log stands on."""
        return max(self._log.durable_index, self._log.purged_index)
