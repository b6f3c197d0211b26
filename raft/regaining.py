"""What a node does that lost what it had acknowledged, until it holds that again: it asks, and looks.

Meanwhile it neither votes nor asks for votes, and says with every acknowledgement that it is to count for nothing.
Idle on all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.config import NEVER
from raft.lives import TOLD_MAX
from raft.messages import FOLLOWER, SUCCESS, UNKNOWN_TERM, Lapse, ReadReply, ReadRequest
from raft.trace import Outlived, Regained

if TYPE_CHECKING:
    from raft.replica import Replica


class Regaining:
    """``core.lapse`` says what is lost; this ends it."""

    def __init__(self, core: Replica, told: tuple[int, ...]) -> None:
        self.core, self.told = core, told
        """``told``: lives of this directory that it never had, of which the group knows."""
        self.deadline = NEVER
        """When to ask the leader again."""
        self._question = 0
        """Number of the latest question what is committed; 0: none was asked of this leader."""
        self._committed = NEVER
        """The answer."""

    def outlived(self, now: int, peer: str, lives: tuple[int, ...]) -> bool:
        """A peer's hello named lives of this directory that it never had; whether that is news.

        Then this directory is an older copy, and what those lives acknowledged and voted is not here. So nothing that
        this node has said and that has not left may leave.
        """
        core, fresh = self.core, set(lives).difference(self.told)
        if not core.enter(now) or not fresh:
            return False
        self.told = tuple(sorted({*self.told, *fresh})[-TOLD_MAX:])
        core.lapse = Lapse(max(1, core.log.last_index), UNKNOWN_TERM, self.told)
        if core.trace:
            core.trace(Outlived(
                core.now, core.node_id, core.group, core.term, peer, len(fresh), core.log.last_index))
        self._keep(core.lapse)
        core.step_down(f"{peer} met a later life of this directory")
        assert core.role == FOLLOWER and len(self.told) <= TOLD_MAX
        self.reset()
        return True

    def reset(self) -> None:
        """Begin anew: there is another leader, or none."""
        self.deadline, self._question, self._committed = NEVER, 0, NEVER
        if self.core.lapse is not None:
            self._ask()

    def _ask(self) -> None:
        """As a read does: a quorum confirms the leader, this node not among it, before it says what is committed.

        Whoever holds that holds all that counts of what it had ever acknowledged.
        """
        core = self.core
        if core.leader is not None and core.leader != core.node_id:
            self._question = core.following.next_question()
            self.deadline = core.now + core.silence_ns
            assert core.now < self.deadline
            core.send(core.leader, ReadRequest(core.group, core.term, self._question))

    def answered(self, peer: str, reply: ReadReply) -> bool:
        """Whether this reply was for this question."""
        core = self.core
        if not self._question or (reply.ticket, peer, reply.term) != (self._question, core.leader, core.term):
            return False
        if reply.code == SUCCESS:
            self._committed, self.deadline = reply.index, NEVER
            self.look()
        return True

    def look(self) -> None:
        """Whole again by the leader's word, or because the log, as the leader's has it, reaches as far as it did."""
        core, lapse = self.core, self.core.lapse
        if lapse is None or core.leader is None or core.role != FOLLOWER or core.installing:
            return
        held = min(core.following.verified, core.log.durable_index)
        if held >= self._committed:
            self.end("a leader gave it all that is committed")
        elif held and (core.log.term_at(held), held) >= (lapse.term, lapse.index):
            self.end("the log reaches as far as it did")

    def accept_loss(self, now: int) -> None:
        """An operator gives up what this node lost, or knows that nothing that counts is lost."""
        if self.core.enter(now) and self.core.lapse is not None:
            self.end("accepted")

    def end(self, how: str) -> None:
        """This node votes and counts again."""
        core = self.core
        assert core.lapse is not None
        if core.trace:
            core.trace(Regained(
                core.now, core.node_id, core.group, core.term, core.lapse.index, core.lapse.term, how))
        core.lapse, self.deadline = None, NEVER
        self._keep(Lapse(told=self.told))

    def _keep(self, lapse: Lapse) -> None:
        """What this node is known to lack, from now on."""
        self.core.writes.keep_lapse(lapse)
        self.core.following.wait_for_leader()

    def tick(self) -> None:
        if self.core.now >= self.deadline:
            self.deadline = NEVER
            if self.core.lapse is not None:
                self._ask()
