"""Moves snapshots for the core: machine to disk, disk to peer, peer to disk, disk to machine.

Disk work runs in worker threads, one piece at a time in each direction. Knows storage, machine and the core's questions
(``LoadChunk``, ``StoreChunk``, ``Install``); decides only when this node's own next snapshot is due.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import trio

from raft.applier import Applier, made_no_snapshot
from raft.config import MS, Config
from raft.errors import DamagedLog, Faulted, Rejected, RejectReason, StorageError, UsageError
from raft.events import EventHub, SnapshotRestored, SnapshotTaken
from raft.messages import Install, LoadChunk, SnapshotMeta, StoreChunk
from raft.pending import Proposals
from raft.progress import State
from raft.replica import Replica
from raft.storage.interface import SnapshotSink, Storage
from raft.storage.trouble import lacks_descriptor

logger = logging.getLogger("raft.snapshots")

READ_BYTES = 1 << 20
RESTORE_RETRY_S = 5.0
"""Time until a snapshot is read again for which there was no file descriptor."""
PATIENCE = 4
"""While a peer is being sent a snapshot, the next one waits until the log has grown this many times as much."""
SENDING_MAX = 2
"""Snapshots that peers can be sent at a time: storage keeps as many."""
PIECES_MAX = 64
"""Questions of the core that may wait; further ones are dropped, and the core asks again."""


class SnapshotIO:
    """One node's snapshots. ``pump`` carries out what the core wants after an answer."""

    def __init__(
        self, *, replica: Replica, storage: Storage, applier: Applier, proposals: Proposals, events: EventHub,
        config: Config, clock: Callable[[], int], pump: Callable[[], None], run_blocking: Callable[..., Awaitable[Any]],
        storage_failed: Callable[[StorageError], None],
    ) -> None:
        self.taking = self.restoring = 0
        """Index of the snapshot being written, or restored; 0: none."""
        self._replica, self._storage, self._applier = replica, storage, applier
        self._proposals, self._events, self._clock, self._pump = proposals, events, clock, pump
        self._run_blocking, self._storage_failed = run_blocking, storage_failed
        self._due_bytes = config.snapshot_log_bytes if applier.machine.snapshots else 0
        self._silence_ns = config.election_timeout_ms * MS
        self._retry_bytes = 0
        """Size that the log must reach before the next try, after a snapshot that failed."""
        self._letting_go = False
        """True if the log before the next snapshot shall go whole, without a tail for slow followers."""
        self._lock = trio.Lock()
        self._sink: tuple[SnapshotMeta, SnapshotSink] | None = None
        self._sending: dict[int, SnapshotMeta] = {}
        """The newest snapshots of which pieces were read. A peer that has begun with one goes on with it."""
        self._ask, self._asked = trio.open_memory_channel[LoadChunk | StoreChunk | Install](math.inf)
        self._wanted = trio.Event()

    # --- this node's own

    def consider(self) -> None:
        """Begin a snapshot if the log has grown enough since the last one."""
        due, grown = self._due_bytes, self._applier.log_bytes
        least = max(due, self._retry_bytes)
        if due and grown >= least and not self.taking and (grown >= PATIENCE * due or not self._serving()):
            self._wanted.set()

    @property
    def log_bytes(self) -> int:
        """Bytes of applied entries that no snapshot holds."""
        return self._applier.log_bytes

    def shorten(self) -> bool:
        """Take a snapshot and let the whole log before it go, since this group keeps the shared log too long. Return
        False if the machine has no snapshots."""
        if not self._applier.machine.snapshots:
            return False
        if self._applier.index and not self.taking:
            self._letting_go = True
            self._wanted.set()
        return True

    def _let_go(self) -> None:
        if self._letting_go:
            self._letting_go = False
            self._replica.snapshots.let_go(self._clock())
            self._pump()

    def _serving(self) -> bool:
        """Return whether a peer is being sent a snapshot. A newer one would make it start over, perhaps for ever."""
        now = self._clock()
        return any(peer.state is State.SNAPSHOT and now - peer.heard_ns < self._silence_ns
                   for peer in self._replica.peers.values())

    async def run_due(self) -> None:
        """Take, as a task, snapshots that are due."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            try:
                await self.take()
                continue
            except StorageError as error:  # only this snapshot failed; later there may be room
                logger.warning("no snapshot: %s; the next try comes when the log has grown", error)
            except (Faulted, Rejected):
                return
            except UsageError:
                logger.exception("the state machine made no snapshot; the next try comes when the log has grown")
            self._retry_bytes = self._applier.log_bytes + self._due_bytes // 8

    async def take(self) -> SnapshotMeta:
        """Store a snapshot of the machine's present state.

        Raises ``DiskFull``, ``UsageError`` (the machine cannot or raised, or nothing is applied yet), ``Faulted``,
        ``Rejected`` (the node stopped).
        """
        machine = self._applier.machine
        if not machine.snapshots:
            raise UsageError("this state machine has no snapshot() and restore()")
        async with self._lock:
            before = self._applier.log_bytes
            captured = await self._applier.capture()
            self._retry_bytes = 0
            replica = self._replica
            if replica.faulted:
                raise Faulted(replica.faulted)
            if captured is None:
                raise Rejected(RejectReason.STOPPED)
            index, view = captured
            newest = replica.log.snapshot
            if newest is not None and newest.index >= index:
                self._let_go()
                return newest
            if not index:
                raise UsageError("nothing is applied yet")
            if replica.applied_index < index:
                replica.applied(self._clock(), index)
            meta = replica.snapshots.meta(index)
            self.taking = index
            try:
                finished: SnapshotMeta = await self._run_blocking(self._write, meta, view)
            except BaseException:
                self._applier.log_bytes += before
                raise
            finally:
                self.taking = 0
        replica.snapshots.taken(self._clock(), finished)
        self._events.put(SnapshotTaken(finished))
        self._let_go()
        self._pump()
        return finished

    def _write(self, meta: SnapshotMeta, view: Any) -> SnapshotMeta:
        sink = self._storage.create_snapshot(self._replica.group, meta)
        try:
            try:
                self._applier.machine.write(view, sink)
            except StorageError:
                raise
            except Exception as error:
                raise made_no_snapshot(error) from error
            return sink.finish()
        except BaseException:
            sink.abort()
            raise

    # --- the core's questions, in order

    def handle(self, question: LoadChunk | StoreChunk | Install) -> None:
        """Queue a question, to be answered later. A piece is dropped if the queue is full: the leader sends it
        again."""
        # An ``Install`` is never dropped: the core asks for one at a time, and does not ask again.
        if isinstance(question, Install) or self._ask.statistics().current_buffer_used < PIECES_MAX:
            self._ask.send_nowait(question)

    async def run_questions(self) -> None:
        """Read and store, as a task, chunks for the core."""
        async for question in self._asked:
            try:
                if type(question) is LoadChunk:
                    await self._load(question)
                elif type(question) is StoreChunk:
                    await self._store(question)
                else:
                    assert isinstance(question, Install)
                    await self._install(question.meta)
            except StorageError as error:
                if isinstance(question, Install):  # the log rests on a snapshot that the machine cannot restore
                    self._storage_failed(error)
                    return
                self._drop_sink()  # the leader sends it or another one again
                logger.warning("a piece of a snapshot could not be stored or read, and will be sent again: %s", error)
            self._pump()

    async def _load(self, wanted: LoadChunk) -> None:
        meta, data = await self._run_blocking(self._read_piece, wanted)
        self._replica.snapshots.chunk_loaded(self._clock(), wanted.peer, wanted.session, meta, wanted.offset, data)

    def _read_piece(self, wanted: LoadChunk) -> tuple[SnapshotMeta | None, bytes | None]:
        group = self._replica.group
        meta = self._storage.newest_snapshot(group)
        if meta is not None and wanted.index not in (0, meta.index):
            meta = self._sending.get(wanted.index)
        if meta is None:
            return None, None
        try:
            data = self._storage.read_snapshot(group, meta.index, wanted.offset, wanted.max_bytes)
        except DamagedLog as error:
            logger.error("this node's snapshot cannot be sent: %s", error)
            return None, None
        if data is None:
            return None, None
        self._sending[meta.index] = meta
        if len(self._sending) > SENDING_MAX:
            del self._sending[min(self._sending)]
        return meta, data

    async def _store(self, piece: StoreChunk) -> None:
        offset, complete = await self._run_blocking(self._stage, piece)
        self._replica.snapshots.chunk_stored(self._clock(), piece.peer, piece.meta, offset, complete)

    def _stage(self, piece: StoreChunk) -> tuple[int, bool]:
        if self._sink is None or self._sink[0] != piece.meta:
            self._drop_sink()
            self._sink = piece.meta, self._storage.receive_snapshot(self._replica.group, piece.meta)
        sink = self._sink[1]
        if piece.offset != sink.offset:
            return sink.offset, False
        try:
            sink.write(piece.data)
            if sink.offset < piece.meta.size:
                return sink.offset, False
            sink.finish()
        except DamagedLog:  # it differs from what the leader described: begin anew
            self._drop_sink()
            return 0, False
        self._sink = None
        return piece.meta.size, True

    def _drop_sink(self) -> None:
        if self._sink is not None:
            self._sink[1].abort()
            self._sink = None

    async def _install(self, meta: SnapshotMeta) -> None:
        while True:
            try:
                await self.restore(meta)
                break
            except UsageError as error:  # caused by a peer: it may stop this node, but not the others of its host
                self._applier.fail(error)
                return
            except StorageError as error:
                if not lacks_descriptor(error):
                    raise
                logger.warning("snapshot %d waits until it can be read: %s", meta.index, error)
            await trio.sleep(RESTORE_RETRY_S)
        self._proposals.jump(meta.index)
        self._replica.snapshots.installed(self._clock(), meta)

    async def restore(self, meta: SnapshotMeta) -> None:
        """Restore the machine from the snapshot ``meta``, which is on this disk."""
        if not self._applier.machine.snapshots:
            raise UsageError(f"cannot restore the snapshot at {meta.index}: this state machine has no restore()")
        self.restoring = meta.index
        try:
            await self._applier.restore(meta, self._chunks(meta))
        finally:
            self.restoring = 0
        self._retry_bytes = 0
        if not self._replica.faulted:
            self._events.put(SnapshotRestored(meta))

    def _chunks(self, meta: SnapshotMeta) -> Iterator[bytes]:
        offset = 0
        while offset < meta.size:
            data = self._storage.read_snapshot(self._replica.group, meta.index, offset, READ_BYTES)
            if not data:
                raise DamagedLog("snapshot", offset, f"snapshot {meta.index} ended before its {meta.size} bytes")
            yield data
            offset += len(data)
