"""Entries of the acting ledger: what a slave learned while it acted for its master, byte by byte.

Of each thing, such as the offset of a group in a queue, the last entry counts. Entries are ordered by terms, then by
their number. Who writes one after it heard of another broker's, or began anew, begins a term behind all that it knows.
The bytes are the same in the file and on the wire (docs/reference/acting.md). No I/O.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

import attrs
from google_crc32c import value as crc32c

_HEAD: Final = Struct(">IIqqBiq")
"""CRC-32C of all behind it, size of all, term, number, kind, queue, value."""
_REST: Final = Struct(">IqqBiq")
_CRC_BYTES: Final = 4
SIZE_MAX: Final = 4_096
STALE_MAX: Final = 1_000
"""Entries that count no more, beyond as many as do, that stay in memory."""


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


LASTING: Final = (Subject.DECIDED, Subject.ACKED)
"""What no table of a master has: its log must say so before it is forgotten."""


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
        raw = _REST.pack(_HEAD.size + len(name), *self.mark, self.thing.kind, self.thing.queue, self.value) + name
        crc: int = crc32c(raw)
        return crc.to_bytes(_CRC_BYTES, "big") + raw


def decode(data: bytes) -> tuple[list[Entry], int]:
    """The entries up to the first that is not whole, and where that begins."""
    found: list[Entry] = []
    at = 0
    while at + _HEAD.size <= len(data):
        crc, size, term, number, kind, queue, value = _HEAD.unpack_from(data, at)
        if not _HEAD.size <= size <= min(SIZE_MAX, len(data) - at) or crc32c(data[at + _CRC_BYTES:at + size]) != crc:
            break
        if term < 0 or number < (kind != Subject.END):
            break  # nobody writes that, and it would stand in front of all that others ask for
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
        self._last: dict[int, dict[Thing, Entry]] = {}
        """By kind."""
        self._count = 0
        self._order: list[Entry] = []
        """All of them and some that count no more, in their order where ``_sorted`` says so."""
        self._sorted = True
        self._at = Mark()
        self._writes = False
        """The last entry is this broker's own, of this life."""
        for entry in entries:
            self.take(entry)

    def __len__(self) -> int:
        return self._count

    @property
    def end(self) -> Mark:
        """Of the last entry that ever was here."""
        return self._at

    def note(self, thing: Thing, value: int) -> Entry | None:
        """It is so from now on; None: it was known."""
        known = self._known(thing)
        if known is not None and known.value == value:
            return None
        term, number = self._at if self._writes else (self._at.term + 1, 0)
        self._at, self._writes = Mark(term, number + 1), True
        entry = Entry(self._at, thing, value)
        self._keep(entry)
        return entry

    def take(self, entry: Entry) -> bool:
        """One that this broker, or another, wrote. False: of that thing a later one is here."""
        if entry.mark > self._at:
            self._at, self._writes = entry.mark, False
        if entry.thing.kind == Subject.END:
            return False
        known = self._known(entry.thing)
        if known is not None and known.mark >= entry.mark:
            return False
        self._keep(entry)
        return True

    def forget(self, upto: Mark, but: Collection[int] = ()) -> int:
        """Entries up to there are kept elsewhere, but for those of some kinds; returns how many went."""
        gone = [thing for kind, last in self._last.items() if kind not in but
                for thing, entry in last.items() if entry.mark <= upto]
        for thing in gone:
            self.drop(thing)
        return len(gone)

    def drop(self, thing: Thing) -> None:
        """It is kept elsewhere from now on."""
        if self._last.get(thing.kind, {}).pop(thing, None) is not None:
            self._count -= 1
            self._tidy()

    def of(self, *kinds: int) -> Iterator[Entry]:
        """The entries of these kinds. Nothing may be noted, taken or dropped until all are looked at."""
        return chain.from_iterable(self._last[kind].values() for kind in kinds if kind in self._last)

    def get(self, thing: Thing) -> int | None:
        entry = self._known(thing)
        return None if entry is None else entry.value

    def whole(self) -> Iterator[Entry]:
        """All that is to be on disk: the last mark outlives the entries that went."""
        yield from self.after()
        yield Entry(self._at, Thing(Subject.END, "", 0), 0)

    def after(self, mark: Mark = FIRST) -> Iterator[Entry]:
        """Entries behind it, in their order."""
        if not self._sorted:
            self._order.sort(key=attrgetter("mark"))
            self._sorted = True
        first = bisect_right(self._order, mark, key=attrgetter("mark"))
        return (entry for entry in islice(self._order, first, None) if self._known(entry.thing) is entry)

    def _known(self, thing: Thing) -> Entry | None:
        return self._last.get(thing.kind, {}).get(thing)

    def _keep(self, entry: Entry) -> None:
        last = self._last.setdefault(entry.thing.kind, {})
        self._count += entry.thing not in last
        last[entry.thing] = entry
        self._sorted = self._sorted and (not self._order or self._order[-1].mark < entry.mark)
        self._order.append(entry)
        self._tidy()

    def _tidy(self) -> None:
        if len(self._order) > 2 * self._count + STALE_MAX:
            self._order = [entry for entry in self._order if self._known(entry.thing) is entry]
