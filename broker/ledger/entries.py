"""Entries of the ledger: their format, and the table that keeps the last entry of each thing.

A thing is, for example, the offset of a group in a queue. Entries are ordered by term, then by number. A term is the
time by the writer's clock, and larger than all that the writer knows. So of two slaves that acted in turn the later
entry wins, whether they heard of each other or not, if their clocks differ by less than the time in between. The bytes
are the same in the file and on the wire (docs/reference/acting.md). No I/O.
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
"""CRC-32C of all bytes after it, size of the entry, term, number, kind, queue, value."""
_REST: Final = Struct(">IqqBiq")
_CRC_BYTES: Final = 4
SIZE_MAX: Final = 4_096
STALE_MAX: Final = 1_000
"""Replaced entries that may stay in memory, beyond as many as there are valid ones."""


class Subject(enum.IntEnum):
    """The kind of thing that an entry is about."""

    END = 0
    """No thing: the entry keeps the last mark when others are dropped."""
    OFFSET = 1
    """``name`` is ``topic@group``, ``value`` the offset in ``queue``."""
    LEVEL = 2
    """``queue`` is a delay level, ``value`` the next position in its queue."""
    TIMERS = 3
    """Every timer that was due before ``value`` ms is delivered, if its message stands below the offset ``name`` of
    the log; "": wherever it stands, as former versions say."""
    DECIDED = 4
    """The half at ``name``, an offset of the log, is committed (``value`` 1) or rolled back (0)."""
    ACKED = 5
    """A message of a checkpoint of the master's is acknowledged: ``name`` as in ``broker.abroad.tickets.Acked``."""
    HELD_TIMERS = 6
    """As ``TIMERS``, of a slave whose log begins above 0: ``name`` is two offsets, "from-below"."""
    KEPT = 7
    """No thing: kinds ``OF_TABLES`` up to this mark count no more. In the file alone."""
    GAP = 8
    """A group was sent over what its slave never had: ``name`` is ``begin@topic@group``, where ``begin`` is where
    ``queue`` begins at that slave, ``value`` the offset that the group wanted."""


OF_TABLES: Final = (Subject.OFFSET, Subject.LEVEL, Subject.GAP)
"""Kinds that tables of the master hold."""
OF_TIMERS: Final = (Subject.TIMERS, Subject.HELD_TIMERS)
LASTING: Final = (Subject.DECIDED, Subject.ACKED)
"""Kinds that no table of a master holds: they are forgotten only when its log has them."""


class Mark(NamedTuple):
    """An entry's place in the order of all entries."""

    term: int = 0
    number: int = 0


FIRST: Final = Mark()


class Thing(NamedTuple):
    """The subject of an entry; the last entry about it counts."""

    kind: int
    name: str
    queue: int


@attrs.frozen
class Entry:
    """A new value of one thing."""

    mark: Mark
    thing: Thing
    value: int

    def to_bytes(self) -> bytes:
        name = self.thing.name.encode()
        raw = _REST.pack(_HEAD.size + len(name), *self.mark, self.thing.kind, self.thing.queue, self.value) + name
        crc: int = crc32c(raw)
        return crc.to_bytes(_CRC_BYTES, "big") + raw


def decode(data: bytes) -> tuple[list[Entry], int]:
    """The entries before the first damaged one, and the position of that."""
    found: list[Entry] = []
    at = 0
    while at + _HEAD.size <= len(data):
        crc, size, term, number, kind, queue, value = _HEAD.unpack_from(data, at)
        if not _HEAD.size <= size <= min(SIZE_MAX, len(data) - at) or crc32c(data[at + _CRC_BYTES:at + size]) != crc:
            break
        if term < 0 or number < (kind not in (Subject.END, Subject.KEPT)):
            break  # no broker writes such a mark, and no question by mark would ever return it
        try:
            name = data[at + _HEAD.size:at + size].decode()
        except UnicodeDecodeError:
            break
        found.append(Entry(Mark(term, number), Thing(kind, name, queue), value))
        at += size
    return found, at


def is_place(name: str) -> bool:
    """Return whether a name is an offset of the log, as ``Subject.DECIDED`` has it."""
    return len(name) < 20 and name.isascii() and name.isdecimal()


