"""Decides whether the disk under the store is well, full or stalled. Time is a number that is given; nothing here does
I/O.

Trouble begins at once and ends late: while it lasts the caller tries the disk each second, by room that is taken and a
byte that is synced, and only so many good tries in a row end it. A disk that comes and goes moves nothing to and fro.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.store.health import DiskHealth

NS_PER_MS: Final = 1_000_000
TRY_MS: Final = 1_000
GOOD_TRIES: Final = 3


@attrs.define(eq=False)
class Diagnosis:
    """The diagnosis of one process's disk. Call ``look`` at each tick, ``no_room`` and ``tried`` as they happen."""

    stall_ms: int
    """Time after which a disk counts as stalled; 0: it never does."""
    health: DiskHealth = attrs.field(default=DiskHealth.WELL, init=False)
    _pieces: int = attrs.field(default=0, init=False)
    _busy: bool = attrs.field(default=False, init=False)
    _looked_ns: int = attrs.field(default=0, init=False)
    _moved_ns: int = attrs.field(default=0, init=False)
    """Time when the disk was last seen idle, or finished a piece of work, or was not looked at."""
    _try_ns: int = attrs.field(default=0, init=False)
    _good: int = attrs.field(default=0, init=False)

    def look(self, now_ns: int, *, busy: bool, pieces: int, refuses: bool) -> None:
        """Look whether the disk moves. ``busy``: something is under way. ``pieces``: how many have ended so far.

        ``refuses``: the disk is too full by its share in use. A look that comes late begins to count anew: this thread
        was held up, and perhaps the disk's thread with it."""
        stall_ns = self.stall_ms * NS_PER_MS
        late = now_ns - self._looked_ns > stall_ns // 2
        if not (busy and self._busy) or pieces != self._pieces or late:
            self._moved_ns = now_ns
        self._busy, self._pieces, self._looked_ns = busy, pieces, now_ns
        if stall_ns and now_ns - self._moved_ns >= stall_ns:
            self._ill(DiskHealth.STALLED, now_ns)
        elif refuses:
            self._ill(DiskHealth.FULL, now_ns)

    def no_room(self, now_ns: int) -> None:
        """A write found no room."""
        self._ill(DiskHealth.FULL, now_ns)

    def due(self, now_ns: int) -> bool:
        """Return whether the disk is to be tried now. Ask it only while no try is under way."""
        return self.health is not DiskHealth.WELL and now_ns >= self._try_ns

    def tried(self, began_ns: int, now_ns: int, *, room: bool, works: bool) -> None:
        """Note how a try ended. ``room``: that much was there. ``works``: it could be written and synced, late or not.
        """
        quick = not self.stall_ms or now_ns - began_ns < self.stall_ms * NS_PER_MS // 2
        self._try_ns = now_ns + TRY_MS * NS_PER_MS
        self._good = self._good + 1 if room and works and quick else 0
        if not room:
            self.health = DiskHealth.FULL  # it answered, so it stalls no longer
        elif self._good >= GOOD_TRIES:
            self.health = DiskHealth.WELL
        assert self.health is DiskHealth.WELL or self._good < GOOD_TRIES, "enough good tries end the trouble"

    def _ill(self, health: DiskHealth, now_ns: int) -> None:
        """Note trouble. A stalled disk stays stalled, even if it is full as well."""
        if self.health is DiskHealth.WELL:
            self._try_ns = now_ns + TRY_MS * NS_PER_MS
        if self.health is not DiskHealth.STALLED:
            self.health = health
        self._good = 0
