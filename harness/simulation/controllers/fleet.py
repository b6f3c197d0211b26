"""One broker group of the shipped cores, as ``harness.simulation.brokers`` has it; controllers are simulated in full.

A Java broker announces nothing and sends one-way heartbeats. An operator lets brokers that were cleaned join again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.replicas.identity import Identity, load
from controller.metadata.events import Applied
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.outcomes import Cleaned
from controller.requests import WRITES
from harness.simulation.brokers.controller import UNKNOWN_TO_JAVA
from harness.simulation.brokers.group import Group
from harness.simulation.brokers.host import Host
from harness.simulation.brokers.process import E_ANSWER, E_TIMEOUT, IDENTITY, BrokerProcess
from harness.simulation.brokers.watch import BrokerWatch
from harness.simulation.controllers.machine import Machine
from harness.simulation.controllers.witnesses import Witnesses
from raft.config import MS
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.headers.controller import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from harness.simulation.brokers.controller import BrokerChannel
    from harness.simulation.controllers.scene import ControllerScene

CONTROLLERS = tuple(f"n{number}" for number in range(7))
"""All controllers that may ever exist: every broker is configured with all of them."""
OPERATOR_MS = 400
SCALE = 1 << 24
"""Heartbeats multiply offsets by this, so that they exceed 32 bits as in real logs."""
LATER_RELEASES = (
    "masterLeaseMs", "allAckInSyncStateSet", "minInSyncReplicas", "learner", "brokerLife", "logInDoubt", "doubtEpoch",
    "silentEpoch", "reaches", "diskTrouble", "heartbeatIntervalMs")
"""Fields of a heartbeat that no Java broker sends."""


class FleetHost(Host):
    """A broker's place on a machine."""

    def __init__(self, fleet: FleetGroup, number: int, machine: Machine) -> None:
        super().__init__(fleet, number)
        self.machine, self.name = machine, machine.name

    @property
    def address(self) -> str:
        return self.machine.address

    @property
    def broker_id(self) -> int | None:
        """The broker's id on its disk."""
        file = self.files.content.get(IDENTITY)
        key = self.scene.key
        found = load(key.cluster, key.name, bytes(file.data).decode(), None) if file is not None else None
        return found.broker_id if isinstance(found, Identity) else None


