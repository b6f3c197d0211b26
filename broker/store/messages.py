"""Messages by their place in a queue: when one was stored, whether it is still in memory. It knows the store alone."""

from __future__ import annotations

from broker.store.consumequeue import NOWHERE_SIZE
from broker.store.errors import OffsetGone
from broker.store.store import MessageStore
from remoting.errors import DamagedRecord


def store_time_ms(store: MessageStore, topic: bytes, queue_id: int, offset: int) -> int:
    """When the message of that queue offset was stored; -1 if there is none."""
    queue = store.queue(topic, queue_id)
    if queue is None or not queue.min_offset <= offset < queue.max_offset:
        return -1
    where, size, _ = queue.entry(offset)
    if size == NOWHERE_SIZE or where < store.log.min_offset:
        return -1
    try:
        return store.log.record(where, size).store_time_ms
    except (DamagedRecord, OffsetGone):
        return -1


def is_recent(store: MessageStore, topic: bytes, queue_id: int, offset: int, memory: int) -> bool:
    """Whether the message of that queue offset is there, and not more than ``memory`` bytes behind the log's end."""
    queue = store.queue(topic, queue_id)
    if queue is None or not queue.min_offset <= offset < queue.max_offset:
        return False
    where, size, _ = queue.entry(offset)
    return size != NOWHERE_SIZE and store.log.max_offset - where <= memory
