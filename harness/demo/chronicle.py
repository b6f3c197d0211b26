"""Writes what a demo does to its servers and what its clients see, to a file that the report reads beside their logs.

Knows the clock of the machine and the file's format; what is done, and to whom, the demos know.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

FORMAT: Final = "quorate-run-1"
FILE: Final = "run.json"
KILLED: Final = "killed with -9"
CONTROLLERS: Final = "ours"
"""The raft group of the controllers, as ``harness.processes.ours`` calls it."""


@attrs.define(eq=False)
class Chronicle:
    """Faults and gaps of a run; times in ms since 1970 UTC, as in the logs."""

    faults: list[dict[str, Any]] = attrs.field(factory=list)
    gaps: list[dict[str, Any]] = attrs.field(factory=list)

    def begins(self, what: str, who: Sequence[str], groups: Sequence[str]) -> dict[str, Any]:
        """Note a fault that begins now; hand it to ``undone``."""
        fault = {"at_ms": _now_ms(), "until_ms": None, "what": what, "who": [*who], "groups": [*groups]}
        self.faults.append(fault)
        return fault

    def undone(self, fault: dict[str, Any]) -> None:
        fault["until_ms"] = _now_ms()

    def gap(self, group: str, fault: dict[str, Any], lasted_s: float) -> None:
        """Note for how long a group's clients had no acknowledgement after a fault."""
        begin_ms = fault["at_ms"]
        self.gaps.append({"group": group, "begin_ms": begin_ms, "end_ms": begin_ms + round(lasted_s * 1e3)})

    def write(self, path: Path, messages: Mapping[str, int]) -> None:
        path.write_text(json.dumps({
            "format": FORMAT, "faults": self.faults, "gaps": self.gaps, "messages": {**messages}}, indent=1) + "\n")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
