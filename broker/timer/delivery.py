"""Moves timers: from their queue into the wheel on every replica, and from the wheel to their topics on a master.

It runs on the journal's ticks and in pieces between its turns, without a task of its own. A put that is refused is
tried again until the message is stored. A message that is stored but not acknowledged in time is not put again: it is
done once it is confirmed.
Source: ``TimerMessageStore`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import heappop, heappush
from typing import Final

import attrs

from broker.ha.acks import PutStatus
from broker.journal import NEVER, NS_PER_MS, PIECE_MAX, Journal, Pieces
from broker.properties import REAL_QID
from broker.puts import WRITTEN, Outlet, PutResult, Stored
from broker.store.consumequeue import ENTRY, NOWHERE_SIZE
from broker.store.errors import OffsetGone
from broker.store.log import NOTHING, Read
from broker.timer.delivered import Delivered
from broker.timer.elsewhere import Elsewhere
from broker.timer.keys import TimerKeys
from broker.timer.letters import TOPIC, UNIQ_KEY, Key, Letter
from broker.timer.machine import Due, TimerMachine
from broker.timer.metrics import TOPICS_MAX
from broker.timer.store import TimersDamaged
from broker.timer.units import DELETE, MOVED, Unit
from broker.topics.names import TIMER_DEAD
from remoting.errors import DamagedRecord
from remoting.record import Message

logger = logging.getLogger("broker")

Takes = Callable[[Message, Callable[[], None]], bool]
"""Takes a due message instead of a put, and calls the given function when it is done with. False: not taken."""

TOGETHER_MAX: Final = 32
"""Messages of one put."""
BYTES_MAX: Final = 1 << 20
"""Bytes of the bodies of one put; a single message may be larger."""
PUTS_MAX: Final = 4
"""Puts in flight at once: few, so that clients' sends come in between."""
FAR_TIMES: Final = 4
"""Messages of a put are read at once where the log from the first to the last is at most so many times their size."""
UNFINISHED_MAX: Final = 100_000
"""Timers that are handed out and not done; at this number no further slot is opened."""
PAUSE_MS: Final = 100
"""First pause before another attempt; it doubles."""
PAUSE_MOST_MS: Final = 2_000
"""Longest pause before another attempt."""
SOON_MS: Final = 60_000
"""A timer that is due within this time is not put again to free the log."""
MOVED_MAX: Final = 1_000
"""Timers that one call of ``make_way`` puts again."""
TOLD_MS: Final = 1_000
"""Progress is updated at least this often, since other brokers ask for it."""
SPENT_MAX: Final = 1_000_000
"""Markers that are remembered for timers that come after them."""
SEARCH_PAUSE_MS: Final = 1
EMPTY_MAX: Final = 1_000
"""Empty slots that one step of a search looks at."""
ILLEGAL: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


@attrs.define
class TimerCounters:
    """Sums since this process began; they only ever rise."""

    enqueued: Counter[str] = attrs.field(factory=Counter)
    """Timers put into the wheel by topic; beyond ``TOPICS_MAX`` topics, under ""."""
    delivered: Counter[str] = attrs.field(factory=Counter)
    """Timers stored in their topics, by topic."""
    rolled: int = 0
    """Timers stored again to wait for another slot."""
    recalled: int = 0
    """Timers recalled before they were due."""
    set_aside: int = 0
    """Timers put into the topic of the undeliverable."""
    gone: int = 0
    """Timers dropped: their records could not be read, or be stored in no topic."""
    moved: int = 0
    """Timers put again before they were due, so that an old file of the log can be deleted."""
    passed_over: int = 0
    """Timers skipped because a former master, or a slave that acted, delivered them."""
    retries: int = 0
    """Puts that stored nothing, and were tried again."""


def _count(counter: Counter[str], topic: str, count: int = 1) -> None:
    counter[topic if topic in counter or len(counter) < TOPICS_MAX else ""] += count


