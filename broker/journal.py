"""The store on the loop: gathers what a turn appends, writes it once, has it flushed, and lets consumers see it.

One task writes, tells and dispatches; on a slave, the task that reads from its master does. One thread syncs. Nothing
here waits for the disk but ``close``. It knows positions of the log, and neither roles nor who waits for what.
Source: ``GroupCommitService``, ``FlushRealTimeService`` and ``ReputMessageService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import enum
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from broker.moments import Moment
from broker.store.consumequeue import Hear
from broker.store.diagnosis import Diagnosis
from broker.store.disk import Disk, DiskThread, Steps
from broker.store.errors import StoreFailed, StoreFull
from broker.store.files import no_room
from broker.store.flush import Flush
from broker.store.flushing import AsyncFlush, FlushPolicy, SyncFlush
from broker.store.health import DiskHealth
from broker.store.log import Raw, Recovered, SyncJob
from broker.store.needed import Needed
from broker.store.queues import Queue
from broker.store.retention import RetentionConfig
from broker.store.store import MessageStore
from broker.store.writing import Put
from broker.veil import Veil
from remoting.errors import DamagedRecord
from remoting.record import Message, Outline
from remoting.wakeup import Bell

logger = logging.getLogger("broker")

NS_PER_MS: Final = 1_000_000
SLOW_MS: Final = 50
"""A turn's write that takes longer is reported."""
RETRY_MS: Final = 1_000
"""Time between two tries of queues that wait for room on the disk."""
_MUCH_BYTES: Final = 16 << 10
"""To make so much visible takes as long as to write some answers."""
CLEANED_QUEUES: Final = 100
"""Queues with messages that are gone, which one tick cleans."""
MENDED: Final = 5_000
"""Messages of the log that one tick looks at for a damaged queue."""
NEVER: Final = 1 << 63
"""A time that does not come, ns."""
PIECE_NS: Final = 1_000_000
"""Time of the loop after which a piece of work begins nothing else. With the last thing that it began, and the
journal's turn for all of them, whoever sends waits 2 to 3 ms."""
PIECE_MAX: Final = 512
"""Messages that one piece looks at, however fast."""


Piece = Callable[[], None]
"""A part of some work that takes a millisecond or two, and asks for the next one itself."""


class Pieces:
    """Work that would hold up the loop as a whole, done in pieces: by ticks, and between turns of the journal."""

    def __init__(self, journal: Journal, work: Callable[[int, int], bool]) -> None:
        """``work`` does a piece: from the first time until the second or a little longer, ns of the loop's clock. It
        returns whether there is work for another piece now."""
        self._journal, self._work = journal, work
        self._at_work = self._asked = False

    def take(self, now_ns: int) -> None:
        """Do a piece now, unless one is asked for."""
        if not self._asked:
            self._do(now_ns)

    def ask(self) -> None:
        """Have a piece done soon. The one at work, if there is one, says itself whether another one follows."""
        if not self._asked and not self._at_work:
            self._asked = True
            self._journal.soon(self._piece)

    def _piece(self) -> None:
        self._asked = False
        self._do(self._journal.now_ns())

    def _do(self, now_ns: int) -> None:
        self._at_work = True
        try:
            more = self._work(now_ns, now_ns + PIECE_NS)
        finally:
            self._at_work = False
        if more:
            self.ask()


class FlushDiskType(enum.Enum):
    """``flushDiskType``: whether a put waits for its sync."""

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
    """Ours: timeouts and intervals are late by at most this. While nothing is due nobody looks."""
    checkpoint_interval_ms: int = 10_000
    """Ours: how often queues and index are flushed, and the checkpoint says so. What lies behind it is told again
    after a crash."""
    dispatch_slice: int = 2_000
    """Ours: messages that are made visible before others get their turn; a few milliseconds' worth."""
    copy_ahead: int = 1_200_000
    """Ours: messages by which the key index may be behind while a log is copied: two seconds' work. Then both go at
    one pace."""
    retention: RetentionConfig = RetentionConfig()
    clean_resource_interval_ms: int = 10_000
    room_interval_ms: int = 1_000
    """Ours: how often the disk is asked for its room."""
    disk_stall_ms: int = 3_000
    """``diskStallMs``, ours: a disk that works at one thing for so long counts as stalled; 0: it never does."""

    @property
    def flush_policy(self) -> FlushPolicy:
        if self.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            return SyncFlush()
        return AsyncFlush(self.flush_interval_commit_log_ms, self.flush_commit_log_least_pages,
                          self.flush_commit_log_thorough_interval_ms)


