"""Results of scenarios in a file, from which ``docs/generate.py`` makes the table of compatibility.

A later run replaces the results of its scenarios and keeps the others. Scenarios that no longer exist are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from harness.scenarios.interop.scenario import SCENARIOS

OK, FAILED = "ok", "failed"


@attrs.frozen
class Result:
    """The result of one scenario with one release of RocketMQ. ``day`` as 2026-01-31."""

    scenario: str
    release: str
    outcome: str
    seconds: int
    java: int
    day: str


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def read(path: Path) -> dict[tuple[str, str], Result]:
    """Read results by scenario and release; none if there is no file."""
    if not path.exists():
        return {}
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return {(row["scenario"], row["release"]): Result(**row) for row in rows}


def write(path: Path, results: Iterable[Result]) -> None:
    """Write these results in place of older ones."""
    known = read(path) | {(each.scenario, each.release): each for each in results}
    kept = [known[each.name, release] for each in SCENARIOS for release in each.releases
            if (each.name, release) in known]
    path.write_text(json.dumps([attrs.asdict(each) for each in kept], indent=1) + "\n", encoding="utf-8")
