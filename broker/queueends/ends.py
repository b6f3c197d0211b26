"""The question where queues end, and its answer. It knows queues of a store, and neither sends nor changes anything."""

from __future__ import annotations

from typing import Final

import attrs

from broker.store.messages import StoredMessages
from broker.store.queues import Queue
from remoting.body import Body, body
from remoting.fields import Int32, Int64
from remoting.header import Header, header

GET_QUEUE_ENDS: Final = 61_051
"""Ours: Java's servers answer 3."""


@header
class QueueEndsRequest(Header):
    """61051: queues without messages at or behind ``logOffset``."""

    log_offset: Int64


@body
class QueueEnds(Body):
    """The answer: by topic and queue id, the offset of the next message."""

    end_table: dict[str, dict[Int32, Int64]] = attrs.field(factory=dict)

    def by_queue(self) -> dict[Queue, int]:
        return {(topic.encode(), queue_id): end
                for topic, ends in self.end_table.items() for queue_id, end in ends.items()}


def ends_before(messages: StoredMessages, log_offset: int) -> QueueEnds:
    """Of the queues that ever had a message, and none that stands at ``log_offset`` of the log, or behind."""
    found: dict[str, dict[int, int]] = {}
    for topic, queue_id in messages.queues():
        queue = messages.queue(topic, queue_id)
        if queue is None or not queue.max_offset:
            continue
        if queue.min_offset < queue.max_offset and queue.entry(queue.max_offset - 1)[0] >= log_offset:
            continue
        found.setdefault(topic.decode(), {})[queue_id] = queue.max_offset
    return QueueEnds(found)
