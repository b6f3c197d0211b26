"""The store of one broker: a directory as Java's, messages in by topic and queue, out by queue offset.

It joins its parts, each of which is for those who need it: ``log``, ``writer``, ``visible``, ``messages``, ``flusher``,
``cleaner``, ``trust``. Its own is what concerns all of them: it opens after any crash with every flushed message at its
queue offset, is cut, and closed. Times are given to it; it knows no role, no client and no socket.
Source: ``DefaultMessageStore`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from broker.store import tables
from broker.store.cleaning import Cleaner
from broker.store.commitlog import FILE_BYTES, CommitLog
from broker.store.consumequeue import FILE_BYTES as QUEUE_FILE_BYTES
from broker.store.dispatch import DELAYS_MS, TagCodes
from broker.store.errors import OffsetGone
from broker.store.files import Files, keep_spare
from broker.store.flush import Flusher
from broker.store.indexfile import ENTRIES, SLOTS, KeyIndex
from broker.store.log import Log, Recovered
from broker.store.mending import Mender
from broker.store.messages import StoredMessages
from broker.store.queues import Queues
from broker.store.trust import LogTrust, TrustFile
from broker.store.visible import Visible
from broker.store.writing import Writer
from remoting.errors import DamagedRecord

ABORT: Final = "abort"
"""File that is there while a store is open: found at the start, it means that the last process was killed."""


@attrs.frozen
class StoreConfig:
    """Six settings of RocketMQ, and one of ours.

    ``mappedFileSizeCommitLog``, ``mappedFileSizeConsumeQueue``, ``messageIndexEnable``, ``maxHashSlotNum``,
    ``maxIndexNum``, ``messageDelayLevel``.
    """

    log_file_bytes: int = FILE_BYTES
    queue_file_bytes: int = QUEUE_FILE_BYTES
    index: bool = True
    index_slots: int = SLOTS
    index_entries: int = ENTRIES
    delays_ms: tuple[int, ...] = DELAYS_MS
    """Delay of each level in milliseconds, level 1 first."""
    log_apart: bool = False
    """The log has disks of its own."""


class MessageStore:
    """The store of one broker: ``open`` it first, ``close`` it last. Only what says so may run in another thread."""

    def __init__(self, files: Files, config: StoreConfig = StoreConfig(), *, log: Log | None = None,
                 boot: str | None = None, synced: bool = False) -> None:
        """``log``: RocketMQ's, among these files, if none is given. ``boot`` names this boot of the machine, "" if that
        is not known; None: nobody asks whether the machine went down. ``synced``: nothing is acknowledged before it is
        synced."""
        self._files, self._config = files, config
        self.log: Log = CommitLog(
            files, file_bytes=config.log_file_bytes, apart=config.log_apart) if log is None else log
        self._queues = queues = Queues(files, TagCodes(config.delays_ms), file_bytes=config.queue_file_bytes)
        self._index = index = KeyIndex(
            files, slots=config.index_slots, entries=config.index_entries) if config.index else None
        self.visible = Visible(self.log, queues, index)
        self.writer = Writer(self.log, queues, self.visible)
        self.messages = StoredMessages(self.log, queues, index)
        self.flusher = Flusher(files, self.log, queues, index, self.visible, self.writer)
        self.mender = Mender(self.log, queues, self.visible)
        self.cleaner = Cleaner(files, self.log, queues, index, self.visible)
        self.trust = LogTrust(None if boot is None else TrustFile(files, boot, synced=synced), queues.say)
        self.arrived = queues.arrived
        """Hears topic, queue id, queue offset, code of the tag and outline of each message that consumers see from then
        on."""
        self.noted = queues.noted
        """Hears of each committed or ``NOTED`` message before it is in its queue; perhaps again, if the disk is full.
        """
        self.listen = queues.listen
        """Has one queue's messages heard of, as ``noted`` ones."""
        self.on_new_queue = queues.on_new
        """Hears the topic of each queue that begins."""
        self.on_trouble = queues.on_trouble
        """Hears what an operator should know of files that were damaged."""

    # --- opening and closing ---------------------------------------------------------------------------------

    def open(self) -> Recovered:
        """Lock the directory, recover, and build again what the queues lack. Nothing is confirmed yet but what is here.

        Raises:
            WrongStore: another process holds it, its files have other sizes, or what was flushed is damaged.
        """
        self._files.lock()
        keep_spare(self._files)
        killed = self._files.exists(ABORT)
        if killed and self._files.list(tables.FOLDER):  # it may have renamed a table: what is read counts as kept
            self._files.sync_dir(tables.FOLDER)
        _mark(self._files, ABORT)
        read = self.flusher.open()
        recovered = self.log.open(
            read.queues_offset - (self._config.log_file_bytes if killed else 0), read.queues_offset)
        self.trust.open(self.log, killed=killed, flushed=read.queues_offset)
        log_min, log_end = self.log.min_offset, self.log.max_offset
        if log_end < read.queues_offset:
            self._say_lost(log_end, read.queues_offset)
        self._queues.open(log_min, log_end, read.queues_offset)
        if self._index is not None:
            self._index.open(log_end, read.queues_offset, killed=killed)
        told = min(read.queues_offset, log_end) if len(self._queues) and not self._queues.damaged else 0
        self.writer.last_time_ms = read.log_time_ms
        if not self._resume(self._known(max(log_min, told))):
            self._resume(log_min)
        assert log_min <= self.visible.offset <= log_end, "consumers see a part of the log"
        assert self.log.flushed_offset == log_end, "what a start finds is on disk"
        return recovered

    def _say_lost(self, log_end: int, flushed: int) -> None:
        """Tell the operator what was lost: a replica copies it anew, and a broker that is alone cannot."""
        self._queues.say(
            f"the log ends at {log_end}, and the checkpoint says that {flushed} was flushed: {flushed - log_end} "
            "bytes of messages were lost by the disk or cut off by hand. A slave copies them anew; a broker that "
            "is alone has lost them")

    def _resume(self, begin: int) -> bool:
        """Go on telling queues and index from ``begin``. False: the queues lack messages in front of it."""
        self.visible.start_at(begin, self.writer.last_time_ms)
        return self.writer.number_from(begin, gapless=begin > self.log.min_offset)

    def _known(self, begin: int) -> int:
        """Return from where queues must be told again: from ``begin``, if a message starts there, else all of the log.
        """
        try:
            self.log.record(self.log.next_offset(begin))
        except (OffsetGone, DamagedRecord):
            return begin if begin == self.log.max_offset else self.log.min_offset
        return begin

    def flush(self) -> None:
        """Sync log, queues, index, checkpoint, in this order. Raises ``StoreFailed``, or ``OSError`` of the others."""
        self.log.flush()
        flush = self.flusher.begin()
        try:
            for _ in flush.steps():
                pass
        finally:
            self.flusher.end(flush)

    def close(self) -> None:
        """Flush everything and say that this store was closed in order. Raises ``StoreFailed``, ``OSError``."""
        self.flush()
        assert self.log.flushed_offset == self.log.max_offset, "all that was taken is on disk"
        self._files.remove(ABORT)
        self.abandon()

    def abandon(self) -> None:
        """Release the files and the directory as they are: the next process recovers."""
        self._queues.close()
        if self._index is not None:
            self._index.close()
        self.log.close()
        self._files.unlock()

    # --- changes of the whole --------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Make ready for puts after bytes of another log: the next message stands after a whole one, also in its queue.

        A message of which only a part has come is cut off, so as before ``truncate`` no flush may be under way.
        Raises ``StoreFailed``, ``OSError``."""
        try:
            self.writer.number_from(self.visible.offset)
        except DamagedRecord as damage:
            self.truncate(damage.offset)
            self.writer.number_from(self.visible.offset)
        assert self.writer.is_numbered, "the next message has a place in its queue"

    def truncate(self, offset: int, *, everything: bool = False) -> None:
        """Forget messages from ``offset`` on: another master never had them.

        With ``everything`` the store is empty, and takes bytes of any offset. A flush under way is cancelled, and must
        have stopped. Raises ``OffsetGone``, ``OSError``."""
        self.flusher.cancel()
        self.mender.restart()
        kept = 0 if everything else offset
        self.flusher.lower(kept)
        if everything:
            self._queues.delete()
            if self._index is not None:
                self._index.clear()
            self.log.clear()
            self.visible.start_at(0)
        else:
            self.log.truncate(offset)
            self._queues.truncate(offset)
            if self._index is not None:
                self._index.truncate(offset)
            self.visible.truncate(offset)
        self.trust.truncate(kept)
        assert self.visible.offset <= self.log.max_offset == kept, "consumers see nothing of what was cut"
        self.writer.forget_numbers()

    def delete_topics(self, topics: Iterable[bytes]) -> int:
        """Destroy the queues of these topics; returns how many. Their messages stay in the log until it is cut, and
        are told again if the process dies before the next flush."""
        self.mender.restart()
        count = self._queues.delete(topics)
        self.writer.forget_numbers()
        assert not self.writer.is_numbered, "a queue that comes again begins anew"
        return count


def _mark(files: Files, path: str) -> None:
    """Make an empty file: that it is there says all."""
    files.open(path, create=True).close()
    files.sync_dir("")
