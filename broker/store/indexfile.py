"""The key index: which messages of a topic may have a key. Files as Java's: a header, slots of a hash table, entries.

An entry holds the hash of its key, so whoever asks must look at the message itself. Entries are gathered in memory and
written at a flush: entries, then slots, then the header that counts them, so a crash leaves chains that lead to whole
entries. It knows its files, and keys as text. Source: ``IndexFile`` and ``IndexService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from broker.store.consumequeue import java_hash
from broker.store.files import File, Files
from broker.store.record import ROLLBACK, Outline, property_of

DIRECTORY: Final = "index"
SLOTS: Final = 5_000_000
ENTRIES: Final = 20_000_000
_HEADER: Final = Struct(">qqqqii")
"""Store time of the first and the last message, their offsets, slots in use, entries with the first, unused, one."""
_ENTRY: Final = Struct(">iqii")
"""Hash, offset, seconds since the first message, entry before it in its slot."""
_SLOT: Final = Struct(">i")
_PAGE_BYTES: Final = 4096
_TAIL_BYTES_MAX: Final = 1 << 20
_CHAIN_MAX: Final = 1 << 16
"""Entries of one slot that a query looks at."""


def key_hash(key: str) -> int:
    code = abs(java_hash(key))
    return 0 if code == 1 << 31 else code


def keys_of(found: Outline) -> list[str]:
    """What a message is found by: its unique id, each of its keys, its tag. None for a rolled back one."""
    if found[4] & ROLLBACK == ROLLBACK:
        return []
    topic, properties = found[6].decode(), found[7]
    keys = []
    unique = property_of(properties, b"UNIQ_KEY")
    if unique:
        keys.append(f"{topic}#{unique.decode(errors='replace')}")
    for key in (property_of(properties, b"KEYS") or b"").split(b" "):
        if key:
            keys.append(f"{topic}#{key.decode(errors='replace')}")
    tags = property_of(properties, b"TAGS")
    if tags:
        keys.append(f"{topic}#T#{tags.decode(errors='replace')}")
    return keys


def file_name(time_ms: int) -> str:
    """``yyyyMMddHHmmssSSS``, by the calendar of Howard Hinnant's ``civil_from_days``."""
    days, of_day = divmod(time_ms, 86_400_000)
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    of_month = day - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
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
        self._tail = bytearray()
        self._pages: dict[int, bytearray] = {}

    @property
    def full(self) -> bool:
        return self.count >= self._entries

    def put(self, code: int, offset: int, time_ms: int) -> None:
        """An entry for a message; the file must not be full."""
        if self.count == 1:
            self.begin_ms, self.begin_offset = time_ms, offset
        at = code % self._slots * 4
        page = self._pages.get(at // _PAGE_BYTES)
        if page is None:
            page = self._pages[at // _PAGE_BYTES] = bytearray(
                self._file.pread(min(_PAGE_BYTES, 4 * self._slots - at // _PAGE_BYTES * _PAGE_BYTES),
                                 40 + at // _PAGE_BYTES * _PAGE_BYTES))
        before = self._counted(_SLOT.unpack_from(page, at % _PAGE_BYTES)[0])
        self._used += before == 0
        _SLOT.pack_into(page, at % _PAGE_BYTES, self.count)
        seconds = min(max((time_ms - self.begin_ms) // 1000, 0), 0x7FFFFFFF)
        self._tail += _ENTRY.pack(code, offset, seconds, before)
        self.count += 1
        self.end_ms, self.end_offset = time_ms, offset
        if len(self._tail) >= _TAIL_BYTES_MAX:
            self.flush()

    def find(self, code: int, most: int, begin_ms: int, end_ms: int, log_end: int) -> list[int]:
        """Offsets below ``log_end`` of messages of that time whose key may have this hash, the newest first."""
        at = code % self._slots * 4
        page = self._pages.get(at // _PAGE_BYTES)
        slot = self._file.pread(4, 40 + at) if page is None else page[at % _PAGE_BYTES : at % _PAGE_BYTES + 4]
        found: list[int] = []
        number = self._counted(_SLOT.unpack(slot)[0])
        for _ in range(_CHAIN_MAX):
            if number <= 0 or len(found) >= most:
                break
            entry_code, offset, seconds, before = self._entry(number)
            if entry_code == code and offset < log_end and begin_ms <= self.begin_ms + 1000 * seconds + 999 and (
                    self.begin_ms + 1000 * seconds <= end_ms):
                found.append(offset)
            number = before if before < number else 0
        return found

    def _counted(self, number: int) -> int:
        """The newest entry of a chain that the header counts: a crash may leave a slot ahead of it."""
        while number >= self.count:
            before = self._entry(number)[3] if number < self._entries else 0
            number = before if before < number else 0
        return max(number, 0)

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        if number >= self._written and self._tail and number < self.count:
            return _ENTRY.unpack_from(self._tail, _ENTRY.size * (number - self._written))
        return _ENTRY.unpack(self._file.pread(_ENTRY.size, 40 + 4 * self._slots + _ENTRY.size * number))

    def flush(self) -> None:
        """Raises ``OSError``."""
        if not self._tail:
            return
        self._file.pwrite(self._tail, 40 + 4 * self._slots + _ENTRY.size * self._written)
        self._file.sync()
        for number, page in self._pages.items():
            self._file.pwrite(page, 40 + number * _PAGE_BYTES)
        self._file.sync()
        self._file.pwrite(_HEADER.pack(self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self._used,
                                       self.count), 0)
        self._file.sync()
        self._written = self.count
        self._tail.clear()
        self._pages.clear()

    def close(self) -> None:
        self._file.close()


class KeyIndex:
    """All index files of a store. ``open`` comes first."""

    def __init__(self, files: Files, *, slots: int = SLOTS, entries: int = ENTRIES) -> None:
        self._files, self._slots, self._entries = files, slots, entries
        self._open: list[IndexFile] = []
        self._told = -1
        """Offset of the last message that is in."""

    def open(self, log_end: int) -> None:
        """Messages from ``log_end`` on will be told again."""
        for name in self._files.list(DIRECTORY):
            if name.isdecimal():
                self._open.append(IndexFile(self._files, f"{DIRECTORY}/{name}", self._slots, self._entries))
        if self._open and self._open[-1].count > 1:
            self._told = self._open[-1].end_offset
        self.truncate(log_end)

    def truncate(self, log_end: int) -> None:
        """Entries of messages that are gone stay: a query looks at the message."""
        self._told = min(self._told, log_end - 1)

    def add(self, found: Outline) -> None:
        """A new file, if it takes one, is named after the message's store time, in UTC, as Java names its own."""
        if found[0] <= self._told:
            return
        for key in keys_of(found):
            if not self._open or self._open[-1].full:
                name = file_name(found[5])
                if self._open:
                    self._open[-1].flush()
                    name = max(name, f"{int(self._open[-1].name.rpartition('/')[2]) + 1:017d}")
                self._open.append(IndexFile(self._files, f"{DIRECTORY}/{name}", self._slots, self._entries))
            self._open[-1].put(key_hash(key), found[0], found[5])
        self._told = found[0]

    def find(self, key: str, most: int, begin_ms: int, end_ms: int, log_end: int = 1 << 63) -> list[int]:
        """Offsets of messages that may have ``topic#key`` (or ``topic#T#tag``), the newest first."""
        code, found = key_hash(key), list[int]()
        for file in reversed(self._open):
            if len(found) < most and file.end_ms >= begin_ms and file.begin_ms <= end_ms:
                found += file.find(code, most - len(found), begin_ms, end_ms, log_end)
        return found

    def delete_before(self, offset: int) -> None:
        """Delete files that know only messages below ``offset`` of the log; the last one stays."""
        while len(self._open) > 1 and self._open[0].end_offset < offset:
            self._open[0].close()
            self._files.remove(self._open.pop(0).name)

    def flush(self) -> None:
        """Raises ``OSError``."""
        if self._open:
            self._open[-1].flush()

    def close(self) -> None:
        for file in self._open:
            file.close()
        self._open = []
