"""A machine's disk with its faults, and the disk thread of a broker's run.

A *slow* disk takes longer for each sync; a *stalled* one ends none; one that *hangs* blocks every caller, even the
event loop; a *full* one has no room for another log file. Knows no journal.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, Final

from broker.store.disk import Job, Steps, Told
from broker.store.files import MemoryFiles, Space
from raft.config import MS

if TYPE_CHECKING:
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.process import BrokerProcess

E_DISK: Final = 22
SYNC_NS: Final = MS
HANGS: Final = "its disk hangs"
"""Reason of a pause: the disk hangs."""
_ROOM: Final = Space(1 << 40, 1 << 40)
_NO_ROOM: Final = Space(1 << 40, 1 << 30)


class MachineDisk:
    """The disk under one machine's files, which outlives the runs of its broker."""

    def __init__(self, host: Host, files: MemoryFiles) -> None:
        self._host, self._files = host, files
        self.late_ns = 0
        self.stalled = self.hangs = self.refuses = False
        self.harms = 0
        """Number of faults that the disk had."""
        self.well_ns = 0
        """World time since which it is well."""

    @property
    def is_in_trouble(self) -> bool:
        return bool(self.late_ns or self.stalled or self.hangs or self.refuses) or self._files.disk is _NO_ROOM

    def fill(self, *, to_the_brim: bool, told: bool) -> None:
        """Fill the disk. ``to_the_brim``: the next file of the log fails; ``told``: the system reports the free space.
        """
        self.refuses, self._files.disk = to_the_brim, _NO_ROOM if told else _ROOM

    def operation(self, what: str) -> None:
        """Act on faults before an operation on files. Raises ``OSError``."""
        if self.hangs:
            self._host.pause(HANGS)
        if self.refuses and what == "reserve":
            raise OSError(errno.ENOSPC, "no space left on device")

    def mend(self) -> None:
        """Undo all faults, and resume everything that waited for the disk."""
        if self.is_in_trouble:
            self.well_ns = self._host.scene.world.now
        self.late_ns, self.stalled, self.hangs = 0, False, False
        self.fill(to_the_brim=False, told=False)
        self._host.resume(HANGS)
        if self._host.process is not None:
            self._host.process.disk.go_on()


class LateDisk:
    """The disk thread: one job after another, each of which takes its time. Implements ``broker.store.disk.Disk``."""

    inline = False

    def __init__(self, process: BrokerProcess) -> None:
        self._process, self._disk = process, process.host.disk
        self._jobs: deque[tuple[Job, Told]] = deque()
        self._aside: deque[tuple[Steps, Told]] = deque()
        self._busy = False

    def submit(self, job: Job, told: Told) -> None:
        self._jobs.append((job, told))
        self.go_on()

    def submit_steps(self, steps: Steps, told: Told) -> None:
        self._aside.append((steps, told))
        self.go_on()

    def settle(self) -> None:
        """Do all jobs now, since the caller waits. A stalled disk pauses the process once this event is over."""
        if self._disk.stalled and (self._jobs or self._aside):
            self._process.host.pause(HANGS)
        while self._jobs or self._aside:
            self._one()

    def close(self) -> None:
        self.settle()

    def go_on(self) -> None:
        """Begin the next job, unless one is running or the disk stalls."""
        if not self._busy and not self._disk.stalled and (self._jobs or self._aside):
            self._busy = True
            scene = self._process.host.scene
            late = scene.syncs.between(0, scene.plan.sync_ms, 0) * MS
            self._process.later(SYNC_NS + late + self._disk.late_ns, E_DISK, self._work)

    def _work(self) -> None:
        self._busy = False
        if not self._disk.stalled:
            if self._jobs or self._aside:
                self._one()
            self.go_on()

    def _one(self) -> None:
        error: OSError | None = None
        if self._jobs:
            job, told = self._jobs.popleft()
            try:
                job()
            except OSError as failed:
                error = failed
        else:
            steps, told = self._aside[0]
            try:
                if next(steps, True) is None:
                    return
            except OSError as failed:
                error = failed
            self._aside.popleft()
        self._process.later(MS // 10, E_DISK, lambda: _tell(told, error))


def _tell(told: Told, error: OSError | None) -> None:
    told(error)
