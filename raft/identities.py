"""Remembers which directory each peer's hello named, and finds strangers: members that came back with another one.

A directory's incarnation is drawn at random when it is formatted. A member that greets with another incarnation than
the group knows lost its acknowledged entries and its votes: it counts for nothing until a leader has admitted it anew.
Members and others are remembered alike, up to ``GUESTS_MAX``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raft.replica import Replica

GUESTS_MAX = 1_024
"""Peers whose directories are remembered, members or not."""


class Identities:
    """The peers that one node has met, and their directories."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.met: dict[str, bytes] = {}
        """Peer -> incarnation of the directory that its latest hello named."""
        self.strangers: frozenset[str] = frozenset()
        """Members whose directory is not the one that the membership records: they count for nothing."""

    def meet(self, now: int, peer: str, incarnation: bytes) -> None:
        """Note the incarnation of a peer's directory, which its hello named."""
        core, known = self.core, self.met.get(peer)
        if not core.enter(now) or known == incarnation:
            return
        self.met[peer] = incarnation
        if len(self.met) > GUESTS_MAX:  # a peer that greets under ever new names must not fill the memory
            guest = next((name for name in self.met if name not in core.membership.members), peer)
            del self.met[guest]
        assert len(self.met) <= GUESTS_MAX
        self.find_strangers()
        if core.leadership:
            if known is not None or peer in self.strangers:
                core.leadership.tracker.renew(peer)
            core.leadership.changes.record_incarnations()

    def find_strangers(self) -> None:
        """Find all strangers again, since the membership or a directory changed."""
        members = self.core.membership.members
        self.strangers = frozenset(
            peer for peer, met in self.met.items()
            if peer in members and members[peer].incarnation and met and members[peer].incarnation != met)
        assert self.core.node_id not in self.strangers, "nobody greets itself"
