"""Gathers the outputs of the core's steps, and records how much of this group's log the disk holds.

The log in memory is ahead of the log on disk, as etcd's *unstable* log is. The changes that a step makes to log, term
and vote gather in one ``Write``. Writes have rising numbers, their *tokens*: the disk reports the last token up to
which all is durable, and a message names the token that it must not overtake (``Send.after``). So nothing here waits
for the disk: a step goes on, and code that needs durability looks at ``durable_token`` or the log's ``durable_index``.

A write changes the log in the order of its fields, so a truncation or a snapshot after frames begins another write. A
write makes durable the end of the log as it was then, less what was truncated since (etcd's append/ABA race).

A full disk kept nothing after the durable token. Term and vote, a lapse, or the snapshot that the log begins with, are
then written again at once: storage keeps a reserve for them. Frames stay in memory until there is room.

Knows no roles and no clock, decides nothing, calls nobody: the replica says what changes, and what the disk reports.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from raft.config import NEVER
from raft.frame import Frame
from raft.log import RaftLog
from raft.messages import WHOLE, HardState, Lapse, Output, PeerMessage, Send, SnapshotMeta, Write

WRITES_MAX: Final = 256
"""Most writes that are under way to the disk; further changes join one that waits here."""
WRITE_BYTES: Final = 256
"""Bytes that a write counts besides its frames."""


class Writes:
    """The outputs of one group, in order, and its writes that are not durable yet."""

    __slots__ = (
        "_group", "_install", "_lapse", "_lapse_token", "_log", "_next_token", "_outputs", "_owed", "_pending",
        "_under_way", "_unsynced_bytes_max", "_withheld", "disk_full", "durable_token", "hard_token", "install_token",
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
        """The latest snapshot that replaced the log; the write ``install_token`` makes that durable."""
        self._lapse, self._lapse_token = WHOLE, 0
        """What this node was last known to lack; the write ``_lapse_token`` makes that durable."""
        self._under_way: deque[tuple[int, int, int, int]] = deque()
        """(token, log's last index after it, issued at, bytes) of writes that are not durable yet."""
        self.unsynced_bytes = 0
        """Bytes of all writes that are not durable yet, with frames that were truncated since."""
        self.disk_full = False
        self._owed = False
        """True after the disk was full: frames after the durable index are only in memory, and are written again."""
        self._withheld = False
        """True while not even a term or vote has room: no write leaves, and no message that rests on it."""

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
        """Drop ``first`` and all after it. Writes under way no longer count as making that durable."""
        assert first > self._log.purged_index, "what is purged is committed"
        self._reorder(now).truncate_from = first
        self._log.truncate(first)
        self._under_way = deque((token, min(last, first - 1), at, size) for token, last, at, size in self._under_way)

    def install(self, meta: SnapshotMeta, now: int) -> None:
        """Replace the log by a snapshot that is on disk. Writes under way no longer count for the log after it."""
        write = self._reorder(now)
        write.install = meta
        self._install, self.install_token = meta, write.token
        self._log.install(meta)
        self._under_way = deque((token, 0, at, size) for token, _, at, size in self._under_way)
        self._seal(now)

    def purge(self, index: int) -> bool:
        """Purge the log up to the last frame end at or below ``index`` that is durable and in the snapshot. Return
        whether there was one."""
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
        """Write down, beside the log, what this node is known to lack."""
        write = self._open()
        write.lapse = self._lapse = lapse
        self._lapse_token = write.token

    def _open(self) -> Write:
        """Return the pending write; a new one if there is none."""
        write = self._pending
        if write is None:
            write = self._pending = Write(self._next_token, self._group)
            self._next_token += 1
        return write

    def _reorder(self, now: int) -> Write:
        """Return a pending write that changes nothing in the log so far."""
        write = self._pending
        if write is not None and (write.frames or write.install or write.truncate_from):
            self._seal(now)
        return self._open()

    # --- what leaves

    def output(self, output: Output) -> None:
        self._outputs.append(output)

    def send(self, peer: str, message: PeerMessage) -> None:
        """Queue a message. It speaks for this node's term and vote, so it waits until they are durable (paper §5.2).

        While a full disk takes neither, the message is dropped: nobody knows how long it would wait, and how many more.
        """
        after = self.hard_token if self.hard_token > self.durable_token else 0
        if not (after and self._withheld):
            self._outputs.append(Send(peer, message, after))

    def say_nothing(self) -> None:
        """Drop all messages that have not left."""
        self._outputs = [output for output in self._outputs if not isinstance(output, Send)]

    def drain(self, now: int) -> list[Output]:
        """Return the outputs since the last call, in order."""
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
        """Note that every write up to ``token`` is on disk. It is higher than all that were reported before."""
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
    def hard_state_waits(self) -> bool:
        """True while term and vote are not on disk yet."""
        return self.hard_token > self.durable_token

    @property
    def disk_lags(self) -> bool:
        """True while so much is on its way to this node's disk that the node takes no more frames."""
        return self.unsynced_bytes >= self._unsynced_bytes_max

    def oldest_unsynced_ns(self) -> int:
        """Time when the oldest write that is not durable was issued; ``NEVER`` if all are durable."""
        return self._under_way[0][2] if self._under_way else NEVER

    def disk_became_full(self, hard_state: HardState) -> None:
        """Forget the lost writes, and write again what must not be forgotten, small enough for the reserve.

        Frames that are not durable stay in memory, unacknowledged, until there is room. If the reserve is used up too,
        all else stays in memory as well: a write that failed on a full disk is not tried again before there is room.
        """
        self._withheld = self.disk_full and self.hard_state_waits
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
        if self._lapse_token > self.durable_token:
            self.keep_lapse(self._lapse)
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
        """Return the last index on the disk after a write without frames, or of the snapshot that it names."""
        return max(self._log.durable_index, self._log.purged_index)
