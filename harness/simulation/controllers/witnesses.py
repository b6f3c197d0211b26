"""What brokers of a group say of masters that live and are of no use, told by somebody who sees the whole network.

A slave whose master has not been there for ``silence_ms`` says so in its heartbeats, and whom it reaches; a master that
is left with too few members, or whose disk is in trouble, asks for a successor until it has one. What a broker says of
these by itself stays as it is. Who is there is what the network, the processes and the plan say, at each look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from broker.ha.taking import BecomeMaster, BecomeSlave
from controller.yielding import DISK, SILENCE
from raft.config import MS
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.headers.controller import ElectMasterRequest

if TYPE_CHECKING:
    from harness.simulation.controllers.fleet import FleetGroup, FleetHost

LOOK_NS: Final = 100 * MS
"""Between two looks, and two asks."""


class Witnesses:
    """What is known of one group's masters, by who sees all."""

    def __init__(self, fleet: FleetGroup, silence_ms: int) -> None:
        self._fleet, self._silence_ns = fleet, silence_ms * MS
        self._there: dict[FleetHost, tuple[int, int]] = {}
        """A slave's master epoch, and when the master was there; a master's own, and when enough members were."""
        if silence_ms:
            fleet.after(LOOK_NS, self._look)

    def tell(self, host: FleetHost, beat: Command) -> None:
        """What it says of them, into a heartbeat that leaves."""
        if not self._silence_ns:
            return
        if host.machine.trouble and "diskTrouble" not in beat.ext:
            beat.ext["diskTrouble"] = "stalled"
        if "silentEpoch" not in beat.ext and isinstance(self._role(host), BecomeSlave) and self._silent(host):
            self._fleet.counts["master said to be silent"] += 1
            beat.ext["silentEpoch"] = str(self._there[host][0])
            beat.ext["reaches"] = ",".join(sorted(
                str(each.broker_id) for each in self._reached(host) if each.broker_id is not None))

    def _look(self) -> None:
        fleet = self._fleet
        fleet.after(LOOK_NS, self._look)
        now = fleet.world.now
        for host in fleet.hosts:
            role = self._role(host)
            if role is None or host.paused is not None:
                self._there.pop(host, None)  # who does not run judges nobody
                continue
            known = self._there.get(host)
            reached = [*self._reached(host)]
            if isinstance(role, BecomeSlave):
                there = any(each.address == role.master_address for each in reached)
            else:
                group = fleet.group()
                electable = group.electable if group is not None else frozenset()
                there = 1 + sum(each.broker_id in electable for each in reached) >= host.min_in_sync
            if there or known is None or known[0] != role.epoch:
                self._there[host] = role.epoch, now
            if isinstance(role, BecomeMaster):
                self._ask(host, role)

    def _ask(self, host: FleetHost, role: BecomeMaster) -> None:
        fleet, process = self._fleet, host.process
        active, held = fleet.above.active(), process.switch.in_sync if process is not None else None
        reason = DISK if host.machine.trouble else SILENCE if self._silent(host) else None
        if reason is None or active is None or held is None or host.broker_id is None:
            return
        if not (fleet.plan.all_ack or fleet.plan.lease_ms):
            return  # it would have to be fenced before it asks
        fleet.counts[f"asked to be replaced for {reason}"] += 1
        header = ElectMasterRequest(
            fleet.key.cluster, fleet.key.name, host.broker_id, yield_epoch=role.epoch, yield_reason=reason,
            holders=",".join(map(str, sorted(held.accepted - {host.broker_id}))) if reason == DISK else None)
        host.machine.ask(active.name, request(RequestCode.CONTROLLER_ELECT_MASTER, header), self._answered)

    def _answered(self, answer: Command | None) -> None:
        if answer is not None:
            self._fleet.counts["told to ask again"] += "yieldWait" in answer.ext

    def _silent(self, host: FleetHost) -> bool:
        known = self._there.get(host)
        return known is not None and self._fleet.world.now - known[1] >= self._silence_ns

    def _reached(self, host: FleetHost) -> Iterator[FleetHost]:
        """Whose process runs, and both ways are open."""
        network = self._fleet.network
        for each in self._fleet.hosts:
            if each is not host and each.process is not None and each.paused is None and network.open(
                    host.name, each.name) and network.open(each.name, host.name):
                yield each

    @staticmethod
    def _role(host: FleetHost) -> BecomeMaster | BecomeSlave | None:
        process = host.process
        return process.switch.role if process is not None and process.opened else None
