"""The interface of a log, as the store needs it: one sequence of bytes whose messages are found, sent and cut by
offset.

A store is handed one. ``broker.store.commitlog`` is RocketMQ's; another one has a file format of its own, and speaks of
messages as ``remoting.record`` does. One writer; only what says so may run in another thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import attrs

from broker.store.batch import Batch
from broker.store.errors import StoreFailed
from broker.store.files import File
from remoting import record as codec
from remoting.errors import DamagedRecord
from remoting.record import Message, Outline, Record

Raw = bytes | memoryview | list[bytes | memoryview]
"""Bytes of another log; of a list, one part stands behind the other."""
Read = tuple[int, bytes]
"""Bytes of the log, behind the offset of the first."""
NOTHING: Final[Read] = (0, b"")
SLAB_BYTES: Final = 64 << 10


class Run(list[Outline]):
    """Outlines of consecutive messages. ``near`` is what was read of the log for them."""

    __slots__ = ("near",)

    def __init__(self, found: Iterable[Outline] = (), near: Read = NOTHING) -> None:
        super().__init__(found)
        self.near = near


@attrs.frozen
class Recovered:
    """The outcome of ``open``: messages reach to ``end``; ``reason`` says what stands there instead of a next
    message."""

    begin: int
    end: int
    reason: str


@attrs.frozen
class SyncJob:
    """Files to sync, perhaps in another thread; ``flushed`` of the log takes it back when ``run`` has returned."""

    files: tuple[File, ...]
    target: int
    cuts: int

    def run(self) -> None:
        """Sync the files; on any thread. Raises ``OSError``."""
        for file in self.files:
            file.sync()


class Log(Protocol):
    """A log: ``open`` it first, ``close`` it last. Methods with a body here are made of the others."""

    def open(self, recover_from: int = 0, sure: int = 0) -> Recovered:
        """Find the end of the last whole message, behind ``recover_from``, and cut off the rest. All below ``sure`` was
        flushed once. What is here is on disk when this returns. Raises ``WrongStore``."""
        ...

    def close(self) -> None:
        """Releases the files; what was appended and not flushed stays in doubt."""
        ...

    # --- positions -------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int:
        """End of the last byte appended."""
        ...

    @property
    def written_offset(self) -> int:
        """End of what the operating system has."""
        ...

    @property
    def flushed_offset(self) -> int:
        """End of what is on disk."""
        ...

    @property
    def file_bytes(self) -> int:
        """No message stands in two files; a blank fills a file up to this size."""
        ...

    # --- writing ---------------------------------------------------------------------------------------------

    def append(self, message: Message, queue_offset: int, store_time_ms: int) -> tuple[int, int]:
        """Append the message. Returns its offset and its size in bytes of the log. Nothing is written before ``write``.

        Raises:
            MessageIllegal: it has no room in any file.
            StoreFull: the disk has no room; nothing was kept.
            StoreFailed: the log is no longer written.
        """
        ...

    def append_batch(self, batch: Batch, queue_offset: int, store_time_ms: int) -> tuple[int, list[int]]:
        """Append a batch, its messages one after the other in one file and in the queue. Returns the offset of the
        first one, and their sizes."""
        ...

    def make_room(self, size: int) -> None:
        """The next messages of ``size`` bytes in all will stand in one file and be refused by nothing. Raises as
        ``append``."""
        ...

    def append_raw(self, data: Raw, offset: int, wanted: int | None = None) -> None:
        """Append bytes of another log as they are there, in one write for each file. An empty log begins at ``offset``.

        What was written before an error stays. With ``wanted`` the system need not keep the bytes in memory: those
        from there on are wanted soon, and are kept here as far as they are not too many.

        Raises:
            OffsetGone: they would leave a gap or overwrite something.
            WrongStore: an empty log cannot begin there.
            StoreFull, StoreFailed: as ``append``.
        """
        ...

    def write(self) -> None:
        """Hand to the system what was appended. Raises ``StoreFailed``; the log is not written from then on."""
        ...

    def sync_job(self) -> SyncJob | None:
        """Return the sync that makes all appended bytes durable; None: they are durable already. Raises
        ``StoreFailed``."""
        ...

    def flushed(self, job: SyncJob) -> None:
        """Take note that ``job.run`` has returned."""
        ...

    def sync_failed(self, error: OSError) -> StoreFailed:
        """``job.run`` has raised: the system may have dropped the data, so a second sync would prove nothing."""
        ...

    def flush(self) -> int:
        """Sync here and now; returns the flushed offset. Raises ``StoreFailed``, and the offset stays where it was."""
        job = self.sync_job()
        if job is not None:
            try:
                job.run()
            except OSError as error:
                raise self.sync_failed(error) from error
            self.flushed(job)
        assert self.flushed_offset == self.written_offset == self.max_offset, "all that was appended is durable"
        return self.flushed_offset

    def clear(self) -> None:
        """Forget everything; what is appended next may stand anywhere."""
        ...

    def truncate(self, offset: int) -> None:
        """Make ``offset`` the end. No later crash brings back what stood behind it.

        Raises:
            OffsetGone: the log does not reach there.
        """
        ...

    def release_before(self, offset: int) -> Iterator[None]:
        """Forget whole files below ``offset``, the last file never; the iterator deletes them, one at a step, in
        another thread if need be. They are back after a crash before that."""
        ...

    def newest_ms(self) -> list[int]:
        """Return one store time for each file but the last, oldest first: that of the first message after the file."""
        ...

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, offset: int, size: int, *, cached: bool = True) -> bytes:
        """Return up to ``size`` bytes from ``offset``, never beyond its file or the end; ``cached`` as for a file.
        Raises ``OffsetGone``."""
        ...

    def slab(self, offset: int) -> Read:
        """Return the ``SLAB_BYTES`` of its file around ``offset``, or less at the end. A log may keep some in memory:
        readers of many queues come by, and look at a few messages in each. Raises ``OffsetGone``."""
        begin = max(self.min_offset, offset - offset % self.file_bytes % SLAB_BYTES)
        return begin, self.read(begin, SLAB_BYTES)

    def read_ahead(self, wanted: bool) -> None:
        """Say whether the system may read ahead in the log's files, present and future. Scattered reads do not want
        that."""
        raise NotImplementedError

    def run(self, offset: int, upto: int, most: int = 1 << 62, *, ask: int = 1 << 20, check_crc: bool = False,
            whole: bool = False, cached: bool = True) -> tuple[Run, int]:
        """Return some outlines of messages from ``offset`` to ``upto``, and where to go on.

        At least one if there is one, and ``most`` at most; none of a message of which only a part has come yet.
        ``ask``: bytes to read at first; ``cached`` as for a file.

        Raises:
            DamagedRecord: what stands at ``offset`` is no message, or one of another place, or with ``whole`` a part.
        """
        ...

    def next_offset(self, offset: int) -> int:
        """``offset``, or the start of the next file if a blank stands there."""
        ...

    def record(self, offset: int, size: int = 4096, near: Read = NOTHING) -> Record:
        """The message at ``offset``; ``size`` is a guess. ``near``, which was read since the log was cut last, may hold
        it. Raises ``OffsetGone``, ``DamagedRecord``."""
        if near[0] <= offset and offset + size <= near[0] + len(near[1]):
            try:
                found = codec.decode(near[1], offset - near[0])
                if found.offset == offset:
                    return found
            except DamagedRecord:
                pass  # the log itself is asked
        data = self.read(offset, size)
        if len(data) >= 4:
            wanted = int.from_bytes(data[:4], "big")
            if size < wanted <= codec.RECORD_BYTES_MAX:
                data = self.read(offset, wanted)
        try:
            found = codec.decode(data)
        except DamagedRecord as damage:
            raise DamagedRecord(offset, damage.reason) from None
        if found.offset != offset:
            raise DamagedRecord(offset, f"a record of offset {found.offset}")
        return found

    def scan(self, offset: int, upto: int | None = None, *, check_crc: bool = True) -> Iterator[Outline]:
        """Outlines of all messages from ``offset`` on, in order, that end at or below ``upto``, or the end.

        Raises:
            DamagedRecord: what stands there is no message, or one of another place.
        """
        upto = self.max_offset if upto is None else upto
        while True:
            found, offset = self.run(offset, upto, check_crc=check_crc, whole=True)
            if not found:
                return
            assert found[-1][0] < offset <= upto, "it goes on behind the last one"
            yield from found

    def boundary(self, upto: int) -> int:
        """Return the end of the last message that ends at or below ``upto``; if that file has none, the file's begin.
        Raises ``DamagedRecord``."""
        upto = min(upto, self.max_offset)
        at = max(self.min_offset, upto - upto % self.file_bytes)
        for offset, size, *_ in self.scan(at, upto, check_crc=False):
            at = offset + size
        assert at <= max(upto, self.min_offset)
        return at
