"""The store of one broker: a directory as Java's, messages in by topic and queue, out by queue offset.

It joins log, queues, index and checkpoint, gives queue offsets, and opens after any crash with every flushed message at
its queue offset. Times are given to it; it knows no role, no client and no socket.
It is handed its log: ``broker.store.log`` says what one must do. Source: ``DefaultMessageStore`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import attrs

from broker.store.batch import Batch
from broker.store.checkpoint import PATH as CHECKPOINT
from broker.store.checkpoint import Checkpoint
from broker.store.commitlog import FILE_BYTES, CommitLog
from broker.store.consumequeue import ENTRY, NOWHERE_SIZE, ConsumeQueue
from broker.store.consumequeue import FILE_BYTES as QUEUE_FILE_BYTES
from broker.store.dispatch import DELAYS_MS, Dispatcher, TagCodes, in_queue
from broker.store.errors import OffsetGone
from broker.store.files import Files, Space, read_whole, write_whole
from broker.store.flush import Flush
from broker.store.indexfile import ENTRIES, SLOTS, KeyIndex
from broker.store.log import Log, Raw, Recovered
from broker.store.queues import Queue, Queues
from broker.store.retention import RetentionConfig, Verdict, judge
from broker.store.trust import ALL, TrustFile, doubted_from
from remoting import record as codec
from remoting.errors import DamagedRecord, MessageIllegal
from remoting.record import Message, Record

ABORT: Final = "abort"
"""There while a store is open: found at the start, it means that the last process was killed."""
INDEX_UNFLUSHED_BYTES_MAX: Final = 4 << 20
_COPIED_BYTES: Final = 4 << 20
"""Some times what one read brings: queues are level with a copy in each turn."""


@attrs.frozen
class StoreConfig:
    """``mappedFileSizeCommitLog``, ``mappedFileSizeConsumeQueue``, ``messageIndexEnable``, ``maxHashSlotNum``,
    ``maxIndexNum`` and ``messageDelayLevel`` of RocketMQ."""

    log_file_bytes: int = FILE_BYTES
    queue_file_bytes: int = QUEUE_FILE_BYTES
    index: bool = True
    index_slots: int = SLOTS
    index_entries: int = ENTRIES
    delays_ms: tuple[int, ...] = DELAYS_MS
    """Of each level, level 1 first."""


class Put(NamedTuple):
    """Where a message was put. It is durable once ``flushed_offset`` of the log is at ``offset + size`` or beyond."""

    offset: int
    size: int
    queue_offset: int


class MessageStore:
    """``open`` comes first, ``close`` last. One thread; only what says so may run in another."""

    def __init__(self, files: Files, config: StoreConfig = StoreConfig(), *, log: Log | None = None,
                 boot: str | None = None, synced: bool = False) -> None:
        """``log``: RocketMQ's, among these files, if none is given. ``boot`` names this boot of the machine, "" if that
        is not known; None: whether it went down is nobody's concern. ``synced``: nothing is acknowledged before it is
        synced."""
        self._files, self._config = files, config
        self._trust = None if boot is None else TrustFile(files, boot, synced=synced)
        self.in_doubt = False
        """It may lack what this replica acknowledged before its machine went down, until ``trust``."""
        self.trusted_end: int | None = None
        """What is behind was not synced then, and is not compared with a master's since; None: there is nothing."""
        self.log: Log = CommitLog(files, file_bytes=config.log_file_bytes) if log is None else log
        self._queues = Queues(files, TagCodes(config.delays_ms), file_bytes=config.queue_file_bytes)
        self._index = KeyIndex(files, slots=config.index_slots, entries=config.index_entries) if config.index else None
        self._next: dict[Queue, int] | None = None
        """Queue offsets to give: ahead of the queues by what is not dispatched yet. None: to be worked out."""
        self._start_at(0)
        self._checkpoint = Checkpoint()
        self._flush: Flush | None = None
        self._queues_in_doubt = False
        self._last_time_ms = 0
        self.arrived = self._queues.arrived
        """Called with topic, queue id, queue offset, code of the tag and outline of each message that consumers see
        from then on."""
        self.on_new_queue = self._queues.on_new
        """Called with the topic of each queue that gets its first message."""
        self.on_trouble = self._queues.on_trouble
        """Called with what an operator should know of files that were damaged."""
        self.messages_put = self.bytes_put = 0
        """By this process."""

    # --- opening ---------------------------------------------------------------------------------------------

    def open(self) -> Recovered:
        """Lock the directory, recover, and build again what the queues lack. Nothing is confirmed yet but what is here.

        Raises:
            WrongStore: another process holds it, its files have other sizes, or what was flushed is damaged.
        """
        self._files.lock()
        killed = self._files.exists(ABORT)
        _mark(self._files, ABORT)
        self._checkpoint = read = Checkpoint.decode(read_whole(self._files, CHECKPOINT))
        recovered = self.log.open(
            read.queues_offset - (self._config.log_file_bytes if killed else 0), read.queues_offset)
        if self._trust is not None:
            self._doubt(self._trust, killed=killed, flushed=read.queues_offset)
        log_min, log_end = self.log.min_offset, self.log.max_offset
        if log_end < read.queues_offset:
            self._say_lost(log_end, read.queues_offset)
        self._queues.open(log_min, log_end, read.queues_offset)
        if self._index is not None:
            self._index.open(log_end, read.queues_offset, killed=killed)
        told = min(read.queues_offset, log_end) if len(self._queues) and not self._queues.damaged else 0
        self._last_time_ms = read.log_time_ms
        if not self._resume(self._known(max(log_min, told))):
            self._resume(log_min)
        return recovered

    def _doubt(self, trust: TrustFile, *, killed: bool, flushed: int) -> None:
        """All that is here is on disk by now, so this start's own mark says the truth of it."""
        found, end = trust.read(), self.log.max_offset
        upto = doubted_from(found, trust.boot, killed=killed and (found is not None or end > 0), flushed=flushed)
        if upto != ALL:
            try:
                upto = self.log.boundary(upto)
            except DamagedRecord as damage:
                upto = damage.offset
            self.in_doubt, self.trusted_end = True, upto if upto < end else None
        self._note(trust, upto)

    def _note(self, trust: TrustFile, upto: int) -> None:
        """A mark that stays as it was makes the next start doubt more, not less: a full disk stops nobody."""
        try:
            trust.write(upto)
        except OSError as error:
            for tell in self.on_trouble:
                tell(f"the next start will doubt the log, as its mark cannot be written: {error}")

    def trust(self) -> None:
        """The log is level with a master's, or the master's own."""
        if self._trust is not None and self.in_doubt:
            self._note(self._trust, ALL)
        self.in_doubt, self.trusted_end = False, None

    def distrust(self) -> None:
        """The disk failed: the next start is in doubt, whatever the machine does. Raises ``OSError``."""
        if self._trust is not None:
            self._trust.distrust()

    def _say_lost(self, log_end: int, flushed: int) -> None:
        """A replica has another to copy from; whoever is alone must hear of it."""
        for tell in self.on_trouble:
            tell(f"the log ends at {log_end}, and the checkpoint says that {flushed} was flushed: {flushed - log_end} "
                 "bytes of messages were lost by the disk or cut off by hand. A slave copies them anew; a broker that "
                 "is alone has lost them")

    def _start_at(self, offset: int) -> None:
        self._dispatcher = Dispatcher(self.log, offset, self._queues.take)
        self._indexer = None
        if self._index is not None:
            self._indexer = Dispatcher(self.log, offset, self._index.take, cached=False)

    def _resume(self, begin: int) -> bool:
        """Go on telling queues and index from ``begin``. False: the queues lack messages in front of it."""
        self._start_at(begin)
        self._dispatcher.time_ms = self._last_time_ms
        return self._number_from(begin, begin > self.log.min_offset)

    def _number_from(self, begin: int, gapless: bool) -> bool:
        """Work out the queue offsets to give. False: a queue lacks messages in front of ``begin``."""
        offsets = self._next = self._queues.max_offsets()
        for _, _, queue_id, queue_offset, sys_flag, time_ms, topic, _ in self.log.scan(begin, check_crc=False):
            self._last_time_ms = time_ms
            if in_queue(sys_flag):
                key = topic, queue_id
                due = offsets.get(key, 0)
                if queue_offset > due and gapless:
                    return False
                if queue_offset != due and not self._queues.has_place(topic, queue_id, queue_offset, due):
                    continue
                offsets[key] = queue_offset + 1  # less than before, where the queue was given up and begun anew
        return True

    def _known(self, begin: int) -> int:
        """From where the queues have to be told again: ``begin``, if a message starts there, else all of the log."""
        try:
            self.log.record(self.log.next_offset(begin))
        except (OffsetGone, DamagedRecord):
            return begin if begin == self.log.max_offset else self.log.min_offset
        return begin

    def close(self) -> None:
        """Flush everything and say that this store was closed in order. Raises ``StoreFailed``, ``OSError``."""
        self.flush()
        self._files.remove(ABORT)
        self.abandon()

    def abandon(self) -> None:
        """Release the files and the directory as they are: the next process recovers."""
        self._queues.close()
        if self._index is not None:
            self._index.close()
        self.log.close()
        self._files.unlock()

    # --- writing ---------------------------------------------------------------------------------------------

    def put(self, message: Message, store_time_ms: int) -> Put:
        """Append one message. Not written before ``write``, not durable before ``flush``, not seen before ``dispatch``.

        Raises:
            MessageIllegal: nothing was kept, change the message.
            StoreFull, StoreFailed: as of the log.
        """
        offsets = self._next
        if offsets is None:
            offsets = self._take_over()
        key = message.topic, message.queue_id
        queue_offset = offsets.get(key)
        if queue_offset is None:
            _check_name(message)
            queue_offset = 0
        if message.sys_flag & 4:  # not ``in_queue``
            offset, size = self.log.append(message, 0, store_time_ms)
            queue_offset = 0
        else:
            offset, size = self.log.append(message, queue_offset, store_time_ms)
            offsets[key] = queue_offset + 1
        self._last_time_ms = store_time_ms
        self.messages_put += 1
        self.bytes_put += size
        return Put(offset, size, queue_offset)

    def put_all(self, messages: Sequence[Message], store_time_ms: int) -> list[Put]:
        """Append messages one behind the other, in one file of the log; all or, when it raises as ``put``, none."""
        if len(messages) == 1:
            return [self.put(messages[0], store_time_ms)]
        offsets = self._next
        if offsets is None:
            offsets = self._take_over()
        if isinstance(messages, Batch) and in_queue(messages.common.sys_flag):
            return self._put_batch(messages, offsets, store_time_ms)
        size = 0
        for message in messages:
            size += codec.size_of(message)
            _check_name(message)
        self.log.make_room(size)
        return [self.put(message, store_time_ms) for message in messages]

    def _put_batch(self, batch: Batch, offsets: dict[Queue, int], store_time_ms: int) -> list[Put]:
        _check_name(batch.common)
        key = batch.common.topic, batch.common.queue_id
        queue_offset = offsets.get(key, 0)
        offset, sizes = self.log.append_batch(batch, queue_offset, store_time_ms)
        offsets[key] = queue_offset + len(sizes)
        self._last_time_ms = store_time_ms
        self.messages_put += len(sizes)
        self.bytes_put += self.log.max_offset - offset
        places = zip(accumulate(sizes, initial=offset), sizes, range(queue_offset, offsets[key]), strict=False)
        return [Put(*place) for place in places]

    def append_raw(self, data: Raw, offset: int, *, cached: bool = True) -> None:
        """Bytes of another store's log; ``cached`` False: of old messages, and what the queues need of them is kept
        until they are told. Raises as ``Log.append_raw``."""
        self._next = None
        if not self.log.max_offset:
            self._start_at(offset)
        self.log.append_raw(data, offset, None if cached else self._dispatcher.offset)

    @property
    def must_take_over(self) -> bool:
        """The next ``put`` looks at the end of the log first, and cuts off a message of which only a part has come. As
        before ``truncate``, no flush may be under way then."""
        return self._next is None

    def _take_over(self) -> dict[Queue, int]:
        """What is put next stands behind a whole message, and behind it in its queue."""
        try:
            self._number_from(self._dispatcher.offset, False)
        except DamagedRecord as damage:
            self.truncate(damage.offset)
            self._number_from(self._dispatcher.offset, False)
        assert self._next is not None
        return self._next

    def write(self) -> None:
        """Hand what was put to the system."""
        self.log.write()

    def truncate(self, offset: int, *, everything: bool = False) -> None:
        """Forget messages from ``offset`` on: another master never had them. With ``everything`` the store is empty,
        and takes ``append_raw`` of any offset. A flush under way is cancelled, and must have stopped.
        Raises ``OffsetGone``, ``OSError``."""
        self.cancel_flush()
        kept = 0 if everything else offset
        if kept < self._checkpoint.queues_offset or self._flush is not None:
            # Or entries of later messages would be taken for flushed ones. One under way may have gone further.
            self._checkpoint = attrs.evolve(
                self._checkpoint, queues_offset=min(kept, self._checkpoint.queues_offset))
            write_whole(self._files, CHECKPOINT, self._checkpoint.encode())
        if self.trusted_end is not None and kept <= self.trusted_end:
            self.trusted_end = None  # what comes to stand there is new
        if everything:
            self._queues.delete()
            if self._index is not None:
                self._index.clear()
            self.log.clear()
            self._start_at(0)
        else:
            self.log.truncate(offset)
            self._queues.truncate(offset)
            if self._index is not None:
                self._index.truncate(offset)
            for told in (self._dispatcher, self._indexer):
                if told is not None:
                    told.offset = min(told.offset, offset)
        self._next = None

    # --- what consumers see ----------------------------------------------------------------------------------

    @property
    def dispatched_offset(self) -> int:
        """Consumers see what is below."""
        return self._dispatcher.offset

    @property
    def indexed_offset(self) -> int:
        """What is below is found by its keys."""
        return self._dispatcher.offset if self._indexer is None else self._indexer.offset

    def dispatch(self, confirm_offset: int | None = None) -> int:
        """Let consumers see what is confirmed (all, by default), and find it by its keys; returns how many messages
        they see more. Raises ``OSError`` when queues cannot be written; it may be tried again."""
        count = self._dispatcher.dispatch(self.log.max_offset if confirm_offset is None else confirm_offset, 1 << 62)
        if self._indexer is not None:
            self._indexer.dispatch(self._dispatcher.offset, 1 << 62)
        return count

    def dispatch_slice(self, confirm_offset: int, most: int, *, aside: int = 0) -> bool:
        """The same for so many messages. What is little is read once for both. The index may fall behind when it is
        much: it gets what the queues leave of the time. ``aside``: a log is copied, and the queues go with it, while it
        is in memory; the index waits until so many messages wait for it, and goes at one pace with them from then on.

        Returns:
            whether there is more to do.
        """
        count = 0
        if aside:
            told = self._dispatcher
            upto = min(confirm_offset, told.offset + _COPIED_BYTES)
            count = told.dispatch(upto, 1 << 62) or told.dispatch(confirm_offset, 1)  # behind a long blank
            if self._indexer is not None and self._indexer.behind(told.offset) >= aside:
                self._indexer.dispatch(told.offset, count)
            return count > 0 and upto < confirm_offset
        if self._indexer is not None and self._indexer.offset == self._dispatcher.offset:
            both = max(1, most // 2)
            count = self._dispatcher.dispatch(confirm_offset, both, self._indexer)
            if count < both:
                return False
        count += self._dispatcher.dispatch(confirm_offset, most - count)
        if self._indexer is None or count == most:
            return count == most
        wanted = max(1, (most - count) // 8)
        return self._indexer.dispatch(self._dispatcher.offset, wanted) == wanted

    # --- flushing --------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Sync log, queues, index, checkpoint, in this order. Raises ``StoreFailed``, or ``OSError`` of the others."""
        self.log.flush()
        flush = self.begin_flush()
        try:
            for _ in flush.steps():
                pass
        finally:
            self.end_flush(flush)

    @property
    def master_flushed_offset(self) -> int:
        """Where a slave's master says that its log ended when it started, or what an operator set; kept in the
        checkpoint, in which Java looks for it. Nothing here follows from it."""
        return self._checkpoint.master_flushed_offset

    @master_flushed_offset.setter
    def master_flushed_offset(self, offset: int) -> None:
        self._checkpoint = attrs.evolve(self._checkpoint, master_flushed_offset=offset)

    def begin_flush(self) -> Flush:
        """Of queues, index and checkpoint as they are now: run its ``steps``, then ``end_flush`` it, before the next.
        Raises ``OSError`` when the disk is full."""
        assert self._flush is None, "one flush at a time"
        files, folders = self._queues.to_sync()
        queues, indexed = self._dispatcher, self._indexer or self._dispatcher
        checkpoint = attrs.evolve(
            self._checkpoint, log_time_ms=self._last_time_ms, queues_time_ms=queues.time_ms,
            index_time_ms=indexed.time_ms, confirm_offset=queues.offset,
            queues_offset=min(queues.offset, indexed.offset, self.log.flushed_offset))
        self._flush = Flush(self._files, files, folders, self._index.begin_flush() if self._index is not None else None,
                            None if self._queues_in_doubt else checkpoint)
        return self._flush

    def end_flush(self, flush: Flush) -> None:
        """It ran to its end, raised, or was cancelled. After a failed sync the system may have dropped entries of
        queues, so no checkpoint counts on them any more: the next process builds them again."""
        self._flush = None
        if flush.finished and not flush.cancelled and flush.checkpoint is not None:
            self._checkpoint = attrs.evolve(flush.checkpoint, master_flushed_offset=self.master_flushed_offset)
        if flush.cancelled and not flush.queues_synced:
            self._queues.not_synced(flush.to_sync, flush.folders)
        elif not flush.queues_synced:
            self._queues_in_doubt = True
        if flush.index is not None:
            if flush.finished:
                flush.index.done()
            else:
                flush.index.failed()

    def cancel_flush(self) -> None:
        """The one under way, if any, leaves off at its next step."""
        if self._flush is not None:
            self._flush.cancelled = True

    @property
    def flush_is_due(self) -> bool:
        """The index holds much in memory."""
        return self._index is not None and self._index.unflushed_bytes >= INDEX_UNFLUSHED_BYTES_MAX

    # --- reading ---------------------------------------------------------------------------------------------

    def queues(self) -> list[Queue]:
        """(topic, queue id) of every queue that has ever had a visible message, sorted."""
        return self._queues.keys()

    def queue(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """To look at, if it has ever had a visible message."""
        return self._queues.get(topic, queue_id, self.log.min_offset)

    def min_offset(self, topic: bytes, queue_id: int) -> int:
        queue = self.queue(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset(self, topic: bytes, queue_id: int) -> int:
        """Behind the last visible message."""
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
        return low

    def earliest_time_ms(self) -> int:
        """When the first message that is kept was stored; -1 if there is none."""
        first = self.log.run(self.log.min_offset, self.log.max_offset, 1)[0]
        return first[0][5] if first else -1

    # --- what is old or not wanted ---------------------------------------------------------------------------

    def release_before(self, offset: int) -> Iterator[None]:
        """Forget whole files of the log below ``offset``; the iterator deletes them, in another thread if need be. What
        queues and index say of them goes when they are looked at, or by ``clean``."""
        return self.log.release_before(min(offset, self._dispatcher.offset))

    def delete_before(self, offset: int) -> int:
        """``release_before`` and ``clean``, all of it; returns the new least offset."""
        for _ in self.release_before(offset):
            pass
        self.clean(len(self._queues))
        return self.log.min_offset

    def judge(self, config: RetentionConfig, now_ms: int, hour: int) -> tuple[Verdict, int]:
        """What to delete by time and room, and below which offset that is. Raises ``OSError``."""
        space = self.space()
        verdict = judge(config, self.log.newest_ms(), now_ms, hour, space.used_ratio,
                        self.log.file_bytes / max(1, space.total))
        return verdict, self.log.min_offset - self.log.min_offset % self.log.file_bytes + (
            verdict.delete * self.log.file_bytes)

    def clean(self, most: int) -> bool:
        """Let the index and ``most`` queues forget messages that are gone, and delete their old files. True: more of
        them wait."""
        if self._index is not None:
            self._index.delete_before(self.log.min_offset)
        return self._queues.correct_min(self.log.min_offset, most)

    def delete_topics(self, topics: Iterable[bytes]) -> int:
        """Destroy the queues of these topics; returns how many. Their messages stay in the log until it is cut, and
        are told again if the process dies before the next flush."""
        count = self._queues.delete(topics)
        self._next = None
        return count

    def space(self) -> Space:
        """Of the disk. Raises ``OSError``."""
        return self._files.space()


def _mark(files: Files, path: str) -> None:
    """An empty file whose being there says all."""
    files.open(path, create=True).close()
    files.sync_dir("")


def _check_name(message: Message) -> None:
    """A topic is a folder's name. Raises ``MessageIllegal``."""
    topic = message.topic
    if topic and (not codec.is_folder_name(topic) or message.queue_id < 0):
        raise MessageIllegal(f"topic {topic[:60]!r} queue {message.queue_id} cannot be the name of a folder: "
                             "UTF-8 without / \\ : * ? \" < >, and a number")
