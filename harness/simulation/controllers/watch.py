"""Statements about controllers and brokers together, checked with a view of all of them at once.

``controller.metadata.invariants`` checks one controller's state; this feeds it every entry at its first application.
``counts`` says how often each property was evaluated. No property relies on the code that it checks: liveness is judged
from the heartbeats as sent, not from ``Liveness``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from broker.ha.taking import BecomeMaster
from controller.liveness import Heartbeat
from controller.metadata.commands import ElectMaster, Trigger
from controller.metadata.events import Applied
from controller.metadata.groups import GroupKey
from controller.metadata.invariants import INVARIANTS, Checker
from controller.metadata.outcomes import Elected
from harness.simulation.brokers.statements import STATEMENTS as BROKER_STATEMENTS
from harness.simulation.controllers.hindered import STATEMENTS as HINDERED
from harness.simulation.controllers.hindered import Hindered
from raft.config import MS
from raft.invariants import require
from raft.violation import InvariantViolation
from remoting.bodies.controller import SyncStateSet
from remoting.command import Command
from remoting.headers.controller import GetReplicaInfoRequest, GetReplicaInfoResponse

if TYPE_CHECKING:
    from harness.simulation.controllers.messages import Ask, Channel
    from harness.simulation.controllers.metadata import SimMetadata
    from harness.simulation.controllers.process import ControllerProcess
    from harness.simulation.controllers.scene import ControllerScene
    from remoting.command import Command

STATEMENTS: Final[dict[str, str]] = {
    "INV_C13": "the same log gives the same state on every controller, after a snapshot too",
    "INV_C18": "a read sees everything that any process knew before the read began",
    "INV_C20": "a lost master is replaced at once after a close, within the heartbeat timeout after silence",
    "INV_C21": "the active controller replaces only a master that it lost; a new one gives every master a timeout",
    "INV_C27": "the format of the log rises by one, for all controllers at the same entry, and only if an active "
               "controller proposes it after all members read the next one; no controller stops at any other entry",
    **HINDERED,
    "INV_LEASE": "where controllers wait for leases, no master is elected while the former may acknowledge, and none "
                 "writes or acknowledges beside another",
}
OF_BROKERS_ALONE: Final = frozenset({
    "INV_B33", "INV_B35", *(f"INV_B{number}" for number in range(36, 54)), "INV_B62", "INV_B64"})
"""Properties that campaigns of brokers ask. Here no broker delays messages, keeps transactions, lets consumers pop,
deletes a topic, judges its disk, or loses its slaves one by one; living masters are hardly ever replaced twice."""
PREDICATES: Final = tuple(
    name for name in dict.fromkeys((*INVARIANTS, *STATEMENTS, *BROKER_STATEMENTS)) if name not in OF_BROKERS_ALONE)
"""All properties: of the metadata, between brokers and controllers, and of brokers, C14 to C17 among them."""


@attrs.frozen
class Heard:
    """The latest heartbeat, by the order of sending, that reached one run of a controller."""

    sent: int
    at_ns: int
    channel: Channel
    timeout_ns: int
    beat: Heartbeat


class ControllerWatch:
    """Judges one scene by all properties."""

    def __init__(self, scene: ControllerScene) -> None:
        self.scene = scene
        self.checker = Checker()
        self.counts: Counter[str] = self.checker.counts
        self.last = 0
        """The highest index that any controller has applied."""
        self._hashes: dict[int, bytes] = {}
        self._heard: dict[tuple[ControllerProcess, GroupKey, int], dict[tuple[str, int | None], Heard]] = {}
        """Latest heartbeats by address and life of the sender."""
        self._floors: dict[GroupKey, tuple[int, int]] = {}
        self.hindered = Hindered(self)

    def found(self, error: Exception) -> None:
        """Raise a violation after this event, since a node would swallow it now."""
        world = self.scene.cluster.world
        world.at(world.now, _throw, error, tie=-1)

    def stopped(self, machine: SimMetadata, data: bytes | None) -> None:
        """Note that a controller met a format it cannot read."""
        try:
            self.scene.releases.stopped(machine.name, machine, data)
        except InvariantViolation as error:
            self.found(error)

    # --- controllers -----------------------------------------------------------------------------------------

    def applied(self, index: int, applied: Applied, machine: SimMetadata) -> None:
        """Check an entry that a controller applied."""
        digest = machine.state_hash()
        known = self._hashes.setdefault(index, digest)
        require(known == digest, "INV_C13", "two controllers made two states of one log", index, applied)
        first = index > self.last
        self.scene.releases.applied(index, applied, machine, first=first)
        if not first:
            self.counts["INV_C13"] += 1
            return
        self.last = index
        self.checker(applied)
        for fleet in [self.scene.fleets[key] for key, _, _ in applied.groups]:
            fleet.applied(applied)
        if isinstance(applied.outcome, Elected) and isinstance(applied.command, ElectMaster):
            self._lease_is_over(applied.command, applied.outcome)

    def _lease_is_over(self, command: ElectMaster, elected: Elected) -> None:
        fleet = self.scene.fleets[elected.key]
        lived = self.hindered.replaced(command, elected.master_epoch - 1)
        waits = fleet.plan.wait_master_lease or (lived and fleet.plan.lease_ms and self.scene.plan.sound_clocks)
        if (not waits or fleet.plan.all_ack or command.trigger is Trigger.ADMIN
                or elected.previous is None or elected.previous == elected.master):
            return
        host = self.scene.host_of(elected.key, elected.previous)
        process = host.process if host is not None else None
        if process is None or not isinstance(process.switch.role, BecomeMaster):
            return
        lease = process.member.manager.lease
        self.counts["INV_LEASE"] += 1
        require(process.switch.role.epoch >= elected.master_epoch or lease.until_ns is None
                or not lease.holds(process.now), "INV_LEASE", "elected while the former master may still acknowledge",
                command, lease, process.now)

    def activated(self, process: ControllerProcess) -> None:
        """Count that a controller has become active."""
        beating = any(host.process is not None and host.process.switch.in_sync is not None
                      for host in self.scene.hosts())
        self.scene.counts["active controller changed"] += 1
        self.scene.counts["changed while masters beat"] += beating

    def heard(self, process: ControllerProcess, beat: Heartbeat, channel: Channel, sent: int) -> None:
        """Note a heartbeat that reached a controller, unless a later one did before."""
        heard = self._heard.setdefault((process, beat.key, beat.broker_id), {})
        who = beat.address, beat.replica.life
        known = heard.get(who)
        if known is None or known.channel.host != channel.host or sent > known.sent:
            timeout_ns = (self.scene.plan.fleet.timeout_ms if beat.timeout_ms is None else beat.timeout_ms) * MS
            heard[who] = Heard(sent, process.now, channel, timeout_ns, beat)

    def heard_of(self, process: ControllerProcess, key: GroupKey, broker_id: int) -> Heard | None:
        """The latest heartbeat of the process that this controller has on record."""
        group = process.machine.groups.get(key)
        member = group.replicas.get(broker_id) if group is not None else None
        heard = self._heard.get((process, key, broker_id), {})
        return max((each for (address, life), each in heard.items() if member is None or (
            life == member.life if member.life else address == member.address)), key=lambda each: each.at_ns,
            default=None)

    def hears(self, process: ControllerProcess, key: GroupKey, broker_id: int) -> bool:
        """Return whether a heartbeat of this broker came over a connection that is still open."""
        heard = self.heard_of(process, key, broker_id)
        return heard is not None and heard.channel.open_here and heard.channel.open_there

    def elects(self, process: ControllerProcess, command: ElectMaster, ask: Command | None = None) -> None:
        """Check INV_C21: an active controller replaces, unasked or for a broker, only a master that it lost.

        A master is lost if the channel of its latest heartbeat was seen to close, or if no heartbeat came for a whole
        timeout while the controller was active and was not paused for half a timeout or longer.
        """
        group = process.machine.groups.get(command.key)
        if group is None or group.leader is None or group.leader in command.observation.live:
            return
        if command.trigger is Trigger.BROKER and (ask is None or (
                ask.ext.get("yieldEpoch") == str(group.master_epoch) and ask.ext["brokerId"] == str(group.leader))):
            self.hindered.elects(process, group, command, ask)
            return
        self.counts["INV_C21"] += 1
        heard = self.heard_of(process, command.key, group.leader)
        if heard is not None and not heard.channel.open_there:
            self.scene.counts["lost by a close"] += 1
            return
        timeout_ns = heard.timeout_ns if heard is not None else self.scene.plan.fleet.timeout_ms * MS
        since = max(process.activated_ns, heard.at_ns if heard is not None else 0,
                    self.hindered.listens_since(process, timeout_ns))
        self.scene.counts["lost by silence"] += 1
        require(process.now - since >= timeout_ns, "INV_C21", "an election although the master is not lost",
                process.name, command.key, group.leader, f"listens since {(process.now - since) / MS} ms")

    def read_begins(self, key: GroupKey) -> tuple[int, int]:
        """The epochs that a read which begins now must see at least."""
        return self._floors.get(key, (0, 0))

    def read_reaches(self, process: ControllerProcess, ask: Ask) -> None:
        """Count reads that may fail INV_C18: by a controller that believes to be active and lacks entries."""
        header = GetReplicaInfoRequest.from_ext(ask.command.ext)
        group = process.machine.groups.get(GroupKey(header.cluster_name or "", header.broker_name))
        has = (group.master_epoch, group.sync_state_set_epoch) if group is not None else (0, 0)
        if self.scene.reads_are_sound and ask.known is not None and not _covers(has, ask.known):
            self.counts["INV_C18"] += 1
            self.scene.counts["deposed and asked"] += 1

    def read_ends(self, key: GroupKey, floor: tuple[int, int], answer: Command) -> None:
        """Check INV_C18: epochs only grow, so a read is linearizable if it sees no older one than known before it."""
        if self.scene.reads_are_sound:
            header, members = GetReplicaInfoResponse.from_ext(answer.ext), SyncStateSet.from_json(answer.body)
            seen = header.master_epoch, members.sync_state_set_epoch
            require(_covers(seen, floor), "INV_C18", "a read misses what was known before it", key, floor, seen)
            known = self._floors.get(key, (0, 0))
            self._floors[key] = max(known[0], seen[0]), max(known[1], seen[1])

    def learned(self, key: GroupKey, epoch: int) -> None:
        """Note that a broker was told this group's epoch."""
        known = self._floors.get(key, (0, 0))
        self._floors[key] = max(known[0], epoch), known[1]


def _covers(seen: tuple[int, int], known: tuple[int, int]) -> bool:
    return seen[0] >= known[0] and seen[1] >= known[1]


def _throw(error: Exception) -> None:
    raise error
