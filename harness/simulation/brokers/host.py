"""A machine: a disk that outlives its broker's runs, a clock, and the current run.

A run ends by a kill, which keeps all writes; by a power cut, which keeps synced writes and, by chance, some others; or
right before any operation on files. This module does not know what a broker does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.store.files import MemoryFile, MemoryFiles
from harness.simulation.brokers.disks import MachineDisk
from harness.simulation.brokers.process import E_DEMAND, BrokerProcess
from raft.sim.world import Clock

if TYPE_CHECKING:
    from harness.simulation.brokers.group import Group
    from harness.simulation.brokers.runs import Copied

E_START: Final = 1
SIGSTOP: Final = "SIGSTOP"


class Killed(BaseException):
    """Ends a process. No code of the broker may catch it."""


class Host:
    """One machine. ``life`` counts the runs of its broker."""

    def __init__(self, scene: Group, number: int) -> None:
        self.scene, self.number, self.name = scene, number, f"b{number}"
        self.learner = scene.plan.learns(number)
        self.files = MemoryFiles(hook=self._site)
        self.disk = MachineDisk(self, self.files)
        self.min_in_sync = scene.plan.min_in_sync
        """``minInSyncReplicas`` of the next runs."""
        self.clock = Clock((number + 1) * 7_000_000_000)
        self.clock.set_rate(scene.world.now, scene.plan.rate_of(number))
        self.process: BrokerProcess | None = None
        self.life = 0
        self.paused: list[tuple[bool, Callable[[], None]]] | None = None
        """Events that came while the process was paused; True: from a timer."""
        self._stopped_by: set[str] = set()
        self.stood = (0, 0)
        """Begin and end of its last pause."""
        self.held = 0
        """End of the log that certainly survived the last run."""
        self.boots = 1
        """Number of starts of this machine."""
        self.unsafe = False
        """True from a power cut that took part of its log until it has caught up."""
        self.older = False
        """True from when an older copy of its directory was put back until it has caught up."""
        self._copy: tuple[int, dict[str, MemoryFile], Copied] | None = None
        """Boot in which its directory was copied, its files, and what the judge knew."""
        self._running = False

    @property
    def now(self) -> int:
        return self.clock.local(self.scene.world.now)

    @property
    def ip(self) -> str:
        return self.name

    @property
    def address(self) -> str:
        return f"{self.ip}:10911"

    @property
    def ha_address(self) -> str:
        return f"{self.ip}:10912"

    def _made(self) -> BrokerProcess:
        """A new run of its broker."""
        return BrokerProcess(self)

    # --- runs ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.process is not None:
            return
        self.life += 1
        self._stands_no_longer()
        self.scene.world.fold(self.number, E_START, self.life, 0, 0, 0)
        self._running = True
        process = self.process = self._made()
        try:
            process.open()
            process.after()
        except Killed:
            self._died()

    def do(self, process: BrokerProcess | None, kind: int, call: Callable[[], None], *, timer: bool = False) -> None:
        """Runs an event of this run, later if the process stands still, never if the run is over."""
        if process is None or self.process is not process:
            return
        if self.paused is not None:
            self.paused.append((timer, lambda: self.do(process, kind, call, timer=timer)))
            return
        self.scene.world.fold(self.number, kind, self.life, 0, 0, 0)
        try:
            call()
            process.after()
        except Killed:
            self._died()

    def demand(self, least: int, *, behind_a_beat: bool = False) -> None:
        """Let the operator demand another ``minInSyncReplicas`` of this run and later ones.

        ``behind_a_beat``: right after the next heartbeat, which still announces the former one.
        """
        process = self.process
        if process is not None and process.opened:
            change = functools.partial(process.change_demand, least)
            if behind_a_beat:
                process.behind_a_beat.append(change)
            else:
                self.do(process, E_DEMAND, change)
        else:
            self.min_in_sync = least

    def _site(self, what: str) -> None:
        """Decide before each operation on files whether the run ends there."""
        if not self._running:
            raise Killed
        if self.scene.site(what):
            self._running = False
            raise Killed
        self.disk.operation(what)

    def _died(self) -> None:
        self.scene.counts["crash at a file operation"] += 1
        self.crash(power=self.scene.powerless())
        self.scene.restart(self, 20 + self.number * 37)

    def crash(self, *, power: bool, noticed: bool = True) -> None:
        """End the run; ``noticed``: controllers may hear of it."""
        process, self.process = self.process, None
        self._running = False
        if process is None:
            return
        self._stands_no_longer()
        process.dead = True
        watch = self.scene.watch
        if process.opened:
            watch.runs.ended(process, power=power)
            self.unsafe |= process.journal.trust.in_doubt  # it may be level, but its next run does not know that
        elif power:
            watch.runs.ended_in_its_start(self)
        if power:
            self.scene.counts["power cut"] += 1
            self.boots += 1
            if process.journal.log.flushed_offset < process.journal.log.written_offset:
                watch.runs.lost_by_power(self)
            if not self.scene.plan.sync_flush:
                watch.runs.doubted(self)
            self.files.crash(self.scene.survivors())
        process.gone(noticed=noticed)

    # --- older copies ----------------------------------------------------------------------------------------

    def copy(self) -> None:
        """Copy its directory, whose broker is dead."""
        assert self.process is None, "a copy of files that nobody writes"
        self._copy = self.boots, self.files.copied(), self.scene.watch.runs.copied(self)

    def put_back(self) -> bool:
        """Put the copy of its directory back, unless there is none of this boot. Returns whether it did."""
        assert self.process is None, "nobody writes these files"
        if self._copy is None or self._copy[0] != self.boots:
            return False
        self.files.put_back(self._copy[1])
        self.scene.watch.runs.put_back(self, self._copy[2])
        return True

    @property
    def lacks(self) -> bool:
        """Return whether it may lack what it acknowledged, for a reason that a mode allows."""
        return self.older or (self.unsafe and not self.scene.plan.sync_flush)

    def caught_up(self) -> None:
        """Its log is level with a master's, or is the master's."""
        self.unsafe = self.older = False

    # --- stopped ---------------------------------------------------------------------------------------------

    def pause(self, why: str = SIGSTOP) -> None:
        """Pause the event loop until each reason is gone."""
        if self.process is not None:
            self._stopped_by.add(why)
            if self.paused is None:
                self.paused = []
                self.stood = self.now, self.now

    def resume(self, why: str = SIGSTOP) -> None:
        """Resume the event loop. Chance decides whether it finds overdue timers or arrivals first."""
        self._stopped_by.discard(why)
        if self.paused is None or self._stopped_by:
            return
        waiting, self.paused = self.paused, None
        self.stood = self.stood[0], self.now
        first = self.scene.first_found()
        for _, call in waiting if first is None else sorted(waiting, key=lambda each: each[0] is not first):
            call()

    def _stands_no_longer(self) -> None:
        self.paused = None
        self._stopped_by.clear()

    def later(self, process: BrokerProcess, delay_ns: int, kind: int, call: Callable[[], None]) -> None:
        """Call ``call`` in this run after so long on the host's clock."""
        due_ns = self.clock.world(self.now + delay_ns)
        self.scene.world.at(due_ns, _call, lambda: self.do(process, kind, call, timer=True))


def _call(action: Callable[[], None]) -> None:
    action()

