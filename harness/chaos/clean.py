"""``chaos clean``: ends processes and mounts of runs that are over; ``--remove`` also removes their directories.

All processes of a run have the path of its directory in their environment, and a run holds a lock in it while it goes
on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from harness.chaos.playing import RUNS
from harness.chaos.subcommand import PASSED
from harness.chaos.together import is_one
from harness.torture.directory import RUN_ID, goes_on

NAME: Final = "clean"
ABOUT: Final = "end what older runs left: processes, mounts; and remove their directories"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("directory", type=Path, nargs="?", metavar="RUN",
                        help="a run's directory; default: whatever any run left")
    parser.add_argument("--remove", action="store_true",
                        help=f"also remove directories of runs that are over, in ./{RUNS} or the one named")
    parser.add_argument("--json", action="store_true", help="what was done as JSON")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    only = None if options.directory is None else options.directory.resolve()
    ended = [f"{pid} of {path}" for pid, path in _left(only) if _killed(pid)]
    freed = [str(place) for place in _mounts(only) if not subprocess.run(
        ["umount", "--lazy", str(place)], capture_output=True, check=False).returncode]
    removed = []
    if options.remove:
        for path in [only] if only is not None else sorted(RUNS.glob("*")):
            if ((path / "schedule.json").is_file() or is_one(path)) and not goes_on(path):
                shutil.rmtree(path)
                removed.append(str(path))
    told = {"ended": ended, "unmounted": freed, "removed": removed}
    if options.json:
        print(orjson.dumps(told).decode())
        return PASSED
    for what, found in told.items():
        for each in found:
            print(f"{what} {each}")
    if not any(told.values()):
        print("nothing is left")
    return PASSED


def _left(only: Path | None) -> Iterator[tuple[int, Path]]:
    """Processes of runs that are over."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            for each in (folder / "environ").read_bytes().split(b"\0"):
                name, _, value = each.partition(b"=")
                path = Path(os.fsdecode(value))
                if name == RUN_ID.encode() and only in (None, path, *path.parents) and not goes_on(path):
                    yield int(folder.name), path


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _mounts(only: Path | None) -> Iterator[Path]:
    """Mounts of runs that are over, the inner ones first: those below ``nodes`` of a directory with a schedule."""
    for line in reversed(Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
        place = Path(line.split()[1].encode().decode("unicode_escape"))
        for path in place.parents:
            if path.name == "nodes" and (path.parent / "schedule.json").is_file() and (
                    only in (None, *path.parents) and not goes_on(path.parent)):
                yield place
