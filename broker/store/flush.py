"""One flush of all that is built from the log: queues, index, and the checkpoint that says how far they are complete.

It is begun where the store lives, carried out in steps, perhaps in another thread, and finished where it was begun.
The checkpoint comes last, so it never promises what is not on disk. It knows how far each is, and no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from broker.store.checkpoint import PATH, Checkpoint
from broker.store.files import File, Files, read_whole, write_whole
from broker.store.indexfile import IndexFlush, KeyIndex
from broker.store.log import Log
from broker.store.queues import Queues
from broker.store.visible import Visible
from broker.store.writing import Writer

INDEX_UNFLUSHED_BYTES_MAX: Final = 4 << 20


class Flush:
    """One flush. ``steps`` may run in another thread, and nothing else may."""

    def __init__(self, files: Files, to_sync: Sequence[File], folders: Sequence[str], index: IndexFlush | None,
                 checkpoint: Checkpoint | None) -> None:
        self._files, self.to_sync, self.folders, self.index = files, to_sync, folders, index
        self.checkpoint = checkpoint
        self.queues_synced = self.finished = False
        self.cancelled = False
        """Set by the store's thread: stop before the next step. A part of a flush does no harm."""

    def steps(self) -> Iterator[None]:
        """Sync, and write the checkpoint, a step at a time. Raises ``OSError``."""
        for file in self.to_sync:
            if self.cancelled:
                return
            file.sync()
            yield
        for folder in self.folders:
            if self.cancelled:
                return
            self._files.sync_dir(folder)
            yield
        self.queues_synced = True
        if self.index is not None:
            for _ in self.index.steps():
                if self.cancelled:
                    return
                yield
        if self.checkpoint is not None and not self.cancelled:
            assert self.queues_synced, "a checkpoint promises what is on disk"
            write_whole(self._files, PATH, self.checkpoint.encode())
        self.finished = True


class Flusher:
    """Flushes, one at a time: ``begin``, its ``steps``, ``end``. ``open`` comes first."""

    def __init__(self, files: Files, log: Log, queues: Queues, index: KeyIndex | None, visible: Visible,
                 writer: Writer) -> None:
        self._files, self._log, self._queues, self._index = files, log, queues, index
        self._visible, self._writer = visible, writer
        self._checkpoint = Checkpoint()
        self._flush: Flush | None = None
        self._queues_in_doubt = False

    def open(self) -> Checkpoint:
        """Read and return the checkpoint that the last process left."""
        self._checkpoint = Checkpoint.decode(read_whole(self._files, PATH))
        return self._checkpoint

    @property
    def queues_offset(self) -> int:
        """Log and queues are on disk up to here, as the checkpoint on disk says."""
        return self._checkpoint.queues_offset

    @property
    def master_flushed_offset(self) -> int:
        """End of the master's log when that master started, as it told its slaves, or as an operator set it. The
        checkpoint keeps it since Java looks for it there; nothing in this broker depends on it."""
        return self._checkpoint.master_flushed_offset

    @master_flushed_offset.setter
    def master_flushed_offset(self, offset: int) -> None:
        self._checkpoint = attrs.evolve(self._checkpoint, master_flushed_offset=offset)

    @property
    def is_due(self) -> bool:
        """The index holds much in memory."""
        return self._index is not None and self._index.unflushed_bytes >= INDEX_UNFLUSHED_BYTES_MAX

    @property
    def is_level(self) -> bool:
        """Nothing of the queues waits for a flush, or for the end of one."""
        return self._flush is None and not self._queues.is_unsynced

    def begin(self) -> Flush:
        """Return a flush of queues, index and checkpoint as they are now. Run its ``steps``, then ``end`` it, before
        the next one begins. Raises ``OSError`` when the disk is full."""
        assert self._flush is None, "one flush at a time"
        if self._index is not None:
            self._index.enter()  # first: when it raises, no queue forgets what is to be synced
        files, folders = self._queues.to_sync()
        visible = self._visible
        assert visible.offset <= self._log.max_offset, "consumers see nothing that is not in the log"
        checkpoint = attrs.evolve(
            self._checkpoint, log_time_ms=self._writer.last_time_ms, queues_time_ms=visible.time_ms,
            index_time_ms=visible.indexed_ms, confirm_offset=visible.offset,
            queues_offset=min(visible.offset, visible.indexed_offset, self._log.flushed_offset))
        self._flush = Flush(self._files, files, folders, self._index.begin_flush() if self._index is not None else None,
                            None if self._queues_in_doubt else checkpoint)
        return self._flush

    def end(self, flush: Flush) -> None:
        """End a flush that ran to its end, raised, or was cancelled.

        After a failed sync the system may have dropped entries of queues, so no checkpoint counts on them any more: the
        next process builds them again."""
        assert flush is self._flush, "one flush at a time"
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

    def cancel(self) -> None:
        """Stop the flush under way, if any, before its next step."""
        if self._flush is not None:
            self._flush.cancelled = True

    def lower(self, offset: int) -> None:
        """Lower the checkpoint to ``offset``, where the log is about to be cut. Raises ``OSError``.

        Entries of later messages must not be taken for flushed ones. A cancelled flush may have gone further."""
        assert self._flush is None or self._flush.cancelled, "no flush counts on what is cut"
        if offset < self._checkpoint.queues_offset or self._flush is not None:
            self._checkpoint = attrs.evolve(
                self._checkpoint, queues_offset=min(offset, self._checkpoint.queues_offset))
            write_whole(self._files, PATH, self._checkpoint.encode())
