"""Reads a queue for one pull: returns records as they stand in the log, and where the next pull goes on.

Entries of the queue are filtered by the codes of tags alone; the client looks at the tags themselves. Records that
lie near each other are read at once. It knows the store, and neither clients nor codes of answers.
Source: ``DefaultMessageStore.getMessage`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import enum
from collections.abc import Container
from functools import lru_cache
from struct import Struct
from typing import Final

import attrs

from broker.store.consumequeue import ENTRY, ENTRY_BYTES, ConsumeQueue
from broker.store.errors import OffsetGone
from broker.store.log import Log
from broker.store.messages import StoredMessages
from remoting.errors import DamagedRecord
from remoting.record import RECORD_BYTES_MIN

_NOWHERE: Final = 0x7FFFFFFF
_GAP_BYTES: Final = 4 << 10
"""Largest gap between records that is read as well: to read so much for nothing costs less than another system call."""
_EXAMINED_BYTES: Final = 4 << 20
_EFFORT: Final = 4_000
_ENTRIES_A_MESSAGE: Final = 10
"""Entries of a queue whose tags are looked at for what one cheap filter costs for one message."""


class Status(enum.Enum):
    """``GetMessageStatus``: the remark of the answer."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


@attrs.frozen
class ReadConfig:
    """Keys of ``MessageStoreConfig`` and their defaults."""

    max_transfer_bytes_on_message_in_memory: int = 256 << 10
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 << 10
    max_transfer_count_on_message_in_disk: int = 8
    max_filter_message_size: int = 16_000
    """Bytes of the queue that one pull looks at; more, if it asks for more messages than they hold."""
    offset_check_in_slave: bool = False
    """True: a slave, which may lag, corrects offsets as a master does."""

    def limits(self, *, recent: bool) -> tuple[int, int]:
        """Messages and bytes of one answer; ``recent``: they count as in memory."""
        if recent:
            return self.max_transfer_count_on_message_in_memory, self.max_transfer_bytes_on_message_in_memory
        return self.max_transfer_count_on_message_in_disk, self.max_transfer_bytes_on_message_in_disk


@attrs.frozen
class Found:
    """The result of a read: ``count`` records, one after the other, in ``data``; and the bounds of the queue."""

    status: Status
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    data: bytes = b""
    count: int = 0
    behind: int = 0
    """Bytes from the last record that was looked at to the end of the log."""


@attrs.define
class Effort:
    """What one request may still look at, in all queues that it reads: once it is spent, the next one goes on."""

    left: int = attrs.field(factory=lambda: _EFFORT)
    """In messages, times ``Filter.cost``."""
    bytes_left: int = attrs.field(factory=lambda: _EXAMINED_BYTES)
    """Of the log: none are asked for beyond them."""

    @property
    def is_spent(self) -> bool:
        return self.left <= 0 or self.bytes_left < 0


def out_of_range(queue: ConsumeQueue | None, offset: int, *, correct: bool) -> Found | None:
    """Return what is wrong with an offset, and the one to use instead if ``correct``; None if a message is there."""
    least, most = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
    if queue is None:
        status, meant = Status.NO_MATCHED_LOGIC_QUEUE, 0
    elif most == 0:
        status, meant = Status.NO_MESSAGE_IN_QUEUE, 0
    elif offset < least:
        status, meant = Status.OFFSET_TOO_SMALL, least
    elif offset == most:
        status, meant = Status.OFFSET_OVERFLOW_ONE, offset
    elif offset > most:
        status, meant = Status.OFFSET_OVERFLOW_BADLY, most
    else:
        return None
    return Found(status, meant if correct else offset, least, most)


