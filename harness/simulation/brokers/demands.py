"""Checks ``minInSyncReplicas`` as the operator demands it, INV_B17, INV_B23 and INV_B31, for ``BrokerWatch``.

Demands are known from the operator, not from brokers; members in sync from the controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.ha.taking import BecomeMaster
from broker.replicas.lease import EVERY_REPLICA
from controller.metadata.groups import BrokerGroup

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch

DEMANDED: Final = (
    "minimum raised", "minimum lowered", "minimum changed while puts wait",
    "minimum changed while the set is too small", "minimum changed while nobody leads",
)
"""Changes by an operator that each campaign must meet."""


class Demands:
    """The demands of one scene, and their checks."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene = watch, watch.scene
        self._at_put: dict[tuple[BrokerProcess, int], int] = {}
        """(run, end of a message) -> the minimum demanded when it was written."""

    # --- the operator ----------------------------------------------------------------------------------------

    def changed(self, process: BrokerProcess) -> None:
        """Check INV_B31 after an operator told a running broker another minimum."""
        self._watch.counts["INV_B31"] += 1
        if process.demanded < process.host.min_in_sync:
            self._watch.broken("INV_B31", "less in force than is demanded", process, process.demanded,
                               process.host.min_in_sync)

    def in_force(self, process: BrokerProcess, least: int) -> None:
        """Note that another minimum is in force on a broker."""
        before, process.demanded = process.demanded, least
        counts, group = self._scene.counts, self._scene.group()
        if EVERY_REPLICA in (before, least):  # no operator's: a mastership begins, and is heard
            self.stands(process)
            return
        if least == before:
            return
        counts["minimum raised" if least > before else "minimum lowered"] += 1
        if isinstance(process.switch.role, BecomeMaster):
            counts["minimum changed while puts wait"] += process.puts.waiting > 0
            in_sync = process.switch.in_sync
            few = in_sync is not None and len(in_sync.accepted) < max(before, least)
            counts["minimum changed while the set is too small"] += few
        counts["minimum changed while nobody leads"] += group is not None and not any(
            self._watch.leads_in(host.process) == group.master_epoch for host in self._scene.hosts)
        self.stands(process)

    def stands(self, process: BrokerProcess) -> None:
        """Check INV_B31 after a broker's gate may have been lowered."""
        if (group := self._scene.group()) is not None:
            self._protects(process, group)

    def decided(self, group: BrokerGroup) -> None:
        """Check INV_B31 after controllers changed the group."""
        for host in (*self._scene.hosts, *self._scene.copies) if group.eligible else ():
            if host.process is not None:
                self._protects(host.process, group)

    def _protects(self, process: BrokerProcess, group: BrokerGroup) -> None:
        """Check INV_B31: while others are eligible beside a set, its master acknowledges nothing with that set."""
        if group.eligible and self._watch.leads_in(process) == group.master_epoch:
            self._watch.counts["INV_B31"] += 1
            least = min(process.demanded, process.member.manager.gate.in_force)
            if len(group.sync_state_set) >= least:
                self._watch.broken("INV_B31", "others may be elected, and it may acknowledge without them", process,
                                   least, group)

    def agreed(self, process: BrokerProcess) -> bool:
        """Return whether the operator's demand is in force."""
        return process.demanded == process.host.min_in_sync

    # --- puts ------------------------------------------------------------------------------------------------

    def written(self, process: BrokerProcess) -> None:
        """Check INV_B17 right after a put was written."""
        in_sync, least = process.switch.in_sync, process.host.min_in_sync
        assert in_sync is not None
        self._watch.counts["INV_B17"] += least > 1
        if len(in_sync.accepted) < least:
            self._watch.broken("INV_B17", "written although too few are in sync", process, in_sync.accepted)
        if least > 1:
            self._at_put[process, process.journal.log.max_offset] = least

    def acknowledged(self, process: BrokerProcess, end: int, members: frozenset[int]) -> None:
        """Check INV_B23: as many in sync as were demanded at the put, or are demanded now, if more.

        A put that waits for no other replica is complete when it is written.
        """
        plan, host = self._scene.plan, process.host
        at_put, now = self._at_put.pop((process, end), 1), host.min_in_sync
        least = max(at_put, now) if plan.all_ack or plan.in_sync_replicas > 1 or at_put > 1 else 1
        if least > 1:
            self._watch.counts["INV_B23"] += 1
            self._scene.counts["acknowledged, and more had been demanded"] += at_put > now
            if len(members) < least:
                self._watch.broken("INV_B23", "acknowledged with fewer in sync than demanded", process, end, members,
                                   at_put, now)

    def ended(self, process: BrokerProcess) -> None:
        """Forget a process whose run is over."""
        for key in [key for key in self._at_put if key[0] is process]:
            del self._at_put[key]
