"""A leader's record of all its peers: who is fed, who counts, what a quorum of them holds and has answered.

It has one ``Progress`` for each peer, as etcd's ProgressTracker has. Strangers, and peers that lost what they had
acknowledged, are fed and asked like all others but count for nothing: no commit, no read and no lease rests on them.
While joint, a quorum needs a majority of both halves (paper §6). Looks at log and membership; sends and decides
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.progress import REPLICATE, Progress
from raft.quorum import quorum_value

if TYPE_CHECKING:
    from raft.replica import Replica


class Tracker:
    """The peers of one leadership."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.peers: dict[str, Progress] = {}
        self.uncounted: frozenset[str] = frozenset()
        """Strangers, and members that lack what they had acknowledged."""
        self.answers: dict[str, tuple[int, int]] = {}
        """Peer -> (code, term) of its answer since the latest heartbeat."""
        self._sessions = 0
        self._heartbeat_ns = core.rules.heartbeat_ns

    # --- who is fed

    def sync(self) -> None:
        """Keep a progress for each member but this node. A removed member is fed until it knows of its removal."""
        core = self.core
        wanted = {peer for peer in core.membership.everyone if peer != core.node_id}
        for peer in sorted(wanted - set(self.peers)):
            self.add(peer)
        for peer, progress in list(self.peers.items()):
            if peer in wanted:
                if progress.departing_until_ns:  # it was removed and came back: begin a new session
                    self.add(peer)
            elif not progress.departing_until_ns:
                progress.departing_until_ns = core.now + 20 * self._heartbeat_ns
        assert core.node_id not in self.peers and wanted <= self.peers.keys()
        self.recount()

    def add(self, peer: str) -> Progress:
        """Begin a session with this peer, of which nothing is known."""
        core = self.core
        assert peer != core.node_id, "a leader does not feed itself"
        self._sessions += 1
        self.peers[peer] = fresh = Progress(peer, self._sessions, core.log.last_index + 1, core.now)
        self.answers.pop(peer, None)
        return fresh

    def renew(self, peer: str) -> None:
        """Begin a new session with a peer that came back with another directory."""
        if peer in self.peers:
            self.add(peer)
            self.recount()

    def drop_departed(self) -> None:
        """Forget removed members that know of their removal, or whose time is over."""
        core = self.core
        for peer, progress in list(self.peers.items()):
            until = progress.departing_until_ns
            knows = progress.match >= core.log.membership_index and progress.sent_commit >= core.log.membership_index
            if until and (core.now >= until or knows):
                del self.peers[peer]

    def caught_up(self) -> frozenset[str]:
        """Return peers that are close enough to the end of the log to become voters."""
        core = self.core
        least = core.log.last_index - core.config.learner_lag_entries
        return frozenset(
            peer for peer, p in self.peers.items()
            if p.state == REPLICATE and p.match >= max(least, 1) and not p.departing_until_ns)

    def best_successor(self) -> str | None:
        """Return the voter in contact that holds most; priority breaks a tie."""
        core = self.core
        members = core.membership.members
        ranked = [
            (p.match, members[peer].priority if peer in members else 0, peer) for peer, p in self.peers.items()
            if peer in core.membership.voters and peer not in self.uncounted
            and core.now - p.heard_ns <= 4 * self._heartbeat_ns]
        assert all(peer != core.node_id for _, _, peer in ranked), "nobody hands over to itself"
        return max(ranked)[2] if ranked else None

    # --- who counts

    def recount(self) -> None:
        """Find again the peers whose log does not count."""
        self.uncounted = self.core.identities.strangers | {
            peer for peer, progress in self.peers.items() if progress.lapsed or progress.owed > progress.match}

    def counted(self, node_id: str) -> int:
        """Return the last index up to which a voter counts towards a commit; for this node, what its disk reported."""
        core = self.core
        if node_id == core.node_id:
            return core.log.durable_index
        progress = self.peers.get(node_id)
        return progress.match if progress and node_id not in self.uncounted else 0

    def quorum_match(self) -> int:
        """Return the last index that a quorum holds durably."""
        membership = self.core.membership
        return quorum_value(membership.voters, membership.outgoing, self.counted)

    @property
    def needs_disk(self) -> bool:
        """True if the peers hold enough for a commit, and only this node's own disk holds it back."""
        core = self.core

        def match(node_id: str) -> int:
            return core.log.last_index if node_id == core.node_id else self.counted(node_id)

        return quorum_value(core.membership.voters, core.membership.outgoing, match) > core.commit_index

    def round_confirmed(self, number: int) -> bool:
        """Return whether a quorum answered messages of this read round: voters of both halves (jraft 25)."""
        core = self.core

        def seen(node_id: str) -> int:
            if node_id == core.node_id:
                return number
            progress = self.peers.get(node_id)
            return progress.read_round if progress and node_id not in self.uncounted else 0

        return quorum_value(core.membership.voters, core.membership.outgoing, seen) >= number

    # --- contact

    def quorum_contact(self, *, counted: bool = False) -> int:
        """Return when the latest message that a quorum has answered was sent. This node answers itself at once.

        ``counted``: only voters whose promises count. A node that lost what it had acknowledged is in contact, and is
        fed, but it may have lost a promise to another leader as well.
        """
        membership = self.core.membership
        sent_ns = quorum_value(
            membership.voters, membership.outgoing, self._counted_contact if counted else self._contact)
        assert sent_ns <= self.core.now, "what was answered was sent before"
        return sent_ns

    def _counted_contact(self, node_id: str) -> int:
        contact = 0 if node_id in self.uncounted else self._contact(node_id)
        progress = self.peers.get(node_id)
        return contact if progress is None or contact >= progress.counted_ns else 0

    def _contact(self, node_id: str) -> int:
        core = self.core
        if node_id == core.node_id:
            return core.now
        progress = self.peers.get(node_id)
        return progress.contact_ns if progress and node_id not in core.identities.strangers else 0
