"""The check loop: asks producers about open transactions (code 39), up to a limit of checks for each.

A slave that acts for a RocketMQ master sends its halves to other groups' masters instead, as RocketMQ's slaves do.

A master first puts the half back to the end of its queue with one more check counted, then asks. So the next master
counts on. If no producer of the group is connected, nothing is written and no check counts. Source:
``TransactionalMessageServiceImpl`` and ``AbstractTransactionalMessageCheckListener`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import attrs

from broker.consumers.members import Producers
from broker.journal import NEVER
from broker.puts import Outlet, PutResult
from broker.sending.answers import STORED
from broker.store.errors import OffsetGone
from broker.store.log import Log
from broker.sure import Sure
from broker.topics.names import HALF, OP_HALF
from broker.transactions import records
from broker.transactions.checking import CheckLimits, Verdict, verdict
from broker.transactions.ending import Author, Ending
from broker.transactions.feeding import Feed
from broker.transactions.halves import OpenTransaction
from remoting.codes import RequestCode
from remoting.command import request
from remoting.connection import Connection
from remoting.errors import DamagedRecord, RemotingError
from remoting.headers.transactions import CheckTransactionStateRequest
from remoting.record import Message, encode, message_id

logger = logging.getLogger("broker")

NS_PER_MS: Final = 1_000_000
RETRY_NS: Final = 1_000_000_000
"""Pause after a half that no other group's master took."""
TOGETHER_MAX: Final = 32
"""Puts of halves that may be in flight at once."""
LOOKS_MAX: Final = 2_000
"""Transactions that one tick looks at."""
TRIES: Final = 3
"""Connections of a group that are looked at, to find one that is not congested."""
GROUPS_MAX: Final = 10_000
"""Groups whose turns are remembered."""
IN_FLIGHT: Final = 1 << 62
"""Greater than the offset of any mark."""
PROGRESS_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group whose offsets are the check loop's progress."""


class CheckProgress(Protocol):
    """The consumers' offsets, among which the check loop keeps its progress."""

    def query(self, group: str, topic: str, queue_id: int) -> int | None: ...

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None: ...


@attrs.frozen(kw_only=True)
class AskingConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    transaction_check_interval: int = 30_000
    transaction_op_msg_max_size: int = 4_096
    transaction_op_batch_interval: int = 3_000


@attrs.define
class AskCounters:
    """Sums since this process began."""

    checks: int = 0
    nobody: int = 0
    """Checks that were due while no producer of the group was connected."""
    given_up: int = 0
    marked: int = 0
    """Halves that got a missing mark."""


