"""Reads which boot of its machine this is: another one means that the machine has gone down since."""

from __future__ import annotations

from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Linux; the same in containers as outside, as is the memory in which written files wait for the disk."""


def boot_id(path: Path = BOOT_ID) -> str:
    """Another one after each start of the machine; "" where the system tells none."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
