"""Reads which boot of its machine this is: a new boot means that the machine went down."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Linux's file. Containers share it, as they share the memory in which written files wait for the disk."""


def boot_id(path: Path = BOOT_ID) -> str:
    """Return the id of this boot, which is new after each start of the machine; "": the system tells none."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
