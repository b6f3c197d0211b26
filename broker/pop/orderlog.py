"""Order of POP in the log: each change of a queue's state is a message, which every replica reads.

Of each queue the last message counts, and holds the whole state, so reading again does no harm. A master leaves a word
of its reign before its first change, or at once where there are states: those from before a reign without a word are
void, since a Java broker was master then and kept its own. ``config/consumerOrderInfo.json`` is Java's file with a
field of ours: where that is missing, Java wrote last. Source: ``ConsumerOrderInfoManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
import trio

from broker.groups.part import GroupsPart
from broker.ha.acks import PutStatus
from broker.journal import NEVER, NS_PER_MS, Journal
from broker.noted import shows_all
from broker.offsets.part import OffsetsPart
from broker.offsets.table import OffsetTable
from broker.part import DeliveringPart, Parts, Shared
from broker.pop.order import Change, OrderInfo, OrderKey, Orders
from broker.puts import Done, PutResult, Puts
from broker.store.consumequeue import ENTRY, NOWHERE_SIZE
from broker.store.errors import OffsetGone, WrongStore
from broker.store.files import Files
from broker.store.tables import load
from broker.topics.names import POP_ORDER
from broker.topics.part import TopicsPart
from broker.topics.table import TopicTable
from remoting.body import Body, body
from remoting.errors import BodyError, DamagedRecord
from remoting.fields import Int32, Int64
from remoting.record import Message

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker")

TOPIC: Final = POP_ORDER.encode()
QUEUE: Final = 0
PATH: Final = "config/consumerOrderInfo.json"
SAVED_EVERY_MS: Final = 10_000
SLICE: Final = 1_000
"""Messages that one tick reads."""
TOGETHER_MAX: Final = 32
"""States that are put forward in one put."""
RETRY_NS: Final = 1_000_000_000
UNUSED_EVERY_NS: Final = 60_000_000_000
REIGNS_MAX: Final = 1_000


@body
class OrderRecord(Body):
    """A message of the order topic: the state of one queue from now on, or, without a topic, the word of a reign."""

    epoch: Int64
    """Of the master that wrote it; 0 where no controller counts them."""
    topic: str = ""
    group: str = ""
    queue_id: Int32 = 0
    state: OrderInfo | None = None
    """None: there is none."""


@body
class OrdersRead(Body):
    """Ours, in Java's file: how far the order topic was read, and where in it the states stand."""

    at: Int64 = 0
    reigns: list[Int64] = attrs.field(factory=list)
    places: dict[str, dict[Int32, list[Int64]]] = attrs.field(factory=dict)
    """As the table: place and epoch of each."""


@body
class ConsumerOrderInfos(Body):
    """``config/consumerOrderInfo.json``: by ``topic@group`` and queue id."""

    table: dict[str, dict[Int32, OrderInfo]] = attrs.field(factory=dict)
    order_info_count: Int64 = 0
    ordered_consumption_level: str = "QUEUE"
    quorate: OrdersRead | None = None


