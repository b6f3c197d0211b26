"""Entries of the acting ledger: what a slave learned while it acted for its master, byte by byte.

Of each thing, such as the offset of a group in a queue, the last entry counts. Entries are ordered by terms, then by
their number. Who writes one after it heard of another broker's, or began anew, begins a term behind all that it knows.
The bytes are the same in the file and on the wire (docs/reference/acting.md). No I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

import attrs
from google_crc32c import value as crc32c

_HEAD: Final = Struct(">IIqqBiq")
"""CRC-32C of all behind it, size of all, term, number, kind, queue, value."""
_CRC_BYTES: Final = 4
SIZE_MAX: Final = 4_096


class Subject(enum.IntEnum):
    """What an entry is of."""

    END = 0
    """Nothing; its mark is the last that there was."""
    OFFSET = 1
    """``name`` is ``topic@group``, ``value`` the offset in ``queue``."""
    LEVEL = 2
    """``queue`` is a delay level, ``value`` the next position in its queue."""
    TIMERS = 3
    """Every timer that was due before ``value`` ms is delivered."""
    DECIDED = 4
    """The half at ``name``, an offset of the log, is committed (``value`` 1) or rolled back (0)."""
    ACKED = 5
    """A message of the master's that was popped is done with: ``name`` as in ``broker.abroad.tickets.Acked``."""


class Mark(NamedTuple):
    """A place in the order of all entries."""

    term: int = 0
    number: int = 0


FIRST: Final = Mark()


class Thing(NamedTuple):
    """What entries are of, of which the last counts."""

    kind: int
    name: str
    queue: int


@attrs.frozen
class Entry:
    """One thing that became known."""

    mark: Mark
    thing: Thing
    value: int

    def to_bytes(self) -> bytes:
        name = self.thing.name.encode()
        raw = _HEAD.pack(0, _HEAD.size + len(name), *self.mark, self.thing.kind, self.thing.queue, self.value) + name
        crc: int = crc32c(raw[_CRC_BYTES:])
        return crc.to_bytes(_CRC_BYTES, "big") + raw[_CRC_BYTES:]


def decode(data: bytes) -> tuple[list[Entry], int]:
    """The entries up to the first that is not whole, and where that begins."""
    found: list[Entry] = []
    at = 0
    while at + _HEAD.size <= len(data):
        crc, size, term, number, kind, queue, value = _HEAD.unpack_from(data, at)
        if not _HEAD.size <= size <= min(SIZE_MAX, len(data) - at) or crc32c(data[at + _CRC_BYTES:at + size]) != crc:
            break
        try:
            name = data[at + _HEAD.size:at + size].decode()
        except UnicodeDecodeError:
            break
        found.append(Entry(Mark(term, number), Thing(kind, name, queue), value))
        at += size
    return found, at


class Ledger:
    """The last entry of each thing. Kinds that are not known here are kept and passed on, too."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._last: dict[Thing, Entry] = {}
        self._at = Mark()
        self._writes = False
        """The last entry is this broker's own, of this life."""
        for entry in entries:
            self.take(entry)

    def __len__(self) -> int:
        return len(self._last)

    @property
    def end(self) -> Mark:
        """Of the last entry that ever was here."""
        return self._at

    def note(self, thing: Thing, value: int) -> Entry | None:
        """It is so from now on; None: it was known."""
        known = self._last.get(thing)
        if known is not None and known.value == value:
            return None
        term, number = self._at if self._writes else (self._at.term + 1, 0)
        self._at, self._writes = Mark(term, number + 1), True
        entry = self._last[thing] = Entry(self._at, thing, value)
        return entry

    def take(self, entry: Entry) -> bool:
        """One that this broker, or another, wrote. False: of that thing a later one is here."""
        if entry.mark > self._at:
            self._at, self._writes = entry.mark, False
        if entry.thing.kind == Subject.END:
            return False
        known = self._last.get(entry.thing)
        if known is not None and known.mark >= entry.mark:
            return False
        self._last[entry.thing] = entry
        return True

    def forget(self, upto: Mark) -> int:
        """Entries up to there are kept elsewhere; returns how many went."""
        gone = [thing for thing, entry in self._last.items() if entry.mark <= upto]
        for thing in gone:
            del self._last[thing]
        return len(gone)

    def drop(self, thing: Thing) -> None:
        """It is kept elsewhere from now on."""
        self._last.pop(thing, None)

    def of(self, kind: int) -> list[Entry]:
        """The entries of one kind."""
        return [entry for entry in self._last.values() if entry.thing.kind == kind]

    def get(self, thing: Thing) -> int | None:
        entry = self._last.get(thing)
        return None if entry is None else entry.value

    def whole(self) -> Iterator[Entry]:
        """All that is to be on disk: the last mark outlives the entries that went."""
        yield from self.after()
        yield Entry(self._at, Thing(Subject.END, "", 0), 0)

    def after(self, mark: Mark = FIRST) -> Iterator[Entry]:
        """Entries behind it, in their order."""
        if mark >= self._at:
            return iter(())
        return iter(sorted((entry for entry in self._last.values() if entry.mark > mark), key=lambda entry: entry.mark))
