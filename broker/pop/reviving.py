"""Reviving: brings popped messages that were not acknowledged in time back, into their groups' retry topics.

A master reads the revive queues on the journal's ticks. A queue's offset passes a checkpoint only when each of its
messages is acknowledged, deleted, or stored again and confirmed. So a crash at any point repeats work and loses none;
``Revived`` keeps the repeated work from giving a message twice. A refused put is tried again without limit; a message
that cannot be read now gets a checkpoint of its own, due later. Source: ``PopReviveService`` of RocketMQ 5.5.0, which
passes a checkpoint whatever became of its messages.

An acting slave writes nothing to its log. It takes due records from their timers (``take``), which wait until the
records are done with, and its outlet stores revived messages at another group's master. A message that this slave
cannot find, or that no other master takes, stays for the master.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
import trio

from broker.abroad.others import Abroad
from broker.abroad.tickets import Acked, AckedHere
from broker.config import BrokerConfig, pick
from broker.groups.part import GroupsPart
from broker.groups.table import GroupTable
from broker.ha.acks import PutStatus
from broker.journal import NEVER, NS_PER_MS, PIECE_MAX, Journal
from broker.noted import Noted, shows_all
from broker.offsets.part import OffsetsPart
from broker.offsets.table import OffsetTable
from broker.part import Parts, Shared, SpecialService
from broker.pop import records
from broker.pop.keys import ReviveConfig, ReviveKeys
from broker.pop.records import Records
from broker.pop.retained import FAR_MS, Retained
from broker.pop.returning import ReviveCounters, Revived, dead_letter, retry_topic_of, returned
from broker.pop.revive import BACK_OFF_S, Loose, Outstanding, ReviveQueue, put_again
from broker.properties import REAL_QID, REAL_TOPIC, TIMER_DONE, TIMER_OUT_MS
from broker.puts import NotTaken, Outlet, PutResult, Stored
from broker.rules import Chain, Refusal
from broker.store.consumequeue import ENTRY, NOWHERE_SIZE, ConsumeQueue
from broker.store.errors import OffsetGone
from broker.store.tables import load
from broker.timer.delivery import ILLEGAL
from broker.timer.part import TimersPart
from broker.topics.names import DLQ_PREFIX, REVIVE_GROUP, TIMER, dlq_topic, popped_from
from broker.topics.part import TopicsPart
from broker.topics.table import TopicTable
from remoting.bodies.popping import CheckPoint
from remoting.body import Body, body
from remoting.errors import BodyError, DamagedRecord
from remoting.fields import Int64, decimal
from remoting.record import NOTED, PROPERTIES_BYTES_MAX, Message, Outline, Record, decode_properties, property_of

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker")

READ_MAX: Final = 2_000
"""Records that one tick reads of all queues."""
TOGETHER_MAX: Final = 32
"""Messages of one put."""
BYTES_MAX: Final = 1 << 20
"""Bytes of the bodies of one put; a single message may be larger."""
PUTS_MAX: Final = 16
"""Puts that may be in flight at once."""
PAUSE_MS: Final = 100
"""First pause before another attempt; it doubles."""
PAUSE_MOST_MS: Final = 2_000
"""Longest pause before another attempt."""
KEPT_MOST_MS: Final = 30_000
"""Longest pause of an attempt on an acting slave whose message waits for the master."""
GROUP_TRIES: Final = 3
"""A checkpoint of an unknown group is put again so often: a new master may learn of the group late."""
HEARD: Final = "config/popRevived.json"
HEARD_STEP: Final = 16 << 20
"""Bytes of the log that the next process may read again."""
LATE_MS: Final = 60_000
"""The log keeps messages this long after their checkpoints are done: records do not come in the order of their times.
"""
EARLY_MS: Final = 60_000
"""A checkpoint may be stored in its queue this long before it is due, besides what a timer waits: clocks differ."""
DONE_EVERY_NS: Final = 1_000_000_000


@body
class KeptRevived(Body):
    """The file ``config/popRevived.json`` (ours): from where the next process reads the log, and ``Retained``."""

    offset: Int64 = -1
    """Offset of the log from which messages must be heard; below 0: this broker has heard none."""
    steps: dict[Int64, dict[str, Int64]] = attrs.field(factory=dict)
    """Steps of ``Retained`` from checkpoints before ``offset``."""


class Fate(enum.Enum):
    """Reasons why a message does not come back now."""

    GONE = "deleted with its topic, which was created again"
    MISSING = "not here: deleted as old, or with its topic"
    LATER = "cannot be read now"


@attrs.define(eq=False)
class _Queue:
    number: int
    core: ReviveQueue
    kept: int
    """The group's offset, as this broker committed it."""
    lacks: bool = False
    """True: an acting slave has not all records behind that offset, so it stays: its master may have them."""

    @property
    def moved(self) -> bool:
        """Return whether there is a later offset to commit."""
        return self.core.processed > self.kept and not self.lacks


