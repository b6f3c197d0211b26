"""Messages found again: by their place in a queue, by time, by key. It reads, and changes nothing.

Source: ``DefaultMessageStore`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from broker.store.consumequeue import ENTRY, NOWHERE_SIZE, ConsumeQueue
from broker.store.errors import OffsetGone
from broker.store.indexfile import KeyIndex
from broker.store.log import Log
from broker.store.queues import Queue, Queues
from remoting import record as codec
from remoting.errors import DamagedRecord
from remoting.record import Record


class StoredMessages:
    """Reads messages of one store, by queue offset, time and key. ``log`` is public for other readers."""

    def __init__(self, log: Log, queues: Queues, index: KeyIndex | None) -> None:
        self.log, self._queues, self._index = log, queues, index
        self.finds_keys = index is not None
        """There is an index, so that ``get_by_key`` finds what there is."""

    def queues(self) -> list[Queue]:
        """Return topic and id of every queue that has ever had a visible message, sorted."""
        return self._queues.keys()

    def queue(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """Return a queue to look at, if it has ever had a visible message."""
        return self._queues.get(topic, queue_id, self.log.min_offset)

    def min_offset(self, topic: bytes, queue_id: int) -> int:
        queue = self.queue(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset(self, topic: bytes, queue_id: int) -> int:
        """Return the end of the last visible message."""
        queue = self.queue(topic, queue_id)
        return queue.max_offset if queue else 0

    def get(self, topic: bytes, queue_id: int, queue_offset: int, *, count: int = 32,
            bytes_max: int = 256 << 10) -> list[bytes]:
        """Records from ``queue_offset`` on, as they are in the log: at least one if there is one. [] at the end.

        Raises:
            OffsetGone: that offset is not between the least and the greatest.
            DamagedRecord: what the queue points at is no message.
        """
        queue = self.queue(topic, queue_id)
        if queue is None:
            if queue_offset:
                raise OffsetGone(queue_offset, 0, 0)
            return []
        records: list[bytes] = []
        left = bytes_max
        for offset, size, _ in ENTRY.iter_unpack(queue.read(queue_offset, count)):
            if size == NOWHERE_SIZE:
                continue
            if records and size > left:
                break
            records.append(self.log.read(offset, size))
            left -= size
        assert len(records) <= count
        return records

    def get_by_key(self, topic: bytes, key: str, *, begin_ms: int = 0, end_ms: int = 1 << 62,
                   most: int = 64) -> list[Record]:
        """Messages of the topic with this unique id or among whose keys it is, the newest first."""
        found: list[Record] = []
        if self._index is None:
            return found
        offsets = self._index.find(f"{topic.decode()}#{key}", most, begin_ms, end_ms, self.log.max_offset)
        for offset in dict.fromkeys(offsets):
            try:
                record = self.log.record(offset)
            except (OffsetGone, DamagedRecord):  # the index may still name messages that are gone
                continue
            properties = codec.decode_properties(record.message.properties)
            if record.message.topic == topic and begin_ms <= record.store_time_ms <= end_ms and (
                    key == properties.get("UNIQ_KEY") or key in properties.get("KEYS", "").split(" ")):
                found.append(record)
        assert len(found) <= most
        return found

    def offset_by_time(self, topic: bytes, queue_id: int, time_ms: int) -> int:
        """The first message of the queue stored at ``time_ms`` or later; behind the last if there is none."""
        queue = self.queue(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            offset, size, _ = queue.entry(middle)
            if size == NOWHERE_SIZE or self.log.record(offset, size).store_time_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        assert queue.min_offset <= low == high <= queue.max_offset
        return low

    def store_time_ms(self, topic: bytes, queue_id: int, offset: int) -> int:
        """Return the store time of the message at that queue offset; -1 if there is none."""
        where, size = self._place(topic, queue_id, offset)
        if where < self.log.min_offset:
            return -1
        try:
            return self.log.record(where, size).store_time_ms
        except (DamagedRecord, OffsetGone):
            return -1

    def is_recent(self, topic: bytes, queue_id: int, offset: int, memory: int) -> bool:
        """Return whether the message at that queue offset exists and stands at most ``memory`` bytes before the log's
        end."""
        where, _ = self._place(topic, queue_id, offset)
        return where >= 0 and self.log.max_offset - where <= memory

    def _place(self, topic: bytes, queue_id: int, offset: int) -> tuple[int, int]:
        """Return log offset and size of the message at that queue offset; (-1, 0) if they are not known."""
        queue = self.queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1, 0
        where, size, _ = queue.entry(offset)
        return (where, size) if size != NOWHERE_SIZE else (-1, 0)
