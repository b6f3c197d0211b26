"""Checks INV_B32 to INV_B35 for ``BrokerWatch``: judgements of silence and of disks, and living masters replaced.
Behind a seed that ended well ``forsake`` checks INV_B64.

Silence is known here from the arrivals at each machine, and trouble of a disk from the disk itself, not from replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.ha.silence import LOOK_NS
from broker.store.health import DiskHealth
from controller.metadata.commands import ElectMaster, Trigger
from controller.metadata.events import Applied
from controller.metadata.groups import BrokerGroup
from controller.metadata.outcomes import Elected
from harness.simulation.brokers.plan import YIELD_WAIT_MS
from raft.config import MS
from raft.invariants import require
from remoting.bodies.controller import SyncStateSet
from remoting.codes import ResponseCode
from remoting.command import Command

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.scene import BrokerScene
    from harness.simulation.brokers.watch import BrokerWatch

HINDERED: Final = (
    "member judged silent", "master judged silent", "disk judged full", "disk judged stalled", "asked for a successor",
    "living master replaced", "set shrunk below the minimum", "member reached",
)
"""Judgements and their effects that each campaign must meet."""
FIRST_WAIT_NS: Final = 1_000 * MS
WAIT_MOST_NS: Final = 60_000 * MS
COMMITTED_NS: Final = 300 * MS
"""Longest time until a proposal is committed."""
AFTERMATH_NS: Final = 4_500 * MS
"""Time in which a repaired disk may still be judged bad: replicas test it some times, a second apart."""


HEARD_MS: Final = 5_000
"""Time in which a new active controller hears all brokers, and masters are level again."""
IN_TIME_MS: Final = 10_000
"""A master that hears nobody asks for a successor each 8 s at least; the silence and the election come on top."""


class Hindrances:
    """The judgements of one scene, and their checks."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch, self._scene, self._counts, self._broken = watch, watch.scene, watch.counts, watch.broken
        self._accused: dict[BrokerProcess, frozenset[int]] = {}
        self._master_accused: set[BrokerProcess] = set()
        self._told_disk: dict[BrokerProcess, DiskHealth] = {}
        self._asked: dict[BrokerProcess, tuple[int, int]] = {}
        """Master that asked for a successor since its set last grew to its minimum -> its epoch, and until when
        members may report whom they reach, or when it was told that no member can follow."""
        self._replaced: dict[int, tuple[int, int]] = {}
        """Term of the controllers -> when a living master was last replaced, and the backoff until the next time."""

    def ended(self, process: BrokerProcess) -> None:
        """Forget a process whose run is over."""
        self._accused.pop(process, None)
        self._told_disk.pop(process, None)
        self._master_accused.discard(process)
        self._asked.pop(process, None)

    # --- silence ---------------------------------------------------------------------------------------------

    def look(self, process: BrokerProcess) -> None:
        """Check a process's judgements, at each of its ticks and when it asks for another SyncStateSet."""
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
        """Check INV_B32. Arrivals during a short pause that ends right now may be unread."""
        self._counts["INV_B32"] += 1
        silence_ns = judge.switch.config.silence_ms * MS
        if spoke_ns is not None and judge.now - spoke_ns < silence_ns:
            began, ended = judge.host.stood
            short = ended == judge.now and ended - began <= LOOK_NS + silence_ns // 4
            if not short or spoke_ns < began:
                self._broken("INV_B32", "accused of a silence that was none", judge, who, (judge.now - spoke_ns) / MS)

    @staticmethod
    def _member_spoke(master: BrokerProcess, member: int) -> int | None:
        """Return when this member's latest connection spoke last.

        It is known by the run at the other end: a machine whose disk was lost comes back as another broker, and may
        speak on a connection of its own while that of the former one is still open here."""
        links = [link for link in master.switch.port.links.values()
                 if link.spoke and link.stream.open and link.stream.other is not None
                 and link.stream.other.process.member.manager.broker_id == member]
        return max(links, key=lambda link: link.number).stream.spoken_ns if links else None

    @staticmethod
    def _master_spoke(slave: BrokerProcess) -> int | None:
        following = slave.switch.following
        return following.end_.spoken_ns if following is not None and following.end_ is not None else None

    # --- disks -----------------------------------------------------------------------------------------------

    def _disk(self, process: BrokerProcess) -> None:
        """Check INV_B33: its own judgement of its disk's health."""
        health, disk = process.journal.health, process.host.disk
        if health is self._told_disk.get(process, DiskHealth.WELL):
            return
        self._told_disk[process] = health
        if health is not DiskHealth.WELL:
            self._counts["INV_B33"] += 1
            self._scene.counts[f"disk judged {health.value}"] += 1
            if not disk.is_in_trouble and self._scene.world.now - disk.well_ns > AFTERMATH_NS:
                self._broken("INV_B33", "accuses a disk that is well", process, health, disk.well_ns / MS)

    # --- successors ------------------------------------------------------------------------------------------

    def asks_for_a_successor(self, process: BrokerProcess) -> None:
        """Note that a master asks for a successor."""
        self._scene.counts["asked for a successor"] += 1
        epoch, until_ns = process.member.manager.epoch, process.now + YIELD_WAIT_MS * MS
        if process not in self._asked or self._asked[process][0] != epoch:
            self._asked[process] = epoch, until_ns

    def told_of_a_successor(self, process: BrokerProcess, answer: Command) -> None:
        """Note a controller's answer to a request for a successor."""
        if answer.code != ResponseCode.SUCCESS and "yieldWait" not in answer.ext and process in self._asked:
            self._asked[process] = self._asked[process][0], process.now

    def asks(self, process: BrokerProcess, wanted: SyncStateSet) -> None:
        """Check INV_B34 when a master asks for another SyncStateSet."""
        in_sync, manager, plan = process.switch.in_sync, process.member.manager, self._scene.plan
        least = manager.gate.announced
        if in_sync is None or len(wanted.sync_state_set) >= least or len(in_sync.accepted) < least:
            return
        self._scene.counts["set shrunk below the minimum"] += 1
        if plan.all_ack and not plan.java_controllers and manager.lease.granted:
            self._counts["INV_B34"] += 1
            epoch, until_ns = self._asked.get(process, (-1, 0))
            if epoch != manager.epoch or process.now < until_ns:
                self._broken("INV_B34", "shrinks below the minimum, and nobody was asked", process, wanted, least)

    def decided(self, applied: Applied) -> None:
        """Check INV_B35; a master whose set grew to its minimum must ask for a successor anew."""
        outcome, command = applied.outcome, applied.command
        for _, before, after in applied.groups:
            if after.sync_state_set - before.sync_state_set:
                self._asked = {each: asked for each, asked in self._asked.items() if asked[0] != after.master_epoch
                               or not len(before.sync_state_set) < each.member.manager.gate.announced <= len(
                                   after.sync_state_set)}
            if isinstance(outcome, Elected) and isinstance(command, ElectMaster) and before.leader is not None \
                    and command.trigger is Trigger.BROKER and after.master != before.master and self._leads(before):
                self._replaces(command.term)

    def _leads(self, group: BrokerGroup) -> bool:
        """Return whether the master on record is one indeed: a broker that returns to a group without one asks, too."""
        host = self._scene.host_of(group.master)
        return host is not None and self._watch.leads_in(host.process) == group.master_epoch

    def _replaces(self, term: int) -> None:
        now = self._scene.world.now
        self._scene.counts["living master replaced"] += 1
        last = self._replaced.get(term)
        if last is None:
            self._replaced[term] = now, FIRST_WAIT_NS
            return
        self._counts["INV_B35"] += 1
        before, wait = last
        require(now - before >= wait - COMMITTED_NS, "INV_B35", "living masters are replaced too often", now / MS,
                (now - before) / MS, wait / MS)
        self._replaced[term] = now, min(2 * wait, WAIT_MOST_NS)


