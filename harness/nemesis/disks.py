"""A disk of its own for each server, which can stall and fill up.

As root it is a file with a file system in it (``losetup``, ``mkfs.ext4``), on another such one: frozen, every write and
sync waits; with the one below frozen, every sync, and what is written stays in the system's memory. Without loop
devices it is memory of a limited size, which fills up and never stalls; outside a sandbox it is a directory, and no
disk of its own at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Final

import attrs
import trio

_BALLAST: Final = "ballast"
_MORE: Final = 64 << 20
"""Bytes that a file system needs besides what it is for."""
_LEFT: Final = 64 << 10
"""Bytes that a full disk still has, for files that are there already."""


class Kind(Enum):
    """What stands for a disk."""

    LOOP = "a file system in a file, which can stall and fill up"
    MEMORY = "memory, which can fill up and not stall"
    DIRECTORY = "a directory, which can neither stall nor fill up"

    @property
    def stalls(self) -> bool:
        return self is Kind.LOOP

    @property
    def fills(self) -> bool:
        return self is not Kind.DIRECTORY


@attrs.frozen
class Disk:
    """Mounted at ``place``."""

    place: Path
    kind: Kind
    below: Path | None = None
    """Where the file is that it is in."""

    async def stall(self) -> None:
        """Every write and sync waits from now on."""
        assert self.kind.stalls
        await trio.run_process(["fsfreeze", "--freeze", str(self.place)])

    async def stall_syncs(self) -> None:
        """Every sync waits from now on."""
        assert self.kind.stalls and self.below is not None
        await trio.run_process(["fsfreeze", "--freeze", str(self.below)])

    async def resume(self) -> None:
        """What waited goes on."""
        for place in (self.below, self.place):
            if place is not None:
                await trio.run_process(["fsfreeze", "--unfreeze", str(place)], check=False, capture_stderr=True)

    def fill(self) -> None:
        """Leave no room."""
        assert self.kind.fills
        room = os.statvfs(self.place)
        with (self.place / _BALLAST).open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, max(room.f_bavail * room.f_frsize - _LEFT, 1))

    def free(self) -> None:
        """Give the room back."""
        (self.place / _BALLAST).unlink(missing_ok=True)


def make(root: Path, names: Sequence[str], size: int, sandbox: str) -> dict[str, Disk]:
    """One for each name, at ``root/name/store``; ``size`` in bytes. ``sandbox``: see ``sandbox.inside``.

    Raises ``subprocess.CalledProcessError`` where one can be made and another cannot.
    """
    kind = possible(root, sandbox)
    return {name: _made(root / name / "store", size, kind) for name in names}


def possible(root: Path, sandbox: str) -> Kind:
    """The best that there can be below ``root``."""
    return Kind.DIRECTORY if not sandbox else Kind.LOOP if sandbox == "root" and _loops(root) else Kind.MEMORY


def _made(place: Path, size: int, kind: Kind) -> Disk:
    place.mkdir(parents=True)
    if kind is Kind.LOOP:
        below = place.with_name("device")
        below.mkdir()
        _mount_file(place.with_name("disk.img"), size + _MORE, below)
        _mount_file(below / "disk.img", size, place, "-O", "^has_journal")  # whose writes would wait for the syncs
        (place / "lost+found").rmdir()  # servers begin in an empty directory
        return Disk(place, kind, below)
    elif kind is Kind.MEMORY:
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    return Disk(place, kind)


def _mount_file(image: Path, size: int, place: Path, *more: str) -> None:
    with image.open("wb") as file:
        file.truncate(size)
    _run("mkfs.ext4", "-q", "-m", "0", *more, str(image))
    _run("mount", "-o", "loop", str(image), str(place))


def _loops(root: Path) -> bool:
    """Whether a file can be mounted here."""
    probe = root / "probe"
    try:
        disk = _made(probe / "store", 16 << 20, Kind.LOOP)
    except (OSError, subprocess.CalledProcessError):
        shutil.rmtree(probe, ignore_errors=True)
        return False
    _run("umount", str(disk.place))
    _run("umount", str(disk.below))
    shutil.rmtree(probe)
    return True


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
