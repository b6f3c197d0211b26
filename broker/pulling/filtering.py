"""Reads for a pull whose filter looks at properties: as ``reading``, but each message's properties are read.

A pull looks at a bounded part of the queue, and the next one goes on after it.
Source: ``DefaultMessageStore.getMessage``, ``ExpressionForRetryMessageFilter`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final

from broker.consumers.subscriptions import Subscribed
from broker.filters.table import Filters
from broker.pulling.reading import Found, ReadConfig, Status, damaged, out_of_range
from broker.store.consumequeue import ENTRY, ENTRY_BYTES, NOWHERE_SIZE
from broker.store.errors import OffsetGone
from broker.store.log import Log
from broker.store.messages import StoredMessages
from remoting.errors import DamagedRecord
from remoting.record import RECORD_BYTES_MIN, stored_properties, value_behind

_BLOCK_BYTES_MIN: Final = 4 << 10
_BLOCK_BYTES_MAX: Final = 64 << 10
"""Most bytes of one read; reads grow to this while messages of the queue are near each other in the log."""
_EXAMINED_BYTES: Final = 2 << 20
"""Bytes that are read for one pull besides the messages that it is given."""
_WORK: Final = 4_000
"""Work of filters for one pull, by ``Filter.cost``."""
_RETRY_TOPIC: Final = b"RETRY_TOPIC\x01"


class RetryFilter:
    """The filter for a group's retry topic: it applies the group's filter for a message's first topic."""

    cost: Final = 4

    def __init__(self, filters: Filters, group: str) -> None:
        self._filters, self._group = filters, group

    def matches(self, properties: bytes) -> bool:
        """Return whether the message is wanted; one of a topic that the group does not filter is."""
        topic = value_behind(properties, _RETRY_TOPIC)
        found = None if topic is None else self._filters.get(self._group, topic.decode(errors="replace"))
        return found is None or found.expression.matches(properties)


def read_filtered(
    messages: StoredMessages, topic: bytes, queue_id: int, offset: int, *, wanted: Subscribed, count: int = 32,
    bytes_max: int | None = None, config: ReadConfig, memory: int = 1 << 62, correct: bool = True,
) -> Found:
    """Read as ``reading.read`` does, but only messages that a filter wants. Raises ``DamagedRecord`` as that does."""
    queue = messages.queue(topic, queue_id)
    wrong = out_of_range(queue, offset, correct=correct)
    if wrong is not None:
        return wrong
    assert queue is not None, "None is out of range"
    log = messages.log
    end, log_min = log.max_offset, log.min_offset
    entries = queue.read(offset, max(1, config.max_filter_message_size // ENTRY_BYTES,
                                     min(count, config.max_transfer_count_on_message_in_memory)))
    most, limit = config.limits(recent=end - ENTRY.unpack_from(entries)[0] <= memory)
    most, limit = max(1, min(most, count)), limit if bytes_max is None else min(limit, bytes_max)
    assert wanted.filter is not None, "else ``read`` is quicker"
    codes, matches, cost = wanted.codes, wanted.filter.matches, wanted.filter.cost
    scan, work, removing, next_offset, where = _Scan(log), _WORK, False, offset, 0
    chosen: list[bytes] = []
    try:
        for where, size, code in ENTRY.iter_unpack(entries):
            if size == NOWHERE_SIZE or 0 <= where < log_min:
                removing = True
            elif codes is None or code in codes:
                at = scan.find(where, size)
                if matches(stored_properties(scan.block, at)):
                    if chosen and size > limit:
                        break
                    chosen.append(scan.block[at : at + size])
                    limit -= size
            next_offset += 1
            work -= cost
            if len(chosen) == most or work <= 0 or scan.read_bytes > _EXAMINED_BYTES:
                break
    except (DamagedRecord, OffsetGone) as damage:
        raise damaged(topic, queue_id, offset, damage) from None
    bounds, behind = (queue.min_offset, queue.max_offset), end - where
    if not chosen:
        status = Status.MESSAGE_WAS_REMOVING if removing else Status.NO_MATCHED_MESSAGE
        return Found(status, next_offset, *bounds, behind=behind)
    return Found(Status.FOUND, next_offset, *bounds, b"".join(chosen), len(chosen), behind)


class _Scan:
    """Records of a log, asked for in order; those that lie near each other are read at once."""

    def __init__(self, log: Log) -> None:
        self.read_bytes = 0
        self._log, self._start, self._block, self._ask = log, 0, b"", _BLOCK_BYTES_MIN

    def find(self, where: int, size: int) -> int:
        """Return where in ``block`` the record of this size begins. Raises ``DamagedRecord``, ``OffsetGone``."""
        if not RECORD_BYTES_MIN <= size <= self._log.file_bytes:
            raise DamagedRecord(where, f"none has {size} bytes")
        at = where - self._start
        if not 0 <= at <= at + size <= len(self.block):
            near = 0 <= at <= len(self.block) + _BLOCK_BYTES_MIN
            self._ask = min(2 * self._ask, _BLOCK_BYTES_MAX) if near else _BLOCK_BYTES_MIN
            self._start, self._block = where, self._log.read(where, max(size, self._ask))
            self.read_bytes += len(self._block)
            at = 0
        if self._block[at : at + 4] != size.to_bytes(4, "big") or at + size > len(self._block):
            raise DamagedRecord(where, f"none of {size} bytes begins there")
        return at

    @property
    def block(self) -> bytes:
        """The bytes that were read last, from the log."""
        return self._block
