"""Checks each start of a broker against the safe end of the run before it, for ``BrokerWatch``.

INV_B21 and INV_B25. This module knows no role and no promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch


@attrs.frozen
class Copied:
    """What was known of a machine's disk when it was copied. The fields are those of ``Runs``, and of the host."""

    before: tuple[int, int] | None
    synced: tuple[int, int] | None
    told: tuple[int, int, bool] | None
    floor: int | None
    held: int
    unsafe: bool


class Runs:
    """Remembers the runs of one scene."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene, self._counts, self._broken = watch, watch.scene, watch.counts, watch.broken
        self._told: dict[Host, tuple[int, int, bool]] = {}
        """Host -> visible end and confirm offset of the last run, and whether power was cut."""
        self._before: dict[Host, tuple[int, int]] = {}
        """Host -> safe end of the last run: of whole messages, and in bytes."""
        self._synced: dict[Host, tuple[int, int]] = {}
        """Host -> synced end of the last run, in the same units."""
        self.floors: dict[Host, int] = {}
        """Host -> bytes that count as held: a start may cut off a partial message that was acknowledged."""

    def held(self, host: Host) -> int | None:
        """Safe end of this machine's log; None: it lost bytes, which is excused."""
        if host.lacks:
            return None
        process = host.process
        if process is None:
            return max(host.held, self.floors.get(host, 0))
        return max(process.journal.durable_end, self.floors.get(host, 0))

    def ended(self, process: BrokerProcess, *, power: bool) -> None:
        """Note the safe end when a run ends: 0, if the first file of a copy that begins late had no room."""
        host, journal = process.host, process.journal
        log = journal.log
        stored = log.max_offset if log.min_offset < log.max_offset else 0
        end = self._watch.copies.end_of_run(host, stored)  # it ends an unfinished cut, too
        safe = min(log.flushed_offset if power else log.written_offset, end)
        host.held = safe
        self._before[host] = self._whole(process, safe), safe
        on_disk = min(log.flushed_offset, stored)
        # An unfinished cut may have reached nothing of what is on disk. The log is not to be read then.
        self._synced[host] = on_disk if end < stored else self._whole(process, on_disk), on_disk
        self._told[host] = min(journal.visible.offset, end), journal.confirm_offset, power
        self._watch.forget(process)

    def _whole(self, process: BrokerProcess, upto: int) -> int:
        """End of the last whole message up to ``upto``; an unfinished cut may have left none."""
        return min(self._watch.boundary(process, upto), upto)

    def copied(self, host: Host) -> Copied:
        """Return what a copy of this machine's directory holds, whose run is over."""
        return Copied(self._before.get(host), self._synced.get(host), self._told.get(host), self.floors.get(host),
                      host.held, host.unsafe)

    def put_back(self, host: Host, copy: Copied) -> None:
        """Forget what the older copy that was put back does not hold."""
        for known, then in ((self._before, copy.before), (self._synced, copy.synced), (self._told, copy.told),
                            (self.floors, copy.floor)):
            known.pop(host, None)
            if then is not None:
                known[host] = then  # type: ignore[assignment]
        host.held, host.unsafe, host.older = copy.held, copy.unsafe, True

    def ended_in_its_start(self, host: Host) -> None:
        """Note a power cut before the store was open: unsynced bytes of the run before are lost, too."""
        before, synced = self._before.get(host), self._synced.get(host)
        if host in self._told:
            self._told[host] = *self._told[host][:2], True
        if before is not None and synced is not None and synced < before:
            self._before[host], host.held = synced, synced[1]
            self.lost_by_power(host)

    def recovered(self, process: BrokerProcess) -> None:
        """Check INV_B21, INV_B6 and INV_B10 right after a start."""
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
        """Check INV_B25: a start keeps the confirm mark. A copied disk has its original's mark."""
        if process.host in self._scene.copies and process.host not in self._told:
            return
        seen, told, power = self._told.get(process.host, (0, 0, True))
        self._counts["INV_B25"] += told > 0
        confirm, told = process.journal.confirm_offset, max(told, process.journal.begin)  # the log has no earlier bytes
        if confirm > told or (not power and confirm < min(seen, process.journal.end)):
            self._broken("INV_B25", "the confirm offset is not what it was told", process, confirm, seen, told, power)

    def lost_by_power(self, host: Host) -> None:
        """Note that a power cut may have taken unsynced bytes."""
        self._scene.counts["bytes lost by power"] += 1
        host.unsafe = True

    def doubted(self, host: Host) -> None:
        """Note a power cut under asynchronous flush."""
        self._watch.doubts.cut(host, self._synced.get(host, (None, 0))[0])
