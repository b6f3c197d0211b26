"""What must hold between controllers and brokers, judged from above: it sees every broker and every controller at once.

What concerns one controller's state alone is ``controller.metadata.invariants``, which this feeds with every entry at
its first application. ``counts`` says how often each property was asked about something. No property asks the code that
it checks: who is alive is judged from the heartbeats as they were sent, not from ``Liveness``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from controller.liveness import Heartbeat
from controller.metadata.commands import ElectMaster, Trigger
from controller.metadata.events import Applied
from controller.metadata.groups import GroupKey
from controller.metadata.invariants import INVARIANTS, Checker
from controller.metadata.outcomes import Cleaned, Elected
from raft.config import MS
from raft.invariants import require

if TYPE_CHECKING:
    from harness.controllers.broker import Broker
    from harness.controllers.messages import Channel, Pull
    from harness.controllers.metadata import SimMetadata
    from harness.controllers.process import Process
    from harness.controllers.replication import Disk, Entry, Mastership
    from harness.controllers.scene import ControllerScene

STATEMENTS: Final[dict[str, str]] = {
    "INV_C13": "the same log gives the same state on every controller, after a snapshot too",
    "INV_C14": "who moved to a later epoch acknowledges nothing in an older one; one master of an epoch acknowledges",
    "INV_C15": "a broker's epoch never falls, and an epoch has one master, or none, for all brokers",
    "INV_C16": "a broker that knows of a later epoch, or whose lease is over, accepts no write",
    "INV_C17": "after healing all brokers agree with the controllers, though every notification be lost",
    "INV_C18": "a read sees whatever anybody knew before it began",
    "INV_C20": "a lost master is replaced at once after a close, within the heartbeat timeout after silence",
    "INV_C21": "no master is replaced that the active controller did not lose; a new one gives every master a timeout",
    "INV_DATA": "a later master, cleanly elected, holds all that the SyncStateSet had acknowledged, the eligible "
                "included",
    "INV_LEASE": "where leases are waited for, no master is elected while the former may acknowledge",
}
PREDICATES: Final = tuple(dict.fromkeys((*INVARIANTS, *STATEMENTS)))
"""All that is asked: properties of the metadata, and those between brokers and controllers."""


@attrs.frozen
class Heard:
    """The latest heartbeat, by the order of sending, that reached one run of a controller."""

    sent: int
    at_ns: int
    channel: Channel
    timeout_ns: int


class Watch:
    """All of it, for one scene."""

    def __init__(self, scene: ControllerScene) -> None:
        self.scene = scene
        self.checker = Checker()
        self.counts: Counter[str] = self.checker.counts
        self.last = 0
        """Entries up to this index were applied somewhere."""
        self._hashes: dict[int, bytes] = {}
        self._heard: dict[tuple[Process, GroupKey, int], Heard] = {}
        self._owners: dict[tuple[GroupKey, int], int] = {}
        self._adopted: dict[int, tuple[int, int | None, int]] = {}
        """By disk: highest epoch, its master, SyncStateSet epoch."""
        self._masters: dict[tuple[GroupKey, int], int | None] = {}
        self._learned: dict[int, int] = {}
        self._renewed: dict[int, int] = {}
        self._floors: dict[GroupKey, tuple[int, int]] = {}
        self._full: dict[tuple[GroupKey, int], int] = {}
        self.acknowledged: dict[GroupKey, list[Entry]] = {}
        self._latest: dict[GroupKey, Broker] = {}
        self.void: set[GroupKey] = set()
        """Groups where somebody accepted loss: an unclean election, or all members cleaned away."""

    def found(self, error: Exception) -> None:
        """Something was found where a node would swallow it: it ends the run right after this event."""
        world = self.scene.cluster.world
        world.at(world.now, _throw, error, tie=-1)

    # --- controllers -----------------------------------------------------------------------------------------

    def applied(self, index: int, applied: Applied, machine: SimMetadata) -> None:
        """An entry was applied on some controller."""
        digest = machine.state_hash()
        known = self._hashes.setdefault(index, digest)
        require(known == digest, "INV_C13", "two controllers made two states of one log", index, applied)
        if index <= self.last:
            self.counts["INV_C13"] += 1
            return
        self.last = index
        self.checker(applied)
        outcome = applied.outcome
        if isinstance(outcome, Elected):
            if not outcome.clean:
                self.void.add(outcome.key)
            if isinstance(applied.command, ElectMaster):
                self._lease_is_over(applied.command, outcome)
        elif isinstance(outcome, Cleaned) and outcome.group_removed:
            self.void.add(outcome.key)

    def _lease_is_over(self, command: ElectMaster, elected: Elected) -> None:
        plan = self.scene.plan
        if (not plan.settings.wait_master_lease or command.trigger is Trigger.ADMIN or not plan.true_clocks
                or elected.previous is None or elected.previous == elected.master):
            return
        former = self.scene.broker_of(elected.key, elected.previous)
        if former is None or not former.fences or not former.host.up:
            return
        self.counts["INV_LEASE"] += 1
        mastership = former.mastership
        require(mastership is None or mastership.epoch >= elected.master_epoch or former.now >= former.lease_ns,
                "INV_LEASE", "elected while the former master may still acknowledge", command, former.lease_ns)

    def activated(self, process: Process) -> None:
        """A controller begins to act."""
        beating = any(broker.mastership is not None and broker.host.up for broker in self.scene.brokers())
        self.scene.counts["active controller changed"] += 1
        self.scene.counts["changed while masters beat"] += beating

    def heard(self, process: Process, beat: Heartbeat, channel: Channel, sent: int) -> None:
        """A heartbeat reached a controller. Late ones and doubles say nothing new."""
        known = self._heard.get((process, beat.key, beat.broker_id))
        if known is None or sent > known.sent:
            timeout_ns = (self.scene.plan.timeout_ms if beat.timeout_ms is None else beat.timeout_ms) * MS
            self._heard[process, beat.key, beat.broker_id] = Heard(sent, process.now, channel, timeout_ns)

    def hears(self, process: Process, key: GroupKey, broker_id: int) -> bool:
        """Whether this broker has an open channel to this controller by which it has beaten."""
        heard = self._heard.get((process, key, broker_id))
        return heard is not None and heard.channel.open_here and heard.channel.open_there

    def elects(self, process: Process, command: ElectMaster) -> None:
        """INV_C21: an active controller elects, of itself or for a broker, only in place of a master that it lost.

        That is, one whose latest heartbeat came by a channel that it saw close, or whose heartbeats stayed away for a
        whole timeout while it was active.
        """
        group = process.machine.groups.get(command.key)
        if group is None or group.master is None or group.master in command.observation.live:
            return
        self.counts["INV_C21"] += 1
        heard = self._heard.get((process, command.key, group.master))
        if heard is not None and not heard.channel.open_there:
            self.scene.counts["lost by a close"] += 1
            return
        since = max(process.activated_ns, heard.at_ns if heard is not None else 0)
        timeout_ns = heard.timeout_ns if heard is not None else self.scene.plan.timeout_ms * MS
        self.scene.counts["lost by silence"] += 1
        require(process.now - since >= timeout_ns, "INV_C21", "an election although the master is not lost",
                process.name, command.key, group.master, f"heard {(process.now - since) / MS} ms ago")

    def read_begins(self, key: GroupKey) -> tuple[int, int]:
        """What a read that begins now must at least see."""
        return self._floors.get(key, (0, 0))

    def read_ends(self, key: GroupKey, floor: tuple[int, int], seen: tuple[int, int], sound: bool) -> None:
        """INV_C18: epochs only grow, so a read is linearizable when it sees none older than was known before it."""
        if sound:
            self.counts["INV_C18"] += 1
            require(seen[0] >= floor[0] and seen[1] >= floor[1], "INV_C18", "a read of the past", key, floor, seen)
            known = self._floors.get(key, (0, 0))
            self._floors[key] = max(known[0], seen[0]), max(known[1], seen[1])

    # --- brokers ---------------------------------------------------------------------------------------------

    def identified(self, broker: Broker) -> None:
        """INV_C10 as brokers see it: an id is one disk's for ever."""
        broker_id = broker.disk.broker_id
        assert broker_id is not None
        owner = self._owners.setdefault((broker.key, broker_id), broker.disk.token)
        self.counts["INV_C10"] += 1
        require(owner == broker.disk.token, "INV_C10", "two disks with one id", broker.key, broker_id)

    def learned(self, broker: Broker, epoch: int) -> None:
        """A broker was told that its group is in this epoch."""
        token = broker.disk.token
        self._learned[token] = max(self._learned.get(token, 0), epoch)
        known = self._floors.get(broker.key, (0, 0))
        self._floors[broker.key] = max(known[0], epoch), known[1]

    def adopts(self, broker: Broker, master: int | None, epoch: int, set_epoch: int) -> None:
        """INV_C15: a broker's epoch never falls, and an epoch has one master for everybody."""
        token = broker.disk.token
        self.counts["INV_C15"] += 1
        highest, of, sets = self._adopted.get(token, (0, None, 0))
        require(epoch > highest or (epoch == highest and master == of and set_epoch >= sets),
                "INV_C15", "back to an older epoch", broker.key, broker.disk.broker_id, (highest, of), (epoch, master))
        known = self._masters.setdefault((broker.key, epoch), master)
        decided = self.checker.history.masters.get((broker.key, epoch), "nobody")
        require(known == master == decided, "INV_C15", "two masters of one epoch", broker.key, epoch, known, master,
                decided)
        self._adopted[token] = epoch, master, set_epoch

    def moved(self, disk: Disk) -> int:
        """The highest epoch that this disk took part in."""
        return self._adopted.get(disk.token, (0, None, 0))[0]

    def leads(self, broker: Broker) -> None:
        """INV_DATA: a master of a later epoch holds all that was acknowledged, as long as elections were clean."""
        key = broker.key
        self._latest[key] = broker
        acknowledged = self.acknowledged.get(key)
        if acknowledged and key not in self.void:
            self.counts["INV_DATA"] += 1
            require(broker.disk.log[: len(acknowledged)] == acknowledged, "INV_DATA",
                    "a new master lacks what was acknowledged", key, broker.disk.broker_id, broker.disk.epoch,
                    len(acknowledged), len(broker.disk.log))

    def renewed(self, broker: Broker, sent: int) -> None:
        token = broker.disk.token
        self._renewed[token] = max(self._renewed.get(token, 0), sent)

    def accepts(self, broker: Broker, mastership: Mastership) -> None:
        """INV_C16: no write is accepted by who knows of a later epoch, or whom nobody renewed for its lease's time."""
        token = broker.disk.token
        self.counts["INV_C16"] += 1
        require(self._learned.get(token, 0) <= mastership.epoch, "INV_C16", "a deposed master knows it and writes",
                broker.key, broker.disk.broker_id, mastership.epoch, self._learned.get(token))
        if broker.fences:
            since = broker.now - self._renewed.get(token, 0)
            require(since <= self.scene.plan.lease_ms * MS, "INV_C16", "a write without a lease", broker.key, since)

    def counted(self, master: Broker, pull: Pull) -> None:
        """INV_C14, the acknowledging side: who moved on to a later epoch acknowledges nothing in an older one."""
        self.counts["INV_C14"] += 1
        require(pull.moved <= pull.epoch == master.disk.epoch, "INV_C14", "acknowledged after it moved on",
                pull.key, pull.broker_id, pull.epoch, pull.moved)

    def acknowledges(self, broker: Broker, mastership: Mastership, confirmed: int) -> None:
        """INV_C14 and INV_DATA: one master of an epoch acknowledges, and later masters hold what it does."""
        key, log = broker.key, broker.disk.log
        token = self._full.setdefault((key, mastership.epoch), broker.disk.token)
        require(token == broker.disk.token, "INV_C14", "two acknowledge in one epoch", key, mastership.epoch)
        if key in self.void:
            return
        acknowledged = self.acknowledged.setdefault(key, [])
        self.counts["INV_DATA"] += 1
        common = min(confirmed, len(acknowledged))
        require(log[:common] == acknowledged[:common], "INV_DATA", "acknowledged twice, differently", key)
        latest = self._latest.get(key)
        if latest is not None and latest.disk.epoch > mastership.epoch and latest.mastership is not None:
            require(latest.disk.log[:confirmed] == log[:confirmed], "INV_DATA",
                    "acknowledged although a later master lacks it", key, mastership.epoch, latest.disk.epoch)
        acknowledged.extend(log[len(acknowledged) : confirmed])


def _throw(error: Exception) -> None:
    raise error
