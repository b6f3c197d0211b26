"""A consume queue: for each message of one (topic, queue) where it stands in the log, its size, and its tag.

Entries of 20 bytes, in files named by the offset of their first byte; the n-th entry is the message of queue offset n.
A queue that begins in the middle of a file has entries in front that point nowhere. It can always be built again from
the log, so nothing waits for its flush. It knows its files and nothing of records, topics or the log.
Source: ``ConsumeQueue`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import mul
from struct import Struct
from typing import Final

from broker.store.errors import OffsetGone, WrongStore
from broker.store.files import File, Files

ENTRY: Final = Struct(">qiq")
"""Offset in the log, size, code of the tag."""
ENTRY_BYTES: Final = ENTRY.size
FILE_BYTES: Final = 300_000 * ENTRY_BYTES
NOWHERE: Final = ENTRY.pack(0, 0x7FFFFFFF, 0)
WRITE_BYTES: Final = 1 << 16
READ_BYTES: Final = 1 << 16


_WEIGHTS: Final = tuple(pow(31, power, 1 << 32) for power in range(255, -1, -1))


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, signed 32 bits."""
    units: bytes | list[int]
    if text.isascii():
        units = text.encode()
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        units = [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]
    code = 0
    for at in range(0, len(units), 256):
        part = units[at : at + 256]
        code = code * pow(31, len(part), 1 << 32) + sum(map(mul, part, _WEIGHTS[256 - len(part) :])) & 0xFFFFFFFF
    return code - (1 << 32) if code >> 31 else code


