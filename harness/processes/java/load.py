"""The Java client that puts load on clusters for measurements, one command at a time.

What commands there are is said at the head of ``Load.java``. Any number of clusters may share one client, so that each
meets the same warmed-up one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from attrs import define

from harness.processes.errors import StartFailed
from harness.processes.handle import running
from harness.processes.java.jars import Release
from harness.processes.java.jvm import JVM
from harness.processes.program import Program, Report

WARM: Final = JVM(heap_mb=768, quick_start=False)
PATIENCE_S: Final = 600.0


@define
class Load(Program):
    """A Java program that makes load; one task at a time may ``ask`` it."""

    async def ask(self, command: str, *, timeout_s: float = PATIENCE_S) -> Report:
        """Carry out one command and return its report.

        Raises:
            StartFailed: it does not run, or the command could not be carried out.
            trio.TooSlowError: it did not end in time.
        """
        before = len(self.reports("load"))
        await self.tell(command)
        report = (await self.wait_for("load", lambda found: len(found) > before, timeout_s=timeout_s))[before]
        if "error" in report:
            raise StartFailed(f"{self.name}: {command}: {report['error']}\n{self.tail()}")
        return report


@asynccontextmanager
async def load(release: Release, directory: Path, *, jvm: JVM = WARM) -> AsyncIterator[Load]:
    """A running load: its input takes commands, and it ends when that closes."""
    directory = directory.absolute()
    command = [release.java, *jvm.options(directory), "-cp", release.classpath, "Load"]
    process = Load("load", directory, command, "", '"started"')
    async with running(process):
        yield process
