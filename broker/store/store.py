"""The store of one broker: a directory as Java's, messages in by topic and queue, out by queue offset.

It joins log, queues and checkpoint, gives queue offsets, and opens after any crash with every flushed message at its
queue offset. Times are given to it; it knows no role, no client and no socket.
Source: ``DefaultMessageStore`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from broker.store import record as codec
from broker.store.checkpoint import PATH as CHECKPOINT
from broker.store.checkpoint import Checkpoint
from broker.store.commitlog import FILE_BYTES, CommitLog, Recovered
from broker.store.consumequeue import ENTRY, ConsumeQueue
from broker.store.consumequeue import FILE_BYTES as QUEUE_FILE_BYTES
from broker.store.dispatch import Dispatcher, in_queue
from broker.store.errors import DamagedRecord, MessageIllegal, OffsetGone
from broker.store.files import Files, read_whole, write_whole
from broker.store.indexfile import ENTRIES, SLOTS, KeyIndex
from broker.store.record import Message, Outline, Record

ABORT: Final = "abort"
"""There while a store is open: found at the start, it means that the last process was killed."""
QUEUES: Final = "consumequeue"
_UNSAFE: Final = frozenset(b'/\\\0:*?"<>')


@attrs.frozen
class StoreConfig:
    """``mappedFileSizeCommitLog``, ``mappedFileSizeConsumeQueue``, ``maxMessageSize``, ``messageIndexEnable``,
    ``maxHashSlotNum`` and ``maxIndexNum`` of RocketMQ."""

    log_file_bytes: int = FILE_BYTES
    queue_file_bytes: int = QUEUE_FILE_BYTES
    body_bytes_max: int = codec.BODY_BYTES_MAX
    index: bool = True
    index_slots: int = SLOTS
    index_entries: int = ENTRIES


@attrs.frozen
class Put:
    """Where a message was put. It is durable once ``flushed_offset`` of the log is at ``offset + size`` or beyond."""

    offset: int
    size: int
    queue_offset: int


Queue = tuple[bytes, int]
Arrived = Callable[[bytes, int, int, int, Outline], None]
"""Topic, queue id, queue offset, code of the tag, outline."""


class MessageStore:
    """``open`` comes first, ``close`` last. One thread; only ``SyncJob.run`` of the log may run in another."""

    def __init__(self, files: Files, config: StoreConfig = StoreConfig()) -> None:
        self._files, self._config = files, config
        self.log = CommitLog(files, file_bytes=config.log_file_bytes, body_bytes_max=config.body_bytes_max)
        self._index = KeyIndex(files, slots=config.index_slots, entries=config.index_entries) if config.index else None
        self._queues: dict[Queue, ConsumeQueue] = {}
        self._next: dict[Queue, int] = {}
        """Queue offsets to give: ahead of the queue by what is not dispatched yet."""
        self._dispatcher = Dispatcher(self.log, 0, self._take)
        self._checkpoint = Checkpoint()
        self._last_time_ms = 0
        self.arrived: list[Arrived] = []
        """Called for each message that consumers see from then on."""

    # --- opening ---------------------------------------------------------------------------------------------

    def open(self) -> Recovered:
        """Lock the directory, recover, and build again what the queues lack. Nothing is confirmed yet but what is here.

        Raises:
            WrongStore: another process holds it, or its files have other sizes.
        """
        self._files.lock()
        killed = self._files.exists(ABORT)
        _mark(self._files, ABORT)
        self._checkpoint = read = Checkpoint.decode(read_whole(self._files, CHECKPOINT))
        recovered = self.log.open(read.queues_offset - (self._config.log_file_bytes if killed else 0))
        self._open_queues()
        if self._index is not None:
            self._index.open(self.log.max_offset)
        told = min(read.queues_offset, self.log.max_offset) if self._queues else 0
        if not self._resume(self._known(max(self.log.min_offset, told))):
            self._resume(self.log.min_offset)
        return recovered

    def _resume(self, begin: int) -> bool:
        """Go on telling the queues from ``begin``. False: they lack messages in front of it."""
        self._dispatcher = Dispatcher(self.log, begin, self._take)
        self._next = {key: queue.max_offset for key, queue in self._queues.items()}
        for found in self.log.scan(begin, check_crc=False):
            self._last_time_ms = found[5]
            if in_queue(found[4]):
                key = found[6], found[2]
                if found[3] > self._next.get(key, 0) and begin > self.log.min_offset:
                    return False
                self._next[key] = max(self._next.get(key, 0), found[3] + 1)
        return True

    def _open_queues(self) -> None:
        for topic in self._files.list(QUEUES):
            for number in self._files.list(f"{QUEUES}/{topic}"):
                if number.isdecimal():
                    queue = self._queue((topic.encode(), int(number)))
                    queue.open(self.log.max_offset)
                    queue.correct_min(self.log.min_offset)

    def _known(self, begin: int) -> int:
        """From where the queues have to be told again: ``begin``, if a message starts there, else all of the log."""
        try:
            self.log.record(self.log.next_offset(begin))
        except (OffsetGone, DamagedRecord):
            return begin if begin == self.log.max_offset else self.log.min_offset
        return begin

    def close(self) -> None:
        """Flush everything and say that this store was closed in order. Raises ``StoreFailed``."""
        self.flush()
        for queue in self._queues.values():
            queue.close()
        if self._index is not None:
            self._index.close()
        self.log.close()
        self._files.remove(ABORT)
        self._files.unlock()

    # --- writing ---------------------------------------------------------------------------------------------

    def put(self, message: Message, store_time_ms: int) -> Put:
        """Append one message. Not written before ``write``, not durable before ``flush``, not seen before ``dispatch``.

        Raises:
            MessageIllegal: nothing was kept, change the message.
            StoreFull, StoreFailed: as of the log.
        """
        key = message.topic, message.queue_id
        queue_offset = self._next.get(key)
        if queue_offset is None:
            _check_name(message)
            queue_offset = 0
        queued = in_queue(message.sys_flag)
        offset, size = self.log.append(message, queue_offset if queued else 0, store_time_ms)
        if queued:
            self._next[key] = queue_offset + 1
        self._last_time_ms = store_time_ms
        return Put(offset, size, queue_offset if queued else 0)

    def put_all(self, messages: Sequence[Message], store_time_ms: int) -> list[Put]:
        """Append messages one behind the other; raises as ``put``."""
        return [self.put(message, store_time_ms) for message in messages]

    def append_raw(self, data: bytes | memoryview, offset: int) -> None:
        """Bytes of another store's log. Raises as ``CommitLog.append_raw``."""
        self.log.append_raw(bytes(data), offset)

    def write(self) -> None:
        """Hand what was put to the system."""
        self.log.write()

    @property
    def dispatched_offset(self) -> int:
        """Consumers see what is below."""
        return self._dispatcher.offset

    def dispatch(self, confirm_offset: int | None = None, most: int = 1 << 62) -> int:
        """Let consumers see what is confirmed (all, by default); returns how many messages they see more, ``most`` at
        most. Raises ``OSError`` when queues cannot be written; it may be tried again."""
        return self._dispatcher.dispatch(self.log.max_offset if confirm_offset is None else confirm_offset, most)

    def _take(self, found: Outline, code: int) -> None:
        if in_queue(found[4]):
            self._queue((found[6], found[2])).append(found[3], found[0], found[1], code)
            for arrived in self.arrived:
                arrived(found[6], found[2], found[3], code, found)
        if self._index is not None:
            self._index.add(found)

    def flush(self) -> None:
        """Sync log, queues, index, checkpoint, in this order. Raises ``StoreFailed``, or ``OSError`` of the others."""
        self.log.flush()
        for queue in self._queues.values():
            queue.flush()
        if self._index is not None:
            self._index.flush()
        self._checkpoint = attrs.evolve(
            self._checkpoint, log_time_ms=self._last_time_ms, queues_time_ms=self._last_time_ms,
            index_time_ms=self._last_time_ms,
            queues_offset=self._dispatcher.offset)
        write_whole(self._files, CHECKPOINT, self._checkpoint.encode())

    def truncate(self, offset: int, *, everything: bool = False) -> None:
        """Forget messages from ``offset`` on: another master never had them. Raises ``OffsetGone``."""
        gone = [found for found in self.log.scan(offset, check_crc=False) if in_queue(found[4])]
        self.log.truncate(offset)
        for key in {(found[6], found[2]) for found in gone}:
            self._next[key] = min(found[3] for found in gone if (found[6], found[2]) == key)
            if key in self._queues:
                self._queues[key].truncate(offset)
        if self._index is not None:
            self._index.truncate(offset)
        self._dispatcher.offset = min(self._dispatcher.offset, offset)

    # --- reading ---------------------------------------------------------------------------------------------

    def queues(self) -> list[Queue]:
        """(topic, queue id) of every queue that has ever had a visible message, sorted."""
        return sorted(self._queues)

    def queue(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """To look at, if it has ever had a visible message."""
        return self._queues.get((topic, queue_id))

    def min_offset(self, topic: bytes, queue_id: int) -> int:
        queue = self._queues.get((topic, queue_id))
        return queue.min_offset if queue else 0

    def max_offset(self, topic: bytes, queue_id: int) -> int:
        """Behind the last visible message."""
        queue = self._queues.get((topic, queue_id))
        return queue.max_offset if queue else 0

    def get(self, topic: bytes, queue_id: int, queue_offset: int, *, count: int = 32,
            bytes_max: int = 256 << 10) -> list[bytes]:
        """Records from ``queue_offset`` on, as they are in the log: at least one if there is one. [] at the end.

        Raises:
            OffsetGone: that offset is not between the least and the greatest.
            DamagedRecord: what the queue points at is no message.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if queue_offset:
                raise OffsetGone(queue_offset, 0, 0)
            return []
        records: list[bytes] = []
        left = bytes_max
        for offset, size, _ in ENTRY.iter_unpack(queue.read(queue_offset, count)):
            if size == 0x7FFFFFFF:
                continue
            if records and size > left:
                break
            records.append(self.log.read(offset, size))
            left -= size
        return records

    def get_by_id(self, offset: int) -> Record:
        """The message at ``offset`` of the log. Raises ``OffsetGone``, ``DamagedRecord``."""
        return self.log.record(offset)

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
            except (OffsetGone, DamagedRecord):  # the index may know what is gone
                continue
            properties = codec.decode_properties(record.message.properties)
            if record.message.topic == topic and begin_ms <= record.store_time_ms <= end_ms and (
                    key == properties.get("UNIQ_KEY") or key in properties.get("KEYS", "").split(" ")):
                found.append(record)
        return found

    def offset_by_time(self, topic: bytes, queue_id: int, time_ms: int) -> int:
        """The first message of the queue stored at ``time_ms`` or later; behind the last if there is none."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            offset, size, _ = queue.entry(middle)
            if size == 0x7FFFFFFF or self.log.record(offset, size).store_time_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def delete_before(self, offset: int) -> None:
        """Delete whole files of the log below ``offset``, and what the queues say of them."""
        least = self.log.delete_before(min(offset, self._dispatcher.offset))
        for queue in self._queues.values():
            queue.correct_min(least)
        if self._index is not None:
            self._index.delete_before(least)

    def _queue(self, key: Queue) -> ConsumeQueue:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = ConsumeQueue(
                self._files, f"{QUEUES}/{key[0].decode()}/{key[1]}", file_bytes=self._config.queue_file_bytes)
        return queue


def _mark(files: Files, path: str) -> None:
    """An empty file whose being there says all."""
    files.open(path, create=True).close()
    files.sync_dir("")


def _check_name(message: Message) -> None:
    """A topic is a folder's name. Raises ``MessageIllegal``."""
    topic = message.topic
    if topic in (b".", b"..") or not _UNSAFE.isdisjoint(topic) or message.queue_id < 0:
        raise MessageIllegal(f"topic {topic[:60]!r} queue {message.queue_id} cannot be the name of a folder")
    try:
        topic.decode()
    except UnicodeDecodeError:
        raise MessageIllegal(f"topic {topic[:60]!r} is not UTF-8") from None