class ConsumeQueue:
    """``open`` comes first. Queue offsets count entries."""

    def __init__(self, files: Files, directory: str, *, file_bytes: int = FILE_BYTES) -> None:
        assert file_bytes % ENTRY_BYTES == 0
        self._files, self._directory, self._file_bytes = files, directory, file_bytes
        self._base = 0
        """Of the first file, in bytes."""
        self._open: list[File] = []
        self._written = 0
        self._tail = bytearray()
        """Entries behind ``_written``, bytes of the queue."""
        self._dirty: set[int] = set()
        self.min_offset = 0

    def open(self, log_end: int) -> None:
        """Find the entries of messages below ``log_end``. Raises ``WrongStore``."""
        names = [name for name in self._files.list(self._directory) if len(name) == 20 and name.isdecimal()]
        for number, name in enumerate(names):
            file = self._files.open(f"{self._directory}/{name}")
            if file.size() == 0:
                file.resize(self._file_bytes)
            if file.size() != self._file_bytes or int(name) != int(names[0]) + number * self._file_bytes:
                raise WrongStore(f"{self._directory}/{name} has {file.size()} bytes and not {self._file_bytes}, or the "
                                 "file before it is missing: set mappedFileSizeConsumeQueue to what this store was "
                                 "made with, or remove the whole folder consumequeue: it is built again from the log")
            self._open.append(file)
        self._base = int(names[0]) if names else 0
        self._written = self._base + len(self._open) * self._file_bytes
        while self._open:
            self._written -= self._file_bytes
            entries = self._entries_of(self._open[-1], log_end)
            if entries or len(self._open) == 1:
                self._written += entries * ENTRY_BYTES
                break
            self._drop_last()
        self._clear_behind()
        self.min_offset = self._base // ENTRY_BYTES

    def _entries_of(self, file: File, log_end: int) -> int:
        """How many entries in front are whole, in order, and of messages below ``log_end``."""
        count, last = 0, -1
        for at in range(0, self._file_bytes, READ_BYTES - READ_BYTES % ENTRY_BYTES):
            data = file.pread(min(READ_BYTES - READ_BYTES % ENTRY_BYTES, self._file_bytes - at), at)
            for offset, size, _ in ENTRY.iter_unpack(data):
                nowhere = offset == 0 and size == 0x7FFFFFFF and last <= 0
                if not nowhere and (offset < 0 or size <= 0 or offset <= last or offset + size > log_end):
                    return count
                last = 0 if nowhere and last < 0 else offset if not nowhere else last
                count += 1
        return count

    @property
    def max_offset(self) -> int:
        return (self._written + len(self._tail)) // ENTRY_BYTES

    def append(self, queue_offset: int, offset: int, size: int, tags_code: int) -> None:
        """The entry of ``queue_offset``. One that is here already is passed over; what is missing points nowhere."""
        due = self.max_offset
        if queue_offset < due:
            return
        if queue_offset > due:
            self._fill(queue_offset)
        self._tail += ENTRY.pack(offset, size, tags_code)
        if len(self._tail) >= WRITE_BYTES:
            self.write()

    def _fill(self, queue_offset: int) -> None:
        at = queue_offset * ENTRY_BYTES
        if not self._open and not self._tail:
            self._base = self._written = at - at % self._file_bytes
            self.min_offset = queue_offset
        missing = at - self._written - len(self._tail)
        while missing > 0:
            part = min(missing, WRITE_BYTES - WRITE_BYTES % ENTRY_BYTES)
            self._tail += NOWHERE * (part // ENTRY_BYTES)
            self.write()
            missing -= part

    def write(self) -> None:
        """Hand the entries to the system. Raises ``OSError``; then they are still here."""
        while self._tail:
            number, inside = divmod(self._written - self._base, self._file_bytes)
            if number == len(self._open):
                file = self._files.open(f"{self._directory}/{self._base + number * self._file_bytes:020d}", create=True)
                file.resize(self._file_bytes)
                self._open.append(file)
            part = self._tail[: self._file_bytes - inside]
            self._open[number].pwrite(part, inside)
            self._dirty.add(number)
            self._written += len(part)
            del self._tail[: len(part)]

    def flush(self) -> None:
        """Raises ``OSError``."""
        self.write()
        for number in sorted(self._dirty):
            self._open[number].sync()
        self._dirty.clear()

    def read(self, queue_offset: int, count: int) -> bytes:
        """Up to ``count`` entries; b"" at the end. Raises ``OffsetGone``."""
        if not self.min_offset <= queue_offset <= self.max_offset:
            raise OffsetGone(queue_offset, self.min_offset, self.max_offset)
        at, end = queue_offset * ENTRY_BYTES, min(queue_offset + count, self.max_offset) * ENTRY_BYTES
        parts = []
        while at < min(end, self._written):
            number, inside = divmod(at - self._base, self._file_bytes)
            parts.append(self._open[number].pread(min(self._file_bytes - inside, min(end, self._written) - at), inside))
            at += len(parts[-1])
        if at < end:
            parts.append(bytes(self._tail[at - self._written : end - self._written]))
        return b"".join(parts)

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """Offset in the log, size, code of the tag. Raises ``OffsetGone``."""
        data = self.read(queue_offset, 1)
        if not data:
            raise OffsetGone(queue_offset, self.min_offset, self.max_offset)
        return ENTRY.unpack(data)

    def truncate(self, log_end: int) -> None:
        """Forget entries of messages that do not end at or below ``log_end``."""
        self.write()
        keep = bisect_left(range(self.min_offset, self.max_offset), 1, key=lambda at: self._is_behind(at, log_end))
        self._written = (self.min_offset + keep) * ENTRY_BYTES
        while len(self._open) > 1 and self._base + (len(self._open) - 1) * self._file_bytes >= self._written:
            self._drop_last()
        self._clear_behind()

    def _is_behind(self, queue_offset: int, log_end: int) -> int:
        offset, size, _ = self.entry(queue_offset)
        return int(size != 0x7FFFFFFF and offset + size > log_end)

    def correct_min(self, log_min: int) -> None:
        """Messages below ``log_min`` are gone: forget their entries, and files that hold no others."""
        found = bisect_left(range(self.min_offset, self.max_offset), log_min, key=lambda at: self.entry(at)[0])
        self.min_offset += found
        while len(self._open) > 1 and self._base + self._file_bytes <= self.min_offset * ENTRY_BYTES:
            self._open.pop(0).close()
            self._files.remove(f"{self._directory}/{self._base:020d}")
            self._base += self._file_bytes
            self._dirty = {number - 1 for number in self._dirty if number}

    def close(self) -> None:
        for file in self._open:
            file.close()
        self._open = []

    def _drop_last(self) -> None:
        self._open.pop().close()
        self._files.remove(f"{self._directory}/{self._base + len(self._open) * self._file_bytes:020d}")
        self._dirty.discard(len(self._open))

    def _clear_behind(self) -> None:
        """So that no stale entry is taken for one of the future."""
        if self._open:
            self._open[-1].resize(self._written - self._base - (len(self._open) - 1) * self._file_bytes)
            self._open[-1].resize(self._file_bytes)
