"""What a checker says: true, false or unknown, why, and what it was asked. Knows no checker and no model.

Unknown never counts as passed, nor does a question that was never asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import attrs

from harness.histories.events import Operation

SHOWN: Final = 10
"""Of everything that breaks one promise, this many are told."""


class Valid(Enum):
    """``value`` is what stands in files."""

    TRUE = True
    FALSE = False
    UNKNOWN = "unknown"


@attrs.frozen
class Breach:
    """One promise, once. ``prefix``: how many events, from the first, show it already; 0: only all of them do."""

    promise: str
    words: str
    prefix: int = 0


@attrs.frozen
class Verdict:
    """``asked``: how often each question was put, in the order of telling."""

    checker: str
    valid: Valid
    why: str
    asked: Mapping[str, int]
    failing: Operation | None = None
    """The first operation that cannot be explained."""
    prefix: int = 0
    """How many events, from the first, are the shortest history that fails; 0 where none does."""
    broken: Sequence[Breach] = ()
    counts: Mapping[str, int] = attrs.field(factory=dict)
    """Of what is allowed, and worth knowing."""
    states: Sequence[str] = ()
    """What the system could be just before the failing operation."""
    figures: Mapping[str, int] = attrs.field(factory=dict)
    """For programs: how often each promise is broken, or what else ``why`` says in words."""

    def as_json(self) -> dict[str, Any]:
        """An object as ``verdict.json`` holds it."""
        made: dict[str, Any] = {"valid": self.valid.value, "why": self.why, "asked": dict(self.asked)}
        if self.failing is not None:
            made["failing"] = self.failing.words()
        if self.prefix:
            made["prefix"] = self.prefix
        if self.broken:
            made["broken"] = [{"promise": each.promise, "what": each.words} | (
                {"prefix": each.prefix} if each.prefix else {}) for each in self.broken]
        if self.states:
            made["states"] = list(self.states)
        if self.figures:
            made["figures"] = dict(self.figures)
        return made | ({"counts": dict(self.counts)} if self.counts else {})


def merged(verdicts: Iterable[Verdict]) -> Valid:
    """False if any is, else unknown if any is or there is none."""
    found = {each.valid for each in verdicts}
    if Valid.FALSE in found:
        return Valid.FALSE
    return Valid.UNKNOWN if Valid.UNKNOWN in found or not found else Valid.TRUE


def as_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The whole content of ``verdict.json``."""
    return {"valid": merged(verdicts).value, "checkers": {each.checker: each.as_json() for each in verdicts}}
