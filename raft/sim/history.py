"""Records the history of a run for the checkers: each operation's invocation and its outcome.

Vocabulary and form are Jepsen's: ``invoke``, then ``ok``, ``fail`` (certainly not done) or ``info`` (outcome unknown).
A process does one operation at a time; after an ``info`` it does no more. Knows no cluster.
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
    """Type of the event: invoke, ok, fail or info."""
    process: int
    f: str
    key: Value
    value: Value
    time_ns: int
    """Virtual time since the start of the run."""
    result: Value = None
    """The machine's result at ``ok``, even if ``value`` is the written value. Not in files."""
    error: str | None = None

    def line(self) -> str:
        """Return the event as JSON, without absent fields."""
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
        """Return events of one type, and of one kind of operation."""
        return [event for event in self.events if event.type == type and f in (None, event.f)]

    def add(self, type: str, process: int, f: str, key: Value, value: Value, time_ns: int,  # noqa: A002
            result: Value = None, error: str | None = None) -> None:
        """Append the next event, numbered."""
        self.events.append(HistoryEvent(len(self.events), type, process, f, key, value, time_ns, result, error))

    def save(self, path: Path) -> None:
        """Write a file of JSON lines."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(event.line() + "\n" for event in self.events), encoding="utf-8")