class OrderLog:
    """``tick`` on every replica; ``opened``, then ``start``, on a master. Until ``ready`` nothing is given, and
    ``store`` refuses."""

    def __init__(self, journal: Journal, puts: Puts, topics: TopicTable, offsets: OffsetTable,
                 kept: ConsumerOrderInfos | None, *, epoch: Callable[[], int], reigns: Callable[[], Collection[int]],
                 is_ruled: bool, store_host: bytes, wall_ms: Callable[[], int]) -> None:
        """``reigns``: epochs that wrote to the log. ``is_ruled``: by controllers, so another one may have been master
        since Java wrote the file."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when ``table`` is another."""
        self.on_unlock: Callable[[OrderKey], None] = lambda key: None
        """Called on a master when a queue blocks no more."""
        self.orders = Orders()
        self.ready = False
        self.stored = self.refused = 0
        """Changes that were, since this process began."""
        self._journal, self._log, self._messages, self._puts = journal, journal.log, journal.messages, puts
        self._topics, self._offsets, self._epoch, self._reigns = topics, offsets, epoch, reigns
        self._store_host, self._wall_ms = store_host, wall_ms
        self._leads = self._seen = self._word_under_way = False
        self._word_of = -1
        """The last reign of this broker that left a word."""
        self._known: dict[int, None] = {}
        """Epochs that left word."""
        self._at = self._end = 0
        """The next message to read; what this broker held when it became master."""
        self._gone: dict[OrderKey, OrderInfo] = {}
        """States that are to be cleared, unless they have become others."""
        self._unwritten: list[OrderKey] = []
        """States of Java's file, to be stored."""
        self._unlocks: list[tuple[int, OrderKey]] = []
        """Heap: when a queue blocks no more."""
        self._unlock_ms: dict[OrderKey, int] = {}
        """What of it holds."""
        self._retry_at_ns = self._unused_at_ns = 0
        self._load(kept, is_ruled)
        journal.was_cut.join("parts", self._cut)

    # --- its file --------------------------------------------------------------------------------------------

    def _load(self, kept: ConsumerOrderInfos | None, is_ruled: bool) -> None:
        read = None if kept is None else kept.quorate
        end = self._messages.max_offset(TOPIC, QUEUE)
        if kept is not None and read is not None and read.at <= end:
            self._at = read.at
            self._known = dict.fromkeys(read.reigns)
            self._take(kept, read)
        elif kept is not None and read is None and (not end or not is_ruled):
            self._at = end
            self._take(kept, OrdersRead())

    def _take(self, kept: ConsumerOrderInfos, read: OrdersRead) -> None:
        for name, queues in kept.table.items():
            topic, _, group = name.partition("@")
            for queue_id, state in queues.items():
                place, epoch = (*read.places.get(name, {}).get(queue_id, ()), -1, 0)[:2]
                try:
                    state.check()
                except BodyError as error:
                    logger.warning("%s: %s, queue %d: %s", PATH, name, queue_id, error)
                else:
                    self.orders.restore(OrderKey(topic, group, queue_id), state, place, epoch)

    def table(self) -> ConsumerOrderInfos:
        """What the file of this part holds."""
        table: dict[str, dict[int, OrderInfo]] = {}
        places: dict[str, dict[int, list[int]]] = {}
        for key, kept in self.orders.kept.items():
            name = f"{key.topic}@{key.group}"
            table.setdefault(name, {})[key.queue_id] = kept.state
            places.setdefault(name, {})[key.queue_id] = [kept.place, kept.epoch]
        return ConsumerOrderInfos(table, len(self.orders.kept), quorate=OrdersRead(
            self._at, list(self._known), places))

    # --- reading ---------------------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Not all of the order topic is read."""
        return self._at < self._messages.max_offset(TOPIC, QUEUE)

    def read(self, most: int = SLICE) -> bool:
        """Go on; True: there is more. Raises ``OSError``: it may be tried again."""
        queue = self._messages.queue(TOPIC, QUEUE)
        if queue is None or self._at >= queue.max_offset:
            return False
        self._at = max(self._at, queue.min_offset)
        for offset, size, _ in ENTRY.iter_unpack(queue.read(self._at, most)):
            if size != NOWHERE_SIZE:
                self._read_one(offset, size)
            self._at += 1
        self.orders.passed(self._at)
        self.on_change()
        return self._at < queue.max_offset

    def _read_one(self, offset: int, size: int) -> None:
        try:
            found = OrderRecord.from_json(self._log.record(offset, size).message.body)
            if found.state is not None:
                found.state.check()
        except (OffsetGone, DamagedRecord, BodyError) as error:
            logger.warning("a message of order, at %d of the log, is passed over: %s", offset, error)
            return
        if found.topic:
            self.orders.heard(OrderKey(found.topic, found.group, found.queue_id), found.state, self._at, found.epoch)
        else:
            self._reigned(found.epoch)

    def _reigned(self, epoch: int) -> None:
        self._known[epoch] = None
        if len(self._known) > REIGNS_MAX:
            del self._known[next(iter(self._known))]

    def _cut(self, end: int) -> None:
        """What stood behind is gone: what is left is read again, where that matters."""
        last = self._messages.max_offset(TOPIC, QUEUE)
        if max(self._at, self.orders.last_place + 1) > last:
            logger.info("the log was cut: the order of POP is read again")
            self.orders, self._at = Orders(), 0
            self._known.clear()
            self.on_change()

    # --- being master ----------------------------------------------------------------------------------------

    def opened(self) -> None:
        """This broker is master, and may write."""
        self._leads, self._retry_at_ns, self._end = True, 0, self._log.max_offset

    def start(self) -> None:
        """And all that it held is seen."""
        self._seen = True
        self._open()

    def stop(self) -> None:
        """It is one no longer, or its writes are closed."""
        self._leads = self._seen = self.ready = self._word_under_way = False
        self._word_of = -1
        self._unlocks.clear()
        self._unlock_ms.clear()
        self._unwritten.clear()
        self._gone.clear()
        self.orders.forget_pending()

    def _open(self) -> None:
        try:
            while self.read():
                pass
            if not shows_all(self._journal, self._end):
                return
        except OSError as error:
            logger.error("the order of POP cannot be read, tried again: %s", error)
            return
        epoch = self._epoch()
        for key in self.orders.void(self._reigns(), self._known, epoch):
            logger.warning("queue %d of %s blocks no longer for %s: another kind of broker was master", key.queue_id,
                           key.topic, key.group)
            self.orders.drop(key)
        self.ready, self._unwritten = True, self.orders.unwritten()
        for key, kept in self.orders.kept.items():
            self._raise_offset(key, kept.state)
            self._watch(key, kept.state)

    def _raise_offset(self, key: OrderKey, state: OrderInfo) -> None:
        """The table of offsets is copied now and then, and a state goes with each message."""
        end = self._messages.max_offset(key.topic.encode(), key.queue_id)
        known = self._offsets.query(key.group, key.topic, key.queue_id)
        offset = min(state.next_offset, end)
        if known is None or known < offset:
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)

    def due_ns(self, now_ns: int) -> int:
        """When ``tick`` is due, if no more of the log is shown before."""
        if self.behind or (self._seen and not self.ready) or self._owes_word or (
                self.ready and (self._unwritten or self._gone)):
            return self._retry_at_ns
        due_ns = self._unused_at_ns if self.orders.kept else NEVER
        if self._unlocks and self.ready:
            due_ns = min(due_ns, now_ns + max(0, self._unlocks[0][0] - self._wall_ms()) * NS_PER_MS)
        return max(due_ns, self._retry_at_ns)

    def tick(self, now_ns: int) -> None:
        if now_ns < self._retry_at_ns:
            return
        try:
            self.read()
        except OSError as error:
            self._retry_at_ns = now_ns + RETRY_NS
            logger.error("the order of POP cannot be read, tried again in a second: %s", error)
            return
        if self._seen and not self.ready:
            self._open()
        if self._owes_word:
            self._leave_word()
        if now_ns >= self._unused_at_ns:
            self._unused_at_ns = now_ns + UNUSED_EVERY_NS
            for key in list(self.orders.unused(self._wall_ms())):
                self.orders.drop(key)
        if self.ready:
            self._store_unwritten()
            self._clear_gone()
            self._unlock()

    @property
    def _owes_word(self) -> bool:
        """Where there are states; else the first change leaves it."""
        return self._leads and self._word_of != self._epoch() and not self._word_under_way and bool(
            self.orders.kept or self.behind)

    def _leave_word(self) -> None:
        epoch = self._epoch()

        def answered(result: PutResult) -> None:
            self._word_under_way = False
            self._word_is_left(epoch, result)

        self._word_under_way = True
        self._puts.put([self._message(OrderRecord(epoch))], answered)

    def _word_is_left(self, epoch: int, result: PutResult) -> None:
        if result.puts and self._leads:
            self._word_of = epoch
            self._reigned(epoch)
        elif not result.puts:
            self._retry_at_ns = self._journal.now_ns() + RETRY_NS

    def _store_unwritten(self) -> None:
        keys, self._unwritten = self._unwritten[:TOGETHER_MAX], self._unwritten[TOGETHER_MAX:]
        changes = [change for key in keys if (change := self.orders.again(key)) is not None]

        def answered(result: PutResult) -> None:
            if not result.puts:
                self._unwritten += keys

        if changes:
            self.store(changes, answered)

    # --- what changes ----------------------------------------------------------------------------------------

    def store(self, changes: Sequence[Change], done: Done) -> None:
        """Put them into the log, all or none. When ``done`` hears what became of it they count, or are forgotten. What
        was written and not acknowledged in time counts: the next master may have it."""
        if not self.ready:
            self._are_refused(changes)
            done(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, remark="the order of POP is not known here yet"))
            return
        epoch = self._epoch()
        if self._topics.get(POP_ORDER) is None:
            self._topics.create_if_absent(POP_ORDER, 1)
        messages = [self._message(OrderRecord(epoch, *change.key, change.state)) for change in changes]
        word = self._word_of != epoch
        if word:
            messages.insert(0, self._message(OrderRecord(epoch)))
        self._puts.put(messages, lambda result: self._answered(changes, epoch, word, result, done))

    def _message(self, found: OrderRecord) -> Message:
        return Message(TOPIC, found.to_json(), QUEUE, b"TAGS\x01order\x02" if found.topic else b"TAGS\x01reign\x02",
                       born_time_ms=self._wall_ms(), born_host=self._store_host, store_host=self._store_host)

    def _answered(self, changes: Sequence[Change], epoch: int, word: bool, result: PutResult, done: Done) -> None:
        if word:
            self._word_is_left(epoch, result)
        if result.puts:
            for change, put in zip(changes, result.puts[word:], strict=True):
                self.orders.stored(change, put.queue_offset, epoch)
                if self.orders.is_last(change):
                    self._watch(change.key, change.state)
            self.stored += len(changes)
            self.on_change()
        else:
            self._are_refused(changes)
        done(result)

    def _are_refused(self, changes: Sequence[Change]) -> None:
        self.refused += len(changes)
        for change in changes:
            self.orders.refused(change)

    def forget(self, keys: Iterable[OrderKey]) -> None:
        """The group goes on elsewhere, or its topic or itself is deleted: a master stores that nothing blocks there."""
        if self._leads:
            self._gone.update({key: state for key in keys if (state := self.orders.state(key)) is not None})
            self._clear_gone()

    def _clear_gone(self) -> None:
        if not self._gone or not self.ready:
            return
        gone, self._gone = self._gone, {}
        changes = [change for key, state in gone.items()
                   if self.orders.state(key) is state and (change := self.orders.clear(key)) is not None]

        def answered(result: PutResult) -> None:
            if not result.puts:
                self._gone.update(gone)
                self._retry_at_ns = self._journal.now_ns() + RETRY_NS

        if changes:
            self.store(changes, answered)

    # --- who waits -------------------------------------------------------------------------------------------

    def _watch(self, key: OrderKey, state: OrderInfo | None) -> None:
        """Say when it blocks no more."""
        until_ms = 0 if state is None else state.until_ms()
        if self.ready and self._unlock_ms.get(key) != until_ms:
            self._unlock_ms[key] = until_ms
            heappush(self._unlocks, (until_ms, key))

    def _unlock(self) -> None:
        now_ms, unlocks = self._wall_ms(), self._unlocks
        while unlocks and unlocks[0][0] <= now_ms:
            until_ms, key = heappop(unlocks)
            if self._unlock_ms.get(key) == until_ms:
                del self._unlock_ms[key]
                if not self.orders.blocked(key, now_ms, None):
                    self.on_unlock(key)

    # --- how long the log is needed --------------------------------------------------------------------------

    def keeps_from(self) -> int | None:
        """From where on the log is needed: by the oldest state, and by what is to be read."""
        queue = self._messages.queue(TOPIC, QUEUE)
        places = [place for place in (self.orders.least_place(), self._at) if place is not None]
        if queue is None or min(places) >= queue.max_offset:
            return None
        offset, size, _ = queue.entry(max(min(places), queue.min_offset))
        return offset if size != NOWHERE_SIZE else None

    def make_way(self, below: int) -> None:
        """States that stand below that offset of the log are put forward."""
        queue = self._messages.queue(TOPIC, QUEUE)
        if not self.ready or queue is None:
            return
        old = [key for key, kept in self.orders.kept.items()
               if queue.min_offset <= kept.place < queue.max_offset and queue.entry(kept.place)[0] < below]
        changes = [change for key in old if (change := self.orders.again(key)) is not None]
        for begin in range(0, len(changes), TOGETHER_MAX):
            self.store(changes[begin:begin + TOGETHER_MAX], lambda result: None)


