"""Who is accused of silence or of a bad disk, for ``BrokerWatch``.

Who was silent is known here from what arrived at each machine, and whose disk was in trouble from the disk, whatever
the replicas make of it. INV_B32 and INV_B33.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.ha.silence import LOOK_NS
from broker.store.health import DiskHealth
from raft.config import MS

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch

HINDERED: Final = (
    "member judged silent", "master judged silent", "disk judged full", "disk judged stalled",
)
"""What replicas made of each other and of themselves: in each campaign."""
AFTERMATH_NS: Final = 4_500 * MS
"""A disk that is well again is believed after some tries, a second apart."""


class Hindrances:
    """What is known of those of one scene."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene, self._counts, self._broken = watch, watch.scene, watch.counts, watch.broken
        self._accused: dict[BrokerProcess, frozenset[int]] = {}
        self._master_accused: set[BrokerProcess] = set()
        self._told_disk: dict[BrokerProcess, DiskHealth] = {}

    def ended(self, process: BrokerProcess) -> None:
        """Forget a process whose run is over."""
        self._accused.pop(process, None)
        self._told_disk.pop(process, None)
        self._master_accused.discard(process)

    # --- silence ---------------------------------------------------------------------------------------------

    def look(self, process: BrokerProcess) -> None:
        """At each tick of it, when it has looked itself, and when it asks for another SyncStateSet."""
        in_sync, now = process.switch.in_sync, process.now
        silent = frozenset[int]() if in_sync is None else in_sync.silent(now)
        for member in sorted(silent - self._accused.get(process, frozenset())):
            self._scene.counts["member judged silent"] += 1
            self._was_silent(process, self._member_spoke(process, member), member)
        self._accused[process] = silent
        if not process.switch.master_silent:
            self._master_accused.discard(process)
        elif process not in self._master_accused:
            self._master_accused.add(process)
            self._scene.counts["master judged silent"] += 1
            self._was_silent(process, self._master_spoke(process), "its master")
        self._disk(process)

    def _was_silent(self, judge: BrokerProcess, spoke_ns: int | None, who: object) -> None:
        """INV_B32. What came in a pause that is over this very moment, and was short, may not have been read yet."""
        self._counts["INV_B32"] += 1
        silence_ns = judge.switch.config.silence_ms * MS
        if spoke_ns is not None and judge.now - spoke_ns < silence_ns:
            began, ended = judge.host.stood
            short = ended == judge.now and ended - began <= LOOK_NS + silence_ns // 4
            if not short or spoke_ns < began:
                self._broken("INV_B32", "accused of a silence that was none", judge, who, (judge.now - spoke_ns) / MS)

    def _member_spoke(self, master: BrokerProcess, member: int) -> int | None:
        host = self._scene.host_of(member)
        links = [link for link in master.switch.port.links.values()
                 if host is not None and link.spoke and link.stream.open and link.stream.peer == host.name]
        return max(links, key=lambda link: link.number).stream.spoken_ns if links else None

    @staticmethod
    def _master_spoke(slave: BrokerProcess) -> int | None:
        following = slave.switch.following
        return following.end_.spoken_ns if following is not None and following.end_ is not None else None

    # --- disks -----------------------------------------------------------------------------------------------

    def _disk(self, process: BrokerProcess) -> None:
        """INV_B33: its health, as it judges it itself."""
        health, disk = process.journal.health, process.host.disk
        if health is self._told_disk.get(process, DiskHealth.WELL):
            return
        self._told_disk[process] = health
        if health is not DiskHealth.WELL:
            self._counts["INV_B33"] += 1
            self._scene.counts[f"disk judged {health.value}"] += 1
            if not disk.is_in_trouble and self._scene.world.now - disk.well_ns > AFTERMATH_NS:
                self._broken("INV_B33", "accuses a disk that is well", process, health, disk.well_ns / MS)
