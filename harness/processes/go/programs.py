"""Our program in Go, built into a cache folder; or why it is not here. It knows Go's tools, and no cluster."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from harness.processes.handle import running
from harness.processes.java.jars import NO_PROGRAMS, cache_folder
from harness.processes.program import Program

SOURCES: Final = Path(__file__).parent / "src"
ELSEWHERE: Final = "/usr/local/go/bin"
"""Folder where Go is if it is not on PATH."""
TIMEOUT_S: Final = 480.0


class GoMissing(Exception):
    """No Go, no program, or it could not be built: not run, which is no failure."""


def binary_of(sources: Sequence[Path], cache: Path) -> Path:
    """Return the path of the binary that is built of these sources; changed sources give another name."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    return cache / f"go-{digest}"


async def build(*, cache: Path | None = None, say: Callable[[str], None] = lambda _: None) -> Path:
    """Return the program from the cache; Go builds it there if need be.

    Raises:
        GoMissing: see there; the text says which.
    """
    go = shutil.which("go") or shutil.which("go", path=ELSEWHERE)
    if go is None:
        raise GoMissing("go not found; install Go 1.22 or later")
    sources = sorted(SOURCES.glob("*"))
    if not sources:
        raise GoMissing(NO_PROGRAMS)
    cache = cache or cache_folder().parent
    kept = binary_of(sources, cache)
    if not kept.exists():
        say("building the program in Go")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="go-build-") as work:
            made, said = Path(work) / "program", f"no end within {TIMEOUT_S:.0f} s"
            with trio.move_on_after(TIMEOUT_S):
                run = await trio.run_process([go, "build", "-o", str(made), "."], cwd=SOURCES, check=False,
                                             capture_stdout=True, stderr=subprocess.STDOUT)
                said = run.stdout.decode(errors="replace")[-2_000:]
            if not made.exists():
                raise GoMissing(f"go could not build the program:\n{said}")
            made.rename(kept)
    return kept


@asynccontextmanager
async def transactor(
    binary: Path, directory: Path, *, namesrv: str, topic: str, plans: Sequence[str], count: int,
    group: str = "transactor", interval_ms: int = 20,
) -> AsyncIterator[Program]:
    """A producer whose transactions end as ``plans`` say; events ``sent``, ``checked``.

    It works as Java's in ``harness.processes.java``.
    """
    settings = {"namesrv": namesrv, "topic": topic, "group": group, "count": count, "interval_ms": interval_ms,
                "plans": list(plans)}
    process = Program("go", directory.absolute(), [str(binary), json.dumps(settings)], "", '"started"')
    async with running(process):
        yield process
