"""A checker's verdict: true, false or unknown, the reason, and how much was checked. Knows no checker and no model.

Unknown never counts as passed, nor does a check that was never made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import attrs

from harness.histories.events import Operation

SHOWN: Final = 10
"""Most breaches of one promise that a verdict lists."""


class Valid(Enum):
    """Validity of a history; ``value`` is its form in files."""

    TRUE = True
    FALSE = False
    UNKNOWN = "unknown"


@attrs.frozen
class Breach:
    """One breach of a promise. ``prefix``: the number of first events that show it; 0: only all of them do."""

    promise: str
    words: str
    prefix: int = 0


@attrs.frozen
class Verdict:
    """A checker's result. ``asked``: how often each check was made, in the order of display."""

    checker: str
    valid: Valid
    why: str
    asked: Mapping[str, int]
    failing: Operation | None = None
    """The first operation that cannot be explained."""
    prefix: int = 0
    """Length of the shortest failing prefix, in events; 0: none fails."""
    broken: Sequence[Breach] = ()
    counts: Mapping[str, int] = attrs.field(factory=dict)
    """Counts of allowed events that are worth knowing."""
    states: Sequence[str] = ()
    """Possible states just before the failing operation."""
    figures: Mapping[str, int] = attrs.field(factory=dict)
    """The numbers of ``why`` for programs, such as breaches by promise."""

    def as_json(self) -> dict[str, Any]:
        """The verdict as an object of ``verdict.json``."""
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


def broken(checker: str, breaches: Sequence[Breach], counts_by_promise: Mapping[str, int], asked: Mapping[str, int],
           counts: Mapping[str, int]) -> Verdict:
    """The verdict of a checker that found promises broken. ``breaches`` may be the first of many."""
    words = ", ".join(f"{promise} {count:,} times" if count > 1 else f"{promise} once"
                      for promise, count in counts_by_promise.items())
    first = min((each.prefix for each in breaches if each.prefix), default=0)
    return Verdict(checker, Valid.FALSE, f"broken: {words}", asked, None, first, breaches, counts,
                   figures=counts_by_promise)


def merged(verdicts: Iterable[Verdict]) -> Valid:
    """False if any is, else unknown if any is or there is none."""
    found = {each.valid for each in verdicts}
    if Valid.FALSE in found:
        return Valid.FALSE
    return Valid.UNKNOWN if Valid.UNKNOWN in found or not found else Valid.TRUE


def as_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The whole content of ``verdict.json``."""
    return {"valid": merged(verdicts).value, "checkers": {each.checker: each.as_json() for each in verdicts}}
