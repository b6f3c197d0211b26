"""States of POP in order, in the log: each change of a queue's state is a record in the order topic.

Every replica reads the records. The last record of a queue counts and holds the whole state, so reading one twice does
no harm. Each master also writes a *reign record*, before its first change, or at once if there are states. A reign
without one belonged to a RocketMQ broker, which keeps states in its own file: older states are void then.
``config/consumerOrderInfo.json`` is RocketMQ's file with a field of ours; without the field, RocketMQ wrote it last.
Source: ``ConsumerOrderInfoManager`` of RocketMQ 5.5.0.
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
from broker.store.files import Files, read_whole
from broker.store.tables import load
from broker.topics.names import POP_ORDER
from broker.topics.part import TopicsPart
from broker.topics.table import TopicTable
from remoting.body import Body, body
from remoting.errors import BodyError, DamagedRecord
from remoting.fields import Int32, Int64, wire_name
from remoting.record import Message

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker")

TOPIC: Final = POP_ORDER.encode()
QUEUE: Final = 0
PATH: Final = "config/consumerOrderInfo.json"
SAVED_EVERY_MS: Final = 10_000
SLICE: Final = 1_000
"""Records that one tick reads."""
TOGETHER_MAX: Final = 32
"""States that one put stores again."""
RETRY_NS: Final = 1_000_000_000
UNUSED_EVERY_NS: Final = 60_000_000_000
REIGNS_MAX: Final = 1_000


@body
class OrderRecord(Body):
    """A record of the order topic: the new state of one queue, or, without a topic, a reign record."""

    epoch: Int64
    """Epoch of the master that wrote it; 0 in a group without controllers."""
    topic: str = ""
    group: str = ""
    queue_id: Int32 = 0
    state: OrderInfo | None = None
    """None: the queue has no state any more."""


@body
class OrdersRead(Body):
    """Our field in RocketMQ's file: how far the order topic was read, and the place of each state in it."""

    at: Int64 = 0
    reigns: list[Int64] = attrs.field(factory=list)
    places: dict[str, dict[Int32, list[Int64]]] = attrs.field(factory=dict)
    """Place and epoch of each state, with the keys of the table."""


@body
class ConsumerOrderInfos(Body):
    """The file ``config/consumerOrderInfo.json``: states by ``topic@group`` and queue id."""

    table: dict[str, dict[Int32, OrderInfo]] = attrs.field(factory=dict)
    order_info_count: Int64 = 0
    ordered_consumption_level: str = "QUEUE"
    read: OrdersRead | None = wire_name("__QUORATE_ORDERS", default=None)


