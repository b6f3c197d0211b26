"""Lets disks lose acknowledged writes: the last block rots, or an older copy of the directory is put back.

It does so only if the group survives the loss. A node that knows of its loss does not vote, so a majority of the voters
must have no loss. A copy is put back only in the node's current term and with its current vote, and if all other voters
have a later life of the node on record: then each candidate that asks for its vote tells it of the loss. The leader may
be gone by then, and with it the entries that only the leader and the copied node held. If nobody can tell the node, a
majority of the others must hold all that it loses. A loss is counted as silent if the node starts and neither its mark,
nor a peer's record of its lives, nor a leader knows of the loss. Only disks in memory are treated so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from raft.invariants import quorum
from raft.shadow import Copy
from raft.sim.disks import MemoryDisk
from raft.sim.node import GROUP

if TYPE_CHECKING:
    from raft.sim.campaign import Scene

DOWN_MS: Final = 10
HIDDEN_MS: Final = 100
LEADER_DOWN_MS: Final = 2_000
"""Shortest outage of a leader that knew what the node lost."""


class Lapses:
    """Lets nodes of one scene lose what they had synced."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._cluster = scene, scene.cluster
        self._copies: dict[str, tuple[MemoryDisk, Copy, bytes, bytes]] = {}
        """Node -> older copy of its disk, the checker's copy of its content, its lives and its incarnation."""
        self._back: dict[str, bytes] = {}
        """Node that runs on an older copy -> its incarnation."""

    def lapsed(self) -> set[str]:
        """Return nodes that lack writes that they acknowledged, whether they know it or not, or that believe so."""
        checker = self._cluster.checker
        return {name for name, ghost in checker.nodes.items()
                if self._knows(name) or self._will_be_told(name) or (
                    ghost.lost is not None and (ghost.rotten or not ghost.whole(checker.marks)))}

    def _will_be_told(self, name: str) -> bool:
        """Return whether the node runs on an older copy, and a peer that met a later life tells it so at each start."""
        if self._back.get(name) != self._cluster.nodes[name].incarnation:
            return False
        ghosts, ghost = self._cluster.checker.nodes, self._cluster.checker.nodes[name]
        return any(set(other.kept.get(ghost.directory, ())) - ghost.own for other in ghosts.values())

    def _knows(self, name: str) -> bool:
        """Return whether the node knows of its loss, or will at its start, and so does not vote."""
        node = self._cluster.nodes[name]
        if node.life is not None:
            return node.life.replica.lapse is not None
        found = node.disk.storage().open().get(GROUP) if isinstance(node.disk, MemoryDisk) else None
        return found is not None and found.lapse is not None

    def rot(self, name: str, span_ms: int, luck: float) -> None:
        """Crash a node, damage the last block that its disk synced, and start it again."""
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
            if not known and luck > 0.8:
                self._lose_leader(name, span_ms)
        self._scene.after(span_ms + DOWN_MS, partial(self._come_back, name))

    def copy(self, name: str, span_ms: int, *, hidden: bool = False) -> None:
        """Crash a node, and put an earlier copy of its directory back, or make a copy to put back later."""
        cluster, node, ghost = self._cluster, self._cluster.nodes[name], self._cluster.checker.nodes[name]
        if self._scene.healing or node.life is None or not isinstance(node.disk, MemoryDisk):
            return
        if not hidden and name in self._copies and span_ms % 8 and self._hide(name):
            self._scene.after(HIDDEN_MS, partial(self.copy, name, span_ms, hidden=True))
            return
        cluster.crash(name)
        self._scene.after(span_ms + DOWN_MS, partial(self._come_back, name))
        storage = node.disk.storage()
        found, copied = storage.open().get(GROUP), self._copies.pop(name, None)
        if found is None or found.lapse is not None:
            return
        held = self._held_by_others(name, found.last_index)
        if copied is None or copied[3] != node.incarnation or not self._may_lapse(name, down=True) or (
                copied[1].disk.term, copied[1].disk.vote) != (found.hard_state.term, found.hard_state.voted_for) or (
                not held and not self._met_by_others(name, copied[1])):
            if cluster.checker.settled(name, found):
                self._copies[name] = node.disk.copy(), Copy(ghost), node.lives, node.incarnation
                self._scene.after(2 * span_ms + 500, partial(self.copy, name, span_ms // 4))
            return
        node.disk, shadow, node.lives, _ = copied
        cluster.checker.lost(name, shadow)
        cluster.counts["older copy"] += 1
        self._back[name] = node.incarnation
        if not held and self._lose_leader(name, span_ms):
            cluster.counts["older copy, leader lost"] += 1

    def _hide(self, name: str) -> bool:
        """Let the next entries reach only this node, its leader and as few others as a quorum needs."""
        cluster, leader = self._cluster, self._cluster.leader
        if leader in (None, name) or not self._met_by_others(name, self._copies[name][1]):
            return False
        _, membership = max((ghost.disk.memberships[-1] for ghost in cluster.checker.nodes.values()),
                            key=lambda each: each[0])
        others = [voter for voter in membership.voters if voter not in (name, leader)]
        cluster.partition(others[: (len(membership.voters) - 1) // 2])
        for _ in range(3):
            self._scene.put(str(leader))
        self._scene.after(2 * HIDDEN_MS, cluster.heal)
        return True

    def _lose_leader(self, name: str, span_ms: int) -> bool:
        """Crash the leader, which knows how much this node's log held. Return False if no other node leads."""
        leader = self._cluster.leader
        if leader is None or leader == name:
            return False
        self._cluster.crash(leader)
        self._scene.after(2 * span_ms + LEADER_DOWN_MS, partial(self._scene.start, leader))
        return True

    def _come_back(self, name: str) -> None:
        checker, up = self._cluster.checker, self._cluster.nodes[name].life is not None
        ghost = checker.nodes[name]
        if not up and ghost.lost is not None and not ghost.whole(checker.marks) and not self._told_by_any(name):
            self._cluster.counts["silent loss"] += 1
        self._scene.start(name)

    def _told_by_any(self, name: str) -> bool:
        """Return whether its mark, a peer's record of its lives, or a leader knows what this node lost."""
        ghosts, ghost = self._cluster.checker.nodes, self._cluster.checker.nodes[name]
        return self._knows(name) or any(
            set(other.kept.get(ghost.directory, ())) - ghost.own or (
                other.replica is not None and name in other.replica.peers
                and other.replica.peers[name].match > ghost.disk.last)
            for other in ghosts.values())

    def _met_by_others(self, name: str, copy: Copy) -> bool:
        """Return whether every other voter has a life of this node on record that the copy does not know."""
        ghosts = self._cluster.checker.nodes
        _, membership = max((ghost.disk.memberships[-1] for ghost in ghosts.values()), key=lambda each: each[0])
        directory = ghosts[name].directory
        return all(set(ghosts[voter].kept.get(directory, ())) - copy.own
                   for voter in membership.voters if voter != name)

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
        """Return whether a quorum without this node holds on disk all that this node holds."""
        ghosts = self._cluster.checker.nodes
        _, membership = max((ghost.disk.memberships[-1] for ghost in ghosts.values()), key=lambda each: each[0])
        unsure = {name} | self.lapsed() | self._scene.lost()
        mark = ghosts[name].disk.marks.get(index)
        return bool(mark) and quorum(membership, [
            voter for voter in membership.voters if voter not in unsure and ghosts[voter].disk.may_hold(index, mark)])
