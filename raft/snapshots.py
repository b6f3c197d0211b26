"""Snapshots in one group: the node's own let the log shrink, and one from a leader replaces the log.

The shell makes a node's own snapshot, at an index that is applied; the log before it may go, except for a tail. A
snapshot from a leader comes in chunks, which the shell stages one by one. When it is whole it replaces the log at once,
and the state machine a little later; the leader is told when both hold it durably. In between ``core.installing`` is
set: nothing is applied, and this node asks for no votes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.errors import MalformedMessage
from raft.messages import (
    SUCCESS,
    Code,
    Install,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    StoreChunk,
)
from raft.snapshotmeta import decode_meta
from raft.trace import LogPurged, SnapshotInstalled

if TYPE_CHECKING:
    from raft.replica import Replica


class Snapshots:
    """One group's snapshots. Methods that take ``now`` are inputs, like those of the replica."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self._chunk: SnapshotChunk | None = None
        """The latest chunk that storage was given; it is answered when it is stored."""
        self.answer_due: tuple[SnapshotChunk, SnapshotMeta] | None = None
        """The last chunk of the snapshot that is being installed, and its meta; the chunk is answered at the end."""

    def reset(self) -> None:
        """Begin anew with another leader or none: chunks of the old leader are not answered."""
        self._chunk = self.answer_due = None

    # --- this node's own

    def meta(self, index: int) -> SnapshotMeta:
        """Return the meta of a snapshot at ``index``, which is applied and ends a frame. Size and crc come later."""
        core, log = self.core, self.core.log
        assert log.purged_index <= index <= core.applied_index, (index, core.applied_index)
        at, membership = log.membership_at(index)
        assert at <= index, (at, index)
        frames = log.cached(index, 1)
        mark = frames[0].mark if frames and frames[0].last == index else 0
        return SnapshotMeta(index, log.term_at(index), mark, membership, at, wall_ms=core.wall_ms)

    def taken(self, now: int, meta: SnapshotMeta) -> None:
        """Note that this node's own snapshot is finished, and purge the log up to its tail."""
        log, config = self.core.log, self.core.config
        if not self.core.enter(now) or (log.snapshot and log.snapshot.index >= meta.index):
            return
        assert meta.index <= self.core.applied_index, (meta.index, self.core.applied_index)
        log.snapshot = meta
        log.note_end(meta.index)
        self.purge(max(meta.index - config.snapshot_tail_entries,
                       log.tail_start(meta.index, config.snapshot_tail_bytes)))

    def let_go(self, now: int) -> None:
        """Purge the log up to the snapshot, without a tail, since the shared log is too long."""
        core = self.core
        if core.enter(now) and core.log.snapshot:
            self.purge(core.log.snapshot.index)

    def purge(self, index: int) -> None:
        """Purge the log up to the last frame end at or below ``index``, never beyond the snapshot."""
        core = self.core
        assert core.log.snapshot and index <= core.log.snapshot.index, index
        if core.writes.purge(index) and core.trace:
            core.trace(LogPurged(core.now, core.node_id, core.group, core.term, core.log.purged_index))

    # --- to a peer

    def chunk_loaded(
        self, now: int, peer: str, session: int, meta: SnapshotMeta | None, offset: int, data: bytes | None
    ) -> None:
        """Take the answer to ``LoadChunk``; ``data`` is None if that snapshot is gone."""
        if self.core.enter(now) and self.core.leadership:
            self.core.leadership.on_chunk_loaded(peer, session, meta, offset, data)

    # --- from a leader

    def on_chunk(self, peer: str, message: SnapshotChunk) -> None:
        core = self.core
        code = core.following.judge_leader(peer, message.term)
        if code != SUCCESS or core.writes.disk_full:
            self._reply(peer, message, Code.DISK_FULL if code == SUCCESS else code, 0, 0, False)
            return
        core.following.rearm()
        try:
            meta = decode_meta(message.meta)
        except MalformedMessage as error:
            core.dropped(peer, message, str(error))
            return
        if core.installing or core.writes.disk_lags:
            core.dropped(peer, message, "a snapshot is being installed" if core.installing else "the disk lags behind")
        elif self._is_here(peer, message, meta):
            return
        elif message.offset + len(message.data) > meta.size:
            core.dropped(peer, message, "beyond the size of the snapshot")
        elif core.writes.hard_state_waits:
            # A whole snapshot is on disk at once. Behind a crash its term must not be newer than this node's, for that
            # is how a lost vote looks. This answer leaves with the sync, and the leader begins again.
            self._reply(peer, message, SUCCESS, meta.index, 0, False)
        else:
            self._chunk = message
            core.output(StoreChunk(peer, meta, message.offset, message.data))

    def _is_here(self, peer: str, message: SnapshotChunk, meta: SnapshotMeta) -> bool:
        """Answer a snapshot that the log covers already, and return whether it does. Promises only what is durable."""
        core = self.core
        term = core.log.term_at(meta.index)
        if meta.index > core.commit_index and term != meta.term:
            return False
        if term not in (0, meta.term):  # 0: purged
            core.dropped(peer, message, f"contradicts committed entry {meta.index}")  # openraft 1892
            return True
        core.advance_commit(meta.index, counted=False)
        if core.log.durable_index >= meta.index:
            self._reply(peer, message, SUCCESS, meta.index, meta.size, True)
        return True

    def chunk_stored(self, now: int, peer: str, meta: SnapshotMeta, offset: int, complete: bool) -> None:
        """Take the answer to ``StoreChunk``: ``offset`` bytes are staged. ``complete``: whole, checked and visible."""
        core, message = self.core, self._chunk
        if not core.enter(now) or message is None or core.leader != peer or core.installing:
            return
        self._chunk = None
        if core.writes.disk_full:  # the disk filled up meanwhile: it cannot replace the log (see on_chunk)
            self._reply(peer, message, Code.DISK_FULL, 0, 0, False)
        elif not complete:
            self._reply(peer, message, SUCCESS, meta.index, offset, False)
        elif not self._is_here(peer, message, meta):  # the entries may have come while the chunk was stored
            self.install(meta)
            self.answer_due = message, meta

    def install(self, meta: SnapshotMeta) -> None:
        """Replace the log by a complete snapshot from the leader, and have the machine restored."""
        core = self.core
        assert meta.index > core.commit_index and core.log.term_at(meta.index) != meta.term
        core.writes.install(meta, core.now)
        core.installing = meta
        core.membership_changed()
        core.commit_index = core.announced_index = meta.index
        assert core.applied_index < core.commit_index == core.log.last_index
        core.output(Install(meta))
        if core.trace:
            core.trace(SnapshotInstalled(core.now, core.node_id, core.group, core.term, meta.index, meta.term))

    def installed(self, now: int, meta: SnapshotMeta) -> None:
        """Note that the state machine was restored to ``meta.index``."""
        core = self.core
        if not core.enter(now) or core.installing is not meta:
            return
        core.installing = None
        core.applied_index = max(core.applied_index, meta.index)
        core.announce()
        self.answer_installed()

    def answer_installed(self) -> None:
        """Answer the leader, once the snapshot has replaced the log durably and the state machine holds it."""
        core, writes = self.core, self.core.writes
        if (self.answer_due is None or core.installing or writes.durable_token < writes.install_token
                or core.leader is None):
            return
        (message, meta), self.answer_due = self.answer_due, None
        assert meta.index <= core.log.durable_index, (meta.index, core.log.durable_index)
        core.following.verified = max(core.following.verified, meta.index)
        if core.lapse is not None:
            core.regaining.look()
        self._reply(core.leader, message, SUCCESS, meta.index, meta.size, True)

    def _reply(self, peer: str, message: SnapshotChunk, code: Code, index: int, offset: int, done: bool) -> None:
        core = self.core
        core.send(peer, SnapshotReply(
            core.group, core.term, message.session, message.sequence, code, index, offset, done))
