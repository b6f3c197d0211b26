"""The packages that ``package.json`` names, brought by npm into a cache folder; or why they are not here.

A folder is complete once it has its name: an interrupted fetch is done again, and two at once do not mix.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio
from attrs import frozen

from harness.processes.java.jars import NO_PROGRAMS, cache_folder

HERE: Final = Path(__file__).parent
TRIES: Final = 3
RETRY_PAUSE_S: Final = 2.0
TIMEOUT_S: Final = 120.0


class NodeMissing(Exception):
    """No node, no npm, no program, or npm could not bring the packages: not run, which is no failure."""


@frozen
class Packages:
    """``node`` and a folder that has ``node_modules``."""

    node: str
    folder: Path


def folder_of(manifest: bytes, cache: Path) -> Path:
    """Return the folder of the packages of this ``package.json``; other versions give another folder."""
    return cache / f"node-{hashlib.sha256(manifest).hexdigest()[:16]}"


async def fetch(*, cache: Path | None = None, say: Callable[[str], None] = lambda _: None) -> Packages:
    """Return the packages from the cache; npm brings them there if need be.

    Raises:
        NodeMissing: see there; the text says which.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NodeMissing(f"{'node' if node is None else 'npm'} not found; install Node.js 16 or later")
    if not (HERE / "package.json").exists():
        raise NodeMissing(NO_PROGRAMS)
    manifest = (HERE / "package.json").read_bytes()
    cache = cache or cache_folder().parent
    kept = folder_of(manifest, cache)
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="npm-") as work:
            incoming = Path(work) / "packages"
            incoming.mkdir()
            (incoming / "package.json").write_bytes(manifest)
            await _install(npm, incoming, say)
            try:
                incoming.rename(kept)
            except OSError:
                if not kept.exists():  # another process may have brought the same packages
                    raise
    return Packages(node, kept)


async def _install(npm: str, folder: Path, say: Callable[[str], None]) -> None:
    said = ""
    for attempt in range(1, TRIES + 1):
        say(f"fetching packages with npm (attempt {attempt} of {TRIES})")
        with trio.move_on_after(TIMEOUT_S):
            run = await trio.run_process(
                [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"],
                cwd=folder, check=False, capture_stdout=True, stderr=subprocess.STDOUT)
            if run.returncode == 0:
                return
            said = run.stdout.decode(errors="replace")[-2_000:]
            await trio.sleep(RETRY_PAUSE_S)
            continue
        said = f"no end within {TIMEOUT_S:.0f} s"
    raise NodeMissing(f"npm could not bring the packages in {TRIES} tries; the last said:\n{said}")
