"""Rows of DLedger's vote table that both rule sets answer alike: who may ask, and whose log is behind.

Pure, like the rule sets; knows nothing of terms, roles or timers.
"""

from __future__ import annotations

from raft.messages import Vote, VoteResult
from raft.rules.interface import Voter

BIGGER_LEDGER = (VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX)
"""Answers of voters whose log is ahead of the candidate's."""


def candidate_unknown(me: Voter, candidate: str, request: Vote) -> bool:
    """Return whether the candidate is unknown (row 1). An unknown one may ask if its log is newer than mine, as then my
    membership may be older (thesis §4.1).

    A node without any membership was never admitted, or is a voter that lost its disk and its promises: it knows no
    candidate. A new voter was a learner first, so it has a membership before its vote is needed.
    """
    known = me.membership.everyone
    newer = (request.last_term, request.last_index) > (me.last_term, me.last_index)
    return not known or (candidate not in known and not newer)


def judge_logs(me: Voter, request: Vote) -> VoteResult | None:
    """Return how the candidate's log is behind mine (rows 3a, 3b), or None. Paper §5.4.1: term first, then index."""
    if request.last_term < me.last_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.last_term == me.last_term and request.last_index < me.last_index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return None
