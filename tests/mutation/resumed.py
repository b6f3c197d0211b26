"""What earlier runs killed, so that a run begins where the last one ended. A scratch file, never committed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.changes import Change
from tests.mutation.known import Known
from tests.raft.bugs.run_mutants import ROOT

FILE = ROOT / ".mutation/killed.json"


class Killed:
    """Changes of each module, for as long as the function around them stays as it was."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._found: dict[str, list[str]] = json.loads(file.read_text()) if file.exists() else {}

    def has(self, module: str, change: Change) -> bool:
        return _key(change) in self._found.get(module, ())

    def add(self, module: str, killed: Iterable[Change]) -> None:
        self._found[module] = sorted({*self._found.get(module, ()), *map(_key, killed)})
        self._file.parent.mkdir(exist_ok=True)
        self._file.write_text(json.dumps(self._found, indent=1) + "\n")


def _key(change: Change) -> str:
    return hashlib.sha256(f"{Known.name(change)}\0{change.around}".encode()).hexdigest()