class OrderPart(DeliveringPart):
    """The order of POP, for the part of POP."""

    follows: ClassVar[bool] = True

    def __init__(self, shared: Shared, before: Parts) -> None:
        super().__init__(shared)
        config, journal, self._clock_ns = shared.config, shared.journal, shared.now_ns
        self.log = OrderLog(
            journal, shared.puts, before[TopicsPart].table, before[OffsetsPart].table, _kept(shared.files),
            epoch=lambda: shared.standing.role.epoch, reigns=shared.reigns, is_ruled=config.enable_controller_mode,
            store_host=config.store_host, wall_ms=shared.wall_ms)
        self._file = shared.table_file(self.log.table, path=PATH, pause_ms=SAVED_EVERY_MS)
        self.log.on_change = self._file.changed
        before[TopicsPart].table.on_delete.join("parts", lambda topic: self.log.forget(self.log.orders.of(topic=topic)))
        groups, offsets = before[GroupsPart].admin, before[OffsetsPart].table
        self._clean, groups.on_clean = groups.on_clean, self._group_is_gone
        self._others, offsets.on_reset = offsets.on_reset, self._is_reset

    def _group_is_gone(self, group: str) -> None:
        self._clean(group)
        self.log.forget(self.log.orders.of(group=group))

    def _is_reset(self, group: str, topic: str, queue_id: int) -> None:
        self._others(group, topic, queue_id)
        self.log.forget([OrderKey(topic, group, queue_id)])

    def metrics(self, page: Page) -> Iterator[Metric]:
        yield page.gauge("broker_pop_order_queues", "Queues of which batches are given in order. Ours.",
                         [((), len(self.log.orders.kept))])
        yield page.counter("broker_pop_order_changes", "Changes of their states. Ours.", [
            (("stored",), self.log.stored), (("refused",), self.log.refused)], "result")

    def keeps_from(self) -> int | None:
        return self.log.keeps_from()

    def make_way(self, below: int) -> None:
        self.log.make_way(below)

    def writes_opened(self) -> None:
        if self._standing.role.leads:
            self.log.opened()
        super().writes_opened()

    def begin(self) -> None:
        if self._standing.role.leads:
            self.log.start()

    def end(self) -> None:
        self.log.stop()

    def due_ns(self) -> int:
        return self.log.due_ns(self._clock_ns())

    def tick(self, now_ns: int) -> None:
        self.log.tick(now_ns)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._file.run(task_status=task_status)


def _kept(files: Files) -> ConsumerOrderInfos | None:
    """None: there is no file, or it cannot be read."""
    try:
        found = load(files, ConsumerOrderInfos, PATH)
    except WrongStore as error:
        logger.warning("the order of POP is read from the log: %s", error)
        return None
    return found if found.table or found.quorate is not None else None
