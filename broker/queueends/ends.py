"""The request for queue ends, and its answer. It knows queues of a store, and neither sends nor changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from broker.store.dispatch import in_queue
from broker.store.messages import StoredMessages
from broker.store.queues import Queue
from remoting.body import Body, body
from remoting.fields import Int32, Int64
from remoting.header import Header, header

GET_QUEUE_ENDS: Final = 61_051
"""Ours: Java's servers answer 3."""


@header
class QueueEndsRequest(Header):
    """61051: where queues end before ``logOffset``."""

    log_offset: Int64


@body
class QueueEnds(Body):
    """The answer: by topic and queue id, where queues end before ``logOffset``: a log from there on begins them there.

    Masters of before leave out queues with a message from there on."""

    end_table: dict[str, dict[Int32, Int64]] = attrs.field(factory=dict)

    def note(self, queue: Queue, end: int) -> None:
        """Note the end of a queue, unless a greater one is known, or the queue begins there anyway."""
        if end:
            ends = self.end_table.setdefault(queue[0].decode(), {})
            ends[queue[1]] = max(end, ends.get(queue[1], 0))

    def by_queue(self) -> dict[Queue, int]:
        return {(topic.encode(), queue_id): end
                for topic, ends in self.end_table.items() for queue_id, end in ends.items()}


def ends_before(messages: StoredMessages, seen: int, log_offset: int) -> Iterator[tuple[Queue, int]]:
    """Yield queues and where they end before ``log_offset`` of the log; one may come again with a greater end.

    Messages from the offset ``seen`` of the log on may be in no queue yet. Others may change queues and log meanwhile.
    """
    if seen < log_offset:
        for _, _, queue_id, queue_offset, sys_flag, _, topic, _ in messages.log.scan(seen, log_offset, check_crc=False):
            if in_queue(sys_flag):
                yield (topic, queue_id), queue_offset + 1
    for key in messages.queues():
        queue = messages.queue(*key)
        if queue is not None:
            yield key, queue.end_before(log_offset)
