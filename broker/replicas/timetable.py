"""Keeps when each kind of request to controllers is due, and which kinds wait for an answer. It knows times alone."""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Final


class Kind(enum.Enum):
    """Kinds of requests; one of a kind is under way at a time.

    But heartbeats leave whatever became of earlier ones; discovery asks each controller, and probes ask each member,
    by a slot of its own."""

    DISCOVER = "discover"
    REGISTER = "register"
    RECORD = "record"
    BEAT = "beat"
    ELECT = "elect"
    POLL = "poll"
    ALTER = "alter"
    YIELD = "yield"
    MEMBERS = "members"
    PROBE = "probe"

    __hash__ = object.__hash__  # in C, unlike that of enumerations; each turn of a broker looks some up


AT_ONCE: Final = 0


class Timetable:
    """The times and waits of all kinds. ``slot`` names the peer, for kinds that ask several peers; else it is ""."""

    def __init__(self) -> None:
        self._due: dict[Kind, int] = {}
        self._waits: dict[tuple[Kind, str], int] = {}
        """The request that a kind waits for."""

    def due(self, kind: Kind, now_ns: int) -> bool:
        return self._due.get(kind, AT_ONCE) <= now_ns and (kind, "") not in self._waits

    def at(self, kind: Kind) -> int:
        return self._due.get(kind, AT_ONCE)

    def put(self, kind: Kind, at_ns: int = AT_ONCE) -> None:
        self._due[kind] = at_ns

    def put_by(self, kind: Kind, at_ns: int) -> None:
        """Make this kind due at that time at the latest."""
        self._due[kind] = min(self.at(kind), at_ns)

    def next_after(self, now_ns: int) -> int | None:
        """Return when the next kind is due, among those that wait for no answer."""
        return min((at_ns for kind, at_ns in self._due.items() if at_ns > now_ns and not self.waits(kind)),
                   default=None)

    # --- answers that are waited for -------------------------------------------------------------------------

    def waits(self, kind: Kind, slot: str = "") -> bool:
        return (kind, slot) in self._waits

    def sent(self, number: int, kind: Kind, slot: str = "") -> None:
        assert not self.waits(kind, slot), "one of a kind is under way"
        self._waits[kind, slot] = number

    def answered(self, number: int, kind: Kind, slot: str = "") -> None:
        """Wait no more for that request's answer. An answer to an earlier request of the kind changes nothing."""
        if self._waits.get((kind, slot)) == number:
            del self._waits[kind, slot]

    # --- others are asked from now on ------------------------------------------------------------------------

    def ask_again(self, due: Collection[Kind], waiting: Collection[Kind]) -> None:
        """Make ``due`` due at once; kinds in ``waiting`` even where they wait for an answer, in any slot."""
        for kind in due:
            self._due.pop(kind, None)
        self._waits = {key: number for key, number in self._waits.items() if key[0] not in waiting}

    def keep(self, kinds: Collection[Kind]) -> None:
        """Forget what is waited for, and all times but those of these kinds."""
        self._waits.clear()
        self._due = {kind: at_ns for kind, at_ns in self._due.items() if kind in kinds}
