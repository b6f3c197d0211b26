"""A disk of its own for each server, which can stall, fill up, fail, be slow, and lose power.

As root it is a file with a file system in it (``losetup``, ``mkfs.ext4``), on another such one: frozen, every write and
sync waits; with the one below frozen, every sync, and what is written stays in the system's memory; shut down, all is
lost that was not synced. Without loop devices it is memory of a limited size, which fills up; outside a sandbox it is a
directory, and no disk of its own at all. What the disk itself cannot do is done by the shim of the node's processes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final

import attrs
import trio

from harness.nemesis.shim import Shim, impossible

_BALLAST: Final = "ballast"
_MORE: Final = 64 << 20
"""Bytes that a file system needs besides what it is for."""
_LEFT: Final = 64 << 10
"""Bytes that a full disk still has, for files that are there already."""
_IMAGE: Final = "disk.img"
_FOUND: Final = "lost+found"
_SHUT_DOWN: Final = 0x8004587D
"""The kernel's FS_IOC_SHUTDOWN, which tests of file systems cut the power with."""
_WITHOUT_FLUSH: Final = 2
_MENDED: Final = 1
"""The exit code of e2fsck when it mended something."""


class Kind(Enum):
    """Kinds of disks that a process can be given."""

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
    """A disk mounted at ``place``. ``shim``: the shim of the processes that use it, if any."""

    place: Path
    kind: Kind
    below: Path | None = None
    """The folder of the file that holds it."""
    shim: Shim | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for the processes that use it."""
        return {} if self.shim is None else self.shim.environment

    async def stall(self) -> None:
        """Stalls the disk: every write and sync waits from now on."""
        assert self.kind.stalls
        await trio.run_process(["fsfreeze", "--freeze", str(self.place)])

    async def stall_syncs(self) -> None:
        """Stalls syncs: each waits from now on."""
        assert self.kind.stalls and self.below is not None
        await trio.run_process(["fsfreeze", "--freeze", str(self.below)])

    async def resume(self) -> None:
        """Ends a stall: what waited goes on."""
        for place in (self.below, self.place):
            if place is not None:
                await trio.run_process(["fsfreeze", "--unfreeze", str(place)], check=False, capture_stderr=True)

    def fill(self) -> None:
        """Takes all room that is left."""
        assert self.kind.fills
        room = os.statvfs(self.place)
        with (self.place / _BALLAST).open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, max(room.f_bavail * room.f_frsize - _LEFT, 1))

    def free(self) -> None:
        """Gives back the room that ``fill`` took."""
        (self.place / _BALLAST).unlink(missing_ok=True)

    def cut_power(self) -> None:
        """Drop what was not synced, and let nothing be written any more. End processes after this: ends close files."""
        assert self.kind is Kind.LOOP
        folder = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _SHUT_DOWN, struct.pack("I", _WITHOUT_FLUSH))
        finally:
            os.close(folder)

    def restore_power(self) -> None:
        """Makes the disk usable again. No process may use it meanwhile. Raises ``subprocess.CalledProcessError``."""
        assert self.below is not None
        _run("umount", str(self.place))
        image = self.below / _IMAGE
        mended = subprocess.run(["e2fsck", "-f", "-y", str(image)], capture_output=True, check=False)
        if mended.returncode > _MENDED:
            raise subprocess.CalledProcessError(mended.returncode, mended.args, stderr=mended.stdout + mended.stderr)
        _run("mount", "-o", "loop", str(image), str(self.place))
        for found in (self.place / _FOUND).glob("*"):
            found.unlink()
        with suppress(FileNotFoundError):
            (self.place / _FOUND).rmdir()

    def remember(self) -> None:
        """Keeps the disk's content for ``go_back``. No process may write meanwhile. Raises ``CalledProcessError``."""
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir()
        _run("cp", "--archive", "--sparse=always", "--reflink=auto", f"{self.place}/.", str(self._kept))

    def go_back(self) -> None:
        """Gives it back the content that ``remember`` kept. No process may use it meanwhile."""
        empty(self.place)
        _run("cp", "--archive", "--sparse=always", "--reflink=auto", f"{self._kept}/.", str(self.place))
        shutil.rmtree(self._kept)

    @property
    def _kept(self) -> Path:
        return self.place.with_name("remembered")


def make(root: Path, names: Sequence[str], size: int, sandbox: str, *, shims: bool = False) -> dict[str, Disk]:
    """Makes a disk for each name, at ``root/name/store``; ``size`` in bytes. ``sandbox``: see ``sandbox.inside``.

    With ``shims`` each has one, where it can be built; its processes must be started with ``Disk.environment``.
    Raises ``subprocess.CalledProcessError`` where one can be made and another cannot.
    """
    kind = possible(root, sandbox)
    made = {name: _made(root / name / "store", size, kind) for name in names}
    if shims and not impossible():
        made = {name: attrs.evolve(disk, shim=Shim.made(root / name / "shim", disk.place))
                for name, disk in made.items()}
    return made


def empty(folder: Path) -> None:
    """Empties a folder, and keeps the folder: a disk may be mounted there."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def possible(root: Path, sandbox: str) -> Kind:
    """The best kind of disk that is possible below ``root``."""
    return Kind.DIRECTORY if not sandbox else Kind.LOOP if sandbox == "root" and _loops(root) else Kind.MEMORY


def _made(place: Path, size: int, kind: Kind) -> Disk:
    place.mkdir(parents=True)
    if kind is Kind.LOOP:
        below = place.with_name("device")
        below.mkdir()
        _mount_file(place.with_name(_IMAGE), size + _MORE, below)
        _mount_file(below / _IMAGE, size, place, "-O", "^has_journal")  # a journal's writes wait for syncs
        (place / _FOUND).rmdir()  # servers want an empty directory
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
    """Return whether a file can be mounted here."""
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
