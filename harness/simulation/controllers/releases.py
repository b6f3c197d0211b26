"""Controllers of two releases side by side, which raise the format of the log or stop at one they cannot read.

In seeds that mix releases a controller may be upgraded or downgraded at a start. The active one asks the others which
format they read, as ``controller.actor`` does; also raises are proposed that no controller would. Knows no brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from controller.metadata.codec import decode
from controller.metadata.commands import RaiseFormat
from controller.metadata.events import Applied
from controller.metadata.machine import MetadataMachine
from raft.config import MS
from raft.membership import Membership
from raft.violation import require

if TYPE_CHECKING:
    from harness.simulation.controllers.process import ControllerProcess
    from harness.simulation.controllers.scene import ControllerScene

RAISE_NS: Final = 200 * MS
"""Interval at which the active controller asks the others."""
ANSWER_NS: Final = 3 * MS


@attrs.frozen
class Asked:
    """Evidence for a raise: these members said at this time that they read the format."""

    at_ns: int
    members: frozenset[str]


class Releases:
    """The releases of one scene. ``reads``: controller -> newest format it reads; an old release reads 1 alone."""

    def __init__(self, scene: ControllerScene) -> None:
        self.scene = scene
        self.reads: dict[str, int] = {}
        self.format = 1
        """The format in use, by the newest entry applied anywhere."""
        self._raised: list[tuple[int, int]] = []
        """Each raise as (index, format)."""
        self._asked: dict[tuple[int, int], Asked] = {}
        """(term, format) of a raise -> its evidence."""
        self._fell: dict[str, int] = {}
        """Controller -> when it was last downgraded."""
        self._draws = scene.tape.stream("releases")
        self._overdue: set[str] = set()
        """Controllers that stopped at a format and will come back upgraded."""

    @property
    def _now(self) -> int:
        return self.scene.cluster.world.now

    def starts(self, name: str) -> int:
        """Draw the release with which this controller starts; returns the newest format it reads."""
        newest, before = self.scene.plan.format, self.reads.get(name, 1)
        reads = newest
        if self.scene.plan.mixed and not self.scene.healed and name not in self._overdue:
            if before == 1:
                reads = newest if name in self.reads and self._draws.chance(0.7) else 1
            elif self._draws.chance(0.3):
                reads = 1
                self.scene.cluster.counts["downgrade"] += 1
        if self.reads.get(name) == 1 and reads > 1:
            self.scene.cluster.counts["upgrade"] += 1
        if reads == 1 and self.reads.get(name) != 1:
            self._fell[name] = self.scene.cluster.world.now if name in self.reads else 0
        self._overdue.discard(name)
        self.reads[name] = reads
        return reads

    def roll(self) -> None:
        """Schedule rolling upgrades: one controller after the other, four rounds."""
        cluster, plan = self.scene.cluster, self.scene.plan
        if plan.mixed:
            step = plan.duration_ms * MS // (5 * plan.size)
            for number in range(4 * plan.size):
                cluster.world.at(cluster.world.now + (number + 1) * step, self._restart, f"n{number % plan.size}")

    def _restart(self, name: str) -> None:
        node = self.scene.cluster.nodes[name]
        if not self.scene.healed and node.life is not None and self._draws.chance(
                0.8 if self.reads[name] == 1 else 0.3):
            self.scene.cluster.crash(name)
            self.scene.cluster.start(name)

    # --- raising ---------------------------------------------------------------------------------------------

    def activated(self, process: ControllerProcess) -> None:
        """Note that this controller became active."""
        if self.scene.plan.mixed:
            self._look((process, process.role))
        elif process.machine.format < self.scene.plan.format:
            self._propose(process, process.machine.format + 1, process.life.replica.membership)

    def _look(self, which: tuple[ControllerProcess, int]) -> None:
        process, role = which
        if process.role != role or not process.active.active:
            return
        if process.machine.format < process.machine.reads:
            process.life.later(ANSWER_NS, self._heard, (process, role, process.life.replica.membership))
        elif process.machine.format > 1 and self._draws.chance(0.02):
            self._stray(process)
        process.life.later(RAISE_NS, self._look, which)

    def _heard(self, what: tuple[ControllerProcess, int, Membership]) -> None:
        process, role, asked = what
        if process.role != role or not process.active.active or process.life.replica.membership != asked:
            return
        following = process.machine.format + 1
        if all(self._answer(name) >= following for name in asked.members if name != process.name):
            self._propose(process, following, asked)

    def _answer(self, name: str) -> int:
        process = self.scene.controllers.processes.get(name)
        lost = process is None or process.life.paused is not None or self._draws.chance(0.1)
        return 0 if lost else self.reads[name]

    def _propose(self, process: ControllerProcess, following: int, members: Membership) -> None:
        self._asked[process.active.term, following] = Asked(self._now, frozenset(members.members))
        process.propose(RaiseFormat(term=process.active.term, format=following), _whatever)

    def _stray(self, process: ControllerProcess) -> None:
        """Propose a format that no controller would propose."""
        in_use = process.machine.format
        wanted = self._draws.pick((in_use + 2, 1, 1 << 40, in_use), in_use + 2)
        term = process.active.term - self._draws.chance(0.2)
        self.scene.counts["stray raise"] += 1
        process.propose(RaiseFormat(term=max(term, 0), format=wanted), _whatever)

    # --- INV_C27 ---------------------------------------------------------------------------------------------

    def applied(self, index: int, applied: Applied, machine: MetadataMachine, *, first: bool) -> None:
        """Check that the format rises by one, by an active controller once all members read it, for all alike."""
        command = applied.command
        if first and isinstance(command, RaiseFormat):
            self.scene.watch.counts["INV_C27"] += 1
            if applied.outcome.changed:
                self._rises(index, applied.term, command)
        require(machine.format <= machine.reads, "INV_C27", "a controller goes on in a format it cannot read", index)
        decided = self.format
        if not first:
            decided = max((raised for at, raised in self._raised if at <= index), default=1)
        require(machine.format == decided, "INV_C27", "two formats after one entry", index, machine.format, decided)

    def _rises(self, index: int, term: int, command: RaiseFormat) -> None:
        require(command.format == self.format + 1, "INV_C27", "the format does not rise by one", self.format, command)
        asked = self._asked.get((term, command.format))
        require(asked is not None and command.term == term, "INV_C27", "raised by no active controller", term, command)
        assert asked is not None
        behind = [name for name in asked.members
                  if self.reads[name] < command.format and self._fell[name] < asked.at_ns]
        require(not behind, "INV_C27", "raised while a member does not read it", command, behind)
        self.format = command.format
        self._raised.append((index, command.format))
        self.scene.counts["format raised"] += 1

    def stopped(self, name: str, machine: MetadataMachine, data: bytes | None) -> None:
        """Check a controller that stopped at a format it cannot read: in this entry, or if None in a snapshot."""
        command = None if data is None else decode(data, machine.format)
        decided = self.format > machine.reads if command is None else (
            isinstance(command, RaiseFormat) and (command.term, command.format) in self._asked)
        require(decided, "INV_C27", "a controller stops although nobody raised the format", name, command)
        world = self.scene.cluster.world
        self.scene.counts["left behind"] += 1
        self._overdue.add(name)
        world.at(world.now, self._replace, name, tie=-1)

    def _replace(self, name: str) -> None:
        """Restart it upgraded, as an operator would."""
        cluster = self.scene.controllers
        if cluster.nodes[name].life is not None:
            cluster.crash(name)
            cluster.start(name)


def _whatever(result: object) -> None:
    """Ignore the result: the next look proposes again."""