@attrs.define(eq=False)
class Alarm:
    """Says when ``Journal.ticks`` is called next: soon after something happened, or at the earliest time that a
    listener asked for since the last call. Two calls are at least ``tick_interval_ms`` apart."""

    at_ns: int = 0
    stirs: int = 0
    _seen: int = 0
    """Value of ``stirs`` when the last tick began."""
    _naps: bool = False
    _bell: Bell = attrs.field(factory=Bell)

    def stir(self) -> None:
        self.stirs += 1
        if self._naps:
            self._naps = False
            self._bell.ring()

    @property
    def stirred(self) -> bool:
        """Return whether something happened since the last tick began."""
        return self.stirs != self._seen

    def begin(self) -> None:
        """Begin a tick: its listeners say anew when they are due."""
        self.at_ns, self._seen = NEVER, self.stirs

    async def wait(self, now_ns: int, interval_s: float) -> None:
        nap_s = (self.at_ns - now_ns) / 1e9
        if nap_s <= interval_s or self.stirred:
            await trio.sleep(interval_s)
            return
        self._naps = True
        with trio.move_on_after(nap_s):
            await self._bell.wait()
            await trio.sleep(interval_s)
        self._naps = False


def _now_ns() -> int:
    return int(trio.current_time() * 1e9)


def _wall_ms() -> int:
    return time.time_ns() // NS_PER_MS


