"""Writes the history of a campaign, an event a line, and checks it on the way.

Each broker group has its own checker, since each has its own mode; a key is ``GROUP/QUEUE``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import IO, Any

import attrs

from harness.checkers.queues import QueueCheck
from harness.checkers.verdict import Verdict
from harness.histories.events import INVOKE, Event
from harness.histories.jsonlines import line_of


def group_of(key: str) -> str:
    """The broker group of a key."""
    return key.rpartition("/")[0]


@attrs.define
class Judges:
    """The checkers of all groups; each gets the events of its own group."""

    checks: dict[str, QueueCheck] = attrs.field(factory=dict)

    def add(self, event: Event) -> None:
        self.checks.setdefault(group_of(event.key), QueueCheck()).add(event)

    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each group. Call once, after the last event."""
        return {group: check.verdict(group) for group, check in sorted(self.checks.items())}

    @property
    def counts(self) -> Counter[str]:
        """Counts of each thing that happened, in all groups together."""
        return sum((check.counts for check in self.checks.values()), Counter())


def judged(events: Iterable[Event]) -> dict[str, Verdict]:
    """The verdict on each group of a history. Raises what the events raise."""
    judges = Judges()
    for event in events:
        judges.add(event)
    return judges.verdicts()


@attrs.define
class JudgedHistory:
    """A history that writes each event to a file and checks it."""

    _file: IO[bytes]
    judges: Judges = attrs.field(factory=Judges)
    _began_ns: int = attrs.field(factory=time.monotonic_ns)
    _number: int = 0

    def begin(self, process: str, f: str, key: str, value: Any = None) -> None:
        self.add(INVOKE, process, f, key, value)

    def add(self, kind: str, process: str, f: str, key: str, value: Any = None) -> None:
        event = Event(self._number, kind, process, f, key, value, time.monotonic_ns() - self._began_ns)
        self._number += 1
        self._file.write(line_of(event))
        self.judges.add(event)
