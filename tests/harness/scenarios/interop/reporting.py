"""A stage and a program of a scenario without processes: what the program is told, what it reports, what is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from harness.processes.java.jars import Release
from harness.processes.program import Program, Report
from harness.scenarios.interop.scenario import Stage


def stage() -> tuple[Stage, list[str]]:
    """A stage without a release, and what is said on it."""
    said: list[str] = []
    return Stage(cast(Release, None), Path("nowhere"), said.append), said


class Reporting:
    """In place of a ``Program``. ``answers`` says what it reports of each line that it is told."""

    def __init__(self, answers: Callable[[str], Sequence[Report]] = lambda line: (), *,
                 found: Sequence[Report] = ()) -> None:
        self._answers, self._found = answers, list(found)
        self.lines: list[str] = []

    async def tell(self, line: str) -> None:
        self.lines.append(line)
        self._found += self._answers(line)

    def reports(self, event: str = "") -> list[Report]:
        return [each for each in self._found if event in ("", each["event"])]

    async def wait_for(self, *arguments: Any, **more: Any) -> list[Report]:
        return await Program.wait_for(cast(Program, self), *arguments, **more)