class Ledger:
    """The last entry of each thing. Entries of unknown kinds are kept and passed on."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._last: dict[int, dict[Thing, Entry]] = {}
        """Last entries by kind and thing."""
        self._count = 0
        self._order: list[Entry] = []
        """All last entries and some replaced ones; in order of marks if ``_sorted``."""
        self._sorted = True
        self._at = self._kept = Mark()
        self._writes = False
        """True: this broker wrote the last entry in this life."""
        for entry in entries:
            self.take(entry)

    def __len__(self) -> int:
        return self._count

    @property
    def end(self) -> Mark:
        """Mark of the last entry that was ever here."""
        return self._at

    @property
    def kept(self) -> Mark:
        """Offsets and levels up to this mark are in the master's tables, or outdated."""
        return self._kept

    def note(self, thing: Thing, value: int, wall_ms: int = 0, since_ms: int = 0, *,
             again: bool = False) -> Entry | None:
        """Set a thing's value by a new entry, at that time of this broker's clock. None: it has this value already, in
        an entry of ``since_ms`` or later; another slave may have noted something else before. ``again``: it may have
        done so since, too, so that there always is a new entry."""
        known = self._known(thing)
        if not again and known is not None and known.value == value and known.mark.term >= since_ms:
            return None
        term, number = self._at if self._writes else (self._at.term + 1, 0)
        if wall_ms > self._at.term:
            term, number = wall_ms, 0
        self._at, self._writes = Mark(term, number + 1), True
        entry = Entry(self._at, thing, value)
        self._keep(entry)
        return entry

    def take(self, entry: Entry) -> bool:
        """Take an entry of a file or of another broker. False: a later one of this thing is here, or was kept."""
        if entry.mark > self._at:
            self._at, self._writes = entry.mark, False
        if entry.thing.kind == Subject.KEPT:
            self.keeps(entry.mark)
        if entry.thing.kind in (Subject.END, Subject.KEPT) or self._is_kept(entry):
            return False
        known = self._known(entry.thing)
        if known is not None and (known.mark, known.value) >= (entry.mark, entry.value):
            return False
        self._keep(entry)
        return True

    def keeps(self, upto: Mark) -> bool:
        """Let offsets and levels up to ``upto`` go, and take none of them again. False: that was so before."""
        if upto <= self._kept:
            return False
        self._kept = upto
        if upto > self._at:
            self._at, self._writes = upto, False
        for entry in [entry for entry in self.of(*OF_TABLES) if self._is_kept(entry)]:
            self.drop(entry.thing)
        return True

    def forget(self, upto: Mark, but: Collection[int] = ()) -> int:
        """Drop entries up to ``upto``, except kinds ``but``. Returns how many were dropped."""
        gone = [thing for kind, last in self._last.items() if kind not in but
                for thing, entry in last.items() if entry.mark <= upto]
        for thing in gone:
            self.drop(thing)
        return len(gone)

    def drop(self, thing: Thing) -> None:
        """Drop the entry of this thing, which is kept elsewhere now."""
        if self._last.get(thing.kind, {}).pop(thing, None) is not None:
            self._count -= 1
            self._tidy()

    def of(self, *kinds: int) -> Iterator[Entry]:
        """The last entries of these kinds. The ledger must not change during the iteration."""
        return chain.from_iterable(self._last[kind].values() for kind in kinds if kind in self._last)

    def get(self, thing: Thing) -> int | None:
        entry = self._known(thing)
        return None if entry is None else entry.value

    def whole(self) -> Iterator[Entry]:
        """All entries for the file, with those at the end that keep marks."""
        yield from self.after()
        if self._kept > FIRST:
            yield Entry(self._kept, Thing(Subject.KEPT, "", 0), 0)
        yield Entry(self._at, Thing(Subject.END, "", 0), 0)

    def after(self, mark: Mark = FIRST) -> Iterator[Entry]:
        """Last entries after ``mark``, in the order of marks."""
        if not self._sorted:
            self._order.sort(key=attrgetter("mark"))
            self._sorted = True
        first = bisect_right(self._order, mark, key=attrgetter("mark"))
        return (entry for entry in islice(self._order, first, None) if self._known(entry.thing) is entry)

    def _is_kept(self, entry: Entry) -> bool:
        return entry.thing.kind in OF_TABLES and entry.mark <= self._kept

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
