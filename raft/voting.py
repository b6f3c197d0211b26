"""The voter's part: carries out what the election rules decide about a request for a vote.

Takes terms and votes through the replica; knows nothing of its own candidacy (``candidacy``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.messages import FOLLOWER, LEADER, Vote, VoteReply, VoteResult
from raft.trace import VoteCast

if TYPE_CHECKING:
    from raft.replica import Replica


def answer_vote(core: Replica, peer: str, request: Vote) -> None:
    """Answer a request for this node's vote, and change term and vote as the rules say."""
    if core.lapse is not None or peer in core.regaining.words:
        # It may have given this vote to another, or lack entries that its vote would vouch for: as it knows, or as the
        # candidate itself says, which is no member here yet.
        core.send(peer, VoteReply(core.group, core.term, request.round, VoteResult.UNKNOWN, request.probe))
        return
    me = core.voter()
    decision = core.rules.decide_vote(me, peer, request)
    if core.trace:
        core.trace(VoteCast(
            core.now, core.node_id, core.group, core.term, peer, request.term, request.probe,
            decision.result.name, (request.last_term, request.last_index), (me.last_term, me.last_index)))
    if not request.probe:
        if decision.adopt_term > core.term:
            core.set_hard_state(decision.adopt_term, None)
            if core.role != FOLLOWER or core.leader is not None:
                core.become_follower(None, f"{peer} asks for votes in term {request.term}")
        if decision.become_candidate:
            core.become_candidate(f"{peer} asks for votes in term {request.term}")
            core.campaign.learn_term(decision.known_term)
            core.campaign.increase_term()
        if decision.grant:
            assert core.role != LEADER and request.term == core.term
            core.set_hard_state(request.term, peer)
            core.following.wait_for_leader()
    small = decision.result == VoteResult.REJECT_TERM_SMALL_THAN_LEDGER
    term = core.log.last_term if small else core.term
    core.send(peer, VoteReply(core.group, term, request.round, decision.result, request.probe))