class Journal:
    """The store on the loop: ``open`` it, ``run`` it in a nursery, ``close`` it. ``disk``: by default a thread."""

    def __init__(self, store: MessageStore, config: JournalConfig = JournalConfig(), *, disk: Disk | None = None,
                 now_ns: Callable[[], int] = _now_ns, wall_ms: Callable[[], int] = _wall_ms) -> None:
        self._store = store
        self._writer, self._flusher, self._cleaner = store.writer, store.flusher, store.cleaner
        self.mender, self.queue_end = store.mender, store.writer.queue_end
        self.log, self.messages, self.visible, self.trust = store.log, store.messages, store.visible, store.trust
        """Parts of the store, to read from. Changes go through the journal, except those of ``trust``."""
        self.config = config
        self.sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.grown: Moment[[]] = Moment("Journal.grown")
        """Called in the turn in which ``end`` or ``durable_end`` moved; the system has what is below ``end``."""
        self.settled: Moment[[]] = Moment("Journal.settled")
        """Called after all listeners of ``grown``, for those that look at what these concluded."""
        self.arrived = store.arrived
        """Hears of each message that became visible to consumers."""
        self.on_new_queue = store.on_new_queue
        """Hears the topic of each queue that gets its first message."""
        self.noted: Moment[[Outline]] = Moment("Journal.noted")
        """Called with each noted message of the confirmed log, on every replica. Some come again, at a start and when
        the disk was full: ``broker.noted`` hands on each once."""
        store.noted.call = self.noted
        self.was_cut: Moment[[int]] = Moment("Journal.was_cut")
        """Called with the new end when the log was cut; with 0 when it is empty."""
        self.ticks: Moment[[int]] = Moment("Journal.ticks")
        """Called with the time in nanoseconds, as ``Alarm`` says."""
        self.disk_changed: Moment[[]] = Moment("Journal.disk_changed")
        """Called when ``health`` is another."""
        self.on_failure: Moment[[StoreFailed]] = Moment("Journal.on_failure")
        """Called once, when the store has failed for good."""
        self.wrote: Callable[[int], None] = lambda took_ns: None
        """Called after a turn's write that took longer than ``SLOW_MS``."""
        self.cutting: Moment[[int]] = Moment("Journal.cutting")
        """Called with the new end, 0 for all of it, before the log is cut; after an ``OSError`` it is not."""
        self.needed = Needed(partial(logger.warning, "%s"))
        self.veil = Veil()
        self.failure: StoreFailed | None = None
        self.retention = config.retention
        """May be set anew at any time."""
        self.refusing = ""
        """Reason why nothing is appended; "" if all is well."""
        self.copying = False
        """True while ``append_raw`` copies old messages, as fast as possible: the key index may wait, and the system's
        page cache is left to others."""
        self.now_ns = now_ns
        self.end = self.durable_end = self.confirm_offset = 0
        """Three ends of the log: what the system has; what counts as durable (under SYNC_FLUSH only what is flushed);
        what consumers may see."""
        self._wall_ms = wall_ms
        self._appended_ms = 0  # store time of what a turn appends
        self._pieces, self._gathered = deque[Piece](), list[Callable[[], object]]()
        self._policy, self._disk_moved = config.flush_policy, Bell()
        self._disk, self._bell, self._alarm = disk, Bell(), Alarm()
        self._in_turn = self._gathers = self._grew = self._cleaning = self._at_any_hour = False
        self._answers_first = False  # True: dispatch was put off to the next turn
        self._room_due_ns = self._clean_due_ns = self._others_until_ns = 0
        self._syncing = self._flushing = self._deleting = self._trying = False  # the disk is busy with it
        self._diagnosis = Diagnosis(config.disk_stall_ms)
        self._told_health, self._jobs_done, self._steps_done = DiskHealth.WELL, 0, 0
        """The last is counted by the disk's thread."""
        self._flush_began_ns = self._checkpoint_due_ns = self._dispatch_after_ns = 0

    def open(self) -> Recovered:
        """Recover what the last process left; all of it is on disk, and confirmed as far as it was visible. Blocks.

        Raises:
            WrongStore: as ``MessageStore.open``.
        """
        self._store.on_trouble.call = partial(logger.error, "%s")
        found = self._store.open()
        self.end = self.durable_end = self.log.max_offset
        self.confirm_offset = self.visible.offset
        return found

    @property
    def begin(self) -> int:
        return self.log.min_offset

    @property
    def sure_end(self) -> int:
        """No start cuts the log below this offset, even after its machine went down.

        The checkpoint on disk says that all of it was flushed, and none of it is in doubt."""
        flushed, trusted = self._flusher.queues_offset, self.trust.trusted_end
        return flushed if trusted is None else min(flushed, trusted)

    @property
    def health(self) -> DiskHealth:
        """The state of the disk under the store."""
        return self._diagnosis.health

    # --- when it looks ---------------------------------------------------------------------------------------

    def tick_by(self, at_ns: int) -> None:
        """Have ``ticks`` called when that time has come, if not before; 0: next time."""
        self._alarm.at_ns = min(self._alarm.at_ns, at_ns)

    def stir(self) -> None:
        """Have ``ticks`` called soon: something happened, so a listener may be due earlier than it said.

        The journal calls it when the log grew, was cut, synced, confirmed or shown, or begins elsewhere."""
        self._alarm.stir()

    @property
    def stirs(self) -> int:
        """Number of calls of ``stir`` so far."""
        return self._alarm.stirs

    def listen(self, queue: Queue, call: Hear) -> None:
        """Have ``call`` hear of each message of that queue when it is shown; of some again, as of noted ones."""
        self._store.listen(queue, call)

    def soon(self, piece: Piece) -> None:
        """Call ``piece`` once, in a later turn, when others had theirs: for work that would hold up the loop as a
        whole. While others append, pieces get half of the time."""
        self._pieces.append(piece)
        self._bell.ring()

    def before_write(self, put: Callable[[], object]) -> None:
        """Call ``put`` once, at the begin of the next turn: it appends what was gathered until then."""
        self._gathered.append(put)
        self._bell.ring()

    # --- what others do with it ------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message]) -> tuple[Put, ...]:
        """Append all messages or none, one after the other. The system has them in this turn, when ``end`` passes them.

        Raises:
            MessageIllegal: change the message.
            StoreFull: refused until there is room.
            StoreFailed: final.
        """
        if self.refusing:
            raise StoreFull(self.refusing)
        self.number()
        if not self._appended_ms:
            self._appended_ms = self._wall_ms()
        try:
            puts = self._writer.put_all(messages, self._appended_ms)
        except StoreFull:
            self._diagnosis.no_room(self.now_ns())
            raise
        if not self._gathers:
            self._bell.ring()
        return puts

    def number(self) -> None:
        """Work out where queues end in the log, so that ``queue_end`` knows. Raises ``StoreFailed``, ``OSError``."""
        if not self._writer.is_numbered:
            self._stop_flush()
            self._store.take_over()

    def append_raw(self, data: Raw, offset: int) -> None:
        """Append bytes of the master's log. ``end`` is past them at once, and past some of them after ``StoreFull``.

        Raises:
            OffsetGone: there would be a gap, or something overwritten.
            StoreFull, StoreFailed: as ``append``.
        """
        try:
            self._writer.append_raw(data, offset, cached=not self.copying)
        except StoreFull:
            self._diagnosis.no_room(self.now_ns())
            raise
        finally:
            self._written()
            if not self._in_turn:
                self._bell.ring()

    def begin_turn(self) -> None:
        """Do not wake the journal's task for what is appended and confirmed before ``end_turn``."""
        self._in_turn = True

    def end_turn(self) -> None:
        """Do at once what the journal's task would do next: to wake it costs more than a small write."""
        if self._turn():
            self._bell.ring()

    def confirm(self, offset: int) -> None:
        """Let consumers see what ends at or below ``offset``. Only ``truncate`` lowers that."""
        offset = min(offset, self.end)
        if offset > self.confirm_offset:
            self.confirm_offset = offset
            self._moves()

    def _moves(self) -> None:
        self.stir()
        if not self._in_turn:
            self._bell.ring()

    def truncate(self, offset: int, *, everything: bool = False) -> None:
        """Forget what is after ``offset``, a message's boundary. Blocks for a moment.

        With ``everything`` the log becomes empty, and takes whatever offset comes first. Raises ``OffsetGone``,
        ``StoreFailed``, ``OSError``."""
        self._stop_flush()
        self.cutting(0 if everything else offset)
        self._store.truncate(offset, everything=everything)
        self.end = self.log.max_offset
        self.durable_end = self.end  # a cut syncs
        self.confirm_offset = min(self.confirm_offset, self.end)
        self.was_cut(0 if everything else self.end)
        self._grew = True
        self._bell.ring()
        self.stir()

    def _stop_flush(self) -> None:
        self._flusher.cancel()
        if self._disk is not None:
            self._disk.settle()

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes, never beyond a file or the end. Raises ``OffsetGone``."""
        return self.log.read(offset, size)

    def begin_queues(self, ends: Mapping[Queue, int]) -> None:
        """Begin queues that never had a message here at those ends: other replicas had some. Raises ``OSError``."""
        self._writer.begin_queues(ends)
        self._checkpoint_due_ns = 0  # no message of the log tells it again after a crash
        self._bell.ring()

    @property
    def queues_flushed(self) -> bool:
        """Return whether everything that queues hold, such as where they begin, is on disk."""
        return self._flusher.is_level

    def delete_topics(self, topics: Iterable[bytes]) -> int:
        """Destroy the queues of these topics; returns how many. Their messages stay in the log until they are old."""
        count = self._store.delete_topics(topics)
        self._checkpoint_due_ns = 0  # until then a crash would bring them back
        self.stir()
        return count

    def clean_queues(self) -> None:
        """Clean all queues at once of entries whose messages are gone."""
        self._cleaner.clean()

    def delete_old_files(self) -> None:
        """Delete old files once, as if it were the hour of ``deleteWhen``."""
        self._at_any_hour = True
        self._clean_due_ns = 0
        self.stir()

    # --- its task --------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write, sync, dispatch and clean until cancelled."""
        if self._disk is None:
            self._disk = DiskThread(trio.lowlevel.current_trio_token().run_sync_soon)
        now_ns = self.now_ns()
        self._flush_began_ns = now_ns
        self._checkpoint_due_ns = now_ns + self.config.checkpoint_interval_ms * NS_PER_MS
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_ticking)
            task_status.started()
            while True:
                await self._bell.wait()
                if self._turn():
                    self._bell.ring()
                    await trio.lowlevel.checkpoint()
                    if self._answers_first or self._pieces:  # answers are written meanwhile, and requests read
                        await trio.lowlevel.checkpoint()

    async def sync(self) -> None:
        """Return when the disk has all that the log has now, or has failed. From now on it is synced without delay."""
        self._policy, target = SyncFlush(), self.log.max_offset
        self._bell.ring()
        while self.failure is None and self.log.flushed_offset < min(target, self.log.max_offset):
            await self._disk_moved.wait()

    async def close(self) -> None:
        """Write and flush all, and note that the store was closed in order. ``run`` must have ended.

        Not if the disk has failed, or fails now: ``failure`` says so. Raises ``OSError`` when queues or index cannot be
        flushed: the next process builds them again."""
        with trio.CancelScope(shield=True):
            self._write()
            await self._close_disk()
            try:
                if self.failure is None:
                    await self._close_store()
                    return
            except StoreFailed as error:
                self._fail(error)
            except OSError:
                self._store.abandon()
                raise
            self._store.abandon()

    async def _close_store(self) -> None:
        if self._disk is None or self._disk.inline:
            self._store.close()
        else:
            await trio.to_thread.run_sync(self._store.close)

    async def abandon(self) -> None:
        """Release the files as they are, as if the process had been killed. ``run`` must have ended."""
        with trio.CancelScope(shield=True):
            await self._close_disk()
            self._store.abandon()

    async def _close_disk(self) -> None:
        self._flusher.cancel()
        if self._disk is not None and not self._disk.inline:
            await trio.to_thread.run_sync(self._disk.close)
            while self._is_disk_busy:  # the disk is done, and its last word is still on the way to the loop
                await trio.lowlevel.checkpoint()

    def _turn(self) -> bool:
        """Write, tell, have flushed, dispatch a slice. True: there is more to dispatch."""
        self._in_turn = True
        self._appended_ms = 0
        if self._pieces and not self._answers_first:
            self._take_piece()
        self._write()
        self._sync()
        if self._grew:
            self._grew = False
            self.grown()
        self.settled()
        self._answers_first = not self._answers_first and self._is_much_to_show()
        more = self._answers_first or self._dispatch()
        if self.veil.on:
            self._look_at_veil()
        self._in_turn = False
        return more or bool(self._pieces)

    def _take_piece(self) -> None:
        """Call one piece, unless others appended something and had less time since the last piece than that took."""
        began_ns = self.now_ns()
        if self.log.max_offset == self.end or began_ns >= self._others_until_ns:
            self._pieces.popleft()()
            ended_ns = self.now_ns()
            self._others_until_ns = ended_ns + ended_ns - began_ns

    def _is_much_to_show(self) -> bool:
        """Return whether there is so much to show that answers come first. A replica that copies answers nobody."""
        return (self.confirm_offset - self.visible.offset > _MUCH_BYTES
                and self._writer.is_numbered and not self._dispatch_after_ns)

    def _write(self) -> None:
        if self._gathered:
            self._gathers, gathered, self._gathered = True, self._gathered, []
            for put in gathered:
                put()
            self._gathers = False
        began_ns = self.now_ns()
        try:
            self.log.write()
        except StoreFailed as error:
            self._fail(error)
        else:
            self._written()
        took_ns = self.now_ns() - began_ns
        if took_ns > SLOW_MS * NS_PER_MS:
            self.wrote(took_ns)

    def _written(self) -> None:
        log = self.log
        if self.failure is None and log.written_offset != self.end:
            self.end = log.written_offset
            # A master's first append cuts off the part of a message, so the log may be shorter now. One that has begun
            # and found no room has nothing to sync: its begin is its end.
            durable = max(min(self.durable_end, log.flushed_offset), log.min_offset)
            self.durable_end = durable if self.sync_flush else self.end
            self.confirm_offset = min(self.confirm_offset, self.end)
            self._grew = True
            self._alarm.stir()

    def _fail(self, error: StoreFailed) -> None:
        if self.failure is None:
            self.failure = error
            self._disk_moved.ring()
            logger.error("%s", error)
            try:
                self.trust.distrust()
            except OSError as refused:
                logger.error("the note that the disk failed cannot be written, so the next start may trust a log that "
                             "lost its end: %s", refused)
            self.on_failure(error)
            self._bell.ring()

    def _tick(self) -> None:
        now_ns, something = self.now_ns(), self._alarm.stirred
        self._alarm.begin()
        self._look_at_disk(now_ns)
        self.ticks(now_ns)
        self._flush(now_ns)
        self._clean(now_ns)
        if self.mender.is_busy and self.failure is None:
            self.mender.step(MENDED)
        busy = self._is_busy
        self.tick_by(0 if busy else min(self._room_due_ns, self._clean_due_ns, self._checkpoint_due_ns))
        if busy or something or self._alarm.stirred:  # else a turn would find nothing
            self._bell.ring()

    @property
    def _is_busy(self) -> bool:
        """Return whether work of the journal's is under way, or waits to be tried again."""
        return (self._is_disk_busy or self._cleaning or self.mender.is_busy or self.veil.on
                or self.log.flushed_offset != self.end or self.visible.offset != self.confirm_offset
                or self._diagnosis.health is not DiskHealth.WELL) and self.failure is None

    async def _keep_ticking(self) -> None:
        interval_s = self.config.tick_interval_ms / 1_000
        while True:
            await self._alarm.wait(self.now_ns(), interval_s)
            self._tick()

    # --- what consumers see ----------------------------------------------------------------------------------

    def _dispatch(self) -> bool:
        """Show consumers a slice of what is confirmed. True: there is more."""
        if self._dispatch_after_ns and self.now_ns() < self._dispatch_after_ns:
            return False
        before = self.visible.offset
        try:
            more = self.visible.advance_some(self.confirm_offset, self.config.dispatch_slice,
                                             aside=self.config.copy_ahead if self.copying else 0)
        except OSError as error:
            self._dispatch_after_ns = self.now_ns() + RETRY_MS * NS_PER_MS
            self._refused(error)
            logger.warning("consume queues or index cannot be written, tried again in %d ms: %s", RETRY_MS, error)
            return False
        except DamagedRecord as damage:
            self._fail(StoreFailed(f"the log cannot be read: {damage}; restart the broker"))
            return False
        self._dispatch_after_ns = 0
        if self.visible.offset != before:
            self.stir()
        return more

    def _look_at_veil(self) -> None:
        """Lift the veil when consumers see all that it hid."""
        seen = self.visible.offset
        if seen >= self.veil.below or (self.confirm_offset >= self.veil.below and next(
                self.log.scan(seen, self.veil.below, check_crc=False), None) is None):
            self.veil.lift()

    # --- the disk --------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Start a sync of the log, if one is due."""
        log = self.log
        if self._syncing or self.failure is not None or log.flushed_offset == self.end:
            return
        now_ns = self.now_ns()
        if not self._policy.due((now_ns - self._flush_began_ns) / NS_PER_MS, self.end - log.flushed_offset):
            return
        job = log.sync_job()
        if job is not None:
            self._syncing, self._flush_began_ns = True, now_ns
            assert self._disk is not None, "its task runs"
            self._disk.submit(job.run, lambda error: self._synced(job, error))

    def _synced(self, job: SyncJob, error: OSError | None) -> None:
        """The log was synced or could not be; called on the loop."""
        self._syncing = False
        self._jobs_done += 1
        self._disk_moved.ring()
        log = self.log
        if error is not None:
            self._fail(log.sync_failed(error))
            return
        log.flushed(job)
        if self.sync_flush and log.flushed_offset > self.durable_end:
            self.durable_end = log.flushed_offset
            self._grew = True
        self._moves()

    def _flush(self, now_ns: int) -> None:
        """Start a flush of queues, index and checkpoint, if one is due."""
        if self._flushing or self.failure is not None or (
                now_ns < self._checkpoint_due_ns and not self._flusher.is_due):
            return
        self._checkpoint_due_ns = now_ns + self.config.checkpoint_interval_ms * NS_PER_MS
        try:
            flush = self._flusher.begin()
        except OSError as error:
            self._flushed(None, error)
            return
        self._flushing = True
        assert self._disk is not None, "its task runs"
        self._disk.submit_steps(self._counted(flush.steps()), lambda error: self._flushed(flush, error))

    def _flushed(self, flush: Flush | None, error: OSError | None) -> None:
        """A flush of queues and index ended; called on the loop."""
        self._flushing = False
        self._jobs_done += 1
        if flush is not None:
            self._flusher.end(flush)
        if error is not None:
            self._refused(error)
            logger.warning("consume queues, index or checkpoint were not flushed: %s", error)

    def _clean(self, now_ns: int) -> None:
        """Delete what is old, if it is due."""
        if self._cleaning:
            self._cleaning = self._cleaner.clean(CLEANED_QUEUES)
        if self._deleting or now_ns < self._clean_due_ns:
            return
        self._clean_due_ns = now_ns + self.config.clean_resource_interval_ms * NS_PER_MS
        wall_ms = self._wall_ms()
        hour, retention = time.localtime(wall_ms / 1000).tm_hour, self.retention
        if self._at_any_hour:
            self._at_any_hour, retention = False, attrs.evolve(retention, delete_when=str(hour))
        try:
            count, offset = self._cleaner.old(retention, wall_ms, hour)
        except OSError as error:
            logger.warning("the room on the disk is not known: %s", error)
            return
        try:
            offset = self.needed.spare(offset if count else 0)
        except OSError as error:
            logger.warning("old files of the log stay: what parts need of them cannot be read: %s", error)
            return
        if offset >= self.log.file_bytes + self.begin - self.begin % self.log.file_bytes:
            steps = self._cleaner.release_before(offset)
            logger.info("files of the log below %d are deleted", self.begin)
            self._deleting = self._cleaning = True
            assert self._disk is not None, "its task runs"
            self._disk.submit_steps(self._counted(steps), self._deleted)

    def _deleted(self, error: OSError | None) -> None:
        """Old files are gone or could not be deleted; called on the loop."""
        self._deleting = False
        self._jobs_done += 1
        self.stir()
        if error is not None:
            logger.warning("an old file of the log was not deleted: %s", error)

    # --- its health ------------------------------------------------------------------------------------------

    @property
    def _is_disk_busy(self) -> bool:
        return self._syncing or self._flushing or self._deleting or self._trying

    def _counted(self, steps: Steps) -> Steps:
        """Count steps as they end, in the disk's own thread."""
        for _ in steps:
            self._steps_done += 1
            yield

    def _look_at_disk(self, now_ns: int) -> None:
        """Note how the disk does; each ``room_interval_ms`` look at its free room, too."""
        if now_ns >= self._room_due_ns:
            interval_ns = self.config.room_interval_ms * NS_PER_MS
            self._room_due_ns = now_ns - now_ns % interval_ns + interval_ns
            self._look_for_room()
        diagnosis, busy = self._diagnosis, self._is_disk_busy
        diagnosis.look(now_ns, busy=busy, pieces=self._jobs_done + self._steps_done, refuses=bool(self.refusing))
        if not busy and diagnosis.due(now_ns):
            self._trying = True
            assert self._disk is not None, "its task runs"
            self._disk.submit(self._cleaner.try_disk, partial(self._tried, now_ns))
        if diagnosis.health is not self._told_health:
            self._told_health = diagnosis.health
            trouble = diagnosis.health.value
            logger.log(logging.WARNING if trouble else logging.INFO, "the disk is %s", trouble or "well again")
            self.disk_changed()

    def _look_for_room(self) -> None:
        try:
            refusal = self._cleaner.refusal(self.retention, refuses=bool(self.refusing))
        except OSError as error:
            logger.warning("the room on the disk is not known: %s", error)
            return
        if bool(refusal) != bool(self.refusing):
            logger.log(logging.WARNING if refusal else logging.INFO, "%s",
                       refusal or "the disk has room again: messages are written")
        self.refusing = refusal and refusal + self.needed.refusal(self.begin)

    def _refused(self, error: OSError) -> None:
        if no_room(error):
            self._diagnosis.no_room(self.now_ns())

    def _tried(self, began_ns: int, error: OSError | None) -> None:
        """A try of the disk is over: note its outcome. Runs on the event loop."""
        self._trying = False
        self._jobs_done += 1
        self._diagnosis.tried(
            began_ns, self.now_ns(), room=error is None or not no_room(error), works=error is None)
