"""Puts messages into the log, and gives each its queue offset. It knows no client, no role and no disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from broker.store.batch import Batch
from broker.store.dispatch import in_queue
from broker.store.log import Log, Raw
from broker.store.queues import Queue, Queues
from broker.store.visible import Visible
from remoting import record as codec
from remoting.errors import MessageIllegal
from remoting.record import Message


class Put(NamedTuple):
    """Place of a message in the log. It is durable once the log's ``flushed_offset`` is at least ``offset + size``."""

    offset: int
    size: int
    queue_offset: int


class Writer:
    """Writes messages. Call ``number_from`` before the first put, and after bytes of another log."""

    def __init__(self, log: Log, queues: Queues, visible: Visible) -> None:
        self._log, self._queues, self._visible = log, queues, visible
        self._next: dict[Queue, int] | None = None
        """Queue offsets to give: ahead of the queues by what is not dispatched yet. None: to be worked out."""
        self.last_time_ms = 0
        """Store time of the last message that was numbered."""

    # --- messages --------------------------------------------------------------------------------------------

    def put(self, message: Message, store_time_ms: int) -> Put:
        """Append a message: written by the log's ``write``, durable by its ``flush``, seen as ``Visible`` advances.

        Raises:
            MessageIllegal: nothing was kept, change the message.
            StoreFull, StoreFailed: as of the log.
        """
        offsets = self._next
        assert offsets is not None, "queue offsets are known"
        key = message.topic, message.queue_id
        queue_offset = offsets.get(key)
        if queue_offset is None:
            _check_name(message)
            queue_offset = 0
        if message.sys_flag & 4:  # not ``in_queue``
            offset, size = self._log.append(message, 0, store_time_ms)
            queue_offset = 0
        else:
            offset, size = self._log.append(message, queue_offset, store_time_ms)
            offsets[key] = queue_offset + 1
        self.last_time_ms = store_time_ms
        return Put(offset, size, queue_offset)

    def put_all(self, messages: Sequence[Message], store_time_ms: int) -> tuple[Put, ...]:
        """Append messages one after the other, in one file of the log; all, or none if it raises as ``put``."""
        if len(messages) == 1:
            return (self.put(messages[0], store_time_ms),)
        if isinstance(messages, Batch) and in_queue(messages.common.sys_flag):
            return self._put_batch(messages, store_time_ms)
        size, offsets = 0, self._next
        assert offsets is not None, "queue offsets are known"
        for message in messages:
            size += codec.size_of(message)
            if (message.topic, message.queue_id) not in offsets:
                _check_name(message)
        self._log.make_room(size)
        puts = tuple([self.put(message, store_time_ms) for message in messages])
        assert not puts or puts[-1].offset + puts[-1].size == puts[0].offset + size, "one behind the other in one file"
        return puts

    def _put_batch(self, batch: Batch, store_time_ms: int) -> tuple[Put, ...]:
        offsets = self._next
        assert offsets is not None, "queue offsets are known"
        _check_name(batch.common)
        key = batch.common.topic, batch.common.queue_id
        queue_offset = offsets.get(key, 0)
        offset, sizes = self._log.append_batch(batch, queue_offset, store_time_ms)
        offsets[key] = queue_offset + len(sizes)
        self.last_time_ms = store_time_ms
        assert len(sizes) == len(batch), "each message has a place in the queue"
        places = zip(accumulate(sizes, initial=offset), sizes, range(queue_offset, offsets[key]), strict=False)
        return tuple(map(Put._make, places))

    # --- bytes of another log --------------------------------------------------------------------------------

    def append_raw(self, data: Raw, offset: int, *, cached: bool = True) -> None:
        """Append bytes of another log. Raises as ``Log.append_raw``.

        ``cached`` False: of old messages; what the queues need of them is kept until they are told."""
        self._next = None
        if not self._log.max_offset:
            self._visible.start_at(offset)
        self._log.append_raw(data, offset, None if cached else self._visible.offset)

    # --- queue offsets ---------------------------------------------------------------------------------------

    @property
    def is_numbered(self) -> bool:
        """The next message may be put: what stands before it is known."""
        return self._next is not None

    def queue_end(self, topic: bytes, queue_id: int) -> int | None:
        """Return the end of the queue's last message in the log, visible or not; None: it must be worked out."""
        if self._next is not None:
            return self._next.get((topic, queue_id), 0)
        if self._visible.offset < self._log.max_offset:
            return None
        queue = self._queues.get(topic, queue_id, self._log.min_offset)
        return queue.max_offset if queue is not None else 0

    def forget_numbers(self) -> None:
        """Forget the queue offsets to give: others changed log or queues."""
        self._next = None

    def begin_queues(self, ends: Mapping[Queue, int]) -> None:
        """Queues that never had a message here go on from there. Raises ``OSError``."""
        self._queues.begin(ends)
        self._next = None

    def number_from(self, begin: int, *, gapless: bool = False) -> bool:
        """Work out the queue offsets to give, by the queues and by the log from ``begin`` on.

        False: the queues lack messages before ``begin``, and ``gapless`` says that none may be missing.

        Raises:
            DamagedRecord: what stands there is no message, or a part of one.
        """
        self._next = None
        offsets = self._queues.max_offsets()
        for _, _, queue_id, queue_offset, sys_flag, time_ms, topic, _ in self._log.scan(begin, check_crc=False):
            self.last_time_ms = time_ms
            if in_queue(sys_flag):
                key = topic, queue_id
                due = offsets.get(key, 0)
                if queue_offset > due and gapless:
                    return False
                if queue_offset != due and not self._queues.has_place(topic, queue_id, queue_offset, due):
                    continue
                offsets[key] = queue_offset + 1  # it falls where a queue was given up and begun anew
        assert min(offsets.values(), default=0) >= 0
        self._next = offsets
        return True


def _check_name(message: Message) -> None:
    """Check that topic and queue id can be names of folders. Raises ``MessageIllegal``."""
    topic = message.topic
    if topic and (not codec.is_folder_name(topic) or message.queue_id < 0):
        raise MessageIllegal(f"topic {topic[:60]!r} queue {message.queue_id} cannot be the name of a folder: "
                             "UTF-8 without / \\ : * ? \" < >, and a number")
