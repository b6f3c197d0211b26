"""Writes to the log's disk: takes all writes that wait, puts them into one block, syncs once and reports once.

``LogWriter`` is a long-lived thread beside an event loop; ``InlineWriter`` does the same on the loop, for simulated
disks and deterministic tests. Both know tokens and sync policies, and nothing of terms or of what is written. They
talk to the loop through ``call_soon`` alone (``trio.lowlevel.TrioToken.run_sync_soon`` fits).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

import attrs

from raft.config import Sync
from raft.errors import DamagedLog, DiskFull, StorageError, WriteFailed
from raft.messages import Write
from raft.storage.inlining import InlinePolicy
from raft.storage.interface import EarlyAck, Storage


class CallSoon(Protocol):
    """Run a function on the event loop, from any thread, in the order of the calls."""

    def __call__(self, function: Callable[..., object], /, *args: Any) -> object: ...


@attrs.frozen
class WriterEvents:
    """Reports of the writer. It calls them on the event loop, and never from inside a call to the writer."""

    durable: Callable[[Mapping[int, int]], object]
    """By group: the last token that counts as durable under the policy."""
    disk_full: Callable[[], object]
    """No write behind the last durable token was kept. Only what is submitted from here on is tried again."""
    failed: Callable[[StorageError], object]
    """The disk failed, for good."""
    kept: Callable[[Mapping[int, int]], object] = lambda groups: None
    """These groups keep the oldest segment of a log that should be shorter, with so many bytes at least."""
    damaged: Callable[[Mapping[int, DamagedLog]], object] = lambda groups: None
    """All groups that are known by now to have damaged entries. No write of theirs counts as durable any more."""


class _Stop:
    """Ends the thread, after all that was submitted before it."""


class _Resume:
    """Marks in the queue where the loop knew that the disk is full: writes behind it were submitted after that."""


SCRUB_BYTES: Final = 128 << 10
SCRUB_PAUSE_S: Final = 0.25
"""Half a megabyte a second, about one part in a hundred of a core."""
RETRY_S: Final = 1.0
"""Time until a full disk is asked for a spare segment again."""
REPORT_LATE_S: Final = 0.001
"""Time that a report waits for the loop to wake by itself, if all acknowledgements have left already."""
_STOP: Final = _Stop()
_RESUME: Final = _Resume()
_Acked = tuple[Write, EarlyAck | None]
_Item = Write | _Acked | _Stop | _Resume


def _last_tokens(writes: list[Write]) -> dict[int, int]:
    if len(writes) == 1:
        return {writes[0].group: writes[0].token}
    return {write.group: write.token for write in writes}


def _send_early_acks(acked: list[_Acked]) -> bool:
    """Send the last acknowledgement of each group; returns whether all of them left."""
    left = True
    for ack in {write.group: ack for write, ack in acked if ack is not None}.values():
        left = ack.send() and left
    return left


class Worker:
    """A thread for what may take long beside the writer: ``submit`` a function, its result goes to a callback."""

    def __init__(self, call_soon: CallSoon, name: str) -> None:
        self._call_soon = call_soon
        self._queue: SimpleQueue[tuple[Callable[[], object], Callable[[object], object] | None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], object], callback: Callable[[object], object] | None = None) -> None:
        """Run ``function`` there; ``callback`` gets what it returns, or the exception it raised, on the loop."""
        self._queue.put((function, callback))

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            function, callback = item
            try:
                result = function()
            except Exception as error:  # noqa: BLE001 - the callback gets it
                result = error
            if callback is not None:
                self._call_soon(callback, result)

    def close(self) -> None:
        """Finish what was submitted. Blocks. Idempotent."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()


