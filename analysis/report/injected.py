"""Faults that were injected while logs were written, and what clients saw. Text and numbers.

A report leaves out what an injected fault explains, and still tells of the same fault when it was not injected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from analysis.errors import AnalysisError

BEFORE_MS: Final = 1_000
"""A fault may show so much earlier than its note, which is written right after it."""
SETTLE_MS: Final = 10_000
"""So long after it was undone, what follows from a fault is its doing; what lasts longer is a finding."""
FORMAT: Final = "quorate-run-1"


class RunUnreadable(AnalysisError):
    """A file on a run that is none: which, and what of it."""


@attrs.frozen
class Fault:
    """``what`` was done to the nodes ``who``, and touched these broker groups or raft groups.

    ``until_ms``: when it was undone; None: never. Times are ms since 1970 UTC.
    """

    at_ms: int
    until_ms: int | None
    what: str
    who: tuple[str, ...]
    groups: tuple[str, ...]


@attrs.frozen
class Gap:
    """A time in which no client had an acknowledgement of this group."""

    group: str
    begin_ms: int
    end_ms: int


@attrs.frozen
class Run:
    faults: tuple[Fault, ...] = ()
    gaps: tuple[Gap, ...] = ()
    messages: Mapping[str, int] = attrs.field(factory=dict)
    """Name of a count, as ``acknowledged`` -> how many."""

    def of(self, group: str) -> list[Fault]:
        return [fault for fault in self.faults if group in fault.groups]

    # --- what it excuses, in SQL -----------------------------------------------------------------------------

    def within(self, column: str, begin: str, end: str) -> str:
        """Rows whose time from ``begin`` to ``end`` is that of a fault of the group in ``column``."""
        return _any(f"{column} = {quoted(group)} and {begin} >= {fault.at_ms - BEFORE_MS}"
                    + ("" if fault.until_ms is None else f" and {end} <= {fault.until_ms + SETTLE_MS}")
                    for fault in self.faults for group in fault.groups)

    def fewer(self, column: str, count: str, least: int) -> str:
        """Rows whose ``count`` is below ``least`` without one for each fault of the group in ``column``."""
        faults = Counter(group for fault in self.faults for group in fault.groups)
        return _any(f"{column} = {quoted(group)} and {count} - {number} < {least}" for group, number in faults.items())

    def down(self, column: str, end_ms: int) -> str:
        """Rows of a node that was not yet well again at the end of the logs."""
        last = {node: fault for fault in sorted(self.faults, key=lambda each: each.at_ms) for node in fault.who}
        return _any(f"{column} = {quoted(node)}" for node, fault in last.items()
                    if fault.until_ms is None or fault.until_ms + SETTLE_MS >= end_ms)


def quoted(text: str) -> str:
    """A literal of SQL; what it says may come from whoever names a broker."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _any(conditions: Iterable[str]) -> str:
    return " or ".join(f"({each})" for each in conditions) or "false"


def read_run(text: str, where: str) -> Run:
    """From JSON, as ``docs/how-to/analyse-logs.md`` has it. Raises ``RunUnreadable``."""
    try:
        found = json.loads(text)
        if found["format"] != FORMAT:
            raise RunUnreadable(f"{where}: the format is {found['format']!r}; this reads {FORMAT!r}")
        return Run(
            tuple(Fault(int(each["at_ms"]), _moment(each["until_ms"]), str(each["what"]), _names(each["who"]),
                        _names(each["groups"])) for each in found.get("faults", ())),
            tuple(Gap(str(each["group"]), int(each["begin_ms"]), int(each["end_ms"]))
                  for each in found.get("gaps", ())),
            {str(name): int(count) for name, count in found.get("messages", {}).items()})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunUnreadable(f"{where} does not say what was done in a run: {type(error).__name__}: {error}") from error


def _moment(value: Any) -> int | None:
    return None if value is None else int(value)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list of names")
    return tuple(map(str, value))
