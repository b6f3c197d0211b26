"""The store on the loop: gathers what a turn appends, writes it once, has it flushed, and lets consumers see it.

One task writes, tells and dispatches; one thread syncs. Nothing here waits for the disk but ``close``. It knows
positions of the log, and neither roles nor who waits for what.
Source: ``GroupCommitService``, ``FlushRealTimeService`` and ``ReputMessageService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from broker.store.commitlog import Recovered, SyncJob
from broker.store.disk import Disk, DiskThread
from broker.store.errors import StoreFailed
from broker.store.flushing import AsyncFlush, FlushPolicy, SyncFlush
from broker.store.record import Message
from broker.store.store import MessageStore, Put
from remoting.wakeup import Bell

logger = logging.getLogger("broker")

NS_PER_MS: Final = 1_000_000
RETRY_MS: Final = 1_000
"""How long queues wait for a disk that is full."""


class FlushDiskType(enum.Enum):
    """``flushDiskType``."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@attrs.frozen
class JournalConfig:
    """Keys of ``MessageStoreConfig`` and their defaults; those marked so are ours."""

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log_ms: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval_ms: int = 10_000
    tick_interval_ms: int = 100
    """Ours: how often timeouts and intervals are looked at."""
    checkpoint_interval_ms: int = 10_000
    """Ours: how often queues and index are flushed, and the checkpoint says so. What lies behind it is told again
    after a crash."""
    dispatch_slice: int = 1_000
    """Ours: messages that are made visible before others get their turn; a few milliseconds' worth."""

    @property
    def flush_policy(self) -> FlushPolicy:
        if self.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            return SyncFlush()
        return AsyncFlush(self.flush_interval_commit_log_ms, self.flush_commit_log_least_pages,
                          self.flush_commit_log_thorough_interval_ms)


def _now_ns() -> int:
    return int(trio.current_time() * 1e9)


def _wall_ms() -> int:
    return time.time_ns() // NS_PER_MS


