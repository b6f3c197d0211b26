"""Kills a follower, restarts it in the same term, and delivers the answers that were meant for its earlier life.

Random crashes do not reach this: the answer must arrive after messages that were sent later, which needs a second
connection, while the new life has a request of the same kind open. So one act does all steps in order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from raft.config import MS, Read
from raft.errors import Outcome
from raft.messages import ReadReply

if TYPE_CHECKING:
    from raft.sim.campaign import Scene
    from raft.sim.node import Life

PATIENCE_NS: Final = 500 * MS
"""Time that a new life has to hear the leader."""


class Bounce:
    """Two restarts of one follower, with late answers. Each of the two new lives asks ``reads`` reads."""

    def __init__(self, scene: Scene, name: str, reads: int) -> None:
        self._scene, self._name, self._reads = scene, name, reads
        self._cluster = cluster = scene.cluster
        self._leader = leader = cluster.leader or name
        self._link = cluster.network.link(leader, name)
        self._round_trips_ns = 3 * MS + 6 * self._link.profile.latency_ns
        """Time for a read: the follower asks the leader, and the leader asks its voters."""
        life = scene.running(name)
        if leader == name or life is None or self._link.held is not None:
            return
        cluster.counts["bounce"] += 1
        self._begin(life, self._ask)

    def _begin(self, life: Life, then: Callable[[Life], None]) -> None:
        """End this life, begin the next, and go on once that one knows the leader."""
        world = self._cluster.world
        self._cluster.crash(self._name)
        self._scene.start(self._name)
        life_now, until = self._scene.running(self._name), world.now + PATIENCE_NS

        def look(_: None) -> None:
            if life_now is None or life_now is not self._scene.running(self._name) or world.now > until:
                return
            if life_now.replica.leader == self._leader:
                then(life_now)
            else:
                world.at(world.now + MS, look)

        world.at(world.now, look)

    def _ask(self, life: Life) -> None:
        """Let the first life ask, and hold the leader's answers back."""
        self._link.hold()
        self._read(life)
        self._later(self._again)

    def _again(self, _: None) -> None:
        life, late = self._scene.running(self._name), self._link.divert()
        if life is not None:
            self._begin(life, lambda life: self._write(life, late))

    def _write(self, _: Life, late: list[Any]) -> None:
        """Let the leader acknowledge a write before the second life asks."""
        self._scene.put(self._leader)
        self._later(lambda _: self._arrive(late))

    def _arrive(self, late: list[Any]) -> None:
        life = self._scene.running(self._name)
        if life is None:
            return
        self._read(life)
        self._cluster.counts["late answer"] += sum(isinstance(message, ReadReply) for message in late)
        self._link.bring(late)

    def _read(self, life: Life) -> None:
        for _ in range(self._reads):
            with suppress(Outcome):
                self._scene.ask(life, Read.INDEX)

    def _later(self, then: Callable[[None], None]) -> None:
        world = self._cluster.world
        world.at(world.now + self._round_trips_ns, then)
