"""Hands leadership over: stops accepting, lets the target catch up and tells it to campaign, or resumes.

Thesis §3.10. Works in any term (dledger F25). Once the target was told, a late ``TimeoutNow`` may end this leadership
at any time, as voters do not wait for the leader's silence then. So there is no lease for the rest of the term (thesis
§6.4.1). If the hand-over fails, a leader that uses leases takes the next term itself, in which that message has no
effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.config import MS, NEVER
from raft.errors import Rejected, RejectReason
from raft.messages import Resolved, TimeoutNow
from raft.trace import Transfer

if TYPE_CHECKING:
    from raft.leadership import Leadership


class LeadershipTransfer:
    """The hand-over of one leadership: at most one at a time."""

    def __init__(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self.target: str | None = None
        self.told = False
        self.deadline = NEVER
        self._ticket = 0

    @property
    def busy(self) -> bool:
        """True while a hand-over runs: neither writes nor reads are accepted."""
        return self.target is not None

    def begin(self, ticket: int, target: str | None) -> None:
        """Hand leadership to ``target`` (None: the best placed voter); ``Resolved`` follows.

        Raises ``Rejected`` if the target cannot lead or another change runs.
        """
        leadership = self.leadership
        core = leadership.core
        if self.busy:
            raise Rejected(RejectReason.TRANSFERRING)
        if target == core.node_id:
            core.output(Resolved(ticket))
            return
        if target is None:
            target = leadership.tracker.best_successor()
        if target is None or target not in core.membership.voters or target in leadership.tracker.uncounted:
            raise Rejected(RejectReason.NO_SUCH_MEMBER, f"{target} is not a voter that can lead")
        if leadership.peers[target].match < core.log.membership_index:
            raise Rejected(RejectReason.NOT_CAUGHT_UP, f"{target} does not hold the latest membership yet")
        self.target, self.told, self._ticket = target, False, ticket
        self.deadline = core.now + core.config.transfer_timeout_ms * MS
        assert self.deadline > core.now
        self._trace("begun")
        self.advance()

    def advance(self) -> None:
        """Tell the target to campaign once it holds everything."""
        leadership = self.leadership
        core = leadership.core
        if self.target is None or self.told:
            return
        assert self.target in core.membership.voters, "no membership changes meanwhile"
        if leadership.peers[self.target].match == core.log.last_index:  # no membership changes meanwhile
            self.told = True
            leadership.lease_dead = True
            core.send(self.target, TimeoutNow(core.group, core.term, core.log.last_index, core.log.last_term))
            self._trace("told")

    def tick(self) -> None:
        """Give the hand-over up and resume when its time is over."""
        core = self.leadership.core
        if core.now >= self.deadline:
            assert self.busy, "a deadline has its hand-over"
            self._trace("given up")
            core.output(Resolved(
                self._ticket, RejectReason.NOT_CAUGHT_UP, f"{self.target} did not take over in time", self.told))
            self.target, self.deadline = None, NEVER
            if self.told and core.rules.lease_ns:
                core.campaign.take_over("a hand-over was given up")

    def leave(self) -> None:
        """Leave the outcome of the hand-over open, since leadership ends: the next leader decides it."""
        core = self.leadership.core
        if self.target is not None:
            self._trace("left")
            core.following.handed_over = self._ticket, self.target, core.now + core.config.transfer_timeout_ms * MS
            self.target = None

    def _trace(self, state: str) -> None:
        core = self.leadership.core
        if core.trace and self.target:
            core.trace(Transfer(core.now, core.node_id, core.group, core.term, self.target, state))
