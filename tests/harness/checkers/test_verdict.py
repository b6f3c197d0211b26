"""Verdicts together: false wins, unknown never passes, and what stands in files."""

from __future__ import annotations

import pytest

from harness.checkers.verdict import Breach, Valid, Verdict, as_json, merged


def verdict(valid: Valid) -> Verdict:
    return Verdict(valid.name, valid, "why", {"operations": 1})


@pytest.mark.parametrize(("given", "expected"), [
    ([], Valid.UNKNOWN), ([Valid.TRUE], Valid.TRUE), ([Valid.TRUE, Valid.UNKNOWN], Valid.UNKNOWN),
    ([Valid.UNKNOWN, Valid.FALSE, Valid.TRUE], Valid.FALSE),
])
def test_false_wins_and_unknown_never_passes(given: list[Valid], expected: Valid) -> None:
    assert merged(map(verdict, given)) is expected


def test_what_stands_in_files() -> None:
    broken = Verdict("queue", Valid.FALSE, "lost once", {"acknowledged": 2}, None, 3, [Breach("lost", "a", 3)],
                     {"received again": 1}, ["{}"])
    assert as_json([broken]) == {"valid": False, "checkers": {"queue": {
        "valid": False, "why": "lost once", "asked": {"acknowledged": 2}, "prefix": 3,
        "broken": [{"promise": "lost", "what": "a", "prefix": 3}], "states": ["{}"], "counts": {"received again": 1}}}}