@attrs.define(order=True)
class _Attempt:
    """Messages of one put that are tried again at ``at_ns``."""

    at_ns: int
    dues: list[Due] = attrs.field(order=False)
    alone: bool = attrs.field(order=False, default=False)
    """Whether to put them one by one, since one of them is illegal."""
    pause_ms: int = attrs.field(order=False, default=PAUSE_MS)


class TimerDelivery:
    """Enqueues on every replica, and delivers between ``start`` and ``stop``. Its part calls ``tick``."""

    def __init__(self, keys: TimerKeys, machine: TimerMachine, delivered: Delivered, elsewhere: Elsewhere,
                 journal: Journal, puts: Outlet, *, wall_ms: Callable[[], int]) -> None:
        self.keys = keys
        self.came: Callable[[str], None] = lambda topic: None
        self.left: Callable[[int, int], None] = lambda topic_hash, count: None
        """``came`` is called with the topic of each message that comes into the wheel, ``left`` with the topic's hash
        when so many messages are done."""
        self.expects: Callable[[str, int, int], None] = lambda topic, queue_id, stored_ms: None
        """Called before a delivery with topic, queue and the latest time when the message can have been stored."""
        self.takes: Takes = lambda message, done: False
        """Asked before each put."""
        self._taken = 0
        """Unfinished timers that ``takes`` has taken."""
        self.hears_all = False
        """Whether ``delivered`` has heard all of the log; nothing is delivered before."""
        self._delivered, self._elsewhere = delivered, elsewhere
        self.counters = TimerCounters()
        self.enqueue_below = 0
        """A slave enqueues up to here: a message that its master has not enqueued may get a later slot there."""
        self._machine, self._store = machine, machine.store
        self._journal, self._messages, self._log, self._puts = journal, journal.messages, journal.log, puts
        self._visible, self._wall_ms = journal.visible, wall_ms
        self._attempts: list[_Attempt] = []
        self._stored: Stored[tuple[list[Due], Counter[bytes], int]] = Stored(journal)
        """Timers that are put and not confirmed yet, with their topics and their end in the log."""
        self._rolled: deque[tuple[int, Due]] = deque()
        """Timers that are stored again and not in the wheel again yet, with their end in the log."""
        self._source: Iterator[Due | None] = iter(())
        self._source_is_over = False
        self._spent: dict[int, None] = {}
        """Hashes of the keys that markers recall, for all opened slots from ``_spent_from`` on."""
        self._spent_from = 0
        self._search: Iterator[None] = iter(())
        """Reads the markers of slots before ``_spent_from``."""
        self._moving: set[int] = set()
        """Offsets of messages that ``make_way`` put again, and that are not enqueued from there yet."""
        self._way_below = self._way_left = 0
        self._way_at: int | None = None
        """Position of the timer log from which ``make_way`` goes on; None: it is done."""
        self._near = NOTHING
        """The part of the log that was read for the put under way."""
        self._under_way = 0
        self._why = ""
        """Why the last put was not stored, or not acknowledged in time."""
        self._enqueueing, self._delivering = Pieces(journal, self._enqueue), Pieces(journal, self._deliver)
        self._making_way = Pieces(journal, self._make_way)
        self.may_enqueue = True
        """False: the wheel has units of messages that a cut of the log removed, or its files are closed."""
        self._told_ns = 0
        """When progress is updated at the latest."""
        self._reopens_ns = 0
        """When slots are opened again, since the timer log could not be read; 0: it could."""
        self._caught_up = self._is_drained = False
        """All of the queue is in the wheel; no due timer can be handed out now."""

    # --- roles -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """This broker delivers from now on: it is master or acts, and has seen all that it holds."""
        if not self._machine.started:
            self._spent_from, self._search = self._store.read_time_ms, self._through_done()
        self._machine.start()
        self._caught_up = False

    def stop(self) -> None:
        """This broker stops delivering: its role has changed, or it closes."""
        self._machine.stop()
        self._attempts.clear()
        self._stored.clear()
        self._rolled.clear()
        self._source, self._under_way, self._taken = iter(()), 0, 0
        self._moving.clear()
        self._way_at = None
        self._spent.clear()
        self._search, self._is_drained, self._reopens_ns = iter(()), False, 0

    # --- figures ---------------------------------------------------------------------------------------------

    @property
    def delivers(self) -> bool:
        return self._machine.started

    @property
    def queue_end(self) -> int:
        return self._messages.max_offset(TOPIC, 0)

    @property
    def behind(self) -> int:
        """Number of messages of the queue that are not in the wheel yet."""
        return max(0, self.queue_end - self._store.queue_offset)

    @property
    def enqueue_behind_ms(self) -> int:
        """Age of the first message that is not in the wheel yet; 0: there is none, or it cannot be read."""
        if not self.behind:
            return 0
        stored_ms = self._messages.store_time_ms(TOPIC, 0, self._store.queue_offset)
        return max(0, self._wall_ms() - stored_ms) if stored_ms > 0 else 0

    @property
    def unfinished(self) -> int:
        """Timers that were handed out and are not known to be stored."""
        return self._machine.unfinished

    @property
    def seen_before_ms(self) -> int:
        """Every timer due before this time was delivered, put at least once, or taken by ``takes``."""
        return self._machine.seen_before_ms

    def keeps_from(self) -> int | None:
        """Offset of the log of the first timer that is in the wheel or still to come there; None: there is none."""
        kept = self._store.oldest_offset()
        queue = self._messages.queue(TOPIC, 0)
        if queue is not None and self._store.queue_offset < queue.max_offset:
            offset, size, _ = queue.entry(max(self._store.queue_offset, queue.min_offset))
            if size != NOWHERE_SIZE:
                kept = offset if kept is None else min(kept, offset)
        return kept

    # --- working ---------------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        """Return when ``tick`` is due, unless more of the log is shown before."""
        started, stopped = self._machine.started, self.keys.timer_stop_enqueue
        if (self._store.queue_offset < self._enqueue_end and not stopped) or self._rolled or (
                started and not self._is_drained):
            return 0
        if not started:
            return NEVER
        due_ns = min(self._told_ns, self._attempts[0].at_ns) if self._attempts else self._told_ns
        due_ms = self._machine.due_ms() if self._may_open else None
        if due_ms is None:
            return due_ns
        return min(due_ns, self._journal.now_ns() + max(0, due_ms - self._wall_ms()) * NS_PER_MS)

    @property
    def _may_open(self) -> bool:
        """Return whether due timers may be handed out."""
        return self._caught_up and self.hears_all and not self.keys.timer_stop_dequeue and (
            self._machine.unfinished - self._taken < UNFINISHED_MAX)

    @property
    def _enqueue_end(self) -> int:
        """End of the queue's messages that may go into the wheel now."""
        return self.queue_end if self._machine.started else min(self.queue_end, self.enqueue_below)

    def tick(self, now_ns: int) -> None:
        self._enqueueing.take(now_ns)
        self._delivering.take(now_ns)
        self._told_ns = now_ns + TOLD_MS * NS_PER_MS

    def _anew(self, why: str) -> None:
        """Wheel and timer log contradict each other: build both again from the queue."""
        logger.error("the timer wheel is built again from the timers' queue: %s", why)
        started = self._machine.started
        self.stop()
        self._store.anew(why)
        if started:
            self.start()

    def _enqueue(self, _: int, until_ns: int) -> bool:
        """Put new messages of the queue into the wheel, then finish rolled timers. True: there is more to do."""
        try:
            return self._put_into_wheel(until_ns) or self._look_at_rolled(until_ns)
        except TimersDamaged as damage:
            self._anew(str(damage))
            return False

    def _put_into_wheel(self, until_ns: int) -> bool:
        """Put new messages of the queue into the wheel. True: more may be put there. A master opens no slot before all
        are there."""
        if self.keys.timer_stop_enqueue or not self.may_enqueue:
            return False
        queue = self._messages.queue(TOPIC, 0)
        if queue is None:
            self._caught_up = True
            return False
        store = self._store
        if store.queue_offset < queue.min_offset:
            logger.warning("timers %d to %d are lost: the log no longer holds them", store.queue_offset,
                           queue.min_offset - 1)
            store.queue_offset = queue.min_offset
        count, works = min(self._enqueue_end - store.queue_offset, PIECE_MAX), False
        if count > 0:
            try:
                entries = queue.read(store.queue_offset, count)
            except OSError as error:
                logger.error("the timers' queue cannot be read, tried again: %s", error)
                return False
            for offset, size, _ in ENTRY.iter_unpack(entries):
                works = self._enqueue_one(offset, size)
                if not works or self._journal.now_ns() >= until_ns:
                    break
        waited, self._caught_up = not self._caught_up, store.queue_offset >= queue.max_offset
        if waited and self._caught_up:
            self._delivering.ask()
        return works and store.queue_offset < self._enqueue_end

    def _enqueue_one(self, offset: int, size: int) -> bool:
        """Put one message into the wheel. False: it cannot be read or kept now."""
        store = self._store
        if size == NOWHERE_SIZE:
            store.queue_offset += 1
            return True
        try:
            record = self._log.record(offset, size)
        except (OffsetGone, DamagedRecord) as error:
            logger.error("timer %d is dropped: %s", store.queue_offset, error)
            self.counters.gone += 1
            store.queue_offset += 1
            return True
        except OSError as error:
            logger.error("timer %d cannot be read: %s", store.queue_offset, error)
            return False
        letter = Letter.of(record.message)
        try:
            before = None if letter.moved_from is None else self._store.find(letter.moved_from)
        except OSError as error:
            logger.error("timer %d waits until its old unit can be read: %s", store.queue_offset, error)
            return False
        try:
            self._machine.enqueue(offset, size, letter.topic_hash, out_ms=letter.out_ms,
                                  stored_ms=record.store_time_ms, deletes=letter.deletes)
        except OSError as error:
            logger.error("the timer log cannot be written, timers wait in their queue: %s", error)
            return False
        _count(self.counters.enqueued, letter.topic)
        if self._machine.started and not letter.deletes:  # a slave copies its master's numbers
            self.came(letter.topic)
        if letter.moved_from is not None:
            self._moving.discard(letter.moved_from)
        if before is not None and not before.kind & MOVED:
            self._is_moved(before)
        return True

    def _is_moved(self, unit: Unit) -> None:
        """The unit's message was put again, and is enqueued from there."""
        try:
            self._store.moved(unit)
            if not unit.kind & DELETE:
                self.left(unit.topic_hash, 1)
        except OSError as error:
            logger.error("the timer at offset %d of the log may come twice: %s", unit.offset, error)

    def make_way(self, below: int) -> None:
        """Put timers again whose messages stand below that offset, so that the log may be deleted; some at each call.
        """
        if self._machine.started and self.hears_all:
            self._way_below, self._way_at, self._way_left = below, 0, MOVED_MAX
            self._making_way.ask()

    def _make_way(self, _: int, until_ns: int) -> bool:
        """Put some of them again. True: there may be more."""
        if self._way_at is None:
            return False
        soon_ms = self._wall_ms() + SOON_MS
        try:
            units, self._way_at = self._store.pending_below(self._way_below, self._way_at, PIECE_MAX)
        except OSError as error:
            logger.error("timers that keep an old file of the log cannot be read: %s", error)
            self._way_at = None
            return False
        far = [unit for unit in units if unit.slot_ms >= soon_ms and unit.offset not in self._moving][:self._way_left]
        for begin in range(0, len(far), TOGETHER_MAX):
            if begin and self._journal.now_ns() >= until_ns:
                self._way_at = far[begin].at
                return True
            together = far[begin:begin + TOGETHER_MAX]
            self._way_left -= len(together)
            self._move(together)
        if not self._way_left:
            self._way_at = None
        return self._way_at is not None

    def _move(self, units: list[Unit]) -> None:
        messages, moving = [], []
        for unit in units:
            try:
                letter = Letter.of(self._log.record(unit.offset, unit.size).message)
            except (OffsetGone, DamagedRecord, OSError) as error:
                logger.error("the timer at offset %d of the log cannot be read and put again: %s", unit.offset, error)
                continue
            messages.append(letter.rolled(unit, self._wall_ms(), moved=True))
            moving.append(unit.offset)
        if not messages:
            return
        self._moving.update(moving)

        def done(result: PutResult) -> None:
            if result.status is PutStatus.PUT_OK or result.puts:
                self.counters.moved += len(moving)
            else:
                self._moving.difference_update(moving)

        self._puts.put(messages, done)

    def _deliver(self, now_ns: int, until_ns: int) -> bool:
        """Put due timers. True: more may be put."""
        if not self._machine.started:
            return False
        if self._reopens_ns:
            self._look_at_stored(until_ns)
            if now_ns < self._reopens_ns or self._under_way or self._stored:
                self._is_drained = True
                return False
            self.stop()
            self.start()
        try:
            return self._poll(now_ns, until_ns)
        except TimersDamaged as damage:
            self._anew(str(damage))
        except OSError as error:
            logger.error("the timer log cannot be read, its slots are opened again in %d ms: %s", PAUSE_MOST_MS, error)
            self._reopens_ns, self._is_drained = now_ns + PAUSE_MOST_MS * NS_PER_MS, True
        return False

    def _poll(self, now_ns: int, until_ns: int) -> bool:
        is_over = self._look_at_stored(until_ns)
        left, put, before, self._is_drained = PIECE_MAX, 0, self.counters.retries, False
        while self._under_way < PUTS_MAX and not is_over:
            dues, alone, pause_ms = self._next(now_ns, until_ns)
            if not dues:
                break
            left -= len(dues)
            for part in [[due] for due in dues] if alone else [dues]:
                self._put(part, pause_ms, now_ns)
                put += 1
            is_over = left <= 0 or self._journal.now_ns() >= until_ns
        refused = self.counters.retries - before
        return self._under_way < PUTS_MAX and not self._is_drained and not 0 < put == refused  # they wait for a tick

    def _look_at_stored(self, until_ns: int) -> bool:
        """Finish timers that were stored, but not acknowledged in time, once they are confirmed. True: it is time."""
        for dues, topics, log_end in self._stored.confirmed():
            self._done(dues, topics, log_end)
            if self._journal.now_ns() >= until_ns:
                return True
        return False

    def _look_at_rolled(self, until_ns: int) -> bool:
        """Finish rolled timers once the wheel has them again: a late roll may belong into a slot that is over. True: it
        is time."""
        shown, rolled = 0 if self.behind else self._visible.offset, self._rolled
        while rolled and rolled[0][0] <= shown:
            self._finish(rolled.popleft()[1])
            if self._journal.now_ns() >= until_ns:
                return True
        return False

    def _next(self, now_ns: int, until_ns: int) -> tuple[list[Due], bool, int]:
        """Timers of the next put, whether to put them one by one, and the pause; []: there are none now."""
        attempts = self._attempts
        if attempts and attempts[0].at_ns <= now_ns:
            again = heappop(attempts)
            return again.dues, again.alone, again.pause_ms
        if not self._may_open:
            self._is_drained = True  # until the next tick
            return [], False, 0
        dues: list[Due] = []
        for _ in range(PIECE_MAX):
            due = self._machine.late() or self._from_slot(until_ns)
            if due is None:
                break
            dues.append(due)
            if len(dues) == TOGETHER_MAX:
                break
        self._is_drained = not dues and self._source_is_over
        return dues, False, PAUSE_MS

    def _from_slot(self, until_ns: int) -> Due | None:
        """The next timer of the open slot, else of the next slot that is over; None: there is none, or none was found
        by ``until_ns``."""
        for _ in range(PIECE_MAX):
            try:
                due = next(self._source)
            except StopIteration:
                opened = self._machine.open(self._wall_ms())
                self._source_is_over = opened is None
                if opened is None:
                    return None
                self._source = opened
                continue
            if due is not None or self._journal.now_ns() >= until_ns:
                return due
        return None

    def _mark(self, due: Due) -> None:
        """Handle a marker: timers with its key that come after it are recalled."""
        letter = self._read(due)
        if letter is not None:
            if letter.deletes:
                self._take_back(letter.key_deleted)
            self._machine.done(due)

    def _hash(self, key: Key) -> int:
        """Of topic, id and the slot of now: the precision may have changed between a timer and its marker."""
        topic, uniq_key, out_ms = key
        return hash((topic, uniq_key, self._machine.floor(out_ms)))

    def _take_back(self, key: Key) -> None:
        self._spent[self._hash(key)] = None
        if len(self._spent) > SPENT_MAX:
            del self._spent[next(iter(self._spent))]

    def _knows_markers(self, due: Due, letter: Letter) -> bool:
        """Return whether all markers are known that may stand before this message. If not, some more are read, and the
        timer is tried again.

        A message normally stands before its marker. One that was put again may stand after it, and come when the slot
        of both is done here: a slave hears its master's progress before it has all messages of the slot."""
        slot_ms = self._machine.floor(letter.out_ms)
        if slot_ms >= self._spent_from or not letter.came_again:
            return True
        try:
            next(self._search, None)
        except TimersDamaged as error:
            logger.error("recalled timers may be delivered: %s", error)
            self._spent_from = 0
        except OSError as error:
            logger.error("the markers that recall timers cannot be read: %s", error)
            self._search = self._through_done()
            self._again([due], PAUSE_MOST_MS)
            return False
        if slot_ms < self._spent_from:
            self._again([due], SEARCH_PAUSE_MS)
        return slot_ms >= self._spent_from

    def _through_done(self) -> Iterator[None]:
        """Read the markers of slots that were done when this run started, the last slot first, in small steps."""
        store, empty = self._store, 0
        oldest_ms = 2 * store.read_time_ms - store.end_ms  # the wheel still holds the slots of one turn
        while (slot_ms := self._spent_from - store.precision_ms) >= oldest_ms:
            empty += 1
            for batch in store.batches(slot_ms):
                for unit in batch:
                    if unit.deletes:
                        self._take_back_again(unit)
                empty = 0
                yield
            self._spent_from = slot_ms
            if empty >= EMPTY_MAX:
                empty = 0
                yield
        self._spent_from = 0

    def _take_back_again(self, marker: Unit) -> None:
        try:
            letter = Letter.of(self._log.record(marker.offset, marker.size).message)
        except (OffsetGone, DamagedRecord):
            return
        if letter.deletes:
            self._take_back(letter.key_deleted)

    # --- one timer -------------------------------------------------------------------------------------------

    def _read(self, due: Due) -> Letter | None:
        """The timer's message; None: it is dropped since it is unreadable, or it will be tried again."""
        try:
            return Letter.of(self._log.record(due.unit.offset, due.unit.size, self._near).message)
        except (OffsetGone, DamagedRecord) as error:
            logger.error("the timer at offset %d of the log is dropped: %s", due.unit.offset, error)
            self.counters.gone += 1
            self._finish(due)
        except OSError as error:
            logger.error("the timer at offset %d of the log cannot be read, tried again: %s", due.unit.offset, error)
            self._again([due], PAUSE_MOST_MS)
        return None

    def _read_near(self, dues: list[Due]) -> Read:
        """The piece of the log in which these timers' messages stand, unless it is much larger than they are."""
        offsets = [due.unit.offset for due in dues]
        begin, size = min(offsets), sum(due.unit.size for due in dues)
        length = max(offsets) + dues[0].unit.size - begin
        if len(dues) > 1 and length <= min(FAR_TIMES * size, BYTES_MAX):
            with suppress(OffsetGone, OSError):
                return begin, self._log.read(begin, length)
        return NOTHING

    def _put(self, dues: list[Due], pause_ms: int, now_ns: int) -> None:
        """Put the messages of these timers, all or none."""
        messages: list[Message] = []
        put: list[Due] = []
        size = 0
        self._near = self._read_near(dues)
        for number, due in enumerate(dues):
            if size > BYTES_MAX:
                self._again(dues[number:], 0)
                break
            message = self._message(due)
            if message is None:
                continue
            self._machine.seen(due)
            if not self._is_taken(due, message):
                put.append(due)
                messages.append(message)
                size += len(message.body)
        self._near = NOTHING
        if messages:
            self._under_way += 1
            topics = Counter([message.topic for message in messages])
            self._puts.put(messages, lambda result: self._answered(put, topics, pause_ms, result))

    def _is_taken(self, due: Due, message: Message) -> bool:
        self._taken += 1

        def done() -> None:
            if self._machine.counts(due):
                self._taken -= 1
                _count(self.counters.delivered, message.topic.decode())
                self._finish(due)

        taken = self.takes(message, done)
        self._taken -= not taken
        return taken

    def _message(self, due: Due) -> Message | None:
        """The message to put for a timer: delivered or rolled. None: nothing has to be put now."""
        unit = due.unit
        if unit.deletes:
            self._mark(due)
            return None
        if self._is_elsewhere(due, unit.offset):
            return None
        letter = self._read(due)
        if letter is None or (letter.moved_from is not None and self._is_elsewhere(due, letter.moved_from)):
            return None
        now_ms = self._wall_ms()
        if self._delivered.has(unit.offset, letter.topic, letter.values.get(UNIQ_KEY, "")):
            self.counters.passed_over += 1
            self._leave(due, self._visible.offset)
            return None
        if not letter.deletes:
            key = self._hash(letter.key)
            if key not in self._spent and not self._knows_markers(due, letter):
                return None
            if key in self._spent:
                self.counters.recalled += 1
                self._finish(due)
                return None
        lost = letter.lost
        if not lost and not letter.came_again:
            self.expects(letter.topic, int(letter.values[REAL_QID]), unit.write_time_ms + self._store.precision_ms)
        if lost:
            self._set_aside(due, letter, lost)
            return None
        if unit.rolls:
            return letter.rolled(unit, now_ms)
        return letter.delivered(unit, now_ms)

    def _is_elsewhere(self, due: Due, offset: int) -> bool:
        """Whether another member delivered this timer, whose message stood at ``offset`` there: it is done then."""
        found = self._elsewhere.has(due.slot_ms, offset)
        if found:
            self.counters.passed_over += 1
            self._finish(due)
        return found

    def _answered(self, dues: list[Due], topics: Counter[bytes], pause_ms: int, result: PutResult) -> None:
        if not self._machine.counts(dues[0]):
            return
        self._under_way -= 1
        if result.status is PutStatus.PUT_OK:
            self._done(dues, topics, result.end)
        elif result.status in WRITTEN and result.puts:
            self._why = f"stored, and not acknowledged yet: {result.words}"
            self._stored.add(result, (dues, topics, result.end))
        elif result.status in ILLEGAL:
            self._illegal(dues, result)
        else:
            self.counters.retries += 1
            self._why = f"tried again: {result.words}"
            if pause_ms == PAUSE_MS:
                logger.warning("%d timers could not be stored, tried again: %s", len(dues), result.words)
            self._again(dues, pause_ms)
        self._delivering.ask()

    def _done(self, dues: list[Due], topics: Counter[bytes], log_end: int) -> None:
        """The messages that were put for these timers, to these topics, stand in the log below ``log_end``."""
        left: Counter[int] = Counter()
        for due in dues:
            unit = due.unit
            if unit.rolls:
                self.counters.rolled += 1
                self._leave(due, log_end)
            else:
                if not unit.kind & DELETE:
                    left[unit.topic_hash] += 1
                self._machine.done(due)
        for topic, count in topics.items():
            if topic != TOPIC:
                _count(self.counters.delivered, topic.decode(), count)
        for topic_hash, count in left.items():
            self.left(topic_hash, count)

    def _leave(self, due: Due, log_end: int) -> None:
        """The timer's new message stands in the log below ``log_end``: finish it, a rolled one later."""
        if due.unit.rolls:
            self._rolled.append((log_end, due))
            self._machine.seen(due)
        else:
            self._finish(due)

    def _finish(self, due: Due) -> None:
        if not due.unit.kind & DELETE:
            self.left(due.unit.topic_hash, 1)
        self._machine.done(due)

    @property
    def read_behind_ms(self) -> int:
        """Return how late the first slot with timers is; 0: none is late."""
        first_ms = self._store.next_slot()
        return max(0, self._wall_ms() - first_ms) if first_ms is not None else 0

    @property
    def waiting_for(self) -> str:
        """Return why timers that are due are not delivered; "" if they are."""
        keys = self.keys
        if not keys.timer_wheel_enable:
            return "timerWheelEnable is false"
        if keys.timer_stop_dequeue:
            return "timerStopDequeue is true"
        if keys.timer_stop_enqueue:
            return "timerStopEnqueue is true"
        if not self._machine.started:
            return "this broker does not deliver: it follows a master, or its writes are not open"
        if not self.hears_all:
            return "it reads in the log what was delivered before"
        if not self._caught_up:
            return f"{self.behind} messages of the timers' queue must be put into the wheel first"
        if self._machine.unfinished - self._taken >= UNFINISHED_MAX:
            return f"{self._machine.unfinished - self._taken} that are due could not be stored yet"
        return self._why if self._attempts or self._stored else ""

    def _again(self, dues: list[Due], pause_ms: int, *, alone: bool = False) -> None:
        heappush(self._attempts, _Attempt(
            self._journal.now_ns() + pause_ms * NS_PER_MS, dues, alone,
            min(max(2 * pause_ms, PAUSE_MS), PAUSE_MOST_MS)))

    def _illegal(self, dues: list[Due], result: PutResult) -> None:
        """No retry helps: set an illegal message aside. Of several the illegal one is found by putting them alone."""
        if len(dues) > 1:
            self._again(dues, 0, alone=True)
            return
        letter = self._read(dues[0])
        if letter is not None:
            self._set_aside(dues[0], letter, result.remark)

    def _set_aside(self, due: Due, letter: Letter, why: str) -> None:
        logger.error("the timer at offset %d of the log is put into %s: %s", due.unit.offset, TIMER_DEAD, why)
        self._machine.seen(due)
        self._under_way += 1
        self._puts.put([letter.set_aside()], lambda result: self._is_aside(due, result))

    def _is_aside(self, due: Due, result: PutResult) -> None:
        if not self._machine.counts(due):
            return
        self._under_way -= 1
        if result.status is PutStatus.PUT_OK or result.status in ILLEGAL:
            self.counters.set_aside += result.status is PutStatus.PUT_OK
            self.counters.gone += result.status in ILLEGAL
            self._finish(due)
        elif result.puts and result.status in WRITTEN:
            self.counters.set_aside += 1
            self._stored.add(result, ([due], Counter(), result.end))
        else:
            self._again([due], PAUSE_MOST_MS)
        self._delivering.ask()
