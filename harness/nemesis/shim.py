"""A library that is loaded into processes, and makes their disks fail and their clocks wrong from moment to moment.

What is to happen stands in a page of memory that both share. It knows what libc is asked: a program that calls the
kernel itself, as Go's do, or is linked without it, notices nothing, and ``bypassed`` says so. What is written through
a mapping is seen when it is synced.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from harness.nemesis.compiling import library
from harness.nemesis.errors import NotHere

SOURCE: Final = Path(__file__).with_name("shim.c")
_TURN: Final = 6 * 8
"""Offset of the clock's part of the page."""
_GO: Final = b"\xff Go buildinf:"


@attrs.frozen(eq=False)
class Trouble:
    """Trouble of a disk: errors by ``errno``, 0 for none, and how much longer writes and syncs take."""

    writes_wait: bool = False
    syncs_wait: bool = False
    writes_errno: int = 0
    syncs_errno: int = 0
    write_ms: float = 0.0
    sync_ms: float = 0.0


@attrs.frozen(eq=False)
class WrongBy:
    """Error of a clock: how far ahead it is, and how many microseconds a second it gains since a right moment."""

    ahead_ns: int = 0
    gains_ppm: float = 0.0
    since_ns: int = attrs.field(factory=time.time_ns)

    def at(self, right_ns: int) -> int:
        """Return how far ahead the clock is at that time, in nanoseconds."""
        return self.ahead_ns + int((right_ns - self.since_ns) * self.gains_ppm / 1e6)


@attrs.define(eq=False)
class Shim:
    """The shim of one node's processes: what is in trouble now, and the page that tells them."""

    page: Path
    data: Path
    _map: mmap.mmap
    _troubles: list[Trouble] = attrs.field(factory=list, init=False)
    _errors: list[WrongBy] = attrs.field(factory=list, init=False)

    @classmethod
    def made(cls, page: Path, data: Path) -> Shim:
        """Makes a shim for the files below ``data``. Raises ``NotHere`` where the library cannot be built."""
        library(SOURCE)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_bytes(bytes(mmap.PAGESIZE))
        with page.open("r+b") as file:
            return cls(page, data.resolve(), mmap.mmap(file.fileno(), mmap.PAGESIZE))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that a process must be started with."""
        loaded = [str(library(SOURCE)), *filter(None, [os.environ.get("LD_PRELOAD")])]
        return {"LD_PRELOAD": ":".join(loaded), "QUORATE_SHIM": str(self.page.resolve()),
                "QUORATE_SHIM_ROOT": str(self.data)}

    def begin(self, trouble: Trouble) -> None:
        """Adds a trouble to the present ones: any stall, any error, the longest delays."""
        self._troubles.append(trouble)
        self._tell_disk()

    def end(self, trouble: Trouble) -> None:
        """Takes this trouble back, once; what waited goes on."""
        with suppress(ValueError):
            self._troubles.remove(trouble)
            self._tell_disk()

    def set_wrong(self, error: WrongBy) -> None:
        """Makes the clock wrong by so much from now on; several errors add up."""
        self._errors.append(error)
        self._tell_clock()

    def set_right(self, error: WrongBy) -> None:
        """Take one error back. Nothing happens when it was taken back."""
        with suppress(ValueError):
            self._errors.remove(error)
            self._tell_clock()

    def _tell_disk(self) -> None:
        all_of = self._troubles
        struct.pack_into(
            "<6q", self._map, 0,
            any(each.writes_wait for each in all_of), any(each.syncs_wait for each in all_of),
            next((each.writes_errno for each in all_of if each.writes_errno), 0),
            next((each.syncs_errno for each in all_of if each.syncs_errno), 0),
            int(max((each.write_ms for each in all_of), default=0) * 1e3),
            int(max((each.sync_ms for each in all_of), default=0) * 1e3))

    def _tell_clock(self) -> None:
        [turn] = struct.unpack_from("<q", self._map, _TURN)
        now_ns = time.time_ns()
        ahead_ns = sum(each.at(now_ns) for each in self._errors)
        gains_ppb = int(sum(each.gains_ppm for each in self._errors) * 1e3)
        struct.pack_into("<q", self._map, _TURN, turn + 1)
        struct.pack_into("<3q", self._map, _TURN + 8, ahead_ns, now_ns, gains_ppb)
        struct.pack_into("<q", self._map, _TURN, turn + 2)


def impossible() -> str:
    """Return why there can be no shim here; empty if there can."""
    try:
        library(SOURCE)
    except NotHere as error:
        return str(error)
    return ""


def bypassed(pid: int) -> str:
    """Return why a process, or one that it started, does not notice the shim; empty if all notice it, or none runs."""
    for each in _family(pid):
        with suppress(OSError):  # the process has just ended
            exe = Path(f"/proc/{each}/exe").resolve()
            if SOURCE.stem not in Path(f"/proc/{each}/maps").read_text():
                return f"{exe.name} does not load the shim: it is linked statically, or was started without it"
            if _is_go(exe):
                return f"{exe.name} is a Go program, which calls the kernel itself: the shim does not concern it"
    return ""


def _family(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found if pid else []


def _is_go(exe: Path) -> bool:
    with exe.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_GO) >= 0

