"""One put from request to status: gate, append, flush, acknowledgements. Every put is answered once.

A put that waits for nothing is answered when the system has it, so it survives the death of this process. It knows
whether this broker may write and what a put needs, and neither requests nor connections.
Source: ``CommitLog.asyncPutMessage`` and ``handleDiskFlushAndHA`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.ha.acks import (
    Deny,
    Holders,
    Mode,
    Need,
    PutQueue,
    PutStatus,
    QuorumConfig,
    Replicas,
    needed_acks,
)
from broker.journal import NS_PER_MS, Journal
from broker.store.errors import StoreFailed, StoreFull
from broker.store.writing import Put
from remoting.errors import MessageIllegal
from remoting.record import PROPERTIES_BYTES_MAX, Message

logger = logging.getLogger("broker")

T = TypeVar("T")


class Replication(Protocol):
    """The kind of group, how many replicas there are, and which hold what. Read at each put, so it is cheap to read.

    The implementation also calls ``Journal.confirm``."""

    @property
    def mode(self) -> Mode: ...

    @property
    def holders(self) -> Holders: ...

    def replicas(self) -> Replicas: ...


class PutResult(NamedTuple):
    """How a put ended. ``puts``: where each message stands, if the status means that it was written."""

    status: PutStatus
    puts: tuple[Put, ...] = ()
    remark: str = ""

    @property
    def end(self) -> int:
        """End in the log of what was written; 0: nothing was, or into another log."""
        return self.puts[-1].offset + self.puts[-1].size if self.puts else 0

    @property
    def words(self) -> str:
        """The status, and why, if that is known."""
        return f"{self.status.name} {self.remark}".rstrip()


class NotTaken(PutResult):
    """Nothing was stored, because of this very message: another one may be stored."""


Done = Callable[[PutResult], None]
WRITTEN: Final = (PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE)
"""It is in the log and not acknowledged yet: who puts it again stores it twice."""
HELD_MAX: Final = 10_000
HELD_BYTES_MAX: Final = 128 << 20
"""Limits for puts that a new master holds while replicas join: count, and bytes of bodies and properties."""
UNFLUSHED_MAX: Final = 100_000
UNFLUSHED_BYTES_MAX: Final = 128 << 20
"""Limits for puts that wait for a sync of the disk: count, and bytes of the log. More are refused, as a Java broker
with a busy disk does."""


class _Waiting:
    """A put that was appended."""

    __slots__ = ("began_ns", "done", "end", "need", "puts", "status")

    def __init__(self, done: Done, puts: tuple[Put, ...], need: Need, began_ns: int) -> None:
        self.done, self.puts, self.need, self.began_ns = done, puts, need, began_ns
        self.end = puts[-1].offset + puts[-1].size
        self.status = PutStatus.PUT_OK
        """Outcome of its flush. A bad outcome of its acknowledgements counts more."""

    def finish(self, status: PutStatus = PutStatus.PUT_OK, remark: str = "") -> None:
        try:
            self.done(PutResult(self.status if status is PutStatus.PUT_OK else status, self.puts, remark))
        except Exception:  # a caller's defect must not cost other puts their answers
            logger.exception("the answer to a put at offset %d", self.end)


NOT_SERVING: Final = "this broker is not the master of its group"
LEASE_OVER: Final = "no active controller has renewed this master's lease"


def _always(now_ns: int) -> bool:
    return True


def _size(messages: Sequence[Message]) -> int:
    """Bytes that count for ``HELD_BYTES_MAX``."""
    return sum(len(each.body) + len(each.properties) for each in messages)


class Outlet(Protocol):
    """The way for a part to put what it delivers by itself."""

    def put(self, messages: Sequence[Message], done: Done) -> None:
        """Put all of ``messages``, one at least; ``done`` is called once, perhaps before this returns."""
        ...


class Rightful:
    """An outlet for as long as its owner may deliver. It is asked at each put: the process may have been stopped."""

    def __init__(self, outlet: Outlet, why_not: Callable[[int], str], now_ns: Callable[[], int]) -> None:
        """``why_not`` is asked with the time; "": it may."""
        self._outlet, self._why_not, self._now_ns = outlet, why_not, now_ns

    def put(self, messages: Sequence[Message], done: Done) -> None:
        why = self._why_not(self._now_ns())
        if why:
            done(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=why))
        else:
            self._outlet.put(messages, done)


class Stored(Generic[T]):
    """What was written, and not acknowledged in time: it is not put again, but done once it is confirmed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._waits: deque[tuple[int, T]] = deque()

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, result: PutResult, what: T) -> None:
        assert result.puts, "it was written"
        self._waits.append((result.end, what))

    def confirmed(self) -> Iterator[T]:
        """Take what is confirmed by now, and as durable as puts are, one after the other."""
        sure = min(self._journal.confirm_offset, self._journal.durable_end)
        while self._waits and self._waits[0][0] <= sure:
            yield self._waits.popleft()[1]

    def clear(self) -> None:
        self._waits.clear()


