"""The history of a run, as the checkers of histories want it: who asked for what when, and what became of it.

Vocabulary and form are Jepsen's: ``invoke`` and then ``ok``, ``fail`` (certainly not done) or ``info`` (nobody
knows), by processes that do one thing at a time; a process that got ``info`` is never seen again. Knows no cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import attrs

from raft.sim.tape import Value


@attrs.frozen
class HistoryEvent:
    """One event, as a line of the file."""

    index: int
    type: str
    """invoke, ok, fail or info."""
    process: int
    f: str
    key: Value
    value: Value
    time_ns: int
    """Of virtual time since the run's begin."""
    result: Value = None
    """Of an ``ok``: what the machine returned, where ``value`` is what was written. Not in files."""
    error: str | None = None

    def line(self) -> str:
        """As JSON, without what is not there."""
        out = {"index": self.index, "type": self.type, "process": self.process, "f": self.f, "value": self.value,
               "time_ns": self.time_ns}
        for name in ("key", "error"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        return json.dumps(out)


class History:
    """Events in order; ``len``, indexes and ``for`` work as on a list."""

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[HistoryEvent]:
        return iter(self.events)

    def __getitem__(self, index: int) -> HistoryEvent:
        return self.events[index]

    def of(self, type: str, f: str | None = None) -> list[HistoryEvent]:  # noqa: A002  the word of histories
        """Events of one type, and of one kind of operation."""
        return [event for event in self.events if event.type == type and f in (None, event.f)]

    def add(self, type: str, process: int, f: str, key: Value, value: Value, time_ns: int,  # noqa: A002
            result: Value = None, error: str | None = None) -> None:
        """Append the next event, numbered."""
        self.events.append(HistoryEvent(len(self.events), type, process, f, key, value, time_ns, result, error))

    def save(self, path: Path) -> None:
        """Write a file of JSON lines."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(event.line() + "\n" for event in self.events), encoding="utf-8")