@attrs.define(order=True)
class _Attempt:
    """Messages of one checkpoint that are tried again at ``at_ns``."""

    at_ns: int
    number: int
    queue: _Queue = attrs.field(order=False)
    waiting: Outstanding = attrs.field(order=False)
    offsets: Sequence[int] = attrs.field(order=False)
    pause_ms: int = attrs.field(order=False, default=PAUSE_MS)


class Reviving:
    """Brings messages back. Call ``start`` when this broker is a master that has seen all, or acts; then ``tick``."""

    def __init__(self, journal: Journal, puts: Outlet, topics: TopicTable, groups: GroupTable, offsets: OffsetTable,
                 made: Records, revived: Revived, abroad: Abroad, broker_name: str, *,
                 done_before_ms: Callable[[], int], seen_before_ms: Callable[[], int],
                 wall_ms: Callable[[], int]) -> None:
        """``done_before_ms``: all timers that were due before that time are in their topics. ``seen_before_ms``: they
        are, or ``take`` took them."""
        self.config = ReviveConfig()
        self.counters = ReviveCounters()
        self.acked = AckedHere()
        """Acknowledgements that an acting slave took; some may not be in the log yet."""
        self._abroad, self._broker_name = abroad, broker_name
        self.hears_all = False
        """Whether ``revived`` has heard all of the log; nothing comes back before."""
        self._journal, self._log, self._messages, self._puts = journal, journal.log, journal.messages, puts
        self._visible = journal.visible
        self._topics, self._groups, self._offsets, self._records, self._revived = (
            topics, groups, offsets, made, revived)
        self._done_before_ms, self._seen_before_ms, self._wall_ms = done_before_ms, seen_before_ms, wall_ms
        self._acts = False
        self._topic = made.topic.encode()
        self._passed: dict[int, int] = {}
        """By queue, the largest offset of the group since the log was cut."""
        self._ahead: dict[int, int] = {}
        """By queue that lacks records, the last one that is done with since the log was cut."""
        journal.was_cut.join("parts", self._cut)
        self._queues: list[_Queue] = []
        """Empty while this broker does not bring back."""
        self._run = 0
        self._mark = (0, 0)
        """A time and an offset: all timers due before the time are in the log below the offset."""
        self._look_at_ns = 0
        self._attempts: list[_Attempt] = []
        self._kept: list[_Attempt] = []
        """On an acting slave: messages that wait for the master, and are tried now and then."""
        self._numbers = 0
        self._stored: Stored[tuple[_Queue, Outstanding, Sequence[int]]] = Stored(journal)
        """Messages that are put and not confirmed yet."""
        self._guests: deque[tuple[_Queue, Outstanding, Sequence[int], int]] = deque()
        """Guests whose messages are still to be read from their own group, and the pause before another attempt."""
        self._under_way = self._fetches = 0
        self._working = self._fetching = False
        self._why = ""
        """Reason why the last put was not stored."""

    # --- roles -----------------------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        return self._records.topic

    def numbers(self) -> Collection[int]:
        """Numbers of the revive queues: those configured, and older ones that hold records."""
        return {*range(self.config.revive_queue_num),
                *(number for topic, number in self._messages.queues() if topic == self._topic)}

    def processed(self, number: int) -> int:
        """The group's offset, that is the last record that is done with; -1: none is. An older copied table may lower
        it; then the largest one counts, since ``Revived`` forgot the messages between."""
        found = self._offsets.query(REVIVE_GROUP, self.topic, number)
        passed = self._passed[number] = max(self._passed.get(number, -1), -1 if found is None else found)
        return passed

    def _cut(self, _: int) -> None:
        self._passed.clear()
        self._ahead.clear()

    def start(self, *, acts: bool = False) -> None:
        """Begin after the group's offsets. ``acts``: this broker is an acting slave."""
        self.stop()
        self._acts = acts
        for number in sorted(self.numbers()):
            self._open(number)

    def _open(self, number: int) -> _Queue:
        end = self._messages.max_offset(self._topic, number)
        processed = self.processed(number)
        if processed >= end:
            logger.warning("revive queue %d ends at %d, but by its group's offset record %d is done with", number, end,
                           processed)
        kept = min(processed, end - 1)
        stored = self._messages.queue(self._topic, number)
        lacks = self._acts and stored is not None and processed + 1 < stored.min_offset
        core = ReviveQueue(max(kept, min(self._ahead.get(number, -1), end - 1)) if lacks else kept)
        self._queues.append(_Queue(number, core, kept, lacks))
        return self._queues[-1]

    def stop(self) -> None:
        """Stop bringing back: results of puts in flight are ignored."""
        self._run += 1
        self._ahead.update((queue.number, queue.core.processed) for queue in self._queues if queue.lacks)
        self._queues.clear()
        self._attempts.clear()
        self._kept.clear()
        self._stored.clear()
        self._guests.clear()
        self._mark, self._under_way, self._fetches, self._look_at_ns, self._why = (0, 0), 0, 0, 0, ""

    # --- figures ---------------------------------------------------------------------------------------------

    @property
    def lags(self) -> list[tuple[int, int, int]]:
        """Return each queue's number, records that are not done with, and how late the oldest checkpoint is in ms."""
        now_ms = self._wall_ms()
        return [(queue.number,
                 self._messages.max_offset(self._topic, queue.number) - queue.core.processed - 1 + queue.core.held,
                 max(0, now_ms - oldest_ms) if (oldest_ms := queue.core.oldest_ms) is not None else 0)
                for queue in self._queues]

    @property
    def waits_for(self) -> str:
        """Reason why messages that are due do not come back yet; "" if they do."""
        if not self._queues:
            return "this broker brings nothing back: it follows a master, or its writes are not open"
        if not self.hears_all:
            return "it reads in the log what came back before"
        behind_ms = self._wall_ms() - self._all_before_ms()
        if behind_ms > 5_000:
            return f"the timers are {behind_ms // 1_000} s behind: see timerWaitsFor"
        return self._why if self._attempts or self._kept or self._stored else ""

    def keeps_from(self) -> int | None:
        """Offset in the log of the oldest record that is not done with; None: there is none."""
        needed = []
        for number in self.numbers():
            queue = self._messages.queue(self._topic, number)
            place = self.processed(number) + 1
            if queue is not None and place < queue.max_offset:
                offset, size, _ = queue.entry(max(place, queue.min_offset))
                needed += [offset] if size != NOWHERE_SIZE else []
        return min(needed, default=None)

    def done_upto_ms(self) -> int:
        """Checkpoints that came due before this time are done with, as far as this replica knows. It is approximate:
        records do not come in the order of their times."""
        first_ms = self._done_before_ms()
        for number in self.numbers():
            queue, place = self._messages.queue(self._topic, number), self.processed(number) + 1
            if queue is not None and place < queue.max_offset:
                offset, size, _ = queue.entry(max(place, queue.min_offset))
                if size != NOWHERE_SIZE:
                    first_ms = min(first_ms, _due_ms(self._log.record(offset, size)))
        return first_ms

    def _all_before_ms(self) -> int:
        """All records that were due before this time have reached this class or its queues."""
        return self._seen_before_ms() if self._acts else self._done_before_ms()

    # --- working ---------------------------------------------------------------------------------------------

    def take(self, message: Message, done: Callable[[], None]) -> bool:
        """Take a due message from its timer on an acting slave. False: it is no record for this class. True: ``done``
        is called once it is done with, perhaps before this returns."""
        if not self._acts or not self._queues:
            return False
        number = message.queue_id
        if message.topic == TIMER.encode():  # a long delay, which is made of several timers
            real = decode_properties(message.properties)
            number = decimal(real.get(REAL_QID, "")) or 0
            if real.get(REAL_TOPIC) != self.topic:
                return False
        elif message.topic != self._topic:
            return False
        queue = next((each for each in self._queues if each.number == number), None) or self._open(number)
        found = self._understood(queue, message, "a record that is due")
        if found is None:
            done()
            return True
        first = _first(message.properties)
        loose = Loose(-2 - (first or 0), done)
        if isinstance(found, CheckPoint):
            queue.core.checkpoint(self._rest(found), self._log.max_offset if first is None else first, loose)
        else:
            queue.core.acked(found.key, found.acked, self._wall_ms(), loose)
        return True

    def acked_here(self, each: Acked) -> None:
        """An acting slave took this acknowledgement."""
        self.acked.add(each)
        for queue in self._queues:
            queue.core.acked_elsewhere(each.found.key, each.found.acked)
        self._journal.stir()

    def _rest(self, found: CheckPoint) -> CheckPoint:
        """The checkpoint without messages that an acting slave took acknowledgements for."""
        offsets = self.acked.of(found.key) if found.re_puts is None else ()
        bits = sum(1 << at for at, offset in enumerate(found.offsets) if offset in offsets)
        return attrs.evolve(found, bits=found.bits | bits) if bits else found

    def due_ns(self) -> int:
        """Return when ``tick`` is due, unless more of the log is shown before."""
        now_ns, now_ms = self._journal.now_ns(), self._wall_ms()
        due_ns = min((each[0].at_ns for each in (self._attempts, self._kept) if each), default=NEVER)
        for queue in self._queues:
            due_ms = queue.core.due_ms()
            if queue.core.at < self._messages.max_offset(self._topic, queue.number):
                return 0
            if due_ms is not None or queue.moved:
                due_ns = min(due_ns, now_ns + max(0, (due_ms or 0) - now_ms) * NS_PER_MS)
        return due_ns

    def tick(self, now_ns: int) -> None:
        if not self._queues or not self.hears_all:
            return
        self._look_at_stored()
        self._take_mark()
        left = READ_MAX
        for queue in self._queues:
            left -= self._read(queue, max(left, READ_MAX // len(self._queues)))
        self._work(now_ns)
        for queue in self._queues:
            if queue.moved and not self._offsets.frozen:
                queue.kept = queue.core.processed
                self._offsets.commit(REVIVE_GROUP, self.topic, queue.number, queue.kept)
            for loose in queue.core.let_go(queue.kept):
                loose.done()

    def _take_mark(self) -> None:
        done_ms, end = self._mark
        if end <= self._visible.offset:
            for queue in self._queues:
                queue.core.stands_below(done_ms, self._messages.max_offset(self._topic, queue.number))
            self._mark = self._all_before_ms(), self._log.max_offset

    def _read(self, queue: _Queue, most: int) -> int:
        """Read up to ``most`` records of a queue; returns how many."""
        core, stored = queue.core, self._messages.queue(self._topic, queue.number)
        if stored is None or core.at >= stored.max_offset:
            return 0
        if core.at < stored.min_offset:
            queue.lacks |= self._acts
            logger.error("records %d to %d of revive queue %d %s", core.at, stored.min_offset - 1, queue.number,
                         "are not here: they are left to the master" if self._acts else
                         "are deleted: messages of their checkpoints may be lost")
            core.nothing(stored.min_offset - core.at)
        count = 0
        try:
            for offset, size, _ in ENTRY.iter_unpack(stored.read(core.at, most)):
                self._read_one(queue, offset, size)
                count += 1
        except OSError as error:
            logger.error("revive queue %d cannot be read from %d on: %s", queue.number, core.at, error)
        return count

    def _read_one(self, queue: _Queue, offset: int, size: int) -> None:
        core = queue.core
        if size == NOWHERE_SIZE:
            return core.nothing()
        try:
            record = self._log.record(offset, size)
        except (OffsetGone, DamagedRecord) as error:
            self._skip(queue, f"record {core.at}", error)
            return core.nothing()
        latest_ms = record.store_time_ms + EARLY_MS + 1_000 * self.config.timer_max_delay_sec
        found = self._understood(queue, record.message, f"record {core.at}", latest_ms)
        if found is None:
            return core.nothing()
        if isinstance(found, CheckPoint):
            return core.checkpoint(self._rest(found), _logged(record))
        return core.acked(found.key, found.acked, self._wall_ms())

    def _understood(self, queue: _Queue, message: Message, which: str,
                    latest_ms: int | None = None) -> records.PopRecord | None:
        try:
            found = records.read(message, latest_ms)
        except BodyError as error:
            self._skip(queue, which, error)
            return None
        kind = "CK" if isinstance(found, CheckPoint) else "ACK"
        self.counters.count_read(found.group, found.topic, queue.number, kind)
        return found

    def _skip(self, queue: _Queue, which: str, error: Exception) -> None:
        self.counters.strange += 1
        logger.error("%s of revive queue %d is skipped: %s", which, queue.number, error)

    def _work(self, now_ns: int) -> None:
        if self._working:  # called by a put that ended at once: the outer call goes on
            return
        self._working = True
        try:
            self._bring_some_back(now_ns)
        finally:
            self._working = False

    def _bring_some_back(self, now_ns: int) -> None:
        attempts, left = self._attempts, PIECE_MAX
        self._fetch()
        while attempts and attempts[0].at_ns <= now_ns and self._under_way < PUTS_MAX:
            again = heappop(attempts)
            self._bring_back(again.queue, again.waiting, again.offsets, again.pause_ms)
        while self._kept and self._kept[0].at_ns <= now_ns and left and self._under_way < PUTS_MAX:
            left -= 1
            again = heappop(self._kept)
            self._bring_back(again.queue, again.waiting, again.offsets, again.pause_ms)
        if now_ns < self._look_at_ns:
            return
        for queue in self._queues:
            while left and self._under_way < PUTS_MAX and len(attempts) < PUTS_MAX:
                left -= 1
                ripe = queue.core.ripe(self._wall_ms(), 1)
                if not ripe:
                    break
                self._bring_back(queue, ripe[0], sorted(ripe[0].left), PAUSE_MS)
        if left and self._under_way < PUTS_MAX and len(attempts) < PUTS_MAX:
            self._look_at_ns = now_ns + self.config.revive_interval * NS_PER_MS

    # --- one checkpoint --------------------------------------------------------------------------------------

    def _bring_back(self, queue: _Queue, waiting: Outstanding, offsets: Sequence[int], pause_ms: int) -> None:
        """Put these messages of a checkpoint into the retry topic. A guest's messages are fetched before."""
        if not self._is_guest(waiting.checkpoint):
            self._bring(queue, waiting, offsets, pause_ms, partial(self._look_up, waiting))
            return
        self._guests.append((queue, waiting, offsets, pause_ms))
        self._fetch()

    def _fetch(self) -> None:
        """Fetch messages of guests from their groups, a few at a time; this group's own do not wait for them."""
        if self._fetching:  # called by an answer that came at once: the outer call goes on
            return
        self._fetching = True
        while self._guests and self._fetches < PUTS_MAX and self._under_way < PUTS_MAX:
            self._fetches += 1
            each = self._guests.popleft()
            found = each[1].checkpoint
            self._abroad.read(found.broker_name or "", found.topic, found.queue_id, each[2],
                              partial(self._fetched, self._run, *each))
        self._fetching = False

    def _fetched(self, run: int, queue: _Queue, waiting: Outstanding, offsets: Sequence[int], pause_ms: int,
                 records: Mapping[int, Record], gone: frozenset[int]) -> None:
        if run != self._run:
            return
        self._journal.stir()
        self._fetches -= 1
        self._bring(queue, waiting, offsets, pause_ms, lambda offset: records.get(
            offset, Fate.GONE if offset in gone else Fate.LATER))
        self._fetch()

    def _is_guest(self, found: CheckPoint) -> bool:
        """Return whether the checkpoint is of another group's messages, which its acting slave gave out."""
        return found.broker_name not in (None, "", self._broker_name)

    def _bring(self, queue: _Queue, waiting: Outstanding, offsets: Sequence[int], pause_ms: int,
               look_up: Callable[[int], Record | Fate]) -> None:
        found = waiting.checkpoint
        lost, unknown, given_up = self._prospects(found)
        topic = retry_topic_of(found, v2=self.config.enable_retry_topic_v2)
        together: list[tuple[int, Message]] = []
        size = 0
        for offset in offsets:
            record = Fate.GONE if lost else Fate.LATER if unknown else look_up(offset)
            if record is Fate.MISSING:
                record = Fate.LATER if self._acts else Fate.GONE  # the master may have what its slave lacks
            if record is Fate.GONE or (given_up and record is Fate.LATER):
                self.counters.gone += 1
                self.counters.out.done(found.group, found.topic, 1)
                queue.core.done(waiting, offset)
            elif isinstance(record, Fate):
                self._put_again(queue, waiting, offset, pause_ms)
            else:
                message = returned(record, found, topic, self._records.store_host, queue=queue.number,
                                   place=waiting.place)
                if waiting.place >= 0 and self._revived.has(queue.number, waiting.place, offset, message):
                    self.counters.passed_over += 1
                    queue.core.done(waiting, offset)
                    continue
                if len(message.properties) > PROPERTIES_BYTES_MAX and not self._acts:
                    self._put(queue, waiting, [(offset, dead_letter(message, record, found.group))], pause_ms)
                    continue
                if together and (size + len(message.body) > BYTES_MAX or len(together) == TOGETHER_MAX):
                    self._put(queue, waiting, together, pause_ms)
                    together, size = [], 0
                together.append((offset, message))
                size += len(message.body)
        if together:
            self._put(queue, waiting, together, pause_ms)

    def _prospects(self, found: CheckPoint) -> tuple[bool, bool, bool]:
        """Three answers: the messages have no reader any more; their group is not known yet; they are given up if they
        cannot be read. An acting slave says no to all, since its tables may be older than its master's."""
        if self._acts:
            return False, False, False
        lost = self._topics.get(popped_from(found.topic, found.group)) is None
        unknown, tries = self._groups.find(found.group, keep=False) is None, decimal(found.re_puts or "") or 0
        given_up = self.config.skip_when_ck_re_put_reach_max_times and tries >= len(BACK_OFF_S)
        if self._is_guest(found):  # topic and group existed when it was taken, and may be created again
            return False, lost or unknown, given_up
        return lost or (unknown and tries >= GROUP_TRIES), unknown, given_up

    def _look_up(self, waiting: Outstanding, offset: int) -> Record | Fate:
        found = waiting.checkpoint
        topic = found.topic.encode()
        queue = self._messages.queue(topic, found.queue_id)
        if queue is None or not queue.max_offset or offset < queue.min_offset:
            return Fate.MISSING
        try:
            if offset >= queue.max_offset:
                return self._beyond(queue, waiting)
            at, size, _ = queue.entry(offset)
            if size == NOWHERE_SIZE or at < self._log.min_offset:
                return Fate.MISSING
            if at >= waiting.logged:
                return Fate.GONE
            record = self._log.record(at, size)
        except (OffsetGone, DamagedRecord, OSError) as error:
            logger.error("popped message %d of %s, queue %d, cannot be read: %s", offset, found.topic, found.queue_id,
                         error)
            return Fate.LATER
        if record.queue_offset != offset or record.message.topic != topic:
            logger.error("entry %d of %s, queue %d, points to message %d of %s", offset, found.topic, found.queue_id,
                         record.queue_offset, record.message.topic.decode(errors="replace"))
            return Fate.LATER
        return record

    def _beyond(self, queue: ConsumeQueue, waiting: Outstanding) -> Fate:
        """The fate of a message after the queue's end: deleted, if the queue was created again after the checkpoint, so
        that its first message is younger."""
        if queue.min_offset == queue.max_offset:
            return Fate.LATER
        at, size, _ = queue.entry(queue.min_offset)
        return Fate.GONE if size != NOWHERE_SIZE and at >= waiting.logged else Fate.LATER

    def _put(self, queue: _Queue, waiting: Outstanding, together: list[tuple[int, Message]], pause_ms: int) -> None:
        topic = together[0][1].topic.decode()
        if not self._acts:
            self._make_topic(topic, waiting.checkpoint.group)
        self._begin(queue, waiting, [offset for offset, _ in together], [message for _, message in together], pause_ms)

    def _make_topic(self, topic: str, group: str) -> None:
        if self._topics.get(topic) is None:
            self._topics.create_if_absent(topic, 1)
        if topic != dlq_topic(group) and self._offsets.query(group, topic, 0) is None:
            self._offsets.commit(group, topic, 0, 0)

    def _put_again(self, queue: _Queue, waiting: Outstanding, offset: int, pause_ms: int) -> None:
        """Store a checkpoint of its own for a message that cannot be read now; an acting slave keeps it in memory."""
        if self._acts:
            found = waiting.checkpoint
            self._keep(queue, waiting, offset, pause_ms, f"message {offset} of {found.topic}, queue {found.queue_id}, "
                                                         "cannot be read here")
            return
        message = self._records.checkpoint(put_again(waiting.checkpoint, offset, self._wall_ms()), queue.number)
        if isinstance(message, Refusal):
            self._again(queue, waiting, [offset], pause_ms, message.remark)
        else:
            self._begin(queue, waiting, [offset], [message], pause_ms, back=False)

    def _begin(self, queue: _Queue, waiting: Outstanding, offsets: Sequence[int], messages: Sequence[Message],
               pause_ms: int, *, back: bool = True) -> None:
        run = self._run
        self._under_way += 1

        def answered(result: PutResult) -> None:
            if run == self._run:
                self._under_way -= 1
                if result.puts and messages[0].topic.startswith(DLQ_PREFIX.encode()):
                    self.counters.full += 1
                    logger.warning("message %d of %s, queue %d, is now a dead letter of group %s: its properties have "
                                   "no room for those of a retry", offsets[0], waiting.checkpoint.topic,
                                   waiting.checkpoint.queue_id, waiting.checkpoint.group)
                self._answered(queue, waiting, offsets, pause_ms, result, back=back)
                self._work(self._journal.now_ns())

        self._puts.put(messages, answered)

    def _answered(self, queue: _Queue, waiting: Outstanding, offsets: Sequence[int], pause_ms: int, result: PutResult,
                  *, back: bool) -> None:
        found = waiting.checkpoint
        if not back:
            self._records.counts.count([found] * len(offsets), result.status.name)
        else:
            self.counters.count_back(found.group, found.topic, result.status.name, len(offsets))
        if result.puts:
            self.counters.again += 0 if back else len(offsets)
            self._stored.add(result, (queue, waiting, offsets))
            self._why = f"stored, and not confirmed yet: {result.words}"
            return
        if result.status is PutStatus.PUT_OK:  # in another master's log
            for offset in offsets:
                queue.core.done(waiting, offset)
            return
        why = result.words
        if self._acts and isinstance(result, NotTaken) and len(offsets) == 1:
            self._keep(queue, waiting, offsets[0], pause_ms, why)
        elif result.status not in ILLEGAL and not (self._acts and len(offsets) > 1):
            self._again(queue, waiting, offsets, pause_ms, why)
        elif len(offsets) > 1:  # one of them is illegal: put them one by one
            for offset in offsets:
                self._again(queue, waiting, [offset], 0, why)
        elif back:
            logger.error("message %d of %s, queue %d, cannot be stored for group %s: %s", offsets[0], found.topic,
                         found.queue_id, found.group, why)
            self._put_again(queue, waiting, offsets[0], pause_ms)
        else:
            self._again(queue, waiting, offsets, PAUSE_MOST_MS, why)

    def _again(self, queue: _Queue, waiting: Outstanding, offsets: Sequence[int], pause_ms: int, why: str) -> None:
        if pause_ms == PAUSE_MS:
            logger.warning("%d popped messages cannot be put into their retry topic now, tried again: %s", len(offsets),
                           why)
        self._why = f"tried again: {why}"
        self._numbers += 1
        heappush(self._attempts, _Attempt(
            self._journal.now_ns() + pause_ms * NS_PER_MS, self._numbers, queue, waiting, offsets,
            min(max(2 * pause_ms, PAUSE_MS), PAUSE_MOST_MS)))

    def _keep(self, queue: _Queue, waiting: Outstanding, offset: int, pause_ms: int, why: str) -> None:
        """Keep a message for the master, and try it again now and then."""
        why = f"kept: {why}"
        if why != self._why:
            logger.warning("a popped message waits for its master, or until another group's master takes it: %s", why)
        self._why = why
        self._numbers += 1
        pause_ms = min(max(2 * pause_ms, 2 * PAUSE_MOST_MS), KEPT_MOST_MS)
        heappush(self._kept, _Attempt(
            self._journal.now_ns() + pause_ms * NS_PER_MS, self._numbers, queue, waiting, [offset], pause_ms))

    def _look_at_stored(self) -> None:
        for queue, waiting, offsets in self._stored.confirmed():
            for offset in offsets:
                queue.core.done(waiting, offset)


def _logged(record: Record) -> int:
    """Offset in the log of the checkpoint's first copy, or a larger one."""
    first = _first(record.message.properties)
    return first if first is not None and 0 <= first < record.offset else record.offset


def _first(properties: bytes) -> int | None:
    """Offset in the log of the first copy, as the timer noted it."""
    said = property_of(properties, TIMER_DONE.encode())
    return decimal(said.decode(errors="replace")) if said is not None else None


def _due_ms(record: Record) -> int:
    said = property_of(record.message.properties, TIMER_OUT_MS.encode())
    due_ms = decimal(said.decode(errors="replace")) if said is not None else None
    return record.store_time_ms if due_ms is None else min(due_ms, record.store_time_ms)


class RevivePart(SpecialService):
    """Runs reviving on masters and acting slaves, and keeps the part of the log that it needs."""

    keys = ReviveKeys
    follows: ClassVar[bool] = True

    def __init__(self, shared: Shared, before: Parts) -> None:
        super().__init__(shared)
        config, journal = shared.config, shared.journal
        timers = before[TimersPart]
        self._journal, self._end = journal, 0
        """End of the log when this broker became master."""
        made = Records(config.broker_cluster_name, config.store_host, shared.wall_ms, Chain(*timers.rules()))
        self._revived = Revived(self._processed)
        self.reviving = Reviving(
            journal, shared.outlet, before[TopicsPart].table, before[GroupsPart].table, before[OffsetsPart].table, made,
            self._revived, shared.abroad, config.broker_name, done_before_ms=lambda: timers.done_before_ms,
            seen_before_ms=lambda: timers.seen_before_ms, wall_ms=shared.wall_ms)
        self.reviving.counters.out = before[OffsetsPart].inflight
        timers.take(self.reviving.take)
        self._messages, self._log, self._done_at_ns = journal.messages, journal.log, 0
        kept = load(shared.files, KeptRevived, HEARD)
        self._heard, self._retained = kept.offset, Retained(kept.steps, config.broker_name)
        self._file = shared.table_file(lambda: KeptRevived(self._heard, self._retained.steps), path=HEARD)
        if self._heard < 0:
            self._heard = journal.end
            self._file.changed()
        self._noted = Noted(journal, self._heard, self._take, self._revived.cut, flags=NOTED)

    def _processed(self, number: int) -> int:
        return self.reviving.processed(number)

    def configure(self, config: BrokerConfig) -> None:
        keys = self.reviving.config = pick(config, ReviveConfig)
        self._retained.far_ms = max(FAR_MS, 1_000 * keys.timer_max_delay_sec)

    def runtime_info(self) -> Mapping[str, str]:
        return {"popReviveBehind": str(sum(lag for _, lag, _ in self.reviving.lags)),
                "popReviveWaitsFor": self.reviving.waits_for}

    def metrics(self, page: Page) -> Iterator[Metric]:
        counters, lags = self.reviving.counters, self.reviving.lags
        yield page.counter("rocketmq_pop_revive_out_message", "Records of checkpoints that were read.", [
            ((group, topic, str(number), kind), count)
            for (group, topic, number, kind), count in sorted(counters.read.items())],
            "consumer_group", "topic", "queue_id", "revive_message_type")
        yield page.counter("rocketmq_pop_revive_retry_messages", "Messages put into retry topics.", [
            (labels, count) for labels, count in sorted(counters.back.items())],
            "consumer_group", "topic", "put_status")
        yield page.gauge("rocketmq_pop_revive_lag_milliseconds", "Records of checkpoints that are not done with.", [
            ((str(number),), lag) for number, lag, _ in lags], "queue_id")
        yield page.gauge("rocketmq_pop_revive_latency_milliseconds", "By how much the first of them is late.", [
            ((str(number),), late_ms) for number, _, late_ms in lags], "queue_id")
        yield page.counter("broker_pop_revive_others", "Messages that did not come back. Ours.", [
            (("gone",), counters.gone), (("later",), counters.again), (("passed_over",), counters.passed_over),
            (("strange",), counters.strange), (("full",), counters.full)], "why")

    def keeps_from(self) -> int | None:
        """Offset of the log of the first record or message that is needed; deleted queues need none."""
        needed = [self.reviving.keeps_from()]
        for (topic, queue_id), first in self._retained.firsts().items():
            queue = self._messages.queue(topic.encode(), queue_id)
            if queue is not None and first < queue.max_offset:
                offset, size, _ = queue.entry(max(first, queue.min_offset))
                needed += [offset] if size != NOWHERE_SIZE else []
        return min((each for each in needed if each is not None), default=None)

    # --- moments ---------------------------------------------------------------------------------------------

    def writes_opened(self) -> None:
        self._end, self.reviving.hears_all = self._log.max_offset, False
        super().writes_opened()

    def begin(self) -> None:
        self.reviving.start(acts=self._standing.role.acts)

    def end(self) -> None:
        self.reviving.stop()

    # --- periodic work ---------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        if not self._noted.told_all or not self.reviving.hears_all:
            return 0
        return min(self.reviving.due_ns(), self._done_at_ns if self._retained.steps else NEVER)

    def tick(self, now_ns: int) -> None:
        self._hear()
        self.reviving.tick(now_ns)
        if now_ns >= self._done_at_ns and self._retained.steps:
            self._done_at_ns = now_ns - now_ns % DONE_EVERY_NS + DONE_EVERY_NS
            try:
                self._retained.pass_to(self.reviving.done_upto_ms() - LATE_MS)
            except (OffsetGone, DamagedRecord, OSError) as error:
                logger.error("the log may keep old messages for longer: a revive queue cannot be read: %s", error)

    def _take(self, found: Outline) -> None:
        self._revived.hear(found)
        self._retained.hear(found)

    def _hear(self) -> None:
        """Hear what the log says of revived messages, and note how far it was heard."""
        unread = self._noted.listen()
        if unread is not None:
            logger.error("some popped messages may come back twice: the log cannot be read: %s", unread)
        if not self.reviving.hears_all:
            self.reviving.hears_all = self._noted.told_all and shows_all(self._journal, self._end)
        self._revived.forget()
        begins = self._revived.begins(self._noted.offset)
        if abs(begins - self._heard) >= HEARD_STEP:
            self._heard = begins
            self._file.changed()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._file.run(task_status=task_status)