class Puts:
    """Writes puts to ``journal`` and answers each; closed until ``serve``."""

    def __init__(self, journal: Journal, config: QuorumConfig, *, sync_flush_timeout_ms: int = 5_000) -> None:
        self._journal = journal
        self.configure(config, sync_flush_timeout_ms=sync_flush_timeout_ms)
        self._replication: Replication | None = None
        self.first: Callable[[bool], PutResult | None] | None = None
        """Puts what must stand in front of the next message, with its ``wait_store_ok``; returns the refusal of both.
        None: there is nothing."""
        self._reason = NOT_SERVING
        self._may: Callable[[int], bool] = _always
        self._young_until_ns = 0
        self._held: deque[tuple[Sequence[Message], Done]] = deque()
        """Puts that are held, in order of arrival, until the replicas that they need are in sync."""
        self._held_bytes = 0
        self._unwritten: deque[_Waiting] = deque()
        self._unflushed: deque[_Waiting] = deque()
        self._unacknowledged = PutQueue(self._end)
        journal.settled.join("puts", self._settle)
        journal.ticks.join("puts", self._expire)

    # --- who may write ---------------------------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        return self._replication is not None

    @property
    def closed(self) -> str:
        """Reason why no puts are taken now; "" while puts are taken."""
        if not self.serving:
            return self._reason
        return "" if self._may(self._journal.now_ns()) else LEASE_OVER

    def serve(self, replication: Replication, may: Callable[[int], bool] = _always) -> None:
        """Write and acknowledge from now on, as long as ``may`` is true of the time: this broker is master.

        A process that was stopped may read requests before its timers run out, so ``may`` is asked each time."""
        self._replication, self._may = replication, may
        self._young_until_ns = self._journal.now_ns() + self._config.young_master_hold_ms * NS_PER_MS

    def fence(self, reason: str) -> None:
        """Close writes. Puts that wait end as ``FLUSH_SLAVE_TIMEOUT``: nobody knows which replicas will hold them."""
        self._replication, self._reason = None, reason
        waiting = [*self._unwritten, *self._unflushed]
        self._unwritten.clear()
        self._unflushed.clear()
        for put in waiting:
            put.finish(PutStatus.FLUSH_SLAVE_TIMEOUT, reason)
        self._unacknowledged.fail_all()
        self._release()

    def configure(self, config: QuorumConfig, *, sync_flush_timeout_ms: int) -> None:
        """Set what puts need from now on. Puts that wait keep the demand under which they came."""
        self._config = config
        self._sync_flush_timeout_ns = sync_flush_timeout_ms * NS_PER_MS
        self._slave_timeout_ns = config.slave_timeout_ms * NS_PER_MS

    # --- one put ---------------------------------------------------------------------------------------------

    def put(self, messages: Sequence[Message], done: Done, *, wait_store_ok: bool = True, hold: bool = True) -> None:
        """Put all of ``messages`` (one at least) or none; ``done`` is called once, perhaps before this returns.

        ``hold``: a young master may hold them. One that does not wait for its storing goes before those that are held.
        """
        if not messages:
            return done(PutResult(PutStatus.MESSAGE_ILLEGAL, remark="a batch without a message"))
        replication, journal = self._replication, self._journal
        if replication is None:
            return done(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=self._reason))
        now_ns = journal.now_ns()  # at each put, since the process may be stopped between two puts of a turn
        if not self._may(now_ns):
            return done(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=LEASE_OVER))
        need = needed_acks(replication.mode, self._config, replication.replicas(), wait_store_ok)
        if isinstance(need, Deny):
            if hold and now_ns < self._young_until_ns and len(self._held) < HELD_MAX and self._held_bytes + (
                    size := _size(messages)) <= HELD_BYTES_MAX:
                self._held.append((messages, done))
                self._held_bytes += size
                journal.stir()
                return None
            return done(PutResult(
                PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
                remark=f"{need.have} replicas are in sync, {need.need} are needed: nothing was written"))
        if self.first is not None and (refusal := self.first(wait_store_ok)) is not None:
            return done(refusal)
        if self._held and wait_store_ok:
            self._release()  # held puts came first
        if wait_store_ok and (busy := self._disk_is_busy()):
            return done(PutResult(PutStatus.OS_PAGE_CACHE_BUSY, remark=busy))
        try:
            puts = journal.append(messages)
        except MessageIllegal as error:
            status = PutStatus.MESSAGE_ILLEGAL
            if any(len(message.properties) > PROPERTIES_BYTES_MAX for message in messages):
                status = PutStatus.PROPERTIES_SIZE_EXCEEDED
            return done(PutResult(status, remark=str(error)))
        except (StoreFull, StoreFailed) as error:
            return done(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark=str(error)))
        waiting = _Waiting(done, puts, need, now_ns)
        if journal.sync_flush and wait_store_ok:
            self._unflushed.append(waiting)
        else:
            self._unwritten.append(waiting)
        return None

    def advanced(self) -> None:
        """Release puts: replicas hold more of the log than before, or other replicas are in sync."""
        if self._held and not self._denies():
            self._release()
        if self._replication is not None and len(self._unacknowledged):
            self._unacknowledged.advanced(self._replication.holders)

    def topic_gone(self, name: str) -> None:
        """Refuse held puts to that topic now: it may be made again before others are released."""
        topic, kept = name.encode(), deque[tuple[Sequence[Message], Done]]()
        held, self._held = self._held, kept
        if held:
            self._journal.stir()  # as in ``_release``
        for messages, done in held:
            if messages[0].topic != topic:
                kept.append((messages, done))
                continue
            self._held_bytes -= _size(messages)
            try:
                done(NotTaken(PutStatus.TOPIC_GONE, remark=f"topic[{name}] was deleted meanwhile"))
            except Exception:  # as in ``_Waiting.finish``
                logger.exception("the answer to a put that was held")

    @property
    def waiting(self) -> int:
        """Messages or batches that were written and are not answered yet."""
        return len(self._unwritten) + len(self._unflushed) + len(self._unacknowledged)

    # --- what releases it ------------------------------------------------------------------------------------

    def _disk_is_busy(self) -> str:
        """Return why the disk takes no more puts that wait for a sync; "" while it takes them."""
        waiting = self._unflushed
        if not waiting or not self._journal.sync_flush:
            return ""
        size = waiting[-1].end - waiting[0].puts[0].offset
        if len(waiting) < UNFLUSHED_MAX and size < UNFLUSHED_BYTES_MAX:
            return ""
        return f"{len(waiting)} messages or batches, {size} bytes of the log, wait for the disk already"

    def _denies(self) -> bool:
        replication = self._replication
        return replication is not None and isinstance(
            needed_acks(replication.mode, self._config, replication.replicas()), Deny)

    def _release(self) -> None:
        """Put again what is held: it is written or refused."""
        if self._held:
            self._journal.stir()  # a refusal moves no log, and a part whose put that was is due earlier than it said
        held, self._held, self._held_bytes = self._held, deque(), 0
        for messages, done in held:
            try:
                self.put(messages, done)
            except Exception:  # as in ``_Waiting.finish``
                logger.exception("the answer to a put that was held")

    def _settle(self) -> None:
        """Go on with puts below ``end`` of the journal: the system has them."""
        journal = self._journal
        for waiting, end in ((self._unwritten, journal.end), (self._unflushed, journal.durable_end)):
            while waiting and waiting[0].end <= end:
                self._stored(waiting.popleft())
        self.advanced()
        if journal.failure is not None:
            self._fail(journal.failure)

    def _stored(self, put: _Waiting) -> None:
        """Let the put wait for replicas: it is flushed, or was not flushed in time. ``advanced`` looks at it next."""
        need = put.need
        if self._replication is None or not need.waits:
            self._end(put, PutStatus.PUT_OK)
        elif not self._unacknowledged.add(put, put.end, need, put.began_ns + self._slave_timeout_ns):
            put.finish(PutStatus.FLUSH_SLAVE_TIMEOUT, "too many messages wait for acknowledgements")

    def _end(self, put: _Waiting, status: PutStatus) -> None:
        """Answer a put: OK only as long as this master may write.

        This process may have been stopped since the put, or since its last answer, and a successor may lead."""
        if status is PutStatus.PUT_OK and not self._may(self._journal.now_ns()):
            put.finish(PutStatus.FLUSH_SLAVE_TIMEOUT, LEASE_OVER)
        else:
            put.finish(status)

    def _expire(self, now_ns: int) -> None:
        unflushed = self._unflushed
        while unflushed and unflushed[0].began_ns + self._sync_flush_timeout_ns <= now_ns:
            put = unflushed.popleft()
            put.status = PutStatus.FLUSH_DISK_TIMEOUT
            self._stored(put)
        self.advanced()
        self._unacknowledged.expire(now_ns)
        if self._held and now_ns >= self._young_until_ns:
            self._release()
        if self.waiting or self._held:
            self._journal.tick_by(0)

    def _fail(self, error: StoreFailed) -> None:
        """Answer all puts, since the disk failed: those that the system was not given are lost, others perhaps."""
        end = self._journal.end
        for waiting in (self._unwritten, self._unflushed):
            while waiting:
                put = waiting.popleft()
                put.finish(PutStatus.FLUSH_DISK_TIMEOUT if put.end <= end else PutStatus.UNKNOWN_ERROR, str(error))
