"""Lets a leader step down once if a quorum answers it but takes no entries: the leader may be the cause.

It steps down again only if another voter in contact holds all that it has, which could do better, and each time after
twice the wait. It never does while a follower that it needs gains log or snapshot, or says that its disk is full or its
sync is under way: then everybody waits for that follower. So a group without a better leader does not elect for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.progress import Progress
from raft.rules.interface import LeaderDecision

if TYPE_CHECKING:
    from raft.leadership import Leadership

DOUBLINGS_MAX = 16


class Standstill:
    """Watches one leadership. ``core.gave_way`` counts over leaderships how often this node gave way since its last
    commit."""

    def __init__(self, leadership: Leadership) -> None:
        self.leadership = leadership
        rules = leadership.core.rules
        self._patience_ns = max(rules.lease_ns, 4 * rules.heartbeat_ns)
        self._since = leadership.core.now
        self._seen: tuple[object, ...] = ()

    def judge(self) -> LeaderDecision | None:
        """Return the decision to step down now, or None. Called at every heartbeat."""
        core = self.leadership.core
        needed = self._needed()
        seen = (core.commit_index, *((peer.peer, peer.session, peer.match, peer.snapshot_index, peer.chunk_offset)
                                     for peer in needed))
        if not needed or seen != self._seen or any(peer.disk_full or peer.last_index > peer.match for peer in needed):
            self._seen, self._since = seen, core.now
            return None
        if core.now - self._since < self._patience_ns << min(core.gave_way, DOUBLINGS_MAX):
            return None
        if core.gave_way and not self._another():
            return None
        assert core.commit_index < core.log.last_index and core.now > self._since, "something waits, and has waited"
        core.gave_way += 1
        return LeaderDecision(True, reason="no quorum takes its entries")

    def _needed(self) -> list[Progress]:
        """Return voters that lack the entry to be committed next, if it is on this node's disk and waits for them."""
        core = self.leadership.core
        due = core.commit_index + 1
        if core.log.durable_index < due or self.leadership.transfer.busy:
            return []
        assert due <= core.log.last_index
        return [peer for name, peer in self.leadership.peers.items()
                if core.membership.votes(name) and self.leadership.tracker.counted(name) < due]

    def _another(self) -> bool:
        """Return whether a voter in contact holds all that this node does, and could lead."""
        core, leadership = self.leadership.core, self.leadership
        return any(
            leadership.tracker.counted(name) == core.log.last_index and not peer.disk_full
            and core.now - peer.heard_ns <= 4 * leadership.heartbeat_ns
            for name, peer in leadership.peers.items() if name in core.membership.voters)
