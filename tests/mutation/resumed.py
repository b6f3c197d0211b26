"""What earlier runs killed, so that a run begins where the last one ended. A scratch file, never committed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.raft.bugs.run_mutants import ROOT

FILE = ROOT / ".mutation/killed.json"


class Killed:
    """Names of changes by module, for as long as the module's text stays as it was."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._names: dict[str, dict[str, list[str]]] = json.loads(file.read_text()) if file.exists() else {}

    def of(self, module: str, code: str) -> set[str]:
        return set(self._names.get(module, {}).get(_digest(code), []))

    def add(self, module: str, code: str, names: set[str]) -> None:
        self._names[module] = {_digest(code): sorted(names | self.of(module, code))}
        self._file.parent.mkdir(exist_ok=True)
        self._file.write_text(json.dumps(self._names, indent=1) + "\n")


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
