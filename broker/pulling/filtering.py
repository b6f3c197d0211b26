"""Reads for a pull whose filter looks at properties: as ``reading``, but each message's properties are read.

A pull looks at a bounded part of the queue, and the next one goes on after it. So does a POP, of all its queues.
Source: ``DefaultMessageStore.getMessage``, ``ExpressionForRetryMessageFilter`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.consumers.subscriptions import Filter, Subscribed
from broker.filters.table import Filters
from broker.pulling.reading import Effort, Found, ReadConfig, Status, damaged, out_of_range
from broker.store.consumequeue import ENTRY, ENTRY_BYTES, NOWHERE_SIZE
from broker.store.errors import OffsetGone
from broker.store.log import NOTHING, Log, Read
from broker.store.messages import StoredMessages
from remoting.errors import DamagedRecord
from remoting.record import MAGIC, MIDDLE, RECORD_BYTES_MIN, V6_FLAGS, properties_begin, value_behind

_NEAR_BYTES: Final = 8 << 10
"""Largest message, and gap in front of it, for which a slab of the log is read: it costs as much as five messages."""
_LONG_BYTES: Final = 512
_MORE_BYTES: Final = 256
"""Properties of so many bytes cost more: the cost of the filter once more for each so many of them."""
_RETRY_TOPIC: Final = b"RETRY_TOPIC\x01"


class RetryFilter:
    """The filter for a group's retry topic: it applies the group's filter for a message's first topic."""

    memory_bytes: Final = 200

    def __init__(self, filters: Filters, group: str) -> None:
        self._filters, self._group = filters, group
        self.cost = 3 + filters.cost(group)

    def matches(self, raw: bytes, begin: int = 0, end: int | None = None) -> bool:
        """Return whether the message is wanted; one of a topic that the group does not filter is."""
        properties = raw[begin:end]
        topic = value_behind(properties, _RETRY_TOPIC)
        found = None if topic is None else self._filters.get(self._group, topic.decode(errors="replace"))
        return found is None or found.expression.matches(properties)


def read_filtered(
    messages: StoredMessages, topic: bytes, queue_id: int, offset: int, *, wanted: Subscribed, count: int = 32,
    bytes_max: int | None = None, config: ReadConfig, memory: int = 1 << 62, correct: bool = True,
    effort: Effort | None = None,
) -> Found:
    """Read as ``reading.read`` does, but only messages that a filter wants, and no more than ``effort`` allows (None:
    as much as one request may), at least one. Raises ``DamagedRecord`` as that does."""
    queue = messages.queue(topic, queue_id)
    wrong = out_of_range(queue, offset, correct=correct)
    if wrong is not None:
        return wrong
    assert queue is not None, "None is out of range"
    log = messages.log
    end = log.max_offset
    assert wanted.filter is not None, "else ``read`` is quicker"
    effort = effort or Effort()
    entries = queue.read(offset, _window(config, count, -(-effort.left // wanted.filter.cost)))
    most, limit = config.limits(recent=end - ENTRY.unpack_from(entries)[0] <= memory)
    most, limit = max(1, min(most, count)), limit if bytes_max is None else min(limit, bytes_max)
    try:
        chosen, looked, where, removing = _choose(entries, log, wanted.codes, wanted.filter, most, limit, effort)
    except (DamagedRecord, OffsetGone) as damage:
        raise damaged(topic, queue_id, offset, damage) from None
    status = Status.FOUND if chosen else Status.MESSAGE_WAS_REMOVING if removing else Status.NO_MATCHED_MESSAGE
    return Found(status, offset + looked, queue.min_offset, queue.max_offset, b"".join(chosen), len(chosen),
                 end - where)


def _choose(entries: bytes, log: Log, codes: Collection[int] | None, wanted: Filter, most: int, limit: int,
            effort: Effort) -> tuple[list[bytes], int, int, bool]:
    """Return the records that are wanted, how many entries were looked at, where the last one's record stands, and
    whether some are gone."""
    scan, base, data, have, removing, looked, where, more = _Scan(log), 0, b"", 0, False, 0, 0, 0
    chosen: list[bytes] = []
    matches, cost, log_min, unpack = wanted.matches, wanted.cost, log.min_offset, MIDDLE.unpack_from
    try:
        for where, size, code in ENTRY.iter_unpack(entries):
            at = where - base
            stop = at + size
            if at < 0 or stop > have:  # what was read already is neither gone nor nowhere
                if size == NOWHERE_SIZE or 0 <= where < log_min:
                    removing = True
                    looked += 1
                    continue
                if codes is None or code in codes:
                    if scan.read_bytes > effort.bytes_left:
                        break
                    base, data = scan.around(where, size)
                    at, stop, have = where - base, where - base + size, len(data)
            if codes is None or code in codes:
                begin = stop + 1
                if size >= RECORD_BYTES_MIN:  # as ``properties_begin``, with a call less for each message
                    found, magic, flags, body_size = unpack(data, at)
                    if found == size and magic == MAGIC and 0 <= body_size < size - 90 and not flags & V6_FLAGS:
                        begin = at + 91 + body_size + data[at + 88 + body_size]
                if begin > stop or data[begin - 2] << 8 | data[begin - 1] != stop - begin:
                    begin = properties_begin(data, at, size)
                if stop - begin >= _LONG_BYTES:
                    more += (stop - begin) // _MORE_BYTES * cost
                    if looked and cost * looked + more >= effort.left:
                        break
                if matches(data, begin, stop):
                    if chosen and size > limit:
                        break
                    chosen.append(data[at:stop])
                    limit -= size
                    if len(chosen) == most:
                        looked += 1
                        break
            looked += 1
    finally:
        effort.left -= cost * looked + more
        effort.bytes_left -= scan.read_bytes
    return chosen, looked, where, removing


def _window(config: ReadConfig, count: int, affordable: int) -> int:
    """Return how many messages a pull for ``count`` of them may look at."""
    window = max(config.max_filter_message_size // ENTRY_BYTES,
                 min(count, config.max_transfer_count_on_message_in_memory))
    return max(1, min(window, affordable))


class _Scan:
    """Records of a log, asked for in order; those that lie near each other are read at once."""

    def __init__(self, log: Log) -> None:
        self.read_bytes = 0
        self._log, self._end = log, 0

    def around(self, where: int, size: int) -> Read:
        """Return bytes with the record of this size. Raises ``DamagedRecord``, ``OffsetGone``."""
        log = self._log
        if not RECORD_BYTES_MIN <= size <= log.file_bytes:
            raise DamagedRecord(where, f"none has {size} bytes")
        near = 0 <= where - self._end <= _NEAR_BYTES and size <= _NEAR_BYTES
        base, data = log.slab(where) if near else NOTHING
        if where + size > base + len(data):
            base, data = where, log.read(where, size)
            if len(data) < size:
                raise DamagedRecord(where, f"the log, or its file, ends before {where + size}")
        self._end = base + len(data)
        self.read_bytes += len(data)
        return base, data
