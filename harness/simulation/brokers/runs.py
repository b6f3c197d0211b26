"""What must hold of each start of a broker, by what was safe when the run before it ended.

``BrokerWatch`` asks INV_B21 and INV_B25 here. This module knows no role and no promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch


class Runs:
    """Remembers the runs of one scene."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene, self._counts, self._broken = watch, watch.scene, watch.counts, watch.broken
        self._told: dict[Host, tuple[int, int, bool]] = {}
        """The last run: what consumers could see, its confirm offset, and whether power was cut."""
        self._before: dict[Host, tuple[int, int]] = {}
        """Where the last run ended for certain, in whole messages and in bytes."""
        self._synced: dict[Host, tuple[int, int]] = {}
        """Where it was synced to then, in the same units."""
        self.floors: dict[Host, int] = {}
        """A part of a message that was acknowledged and is cut off at a start counts as held: nobody needs it."""

    def held(self, host: Host) -> int | None:
        """Up to where this machine's log is safe; None: a power cut took from it what an excuse covers."""
        if host.unsafe and not self._scene.plan.sync_flush:
            return None
        process = host.process
        if process is None:
            return max(host.held, self.floors.get(host, 0))
        return max(process.journal.durable_end, self.floors.get(host, 0))

    def ended(self, process: BrokerProcess, *, power: bool) -> None:
        """Notes what is safe when a run ends: nothing, where the first file of a copy that begins late has no room."""
        host, journal = process.host, process.journal
        log = journal.log
        end = self._watch.copies.end_of_run(host, log.max_offset)  # always: a cut that it broke off is of no later run
        end = end if log.min_offset < log.max_offset else 0
        safe = min(log.flushed_offset if power else log.written_offset, end)
        host.held = safe
        self._before[host] = self._whole(process, safe), safe
        on_disk = min(log.flushed_offset, end)
        self._synced[host] = self._whole(process, on_disk), on_disk
        self._told[host] = min(journal.visible.offset, end), journal.confirm_offset, power
        self._watch.forget(process)

    def _whole(self, process: BrokerProcess, upto: int) -> int:
        """A cut that was under way may have left no message below."""
        return min(self._watch.boundary(process, upto), upto)

    def ended_in_its_start(self, host: Host) -> None:
        """A power cut before its store was open: the run before it had given more to the system than to the disk."""
        before, synced = self._before.get(host), self._synced.get(host)
        if host in self._told:
            self._told[host] = *self._told[host][:2], True
        if before is not None and synced is not None and synced < before:
            self._before[host], host.held = synced, synced[1]
            self.lost_by_power(host)

    def recovered(self, process: BrokerProcess) -> None:
        """Asks INV_B21, INV_B6 and INV_B10 right after a start."""
        host, journal = process.host, process.journal
        self._counts["INV_B21"] += 1
        whole, safe = self._before.get(host, (0, 0))
        end = journal.end
        if end < whole:
            self._broken("INV_B21", "a start lost what was safe", process, end, whole)
        self.floors[host] = safe
        whole = self._watch.boundary(process, end)
        if end not in (whole, journal.log.next_offset(whole)):
            self._broken("INV_B21", "a log that ends within a message", process, end)
        if journal.confirm_offset > end:
            self._broken("INV_B21", "confirmed behind the end", process, journal.confirm_offset, end)
        self._keeps_its_mark(process)
        self._watch.copies.epoch_file(process, process.switch.epochs)
        self._watch.copies.nothing_behind(process, end, process.switch.epochs)

    def _keeps_its_mark(self, process: BrokerProcess) -> None:
        """INV_B25: a start keeps the mark. A copied disk knows what its original was told."""
        if process.host in self._scene.copies and process.host not in self._told:
            return
        seen, told, power = self._told.get(process.host, (0, 0, True))
        self._counts["INV_B25"] += told > 0
        confirm, told = process.journal.confirm_offset, max(told, process.journal.begin)  # nobody reads what is gone
        if confirm > told or (not power and confirm < min(seen, process.journal.end)):
            self._broken("INV_B25", "not where it was told", process, confirm, seen, told, power)

    def lost_by_power(self, host: Host) -> None:
        """Notes that a power cut may have taken what was not synced."""
        self._scene.counts["bytes lost by power"] += 1
        host.unsafe = True

    def doubted(self, host: Host) -> None:
        """Notes a power cut under asynchronous flush."""
        self._watch.doubts.cut(host, self._synced.get(host, (None, 0))[0])