def is_yield(command: Command) -> bool:
    """Return whether a living master asks for a successor with this command."""
    return "yieldEpoch" in command.ext


def forsake(scene: BrokerScene, gap_ms: int) -> None:
    """Cut a master off from its slaves, one ``gap_ms`` after the other. Raises ``InvariantViolation`` for INV_B64.

    Those lost first have left its SyncStateSet when it is about to lose so many that it must ask for a successor, and
    still they count among those that can go on without it.
    """
    plan = scene.plan
    if not plan.all_ack or plan.java_controllers or not plan.beat_interval_ms:
        return
    scene.fail_over()  # which forgets the backoff of the seed's elections
    end = scene.world.now + HEARD_MS * MS
    scene.world.run(scene.world.now + (2 * plan.beat_ms + plan.timeout_ms) * MS)
    while scene.world.now < end and not scene.watch.level():
        scene.world.run(scene.world.now + 50 * MS)
    group = scene.group()
    master = scene.host_of(group.master) if group is not None else None
    slaves = [host for host in scene.hosts if host is not master and not host.learner]
    if group is None or master is None or not 2 <= master.min_in_sync <= len(slaves) or not scene.watch.level():
        return
    for slave in slaves:
        scene.network.cut(master.name, slave.name)
        scene.network.cut(slave.name, master.name)
        scene.world.run(scene.world.now + gap_ms * MS)
    end = scene.world.now + IN_TIME_MS * MS
    now = scene.group()
    while (now is None or now.master_epoch == group.master_epoch) and scene.world.now < end:
        scene.world.run(scene.world.now + 50 * MS)
        now = scene.group()
    scene.watch.counts["INV_B64"] += 1
    require(now is not None and now.master_epoch > group.master_epoch, "INV_B64",
            "a master that its slaves lose one after the other is not replaced in time", gap_ms, group, now)
