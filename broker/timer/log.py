"""The timer log: one unit of 52 bytes for each message that was put into the wheel, in files of equal size.

Units are buffered; ``write`` hands them to the operating system. A file without room for a unit and a blank ends with a
blank. Units stand in the order of the timers' queue, which is that of the commit log. This module knows positions,
neither slots nor clocks.
Source: ``TimerLog`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from broker.store.files import File, Files
from broker.timer import units
from broker.timer.units import BLANK_BYTES, NONE, UNIT, UNIT_BYTES, Fields

FOLDER: Final = "timerlog"
FILE_BYTES: Final = 100 << 20
_GATHERED_BYTES: Final = 64 << 10
_READ_UNITS: Final = 4_096


class TimerLog:
    """The files of the timer log. Positions count bytes from the first unit ever written. Call ``open`` first."""

    def __init__(self, files: Files, *, file_bytes: int = FILE_BYTES, folder: str = FOLDER) -> None:
        self._files, self._folder, self.file_bytes = files, folder, file_bytes
        self._full = (file_bytes - BLANK_BYTES) // UNIT_BYTES * UNIT_BYTES
        """Bytes of a file that hold units."""
        assert self._full
        self.begin = self.end = 0
        """Positions of the first unit and of the next one; ``end`` may also be the end of a file."""
        self._written = 0
        self._tail = bytearray()
        """Bytes from ``_written`` on, not handed to the system yet."""
        self._open: list[File] = []
        self._dirty: set[int] = set()
        """Bases of files that have changed since the last sync."""
        self.new_names = False

    # --- opening ---------------------------------------------------------------------------------------------

    def open(self, sure: int) -> str:
        """Open the files; all below ``sure`` was flushed before. Returns what is wrong with them, or "". Call
        ``find_end`` next."""
        names = [name for name in self._files.list(self._folder) if len(name) == 20 and name.isdecimal()]
        expected = self.begin = min(int(names[0]), sure - sure % self.file_bytes) if names else 0
        for name in names:
            base, file = int(name), self._files.open(f"{self._folder}/{name}")
            self._open.append(file)
            size = file.size()
            if size > self.file_bytes or base + size < min(sure, base + self.file_bytes) or base % self.file_bytes:
                return f"{self._folder}/{name} has {size} bytes, not mappedFileSizeTimerLog, {self.file_bytes}"
            if base != expected and base < sure:
                return f"{self._folder}/{expected:020d} is not there"
            if base != expected:  # a crash lost a file before it
                self._open.pop().close()
                self._remove(base)
                continue
            if size < self.file_bytes:  # the process died before it got its size
                file.resize(self.file_bytes)
            expected += self.file_bytes
        self.end = self._written = self.begin + len(self._open) * self.file_bytes
        return ""

    def find_end(self, sure: int) -> None:
        """Set ``end`` to the first position from ``sure`` on that holds no whole unit, and fill the rest with zeros.
        Raises ``OSError``."""
        end = min(max(self.begin, sure), self.end)
        for at, fields in self.scan(end):
            if not units.is_whole(fields, at):
                break
            end = at + UNIT_BYTES
        self._cut(end)
        self._dirty |= {self.begin + number * self.file_bytes for number in range(len(self._open))}
        self.new_names = True  # kinds of older units may have changed in the system's memory alone, too

    def close(self) -> None:
        for file in self._open:
            file.close()
        self._open = []

    def clear(self) -> None:
        """Delete all files, the last one first, so that a crash leaves no gap. Raises ``OSError``."""
        self.close()
        for name in reversed(self._files.list(self._folder)):
            if name.isdecimal():
                self._remove(int(name))
        self._tail.clear()
        self._dirty.clear()
        self.begin = self.end = self._written = 0

    # --- writing ---------------------------------------------------------------------------------------------

    def make_room(self) -> int:
        """The position of the next unit; ``append`` cannot fail after this. Raises ``OSError``: the buffer cannot be
        written."""
        if len(self._tail) >= _GATHERED_BYTES:
            self.write()
        inside = self.end % self.file_bytes
        return self.end + self.file_bytes - inside if inside >= self._full else self.end

    def append(self, unit: bytes, at: int) -> None:
        """Append a unit at the position that ``make_room`` returned."""
        if at != self.end:
            self._tail += units.blank(at - self.end)
        self._tail += unit
        self.end = at + UNIT_BYTES

    def write(self) -> None:
        """Hand the buffer to the system. Raises ``OSError``; the buffer keeps what was not written."""
        while self._tail:
            number, inside = divmod(self._written - self.begin, self.file_bytes)
            if number == len(self._open):
                file = self._files.open(self._name(self._written - inside), create=True)
                file.resize(self.file_bytes)
                self._open.append(file)
                self.new_names = True
            part = self._tail[: self.file_bytes - inside]
            self._open[number].pwrite(part, inside)
            self._dirty.add(self._written - inside)
            self._written += len(part)
            del self._tail[: len(part)]

    def set_kind(self, at: int, kind: int) -> None:
        """Overwrite the kind of the unit at ``at``. Raises ``OSError``."""
        raw = kind.to_bytes(4, "big")
        if at >= self._written:
            inside = at - self._written + 12
            self._tail[inside : inside + 4] = raw
        else:
            file, inside = self._file_of(at)
            file.pwrite(raw, inside + 12)
            self._dirty.add(at - inside)

    def to_sync(self) -> tuple[dict[int, File], list[str]]:
        """Files by base, and folders, that changed since the last call. Raises ``OSError``."""
        self.write()
        files = {base: self._file_of(base)[0] for base in sorted(self._dirty)}
        folders = ["", self._folder] if self.new_names and self._open else []
        self._dirty.clear()
        self.new_names = False
        return files, folders

    def not_synced(self, bases: set[int], *, names: bool) -> None:
        """A flush failed: its files and names must be synced by the next one."""
        self._dirty |= {base for base in bases if self.begin <= base < self._written}
        self.new_names |= names

    def cut(self, at: int) -> None:
        """Remove units from ``at`` on. After the return no crash brings them back. Raises ``OSError``."""
        if at < self.end:
            self._cut(at)

    def _cut(self, at: int) -> None:
        self.end = at
        if at >= self._written:
            del self._tail[at - self._written :]
            return
        self._tail.clear()
        self._written = at
        while self._open and self._last_base >= at:
            self._dirty.discard(self._last_base)
            base = self._last_base
            self._open.pop().close()
            self._remove(base)
        if self._open:
            self._open[-1].resize(at - self._last_base)
            self._open[-1].resize(self.file_bytes)
            self._open[-1].sync()

    def last_of_first(self) -> Fields | None:
        """The last unit of the first file; None: it is the only file."""
        return self.read(self.begin + self._full - UNIT_BYTES) if len(self._open) > 1 else None

    def drop_first(self) -> None:
        """Delete the first file, which is not the last one. Raises ``OSError``."""
        self._dirty.discard(self.begin)
        self._open.pop(0).close()
        self._remove(self.begin)
        self.begin += self.file_bytes

    @property
    def is_unsynced(self) -> bool:
        return bool(self._tail or self._dirty or (self.new_names and self._open))

    @property
    def _last_base(self) -> int:
        return self.begin + (len(self._open) - 1) * self.file_bytes

    def _remove(self, base: int) -> None:
        self._files.remove(self._name(base))
        self._files.sync_dir(self._folder)  # or a crash might leave a gap, or bring it back under a new file's name

    def _name(self, base: int) -> str:
        return f"{self._folder}/{base:020d}"

    def _file_of(self, at: int) -> tuple[File, int]:
        number, inside = divmod(at - self.begin, self.file_bytes)
        return self._open[number], inside

    # --- reading ---------------------------------------------------------------------------------------------

    def is_place(self, at: int) -> bool:
        """Return whether the log may end at this position."""
        inside = at % self.file_bytes
        return self.begin <= at <= self.end and (inside >= self._full or inside % UNIT_BYTES == 0)

    def holds(self, at: int) -> bool:
        """Return whether a unit may stand at this position."""
        inside = at % self.file_bytes
        return self.begin <= at < self.end and inside < self._full and inside % UNIT_BYTES == 0

    def read(self, at: int) -> Fields:
        """The fields of the unit at ``at``, for which ``holds`` must be true."""
        return UNIT.unpack(self._bytes(at, UNIT_BYTES))

    def before(self, at: int, most: int) -> tuple[bytes, int]:
        """Bytes of the unit at ``at`` and of up to ``most`` - 1 before it, and the position of the first one."""
        begin = max(at - (most - 1) * UNIT_BYTES, at - at % self.file_bytes)
        return self._bytes(begin, at + UNIT_BYTES - begin), begin

    def run(self, at: int, most: int) -> bytes:
        """Bytes of up to ``most`` units from ``at`` on, all in one file."""
        size = min(most * UNIT_BYTES, self._full - at % self.file_bytes, self.end - at)
        return self._bytes(at, size)

    def backward(self, upto: int = 0) -> Iterator[tuple[int, Fields]]:
        """Each unit with its position, the last one first, down to ``upto``."""
        at = self.last()
        while at >= max(upto, self.begin):
            data, begin = self.before(at, _READ_UNITS)
            while at >= max(begin, upto):
                yield at, UNIT.unpack_from(data, at - begin)
                at -= UNIT_BYTES
            if at < begin and begin % self.file_bytes == 0:
                at = begin - self.file_bytes + self._full - UNIT_BYTES

    def scan(self, at: int, upto: int | None = None) -> Iterator[tuple[int, Fields]]:
        """Each unit from ``at`` on with its position, whole or not."""
        upto = self.end if upto is None else min(upto, self.end)
        while at < upto:
            inside = at % self.file_bytes
            if inside >= self._full:
                at += self.file_bytes - inside
                continue
            size = min(self._full - inside, upto - at, _READ_UNITS * UNIT_BYTES) // UNIT_BYTES * UNIT_BYTES
            if not size:
                return
            for fields in UNIT.iter_unpack(self._bytes(at, size)):
                yield at, fields
                at += UNIT_BYTES

    def last(self, upto: int | None = None) -> int:
        """Position of the last unit, of the log or before ``upto``; ``NONE``: there is none."""
        upto = self.end if upto is None else upto
        if upto <= self.begin:
            return NONE
        inside = (upto - 1) % self.file_bytes + 1
        return upto - inside + min(inside, self._full) - UNIT_BYTES

    def some(self, most: int, upto: int) -> Iterator[int]:
        """Positions of up to ``most`` evenly spread units before ``upto``, the last one among them."""
        count = self._count(upto)
        for number in range(count - 1, -1, -max(1, -(-count // most))):
            yield self._place(number)

    def find(self, offset: int) -> int | None:
        """Position of the unit whose message is at ``offset`` of the commit log; None: there is none."""
        count = self._count(self.end)
        number = bisect_left(range(count), offset, key=lambda number: self.read(self._place(number))[5])
        at = self._place(number)
        return at if number < count and self.read(at)[5] == offset else None

    def _count(self, upto: int) -> int:
        """Number of units before ``upto``."""
        last = self.last(upto)
        if last < 0:
            return 0
        number, inside = divmod(last - self.begin, self.file_bytes)
        return number * (self._full // UNIT_BYTES) + inside // UNIT_BYTES + 1

    def _place(self, number: int) -> int:
        file, inside = divmod(number, self._full // UNIT_BYTES)
        return self.begin + file * self.file_bytes + inside * UNIT_BYTES

    def _bytes(self, at: int, size: int) -> bytes:
        """Bytes of one file, written or still in the buffer."""
        written = self._written
        if at >= written:
            return bytes(self._tail[at - written : at - written + size])
        file, inside = self._file_of(at)
        if at + size <= written:
            return file.pread(size, inside)
        return file.pread(written - at, inside) + bytes(self._tail[: at + size - written])
