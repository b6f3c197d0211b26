"""The request for queue ends, and its answer. It knows queues of a store, and neither sends nor changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from broker.store.dispatch import in_queue
from broker.store.messages import StoredMessages
from broker.store.queues import Queue
from remoting.body import Body, body
from remoting.fields import Int32, Int64
from remoting.header import Header, header
from remoting.record import Outline

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


def ends_after(outlines: Iterable[Outline]) -> Iterator[tuple[Queue, int]]:
    """Yield, for each message that stands in a queue, that queue and its end after the message."""
    for _, _, queue_id, queue_offset, sys_flag, _, topic, _ in outlines:
        if in_queue(sys_flag):
            yield (topic, queue_id), queue_offset + 1


def ends_before(messages: StoredMessages, log_offset: int, unseen: Mapping[Queue, int] = {}) -> QueueEnds:
    """Return the ends of queues that once had a message, and have none at or after ``log_offset`` of the log.
    ``unseen`` has the ends of queues whose messages below ``log_offset`` are not entered yet."""
    found: dict[str, dict[int, int]] = {}
    for (topic, queue_id), end in unseen.items():
        found.setdefault(topic.decode(), {})[queue_id] = end
    for topic, queue_id in messages.queues():
        queue = messages.queue(topic, queue_id)
        if queue is None or not queue.max_offset:
            continue
        ends = found.setdefault(topic.decode(), {})
        if queue.min_offset < queue.max_offset and queue.entry(queue.max_offset - 1)[0] >= log_offset:
            ends.pop(queue_id, None)
        else:
            ends[queue_id] = max(queue.max_offset, ends.get(queue_id, 0))
    return QueueEnds({topic: ends for topic, ends in found.items() if ends})