def read(messages: StoredMessages, topic: bytes, queue_id: int, offset: int, *, codes: Container[int] | None = None,
         count: int = 32, bytes_max: int | None = None, config: ReadConfig, memory: int = 1 << 62,
         correct: bool = True, effort: Effort | None = None) -> Found:
    """Read messages of a queue from ``offset`` on whose tag has one of ``codes``, or any.

    The first one comes whatever its size. ``count`` and ``bytes_max`` are what the reader asks for; the configuration
    has limits of its own, lower ones for messages that lie more than ``memory`` bytes before the end of the log.
    ``correct``: an offset out of range is answered with the one that is meant, otherwise with itself. ``effort``: what
    was looked at is taken off it. Raises ``DamagedRecord``: the queue points at no messages.
    """
    queue = messages.queue(topic, queue_id)
    wrong = out_of_range(queue, offset, correct=correct)
    if wrong is not None:
        return wrong
    assert queue is not None, "None is out of range"
    log = messages.log
    end, log_min = log.max_offset, log.min_offset
    window = max(1, min(count, config.max_transfer_count_on_message_in_memory))
    if codes is not None:
        window = max(window, config.max_filter_message_size // ENTRY_BYTES)
    entries = queue.read(offset, window)
    recent = end - ENTRY.unpack_from(entries)[0] <= memory
    most, limit = config.limits(recent=recent)
    most = max(1, min(most, count))
    if bytes_max is not None:
        limit = min(limit, bytes_max)
    if codes is None:
        flat = _flat(entries[: most * ENTRY_BYTES])
        total, first = sum(flat[1::3]), flat[0]
        if flat[-3] + flat[-2] - first == total <= limit and log_min <= first < first + total <= end:
            data = log.read(first, total)  # they stand one after the other in the log
            if data[:4] == flat[1].to_bytes(4, "big", signed=True) and len(data) == total:
                return Found(Status.FOUND, offset + len(flat) // 3, queue.min_offset, queue.max_offset, data,
                             len(flat) // 3, end - flat[-3])
    chosen, count, where, removing = _choose(entries, log_min, codes, most, limit)
    if not count:
        raise damaged(topic, queue_id, offset, DamagedRecord(where, "none has so few bytes"))
    if effort is not None:
        effort.left -= -(-count // _ENTRIES_A_MESSAGE)
    next_offset, bounds, behind = offset + count, (queue.min_offset, queue.max_offset), end - where
    if not chosen:
        status = Status.MESSAGE_WAS_REMOVING if removing else Status.NO_MATCHED_MESSAGE
        return Found(status, next_offset, *bounds, behind=behind)
    try:
        return Found(Status.FOUND, next_offset, *bounds, _records(log, chosen), len(chosen), behind)
    except (DamagedRecord, OffsetGone) as damage:
        raise damaged(topic, queue_id, offset, damage) from None


def _choose(entries: bytes, log_min: int, codes: Container[int] | None, most: int, limit: int,
            ) -> tuple[list[tuple[int, int]], int, int, bool]:
    """Choose wanted messages, ``most`` and ``limit`` bytes at most; the first one comes whatever its size.

    Returns their offsets and sizes; how many entries that took, all before one that is none; the last offset; whether
    messages are gone."""
    chosen: list[tuple[int, int]] = []
    count, last, left, removing = 0, 0, limit, False
    for where, size, code in ENTRY.iter_unpack(entries):
        if size == _NOWHERE:
            removing = True
        elif size < RECORD_BYTES_MIN or where < 0:
            break
        elif where < log_min:
            removing = True
        elif codes is None or code in codes:
            if chosen and (size > left or len(chosen) == most):
                break
            chosen.append((where, size))
            left -= size
        count, last = count + 1, where
    return chosen, count, last, removing


def damaged(topic: bytes, queue_id: int, offset: int, damage: DamagedRecord | OffsetGone) -> DamagedRecord:
    """Return the error for a queue that points at no messages."""
    return DamagedRecord(
        damage.offset,
        f"queue {queue_id} of {topic.decode()} is damaged at place {offset} or behind ({damage})")


@lru_cache(1_024)
def _entries(count: int) -> Struct:
    return Struct(">" + "qiq" * count)


def _flat(entries: bytes) -> tuple[int, ...]:
    """Return offset, size and code of one entry after the other."""
    return _entries(len(entries) // ENTRY_BYTES).unpack(entries)


def _records(log: Log, chosen: list[tuple[int, int]]) -> bytes:
    """Read records at these offsets and of these sizes, in order. Raises ``DamagedRecord``, ``OffsetGone``."""
    parts: list[bytes] = []
    for where, size in chosen:
        if not RECORD_BYTES_MIN <= size <= log.file_bytes:
            raise DamagedRecord(where, f"none has {size} bytes")
    file_bytes, at = log.file_bytes, 0
    while at < len(chosen):
        first, size = chosen[at]
        end, total, upto = first + size, size, at + 1
        limit = first - first % file_bytes + file_bytes
        while upto < len(chosen) and 0 <= chosen[upto][0] - end <= _GAP_BYTES and chosen[upto][0] < limit:
            end = chosen[upto][0] + chosen[upto][1]
            total += chosen[upto][1]
            upto += 1
        data = log.read(first, end - first)
        if len(data) < end - first:
            raise DamagedRecord(first, f"the log, or its file, ends before {end}")
        for where, size in chosen[at:upto]:
            if data[where - first : where - first + 4] != size.to_bytes(4, "big"):
                raise DamagedRecord(where, f"none of {size} bytes begins there")
            if total != end - first:
                parts.append(data[where - first : where - first + size])
        if total == end - first:
            parts.append(data)
        at = upto
    return b"".join(parts)