class OrderLog:
    """Reads and writes the order topic. Every replica calls ``tick``; a master calls ``opened``, later ``start``.
    Before ``ready`` no message is given in order, and ``store`` refuses."""

    def __init__(self, journal: Journal, puts: Puts, topics: TopicTable, offsets: OffsetTable,
                 kept: ConsumerOrderInfos | None, *, epoch: Callable[[], int], reigns: Callable[[], Collection[int]],
                 is_ruled: bool, store_host: bytes, wall_ms: Callable[[], int]) -> None:
        """``reigns``: epochs that wrote to the log. ``is_ruled``: the group has controllers, so another broker may have
        been master since RocketMQ wrote the file."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the content of ``table`` changes."""
        self.on_unlock: Callable[[OrderKey], None] = lambda key: None
        """Called on a master when a queue stops blocking."""
        self.orders = Orders()
        self.ready = False
        self.stored = self.refused = 0
        """Changes that were stored or refused since this process began."""
        self._journal, self._log, self._messages, self._puts = journal, journal.log, journal.messages, puts
        self._topics, self._offsets, self._epoch, self._reigns = topics, offsets, epoch, reigns
        self._store_host, self._wall_ms, self._is_ruled = store_host, wall_ms, is_ruled
        self._leads = self._seen = self._reign_in_flight = False
        self._reign_written = -1
        """The last epoch of which this broker wrote the reign record."""
        self._known: dict[int, None] = {}
        """Epochs with a reign record."""
        self._at = self._end = 0
        """Place of the next record to read; end of the log when this broker became master."""
        self._gone: dict[OrderKey, OrderInfo] = {}
        """States to remove, unless they change before."""
        self._unwritten: list[OrderKey] = []
        """States from RocketMQ's file that are to be stored in the order topic."""
        self._unlocks: list[tuple[int, OrderKey]] = []
        """Heap of times when queues stop blocking; some entries are stale."""
        self._unlock_ms: dict[OrderKey, int] = {}
        """The valid time of each key in the heap."""
        self._retry_at_ns = self._unused_at_ns = 0
        self._load(kept)
        journal.was_cut.join("parts", self._cut)

    # --- its file --------------------------------------------------------------------------------------------

    def _load(self, kept: ConsumerOrderInfos | None) -> None:
        read = None if kept is None else kept.read
        end = self._messages.max_offset(TOPIC, QUEUE)
        if kept is not None and read is not None and read.at <= end:
            self._at = read.at
            self._known = dict.fromkeys(read.reigns)
            self._take(kept, read)
        elif kept is not None and read is None and (not end or not self._is_ruled):
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
        """The content of this part's file."""
        table: dict[str, dict[int, OrderInfo]] = {}
        places: dict[str, dict[int, list[int]]] = {}
        for key, kept in self.orders.kept.items():
            name = f"{key.topic}@{key.group}"
            table.setdefault(name, {})[key.queue_id] = kept.state
            places.setdefault(name, {})[key.queue_id] = [kept.place, kept.epoch]
        return ConsumerOrderInfos(table, len(self.orders.kept), read=OrdersRead(
            self._at, list(self._known), places))

    # --- reading ---------------------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Return whether the order topic has records that are not read yet."""
        return self._at < self._messages.max_offset(TOPIC, QUEUE)

    def read(self, most: int = SLICE) -> bool:
        """Read up to ``most`` records; True: there are more. Raises ``OSError``, after which it may be called again."""
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
            logger.warning("a record of the order topic, at %d of the log, is skipped: %s", offset, error)
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
        """The log was cut: read the order topic again if records that were taken are gone."""
        last = self._messages.max_offset(TOPIC, QUEUE)
        if max(self._at, self.orders.last_place + 1) > last:
            logger.info("the log was cut: the states of POP in order are read again")
            self.orders, self._at = Orders(), 0
            self._known.clear()
            self.on_change()

    def follows_java(self) -> None:
        """This slave's master is a RocketMQ broker: what was out before its reign is void. Epochs, where controllers
        count them, say so by themselves."""
        end = self._messages.max_offset(TOPIC, QUEUE)
        if not self._is_ruled and (self.orders.kept or self._at < end):
            self.orders, self._at = Orders(), max(self._at, end)
            self.on_change()

    # --- being master ----------------------------------------------------------------------------------------

    def opened(self) -> None:
        """This broker became master and may write."""
        self._leads, self._retry_at_ns, self._end = True, 0, self._log.max_offset

    def start(self) -> None:
        """This master's log, as it was at the beginning of its reign, is confirmed."""
        self._seen = True
        self._open()

    def stop(self) -> None:
        """This broker's reign is over, or its writes are closed."""
        self._leads = self._seen = self.ready = self._reign_in_flight = False
        self._reign_written = -1
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
            logger.error("the states of POP in order cannot be read, tried again: %s", error)
            return
        epoch = self._epoch()
        for key in self.orders.void(self._reigns(), self._known, epoch):
            logger.warning("queue %d of %s stops blocking group %s: a RocketMQ broker was master since its batch was "
                           "given", key.queue_id, key.topic, key.group)
            self.orders.drop(key)
        self.ready, self._unwritten = True, self.orders.unwritten()
        for key, kept in self.orders.kept.items():
            self._raise_offset(key, kept.state)
            self._watch(key, kept.state)

    def _raise_offset(self, key: OrderKey, state: OrderInfo) -> None:
        """Raise the group's offset to the state's: the copied table of offsets lags, the state does not."""
        end = self._messages.max_offset(key.topic.encode(), key.queue_id)
        known = self._offsets.query(key.group, key.topic, key.queue_id)
        offset = min(state.next_offset, end)
        if known is None or known < offset:
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)

    def due_ns(self, now_ns: int) -> int:
        """Return when ``tick`` is due, unless more of the log is shown before."""
        if self.behind or (self._seen and not self.ready) or self._owes_reign or (
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
            logger.error("the states of POP in order cannot be read, tried again in a second: %s", error)
            return
        if self._seen and not self.ready:
            self._open()
        if self._owes_reign:
            self._write_reign()
        if now_ns >= self._unused_at_ns:
            self._unused_at_ns = now_ns + UNUSED_EVERY_NS
            for key in list(self.orders.unused(self._wall_ms())):
                self.orders.drop(key)
        if self.ready:
            self._store_unwritten()
            self._clear_gone()
            self._unlock()

    @property
    def _owes_reign(self) -> bool:
        """Return whether the reign record is due now. Without states it is due with the first change."""
        return self._leads and self._reign_written != self._epoch() and not self._reign_in_flight and bool(
            self.orders.kept or self.behind)

    def _write_reign(self) -> None:
        epoch = self._epoch()

        def answered(result: PutResult) -> None:
            self._reign_in_flight = False
            self._reign_answered(epoch, result)

        self._reign_in_flight = True
        self._puts.put([self._message(OrderRecord(epoch))], answered)

    def _reign_answered(self, epoch: int, result: PutResult) -> None:
        if result.puts and self._leads:
            self._reign_written = epoch
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

    # --- changes ---------------------------------------------------------------------------------------------

    def store(self, changes: Sequence[Change], done: Done) -> None:
        """Put all changes into the log or none, then call ``done``. A change that is written but not acknowledged by
        enough replicas in time counts, since the next master may have it."""
        if not self.ready:
            self._are_refused(changes)
            done(PutResult(PutStatus.SERVICE_NOT_AVAILABLE,
                           remark="this master has not read the states of POP in order yet"))
            return
        epoch = self._epoch()
        if self._topics.get(POP_ORDER) is None:
            self._topics.create_if_absent(POP_ORDER, 1)
        messages = [self._message(OrderRecord(epoch, *change.key, change.state)) for change in changes]
        owes = self._reign_written != epoch
        if owes:
            messages.insert(0, self._message(OrderRecord(epoch)))
        self._puts.put(messages, lambda result: self._answered(changes, epoch, owes, result, done))

    def _message(self, found: OrderRecord) -> Message:
        return Message(TOPIC, found.to_json(), QUEUE, b"TAGS\x01order\x02" if found.topic else b"TAGS\x01reign\x02",
                       born_time_ms=self._wall_ms(), born_host=self._store_host, store_host=self._store_host)

    def _answered(self, changes: Sequence[Change], epoch: int, owes: bool, result: PutResult, done: Done) -> None:
        if owes:
            self._reign_answered(epoch, result)
        if result.puts:
            for change, put in zip(changes, result.puts[owes:], strict=True):
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
        """Groups were reset, or they or their topics deleted: a master stores that these keys have no state."""
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

    # --- end of a block --------------------------------------------------------------------------------------

    def _watch(self, key: OrderKey, state: OrderInfo | None) -> None:
        """Plan the call of ``on_unlock`` for the time when this state stops blocking."""
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
        """Offset of the log of the oldest record that is needed: a state's, or the next to read. None: none is."""
        queue = self._messages.queue(TOPIC, QUEUE)
        places = [place for place in (self.orders.least_place(), self._at) if place is not None]
        if queue is None or min(places) >= queue.max_offset:
            return None
        offset, size, _ = queue.entry(max(min(places), queue.min_offset))
        return offset if size != NOWHERE_SIZE else None

    def make_way(self, below: int) -> None:
        """Store states again that stand below that offset of the log, so that it may be deleted."""
        queue = self._messages.queue(TOPIC, QUEUE)
        if not self.ready or queue is None:
            return
        old = [key for key, kept in self.orders.kept.items()
               if queue.min_offset <= kept.place < queue.max_offset and queue.entry(kept.place)[0] < below]
        changes = [change for key in old if (change := self.orders.again(key)) is not None]
        for begin in range(0, len(changes), TOGETHER_MAX):
            self.store(changes[begin:begin + TOGETHER_MAX], lambda result: None)


class OrderPart(DeliveringPart):
    """Keeps the states of POP in order, for the part of POP."""

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
        yield page.gauge("broker_pop_order_queues", "Queues that have a state of POP in order. Ours.",
                         [((), len(self.log.orders.kept))])
        yield page.counter("broker_pop_order_changes", "Changes of their states. Ours.", [
            (("stored",), self.log.stored), (("refused",), self.log.refused)], "result")

    def offered(self, codes: Collection[int]) -> None:
        if not codes:
            self.log.follows_java()

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
    """The states in this part's file, which RocketMQ also writes when there are none; None: it is missing or damaged.
    """
    try:
        found = load(files, ConsumerOrderInfos, PATH)
    except WrongStore as error:
        logger.warning("the states of POP in order are read from the log: %s", error)
        return None
    return found if found.table or found.read is not None or (read_whole(files, PATH) or b"").strip() else None
