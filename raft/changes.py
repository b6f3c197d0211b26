"""Changes the membership as a leader: one committed step after another until the desired state is reached.

A step waits until an entry of the leader's own term is committed (raft-dev 2015), and until every earlier membership
entry is. A leader that finds a committed joint membership leaves it at once, exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from raft.config import MS, NEVER
from raft.errors import Rejected, RejectReason
from raft.frame import Kind
from raft.membership import Desired, Membership, illegal, leave_joint, next_step
from raft.messages import Resolved

if TYPE_CHECKING:
    from raft.leadership import Leadership


class Changes:
    """The membership change of one leadership: at most one desired state at a time."""

    def __init__(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self.desired: Desired | None = None
        self.waiting: tuple[str, ...] = ()
        """Nodes that must catch up before the next step."""
        self.deadline = NEVER
        self._ticket = 0
        self._unrecorded = True
        """True if a member's directory may have been met but not written down yet."""

    def begin(
        self, ticket: int, voters: Mapping[str, str], learners: Mapping[str, str],
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        """Move to this membership (id -> address), step by step; ``Resolved`` follows.

        Raises ``Rejected``: another change runs, a hand-over runs, or the target is not legal.
        """
        core = self.leadership.core
        if self.desired is not None:
            raise Rejected(RejectReason.CHANGE_IN_PROGRESS)
        if self.leadership.transfer.busy:
            raise Rejected(RejectReason.TRANSFERRING)
        desired = Desired(dict(voters), dict(learners), dict(priorities or {}))
        reason = illegal(desired)
        if reason:
            raise Rejected(RejectReason.ILLEGAL_CHANGE, reason)
        self.desired, self._ticket = desired, ticket
        self.deadline = core.now + core.config.reconfigure_timeout_ms * MS
        assert self.deadline > core.now
        self.advance()

    @property
    def free(self) -> bool:
        """Return whether a membership entry may be appended now."""
        leadership = self.leadership
        core = leadership.core
        return (leadership.own_term_committed and core.log.membership_index <= core.commit_index
                and not leadership.transfer.busy and not core.writes.disk_full)

    def advance(self) -> None:
        """Take the next step if one is due and allowed."""
        leadership = self.leadership
        core = leadership.core
        if not self.free:
            return
        current = core.membership
        if current.joint:
            self._append(leave_joint(current))
            return
        # Record directories first: else a voter that loses its disk before that would come back unnoticed.
        if (self._unrecorded and self.record_incarnations()) or self.desired is None:
            return
        step = next_step(current, self.desired, self._strangers(), leadership.tracker.caught_up())
        self.waiting = step.waiting
        assert step.membership is None or not step.waiting, "a step is taken, or waits"
        if step.membership is not None:
            self._append(step.membership)
        elif not step.waiting:
            self._resolve(Resolved(self._ticket))

    def met_again(self) -> None:
        """Check again which members' directories are recorded, since the membership changed."""
        self._unrecorded = True

    def record_incarnations(self) -> bool:
        """Write down the directory of every member that was met for the first time. Return whether there was one."""
        core = self.leadership.core
        self._unrecorded = True
        if not self.free or core.membership.joint:
            return False
        self._unrecorded = False
        met = {**core.identities.met, core.node_id: core.incarnation}
        members = dict(core.membership.members)
        for name, member in core.membership.members.items():
            if not member.incarnation and met.get(name):
                members[name] = attrs.evolve(member, incarnation=met[name])
        if members == core.membership.members:
            return False
        assert members.keys() == core.membership.members.keys(), "nobody comes or goes"
        self._append(attrs.evolve(core.membership, members=members))
        return True

    def _strangers(self) -> dict[str, bytes]:
        identities = self.leadership.core.identities
        assert identities.strangers <= identities.met.keys(), "a stranger was met"
        return {peer: identities.met[peer] for peer in sorted(identities.strangers)}

    def _append(self, membership: Membership) -> None:
        assert self.free, "one change at a time"
        assert membership != self.leadership.core.membership, "a step goes somewhere"
        self.leadership.append_own(Kind.MEMBERSHIP, membership.encode())
        self.leadership.broadcast()

    def tick(self) -> None:
        """Take the next step if it is due, or give up at the deadline: learners that did not catch up stay
        learners."""
        if self.desired is not None:
            self.advance()
        if self.leadership.core.now >= self.deadline:
            who = ", ".join(self.waiting)
            reason = RejectReason.NOT_CAUGHT_UP if who else RejectReason.TIMED_OUT
            self._resolve(Resolved(self._ticket, reason, f"{who} did not catch up; still learners" if who else "",
                                   unknown=not who))

    def _resolve(self, resolved: Resolved) -> None:
        assert self.deadline < NEVER, "what ends was begun"
        self.desired, self.waiting, self.deadline = None, (), NEVER
        self.leadership.core.output(resolved)

    def leave(self) -> None:
        """Answer that the outcome is unknown, since leadership ends. The next leader leaves a joint membership."""
        if self.desired is not None:
            self._resolve(Resolved(self._ticket, None, "leadership was lost on the way", True))
