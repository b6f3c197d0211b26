"""Moves timers: from their queue into the wheel on every replica, out of the wheel to their topics on a master.

Runs on the journal's ticks, and on the ends of its puts: no task of its own. A message is tried until it is stored.
One that is stored and not acknowledged in time is not stored again: it is done when it is confirmed.
Source: ``TimerMessageStore`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

import attrs

from broker.ha.acks import PutStatus
from broker.journal import NEVER, NS_PER_MS, Journal
from broker.properties import REAL_QID
from broker.puts import Outlet, PutResult
from broker.store.consumequeue import ENTRY, NOWHERE_SIZE
from broker.store.errors import OffsetGone
from broker.timer.delivered import Delivered
from broker.timer.keys import TimerKeys
from broker.timer.letters import TOPIC, UNIQ_KEY, Key, Letter
from broker.timer.machine import Due, TimerMachine
from broker.timer.metrics import TOPICS_MAX
from broker.timer.store import TimersDamaged
from broker.timer.units import DELETE, MOVED, Unit
from remoting.errors import DamagedRecord
from remoting.record import Message

logger = logging.getLogger("broker")

Takes = Callable[[Message, Callable[[], None]], bool]
"""Whether somebody takes a message that is due, who calls the second one once it is dealt with."""

ENQUEUED_MAX: Final = 2_000
"""Messages of one tick: some 50 ms of work."""
TOGETHER_MAX: Final = 32
"""Messages of one put."""
BYTES_MAX: Final = 1 << 20
"""Of their bodies, but for a single one."""
PUTS_MAX: Final = 4
"""Under way at once: sends come in between."""
LOOKED_AT_MAX: Final = 512
"""Timers of one turn."""
UNFINISHED_MAX: Final = 100_000
"""Of which nobody knows that they are stored; beyond it no further slot is opened."""
PAUSE_MS: Final = 100
PAUSE_MOST_MS: Final = 2_000
"""Before another attempt; it doubles."""
SOON_MS: Final = 60_000
"""What is due by then is not put forward."""
MOVED_MAX: Final = 1_000
"""Put forward at a time."""
SPENT_MAX: Final = 1_000_000
"""Markers that are remembered for messages that come later than they should."""
SEARCH_PAUSE_MS: Final = 1
EMPTY_MAX: Final = 1_000
"""Slots without a unit that are looked at in one step."""
ILLEGAL: Final = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
WRITTEN: Final = (PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE)


@attrs.define
class TimerCounters:
    """Sums since this process began; they only ever rise."""

    enqueued: Counter[str] = attrs.field(factory=Counter)
    """By topic; what are too many topics together, as ""."""
    delivered: Counter[str] = attrs.field(factory=Counter)
    rolled: int = 0
    """Stored again to wait on."""
    recalled: int = 0
    """Taken back before they were due."""
    set_aside: int = 0
    """In the topic of those that no topic can take."""
    gone: int = 0
    """Dropped: their records could not be read, or nowhere be stored."""
    moved: int = 0
    """Put again before they were due, so that an old file of the log may go."""
    passed_over: int = 0
    """Delivered by a former master, as the log says."""
    retries: int = 0
    """Puts that stored nothing, and were made again."""


def _count(counter: Counter[str], topic: str) -> None:
    counter[topic if topic in counter or len(counter) < TOPICS_MAX else ""] += 1


@attrs.define(order=True)
class _Attempt:
    """Messages of one put, tried again when ``at_ns`` has come."""

    at_ns: int
    dues: list[Due] = attrs.field(order=False)
    alone: bool = attrs.field(order=False, default=False)
    """One by one: one of them is illegal."""
    pause_ms: int = attrs.field(order=False, default=PAUSE_MS)


class TimerDelivery:
    """``tick`` is for the ticks of its part."""

    def __init__(self, keys: TimerKeys, machine: TimerMachine, delivered: Delivered, journal: Journal, puts: Outlet, *,
                 wall_ms: Callable[[], int]) -> None:
        self.keys = keys
        self.came: Callable[[str], None] = lambda topic: None
        self.left: Callable[[int], None] = lambda topic_hash: None
        """They hear the topic of each message that comes into the wheel, and its hash when that is done."""
        self.expects: Callable[[str, int, int], None] = lambda topic, queue_id, stored_ms: None
        """Called with where each message goes, and when it was stored at the latest, before it does."""
        self.takes: Takes = lambda message, done: False
        """Asked before each put: whoever takes a message calls ``done`` when it is dealt with."""
        self._taken = 0
        """Of those that are not finished: somebody took them."""
        self.hears_all = False
        """``delivered`` knows all that the log says: before that nothing is delivered."""
        self._delivered = delivered
        self.counters = TimerCounters()
        self.enqueue_below = 0
        """A slave enqueues no further: what its master has not enqueued may be late there."""
        self._machine, self._store = machine, machine.store
        self._journal, self._messages, self._log, self._puts = journal, journal.messages, journal.log, puts
        self._visible, self._wall_ms = journal.visible, wall_ms
        self._attempts: list[_Attempt] = []
        self._written: deque[tuple[int, list[Due]]] = deque()
        """With the end in the log of what is to be confirmed yet."""
        self._rolled: deque[tuple[int, Due]] = deque()
        """With the end in the log of those that wait on there, and are not in the wheel again yet."""
        self._source: Iterator[Due | None] = iter(())
        self._source_is_over = False
        self._spent: dict[int, None] = {}
        """Hashes of what markers took back: of each slot from ``_spent_from`` on that was opened."""
        self._spent_from = 0
        self._search: Iterator[None] = iter(())
        """Through the slots before."""
        self._moving: set[int] = set()
        """Offsets of messages that were put again, and are to be enqueued from there."""
        self._under_way = 0
        self._why = ""
        """The last put that was not stored, or not acknowledged in time."""
        self._polling = False
        self._caught_up = self._is_drained = False
        """All of the queue is in the wheel; the last look left nothing that is due, and could be dealt with."""

    # --- roles -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """This broker is master, and what it holds is seen."""
        if not self._machine.started:
            self._spent_from, self._search = self._store.read_time_ms, self._through_done()
        self._machine.start()
        self._caught_up = False

    def stop(self) -> None:
        """It is one no longer, or closes."""
        self._machine.stop()
        self._attempts.clear()
        self._written.clear()
        self._rolled.clear()
        self._source, self._under_way, self._taken = iter(()), 0, 0
        self._moving.clear()
        self._spent.clear()
        self._search, self._is_drained = iter(()), False

    # --- what is known ---------------------------------------------------------------------------------------

    @property
    def delivers(self) -> bool:
        return self._machine.started

    @property
    def queue_end(self) -> int:
        return self._messages.max_offset(TOPIC, 0)

    @property
    def behind(self) -> int:
        """Messages of the queue that are not in the wheel."""
        return max(0, self.queue_end - self._store.queue_offset)

    @property
    def enqueue_behind_ms(self) -> int:
        """How long ago the first of those was stored; 0 if there is none, or it cannot be read."""
        if not self.behind:
            return 0
        stored_ms = self._messages.store_time_ms(TOPIC, 0, self._store.queue_offset)
        return max(0, self._wall_ms() - stored_ms) if stored_ms > 0 else 0

    @property
    def unfinished(self) -> int:
        """Timers that are due, and not known to be stored."""
        return self._machine.unfinished

    @property
    def seen_before_ms(self) -> int:
        """What was due before was delivered, or put at least once, or taken by ``takes``."""
        return self._machine.seen_before_ms

    def keeps_from(self) -> int | None:
        """From where on the log is needed: by what is in the wheel, and what is to come there."""
        kept = self._store.oldest_offset()
        queue = self._messages.queue(TOPIC, 0)
        if queue is not None and self._store.queue_offset < queue.max_offset:
            offset, size, _ = queue.entry(max(self._store.queue_offset, queue.min_offset))
            if size != NOWHERE_SIZE:
                kept = offset if kept is None else min(kept, offset)
        return kept

    # --- working ---------------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        """When ``tick`` is due, if no more of the log is shown before."""
        started, stopped = self._machine.started, self.keys.timer_stop_enqueue
        if (self._store.queue_offset < self._enqueue_end and not stopped) or self._rolled or (
                started and not self._is_drained):
            return 0
        if not started:
            return NEVER
        now_ns, now_ms = self._journal.now_ns(), self._wall_ms()
        due_ns = now_ns + max(0, self._machine.due_ms(now_ms) - now_ms) * NS_PER_MS
        return min(due_ns, self._attempts[0].at_ns) if self._attempts else due_ns

    @property
    def _enqueue_end(self) -> int:
        """Behind the last of the queue that may go into the wheel now."""
        return self.queue_end if self._machine.started else min(self.queue_end, self.enqueue_below)

    def tick(self, now_ns: int) -> None:
        try:
            if not self.keys.timer_stop_enqueue:
                self._enqueue()
            self._look_at_rolled()
            self._poll(now_ns)
        except TimersDamaged as damage:
            self._anew(str(damage))

    def _anew(self, why: str) -> None:
        """What is kept of timers contradicts itself: it is made again from the queue."""
        logger.error("timers are put into the wheel anew: %s", why)
        started = self._machine.started
        self.stop()
        self._store.anew(why)
        if started:
            self.start()

    def _enqueue(self) -> None:
        """What came into the queue; a master has all of it in the wheel before it opens another slot."""
        queue = self._messages.queue(TOPIC, 0)
        if queue is None:
            self._caught_up = True
            return
        store = self._store
        if store.queue_offset < queue.min_offset:
            logger.warning("timers %d to %d are gone from the log", store.queue_offset, queue.min_offset - 1)
            store.queue_offset = queue.min_offset
        count = min(self._enqueue_end - store.queue_offset, ENQUEUED_MAX)
        if count > 0:
            for offset, size, _ in ENTRY.iter_unpack(queue.read(store.queue_offset, count)):
                if not self._enqueue_one(offset, size):
                    break
        self._caught_up = store.queue_offset >= queue.max_offset

    def _enqueue_one(self, offset: int, size: int) -> bool:
        """False: it cannot be read now."""
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
            self._machine.enqueue(offset, size, letter.topic_hash, out_ms=letter.out_ms,
                                  stored_ms=record.store_time_ms, deletes=letter.deletes)
        except OSError as error:
            logger.error("timers cannot be kept, and wait in their queue: %s", error)
            return False
        _count(self.counters.enqueued, letter.topic)
        if self._machine.started and not letter.deletes:  # a slave has its master's numbers
            self.came(letter.topic)
        if letter.moved_from is not None:
            self._is_moved(letter.moved_from, offset)
        return True

    def _is_moved(self, before: int, offset: int) -> None:
        """The message at ``before`` is to be found at ``offset`` from now on: its own slot knows it no more."""
        self._moving.discard(before)
        unit = self._store.find(before) if 0 <= before < offset else None
        if unit is not None and not unit.kind & MOVED:
            try:
                self._store.moved(unit)
                self.left(unit.topic_hash)
            except OSError as error:
                logger.error("a timer of the log's offset %d may come twice: %s", before, error)

    def make_way(self, below: int) -> None:
        """Put forward what waits, and stands below that offset of the log; some of it each time."""
        if not self._machine.started or not self.hears_all:
            return
        soon_ms, found = self._wall_ms() + SOON_MS, 0
        together: list[Unit] = []
        for unit in self._store.pending_below(below):
            if unit.slot_ms >= soon_ms and unit.offset not in self._moving:
                together.append(unit)
                found += 1
            if len(together) == TOGETHER_MAX or found == MOVED_MAX:
                self._move(together)
                together = []
            if found == MOVED_MAX:
                return
        self._move(together)

    def _move(self, units: list[Unit]) -> None:
        messages, moving = [], []
        for unit in units:
            try:
                letter = Letter.of(self._log.record(unit.offset, unit.size).message)
            except (OffsetGone, DamagedRecord, OSError) as error:
                logger.error("a timer of the log's offset %d is not put forward: %s", unit.offset, error)
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

    def _poll(self, now_ns: int) -> None:
        if self._polling or not self._machine.started:  # a put that ended at once: the loop below goes on
            return
        self._polling = True
        try:
            self._look_at_written()
            left, self._is_drained = LOOKED_AT_MAX, False
            while self._under_way < PUTS_MAX and left > 0:
                dues, alone, pause_ms = self._next(now_ns)
                if not dues:
                    break
                left -= len(dues)
                for part in [[due] for due in dues] if alone else [dues]:
                    self._put(part, pause_ms, now_ns)
        finally:
            self._polling = False

    def _look_at_written(self) -> None:
        """What was too slow to be answered is done when all who must hold it, do."""
        sure, written = min(self._journal.confirm_offset, self._journal.durable_end), self._written
        while written and written[0][0] <= sure:
            log_end, dues = written.popleft()
            for due in dues:
                self._done(due, log_end)

    def _look_at_rolled(self) -> None:
        """What waits on may be due already, if its roll was late: its slot is done when the wheel has it again."""
        shown, rolled = 0 if self.behind else self._visible.offset, self._rolled
        while rolled and rolled[0][0] <= shown:
            self._finish(rolled.popleft()[1])

    def _next(self, now_ns: int) -> tuple[list[Due], bool, int]:
        """Timers to deal with together; [] if there is nothing to do now."""
        attempts = self._attempts
        if attempts and attempts[0].at_ns <= now_ns:
            again = heappop(attempts)
            return again.dues, again.alone, again.pause_ms
        ready = self._caught_up and self.hears_all and not self.keys.timer_stop_dequeue
        if not ready or self._machine.unfinished - self._taken >= UNFINISHED_MAX:
            self._is_drained = True  # until something happens
            return [], False, 0
        dues: list[Due] = []
        for _ in range(LOOKED_AT_MAX):
            due = self._machine.late() or self._from_slot()
            if due is None:
                break
            dues.append(due)
            if len(dues) == TOGETHER_MAX:
                break
        self._is_drained = not dues and self._source_is_over
        return dues, False, PAUSE_MS

    def _from_slot(self) -> Due | None:
        """The next one, of the next slot where this one is at its end."""
        for _ in range(LOOKED_AT_MAX):
            try:
                due = next(self._source)
            except StopIteration:
                opened = self._machine.open(self._wall_ms())
                self._source_is_over = opened is None
                if opened is None:
                    return None
                self._source = opened
                continue
            if due is not None:
                return due
        return None

    def _mark(self, due: Due) -> None:
        """Whoever comes behind this one and has its key is taken back."""
        letter = self._read(due)
        if letter is not None:
            if letter.deletes:
                self._take_back(letter.key_deleted)
            self._machine.done(due)

    def _take_back(self, key: Key) -> None:
        self._spent[hash(key)] = None
        if len(self._spent) > SPENT_MAX:
            del self._spent[next(iter(self._spent))]

    def _knows_markers(self, due: Due, letter: Letter) -> bool:
        """Whether each one that stands in front of this message is known. If not, some more are from now on, and it is
        tried again.

        One that was put again may stand behind its marker, and come when the slot of both is done here: a slave hears
        that of its master before it has all that was in it. Others stand before theirs."""
        slot_ms = self._machine.floor(letter.out_ms)
        if slot_ms >= self._spent_from or not letter.came_again:
            return True
        try:
            next(self._search, None)
        except TimersDamaged as error:
            logger.error("timers that were taken back may come: %s", error)
            self._spent_from = 0
        except OSError as error:
            logger.error("what took back timers cannot be read: %s", error)
            self._search = self._through_done()
            self._again([due], PAUSE_MOST_MS)
            return False
        if slot_ms < self._spent_from:
            self._again([due], SEARCH_PAUSE_MS)
        return slot_ms >= self._spent_from

    def _through_done(self) -> Iterator[None]:
        """Reads the markers of slots that were done at the start of this run, the last slot first, in small steps."""
        store, empty = self._store, 0
        oldest_ms = 2 * store.read_time_ms - store.end_ms  # the wheel knows those of one turn
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
        """None: it is done, as there is nothing left of it, or it will be tried again."""
        try:
            return Letter.of(self._log.record(due.unit.offset, due.unit.size).message)
        except (OffsetGone, DamagedRecord) as error:
            logger.error("a timer of the log's offset %d is dropped: %s", due.unit.offset, error)
            self.counters.gone += 1
            self._finish(due)
        except OSError as error:
            logger.error("a timer of the log's offset %d cannot be read: %s", due.unit.offset, error)
            self._again([due], PAUSE_MOST_MS)
        return None

    def _put(self, dues: list[Due], pause_ms: int, now_ns: int) -> None:
        """All of them, or none."""
        messages: list[Message] = []
        put: list[Due] = []
        size = 0
        for number, due in enumerate(dues):
            if size > BYTES_MAX:
                self._again(dues[number:], 0)
                break
            message = self._message(due)
            if message is None:
                continue
            self._machine.seen(due)
            if not self._is_taken(due, message):
                put.append(Due(due.slot_ms, due.unit, due.run, message.topic.decode()))
                messages.append(message)
                size += len(message.body)
        if messages:
            self._under_way += 1
            self._puts.put(messages, lambda result: self._answered(put, pause_ms, result))

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
        """What is to be stored in its place; None: nothing now."""
        unit = due.unit
        if unit.deletes:
            self._mark(due)
            return None
        letter = self._read(due)
        if letter is None:
            return None
        now_ms = self._wall_ms()
        if self._delivered.has(unit.offset, letter.topic, letter.values.get(UNIQ_KEY, "")):
            self.counters.passed_over += 1
            self._leave(due, self._visible.offset)
            return None
        if not letter.deletes:
            key = hash(letter.key)
            if key not in self._spent and not self._knows_markers(due, letter):
                return None
            if key in self._spent:
                self.counters.recalled += 1
                self._finish(due)
                return None
        lost = letter.lost
        if not lost and not letter.came_again:
            self.expects(letter.topic, int(letter.values[REAL_QID]), unit.write_time_ms + self._store.precision_ms)
        if unit.rolls:
            return letter.rolled(unit, now_ms)
        if lost:
            self._set_aside(due, letter, lost)
            return None
        return letter.delivered(unit, now_ms)

    def _answered(self, dues: list[Due], pause_ms: int, result: PutResult) -> None:
        if not self._machine.counts(dues[0]):
            return
        self._under_way -= 1
        now_ns = self._journal.now_ns()
        if result.status is PutStatus.PUT_OK:
            log_end = result.puts[-1].offset + result.puts[-1].size if result.puts else 0
            for due in dues:
                self._done(due, log_end)
        elif result.status in WRITTEN and result.puts:
            self._why = f"stored, and not acknowledged yet: {result.status.name} {result.remark}".rstrip()
            self._written.append((result.puts[-1].offset + result.puts[-1].size, dues))
        elif result.status in ILLEGAL:
            self._illegal(dues, result)
        else:
            self.counters.retries += 1
            self._why = f"tried again: {result.status.name} {result.remark}".rstrip()
            if pause_ms == PAUSE_MS:
                logger.warning("%d timers are not stored, and will be tried again: %s %s", len(dues),
                               result.status.name, result.remark)
            self._again(dues, pause_ms)
        self._go_on(now_ns)

    def _go_on(self, now_ns: int) -> None:
        try:
            self._poll(now_ns)
        except TimersDamaged as damage:
            self._anew(str(damage))

    def _done(self, due: Due, log_end: int) -> None:
        if due.unit.rolls:
            self.counters.rolled += 1
        else:
            _count(self.counters.delivered, due.topic)
        self._leave(due, log_end)

    def _leave(self, due: Due, log_end: int) -> None:
        """It stands in the log below that."""
        if due.unit.rolls:
            self._rolled.append((log_end, due))
            self._machine.seen(due)
        else:
            self._finish(due)

    def _finish(self, due: Due) -> None:
        if not due.unit.kind & DELETE:
            self.left(due.unit.topic_hash)
        self._machine.done(due)

    @property
    def read_behind_ms(self) -> int:
        """By how much the first slot that is not done is late; 0 while nothing waits there."""
        first_ms = self._store.next_slot()
        return max(0, self._wall_ms() - first_ms) if first_ms is not None else 0

    @property
    def waiting_for(self) -> str:
        """Why a timer that is due may still wait here; "" while nothing stands in its way."""
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
            return f"{self.behind} messages of the timers' queue are to be put into the wheel first"
        if self._machine.unfinished - self._taken >= UNFINISHED_MAX:
            return f"{self._machine.unfinished - self._taken} that are due could not be stored yet"
        return self._why if self._attempts or self._written else ""

    def _again(self, dues: list[Due], pause_ms: int, *, alone: bool = False) -> None:
        heappush(self._attempts, _Attempt(
            self._journal.now_ns() + pause_ms * NS_PER_MS, dues, alone,
            min(max(2 * pause_ms, PAUSE_MS), PAUSE_MOST_MS)))

    def _illegal(self, dues: list[Due], result: PutResult) -> None:
        """No topic takes it, however often it is tried. Among several it is one."""
        if len(dues) > 1:
            self._again(dues, 0, alone=True)
            return
        letter = self._read(dues[0])
        if letter is not None:
            self._set_aside(dues[0], letter, result.remark)

    def _set_aside(self, due: Due, letter: Letter, why: str) -> None:
        logger.error("a timer of the log's offset %d is set aside: %s", due.unit.offset, why)
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
        else:
            self._again([due], PAUSE_MOST_MS)
        self._go_on(self._journal.now_ns())