class Journal:
    """``open``, then ``run`` in a nursery, ``close`` at last. ``disk`` is a thread if none is given."""

    def __init__(self, store: MessageStore, config: JournalConfig = JournalConfig(), *, disk: Disk | None = None,
                 now_ns: Callable[[], int] = _now_ns, wall_ms: Callable[[], int] = _wall_ms) -> None:
        self.store = store
        self.config = config
        self.sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.grown: list[Callable[[], None]] = []
        """Called in the turn in which ``end`` or ``durable_end`` moved; the system has what is below ``end``."""
        self.settled: list[Callable[[], None]] = []
        """Called when all of ``grown`` have been: whoever looks at what they concluded."""
        self.arrived = store.arrived
        """Called when a message became visible to consumers."""
        self.ticks: list[Callable[[int], None]] = []
        """Called every ``tick_interval_ms`` with the time in nanoseconds."""
        self.on_failure: list[Callable[[StoreFailed], None]] = []
        """Called once, when the disk has failed for good."""
        self.failure: StoreFailed | None = None
        self.now_ns = now_ns
        self.end = self.durable_end = self.confirm_offset = 0
        """What the system has; what counts as durable: that, or what is flushed of it under SYNC_FLUSH; up to where
        consumers may see."""
        self._wall_ms = wall_ms
        self._policy = config.flush_policy
        self._disk = disk
        self._bell = Bell()
        self._grew = False
        self._syncing = False
        self._flush_began_ns = 0
        self._checkpoint_ns = 0
        self._dispatch_after_ns = 0

    def open(self) -> Recovered:
        """Recover what the last process left; all of it is on disk, and confirmed as far as it was visible. Blocks.

        Raises:
            WrongStore: as ``MessageStore.open``.
        """
        found = self.store.open()
        self.end = self.durable_end = self.store.log.max_offset
        self.confirm_offset = self.store.dispatched_offset
        return found

    @property
    def begin(self) -> int:
        return self.store.log.min_offset

    # --- what others do with it ------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message]) -> list[Put]:
        """All or none of them, one behind the other. The system has them when ``end`` is behind them, this turn.

        Raises:
            MessageIllegal: change the message.
            StoreFull: refused until there is room.
            StoreFailed: final.
        """
        puts = self.store.put_all(messages, self._wall_ms())
        self._bell.ring()
        return puts

    def append_raw(self, data: bytes | memoryview, offset: int) -> None:
        """Bytes of the master's log. ``end`` is behind them at once, and behind some of them after ``StoreFull``.

        Raises:
            OffsetGone: there would be a gap, or something overwritten.
            StoreFull, StoreFailed: as ``append``.
        """
        try:
            self.store.append_raw(data, offset)
        finally:
            self._written()
            self._bell.ring()

    def confirm(self, offset: int) -> None:
        """Consumers may see what ends at or below ``offset``. It never goes back but by ``truncate``."""
        offset = min(offset, self.end)
        if offset > self.confirm_offset:
            self.confirm_offset = offset
            self._bell.ring()

    def truncate(self, offset: int, *, everything: bool = False) -> None:
        """Forget what is behind ``offset``, a message's boundary; with ``everything`` the log becomes empty and takes
        whatever offset comes first. Blocks for a moment. Raises ``OffsetGone``, ``StoreFailed``."""
        self.store.truncate(offset, everything=everything)
        self.end = self.store.log.max_offset
        self.durable_end = self.end  # cutting syncs
        self.confirm_offset = min(self.confirm_offset, self.end)
        self._grew = True
        self._bell.ring()

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes, never beyond a file or the end. Raises ``OffsetGone``."""
        return self.store.log.read(offset, size)

    # --- its task --------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until it is cancelled."""
        if self._disk is None:
            self._disk = DiskThread(trio.lowlevel.current_trio_token().run_sync_soon)
        self._flush_began_ns = self._checkpoint_ns = self.now_ns()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick)
            task_status.started()
            while True:
                await self._bell.wait()
                if self._turn():
                    await trio.lowlevel.checkpoint()
                    self._bell.ring()

    async def close(self) -> None:
        """Write and flush all, and say that it was closed in order. ``run`` must have ended. Raises ``StoreFailed``."""
        with trio.CancelScope(shield=True):
            self._write()
            if self._disk is not None:
                await trio.to_thread.run_sync(self._disk.close)
                await trio.lowlevel.checkpoint()  # what the thread said last
            await trio.to_thread.run_sync(self.store.close)

    def _turn(self) -> bool:
        """Write, tell, flush, dispatch a slice. True: there is more to dispatch."""
        self._write()
        self._flush()
        if self._grew:
            self._grew = False
            for call in tuple(self.grown):
                call()
        for call in tuple(self.settled):
            call()
        return self._dispatch()

    def _write(self) -> None:
        try:
            self.store.write()
        except StoreFailed as error:
            self._failed(error)
        else:
            self._written()

    def _written(self) -> None:
        log = self.store.log
        if self.failure is None and log.written_offset != self.end:
            self.end = log.written_offset
            if not self.sync_flush:
                self.durable_end = self.end
            self._grew = True

    def _failed(self, error: StoreFailed) -> None:
        if self.failure is None:
            self.failure = error
            logger.error("%s", error)
            for call in tuple(self.on_failure):
                call(error)
            self._bell.ring()

    # --- flushing --------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        log = self.store.log
        if self._syncing or self.failure is not None:
            return
        now_ns = self.now_ns()
        if not self._policy.due((now_ns - self._flush_began_ns) / NS_PER_MS, self.end - log.flushed_offset):
            return
        job = log.sync_job()
        if job is None:
            return
        self._syncing, self._flush_began_ns = True, now_ns
        assert self._disk is not None
        self._disk.submit(job.run, lambda error: self._synced(job, error))

    def _synced(self, job: SyncJob, error: OSError | None) -> None:
        """On the loop."""
        self._syncing = False
        log = self.store.log
        if error is not None:
            self._failed(log.sync_failed(error))
            return
        log.flushed(job)
        if self.sync_flush and log.flushed_offset > self.durable_end:
            self.durable_end = log.flushed_offset
            self._grew = True
        self._bell.ring()

    async def _tick(self) -> None:
        while True:
            await trio.sleep(self.config.tick_interval_ms / 1000)
            now_ns = self.now_ns()
            for call in tuple(self.ticks):
                call(now_ns)
            self._bell.ring()

    # --- dispatching -----------------------------------------------------------------------------------------

    def _dispatch(self) -> bool:
        """A slice of what is confirmed. True: there is more."""
        now_ns = self.now_ns()
        if now_ns < self._dispatch_after_ns:
            return False
        try:
            return self.store.dispatch(self.confirm_offset, self.config.dispatch_slice) == self.config.dispatch_slice
        except OSError as error:
            self._dispatch_after_ns = now_ns + RETRY_MS * NS_PER_MS
            logger.warning("consume queues cannot be written, tried again in %d ms: %s", RETRY_MS, error)
            return False
