"""Which directory each peer's hello named, and who is a stranger: a member that came back with another one.

A directory's incarnation is drawn at format. A member that the group knows by one, and that greets with another, lost
what it had acknowledged and voted: it counts for nothing until a leader has admitted it anew. Members and others are
remembered alike, so many as fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raft.replica import Replica

GUESTS_MAX = 1_024
"""Directories remembered of peers, members or not yet."""


class Identities:
    """Whom one node has met."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.met: dict[str, bytes] = {}
        """Peer -> incarnation of the directory that its latest hello named."""
        self.strangers: frozenset[str] = frozenset()
        """Members whose directory is not the one the membership knows: they count for nothing."""

    def meet(self, now: int, peer: str, incarnation: bytes) -> None:
        """A peer's hello named the incarnation of its directory (random at format)."""
        core, known = self.core, self.met.get(peer)
        if not core.enter(now) or known == incarnation:
            return
        self.met[peer] = incarnation
        if len(self.met) > GUESTS_MAX:  # whoever greets under ever new names must not fill the memory
            guest = next((name for name in self.met if name not in core.membership.members), peer)
            del self.met[guest]
        assert len(self.met) <= GUESTS_MAX
        self.find_strangers()
        if core.leadership:
            if known is not None or peer in self.strangers:
                core.leadership.tracker.renew(peer)
            core.leadership.changes.record_incarnations()

    def find_strangers(self) -> None:
        """Look anew who is one: the membership, or a directory, is another."""
        members = self.core.membership.members
        self.strangers = frozenset(
            peer for peer, met in self.met.items()
            if peer in members and members[peer].incarnation and met and members[peer].incarnation != met)
        assert self.core.node_id not in self.strangers, "nobody greets itself"
