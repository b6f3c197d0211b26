"""Delivers delayed messages out of the store into the store, and answers code 45.

It runs on the journal's ticks and in pieces between its turns, without a task of its own. Unlike in Java, a delivered
message waits for replicas as any message does: the position moves when it is acknowledged, or later confirmed, so a
master that is lost takes no message along.
Source: ``ScheduleMessageService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import attrs

from broker.ha.acks import PutStatus
from broker.journal import NS_PER_MS, PIECE_MAX, Journal, Pieces
from broker.puts import WRITTEN, NotTaken, Outlet, PutResult, Stored
from broker.schedule import levels
from broker.schedule.machine import Delivery, Machine
from broker.store.consumequeue import ENTRY
from broker.store.errors import OffsetGone
from broker.store.messages import StoredMessages
from broker.store.tables import DelayOffsets
from broker.sure import Sure
from remoting.codes import RequestCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import DamagedRecord
from remoting.record import Message

logger = logging.getLogger("broker")

ILLEGAL = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
NOWHERE_BYTES = 0x7FFFFFFF
"""The size of an entry that stands for no message."""


@attrs.frozen(kw_only=True)
class ScheduleConfig:
    """Keys of ``MessageStoreConfig`` and their defaults."""

    message_delay_level: str = levels.DEFAULT
    flush_delay_offset_interval_ms: int = 10_000


class _Waits(Exception):
    """The queue is damaged, and is being built again."""


@attrs.frozen
class _StoreQueues:
    """Implements ``machine.DelayQueues`` on a store's."""

    messages: StoredMessages
    queue_end: Callable[[bytes, int], int | None]

    def bounds(self, level: int) -> tuple[int, int] | None:
        queue = self.messages.queue(levels.SCHEDULE_TOPIC, level - 1)
        return (queue.min_offset, queue.max_offset) if queue is not None else None

    def end(self, level: int) -> int:
        end = self.queue_end(levels.SCHEDULE_TOPIC, level - 1)
        return self.messages.max_offset(levels.SCHEDULE_TOPIC, level - 1) if end is None else end

    def due_times_ms(self, level: int, offset: int, count: int) -> Sequence[int]:
        return [due_ms for _, _, due_ms in self.entries(level, offset, count)]

    def entries(self, level: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return entries: offset in the log, size, and when the message is due; [] where none is seen yet."""
        queue = self.messages.queue(levels.SCHEDULE_TOPIC, level - 1)
        if queue is None or offset > queue.max_offset:
            return []
        return list(ENTRY.iter_unpack(queue.read(offset, count)))


class DelayedDelivery:
    """Delivers delayed messages. ``tick`` is for ``Journal.ticks``; ``on_change``: ``offsets`` must be written."""

    def __init__(self, config: ScheduleConfig, journal: Journal, puts: Outlet, kept: DelayOffsets | None = None, *,
                 wall_ms: Callable[[], int]) -> None:
        """Raises ``ValueError`` for illegal levels."""
        self.machine = Machine(levels.parse(config.message_delay_level), kept)
        self.on_change: Callable[[], None] = lambda: None
        self.expects: Callable[[str, int, int], None] = lambda topic, queue_id, stored_ms: None
        """Called before each delivery with the message's topic, its queue, and when it was stored."""
        self.delivered = 0
        self.dropped = 0
        """Messages that had nowhere to go, or could not be read."""
        self._journal, self._log, self._messages, self._puts = journal, journal.log, journal.messages, puts
        self._mends = journal.mender.begins
        self._queues = _StoreQueues(journal.messages, journal.queue_end)
        self._pieces = Pieces(journal, self._poll)
        self._stored: Stored[tuple[Delivery, int]] = Stored(journal)
        """Deliveries that are stored and not acknowledged yet, with their numbers of messages."""
        self._wall_ms = wall_ms
        self._save_interval_ns = config.flush_delay_offset_interval_ms * NS_PER_MS
        self._save_at_ns = 0
        self._saved_moves = self.machine.moves
        self._sure = Sure(self.offsets())

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.get_all}

    def get_all(self, _: Connection, request: Command) -> Command:
        table = self.offsets()
        if self.machine.knows_more:  # a master that comes back shall not deliver it again
            table = attrs.evolve(table, data_version=table.data_version.ahead(self._wall_ms()))
        return response(request, body=table.to_json())

    # --- roles -----------------------------------------------------------------------------------------------

    def start(self, *, in_place: bool = False) -> None:
        """Start: this broker is master, or acts ``in_place`` of it. Call it no later than in the turn in which ``Puts``
        begins to serve."""
        now_ns = self._journal.now_ns()
        self.machine.start(now_ns, self._wall_ms(), self._queues, in_place=in_place)
        self._save_at_ns = now_ns + self._save_interval_ns

    def fit(self) -> None:
        """Begin to deliver, as ``Machine.fit`` does: this broker takes messages from now on."""
        self._journal.number()  # else no end of a queue is known of which consumers do not see all yet
        self.machine.fit(self._wall_ms(), self._queues)

    def stop(self) -> None:
        """Stop delivering: this broker takes no messages any more, or closes."""
        self.machine.stop()
        self._stored.clear()
        self._save()

    def offsets(self) -> DelayOffsets:
        return self.machine.offsets()

    def kept(self) -> DelayOffsets:
        """The content of ``delayOffset.json``: positions no further than the disk has the log of their deliveries."""
        sure, now = self._sure, self.offsets()
        sure.flushed(self._log.flushed_offset)
        if now != sure.value:
            sure.latest(self._journal.end, self._log.flushed_offset, lambda: now)
        return sure.value

    def cut(self, end: int) -> None:
        """The log was cut at ``end``."""
        self._sure.cut(end)

    def replace(self, table: DelayOffsets) -> None:
        """Take over the master's positions, on a slave."""
        self.machine.replace(table)
        self._save()

    def copy(self, answer: bytes) -> None:
        """Take over the positions of a master's answer to 45. Raises ``BodyError``."""
        self.replace(DelayOffsets.from_json(answer))

    def join(self, answer: bytes) -> None:
        """Join a member's answer to 45, as ``Machine.join`` does. Raises ``BodyError``."""
        self.machine.join(DelayOffsets.from_json(answer), self._queues)
        self._sure = Sure(self.offsets())  # another group's log has what was delivered
        self._save()

    def running_stats(self) -> dict[str, str]:
        """Return ``scheduleMessageOffset_N`` of 28: the position, and the end of the queue."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{self._messages.max_offset(levels.SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self.offsets().offset_table.items()}

    # --- working ---------------------------------------------------------------------------------------------

    def due_ns(self) -> int:
        """Return when ``tick`` is due if no more messages come."""
        machine = self.machine
        due_ns = machine.due_ns(self._journal.now_ns(), self._wall_ms(), self._queues)
        is_saved = machine.moves == self._saved_moves and not self._sure.waits
        return due_ns if is_saved or not machine.started else min(due_ns, self._save_at_ns)

    def tick(self, now_ns: int) -> None:
        started = self.machine.started
        if started:
            self._pieces.take(now_ns)
        if now_ns >= self._save_at_ns or not started:
            self._save_at_ns = now_ns + self._save_interval_ns
            self._save()

    def _save(self) -> None:
        if self._sure.flushed(self._log.flushed_offset) or self.machine.moves != self._saved_moves:
            self._saved_moves = self.machine.moves
            self.on_change()

    def _poll(self, now_ns: int, until_ns: int) -> bool:
        """Deliver what is due. True: there may be more."""
        self._look_at_stored(now_ns)
        left = PIECE_MAX
        while True:
            try:
                delivery = self.machine.poll(now_ns, self._wall_ms(), self._queues)
            except OSError as error:
                logger.error("a level's queue cannot be read, next attempt in 10 s: %s", error)
                continue
            if delivery is None:
                return False
            self._deliver(delivery, now_ns)
            left -= delivery.end - delivery.begin
            if left <= 0 or self._journal.now_ns() >= until_ns:
                return True

    def _deliver(self, delivery: Delivery, now_ns: int) -> None:
        try:
            messages = self._read(delivery)
        except (OSError, _Waits) as error:
            logger.error("delayed messages of level %d from %d on cannot be read, next attempt in 10 s: %s",
                         delivery.level, delivery.begin, error)
            self.machine.failed(delivery, now_ns, fault=True)
            return
        if not messages:
            self.machine.done(delivery, now_ns, self._wall_ms())
        else:
            self._puts.put(messages, lambda result: self._done(delivery, len(messages), result))

    def _read(self, delivery: Delivery) -> list[Message]:
        messages = []
        entries = self._queues.entries(delivery.level, delivery.begin, delivery.end - delivery.begin)
        for queue_offset, (offset, size, _) in enumerate(entries, delivery.begin):
            if size == NOWHERE_BYTES:
                continue
            message: Message | str
            stored_ms = 0
            try:
                record = self._log.record(offset, size)
            except (OffsetGone, DamagedRecord) as error:
                is_gone = 0 <= offset < self._log.min_offset
                if not is_gone and self._mends(levels.SCHEDULE_TOPIC, delivery.level - 1):
                    raise _Waits(str(error)) from None
                message = str(error)
            else:
                message, stored_ms = levels.restored(record.message), record.store_time_ms
            if isinstance(message, str):
                self.dropped += 1
                logger.error("delayed message %d of level %d is dropped: %s", queue_offset, delivery.level, message)
            else:
                self.expects(message.topic.decode(), message.queue_id, stored_ms)
                messages.append(message)
        return messages

    def _look_at_stored(self, now_ns: int) -> None:
        """Move on behind messages that were stored, but not acknowledged in time, once they are confirmed."""
        for delivery, count in self._stored.confirmed():
            self.delivered += count
            self.machine.done(delivery, now_ns, self._wall_ms())

    def _done(self, delivery: Delivery, count: int, result: PutResult) -> None:
        now_ns = self._journal.now_ns()
        if result.status is PutStatus.PUT_OK:
            self.delivered += count
            self.machine.done(delivery, now_ns, self._wall_ms())
        elif result.status in WRITTEN and result.puts:
            if self.machine.counts(delivery):
                self._stored.add(result, (delivery, count))
        elif not (isinstance(result, NotTaken) and self.machine.pass_by(delivery, now_ns, self._wall_ms())):
            logger.warning("delayed messages %d to %d of level %d are not delivered, and will be tried again: %s",
                           delivery.begin, delivery.end - 1, delivery.level, result.words)
            self.machine.failed(delivery, now_ns, fault=result.status in ILLEGAL)
        self._pieces.ask()
