"""Statements about replacing a master that lives: which reports allow it, after which lease, and how often.

Judged from heartbeats as sent and renewals as answered, not from the controllers' own tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Final

from controller.liveness import Heartbeat
from controller.metadata.commands import ElectMaster
from controller.metadata.groups import BrokerGroup, GroupKey
from raft.config import MS
from raft.invariants import require
from remoting.command import Command
from remoting.headers.controller import ElectMasterRequest

if TYPE_CHECKING:
    from harness.simulation.controllers.process import ControllerProcess
    from harness.simulation.controllers.watch import ControllerWatch

STATEMENTS: Final[dict[str, str]] = {
    "INV_C28": "a master that lives is replaced only if enough members report its silence and reach each other, or by "
               "a member that it named because of its own bad disk; where not all acknowledge, after its lease",
    "INV_C29": "an active controller replaces living masters of one group with a backoff: the next one after 1 s, "
               "2 s, 4 s and so on, up to a minute",
    "INV_C30": "a paused master is replaced in time if enough members report it",
}
PAUSE_NS: Final = 250 * MS
"""Shorter pauses are like a busy turn."""
DRAINED_NS: Final = 90 * MS
"""A controller that was paused first reads waiting heartbeats for so long, before it acts on them."""


def missing_ns(beat: Heartbeat) -> int:
    """Two heartbeat intervals of this broker, at least half a second."""
    return max(2 * (beat.interval_ms or 1_000), 500) * MS


class Hindered:
    """Checks INV_C28 and INV_C29 for one scene."""

    def __init__(self, watch: ControllerWatch) -> None:
        self._watch, self._scene = watch, watch.scene
        self._renewed: dict[tuple[ControllerProcess, GroupKey, int], int] = {}
        self._times: dict[tuple[ControllerProcess, int, GroupKey], list[int]] = {}
        """Times when living masters were replaced, by controller, its number of activation, and group."""
        self._paused: dict[ControllerProcess, int] = {}
        self._resumed: dict[ControllerProcess, int] = {}
        self._pauses: dict[ControllerProcess, list[tuple[int, int]]] = {}
        """Length and end of each pause of a controller."""
        self._commands: set[tuple[object, ...]] = set()

    def replaced(self, command: ElectMaster, epoch: int) -> bool:
        """Return whether this command was proposed to replace a living master of that epoch."""
        return _named(command, epoch) in self._commands

    def waits_ms(self, process: ControllerProcess, key: GroupKey) -> float:
        """Backoff of this controller: how long it may not replace another living master."""
        times = self._times.get((process, process.role, key), ())
        return (times[-1] - process.now) / MS + _wait_ms(len(times)) if times else 0

    def renewed(self, process: ControllerProcess, key: GroupKey, broker_id: int) -> None:
        """Note that the answer to a heartbeat renews a master's lease."""
        self._renewed[process, key, broker_id] = process.now

    def paused(self, process: ControllerProcess) -> None:
        """Note that a controller is paused."""
        self._paused[process] = process.now

    def resumed(self, process: ControllerProcess) -> None:
        """Note that a controller goes on, before it takes anything that waited."""
        span = process.now - self._paused.pop(process, process.now)
        self._pauses.setdefault(process, []).append((span, process.now))
        if span > PAUSE_NS:
            self._resumed[process] = process.now

    def listens_since(self, process: ControllerProcess, timeout_ns: int) -> int:
        """Return when the last pause of this controller ended that was as long as half of this timeout."""
        return max((ended for span, ended in self._pauses.get(process, ()) if 2 * span >= timeout_ns), default=0)

    def elects(self, process: ControllerProcess, group: BrokerGroup, command: ElectMaster, ask: Command | None) -> None:
        """Check a command that replaces a living master; ``ask`` is the request that caused it, if any."""
        key, among = command.key, command.observation.live
        self._watch.counts["INV_C28"] += 1
        self._scene.counts[f"living master replaced, {'asked' if ask is not None else 'unasked'}"] += 1
        self._commands.add(_named(command, group.master_epoch))
        header = ElectMasterRequest.from_ext(ask.ext) if ask is not None else None
        beats = self._beats(process, key, group)
        master = beats.get(group.leader or 0)
        require(master is not None and group.leader not in among and among.keys() <= group.electable, "INV_C28",
                "an election among others than the electable members beside the master", command, group)
        assert master is not None
        for each in among:
            require(each in beats and not beats[each][1].disk_trouble and not group.replicas[each].learner,
                    "INV_C28", "a candidate is unheard, sick or a learner", command, each, beats.get(each))
        if header is not None and header.yield_reason == "disk":
            named = {int(each) for each in (header.holders or "").split(",") if each}
            require(among.keys() <= named, "INV_C28", "the master did not name the candidate", command, header)
        else:
            self._silence(process, group, command, beats, unasked=header is None)
        self._lease(process, group, command, master[1], asked=header is not None)
        self._backoff(process, key)

    def _silence(
        self, process: ControllerProcess, group: BrokerGroup, command: ElectMaster,
        beats: Mapping[int, tuple[int, Heartbeat]], *, unasked: bool,
    ) -> None:
        assert group.leader is not None
        now, (heard, master) = process.now, beats[group.leader]
        witnesses = {each: beat for each, (at, beat) in beats.items()
                     if not (group.replicas[each].learner or beat.disk_trouble)
                     and beat.silent_epoch == group.master_epoch
                     and now - at <= missing_ns(beat)}
        least, among = master.replica.min_in_sync_replicas or 1, command.observation.live.keys()
        require(any(among <= set(some) and _reach_each_other(some, witnesses)
                    for size in range(max(least, len(among)), len(witnesses) + 1)
                    for some in combinations(sorted(witnesses), size)),
                "INV_C28", "not enough members say that it is silent and reach each other", command, witnesses, least)
        require(now - self._resumed.get(process, -DRAINED_NS) >= DRAINED_NS, "INV_C28",
                "who stood still believes what it reads first", process.name, command)
        if unasked:
            require(now - max(heard, process.activated_ns) > missing_ns(master), "INV_C28",
                    "the controller still hears the master", process.name, command, (now - heard) / MS)

    def _lease(
        self, process: ControllerProcess, group: BrokerGroup, command: ElectMaster, master: Heartbeat, *, asked: bool
    ) -> None:
        if master.all_ack_in_sync_state_set:
            return
        require(asked or master.master_lease_ms > 0, "INV_C28", "a master without a lease is replaced unasked", command)
        timeout_ms = self._scene.plan.fleet.timeout_ms if master.timeout_ms is None else master.timeout_ms
        assert group.leader is not None
        since = max(process.activated_ns, self._renewed.get((process, command.key, group.leader), 0))
        require(not master.master_lease_ms or process.now >= since + min(master.master_lease_ms, timeout_ms) * MS,
                "INV_C28", "the master's lease is not over", command, (process.now - since) / MS)

    def _backoff(self, process: ControllerProcess, key: GroupKey) -> None:
        times = self._times.setdefault((process, process.role, key), [])
        if times:
            self._watch.counts["INV_C29"] += 1
            require(process.now - times[-1] >= _wait_ms(len(times)) * MS, "INV_C29",
                    "the next living master is replaced too soon", process.name, key,
                    [(process.now - each) / MS for each in times])
        times.append(process.now)

    def _beats(
        self, process: ControllerProcess, key: GroupKey, group: BrokerGroup
    ) -> dict[int, tuple[int, Heartbeat]]:
        """The latest heartbeat of each member on record, with its time of arrival."""
        return {each: (heard.at_ns, heard.beat) for each in group.replicas
                if (heard := self._watch.heard_of(process, key, each)) is not None}


def _named(command: ElectMaster, epoch: int) -> tuple[object, ...]:
    """Identity of a command, even after it was encoded and decoded."""
    return command.key, command.term, epoch, command.trigger, command.broker_id, *sorted(command.observation.live)


def _wait_ms(before: int) -> int:
    """The backoff after so many replacements."""
    return 1_000 * min(1 << (before - 1), 60)


def _reach_each_other(some: Iterable[int], witnesses: Mapping[int, Heartbeat]) -> bool:
    return all(other in witnesses[one].reaches and one in witnesses[other].reaches
               for one, other in combinations(some, 2))
