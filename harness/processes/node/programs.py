"""Our program for Node.js, as a process that reports in lines of JSON, like those in Java.

It knows npm and processes, and nothing of what the program does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harness.processes.handle import running
from harness.processes.node.packages import HERE, Packages
from harness.processes.program import Program


@asynccontextmanager
async def exercise(
    packages: Packages, directory: Path, *, namesrv: str, rounds: int, interval_ms: int = 50, patience_s: int = 90,
) -> AsyncIterator[Program]:
    """A producer and consumers of ``ali-ons``, which judge themselves; events ``sent``, ``verdict``."""
    settings = {"modules": str(packages.folder), "namesrv": namesrv, "rounds": rounds, "interval_ms": interval_ms,
                "patience_s": patience_s}
    command = [packages.node, str(HERE / "exercise.js"), json.dumps(settings)]
    process = Program("ali-ons", directory.absolute(), command, "", '"started"')
    async with running(process):
        yield process
