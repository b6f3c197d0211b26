"""The directory of a run: what is written before it, during it and after it.

    scenario.toml, target.toml, schedule.json    what was asked for; `chaos replay DIR` takes them
    run.json                                     where, when and how; what could not be done here
    history.jsonl, nemesis.jsonl                 what clients saw, and what was done
    nodes/NAME/out.log, nodes/NAME/store         what a node printed and kept
    clients/                                     what clients printed as errors
    verdict.json, page.html, lock                after it; the lock is held while the run goes on
    groups/NAME                                  of a run of several groups: all of the above, of each
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO, Any

import attrs
import orjson

from harness.torture.words import RunFailed

RUN_ID = "QUORATE_RUN"
"""The variable that tells every process of a run the path of its directory."""

GROUPS = "groups"
"""The folder with a directory for each group of a run of several."""


@attrs.define(eq=False)
class RunDirectory:
    """The files of one run. ``open`` takes its lock, which this process then holds until it ends."""

    path: Path
    _lock: IO[bytes] | None = attrs.field(default=None, init=False)

    def open(self) -> None:
        """Makes the directory, or takes a prepared one. Raises ``RunFailed`` where a run goes on in it."""
        (self.path / "nodes").mkdir(parents=True, exist_ok=True)
        (self.path / "clients").mkdir(exist_ok=True)
        lock = (self.path / "lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise RunFailed(f"a run goes on in {self.path}: give this one another --out") from None
        self._lock = lock

    def close(self) -> None:
        """Gives the lock back before the process ends."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write(self, name: str, value: Any) -> None:
        """Writes an object as JSON, whole or not at all."""
        staged = self.path / f"{name}.part"
        staged.write_bytes(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        staged.replace(self.path / name)

    def node(self, name: str) -> Path:
        """Return the folder of a node's files."""
        return self.path / "nodes" / name


def fresh(root: Path, name: str) -> Path:
    """Makes a new directory below ``root`` for a run of this name."""
    for number in range(1, 100_000):
        path = root / f"{name}-{number}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise RunFailed(f"{root} is full of runs of {name}: `chaos clean` removes old ones")


def goes_on(path: Path) -> bool:
    """Return whether a run holds the lock of this directory."""
    try:
        lock = os.open(path / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
