"""Which process a number means: the system gives a number again to another process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")


def born(pid: int) -> str:
    """When a process began, as text to compare; "" when there is none, or only its remains."""
    try:
        fields = (PROC / f"{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return _alive_elsewhere(pid)
    return "" if fields[0] in "ZX" else fields[19]


def _alive_elsewhere(pid: int) -> str:
    """Without /proc there is only the number to go by."""
    if (PROC / "self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return "runs"
