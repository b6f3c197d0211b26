"""The key index: which messages of a topic may have a key. Files as Java's: a header, slots of a hash table, entries.

An entry holds the hash of its key, so whoever asks must look at the message itself. Entries are gathered in memory and
written at a flush: entries, then slots, then the header that counts them, so a crash leaves chains that lead to whole
entries. It knows its files, and keys as text. Source: ``IndexFile`` and ``IndexService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Final

import attrs

from broker.store.files import File, Files
from broker.store.keys import Entry, KeyHashes, key_hash
from remoting.record import Outline

DIRECTORY: Final = "index"
SLOTS: Final = 5_000_000
ENTRIES: Final = 20_000_000
_HEADER: Final = Struct(">qqqqii")
"""Store time of the first and the last message, their offsets, slots in use, entries with the first, unused, one."""
_ENTRY: Final = Struct(">iqii")
"""Hash, offset, seconds since the first message, entry before it in its slot."""
_PAGE_BYTES: Final = 4096
_PAGE_SLOTS: Final = _PAGE_BYTES // 4
_STEP_BYTES: Final = 1 << 20
"""Size of one write of a flush, so that other writes come in between."""
GATHERED: Final = 256
"""Messages that are entered together."""
_CHAIN_MAX: Final = 1 << 16
"""Entries of one slot that a query looks at."""


def file_name(time_ms: int) -> str:
    """Return ``yyyyMMddHHmmssSSS`` of that time, by the calendar of Howard Hinnant's ``civil_from_days``."""
    days, of_day = divmod(time_ms, 86_400_000)
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    of_month = day - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    assert 1 <= month <= 12 and 1 <= of_month <= 31
    seconds, millis = divmod(of_day, 1000)
    return (f"{year + 400 * era + (month <= 2):04d}{month:02d}{of_month:02d}{seconds // 3600:02d}"
            f"{seconds // 60 % 60:02d}{seconds % 60:02d}{millis:03d}")


