"""The part of timers: wires admission, wheel, delivery and recall, and flushes the files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
import trio

from broker.config import BrokerConfig, pick
from broker.journal import NEVER
from broker.noted import Noted
from broker.part import Parts, Shared, SpecialService
from broker.rate import Rate
from broker.rules import Rule
from broker.standing import Role
from broker.store.consumequeue import NOWHERE_SIZE
from broker.store.errors import OffsetGone
from broker.store.tables import load
from broker.timer.admission import Timers
from broker.timer.checkpoint import TimerCheckpoint, begin_of
from broker.timer.delivered import Delivered
from broker.timer.delivery import Takes, TimerCounters, TimerDelivery
from broker.timer.elsewhere import PATH as ELSEWHERE
from broker.timer.elsewhere import DoneElsewhere, Elsewhere, TimersDone
from broker.timer.keys import TimerKeys
from broker.timer.letters import TOPIC
from broker.timer.machine import TimerMachine
from broker.timer.metrics import PATH as METRICS
from broker.timer.metrics import TimerMetrics, Waiting
from broker.timer.recall import Recall
from broker.timer.store import TimerStore
from broker.timer.wheel import SLOTS
from broker.topics.part import TopicsPart
from remoting.body import Body, body
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import BodyError, DamagedRecord
from remoting.fields import Int64
from remoting.record import NOTED
from remoting.wakeup import Bell

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker")

DAY_MS: Final = 86_400_000
QUIET_NS: Final = 60_000_000_000
"""Pause between writes of the checkpoint while no timer comes or goes."""
METRICS_PAUSE_MS: Final = 10_000
BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Bounds of the snapshot of waiting timers, from RocketMQ's ``TimerMetrics``."""
HEARD: Final = "config/timerHeard.json"
HEARD_STEP: Final = 16 << 20
"""Bytes of the log that the next process may read again."""
NO_ENGINE: Final = "this broker has one timer engine, the timer wheel, and cannot switch to another"


@body
class HeardUpTo(Body):
    """Offset of the log from which deliveries must be heard; below 0: this broker has heard none."""

    offset: Int64 = -1


