"""A second ``Log``: one piece of memory that outlives its store. It has no files, and syncs at once."""

from __future__ import annotations

from collections.abc import Iterator

from broker.store.batch import Batch
from broker.store.errors import OffsetGone, StoreFailed, WrongStore
from broker.store.log import Log, Raw, Recovered, Run, SyncJob
from remoting import record as codec
from remoting.errors import DamagedRecord, MessageIllegal
from remoting.record import BLANK_BYTES_MIN, Message


class MemoryLog(Log):
    def __init__(self, file_bytes: int = 1 << 14) -> None:
        self._file_bytes = file_bytes
        self._begin = self._written = self._flushed = 0
        self._data = bytearray()

    def open(self, recover_from: int = 0, sure: int = 0) -> Recovered:
        reason = "end of the log"
        try:
            end = self.min_offset
            for offset, size, *_ in self.scan(end):
                end = offset + size
            end = self.max_offset if self.next_offset(end) == self.max_offset else end
        except DamagedRecord as damage:
            end, reason = damage.offset, damage.reason
        self.truncate(end)
        return Recovered(self._begin, end, reason)

    def close(self) -> None:
        """It keeps what it has."""

    @property
    def min_offset(self) -> int:
        return self._begin

    @property
    def max_offset(self) -> int:
        return self._begin + len(self._data)

    @property
    def written_offset(self) -> int:
        return self._written

    @property
    def flushed_offset(self) -> int:
        return self._flushed

    @property
    def file_bytes(self) -> int:
        return self._file_bytes

    def append(self, message: Message, queue_offset: int, store_time_ms: int) -> tuple[int, int]:
        self.make_room(codec.size_of(message))
        offset = self.max_offset
        self._data += codec.encode(message, queue_offset, offset, store_time_ms)
        return offset, self.max_offset - offset

    def append_batch(self, batch: Batch, queue_offset: int, store_time_ms: int) -> tuple[int, list[int]]:
        sizes = batch.sizes()
        self.make_room(sum(sizes))
        offset = self.max_offset
        self._data += codec.encode_parts(batch.common, batch.parts, sizes, queue_offset, offset, store_time_ms)
        return offset, sizes

    def make_room(self, size: int) -> None:
        left = self._file_bytes - self.max_offset % self._file_bytes
        if size + BLANK_BYTES_MIN > self._file_bytes:
            raise MessageIllegal(f"records of {size} bytes")
        if size + BLANK_BYTES_MIN > left:
            self._data += codec.blank(left).ljust(left, b"\0")

    def append_raw(self, data: Raw, offset: int, wanted: int | None = None) -> None:
        if not self.max_offset and offset % self._file_bytes:
            raise WrongStore(f"an empty log cannot begin at {offset}")
        if not self.max_offset:
            self._begin = self._flushed = offset
        elif offset != self.max_offset:
            raise OffsetGone(offset, self.max_offset, self.max_offset)
        for part in data if isinstance(data, list) else [data]:
            self._data += part
        self.write()

    def write(self) -> None:
        self._written = self.max_offset

    def sync_job(self) -> SyncJob | None:
        self.write()
        return None if self._flushed == self._written else SyncJob((), self._written, 0)

    def flushed(self, job: SyncJob) -> None:
        self._flushed = max(self._flushed, min(job.target, self._written))

    def sync_failed(self, error: OSError) -> StoreFailed:
        return StoreFailed(str(error))

    def clear(self) -> None:
        self._begin = self._written = self._flushed = 0
        self._data.clear()

    def truncate(self, offset: int) -> None:
        self._check(offset)
        del self._data[offset - self._begin :]
        self._written = self._flushed = offset

    def release_before(self, offset: int) -> Iterator[None]:
        kept = min(offset, self._flushed, max(self._begin, self.max_offset - 1)) // self._file_bytes * self._file_bytes
        if kept > self._begin:
            del self._data[: kept - self._begin]
            self._begin = kept
        return iter(())

    def newest_ms(self) -> list[int]:
        bases = range(self._begin - self._begin % self._file_bytes + self._file_bytes, self.max_offset,
                      self._file_bytes)
        return [first[0][5] for base in bases if (first := self.run(base, self.max_offset, 1)[0])]

    def read_ahead(self, wanted: bool) -> None:
        """Nothing is read from a disk."""

    def read(self, offset: int, size: int, *, cached: bool = True) -> bytes:
        self._check(offset)
        at = offset - self._begin
        return bytes(self._data[at : at + min(size, self._file_bytes - offset % self._file_bytes)])

    def next_offset(self, offset: int) -> int:
        data = self.read(offset, 8)
        if len(data) == 8 and codec.blank_size(data) is not None:
            return offset - offset % self._file_bytes + self._file_bytes
        return offset

    def run(self, offset: int, upto: int, most: int = 1 << 62, *, ask: int = 1 << 20, check_crc: bool = False,
            whole: bool = False, cached: bool = True) -> tuple[Run, int]:
        upto = min(upto, self.max_offset)
        after = self.next_offset(offset) if offset < upto else offset
        if after != offset:
            if whole and after > self.max_offset:
                raise DamagedRecord(offset, "the part of a blank")
            return self.run(after, upto, most, check_crc=check_crc, whole=whole) if after < upto else (Run(), offset)
        data = self.read(offset, upto - offset) if offset < upto else b""
        found, size = codec.outlines(data, offset, most=most, check_crc=check_crc)
        if found or not data:
            return Run(found, (offset, data)), offset + size
        left = self._file_bytes - offset % self._file_bytes
        wanted = int.from_bytes(data[:4], "big") if len(data) >= 8 else len(data) + 1
        if upto - offset < wanted <= left and not (whole and wanted > self.max_offset - offset):
            return Run(), offset
        raise DamagedRecord(offset, f"{len(data)} bytes that are no message")

    def _check(self, offset: int) -> None:
        if not self._begin <= offset <= self.max_offset:
            raise OffsetGone(offset, self._begin, self.max_offset)
