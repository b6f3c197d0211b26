"""POP in order: one batch of a queue is out at a time; the group's offset stays before its first open message.

There are no checkpoints. The queue's state is stored instead, before the client gets an answer. Source: the branches
for ``order`` of ``PopMessageProcessor``, ``AckMessageProcessor`` and ``ChangeInvisibleTimeProcessor``, RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import attrs

from broker.ha.acks import PutStatus
from broker.offsets import OffsetTable
from broker.pop.order import Change, Ignored, OrderKey
from broker.pop.orderlog import OrderLog
from broker.pop.progress import Key
from broker.pop.taking import Haul, records_of
from broker.pop.waiting import WaitingRoom
from broker.puts import PutResult
from broker.rules import Refusal
from broker.topics.names import popped_from
from remoting import receipts
from remoting.codes import ResponseCode

NOT_READY: Final = Refusal(
    ResponseCode.SYSTEM_ERROR, "this master is young: it does not know yet which messages are out in order")
OVERTAKEN: Final = "replicas acknowledged it late: its messages were given to another request, or its group was reset"
Give = Callable[[Sequence[Haul], str, str], None]
"""Called once, with what is given, its ``orderCountInfo``, and the reason why nothing is."""
Answer = Callable[[str], None]
"""Called once, with "" when the records are stored, or with the reason why not."""


class InOrder:
    """POPs, acknowledgements and changes of requests with ``order``. ``log`` holds the states."""

    def __init__(self, log: OrderLog, offsets: OffsetTable, room: WaitingRoom, wall_ms: Callable[[], int]) -> None:
        self._log, self._offsets, self._room, self._wall_ms = log, offsets, room, wall_ms
        log.on_unlock = self._unlocked

    @property
    def ready(self) -> bool:
        """Return whether all states are known and changes can be stored."""
        return self._log.ready

    def blocked(self, key: Key, attempt_id: str | None, invisible_ms: int = 0) -> bool:
        """Return whether a batch that blocks this attempt is out."""
        return self._log.orders.blocked(OrderKey(*key), self._wall_ms(), attempt_id, invisible_ms)

    def goes_on(self, key: Key) -> int:
        """Least offset of the next batch: changes in flight count, while the group's offset moves when they end."""
        state = self._log.orders.state(OrderKey(*key))
        return 0 if state is None else state.next_offset

    def open_part(self, key: Key, haul: Haul) -> Haul | None:
        """The haul without messages that were acknowledged before; None: none is left."""
        done = self._log.orders.done(OrderKey(*key))
        return haul if not done else _without(haul, done)

    def deliver(self, group: str, hauls: Sequence[Haul], pop_time_ms: int, invisible_ms: int, attempt_id: str | None,
                give: Give) -> None:
        """Store that batches are given, then call ``give``. It leaves out batches that another request was given since:
        a put may wait for replicas longer than its batch blocks."""
        changes = [self._log.orders.deliver(OrderKey(haul.visit.topic, group, haul.visit.queue_id), pop_time_ms,
                                            invisible_ms, haul.offsets, attempt_id) for haul in hauls]

        def stored(why_not: str) -> None:
            if why_not:
                give([], "", f"its order is not stored: {why_not}")
                return
            out = [each for each in zip(hauls, changes, strict=True) if self._log.orders.is_out(each[1])]
            give([haul for haul, _ in out],
                 receipts.order_counts((haul.place, change.counts, change.least) for haul, change in out),
                 "" if out else OVERTAKEN)

        self._store(changes, stored)

    def ack(self, key: Key, offsets: Sequence[int], pop_time_ms: int, answer: Answer) -> Refusal | None:
        """Acknowledge messages of one batch. An offset outside the batch is refused if it is the only one, else
        skipped."""
        if not self._log.ready:
            return NOT_READY
        order_key, changes, stranger, late = OrderKey(*key), list[Change](), False, False
        for offset in offsets:
            committed = self._offsets.query(key[1], key[0], key[2]) or 0
            found = self._log.orders.ack(order_key, offset, pop_time_ms, committed)
            if isinstance(found, Change):
                changes.append(found)
            stranger |= found is Ignored.NOT_IN_BATCH
            late |= found is Ignored.LATE
        if stranger and len(offsets) == 1:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, (
                f"offset is illegal, key:{key[0]}@{key[2]}, commit:{offsets[0]}: it was not given in this batch"))
        if late and not changes:  # a replaced master, which cannot store ``still``, must not answer success
            changes.append(self._log.orders.still(order_key))
        if not changes:
            answer("")
        else:
            self._store(changes, answer)
        return None

    def change(self, key: Key, offset: int, pop_time_ms: int, visible_ms: int, answer: Answer,
               late: Answer) -> Refusal | None:
        """Let one message block until ``visible_ms``, then call ``answer``; ``late`` if it is not out any more."""
        if not self._log.ready:
            return NOT_READY
        order_key = OrderKey(*key)
        found = self._log.orders.change(order_key, offset, pop_time_ms, visible_ms)
        if isinstance(found, Change):
            self._store([found], answer)
        else:  # as for a late acknowledgement
            self._store([self._log.orders.still(order_key)], late)
        return None

    def clear(self, key: Key) -> None:
        """The group was reset: no batch of the queue is out any more."""
        self._log.forget([OrderKey(*key)])

    def _store(self, changes: Sequence[Change], answer: Answer) -> None:
        def done(result: PutResult) -> None:
            if result.status is not PutStatus.PUT_OK:
                answer(result.words)
                return
            for change in changes:
                key, offset = change.key, change.next_offset
                if offset is not None and self._log.orders.is_last(change) and not self._offsets.is_reset(
                        key.group, key.topic, key.queue_id):
                    self._offsets.commit(key.group, key.topic, key.queue_id, offset)
            answer("")
            for key in dict.fromkeys(change.key for change in changes):
                if not self._log.orders.blocked(key, self._wall_ms(), None):
                    self._unlocked(key)

        self._log.store(changes, done)

    def _unlocked(self, key: OrderKey) -> None:
        self._room.unlocked(popped_from(key.topic, key.group), key.group, key.queue_id)


def _without(haul: Haul, done: Collection[int]) -> Haul | None:
    kept = [(offset, raw) for offset, raw in zip(haul.offsets, records_of(haul.data), strict=True)
            if offset not in done]
    if not kept:
        return None
    return attrs.evolve(haul, offsets=[offset for offset, _ in kept], data=b"".join(raw for _, raw in kept))
