"""Lets a node that lost what it had acknowledged find out when it holds that again.

Meanwhile the node neither votes nor asks for votes, and says with every acknowledgement that it must not count. This is
idle on all other nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.config import NEVER
from raft.identities import GUESTS_MAX
from raft.lives import TOLD_MAX
from raft.messages import FOLLOWER, SUCCESS, UNKNOWN_TERM, Lapse, ReadReply, ReadRequest
from raft.trace import Outlived, Regained

if TYPE_CHECKING:
    from raft.replica import Replica


class Regaining:
    """Ends the lapse of one node; ``core.lapse`` says what is lost."""

    def __init__(self, core: Replica, told: tuple[int, ...]) -> None:
        self.core, self.told = core, told
        """Lives that peers met of this directory although it never had them; the group knows of these."""
        self.words: dict[str, tuple[int, ...]] = {}
        """Node that is no member -> lives that it says it met. They count once it is a member."""
        self.deadline = NEVER
        """Time to ask the leader again."""
        self._question = 0
        """Number of the latest question for the commit index; 0: none was asked. Each leader is asked anew."""
        self._committed = NEVER
        """Commit index that the leader answered; ``NEVER``: no answer yet."""

    def outlived(self, now: int, peer: str, lives: tuple[int, ...]) -> bool:
        """Take lives that a peer met of this directory, and that it never had. Return whether that is news.

        This directory is then an older copy, without what those lives acknowledged and voted. So no message of this
        node that waits may leave. Where strangers are kept out, the word of one is only kept: see ``believe_members``.
        """
        core, fresh = self.core, set(lives).difference(self.told)
        if not core.enter(now) or not fresh:
            return False
        if core.following.members_only and peer not in core.membership.members:
            self.words[peer] = lives
            if len(self.words) > GUESTS_MAX:  # a node that greets under ever new names must not fill the memory
                del self.words[next(iter(self.words))]
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

    def believe_members(self, now: int) -> bool:
        """Take what nodes said that have become members since. Return whether that is news."""
        members = self.core.membership.members
        heard = {peer: self.words.pop(peer) for peer in list(self.words) if peer in members}
        return sum(self.outlived(now, peer, lives) for peer, lives in heard.items()) > 0  # each is taken

    def reset(self) -> None:
        """Begin anew: with another leader, with none, or because no answer came."""
        self.deadline, self._committed = NEVER, NEVER
        if self.core.lapse is not None:
            self._ask()

    def _ask(self) -> None:
        """Ask the leader for the commit index, as a read does: a quorum without this node confirms the leader first.

        A node that holds the log up to that index holds all that counts of what it had ever acknowledged.
        """
        core = self.core
        if core.leader is not None and core.leader != core.node_id:
            self._question = core.following.next_question()
            self.deadline = core.now + core.silence_ns
            assert core.now < self.deadline
            core.send(core.leader, ReadRequest(core.group, core.term, self._question))

    def answered(self, peer: str, reply: ReadReply) -> bool:
        """Take a reply, and return whether it answered the question of this node's lapse."""
        core = self.core
        if (reply.ticket, peer, reply.term) != (self._question, core.leader, core.term):
            return False
        if reply.code == SUCCESS:
            self._committed, self.deadline = reply.index, NEVER
            self.look()
        return True

    def look(self) -> None:
        """End the lapse if the log holds all that the leader says is committed, or reaches as far as it once did."""
        core, lapse = self.core, self.core.lapse
        if lapse is None or core.leader is None or core.role != FOLLOWER or core.installing:
            return
        held = min(core.following.verified, core.log.durable_index)
        if held >= self._committed:
            self.end("a leader gave it all that is committed")
        elif held and (core.log.term_at(held), held) >= (lapse.term, lapse.index):
            self.end("the log reaches as far as it did")

    def accept_loss(self, now: int) -> None:
        """End the lapse because an operator gives up what was lost, or knows that nothing that counts is lost."""
        if self.core.enter(now) and self.core.lapse is not None:
            self.end("accepted")

    def end(self, how: str) -> None:
        """End the lapse: this node votes and counts again."""
        core = self.core
        assert core.lapse is not None
        if core.trace:
            core.trace(Regained(
                core.now, core.node_id, core.group, core.term, core.lapse.index, core.lapse.term, how))
        core.lapse, self.deadline = None, NEVER
        self._keep(Lapse(told=self.told))

    def _keep(self, lapse: Lapse) -> None:
        """Write down the lapse, and wait anew for a leader."""
        self.core.writes.keep_lapse(lapse)
        self.core.following.wait_for_leader()

    def tick(self) -> None:
        if self.core.now >= self.deadline:
            self.reset()