class LogWriter:
    """A thread that writes; ``submit`` never blocks. Two more help: one prepares segments, one scrubs them once.

    *Group commit*: all that waits when a sync ends goes into the next block, so that the cost of a sync is shared by as
    many writes as came during the one before. No timer gathers them: a lone write never waits for company.

    *Early acknowledgements*: a follower's acknowledgement waits for its sync and for nothing else, but the loop that
    would send it has to be woken first. So ``submit_with_ack`` hands the message over with the write, and this thread
    sends it itself (``EarlyAck``) as soon as the write is durable; of several of one group in one turn only the last,
    which acknowledges all that those before it do.

    *Reporting late*: a turn of such writes, all acknowledgements sent, goes to ``reports`` and wakes nobody. The loop
    fetches it with ``report`` when it is up anyway, sets ``report_now`` when it comes to need it (and looks for itself
    then), and is woken for it ``REPORT_LATE_S`` later at most.

    ``write_inline`` writes and syncs one frame of one entry without the thread, while that rests and ``InlinePolicy``
    allows it. The loop stands still meanwhile: for a stall, once, until that ends.
    """

    def __init__(
        self, storage: Storage, call_soon: CallSoon, events: WriterEvents, *, sync: Sync = Sync.ALWAYS,
        interval_ms: int = 10, scrub: bool = True, loop_max_ms: int = 0, clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._storage, self._call_soon, self._events = storage, call_soon, events
        self._sync, self._interval_s = sync, interval_ms / 1e3
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._handed = self._done = 0
        """Items put into the queue, and those that the thread has dealt with: it rests when they are as many."""
        self._clock = clock
        self.inlining = InlinePolicy(loop_max_ms / 1e3 if sync is Sync.ALWAYS else 0.0)
        self.reports: deque[Mapping[int, int]] = deque()
        """Tokens that are durable, in order, until the loop fetches them."""
        self.report_now = False
        """Set by the loop: wake it for every report."""
        self._report_later = False
        """True: there are reports of which the loop was not told yet."""
        self._failed = self._full = False
        self._due = 0.0
        self._damaged: Mapping[int, DamagedLog] = {}
        """Damage that the loop was told of."""
        self._maintaining = False
        self._maintain_after = 0.0
        self.worker = Worker(call_soon, "raft-storage-worker")
        self._thread = threading.Thread(target=self._run, name="raft-log-writer", daemon=True)
        self._closing = threading.Event()
        self._scrubber: threading.Thread | None = None
        if storage.needs_maintenance:
            self._prepare()
        self._thread.start()
        if scrub:
            self._scrubber = threading.Thread(target=self._scrub, name="raft-storage-scrub", daemon=True)
            self._scrubber.start()

    def submit(self, write: Write) -> None:
        """Hand over a write; tokens of a group must rise."""
        self._put(write)

    def submit_with_ack(self, write: Write, ack: EarlyAck | None) -> None:
        """Hand over a write, with an acknowledgement that leaves as soon as it is durable: nobody else waits for it."""
        self._put((write, ack))

    def _put(self, item: _Item) -> None:
        self._handed += 1
        self._queue.put(item)

    def takes_inline(self, write: Write) -> bool:
        """Return whether ``write_inline`` may be called with this write now."""
        return (self.inlining.allows(write) and self._handed == self._done and not self._full and not self._failed
                and self._storage.only_appends(len(write.frames[0].data)))

    def write_inline(self, write: Write) -> bool:
        """Called on the loop: write and sync this now. Whether it is durable; if not, the events will tell why."""
        return self._write([write]) and write.group not in self._storage.damaged

    def report(self) -> None:
        """Called on the loop: tell what is durable."""
        while self.reports:
            self._events.durable(self.reports.popleft())

    def close(self) -> None:
        """Write and sync what was submitted, then end both threads. Blocks. Idempotent."""
        if self._thread.is_alive():
            self._put(_STOP)
            self._thread.join()
        self.worker.close()
        self._closing.set()
        if self._scrubber is not None:
            self._scrubber.join()

    def _run(self) -> None:
        queue, running = self._queue, True
        while running:
            writes: list[Write] = []
            acked: list[_Acked] = []
            items = self._take(queue)
            for item in items:
                if type(item) is Write:
                    writes.append(item)
                elif type(item) is tuple:
                    writes.append(item[0])
                    acked.append(item)
                elif item is _STOP:
                    running = False
                else:
                    # Earlier writes were submitted before the loop knew; they are lost, as it was told.
                    writes.clear()
                    acked.clear()
                    self._full = False
            if writes and not self._failed and not self._full:
                self._commit(writes, acked)
            elif self._due and not self._failed and time.monotonic() >= self._due:
                self._guarded_sync()
            self._done += len(items)
        if self._due and not self._failed:
            self._guarded_sync()

    def _take(self, queue: SimpleQueue[_Item]) -> list[_Item]:
        """Take all that waits in the queue; under the interval policy wait no longer than until the next sync."""
        if self._due or self._report_later:
            patience = max(0.0, self._due - time.monotonic()) if self._due else REPORT_LATE_S
            try:
                first = queue.get(timeout=min(patience, REPORT_LATE_S) if self._report_later else patience)
            except Empty:
                if self._report_later:
                    self._report_later = False
                    self._call_soon(self.report)
                return []
        else:
            first = queue.get()
        waiting = queue.qsize()
        if not waiting:
            return [first]
        return [first, *(queue.get() for _ in range(waiting))]

    def _write(self, writes: list[Write]) -> bool:
        """Write, and sync as the policy says. Whether that went well; if not, the loop is told."""
        storage, began = self._storage, self._clock()
        try:
            storage.write(writes)
            if self._sync is Sync.ALWAYS or any(write.purge_to for write in writes):
                storage.sync()  # purging waits for a sync, whatever the policy
            elif self._sync is Sync.INTERVAL and not self._due:
                self._due = time.monotonic() + self._interval_s
        except DiskFull:
            self._full = True
            self._call_soon(self._tell_full)
            return False
        except Exception as error:  # noqa: BLE001 - a bug here must stop the node as a broken disk does, not the thread
            self._fail(error)
            return False
        self.inlining.took(self._clock() - began)
        self._tell_damaged()
        return True

    def _tell_damaged(self) -> None:
        damaged = self._storage.damaged
        if damaged != self._damaged:
            self._damaged = damaged
            self._call_soon(self._events.damaged, damaged)

    def _commit(self, writes: list[Write], acked: list[_Acked]) -> None:
        if not self._write(writes):
            return
        storage = self._storage
        if damaged := storage.damaged:
            writes = [write for write in writes if write.group not in damaged]
            acked = [each for each in acked if each[0].group not in damaged]
        later = bool(acked) and _send_early_acks(acked) and len(acked) == len(writes)
        self.reports.append(_last_tokens(writes))
        self._report_later = later and not self.report_now
        if not self._report_later:
            self._call_soon(self.report)
        if self._due and time.monotonic() >= self._due:
            self._guarded_sync()
        if storage.needs_maintenance and not self._maintaining:
            if not self._maintain_after or time.monotonic() >= self._maintain_after:
                self._prepare()

    def _guarded_sync(self) -> None:
        self._due = 0.0
        try:
            self._storage.sync()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed = True
        if not isinstance(error, StorageError):
            wrapped = WriteFailed(f"the writer stopped: {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            error = wrapped
        self._call_soon(self._tell_failed, error)

    def _tell_failed(self, error: StorageError) -> None:
        """Called on the loop when a write has failed."""
        self.report()
        self._events.failed(error)

    def _tell_full(self) -> None:
        """Called on the loop, which must know what was kept before it gives up all the rest."""
        self.report()
        self._put(_RESUME)
        self._events.disk_full()

    def _scrub(self) -> None:
        """Read all sealed segments once, slowly, from the oldest on. Damage is reported as a failure."""
        try:
            for _ in self._storage.scrub(step_bytes=SCRUB_BYTES):
                if self._closing.wait(SCRUB_PAUSE_S):
                    return
        except StorageError as error:
            self._call_soon(self._events.failed, error)
        except OSError as error:  # a sector that cannot be read is damage as well
            self._call_soon(self._events.failed, DamagedLog("log", 0, f"a sealed segment cannot be read: {error}"))

    def _prepare(self) -> None:
        self._maintaining = True
        self.worker.submit(self._maintained)

    def _maintained(self) -> None:
        try:
            self._maintain_after = 0.0 if self._storage.maintain() else time.monotonic() + RETRY_S
            if groups := self._storage.too_large:
                self._call_soon(self._events.kept, groups)
            self._tell_damaged()
        finally:
            self._maintaining = False


class InlineWriter:
    """Writes on the event loop itself: gathers what one pass of the loop submits, then writes and syncs at once."""

    def __init__(
        self, storage: Storage, call_soon: CallSoon, events: WriterEvents, *, sync: Sync = Sync.ALWAYS,
        interval_ms: int = 10,
    ) -> None:
        self._storage, self._call_soon, self._events, self._sync = storage, call_soon, events, sync
        self._writes: list[Write] = []
        self._failed = False

    def submit(self, write: Write) -> None:
        """Hand over a write; it is written when the loop comes round."""
        if not self._writes:
            self._call_soon(self.flush)
        self._writes.append(write)

    def flush(self) -> None:
        """Write now what was submitted."""
        writes, self._writes = self._writes, []
        if not writes or self._failed:
            return
        try:
            self._storage.write(writes)
            if self._sync is not Sync.NEVER or any(write.purge_to for write in writes):
                self._storage.sync()
        except DiskFull:
            self._events.disk_full()
        except StorageError as error:
            self._failed = True
            self._events.failed(error)
        else:
            damaged = self._storage.damaged
            self._events.durable(_last_tokens([write for write in writes if write.group not in damaged]))
            if damaged:
                self._events.damaged(damaged)
            if groups := self._storage.too_large:
                self._events.kept(groups)

    def close(self) -> None:
        """Write what was submitted, and end."""
        self.flush()
