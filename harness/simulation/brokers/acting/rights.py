"""INV_B56: who may deliver what is due, looked at from outside, and the overlaps that the page's table allows.

A connection that a name server loses while its broker lives has the name server forget that broker at once; all other
overlaps are violations, but for what clocks that run apart make of the timeout.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from broker.config import MASTER_ID
from harness.simulation.brokers.acting.plan import RIGHT_MS, TIMEOUT_MS
from raft.config import MS
from raft.invariants import require
from raft.sim.world import MILLION

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.group import ActingGroup
    from harness.simulation.brokers.acting.machine import MemberHost, MemberProcess
    from harness.simulation.brokers.acting.scene import ActingScene
    from harness.simulation.brokers.acting.wire import ServerLink

LOOK_NS: Final = 20 * MS
"""Interval of checks; each delivery is checked, too."""


@attrs.frozen
class _Drop:
    """A name server forgot a broker that lives."""

    host: MemberHost
    at_ns: int


class Rights:
    """Looks at all groups of one scene."""

    def __init__(self, town: ActingScene, counts: Counter[str]) -> None:
        self._town, self._counts = town, counts
        self._drops: list[_Drop] = []
        self._hears_since: dict[MemberProcess, int] = {}
        """Slave -> since when it hears its master without a break."""
        self._apart_since: dict[str, int] = {}
        """Group -> since when two members may deliver, and no row of the table says why."""
        self._slack_ns = TIMEOUT_MS * MS * town.plan.drift_ppm // MILLION
        self._looked_ns = 0

    def dropped(self, channel: ServerLink) -> None:
        """A name server lost this connection, and what was registered by it."""
        if not channel.process.dead:
            self._drops.append(_Drop(channel.process.host, self._town.world.now))
            self._town.counts["a living member was forgotten"] += 1

    def delivers(self, process: MemberProcess) -> None:
        """Asks INV_B56 and INV_B57 right before a member puts what is due."""
        self._counts["INV_B56"] += 1
        why = process.right.why_not(process.now)
        require(not why, "INV_B56", "a member delivers without the right", process.host.name, why)
        self._counts["INV_B57"] += not process.is_master
        require(not process.ledger.is_handed_over, "INV_B57", "a slave delivers what its master will not hear of",
                process.host.name, f"at {self._town.world.now / MS:.1f} ms")
        self.look()

    def look(self) -> None:
        """Looks who of all members may deliver."""
        now = self._town.world.now
        self._drops = [drop for drop in self._drops if now - drop.at_ns < 2 * TIMEOUT_MS * MS]
        for group in self._town.groups:
            self._hears(group, now)
            self._look_at(group, now)
        self._looked_ns = now

    def _hears(self, group: ActingGroup, now: int) -> None:
        for host in group.members[1:]:
            process = host.member
            if process is not None and process.opened and process.hears_master:
                self._hears_since.setdefault(process, now)
            elif process is not None:
                self._hears_since.pop(process, None)

    def _look_at(self, group: ActingGroup, now: int) -> None:
        may = [process for host in group.members if (process := host.member) is not None and process.may_deliver]
        self._counts["INV_B56"] += bool(may) and len(group.members) > 1
        if len(may) < 2:
            self._apart_since.pop(group.key.name, None)
            return
        self._town.counts["two may deliver"] += 1
        if any(self._allows(drop, may, now) for drop in self._drops):
            self._town.counts["two may deliver, and the table says why"] += 1
            self._apart_since.pop(group.key.name, None)
            return
        since = self._apart_since.setdefault(group.key.name, now)
        longest_ns = self._slack_ns
        require(now - since <= longest_ns and (longest_ns > 0), "INV_B56", "two members may deliver what is due",
                [process.host.name for process in may], f"at {now / MS:.1f} ms", f"for {(now - since) / MS:.1f} ms")

    def _allows(self, drop: _Drop, may: list[MemberProcess], now: int) -> bool:
        if drop.host not in [process.host for process in may]:
            return False
        if drop.host.number != MASTER_ID:
            return now - drop.at_ns <= RIGHT_MS * MS + self._slack_ns
        deaf = any(self._hears_since.get(process, now) > drop.at_ns for process in may if not process.is_master)
        return deaf and now - drop.at_ns <= TIMEOUT_MS * MS + self._slack_ns
