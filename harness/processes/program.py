"""A process that reports in lines of JSON, which are read as dictionaries. It knows no program.

Such a line begins with ``{"event"``; all other output is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import trio
from attrs import define, field

from harness.processes.errors import StartFailed
from harness.processes.handle import POLL_S, Handle

WAIT_S: Final = 60.0

Report = dict[str, Any]


@define
class Program(Handle):
    """A program whose output so far is ``reports``."""

    _read_bytes: int = field(default=0, init=False)
    _read: list[Report] = field(factory=list, init=False)
    """The reports in the first ``_read_bytes`` bytes, so that each line is parsed once."""

    async def launch(self) -> None:
        await super().launch()
        self._read_bytes, self._read = self._printed_before, []

    async def tell(self, line: str) -> None:
        """Write a line to its standard input. Raises ``StartFailed`` if it was never started."""
        process = self._process
        if process is None or process.stdin is None:
            raise StartFailed(f"{self.name} was never started")
        await process.stdin.send_all(f"{line}\n".encode())

    def reports(self, event: str = "") -> list[Report]:
        """All reports since its start, in order; with ``event`` those of one kind."""
        if self.out.exists():
            with self.out.open("rb") as out:
                out.seek(self._read_bytes)
                whole, end, _ = out.read().rpartition(b"\n")
            self._read += [json.loads(line) for line in whole.split(b"\n") if line.startswith(b'{"event"')]
            self._read_bytes += len(whole + end)
        return [report for report in self._read if event in ("", report["event"])]

    async def wait_for(
        self, event: str, wanted: Callable[[Sequence[Report]], bool] = bool, *, timeout_s: float = WAIT_S,
    ) -> list[Report]:
        """Wait until ``wanted`` holds for the reports of this kind: by default, until there is one.

        Raises:
            trio.TooSlowError: they were not, in time.
        """
        with trio.fail_after(timeout_s):
            while not wanted(found := self.reports(event)):
                await trio.sleep(POLL_S)
        return found