class FleetGroup(Group):
    """One broker group with its clients, under fully simulated controllers."""

    hosts: list[FleetHost]  # type: ignore[assignment]
    copies: list[FleetHost]  # type: ignore[assignment]

    def __init__(self, above: ControllerScene, key: GroupKey, number: int) -> None:
        plan = above.plan
        self.above, self._machines = above, above.machines_of(number)
        self._group: BrokerGroup | None = None
        super().__init__(
            above.tape, plan.fleet, above.world, above.inner, above.counts, key=key, controllers=CONTROLLERS,
            ends_ns=plan.duration_ms * MS, name=f"{key.name} ")
        for host in self.hosts:
            host.machine.brokers[key] = host
        self.outcomes = above.outcomes
        self.watch = BrokerWatch(self, above.watch.checker)
        self._witnesses = Witnesses(self, plan.silence_ms)

    def copy(self, host: FleetHost, machine: Machine) -> FleetHost:
        """Copy its disk, cache included, to another machine."""
        other = FleetHost(self, host.number, machine)
        other.files.put_back(host.files.copied())
        self.copies.append(other)
        machine.brokers[self.key] = other
        return other

    def _make_host(self, number: int) -> FleetHost:
        return FleetHost(self, number, self._machines[number])

    def applied(self, applied: Applied) -> None:
        """Take an entry about this group, at its first application anywhere."""
        for key, before, after in applied.groups:
            if key == self.key:
                self._group = after
                self._came_in(before, after)
        if isinstance(applied.outcome, Cleaned):
            self.lost |= applied.outcome.removed_ids
            if self._group is not None and not self._group.sync_state_set:
                self.watch.forgiven()
        self.watch.decided(applied)

    def group(self) -> BrokerGroup | None:
        return self._group

    def _came_in(self, before: BrokerGroup, after: BrokerGroup) -> None:
        """Note that a copied disk took its original's place, or the original its own again.

        Then the loss of acknowledged writes is forgiven.
        """
        names = [copy.name for copy in self.copies]
        for broker_id, replica in after.replicas.items():
            former = before.replicas.get(broker_id)
            if former is not None and former.address != replica.address and (
                    former.address.partition(":")[0] in names or replica.address.partition(":")[0] in names):
                self.counts["a copy came in"] += 1
                self.lost.add(broker_id)
                self.watch.forgiven()

    # --- machines --------------------------------------------------------------------------------------------

    def restart(self, host: Host, span_ms: int) -> None:
        """Crash the whole machine process after its broker died at a file operation, and restart it later."""
        assert isinstance(host, FleetHost)
        self.above.counts["site"] += 1
        host.machine.crash(self.seen)
        self.above.restart(host.machine, span_ms)

    def wipe(self, host: FleetHost) -> FleetHost:
        """Replace a host by one with an empty disk."""
        broker_id = host.broker_id
        if broker_id is not None:
            self.lost.add(broker_id)
        fresh = self.hosts[host.number] = FleetHost(self, host.number, host.machine)
        fresh.life = host.life
        host.machine.brokers[self.key] = fresh
        return fresh

    def reported(self, process: BrokerProcess, problem: str) -> None:
        super().reported(process, problem)
        if "remove the identity file" in problem and not process.dead:
            self.after(OPERATOR_MS * MS, lambda: self._clear(process))

    def _clear(self, process: BrokerProcess) -> None:
        host = process.host
        assert isinstance(host, FleetHost)
        if host.process is process and host in self.copies:
            host.machine.crash(self.seen)  # an operator removed the original's id
        elif host.process is process:
            self.give_up_identity(host)

    def give_up_identity(self, host: FleetHost) -> None:
        """Remove the identity file of a broker that was cleaned away, as an operator does; its log stays."""
        self.counts["identity given up"] += 1
        host.machine.crash(self.seen)
        files, site = host.files, host.files.hook
        files.hook = _by_hand
        if files.exists(IDENTITY):
            files.remove(IDENTITY)
            files.sync_dir("")
        files.hook = site
        self.above.restart(host.machine, 20)

    # --- controllers -----------------------------------------------------------------------------------------

    def channel_closed(self, host: Host, channel: BrokerChannel) -> None:
        raise AssertionError("channels are the machine's")

    def ask(self, process: BrokerProcess, address: str, command: Command, timeout_ms: int,
            then: Callable[[Command | None], None]) -> None:
        host, above = process.host, self.above
        assert isinstance(host, FleetHost)
        done = [False]
        polls = command.code == RequestCode.CONTROLLER_GET_REPLICA_INFO
        floor = above.watch.read_begins(self.key)

        def once(answer: Command | None) -> None:
            if not done[0]:
                done[0] = True
                if answer is not None and polls and answer.code == ResponseCode.SUCCESS:
                    above.watch.read_ends(self.key, floor, answer)
                elif answer is not None and "masterEpoch" in answer.ext:
                    above.watch.learned(self.key, int(answer.ext["masterEpoch"]))
                then(answer)

        def heard(answer: Command | None) -> None:
            host.do(process, E_ANSWER, lambda: once(answer))

        if command.code == RequestCode.BROKER_HEARTBEAT:
            for name in ("maxOffset", "confirmOffset"):
                command.ext[name] = str(int(command.ext[name]) * SCALE)
            self._witnesses.tell(host, command)
        if above.plan.java and command.code in WRITES:
            for name in UNKNOWN_TO_JAVA:
                command.ext.pop(name, None)
        if above.plan.java and command.code == RequestCode.BROKER_HEARTBEAT:
            host.machine.ask(address, _as_java(command), None)
            heard(response(command))
            return
        channel = host.machine.ask(address, command, heard, floor if polls else None)

        def too_late() -> None:
            if not done[0]:
                if above.plan.hangs_up:
                    host.machine.close(channel)
                once(None)

        process.later(timeout_ms * MS, E_TIMEOUT, too_late)


def _by_hand(what: str) -> None:
    """Hook of file operations while no process runs that could crash."""


def _as_java(beat: Command) -> Command:
    header = BrokerHeartbeatRequest.from_ext({
        name: value for name, value in beat.ext.items() if name not in LATER_RELEASES})
    return request(RequestCode.BROKER_HEARTBEAT, header, oneway=True)