class TimersPart(SpecialService):
    """Keeps timers on every replica, and delivers them on masters and acting slaves."""

    keys = TimerKeys
    tells_progress = frozenset((int(RequestCode.GET_TIMER_CHECK_POINT),))
    follows: ClassVar[bool] = True
    slots: ClassVar[int] = SLOTS
    """Slots of the wheel: two weeks of seconds, as in RocketMQ."""

    def __init__(self, shared: Shared, before: Parts) -> None:
        super().__init__(shared)
        config, journal = shared.config, shared.journal
        keys = self._keys = pick(config, TimerKeys)
        self._journal, self._run_sync = journal, shared.run_sync
        self._log, self._messages, self._wall_ms = journal.log, journal.messages, shared.wall_ms
        self._unflushed, self._flush_at_ns = Bell(), 0
        """The bell rings when there is something to write, and at that time in any case."""
        self._flushing = Lock()
        """Held during each step of a flush, and during a cut."""
        self._cut_at: int | None = None
        """End of a cut log whose units are not removed yet."""
        self._store = TimerStore(
            shared.files, precision_ms=keys.timer_precision_ms, slots=self.slots,
            log_file_bytes=keys.mapped_file_size_timer_log)
        self._store.commit_log = lambda: (journal.end, journal.log.flushed_offset)
        if keys.timer_wheel_enable:
            self._recover()
            journal.cutting.join("parts", self._cut)
            journal.was_cut.join("parts", self._ends)
        machine = TimerMachine(self._store, window_slots=keys.window_slots)
        self._known, self._heard = Delivered(), load(shared.files, HeardUpTo, HEARD).offset
        self._heard_file = shared.table_file(lambda: HeardUpTo(self._heard), path=HEARD)
        if self._heard < 0:  # after a kill the next process must hear all from here on
            self._heard = journal.end
            self._heard_file.changed()
        self.elsewhere = Elsewhere(load(shared.files, DoneElsewhere, ELSEWHERE))
        self._elsewhere_file = shared.table_file(self.elsewhere.table, path=ELSEWHERE)
        self._noted = Noted(journal, self._heard, self._known.hear, self._known.cut, flags=NOTED)
        self._delivery = TimerDelivery(
            keys, machine, self._known, self.elsewhere, journal, shared.outlet, wall_ms=shared.wall_ms)
        self._delivery.expects = before[TopicsPart].expects
        self._waiting = Waiting(load(shared.files, TimerMetrics, METRICS), shared.wall_ms)
        self._metrics_file = shared.table_file(self._waiting.table, path=METRICS, pause_ms=METRICS_PAUSE_MS)
        self._waiting.changed = self._metrics_file.changed
        self._delivery.came, self._delivery.left = self._waiting.came, self._waiting.left
        self._rates = {"timerEnqueueTps": Rate(self.counters.enqueued.total),
                       "timerDequeueTps": Rate(self.counters.delivered.total)}
        self._delivery.enqueue_below = self._store.master_queue_offset
        self._timers = Timers(keys, config.broker_name, shared.wall_ms, self._store.count, shared.rng.random)
        self._recall = Recall(
            self._timers, before[TopicsPart].table, shared.puts, config.broker_name, config.store_host,
            leads=lambda: shared.standing.role.leads, wall_ms=shared.wall_ms)

    def _recover(self) -> None:
        store, journal, messages = self._store, self._journal, self._messages
        found = store.recover(journal.end, queue_end=messages.max_offset(TOPIC, 0), place_of=self._place_of,
                              now_ms=self._wall_ms())
        if found:
            logger.warning("the timer wheel is built again from the timers' queue: %s", found)
        if not store.read_time_ms:
            store.done_before(self._wall_ms() - (self.slots // 2 - 60) * store.precision_ms)

    def _place_of(self, offset: int) -> int:
        """Place in the timers' queue of the message at that offset of the log, or an earlier place."""
        try:
            record = self._log.record(offset)
        except (OffsetGone, DamagedRecord):  # the log was cut before it
            return self._messages.max_offset(TOPIC, 0)
        return record.queue_offset if record.message.topic == TOPIC else 0

    @property
    def places(self) -> tuple[int, int]:
        """Place of the first timer of the queue that is not in the wheel; then the master's place, as last told."""
        return self._store.queue_offset, self._store.master_queue_offset

    @property
    def done_before_ms(self) -> int:
        """Timers due before this time are stored in their topics, as durable as their puts demand; late ones may
        follow. 0: timers are disabled."""
        return self._store.read_time_ms if self._keys.timer_wheel_enable else 0

    @property
    def seen_before_ms(self) -> int:
        """Timers due before this time are stored, were tried once, or were taken by ``take``. 0: timers are disabled.
        """
        return self._delivery.seen_before_ms if self._keys.timer_wheel_enable else 0

    def take(self, takes: Takes) -> None:
        """Set the function that is asked for each due message; a message that it takes is not put."""
        self._delivery.takes = takes

    @property
    def delivers(self) -> bool:
        return self._delivery.delivers

    @property
    def done_here(self) -> TimersDone:
        """Timers that are done, and in this wheel: those that the log has from ``below`` on came too late for it, and
        it never had those in front of where its own log begins."""
        return TimersDone(*self._store.done, self._journal.begin)

    def join(self, delivered: TimersDone) -> None:
        """Another member of the group delivered these timers. If its clock was far ahead what is not due yet may come
        again, in its time: to refuse all of it would keep a master that comes back away for as long."""
        if self._is_far(delivered.time_ms):
            logger.warning("a member delivered timers by a clock that was more than a day ahead: those that are not due"
                           " come again", extra={"time_ms": delivered.time_ms})
            delivered = attrs.evolve(delivered, time_ms=self._wall_ms())
        if self._keys.timer_wheel_enable and self.elsewhere.add(delivered):
            self._elsewhere_file.changed()

    @property
    def counters(self) -> TimerCounters:
        return self._delivery.counters

    # --- requests and figures --------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        return {
            **self._recall.handlers(),
            RequestCode.GET_TIMER_CHECK_POINT: self._checkpoint,
            RequestCode.GET_TIMER_METRICS: self._metrics,
            RequestCode.SWITCH_TIMER_ENGINE: self._switch_engine,
        }

    def copies(self) -> Mapping[int, Callable[[bytes], None]]:
        if not self._keys.timer_wheel_enable:
            return {}
        return {RequestCode.GET_TIMER_CHECK_POINT: self._follow, RequestCode.GET_TIMER_METRICS: self._waiting.copy}

    def joins(self) -> Mapping[int, Callable[[bytes], None]]:
        return {RequestCode.GET_TIMER_CHECK_POINT: self._join} if self._keys.timer_wheel_enable else {}

    def rules(self) -> Sequence[Rule]:
        return (self._timers.rule,)

    def _checkpoint(self, _: Connection, request: Command) -> Command:
        """Answer 60 with this broker's progress."""
        if not self._keys.timer_wheel_enable:
            return response(request, ResponseCode.SYSTEM_ERROR, remark="The checkpoint is null")
        told = attrs.evolve(self._store.checkpoint(), queue_offset=self._store.done_place)
        return response(request, body=told.body(self._journal.begin))

    def _metrics(self, _: Connection, request: Command) -> Command:
        """Answer 61 with the number of waiting timers by topic."""
        if not self._keys.timer_wheel_enable:
            return response(request, ResponseCode.SYSTEM_ERROR, remark="The timerMessageStore is null")
        return response(request, body=self._waiting.table().to_json())

    def runtime_info(self) -> Mapping[str, str]:
        delivery = self._delivery
        return {
            "timerReadBehind": str(delivery.read_behind_ms // 1_000), "timerOffsetBehind": str(delivery.behind),
            "timerCongestNum": str(self._store.pending), "timerWaitsFor": delivery.waiting_for,
            **{name: rate.text() for name, rate in self._rates.items()}}

    def metrics(self, page: Page) -> Iterator[Metric]:
        delivery, counters = self._delivery, self.counters
        behind_ms = delivery.read_behind_ms
        yield page.gauge("rocketmq_timing_messages", "Timers that wait, by topic.", [
            ((topic,), timers.count) for topic, timers in self._waiting.table().timing_count.items()], "topic")
        yield page.gauge("rocketmq_timer_enqueue_lag", "Timers that are not in the wheel yet.", [((), delivery.behind)])
        yield page.gauge("rocketmq_timer_enqueue_latency_milliseconds", "Since the first of them was stored.",
                         [((), delivery.enqueue_behind_ms)])
        yield page.gauge("rocketmq_timer_message_snapshot", "Timers of the next day, by seconds until they are due.", [
            ((str(to_s),), count) for to_s, count in self._snapshot()], "timer_bound_s")
        yield page.gauge("rocketmq_timer_dequeue_lag", "Timers that are due, and not stored yet.",
                         [((), delivery.unfinished)])
        yield page.gauge("rocketmq_timer_dequeue_latency_milliseconds", "By which the first of them is late.",
                         [((), behind_ms)])
        for name, about, counted in (("enqueue", "put into the wheel", counters.enqueued),
                                     ("dequeue", "delivered", counters.delivered)):
            yield page.counter(f"rocketmq_timer_{name}_total", f"Timers {about}.", [
                ((topic,), count) for topic, count in sorted(counted.items())], "topic")
        yield page.gauge("broker_timers_pending", "Timers in the wheel, less recalls. Ours.",
                         [((), self._store.pending)])
        for name, about in (
                ("rolled", "stored again to wait on"), ("recalled", "taken back"),
                ("set_aside", "put into rmq_sys_timer_undeliverable"), ("gone", "whose records could not be read"),
                ("moved", "stored again so that an old file may go"), ("passed_over", "a former master delivered"),
                ("retries", "whose store was tried again")):
            yield page.counter(f"broker_timers_{name}", f"Timers {about}. Ours.", [((), getattr(counters, name))])

    def _snapshot(self) -> Iterator[tuple[int, int]]:
        """Each bound of ``BOUNDS_S``, with the number of timers due between the previous bound and it."""
        now_ms, from_s = self._wall_ms(), 0
        for to_s in BOUNDS_S:
            yield to_s, self._store.count_between(now_ms + from_s * 1_000, now_ms + to_s * 1_000)
            from_s = to_s

    def _read(self, answer: bytes) -> TimerCheckpoint:
        """Decode another broker's answer to 60. Raises ``BodyError``."""
        told = TimerCheckpoint.decode(answer)
        if told is None:
            raise BodyError(f"{len(answer)} bytes are no timer checkpoint")
        return told

    def _is_far(self, time_ms: int) -> bool:
        return time_ms > self._wall_ms() + DAY_MS

    def _join(self, answer: bytes) -> None:
        """Pass over what another member delivered: as far as its wheel has the queue."""
        told = self._read(answer)
        self.join(TimersDone(told.read_time_ms, self._offset_of(told.queue_offset), begin_of(answer)))

    def _offset_of(self, place: int) -> int:
        """Offset of the log of the first timer from that place of the queue on; the log's end: there is none."""
        queue = self._messages.queue(TOPIC, 0)
        if queue is not None:
            for at in range(max(place, queue.min_offset), queue.max_offset):
                offset, size, _ = queue.entry(at)
                if size != NOWHERE_SIZE:
                    return offset
        return self._journal.end

    def _follow(self, answer: bytes) -> None:
        """Follow the master's progress, on a slave. Raises ``BodyError``."""
        told = self._read(answer)
        if self._is_far(told.read_time_ms):
            raise BodyError(f"a timer checkpoint of {told.read_time_ms} ms, which is more than a day from now")
        if not self._standing.role.leads:
            self._store.done_before(told.read_time_ms)
            self._store.master_queue_offset = told.master_queue_offset
            self._delivery.enqueue_below = told.master_queue_offset

    def _switch_engine(self, _: Connection, request: Command) -> Command:
        return response(request, ResponseCode.SYSTEM_ERROR, remark=NO_ENGINE)

    # --- moments ---------------------------------------------------------------------------------------------

    def configure(self, config: BrokerConfig) -> None:
        """Take live keys; those that describe the files keep their values from the start."""
        live = pick(config, TimerKeys)
        self._keys = attrs.evolve(
            self._keys, **{name: getattr(live, name) for name in (
                "timer_max_delay_sec", "timer_congest_num_each_slot", "timer_stop_enqueue", "timer_stop_dequeue",
                "recall_message_enable")})
        self._timers.keys = self._delivery.keys = self._keys
        self._recall.enabled = self._keys.recall_message_enable

    def role_changed(self, role: Role) -> None:
        self._store.state_version = self._waiting.state_version = role.epoch

    def begin(self) -> None:
        if self._keys.timer_wheel_enable:
            self._delivery.start()

    def end(self) -> None:
        self._delivery.stop()

    def _cut(self, end: int) -> None:
        """Remove units of messages that the log is about to lose. This comes before the cut of the log, since a new
        message at the same offset would be taken for the old one. Raises ``OSError``; it is tried again by ``tick``,
        even if the log is cut meanwhile."""
        self._cut_at = end if self._cut_at is None else min(end, self._cut_at)
        self._delivery.may_enqueue = False
        with self._flushing:
            self._store.cut(self._cut_at, self._place_of)
        self._cut_at, self._delivery.may_enqueue = None, True

    def _ends(self, _: int) -> None:
        self._store.queue_ends(self._messages.max_offset(TOPIC, 0))

    # --- periodic work ---------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        if not self._keys.timer_wheel_enable:
            return NEVER
        if not self._noted.told_all or self._cut_at is not None:
            return 0
        return min(self._delivery.due_ns(), *(rate.due_ns for rate in self._rates.values()))

    def keeps_from(self) -> int | None:
        return self._delivery.keeps_from() if self._keys.timer_wheel_enable else None

    def make_way(self, below: int) -> None:
        self._delivery.make_way(below)

    def _hear(self) -> None:
        """Hear what the log says of deliveries, and note how far it was heard."""
        unread = self._noted.listen()
        if unread is not None:
            logger.error("some timers may come twice: deliveries in the log cannot be read: %s", unread)
        self._delivery.hears_all = self._noted.told_all
        self._known.pass_to(*self._store.settled)
        if self.elsewhere.pass_to(self._store.settled[0]):
            self._elsewhere_file.changed()
        begins = self._known.begins(self._noted.offset)
        if abs(begins - self._heard) >= HEARD_STEP:
            self._heard = begins
            self._heard_file.changed()

    def tick(self, now_ns: int) -> None:
        for rate in self._rates.values():
            if rate.due_ns <= now_ns:
                rate.sample(now_ns)
        self._hear()
        if self._cut_at is not None:
            try:
                self._cut(self._cut_at)
            except OSError as error:
                logger.error("timers from offset %d of the log on cannot be removed yet, tried again: %s", self._cut_at,
                             error)
        if self._cut_at is None:
            self._delivery.tick(now_ns)
        if self._standing.role.leads:
            self._store.master_queue_offset = self._store.queue_offset
        if now_ns >= self._flush_at_ns or (self._store.is_unflushed and not self._store.only_time_passed):
            self._flush_at_ns = now_ns + QUIET_NS
            self._unflushed.ring()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Flush changes regularly and at the end, and delete old files of the timer log, until cancelled."""
        if not self._keys.timer_wheel_enable:
            task_status.started()
            await trio.sleep_forever()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._heard_file.run)
                await nursery.start(self._elsewhere_file.run)
                await nursery.start(self._metrics_file.run)
                task_status.started()
                while True:
                    await trio.sleep(self._keys.timer_flush_interval_ms / 1e3)
                    await self._unflushed.wait()
                    if self._store.is_unflushed:
                        await self._flush()
                    self._drop()
        finally:
            self._delivery.may_enqueue = False
            with self._flushing:
                try:
                    self._store.flush()
                except OSError as error:
                    logger.error("timers could not be written at the end: %s", error)
                self._store.close()

    def _drop(self) -> None:
        """Delete files of the timer log whose messages the log no longer holds."""
        try:
            self._store.drop_before(self._journal.begin)
        except OSError as error:
            logger.error("an old file of the timer log could not be deleted: %s", error)

    async def _flush(self) -> None:
        try:
            flush = self._store.begin_flush()
        except OSError as error:
            logger.error("timers cannot be written, next attempt in %d ms: %s", self._keys.timer_flush_interval_ms,
                         error)
            return
        steps = flush.steps()
        try:
            with trio.CancelScope(shield=True):
                await self._run_sync(lambda: self._step_all(steps))
        except OSError as error:
            logger.error("timers cannot be written, next attempt in %d ms: %s", self._keys.timer_flush_interval_ms,
                         error)
        finally:
            self._store.end_flush(flush)

    def _step_all(self, steps: Iterator[None]) -> None:
        """Run all steps, in a thread. A cut may come between two steps."""
        while True:
            with self._flushing:
                if next(steps, steps) is steps:
                    return