class Asking:
    """The check loop. Call ``start`` when this broker knows all decisions and may write or acts; then ``tick``."""

    def __init__(self, feed: Feed, log: Log, puts: Outlet, author: Author, ending: Ending, producers: Producers,
                 progress: CheckProgress, make_topic: Callable[[], None]) -> None:
        """``make_topic`` creates the topic of halves that are given up."""
        self.config, self.limits = AskingConfig(), CheckLimits()
        self.counters = AskCounters()
        self._feed, self._log, self._puts, self._author, self._ending = feed, log, puts, author, ending
        self._producers, self._progress, self._make_topic = producers, progress, make_topic
        self._started = False
        self._round_at_ns = self._marks_at_ns = self._held_ns = 0
        self._round: deque[OpenTransaction] = deque()
        self._forward: deque[OpenTransaction] = deque()
        """Transactions whose halves stand in files that shall be deleted."""
        self._moving: dict[int, int | None] = {}
        """By first half's offset, the offset of the new half that the table has not heard yet; None: its put is in
        flight."""
        self._in_flight = 0
        self._marking_at = -1
        """Offset of the last mark for halves that had none; ``IN_FLIGHT``: its put is not answered."""
        self._places: Sure[tuple[int, ...]] = Sure(())
        """The loop's places in both queues; (): none since it began."""
        self._turns: Counter[str] = Counter()
        self._reign = 0
        self._in_place = self._sends_on = False
        self._asked: Counter[int] = Counter()
        """Checks of this acting slave, by first half's offset."""

    @property
    def started(self) -> bool:
        return self._started

    def start(self, now_ns: int, *, in_place: bool = False, sends_on: bool = False) -> None:
        """Start the loop. ``in_place``: on an acting slave, which writes nothing. Halves stay where they are, and only
        this process counts their checks; or they go to other groups' masters (``sends_on``)."""
        self._started, self._in_place, self._sends_on = True, in_place, sends_on
        place = self._place()
        if sends_on and place is not None:  # the ledger tells the next process, and other slaves
            self._progress.commit(PROGRESS_GROUP, HALF, records.QUEUE, place)
        self._asked.clear()
        self._places = Sure(())
        self._reign += 1
        self._round_at_ns = now_ns + self.config.transaction_check_interval * NS_PER_MS
        self._marks_at_ns = now_ns + self.config.transaction_op_batch_interval * NS_PER_MS
        self._round.clear()

    def stop(self) -> None:
        self._started = False
        self._round.clear()
        self._forward.clear()

    def hold(self, until_ns: int) -> None:
        """Send no half on before that time: the master that comes back is about to read how far that is."""
        self._held_ns = until_ns
        if self._sends_on:
            self._round.clear()

    def cut(self, end: int) -> None:
        """The log was cut at ``end``: halves put after it are gone."""
        for first, at in list(self._moving.items()):
            if at is not None and at >= end:
                del self._moving[first]
        self._marking_at = min(self._marking_at, end - 1)
        self._places.cut(end)

    def shown(self, end: int) -> None:
        """The table has heard all halves below ``end``."""
        for first, at in list(self._moving.items()):
            if at is not None and at < end:
                del self._moving[first]

    def make_way(self, below: int) -> None:
        """Put halves below that offset back to the end of their queue, or give them up, so that the log may be deleted.
        """
        if self._started and not self._forward:
            self._forward.extend(each for each in self._feed.halves.waiting() if each.half.offset < below)

    # --- rounds ----------------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        """Return when ``tick`` is due, unless more of the log is shown before."""
        if not self._started:
            return NEVER
        if self._sends_on:
            return NEVER if self._in_flight else 0 if self._round else max(self._round_at_ns, self._held_ns)
        if self._round or (self._forward and not self._in_place):
            return 0
        marks = self._feed.halves.unmarked and not self._in_place
        return min(self._round_at_ns, self._marks_at_ns) if marks else self._round_at_ns

    def tick(self, now_ns: int, shown: int) -> None:
        """Do what is due. ``shown``: the table has heard all below this offset."""
        if not self._started:
            return
        if not self._round and now_ns >= max(self._round_at_ns, self._held_ns if self._sends_on else 0):
            self._round_at_ns = now_ns + self.config.transaction_check_interval * NS_PER_MS
            self._round.extend(self._feed.halves.waiting())
        if self._sends_on:
            self._send_on(now_ns)
            return
        looks = LOOKS_MAX
        while self._round and self._in_flight < TOGETHER_MAX and looks:
            looks -= 1
            self._look_at(self._round.popleft())
        if self._in_place:
            return
        while self._forward and self._in_flight < TOGETHER_MAX:
            self._look_at(self._forward.popleft(), forward=True)
        if now_ns >= self._marks_at_ns and self._marking_at < shown:
            self._marks_at_ns = now_ns + self.config.transaction_op_batch_interval * NS_PER_MS
            self._write_marks()
        self._note_progress(shown)

    def _place(self) -> int | None:
        return self._progress.query(PROGRESS_GROUP, HALF, records.QUEUE)

    def _note_progress(self, shown: int) -> None:
        places = self._places.latest(shown, self._log.flushed_offset, self._feed.progress)
        for topic, at in zip((HALF, OP_HALF), places, strict=False):
            if at != (self._progress.query(PROGRESS_GROUP, topic, records.QUEUE) or 0):
                self._progress.commit(PROGRESS_GROUP, topic, records.QUEUE, at)

    def _look_at(self, transaction: OpenTransaction, *, forward: bool = False) -> None:
        """Ask, put back or give up one transaction, if it is due. ``forward``: only put it back or give it up."""
        first, half = transaction.first, transaction.half
        if self._feed.halves.of(half.offset) is not transaction or transaction.given_up or first in self._moving or (
                self._ending.is_under_way(first)):
            return
        what = verdict(half, self._author.wall_ms(), self.limits)
        if what is Verdict.WAIT and not forward:
            return
        if self._in_place:
            self._ask_in_place(transaction)
            return
        asked = self._pick(half.group) if what is Verdict.ASK and not forward else None
        if what is Verdict.ASK and asked is None and not forward:
            self.counters.nobody += 1
            return
        try:
            record = self._log.record(half.offset, half.size)
        except (OSError, OffsetGone, DamagedRecord) as error:
            logger.error("the half at %d of the log cannot be read: %s", half.offset, error)
            return
        host = self._author.store_host
        if what is Verdict.GIVE_UP:
            self._make_topic()
            moved, why = records.given_up(record, first, host), records.GIVEN_UP
        else:
            moved = records.put_back(record, half, first, host, checks=half.checks + (asked is not None))
            why = records.PUT_BACK
        self._moving[first] = None
        self._in_flight += 1
        reign = self._reign
        self._puts.put([moved, self._author.mark([half.queue_offset], why, [first] if why is records.GIVEN_UP else [])],
                       lambda result: self._moved(transaction, moved, why, asked, result, reign))

    def _moved(self, transaction: OpenTransaction, moved: Message, why: str, asked: Connection | None,
               result: PutResult, reign: int) -> None:
        self._in_flight -= 1
        if result.status not in STORED:
            del self._moving[transaction.first]
            logger.warning("the half at %d of the log could not be put back: %s", transaction.half.offset,
                           result.words)
            return
        self._moving[transaction.first] = result.puts[-1].offset
        if why is records.GIVEN_UP:
            self.counters.given_up += 1
            logger.warning("transaction %s of group %s, topic %s, is given up after %d checks",
                           transaction.half.unique, transaction.half.group, transaction.half.topic,
                           transaction.half.checks)
        elif asked is not None and self._started and reign == self._reign and not self._ending.is_under_way(
                transaction.first):
            put = result.puts[0]
            self._ask(transaction, moved, asked, put.queue_offset, put.offset)

    def _ask_in_place(self, transaction: OpenTransaction) -> None:
        """Ask on an acting slave. It gives no transaction up: that is left to the master."""
        half, first = transaction.half, transaction.first
        if half.checks + self._asked[first] >= self.limits.transaction_check_max:
            return
        connection = self._pick(half.group)
        if connection is None:
            self.counters.nobody += 1
            return
        try:
            record = self._log.record(half.offset, half.size)
        except (OSError, OffsetGone, DamagedRecord) as error:
            logger.error("the half at %d of the log cannot be read: %s", half.offset, error)
            return
        self._asked[first] += 1
        self._ask(transaction, record.message, connection, half.queue_offset, half.offset)

    def _send_on(self, now_ns: int) -> None:
        """Send halves to other groups' masters, which ask from then on, in the order of the half queue.

        One is in flight at a time, and what cannot be sent stops those behind it: all that a RocketMQ master reads when
        it comes back is one place in that queue, and it asks for every half from there on. So none is sent past halves
        that were never copied to this slave."""
        halves = self._feed.halves
        if self._round and (begin := self._place() or 0) < self._feed.half_begin:
            logger.warning("no half is sent on before the master is back: this slave lacks those from %d to %d of the "
                           "queue, and what it sends from behind them would hide them", begin, self._feed.half_begin)
            self._round.clear()
        while self._round and not self._in_flight:
            transaction = self._round.popleft()
            half = transaction.half
            if half.queue_offset < (self._place() or 0) or (
                    halves.of(half.offset) is not transaction or self._ending.is_under_way(transaction.first)):
                continue
            try:
                message = self._log.record(half.offset, half.size).message
            except (OSError, OffsetGone, DamagedRecord) as error:
                logger.error("the half at %d of the log cannot be read: %s", half.offset, error)
                self._retry_at(now_ns)
                return
            self._in_flight += 1
            self._puts.put([message], partial(self._sent_on, half.queue_offset, now_ns, self._reign))

    def _sent_on(self, queue_offset: int, now_ns: int, reign: int, result: PutResult) -> None:
        self._in_flight -= 1
        if not self._started or reign != self._reign:
            return
        if result.status in STORED:
            self._progress.commit(PROGRESS_GROUP, HALF, records.QUEUE, queue_offset + 1)
        else:
            self._retry_at(now_ns)

    def _retry_at(self, now_ns: int) -> None:
        self._round.clear()
        self._round_at_ns = min(self._round_at_ns, now_ns + RETRY_NS)

    def _ask(self, transaction: OpenTransaction, moved: Message, connection: Connection, queue_offset: int,
             offset: int) -> None:
        half = transaction.half
        if connection.closed:  # since it was chosen, while the half was put back
            connection = self._pick(half.group) or connection
        body = encode(records.asked(moved, half), queue_offset, offset, self._author.wall_ms())
        header = CheckTransactionStateRequest(
            queue_offset, offset, half.unique, half.unique, message_id(self._author.store_host, offset), half.topic)
        try:
            connection.send(request(RequestCode.CHECK_TRANSACTION_STATE, header, body, oneway=True))
        except RemotingError as error:
            logger.info("%s could not be asked about a transaction: %s", connection.peer, error)
        else:
            self.counters.checks += 1

    def _pick(self, group: str) -> Connection | None:
        """The next connection of the group in turn, an uncongested one if there is one among the next few. None: no
        producer is connected."""
        members = self._producers.groups.get(group)
        if not members:
            return None
        if len(self._turns) > GROUPS_MAX:
            self._turns.clear()
        connections, chosen = list(members), None
        for _ in range(TRIES):
            self._turns[group] += 1
            chosen = connections[self._turns[group] % len(connections)]
            if not chosen.congested:
                break
        return chosen

    # --- marks -----------------------------------------------------------------------------------------------

    def _write_marks(self) -> None:
        """Write a mark for halves that ended without one: their master died before it, or was a RocketMQ broker."""
        places: list[int] = []
        size = 0
        for place in self._feed.halves.unmarked:
            size += len(str(place)) + 1
            if places and size > self.config.transaction_op_msg_max_size:
                break
            places.append(place)
        if places:
            self._marking_at = IN_FLIGHT
            self._puts.put([self._author.mark(places, records.ENDED_BEFORE)],
                           lambda result: self._marked(len(places), result))

    def _marked(self, count: int, result: PutResult) -> None:
        is_stored = result.status in STORED
        self.counters.marked += count * is_stored
        self._marking_at = result.puts[-1].offset if is_stored else -1
