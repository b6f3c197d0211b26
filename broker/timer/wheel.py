"""The timer wheel: for each slot, the places of its first and last unit in the timer log, and how many wait.

It is one file, in RocketMQ's format. A slot's number is its time divided by the precision. It stands at that number
modulo the size of the wheel, and stores it, so a slot from an earlier turn of the wheel counts as empty. Pages are read
on demand, kept while they hold pending slots, and written at a flush. One byte per slot says whether it is pending, so
the next pending slot is found quickly. It knows neither units nor clocks. Source: ``TimerWheel`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from broker.store.files import File, Files
from broker.timer.units import NONE, SLOT, SLOT_BYTES

PATH: Final = "timerwheel"
SLOTS: Final = 2 * 7 * 86_400
_PAGE_SLOTS: Final = 128
_PAGE_BYTES: Final = _PAGE_SLOTS * SLOT_BYTES
_EMPTY_PAGE: Final = bytes(_PAGE_BYTES)
_READ_PAGES: Final = 256
_WRITE_PAGES: Final = 256


@attrs.frozen
class Slot:
    """The content of a slot. Positions are of the timer log."""

    first: int = NONE
    last: int = NONE
    count: int = 0
    """Messages minus markers of the slot."""


EMPTY: Final = Slot()


class Wheel:
    """The file and its pending slots. Call ``open`` first. ``slot`` is a number: a time in units of the precision."""

    def __init__(self, files: Files, *, slots: int = SLOTS, path: str = PATH) -> None:
        self._files, self._path, self.slots = files, path, slots
        self._file: File | None = None
        self.new_name = self._unsynced = False
        """A crash may lose the file's name; a crash may lose its content, although no page is dirty."""
        self._pages: dict[int, bytearray] = {}
        self._dirty: set[int] = set()
        self._flushing: set[int] = set()
        """Pages that the flush in flight has not written yet."""
        self._pending = bytearray(slots)
        """1 for each pending slot."""
        self.pending_slots = 0
        self.begin = 0
        """Slots before this one are done."""
        self.count = 0
        """Messages minus markers of all pending slots."""

    # --- opening ---------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        return self._file is not None

    def open(self, begin: int, log_begin: int, log_end: int) -> str:
        """Read which slots are pending, from slot ``begin`` on. Units lie in ``log_begin`` to ``log_end``; a slot
        whose units are all before has only moved ones. Returns what is wrong with the file, or ""; a missing file is
        not wrong."""
        self.begin = begin
        if not self._files.exists(self._path):
            return ""
        self._file = self._files.open(self._path)
        self._unsynced = True  # the former process may have written it to the system's memory alone
        size, wanted = self._file.size(), self.slots * SLOT_BYTES
        if size != wanted:
            return f"{self._path} has {size} bytes, not {wanted}"
        for number, page in self._stored_pages():
            for at, (slot, first, last, count, _) in enumerate(SLOT.iter_unpack(page), number * _PAGE_SLOTS):
                if slot >= begin and last >= log_begin:
                    if slot >= begin + self.slots or slot % self.slots != at or not 0 <= first <= last < log_end:
                        return f"{self._path}: place {at} has slot {slot}, units {first} to {last}"
                    self._mark(at, count)
        return ""

    def _stored_pages(self) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each page that is not all zeros."""
        assert self._file is not None
        step = _READ_PAGES * _PAGE_BYTES
        for begin in range(0, self.slots * SLOT_BYTES, step):
            data = self._file.pread(min(step, self.slots * SLOT_BYTES - begin), begin, cached=False)
            for inside in range(0, len(data), _PAGE_BYTES):
                page = data[inside : inside + _PAGE_BYTES]
                if page != _EMPTY_PAGE[: len(page)]:
                    yield (begin + inside) // _PAGE_BYTES, page

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def clear(self) -> None:
        """Remove every slot, in memory and on disk. Raises ``OSError``."""
        self.close()
        self._files.remove(self._path)
        self._files.sync_dir("")
        self._pages.clear()
        self._dirty.clear()
        self._flushing.clear()
        self.new_name = self._unsynced = False
        self._pending = bytearray(self.slots)
        self.pending_slots = self.count = 0

    # --- slots -----------------------------------------------------------------------------------------------

    def get(self, slot: int) -> Slot:
        page, inside = self._page(slot)
        of, first, last, count, _ = SLOT.unpack_from(page, inside)
        return Slot(first, last, count) if of == slot and last >= 0 else EMPTY

    def last(self, slot: int) -> int:
        """Position of the slot's last unit; ``NONE``: it has none."""
        page, inside = self._page(slot)
        of, _, last, _, _ = SLOT.unpack_from(page, inside)
        return last if of == slot else NONE

    def add(self, slot: int, at: int, counted: int) -> None:
        """Append the unit at ``at`` of the timer log to a slot that is not done."""
        number, inside = divmod(slot % self.slots, _PAGE_SLOTS)
        page = self._pages.get(number)
        if page is None:
            page = self._load(number)
        inside *= SLOT_BYTES
        of, first, last, count, _ = SLOT.unpack_from(page, inside)
        if of != slot or last < 0 or not self._pending[slot % self.slots]:
            first, count = at, 0
        SLOT.pack_into(page, inside, slot, first, at, count + counted, 0)
        self._dirty.add(number)
        self._mark(slot % self.slots, counted)

    def lower(self, slot: int, last: int, counted: int) -> None:
        """Remove the slot's last unit, which added ``counted``: ``last`` is the last one now, or ``NONE``."""
        page, inside = self._page(slot)
        of, first, _, count, _ = SLOT.unpack_from(page, inside)
        if of != slot:
            return
        is_empty = last < first or last < 0
        if is_empty:
            page[inside : inside + SLOT_BYTES] = bytes(SLOT_BYTES)
        else:
            SLOT.pack_into(page, inside, slot, first, last, count - counted, 0)
        self._dirty.add(slot % self.slots // _PAGE_SLOTS)
        if slot >= self.begin:
            self.count -= count if is_empty else counted
            if is_empty:
                self._unmark(slot % self.slots)

    def uncount(self, slot: int, counted: int) -> None:
        """A unit of the slot, which added ``counted``, is void now."""
        page, inside = self._page(slot)
        of, first, last, count, _ = SLOT.unpack_from(page, inside)
        if of == slot:
            SLOT.pack_into(page, inside, slot, first, last, count - counted, 0)
            self._dirty.add(slot % self.slots // _PAGE_SLOTS)
            if slot >= self.begin:
                self.count -= counted

    def _page(self, slot: int) -> tuple[bytearray, int]:
        number, at = divmod(slot % self.slots, _PAGE_SLOTS)
        page = self._pages.get(number)
        return self._load(number) if page is None else page, at * SLOT_BYTES

    def _load(self, number: int) -> bytearray:
        size = min(_PAGE_BYTES, self.slots * SLOT_BYTES - number * _PAGE_BYTES)
        raw = b"" if self._file is None else self._file.pread(size, number * _PAGE_BYTES)
        page = self._pages[number] = bytearray(raw.ljust(size, b"\0"))
        return page

    def _mark(self, at: int, counted: int) -> None:
        self.count += counted
        if not self._pending[at]:
            self._pending[at] = 1
            self.pending_slots += 1

    def _unmark(self, at: int) -> None:
        if self._pending[at]:
            self._pending[at] = 0
            self.pending_slots -= 1

    # --- slots -----------------------------------------------------------------------------------------------

    def next(self, first: int = 0) -> int | None:
        """The first pending slot from ``first`` on; None: there is none."""
        if not self.pending_slots or first >= self.begin + self.slots:
            return None
        here = self.begin % self.slots
        base = self.begin - here
        at = max(first, self.begin) - base
        if at < self.slots:
            if (found := self._pending.find(1, at)) >= 0:
                return base + found
            at = self.slots
        found = self._pending.find(1, at - self.slots, here)
        return base + self.slots + found if found >= 0 else None

    def count_between(self, first: int, end: int) -> int:
        """Sum of the counts of slots in ``first`` to ``end`` (exclusive)."""
        total, slot, end = 0, max(first, self.begin), min(end, self.begin + self.slots)
        while slot < end:
            at = slot % self.slots
            many = min(end - slot, _PAGE_SLOTS - at % _PAGE_SLOTS, self.slots - at)
            if self._pending.find(1, at, at + many) >= 0:
                page, inside = self._page(slot)
                slots = SLOT.iter_unpack(memoryview(page)[inside : inside + many * SLOT_BYTES])
                total += sum(count for pending, (_, _, _, count, _) in zip(
                    self._pending[at : at + many], slots, strict=True) if pending)
            slot += many
        return total

    def all_pending(self) -> Iterator[int]:
        """All pending slots in ascending order."""
        here = self.begin % self.slots
        for low, high, front in ((here, self.slots, 0), (0, here, self.slots)):
            at = self._pending.find(1, low, high)
            while at >= 0:
                yield self.begin - here + front + at
                at = self._pending.find(1, at + 1, high)

    def pass_to(self, begin: int) -> None:
        """Slots before ``begin`` are done now."""
        while (slot := self.next()) is not None and slot < begin:
            self.count -= self.get(slot).count
            self._unmark(slot % self.slots)
        if begin > self.begin:
            page = self.begin % self.slots // _PAGE_SLOTS
            self.begin = begin
            if page != begin % self.slots // _PAGE_SLOTS:
                self._forget_pages()

    def _forget_pages(self) -> None:
        """Drop pages from memory whose slots are done and on disk."""
        for number in self._pages.keys() - self._dirty - self._flushing:
            if self._pending.find(1, number * _PAGE_SLOTS, (number + 1) * _PAGE_SLOTS) < 0:
                del self._pages[number]

    # --- flushing --------------------------------------------------------------------------------------------

    def begin_flush(self) -> dict[int, bytes]:
        """Copies of the pages that have changed, by number."""
        self._flushing, self._dirty = self._dirty, set()
        return {number: bytes(self._pages[number]) for number in sorted(self._flushing)}

    def ready(self) -> File:
        """The wheel's file, created before its first write. Raises ``OSError``."""
        if self._file is None:
            self.new_name = True
            self._file = self._files.open(self._path, create=True)
        if self._file.size() != self.slots * SLOT_BYTES:
            self._file.resize(self.slots * SLOT_BYTES)
        return self._file

    def flushed(self) -> None:
        """The pages of ``begin_flush`` are on disk."""
        self._flushing.clear()
        self.new_name = self._unsynced = False
        self._forget_pages()

    def flush_failed(self) -> None:
        self._dirty |= self._flushing
        self._flushing.clear()

    @property
    def is_unflushed(self) -> bool:
        return bool(self._dirty) or self._unsynced


def write_pages(file: File, pages: Mapping[int, bytes]) -> Iterator[None]:
    """Write pages, adjacent ones at once, perhaps in another thread. Raises ``OSError``."""
    numbers = sorted(pages)
    while numbers:
        count = 1
        while count < min(len(numbers), _WRITE_PAGES) and numbers[count] == numbers[0] + count:
            count += 1
        file.pwrite(b"".join([pages[number] for number in numbers[:count]]), numbers[0] * _PAGE_BYTES)
        del numbers[:count]
        yield
