"""Noted messages of the confirmed log, on every replica: each is handed on once, in order, from a given offset on.

Noted are committed messages, and those with ``NOTED`` in their system flag. Ordinary messages cost nothing. A listener
keeps ``offset`` together with what it made of them, and goes on there after a start: messages that were shown before
are read from the log, later ones are heard as they are shown. It knows the journal, and no message's meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.moments import Moment
from broker.store.log import Log
from broker.store.visible import Visible
from remoting.errors import DamagedRecord
from remoting.record import COMMIT, NOTED, PREPARED, Outline

_FLAGS: Final = COMMIT | NOTED
READ_BYTES: Final = 1 << 20
READS_MAX: Final = 16
"""Pieces of the log that one ``listen`` reads."""


class Confirmed(Protocol):
    """The parts of a journal that ``Noted`` uses."""

    @property
    def log(self) -> Log: ...

    @property
    def visible(self) -> Visible: ...

    @property
    def noted(self) -> Moment[[Outline]]: ...

    @property
    def was_cut(self) -> Moment[[int]]: ...


def is_noted(sys_flag: int) -> bool:
    """Return whether a message with this system flag is noted."""
    return not sys_flag & PREPARED and bool(sys_flag & _FLAGS)


def shows_all(journal: Confirmed, end: int) -> bool:
    """Return whether consumers see every message of the log below ``end``."""
    seen = journal.visible.offset
    return seen >= end or next(journal.log.scan(seen, end, check_crc=False), None) is None


class Noted:
    """Hands on noted messages: ``take`` gets each from ``offset`` on; ``cut`` gets the new end of a log that was
    cut."""

    def __init__(self, journal: Confirmed, offset: int, take: Callable[[Outline], None],
                 cut: Callable[[int], None] = lambda end: None, *, flags: int = _FLAGS) -> None:
        """``cut`` is called at once where the log ends below ``offset``: it was cut while nobody listened. ``flags``:
        one of ``COMMIT`` and ``NOTED``, if the other messages are of no interest."""
        self._flags = flags
        self._log, self._visible, self._take, self._cut_to = journal.log, journal.visible, take, cut
        self._at = offset
        """Everything below this offset was handed on."""
        self._live = self._deaf = False
        """``_live``: all that is shown was handed on. ``_deaf``: the rest cannot be read."""
        if offset > journal.log.max_offset:
            self._cut(journal.log.max_offset)
        journal.noted.join("parts", self._heard)
        journal.was_cut.join("parts", self._cut)

    @property
    def offset(self) -> int:
        """Everything below this offset was handed on."""
        return max(self._at, self._visible.offset) if self._live else self._at

    @property
    def behind(self) -> bool:
        """Return whether ``catch_up`` has something to read."""
        return not self._live

    def catch_up(self) -> bool:
        """Hand on what stands in the next ``READ_BYTES`` or so; True: there is more. Raises ``DamagedRecord``."""
        if not self._live:
            at = max(self._at, self._log.min_offset)
            run, self._at = self._log.run(at, self._visible.offset, ask=READ_BYTES)
            self._live = not run
            for found in run:
                if found[4] & self._flags and is_noted(found[4]):
                    self._take(found)
        return not self._live

    def listen(self) -> DamagedRecord | OSError | None:
        """Hand on some of what was not heard yet. An error in reading ends that for good, and is returned once."""
        try:
            for _ in range(READS_MAX if self.behind and not self._deaf else 0):
                if not self.catch_up():
                    break
        except (DamagedRecord, OSError) as error:
            self._deaf = True
            return error
        return None

    @property
    def told_all(self) -> bool:
        """Return whether ``listen`` has nothing more to read, or cannot read it."""
        return self._deaf or self._live

    def go_back(self, offset: int) -> None:
        """Hand on once more what stands from ``offset`` on."""
        self._at, self._live = min(self._at, offset), False

    def _heard(self, found: Outline) -> None:
        if not found[4] & self._flags or found[0] < self._at:
            return  # it is of no interest, or the journal told it again
        if not self._live:
            if self._visible.offset > self._at:
                return  # ``catch_up`` will read it
            self._live = True
        self._at = found[0] + found[1]
        self._take(found)

    def _cut(self, end: int) -> None:
        self._at = min(self._at, end)
        self._cut_to(end)
