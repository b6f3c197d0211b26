"""What producers were told and consumers saw, as JSON lines, and what is asked of it. A pure function of its events.

Promised by a group whose mode says so, and counted in the others:

    LOST     an acknowledged message is at its offset in the last reading
    TWICE    one offset is acknowledged for one message
    UNSEEN   what was once read at an offset is what is read there ever after
    DENIED   what a producer was told is stored nowhere is not there

A *place* is broker group, queue and offset; a message is known by its body, which no other one has.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import attrs


class Op(Enum):
    """What an event of a history tells."""

    ACKED = "acked"
    UNKNOWN = "unknown"
    FAILED = "failed"
    SAW = "saw"
    LAST = "last"
    """Of the last reading."""


class Place(NamedTuple):
    group: str
    queue: int
    offset: int


@attrs.frozen
class Note:
    """``at_ms``: since the run began, by its own clock."""

    at_ms: int
    op: Op
    body: str
    place: Place | None = None
    """None: the producer does not know it."""

    def to_json(self) -> str:
        return json.dumps([self.at_ms, self.op.value, self.body, *(self.place or ())])

    @classmethod
    def from_json(cls, line: str) -> Note:
        """Reads a line of ``to_json``. Raises ``ValueError``."""
        try:
            at_ms, op, body, *place = json.loads(line)
            return cls(int(at_ms), Op(op), str(body), Place(*place) if place else None)
        except (TypeError, ValueError) as error:
            raise ValueError(f"no event of a history: {line[:200]!r}: {error}") from None


class Promise(Enum):
    """The name of a broken one."""

    LOST = "LOST"
    TWICE = "TWICE"
    UNSEEN = "UNSEEN"
    DENIED = "DENIED"


@attrs.frozen
class Broken:
    """One promise that was broken once."""

    promise: Promise
    group: str
    words: str


@attrs.define
class Account:
    """The events of a run, as far as they have come."""

    acked: dict[str, Place] = attrs.field(factory=dict)
    seen: dict[Place, str] = attrs.field(factory=dict)
    last: dict[Place, str] = attrs.field(factory=dict)
    failed: set[str] = attrs.field(factory=set)
    counts: Counter[Op] = attrs.field(factory=Counter)
    broken: list[Broken] = attrs.field(factory=list)
    """Found on the way; ``verdict`` adds what only the end can tell."""
    _owner: dict[Place, str] = attrs.field(factory=dict)

    def add(self, event: Note) -> None:
        """Raises ``ValueError`` for one that lacks its place."""
        self.counts[event.op] += 1
        if event.op is Op.FAILED:
            self.failed.add(event.body)
        if event.op in (Op.FAILED, Op.UNKNOWN):
            return
        if event.place is None:
            raise ValueError(f"{event.op.value} of {event.body} says no place")
        if event.op is Op.ACKED:
            self.acked[event.body] = event.place
            owner = self._owner.setdefault(event.place, event.body)
            if owner != event.body:
                self._break(Promise.TWICE, event.place, f"acknowledged for {owner} and for {event.body}")
            return
        if event.op is Op.LAST:
            self.last[event.place] = event.body
        before = self.seen.setdefault(event.place, event.body)
        if before != event.body:
            self._break(Promise.UNSEEN, event.place, f"{before} was read there, and then {event.body}")

    def verdict(self) -> list[Broken]:
        """All that is broken. Asked after the last reading."""
        at_end = Counter(self.last.values())
        for body, place in self.acked.items():
            if self.last.get(place) != body:
                elsewhere = ", though elsewhere" if at_end[body] else ""
                self._break(Promise.LOST, place, f"{body} was acknowledged there; {self.last.get(place)} is{elsewhere}")
        for place, body in self.seen.items():
            if place not in self.last:
                self._break(Promise.UNSEEN, place, f"{body} was read there, and nothing is")
        for body in sorted(self.failed & at_end.keys()):
            self.broken.append(Broken(Promise.DENIED, "", f"{body} is there; its producer was told that it is nowhere"))
        return self.broken

    def _break(self, promise: Promise, place: Place, words: str) -> None:
        self.broken.append(Broken(promise, place.group, f"{place.group}, queue {place.queue}, offset {place.offset}: "
                                                        f"{words}"))


@attrs.define
class History:
    """An account that is written down as it grows."""

    _file: IO[str]
    account: Account = attrs.field(factory=Account)

    def add(self, at_ms: int, op: Op, body: str, place: Place | None = None) -> None:
        event = Note(at_ms, op, body, place)
        self._file.write(event.to_json() + "\n")
        self.account.add(event)


def read(path: Path) -> Account:
    """The account of a history that was written down. Raises ``ValueError``, with the line."""
    account = Account()
    with path.open() as file:
        for event in _events(file):
            account.add(event)
    return account


def _events(lines: Iterable[str]) -> Iterator[Note]:
    for number, line in enumerate(lines, 1):
        try:
            yield Note.from_json(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None


def summary(account: Account) -> dict[str, Any]:
    """Counts, for people and for files."""
    return {"acknowledged": account.counts[Op.ACKED], "unknown": account.counts[Op.UNKNOWN],
            "refused": account.counts[Op.FAILED], "read": account.counts[Op.SAW], "at the end": len(account.last)}


PROMISED_BY_ALL: Final = frozenset({Promise.DENIED})
"""What every mode promises."""
