"""The commit log: every message of a broker in one sequence of bytes, cut into files of one size.

Files are named by the offset of their first byte in twenty digits and have their whole size from the start, as a Java
broker insists. A record that does not leave eight bytes free goes to the next file, behind a blank. Appends are
gathered: ``write`` hands them to the system (from then on they survive the death of the process), ``flush`` to disk.

It knows records and files; queues, times and roles are other modules' business.
Source: ``CommitLog``, ``MappedFileQueue`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from broker.store.batch import Batch
from broker.store.errors import OffsetGone, StoreFailed, StoreFull, WrongStore
from broker.store.files import File, Files
from broker.store.log import SLAB_BYTES, Log, Raw, Read, Recovered, Run, SyncJob
from broker.store.recent import Recent
from remoting import record as codec
from remoting.errors import DamagedRecord, MessageIllegal
from remoting.record import BLANK_BYTES_MIN, Message, encode, encode_parts

FILE_BYTES: Final = 1 << 30
RESERVE_BYTES: Final = 16 << 20
"""Room on the disk is taken so much ahead: a full disk refuses a message before anything of it is kept."""
SCAN_BYTES: Final = 1 << 20
SLABS_MAX: Final = 64
"""Most slabs that are kept in memory, 4 MiB."""
_MAGIC: Final = codec.MAGIC.to_bytes(4, "big", signed=True)


class CommitLog(Log):
    """RocketMQ's commit log: files of one size. The promises of its methods stand in ``Log``."""

    def __init__(self, files: Files, directory: str = "commitlog", *, file_bytes: int = FILE_BYTES,
                 apart: bool = False) -> None:
        """``apart``: it has disks of its own, so that where flushed files are missing one of them may be."""
        self._files, self._directory, self._file_bytes, self._apart = files, directory, file_bytes, apart
        self._bases: list[int] = []
        self._open: list[File] = []
        self._buffer: list[bytes | memoryview] = []
        self._end = 0
        """End of the last byte appended."""
        self._written = 0
        self._flushed = 0
        self._recent = Recent()
        self._slabs: dict[int, bytes] = {}
        """Whole slabs by their offsets, the latest last: nothing but a cut changes what was written."""
        self._room_end = -1
        """Records that end here or below need no look at the room that is left."""
        self._cuts = 0
        """Number of truncations so far. A sync that began before the last one says nothing about bytes that were
        written after it."""
        self._failed: str | None = None
        self._reads_ahead = True

    # --- opening ---------------------------------------------------------------------------------------------

    def open(self, recover_from: int = 0, sure: int = 0) -> Recovered:
        """Find the end of the last whole message, from the file that holds ``recover_from`` on, and cut off the rest.
        All below ``sure`` was flushed once.

        Raises:
            WrongStore: the files are not those of a log with this file size, or it was damaged after it was flushed:
                whole messages stand behind the damage, and nobody should cut them off unasked.
        """
        names = [name for name in self._files.list(self._directory) if len(name) == 20 and name.isdecimal()]
        for name in names:
            base, file = int(name), self._files.open(f"{self._directory}/{name}")
            if name == names[-1] and file.size() < self._file_bytes:  # the process died before it got its size
                file.resize(self._file_bytes)
            if file.size() != self._file_bytes:
                raise WrongStore(f"{self._directory}/{name} has {file.size()} bytes, not {self._file_bytes}: "
                                 f"set mappedFileSizeCommitLog to what this store was made with")
            if self._bases and base != self._bases[-1] + self._file_bytes:
                raise WrongStore(f"{self._directory}: no file between {self._bases[-1]:020d} and {name}")
            self._bases.append(base)
            self._open.append(file)
        if self._apart and sure > (end := self._bases[-1] + self._file_bytes if self._bases else 0):
            raise WrongStore(
                f"the log ends at {end} or before, and the checkpoint says that {sure} was flushed: is each folder of "
                "storePathCommitLog there? To go on without those messages, remove the file checkpoint")
        if not self._bases:
            return Recovered(0, 0, "no file")
        begin = self._bases[max(0, bisect_right(self._bases, recover_from) - 1)]
        self._end = self._written = self._bases[-1] + self._file_bytes
        last, reason = None, "end of the last file"
        try:
            for last in self.scan(begin):  # noqa: B007  the last one is judged below
                pass
            end = self._end
        except DamagedRecord as damage:
            end, reason = damage.offset, damage.reason
            if last is not None and last[0] + last[1] == end and (last[7].endswith(b"\0") or b"\0" in last[6]):
                end, reason = last[0], "a record whose topic or properties end in zeros, which no checksum covers"
        if end < sure and (whole := self._whole_behind(end)) is not None:
            raise WrongStore(
                f"{self._directory} is damaged at offset {end} ({reason}), below {sure}, which the checkpoint says was "
                f"flushed, and whole messages stand behind it, from {whole} on. A replica: remove its store, to have "
                "it copied anew. Else bring back a copy, or remove the file checkpoint, to go on without them")
        assert begin <= end <= self._end, "whole messages end in a file"
        self.truncate(end)
        for file in self._open:
            file.sync()  # the former process may have written to the system's memory alone
        for folder in (self._directory, ""):
            self._files.sync_dir(folder)  # the names of its files may be there alone, too
        return Recovered(begin, end, reason)

    def _whole_behind(self, damage: int) -> int | None:
        """Return the offset of the first whole message after ``damage``, in that file or the next; None: there is
        none."""
        at = bisect_right(self._bases, damage) - 1
        for base, file in zip(self._bases[at : at + 2], self._open[at : at + 2], strict=True):
            inside = max(damage + 1 - base, 0)
            while inside < self._file_bytes:
                data = file.pread(SCAN_BYTES, inside)
                found = data.find(_MAGIC, 4)
                if found < 0:
                    inside += max(len(data) - len(_MAGIC) - 3, 1)
                    continue
                inside += found - 4
                size = int.from_bytes(data[found - 4 : found], "big")
                with suppress(DamagedRecord):
                    if size <= codec.RECORD_BYTES_MAX and (
                            codec.outline(file.pread(size, inside))[0] == base + inside):
                        assert base + inside > damage
                        return base + inside
                inside += 5
        return None

    def close(self) -> None:
        for file in self._open:
            file.close()
        self._open, self._bases = [], []

    # --- positions -------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        return self._bases[0] if self._bases else self._end

    @property
    def max_offset(self) -> int:
        return self._end

    @property
    def written_offset(self) -> int:
        return self._written

    @property
    def flushed_offset(self) -> int:
        return self._flushed

    @property
    def file_bytes(self) -> int:
        return self._file_bytes

    # --- writing ---------------------------------------------------------------------------------------------

    def append(self, message: Message, queue_offset: int, store_time_ms: int) -> tuple[int, int]:
        offset = self._end
        raw = encode(message, queue_offset, offset, store_time_ms)
        size = len(raw)
        if offset + size > self._room_end:
            self.make_room(size)
            if offset != self._end:
                offset = self._end
                raw = encode(message, queue_offset, offset, store_time_ms)
        self._buffer.append(raw)
        self._end = offset + size
        assert self._end <= self._room_end, "room was taken in one file"
        return offset, size

    def append_batch(self, batch: Batch, queue_offset: int, store_time_ms: int) -> tuple[int, list[int]]:
        sizes = batch.sizes()
        size = sum(sizes)
        if self._end + size > self._room_end:
            self.make_room(size)
        offset = self._end
        raw = encode_parts(batch.common, batch.parts, sizes, queue_offset, offset, store_time_ms)
        assert len(raw) == size, "records are as long as their heads say"
        self._buffer.append(raw)
        self._end = offset + size
        assert self._end <= self._room_end, "room was taken in one file"
        return offset, sizes

    def make_room(self, size: int) -> None:
        """The next messages of ``size`` bytes in all will stand in one file and be refused by nothing.

        Raises:
            MessageIllegal: no file has so much room.
            StoreFull, StoreFailed: as ``append``.
        """
        left = self._file_bytes - self._end % self._file_bytes
        if size + BLANK_BYTES_MIN <= left:
            self._reserve(self._end, size)
            return
        if size + BLANK_BYTES_MIN > self._file_bytes:
            raise MessageIllegal(f"records of {size} bytes; a file of the log has {self._file_bytes}")
        offset = self._end + left
        self._reserve(offset, size)
        self._buffer.append(codec.blank(left))
        self.write()
        self._end = self._written = offset
        assert not offset % self._file_bytes, "a blank fills its file"

    def append_raw(self, data: Raw, offset: int, wanted: int | None = None) -> None:
        if offset != self._end and self._bases:
            if self._end:
                raise OffsetGone(offset, self._end, self._end)
            self.clear()  # a crash left a file of a log that never held anything
        if not self._bases and offset % self._file_bytes:
            raise WrongStore(f"an empty log of files of {self._file_bytes} bytes cannot begin at {offset}: set "
                             "mappedFileSizeCommitLog to the master's")
        self.write()
        self._end = self._written = offset
        if not self._bases:
            self._flushed = offset
        whole, left = data if isinstance(data, list) else [data], self._file_bytes - offset % self._file_bytes
        for parts in (whole,) if sum(map(len, whole)) <= left else self._by_file(whole, left):
            size = sum(map(len, parts))
            if size:
                self._reserve(self._end, size)
                self._buffer += parts
                self._end += size
                self.write(wanted)
        assert self._written == self._end == offset + sum(map(len, whole)), "all of it is with the system"

    def _by_file(self, data: list[bytes | memoryview], left: int) -> Iterator[list[bytes | memoryview]]:
        """Split the bytes among files: the first part has up to ``left`` bytes, each later part up to a file's size."""
        parts = list[bytes | memoryview]()
        for part in data:
            while len(part) > left:
                yield [*parts, part[:left]]
                parts, part, left = [], part[left:], self._file_bytes
            parts.append(part)
            left -= len(part)
            assert left >= 0, "what goes to one file has room in it"
        yield parts

    def _reserve(self, offset: int, size: int) -> None:
        """Take room for ``size`` bytes at ``offset``, in a new file if need be."""
        if self._failed is not None:
            raise StoreFailed(self._failed)
        base = offset - offset % self._file_bytes
        assert offset - base + size <= self._file_bytes, "it stands in one file"
        if offset + size <= self._room_end:
            return
        upto = min(base + self._file_bytes, offset + max(size, RESERVE_BYTES))
        try:
            if self._bases and base == self._bases[-1]:
                self._open[-1].reserve(offset - base, upto - offset)
            else:
                self._create(base, upto - base)
        except OSError as error:
            raise StoreFull(f"no room for {size} bytes in {self._directory}: {error}") from error
        self._room_end = min(upto, base + self._file_bytes - BLANK_BYTES_MIN)

    def _create(self, base: int, room: int) -> None:
        assert not self._bases or base == self._bases[-1] + self._file_bytes, "one file follows the other"
        name = f"{self._directory}/{base:020d}"
        file = self._files.open(name, create=True)
        try:
            file.resize(self._file_bytes)
            file.reserve(0, room)
            self._files.sync_dir(self._directory)
            if not self._bases:
                self._files.sync_dir("")
        except OSError:
            file.close()
            self._files.remove(name)
            raise
        self._bases.append(base)
        self._open.append(file)
        if not self._reads_ahead:
            file.read_ahead(False)

    def read_ahead(self, wanted: bool) -> None:
        """Tell every open file, and each one opened later, whether the system may read ahead. A file remembers this
        only while it is open."""
        self._reads_ahead = wanted
        for file in self._open:
            file.read_ahead(wanted)

    def write(self, wanted: int | None = None) -> None:
        """Hand to the system what was appended; ``wanted`` as for ``append_raw``. Raises ``StoreFailed``; the log is
        not written from then on."""
        buffer = self._buffer
        if not buffer:
            return
        if self._failed is not None:
            raise StoreFailed(self._failed)
        at = bisect_right(self._bases, self._written) - 1
        file, inside = self._open[at], self._written - self._bases[at]
        try:
            if wanted is None:
                data = b"".join(buffer) if len(buffer) > 1 else buffer[0]
                assert inside + len(data) <= self._file_bytes, "what waits stands in one file"
                file.pwrite(data, inside)
                self._recent.wrote(data, self._written)
            else:
                file.write_past(buffer, inside)
                self._recent.went_on(buffer, self._written, wanted)
        except OSError as error:
            raise self._fail(error) from error
        buffer.clear()
        self._written = self._end

    def sync_job(self) -> SyncJob | None:
        """Return the sync that makes all appended bytes durable; None: they are durable already. Raises
        ``StoreFailed``."""
        if self._failed is not None:
            raise StoreFailed(self._failed)
        self.write()
        assert self._flushed <= self._written == self._end
        if self._flushed == self._written:
            return None
        first = max(0, bisect_right(self._bases, self._flushed) - 1)
        last = bisect_right(self._bases, self._written - 1)
        return SyncJob(tuple(self._open[first:last]), self._written, self._cuts)

    def flushed(self, job: SyncJob) -> None:
        if self._failed is None and job.cuts == self._cuts:
            assert job.target <= self._written, "only a cut takes back what was written"
            self._flushed = max(self._flushed, min(job.target, self._written))

    def sync_failed(self, error: OSError) -> StoreFailed:
        return self._fail(error)

    def _fail(self, error: OSError) -> StoreFailed:
        self._room_end = -1
        self._failed = f"{self._directory} is not written any more, since {error}; restart the broker"
        return StoreFailed(self._failed)

    def clear(self) -> None:
        self.write()
        self._recent.clear()
        self._slabs.clear()
        while self._bases:
            self._drop_last()
        assert not self._open and not self._buffer
        self._cut_to(0)

    def truncate(self, offset: int) -> None:
        """Make ``offset`` the end. What stood behind it reads as zeros, so that no later crash brings it back.

        Raises:
            OffsetGone: the log does not reach there.
        """
        if not self.min_offset <= offset <= self._end:
            raise OffsetGone(offset, self.min_offset, self._end)
        self.write()
        self._recent.clear()
        self._slabs.clear()
        while len(self._bases) > 1 and self._bases[-1] >= offset:
            self._drop_last()
        if self._bases:
            file, base = self._open[-1], self._bases[-1]
            assert 0 <= offset - base <= self._file_bytes, "the last file is the one that is cut"
            file.resize(offset - base)
            file.resize(self._file_bytes)
            for file in self._open[max(0, bisect_right(self._bases, self._flushed) - 1) :]:
                file.sync()
        self._cut_to(offset)

    def _cut_to(self, offset: int) -> None:
        assert not self._buffer, "what waited to be written was, before the cut"
        self._end = self._written = self._flushed = offset
        self._room_end = -1
        self._cuts += 1

    def release_before(self, offset: int) -> Iterator[None]:
        released = []
        while len(self._bases) > 1 and self._bases[1] <= min(offset, self._flushed):
            released.append((self._open.pop(0), f"{self._directory}/{self._bases.pop(0):020d}"))
        assert not released or (self._bases and self._bases[0] <= self._flushed), "the last file stays"
        if released:
            self._slabs.clear()
        return self._delete(released)

    def _delete(self, released: list[tuple[File, str]]) -> Iterator[None]:
        for file, name in released:
            file.close()
            self._files.remove(name)
            self._files.sync_dir(self._directory)  # or a crash might leave a gap
            yield

    def newest_ms(self) -> list[int]:
        found = []
        for base in self._bases[1:]:
            try:
                first = self.run(base, self._end, 1, ask=4096)[0]
            except DamagedRecord:
                break
            if not first:
                break
            found.append(first[0][5])
        return found

    def _drop_last(self) -> None:
        self._open.pop().close()
        self._files.remove(f"{self._directory}/{self._bases.pop():020d}")
        self._files.sync_dir(self._directory)  # or a crash might leave a gap

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, offset: int, size: int, *, cached: bool = True) -> bytes:
        if not self.min_offset <= offset <= self._end:
            raise OffsetGone(offset, self.min_offset, self._end)
        if offset + size > self._written:
            self.write()
        size = min(size, self._end - offset)
        if not size:
            return b""
        recent = self._recent.read(offset, size)
        if recent is not None:
            return recent
        at = bisect_right(self._bases, offset) - 1
        inside = offset - self._bases[at]
        assert 0 <= inside < self._file_bytes, "no file is missing between two"
        return self._open[at].pread(min(size, self._file_bytes - inside), inside, cached=cached)

    def slab(self, offset: int) -> Read:
        begin = offset - offset % self._file_bytes % SLAB_BYTES
        data = self._slabs.get(begin)
        if data is None:
            data = self.read(begin, SLAB_BYTES)
            if len(data) == SLAB_BYTES:
                if len(self._slabs) == SLABS_MAX:
                    del self._slabs[next(iter(self._slabs))]
                self._slabs[begin] = data
        return begin, data

    def next_offset(self, offset: int) -> int:
        data = self.read(offset, 8)
        if len(data) == 8 and codec.blank_size(data) is not None:
            return offset - offset % self._file_bytes + self._file_bytes
        return offset

    def run(self, offset: int, upto: int, most: int = 1 << 62, *, ask: int = SCAN_BYTES, check_crc: bool = False,
            whole: bool = False, cached: bool = True) -> tuple[Run, int]:
        """Return some outlines of messages from ``offset`` to ``upto``, and where to go on.

        At least one if there is one, and ``most`` at most; none of a message of which only a part has come yet.
        ``cached`` as for a file.

        Raises:
            DamagedRecord: what stands at ``offset`` is no message, or one of another place, or with ``whole`` a part.
        """
        upto = min(upto, self._end)
        data = self.read(offset, min(ask, upto - offset), cached=cached) if offset < upto else b""
        found, at = codec.outlines(data, offset, most=most, check_crc=check_crc)
        assert len(found) <= most and 0 <= at <= len(data)
        assert not found or found[0][0] == offset, "a message says where it stands"
        if found or not data:
            return Run(found, (offset, data)), offset + at
        left = self._file_bytes - offset % self._file_bytes
        if len(data) >= 8 and (size := codec.blank_size(data)) is not None:
            if size != left:
                raise DamagedRecord(offset, f"a blank of {size} bytes, where {left} are left")
            if whole and size > self._end - offset:
                raise DamagedRecord(offset, f"a blank of {size} bytes, of which {self._end - offset} are here")
            return self.run(offset + left, upto, most, ask=ask, check_crc=check_crc, whole=whole, cached=cached)
        size = int.from_bytes(data[:4], "big") if len(data) >= 8 else len(data) + 1
        if len(data) < size <= min(left, codec.RECORD_BYTES_MAX) and not (whole and size > self._end - offset):
            if size > upto - offset:
                return Run(), offset
            return self.run(offset, upto, most, ask=size, check_crc=check_crc, whole=whole, cached=cached)
        try:
            here = codec.outline(data, check_crc=check_crc)
        except DamagedRecord as damage:
            raise DamagedRecord(offset, damage.reason) from None
        raise DamagedRecord(offset, f"a record of offset {here[0]}")