class IndexFile:
    """One file. ``name`` is its path."""

    def __init__(self, files: Files, name: str, slots: int, entries: int) -> None:
        self.name, self._slots, self._entries = name, slots, entries
        self._file: File = files.open(name, create=True)
        size = 40 + 4 * slots + _ENTRY.size * entries
        if self._file.size() != size:
            self._file.resize(size)
        (self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self._used,
         count) = _HEADER.unpack(self._file.pread(40, 0))
        self.count: int = min(max(count, 1), entries)
        self._written = self.count
        self.tail = bytearray()
        """Entries that no flush has begun with, and pages of slots with what has changed since."""
        self._pages: dict[int, array[int]] = {}
        self._flushing = bytearray()
        """Entries that the flush under way writes. Nobody changes them."""
        self._flushing_pages: dict[int, array[int]] = {}

    @property
    def room(self) -> int:
        """Number of entries that still fit in."""
        return self._entries - self.count

    @property
    def busy(self) -> bool:
        """A flush is under way."""
        return bool(self._flushing)

    def put(self, entries: Sequence[Entry]) -> None:
        """Add entries of messages, in their order; the file must have room for them."""
        assert 0 < len(entries) <= self.room, "there is room for all of them"
        slots, pages, first, count = self._slots, self._pages, self.count, self.count
        packed: list[bytes] = []
        add, pack, begin_ms, last_ms, seconds = packed.append, _ENTRY.pack, self.begin_ms, -1, 0
        if first == 1:
            _, self.begin_offset, begin_ms = entries[0]
            self.begin_ms = begin_ms
        for code, offset, time_ms in entries:
            if time_ms != last_ms:
                last_ms, seconds = time_ms, min(max((time_ms - begin_ms) // 1000, 0), 0x7FFFFFFF)
            slot = code % slots
            page = pages.get(slot // _PAGE_SLOTS)
            if page is None:
                page = pages[slot // _PAGE_SLOTS] = array("i", self._page(slot // _PAGE_SLOTS))
            at = slot % _PAGE_SLOTS
            before = page[at]
            if not 0 < before < count:
                before = self._counted(before) if before else 0
                self._used += before == 0
            page[at] = count
            add(pack(code, offset, seconds, before))
            count += 1
        self.tail += b"".join(packed)
        self.count = count
        assert len(self._flushing) + len(self.tail) == _ENTRY.size * (count - self._written), "the rest is on disk"
        self.end_ms, self.end_offset = entries[-1][2], entries[-1][1]

    def find(self, code: int, most: int, begin_ms: int, end_ms: int, log_end: int) -> list[int]:
        """Offsets below ``log_end`` of messages of that time whose key may have this hash, the newest first."""
        page, at = divmod(code % self._slots, _PAGE_SLOTS)
        found: list[int] = []
        number = self._counted(self._page(page)[at])
        for _ in range(_CHAIN_MAX):
            if number <= 0 or len(found) >= most:
                break
            entry_code, offset, seconds, before = self._entry(number)
            if entry_code == code and offset < log_end and begin_ms <= self.begin_ms + 1000 * seconds + 999 and (
                    self.begin_ms + 1000 * seconds <= end_ms):
                found.append(offset)
            number = before if before < number else 0
        return found

    def _page(self, number: int) -> array[int]:
        page = self._pages.get(number) or self._flushing_pages.get(number)
        if page is not None:
            return page
        at = number * _PAGE_BYTES
        return _big_endian(self._file.pread(min(_PAGE_BYTES, 4 * self._slots - at), 40 + at))

    def _counted(self, number: int) -> int:
        """The newest entry of a chain that the header counts: a crash may leave a slot ahead of it."""
        while number >= self.count:
            before = self._entry(number)[3] if number < self._entries else 0
            number = before if before < number else 0
        assert number < self.count
        return max(number, 0)

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        assert 0 < number < self._entries, "entry 0 ends each chain"
        if self._written <= number < self.count:
            at = _ENTRY.size * (number - self._written)
            if at < len(self._flushing):
                return _ENTRY.unpack_from(self._flushing, at)
            return _ENTRY.unpack_from(self.tail, at - len(self._flushing))
        return _ENTRY.unpack(self._file.pread(_ENTRY.size, 40 + 4 * self._slots + _ENTRY.size * number))

    def repair(self) -> None:
        """Set slots that a crashed flush left ahead of the header back to entries that the header counts.

        Else other entries would soon stand where they point."""
        assert not self.tail and not self._flushing, "nothing was put yet"
        for first in range(0, 4 * self._slots, _STEP_BYTES):
            slots = _big_endian(self._file.pread(min(_STEP_BYTES, 4 * self._slots - first), 40 + first))
            if max(slots) < self.count:
                continue
            for number, slot in enumerate(slots):
                if slot >= self.count:
                    page, at = divmod(first // 4 + number, _PAGE_SLOTS)
                    if page not in self._pages:
                        self._pages[page] = self._page(page)
                    self._pages[page][at] = self._counted(slot)

    # --- flushing --------------------------------------------------------------------------------------------

    def begin_flush(self) -> Iterator[None]:
        """Take the entries that are not flushed. The iterator writes and syncs them in steps, on another thread if need
        be. Call ``flushed`` or ``flush_failed`` before the next flush begins."""
        assert not self._flushing, "one flush at a time"
        self._flushing, self.tail = self.tail, bytearray()
        self._flushing_pages, self._pages = self._pages, {}
        header = _HEADER.pack(self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self._used, self.count)
        return self._steps(self._flushing, self._flushing_pages, self._written, header)

    def _steps(self, entries: bytearray, pages: dict[int, array[int]], first: int, header: bytes) -> Iterator[None]:
        if not entries:
            return
        assert len(entries) % _ENTRY.size == 0 and first >= 1, "entries are whole"
        for at in range(0, len(entries), _STEP_BYTES):
            self._file.pwrite(entries[at : at + _STEP_BYTES], 40 + 4 * self._slots + _ENTRY.size * first + at)
            yield
        self._file.sync()
        yield
        for run in _side_by_side(sorted(pages)):
            slots = b"".join([pages[number] for number in run])
            self._file.pwrite(_big_endian(slots).tobytes(), 40 + run[0] * _PAGE_BYTES)
            yield
        self._file.sync()
        yield
        self._file.pwrite(header, 0)
        self._file.sync()

    def flushed(self) -> None:
        self._written += len(self._flushing) // _ENTRY.size
        assert self._written + len(self.tail) // _ENTRY.size == self.count, "what is not on disk is here"
        self._flushing, self._flushing_pages = bytearray(), {}

    def flush_failed(self) -> None:
        """A flush failed: its entries belong to the next one."""
        self.tail[:0] = self._flushing
        self._pages = self._flushing_pages | self._pages
        assert self._written + len(self.tail) // _ENTRY.size == self.count, "what is not on disk is here"
        self._flushing, self._flushing_pages = bytearray(), {}

    def close(self) -> None:
        self._file.close()


def _big_endian(data: bytes) -> array[int]:
    """Turn numbers of the file into those of this machine, or back."""
    numbers = array("i", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _side_by_side(numbers: list[int]) -> Iterator[list[int]]:
    """Yield runs of consecutive numbers, not too long."""
    run: list[int] = []
    for number in numbers:
        if run and (number != run[-1] + 1 or len(run) * _PAGE_BYTES >= _STEP_BYTES):
            yield run
            run = []
        run.append(number)
    if run:
        yield run


class KeyIndex:
    """All index files of a store. ``open`` comes first."""

    def __init__(self, files: Files, *, slots: int = SLOTS, entries: int = ENTRIES) -> None:
        self._files, self._slots, self._entries = files, slots, entries
        self._hashes = KeyHashes()
        self._open: list[IndexFile] = []
        self.new_names = False
        """True: there are files that may be gone after a crash."""
        self._told = -1
        """Offset of the last message that was taken."""
        self._waiting: list[Outline] = []
        """Messages that were taken and are not entered yet: some hundred at once take half the time of a few."""

    def open(self, log_end: int, complete: int = 0, *, killed: bool = True) -> None:
        """Open the files. Messages from ``complete`` on will be told again.

        ``killed``: the last process did not close the index. If it did, and was a Java before 5.5, which does not say
        what is complete, the last message that is in decides."""
        for name in self._files.list(DIRECTORY):
            if name.isdecimal():
                self._open.append(IndexFile(self._files, f"{DIRECTORY}/{name}", self._slots, self._entries))
        for file in self._open[-2:] if killed else ():
            file.repair()
        self.new_names = killed and bool(self._open)
        if complete or killed:
            self._told = complete - 1
        elif self._open and self._open[-1].count > 1:
            self._told = self._open[-1].end_offset
        self.truncate(log_end)

    def truncate(self, log_end: int) -> None:
        """Do nothing to entries of messages that are gone: a query looks at the message."""
        self._told = min(self._told, log_end - 1)
        self._waiting = [found for found in self._waiting if found[0] < log_end]

    def take(self, run: Sequence[Outline]) -> None:
        """Take messages, whose keys are found from then on. Those that were taken before change nothing.

        Raises:
            OSError: as ``enter``. Tell them again.
        """
        if not run:
            return
        if len(self._waiting) >= GATHERED:
            self.enter()
        told = self._told
        self._waiting += run if run[0][0] > told else [found for found in run if found[0] > told]
        self._told = max(told, run[-1][0])

    def enter(self) -> None:
        """Enter what waits. A new file is named after the message's store time in UTC, as Java names its own.

        Raises:
            OSError: it cannot be made.
        """
        entries = self._hashes.of(self._waiting)
        while entries:
            last = self._open[-1] if self._open else None
            if last is None or not last.room:
                last = self._roll(entries[0][2])
            room = last.room
            last.put(entries[:room])
            entries = entries[room:]
        self._waiting = []

    def _roll(self, time_ms: int) -> IndexFile:
        name = file_name(time_ms)
        if self._open:
            name = max(name, f"{int(self._open[-1].name.rpartition('/')[2]) + 1:017d}")
        assert not self._open or self._open[-1].name < f"{DIRECTORY}/{name}", "by name the newest file is the last"
        file = IndexFile(self._files, f"{DIRECTORY}/{name}", self._slots, self._entries)
        self._open.append(file)
        self.new_names = True
        return file

    @property
    def unflushed_bytes(self) -> int:
        return len(self._open[-1].tail) if self._open else 0

    def find(self, key: str, most: int, begin_ms: int, end_ms: int, log_end: int = 1 << 62) -> list[int]:
        """Offsets of messages that may have ``topic#key`` (or ``topic#T#tag``), the newest first."""
        code, found = key_hash(key), list[int]()
        with suppress(OSError):  # what has no room is not found
            self.enter()
        for file in reversed(self._open):
            if len(found) < most and file.end_ms >= begin_ms and file.begin_ms <= end_ms:
                found += file.find(code, most - len(found), begin_ms, end_ms, log_end)
        return found

    def delete_before(self, offset: int) -> None:
        """Delete files that know only messages below ``offset`` of the log; the last one stays."""
        while len(self._open) > 1 and self._open[0].end_offset < offset and not self._open[0].busy:
            self._open[0].close()
            self._files.remove(self._open.pop(0).name)

    def clear(self) -> None:
        """Forget all files and their entries."""
        for file in self._open:
            file.close()
            self._files.remove(file.name)
        self._open, self._waiting, self._told = [], [], -1

    def begin_flush(self) -> IndexFlush:
        """Return a flush of all entries that are not on disk yet. Raises ``OSError`` as ``take``."""
        self.enter()
        new_names, self.new_names = self.new_names, False
        return IndexFlush(self, self._files, [(file, file.begin_flush()) for file in self._open if file.tail],
                          ("", DIRECTORY) if new_names else ())

    def flush(self) -> None:
        """Flush in this thread. Raises ``OSError``, after which it may be called again."""
        flush = self.begin_flush()
        try:
            for _ in flush.steps():
                pass
        except OSError:
            flush.failed()
            raise
        flush.done()

    def close(self) -> None:
        for file in self._open:
            file.close()
        self._open = []


@attrs.frozen
class IndexFlush:
    """A flush of the index: ``steps``, perhaps in another thread; then ``done`` or ``failed`` in the index's own."""

    _index: KeyIndex
    _files: Files
    _parts: list[tuple[IndexFile, Iterator[None]]]
    _folders: tuple[str, ...]

    def steps(self) -> Iterator[None]:
        """Write and sync, a step at a time. Raises ``OSError``."""
        for folder in self._folders:
            self._files.sync_dir(folder)
            yield
        for _, steps in self._parts:
            yield from steps

    def done(self) -> None:
        for file, _ in self._parts:
            file.flushed()

    def failed(self) -> None:
        self._index.new_names = self._index.new_names or bool(self._folders)
        for file, _ in self._parts:
            file.flush_failed()
