"""Deposes active controllers without their knowledge, while an onlooker goes on asking them.

Random faults do not reach this: within the election timeout after which such a controller steps down by itself, another
one must become active, a group must change, some client must hear of the change, and another must ask the former
controller. So one act does the first steps in order; the onlooker asks the controller that answered it last.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from raft.errors import Outcome
from raft.sim.tape import Chance, Value
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.headers.controller import GetReplicaInfoRequest

if TYPE_CHECKING:
    from controller.metadata.groups import GroupKey
    from harness.simulation.controllers.scene import ControllerScene

TURN_MS: Final = 500
"""Interval at which an active controller may be deposed."""
LOOK_MS: Final = 30
"""Interval of the onlooker's questions."""
PATIENCE: Final = 10
"""After so many questions without an answer the onlooker turns to another controller."""
HAPPENED: Final = ("deposed unheard", "deposed and asked")


class Depositions:
    """The depositions of one seed."""

    def __init__(self, scene: ControllerScene, ends_ns: int) -> None:
        self._scene, self._ends_ns = scene, ends_ns
        self._acts = scene.tape.stream("depositions")
        scene.after(TURN_MS, self._turn)

    def _turn(self) -> None:
        if self._scene.world.now < self._ends_ns:
            self._scene.after(TURN_MS, self._turn)
            act = self._acts.draw(None, self._an_act)
            if act is not None:
                self._depose(*act)

    def _an_act(self, chance: Chance) -> list[Value] | None:
        """Draw how long it is cut off, when an operator designates another master, and which one."""
        if chance() < 0.5:
            return None
        return [int(100 + 900 * chance()), int(10 + 100 * chance()), int(chance() * 1_000)]

    def _depose(self, span_ms: int, change_ms: int, number: int) -> None:
        """Let the active controller transfer its leadership and hear nothing from then on; the others hear it."""
        scene, cluster = self._scene, self._scene.cluster
        name = cluster.leader
        life = scene.running(name) if name is not None else None
        if name is None or life is None:
            return
        try:
            life.transfer(None)
        except Outcome:
            return
        for other in cluster.nodes:
            if other != name:
                cluster.cut(other, name)
                scene.after(span_ms, partial(cluster.heal, other, name))
        scene.after(change_ms, partial(self._change, name, life.replica.term, number))

    def _change(self, name: str, term: int, number: int) -> None:
        """Let an operator find the next active controller and designate another master there."""
        scene = self._scene
        process, active = scene.cluster.processes.get(name), scene.active()
        if process is None or process.active.term != term or not process.active.active:
            return
        if active is None or active is process:
            scene.after(LOOK_MS, partial(self._change, name, term, number))
            return
        scene.counts["deposed unheard"] += 1
        key = scene.keys[number % len(scene.keys)]
        group = active.machine.group(key)
        others = sorted(group.sync_state_set - {group.master}) if group is not None else []
        if others:
            scene.designate(key, others[number % len(others)])


class Onlooker:
    """Asks one controller after the other who leads each group, and stays with the one that answers."""

    def __init__(self, scene: ControllerScene, ends_ns: int) -> None:
        self._scene, self._ends_ns = scene, ends_ns
        self._at = self._asked = self._unanswered = 0
        scene.after(LOOK_MS, self._look)

    def _look(self) -> None:
        scene = self._scene
        if scene.world.now >= self._ends_ns:
            return
        scene.after(LOOK_MS, self._look)
        if self._unanswered >= PATIENCE:
            self._turn_from(self._at)
        key = scene.keys[self._asked % len(scene.keys)]
        self._asked += 1
        self._unanswered += 1
        names, floor = scene.cluster.names, scene.watch.read_begins(key)
        asked = request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(key.name, key.cluster))
        scene.admin.ask(names[self._at % len(names)], asked, partial(self._told, self._at, key, floor), known=floor)

    def _turn_from(self, at: int) -> None:
        if at == self._at:
            self._at, self._unanswered = at + 1, 0

    def _told(self, at: int, key: GroupKey, floor: tuple[int, int], answer: Command | None) -> None:
        if answer is None or answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._turn_from(at)
            return
        if at == self._at:
            self._unanswered = 0
        if answer.code == ResponseCode.SUCCESS:
            self._scene.watch.read_ends(key, floor, answer)
