"""A consume queue: for each message of one (topic, queue) where it stands in the log, its size, and its tag.

Entries of 20 bytes, in files named by the offset of their first byte; the n-th entry is the message of queue offset n.
A queue that begins in the middle of a file has entries in front that point nowhere. It can always be built again from
the log, so nothing waits for its flush. It knows its files and nothing of records, topics or the log.
Source: ``ConsumeQueue`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from struct import Struct
from typing import Final

from broker.store.errors import OffsetGone, WrongStore
from broker.store.files import File, Files
from remoting.record import Outline

ENTRY: Final = Struct(">qiq")
"""Offset in the log, size, code of the tag."""
ENTRY_BYTES: Final = ENTRY.size
FILE_BYTES: Final = 300_000 * ENTRY_BYTES
NOWHERE_SIZE: Final = 0x7FFFFFFF
NOWHERE: Final = ENTRY.pack(0, NOWHERE_SIZE, 0)
GATHERED: Final = 1_024
"""Entries that are written together."""
READ_BYTES: Final = 1 << 16
Hear = Callable[[Outline, tuple[int, bytes]], None]
"""Hears of a message, and of the bytes in which it was found: the offset of the first, and they."""
NEW: Final = -1
"""Among the files that have changed: there is a new name in the folder."""


class _NoEntry(Exception):
    """The bytes at this place are no entry: zeros, or damage."""


class ConsumeQueue:
    """One consume queue. ``open`` comes first. Queue offsets count entries.

    A caller that dispatches in bulk adds to ``tail`` the entry of ``max_offset``, raises that by one, and calls
    ``write`` when ``max_offset`` is a multiple of ``GATHERED``.
    """

    def __init__(self, files: Files, directory: str, *, file_bytes: int = FILE_BYTES) -> None:
        assert file_bytes % ENTRY_BYTES == 0
        self._files, self._directory, self._file_bytes = files, directory, file_bytes
        self._base = 0
        """Offset of the first file, in bytes of the queue."""
        self._open: list[File] = []
        self._written = 0
        self.tail = bytearray()
        """Entries behind ``_written``, bytes of the queue."""
        self._dirty: set[int] = set()
        self.min_offset = self.max_offset = 0
        self.log_min = 0
        """Entries of messages below are forgotten."""
        self.heard: Hear | None = None
        """Called with each message that dispatch tells this queue of."""
        self.damaged = False
        """``open`` found fewer entries than were flushed, or ``correct_min`` found one that is none."""
        self._lost_end = 0
        """End of the last entry that ``open`` found after the damage."""

    def open(self, log_end: int, sure: int = 0) -> None:
        """Find the entries of messages below ``log_end``. Those of messages below ``sure`` were all flushed.

        Raises:
            WrongStore: the files have another size, or one is missing.
        """
        names = [name for name in self._files.list(self._directory) if len(name) == 20 and name.isdecimal()]
        files = [self._files.open(f"{self._directory}/{name}") for name in names]
        sizes = [file.size() for file in files]
        if (len(names) > 1 and self._file_bytes not in sizes) or max(sizes, default=0) > self._file_bytes:
            raise WrongStore(f"{self._directory}/{names[0]} has {sizes[0]} bytes, not {self._file_bytes}: set "
                             "mappedFileSizeConsumeQueue to what this store was made with, or remove the whole folder "
                             "consumequeue: it is built again from the log")
        for number, (name, file, size) in enumerate(zip(names, files, sizes, strict=True)):
            before = sizes[number - 1] if number else self._file_bytes
            if before == self._file_bytes and int(name) == int(names[0]) + number * self._file_bytes:
                if size < self._file_bytes:
                    self.damaged |= size > 0  # else the process died before it got its size
                    file.resize(self._file_bytes)
                self._open.append(file)
            else:  # a crash lost or cut the file before it: its messages are told again
                offset, length, _ = ENTRY.unpack(file.pread(ENTRY_BYTES, 0).ljust(ENTRY_BYTES, b"\0"))
                if 0 < length <= sure - offset:
                    raise WrongStore(f"{self._directory}/{name} has no file before it: remove the whole folder "
                                     "consumequeue: it is built again from the log")
                file.close()
                self._files.remove(f"{self._directory}/{name}")
        self._base = int(names[0]) if names else 0
        self._find_end(log_end, min(sure, log_end))
        if self._is_something_behind(min(sure, log_end)):
            self._clear_behind()
        self.min_offset, self.max_offset = self._base // ENTRY_BYTES, self._written // ENTRY_BYTES
        assert self._written % ENTRY_BYTES == 0 and self.min_offset <= self.max_offset, "entries are whole"
        self._doubt_what_is_not_sure(min(sure, log_end))

    def _doubt_what_is_not_sure(self, sure: int) -> None:
        """Mark files as unsynced that hold what is not sure, or nothing yet.

        They, or their names, may be in the system's memory alone."""
        if not self._open:
            return
        if self.max_offset > self.min_offset:
            offset, length, _ = self.entry(self.max_offset - 1)
            if offset + length <= sure:
                return
        in_file = self._file_bytes // ENTRY_BYTES
        first = bisect_left(range(len(self._open)), True, key=lambda at: not self._is_sure(at, in_file - 1, sure))
        self._dirty |= {NEW, *range(first, len(self._open))}

    @property
    def is_unsynced(self) -> bool:
        return bool(self._dirty)

    def _find_end(self, log_end: int, sure: int) -> None:
        """Find where the entries end: before the first that is not whole, not in order, or of a message after the log.

        Files whose entries are all sure are not looked at. What stands after the end goes: a crash may have left it."""
        in_file = self._file_bytes // ENTRY_BYTES
        number = bisect_left(range(len(self._open)), True, key=lambda at: not self._is_sure(at, in_file - 1, sure))
        last = self._entry_in(number - 1, in_file - 1)[0] if number else -1
        count = 0
        while number < len(self._open):
            count, last = self._entries_of(number, last, log_end, sure)
            if count < in_file:
                break
            number, count = number + 1, 0
        keep = max(1, number + (count > 0))
        while len(self._open) > keep:
            self._look_behind(len(self._open) - 1, 0, last, sure)
            self._drop_last()
        self._written = self._base + number * self._file_bytes + count * ENTRY_BYTES
        assert self._written <= self._base + len(self._open) * self._file_bytes, "entries that were found are in a file"

    def _entry_in(self, number: int, at: int) -> tuple[int, int, int]:
        assert 0 <= at * ENTRY_BYTES < self._file_bytes, "an entry of that file"
        return ENTRY.unpack(self._open[number].pread(ENTRY_BYTES, at * ENTRY_BYTES))

    def _is_sure(self, number: int, at: int, sure: int) -> bool:
        offset, size, _ = self._entry_in(number, at)
        if size == NOWHERE_SIZE:
            return offset == 0
        return size > 0 and 0 <= offset <= sure - size

    def _entries_of(self, number: int, last: int, log_end: int, sure: int) -> tuple[int, int]:
        """Return how many entries at the begin of that file are good, and the log offset of the last good one."""
        count = bisect_left(range(self._file_bytes // ENTRY_BYTES), True,
                            key=lambda at: not self._is_sure(number, at, sure))
        if count:
            last = self._entry_in(number, count - 1)[0]
        step = READ_BYTES - READ_BYTES % ENTRY_BYTES
        for at in range(count * ENTRY_BYTES, self._file_bytes, step):
            for offset, size, _ in ENTRY.iter_unpack(self._open[number].pread(min(step, self._file_bytes - at), at)):
                nowhere = offset == 0 and size == NOWHERE_SIZE and last <= 0
                if not nowhere and (offset < 0 or size <= 0 or offset <= last or offset + size > log_end):
                    return count, last
                last = 0 if nowhere and last < 0 else offset if not nowhere else last
                count += 1
        assert count <= self._file_bytes // ENTRY_BYTES
        return count, last

    def append(self, queue_offset: int, offset: int, size: int, tags_code: int) -> None:
        """Append the entry of ``queue_offset``. One that is here already is passed over; missing ones point nowhere.

        An entry of an older message means that this queue was given up and begun anew; an entry before the first one
        means that the first file was lost. Either goes with all entries after it, which will be told again.

        Raises:
            OSError: the disk is full. It may be tried again.
        """
        if queue_offset < self.min_offset:
            if offset < self.log_min:
                return
            self._empty()
        elif queue_offset < self.max_offset:
            if self.entry(queue_offset)[0] >= offset:
                return
            self._cut(queue_offset)
        if queue_offset > self.max_offset:
            self._fill(queue_offset)
        assert queue_offset == self.max_offset, "the n-th entry is the message of queue offset n"
        self.tail += ENTRY.pack(offset, size, tags_code)
        self.max_offset += 1
        if len(self.tail) >= GATHERED * ENTRY_BYTES:
            self.write()

    def _fill(self, queue_offset: int) -> None:
        at = queue_offset * ENTRY_BYTES
        if not self.max_offset:  # a queue without entries may begin anywhere
            self._empty()
            self._base = self._written = at - at % self._file_bytes
            self.min_offset, self.max_offset = queue_offset, self._written // ENTRY_BYTES
        while (missing := queue_offset - self.max_offset) > 0:
            part = min(missing, GATHERED)
            self.tail += NOWHERE * part
            self.max_offset += part
            self.write()
        assert not missing, "the message itself is the next"
        self.write()  # makes the first file even if nothing was missing

    def write(self) -> None:
        """Hand the entries to the system. Raises ``OSError``; then they are still here."""
        if self._base and not self._open:  # a file's name keeps where a queue without entries begins
            self._add_file(self._base)
        while self.tail:
            number, inside = divmod(self._written - self._base, self._file_bytes)
            assert 0 <= number <= len(self._open), "one file follows the other"
            if number == len(self._open):
                self._add_file(self._base + number * self._file_bytes)
            part = self.tail[: self._file_bytes - inside]
            self._open[number].pwrite(part, inside)
            self._dirty.add(number)
            self._written += len(part)
            del self.tail[: len(part)]
        assert self._written == self.max_offset * ENTRY_BYTES, "the n-th entry is the message of queue offset n"

    def _add_file(self, at: int) -> None:
        file = self._files.open(f"{self._directory}/{at:020d}", create=True)
        file.resize(self._file_bytes)
        self._open.append(file)
        self._dirty.add(NEW)

    def to_sync(self) -> tuple[list[File], list[str]]:
        """Files and folders that have changed since the last call, all entries written. Raises ``OSError``."""
        self.write()
        folders = [self._directory] if NEW in self._dirty else []
        assert max(self._dirty, default=NEW) < len(self._open), "what changed is open"
        files = [self._open[number] for number in sorted(self._dirty - {NEW})]
        self._dirty.clear()
        return files, folders

    def read(self, queue_offset: int, count: int) -> bytes:
        """Return up to ``count`` entries; b"" at the end. Raises ``OffsetGone``."""
        if not self.min_offset <= queue_offset <= self.max_offset:
            raise OffsetGone(queue_offset, self.min_offset, self.max_offset)
        at, end = queue_offset * ENTRY_BYTES, min(queue_offset + count, self.max_offset) * ENTRY_BYTES
        written = self._written
        if at >= written:
            return bytes(self.tail[at - written : end - written])
        parts = []
        while at < min(end, written):
            number, inside = divmod(at - self._base, self._file_bytes)
            parts.append(self._open[number].pread(min(self._file_bytes - inside, min(end, written) - at), inside))
            assert parts[-1], "a file has its whole size"
            at += len(parts[-1])
        if at < end:
            parts.append(bytes(self.tail[at - written : end - written]))
        return b"".join(parts)

    def entry(self, queue_offset: int) -> tuple[int, int, int]:
        """Offset in the log, size, code of the tag. Raises ``OffsetGone``."""
        data = self.read(queue_offset, 1)
        if not data:
            raise OffsetGone(queue_offset, self.min_offset, self.max_offset)
        return ENTRY.unpack(data)

    @property
    def last_offset(self) -> int:
        """Offset in the log of the last entry's message; -1: there is no entry."""
        return self.entry(self.max_offset - 1)[0] if self.min_offset < self.max_offset else -1

    def end_before(self, log_offset: int) -> int:
        """Return where the queue ended before ``log_offset`` of the log: at its first message from there on, else now.
        """
        places = range(self.min_offset, self.max_offset)
        return self.min_offset + bisect_left(places, log_offset, key=lambda place: self.entry(place)[0])

    def truncate(self, log_end: int) -> None:
        """Forget entries of messages that do not end at or below ``log_end``. Raises ``OSError``."""
        if self.max_offset == self.min_offset or not self._is_behind(self.max_offset - 1, log_end):
            return
        self._cut(self.min_offset + bisect_left(
            range(self.min_offset, self.max_offset), True, key=lambda at: self._is_behind(at, log_end)))

    def _is_behind(self, queue_offset: int, log_end: int) -> bool:
        offset, size, _ = self.entry(queue_offset)
        return size != NOWHERE_SIZE and offset + size > log_end

    def _cut(self, queue_offset: int) -> None:
        """Forget entries from there on."""
        assert self.min_offset <= queue_offset <= self.max_offset, "a cut makes no queue longer"
        at = queue_offset * ENTRY_BYTES
        self.max_offset = queue_offset
        del self.tail[max(0, at - self._written) :]
        if at >= self._written:
            return
        self._written = at
        while len(self._open) > 1 and self._base + (len(self._open) - 1) * self._file_bytes >= self._written:
            self._drop_last()
        self._clear_behind()

    def mend(self, queue_offset: int, entries: bytes) -> None:
        """Put ``entries`` in the place of those from ``queue_offset`` on. Raises ``OSError``."""
        at = queue_offset * ENTRY_BYTES
        assert self.min_offset <= queue_offset and at + len(entries) <= self.max_offset * ENTRY_BYTES, "they are there"
        while entries and at < self._written:
            number, inside = divmod(at - self._base, self._file_bytes)
            part = entries[: min(self._file_bytes - inside, self._written - at)]
            self._open[number].pwrite(part, inside)
            self._dirty.add(number)
            at, entries = at + len(part), entries[len(part) :]
        if entries:
            self.tail[at - self._written : at - self._written + len(entries)] = entries

    def end_where_it_did(self) -> None:
        """End a damaged queue at its old end, if all messages before the damage are gone.

        More messages may go, until none is left that says which place the next one has."""
        if self.min_offset == self.max_offset < self._lost_end:
            self._empty()
            self._fill(self._lost_end)

    def begin_at(self, queue_offset: int) -> None:
        """Begin a queue at ``queue_offset``: it never had an entry here, and goes on after those that it had elsewhere.

        Raises ``OSError``; then call it again."""
        if self.max_offset and self.max_offset >= self.min_offset:
            self.write()
        else:
            self._fill(queue_offset)
        assert not self.tail, "a crash does not lose where it begins"

    def trust(self) -> None:
        """Trust the queue again, which is mended: look for its beginning again."""
        self.damaged, self.log_min = False, -1

    def correct_min(self, log_min: int) -> None:
        """Forget entries of messages below ``log_min``, which are gone, and files that hold no others.

        Nothing is forgotten where it meets bytes that are no entry: zeros would look as if all before them were gone.
        """
        if log_min == self.log_min:
            return
        self.log_min = log_min
        try:
            self.min_offset += bisect_left(range(self.min_offset, self.max_offset), log_min, key=self._begin_of)
        except _NoEntry:
            self.damaged = True
            return
        while len(self._open) > 1 and self._base + self._file_bytes <= self.min_offset * ENTRY_BYTES:
            self._open.pop(0).close()
            self._files.remove(f"{self._directory}/{self._base:020d}")
            self._files.sync_dir(self._directory)  # or a crash might leave a gap
            self._base += self._file_bytes
            self._dirty = {number - 1 if number > 0 else number for number in self._dirty if number}
        assert not self._open or self._base <= self.min_offset * ENTRY_BYTES, "a file with an entry that counts stays"

    def _begin_of(self, queue_offset: int) -> int:
        offset, size, _ = self.entry(queue_offset)
        if size <= 0 or offset < 0:
            raise _NoEntry
        return offset

    def close(self) -> None:
        for file in self._open:
            file.close()
        self._open = []

    def _empty(self) -> None:
        while self._open:
            self._drop_last()
        self.tail.clear()
        self._base = self._written = self.min_offset = self.max_offset = 0

    def destroy(self) -> None:
        """Delete its files. It is of no use any more."""
        self._empty()
        self._files.remove_folder(self._directory)

    def _drop_last(self) -> None:
        self._open.pop().close()
        self._files.remove(f"{self._directory}/{self._base + len(self._open) * self._file_bytes:020d}")
        self._dirty.discard(len(self._open))

    def _is_something_behind(self, sure: int) -> bool:
        if not self._open:
            return False
        begin = self._written - self._base - (len(self._open) - 1) * self._file_bytes
        last = self._entry_in(len(self._open) - 1, begin // ENTRY_BYTES - 1)[0] if begin else -1
        return self._look_behind(len(self._open) - 1, begin, last, sure)

    def _look_behind(self, number: int, begin: int, last: int, sure: int) -> bool:
        """Return whether that file has flushed entries from ``begin`` on. If it has, the entries between the one at
        ``last`` and them are lost."""
        assert begin % ENTRY_BYTES == 0, "entries are whole"
        found, file, at = False, self._open[number], begin
        step = READ_BYTES - READ_BYTES % ENTRY_BYTES
        while (data_at := file.data_from(at)) is not None:  # most of a young queue's file is a hole
            at = data_at - data_at % ENTRY_BYTES
            assert begin <= at < self._file_bytes, "it goes on in that file"
            data = file.pread(min(step, self._file_bytes - at), at)
            if data != bytes(len(data)):
                found = True
                place = (self._base + number * self._file_bytes + at) // ENTRY_BYTES
                lost = [place for place, (offset, size, _) in enumerate(ENTRY.iter_unpack(data), place)
                        if (offset or size) and last < offset < sure]
                if lost:
                    self.damaged, self._lost_end = True, max(self._lost_end, lost[-1] + 1)
            at += step
        return found

    def _clear_behind(self) -> None:
        """Clear what stands after the end. Else a stale entry might be taken for a later one after a crash."""
        if self._open:
            self._open[-1].resize(self._written - self._base - (len(self._open) - 1) * self._file_bytes)
            self._open[-1].resize(self._file_bytes)
            self._open[-1].sync()
