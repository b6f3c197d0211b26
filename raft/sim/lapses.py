"""Disks that lose what was acknowledged: the last block rots, or an older copy of the directory is put back.

Only where the group survives it. A node that knows of its loss does not vote, so a majority of the voters must be
without one; a loss that the node cannot know of is done only to what a majority of the others holds as well, in the
term and with the vote that it has. Rot is done to both kinds of disk, copies are made of those in memory.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from raft.invariants import quorum
from raft.sim.disks import MemoryDisk
from raft.sim.node import GROUP

if TYPE_CHECKING:
    from raft.shadow import LogShadow
    from raft.sim.campaign import Scene

DOWN_MS: Final = 10


class Lapses:
    """Of one scene."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._cluster = scene, scene.cluster
        self._copies: dict[str, tuple[MemoryDisk, LogShadow, bytes]] = {}
        """An older copy of a node's disk, what it holds, and whose directory it is."""

    def lapsed(self) -> set[str]:
        """Nodes that lack what they had acknowledged, whether or not they know."""
        checker = self._cluster.checker
        return {name for name, ghost in checker.nodes.items()
                if ghost.lost is not None and (self._knows(name) or not ghost.whole(checker.marks))}

    def _knows(self, name: str) -> bool:
        """Whether it knows, or will once it starts, and so does not vote."""
        node = self._cluster.nodes[name]
        if node.life is not None:
            return node.life.replica.lapse is not None
        found = node.disk.storage().open().get(GROUP) if isinstance(node.disk, MemoryDisk) else None
        return found is not None and found.lapse is not None

    def rot(self, name: str, span_ms: int, luck: float) -> None:
        """Kill a node; the last block that its disk synced rots; start it again."""
        if not self._may_lapse(name):
            return
        cluster, node = self._cluster, self._cluster.nodes[name]
        if not isinstance(node.disk, MemoryDisk):
            return
        cluster.crash(name)
        storage, known = node.disk.storage(), luck < 0.7
        before = storage.open().get(GROUP)
        if before is not None and storage.may_rot(GROUP, known=known) and (
                known or self._held_by_others(name, before.last_index)):
            storage.rot(GROUP, known=known)
            cluster.checker.lost(name, None)
            cluster.counts["rot at the end" if known else "rot that nobody marked"] += 1
        self._scene.after(span_ms + DOWN_MS, partial(self._scene.start, name))

    def copy(self, name: str, span_ms: int) -> None:
        """Copy a node's directory while it is down, to be put back later; or, where there is a copy, put it back."""
        cluster, node, ghost = self._cluster, self._cluster.nodes[name], self._cluster.checker.nodes[name]
        if self._scene.healing or node.life is None or not isinstance(node.disk, MemoryDisk):
            return
        cluster.crash(name)
        self._scene.after(span_ms + DOWN_MS, partial(self._scene.start, name))
        storage = node.disk.storage()
        found, copied = storage.open().get(GROUP), self._copies.pop(name, None)
        if found is None or found.lapse is not None:
            return
        if copied is None or copied[2] != node.incarnation or not self._may_lapse(name, down=True) or (
                copied[1].term, copied[1].vote) != (found.hard_state.term, found.hard_state.voted_for) or (
                not self._held_by_others(name, found.last_index)):
            if cluster.checker.settled(name, found):
                self._copies[name] = node.disk.copy(), ghost.disk.copy(), node.incarnation
                self._scene.after(2 * span_ms + 500, partial(self.copy, name, span_ms // 4))
            return
        node.disk = copied[0]
        cluster.checker.lost(name, copied[1])
        cluster.counts["older copy"] += 1

    def _may_lapse(self, name: str, *, down: bool = False) -> bool:
        scene, ghosts = self._scene, self._cluster.checker.nodes
        if not down and self._cluster.nodes[name].life is None:
            return False
        index, membership = max((ghost.disk.memberships[-1] for ghost in ghosts.values()), key=lambda each: each[0])
        if scene.changing(index) or membership.joint or name not in membership.voters:
            return False
        lost = {name} | self.lapsed() | scene.lost()
        return len(lost.intersection(membership.voters)) <= (len(membership.voters) - 1) // 2

    def _held_by_others(self, name: str, index: int) -> bool:
        """Whether a majority of the voters, this one not among them, holds on disk all that it holds."""
        ghosts = self._cluster.checker.nodes
        _, membership = max((ghost.disk.memberships[-1] for ghost in ghosts.values()), key=lambda each: each[0])
        unsure = {name} | self.lapsed() | self._scene.lost()
        mark = ghosts[name].disk.marks.get(index)
        return bool(mark) and quorum(membership, [
            voter for voter in membership.voters if voter not in unsure and ghosts[voter].disk.may_hold(index, mark)])
