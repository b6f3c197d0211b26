"""Adds reports of masters that live and are of no use to a group's heartbeats, from a view of the whole network.

A slave that missed its master for ``silence_ms`` says so in its heartbeats, with the members it reaches. A master that
reaches too few members, or whose disk is in trouble, asks for a successor until it has one. Fields that a broker set
itself stay. Reachability comes from the simulated network, processes and plan, at each look.
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
"""Interval of looks at the network, and of a master's requests for a successor."""


class Witnesses:
    """Knows for each broker of one group when it last reached its master, or as master enough members."""

    def __init__(self, fleet: FleetGroup, silence_ms: int) -> None:
        self._fleet, self._silence_ns = fleet, silence_ms * MS
        self._there: dict[FleetHost, tuple[int, int]] = {}
        """Broker -> its master epoch, and when it last reached the master, or, as master, enough members."""
        if silence_ms:
            fleet.after(LOOK_NS, self._look)

    def tell(self, host: FleetHost, beat: Command) -> None:
        """Add this broker's report to a heartbeat that leaves."""
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
                self._there.pop(host, None)  # a process that does not run reports nothing
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
            return  # without a lease the master would have to stop writes before it asks
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
        """Hosts whose process runs and to which both ways are open."""
        network = self._fleet.network
        for each in self._fleet.hosts:
            if each is not host and each.process is not None and each.paused is None and network.open(
                    host.name, each.name) and network.open(each.name, host.name):
                yield each

    @staticmethod
    def _role(host: FleetHost) -> BecomeMaster | BecomeSlave | None:
        process = host.process
        return process.switch.role if process is not None and process.opened else None
