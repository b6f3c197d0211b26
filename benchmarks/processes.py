"""What a process and those that it started take of the machine, as the system counts it. Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> Iterator[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for each in os.listdir("/proc"):
        if each.isdigit():
            try:
                text = Path(f"/proc/{each}/stat").read_text()
            except OSError:
                continue
            children.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(each))
    todo = [pid]
    while todo:
        found = todo.pop()
        yield found
        todo += children.get(found, [])


def cpu_s(pid: int) -> float:
    """Processor time so far, of the process and of those below it that still run."""
    total = 0
    for each in descendants(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def anonymous_mb(pid: int) -> float:
    """Memory in use but for what files are mapped to, of the process and of those below it."""
    total = 0
    for each in descendants(pid):
        try:
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
    return total / 1_024
