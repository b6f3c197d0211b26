"""``DLedgerRules`` elect as DLedger's 0.4.0 elector does, row by row.

A higher term is taken in two steps: the voter answers TERM_NOT_READY (a heartbeat: 416), becomes a candidate and takes
the term at its own next turn. The first round after losing a leader is a real vote in the current term, which works as
a probe most of the time. Timeouts of followers are exact, only retries are random.

Some differences are needed, because otherwise entries could be lost or contradict each other:
- a node leads a term at most once, and only with its own vote: it never starts a candidacy in a term in which it
  voted for itself before, and if its vote went to another it asks without anything being recorded;
- a term taken is above that of the last entry (dledger F11);
- terms start at 1: a node in term 0, which nothing but an empty disk explains, behaves as one in term 1;
- a leader does not count if a node without a candidacy of its own (below) has not heard it for a follower's timeout;
- memberships change here, so an unknown peer that may hold a newer membership than this node's is heard;
- a node that is no voter (a learner, a joiner: DLedger has neither) never campaigns, so it takes terms in one step.
Replication, durability and commit are the replica's, and the same under either rule set.
Pure: knows facts and decisions, no messages in flight, no clock, no storage.
"""

from __future__ import annotations

from random import Random

from raft.config import MS, Config
from raft.membership import Membership
from raft.messages import Code, ParseResult, Role, Vote, VoteResult
from raft.rules.interface import (
    Candidacy,
    HeartbeatDecision,
    HeartbeatTally,
    LeaderDecision,
    RoundOutcome,
    RoundPlan,
    Tally,
    VoteDecision,
    Voter,
)
from raft.rules.rows import BIGGER_LEDGER, candidate_unknown, judge_logs

FIRST_TERM = 1
TICK_NS = 10 * MS
"""Interval of DLedger's maintainer, 10 ms; "immediately" means its next look."""
NO_CONTACT = (Code.UNKNOWN_MEMBER, Code.UNEXPECTED_MEMBER, Code.EXPIRED_TERM, Code.INCONSISTENT_LEADER,
              Code.TERM_NOT_READY)
"""Heartbeat answers that do not confirm the leader. Any other answer to an append does, also a refusal of it."""


class DLedgerRules:
    """The rules of DLedger. ``ElectionRules`` says what each method answers."""

    name = "dledger"
    one_step = False
    lease_ns = 0

    def __init__(self, config: Config) -> None:
        self._timers = config.dledger
        self._preferred = frozenset(config.preferred_leaders)
        self.heartbeat_ns = self._timers.heart_beat_time_interval_ms * MS
        self._leak_ns = self._timers.max_heart_beat_leak * self.heartbeat_ns

    def _next_vote_ns(self, me: Voter, rng: Random, taking: bool = False) -> int:
        """Draw DLedger's getNextTimeToRequestVote: 300 to 1000 ms, or 30 to 100 for a preferred leader that takes
        over."""
        timers = self._timers
        if (taking or me.taking_leadership) and me.node_id in self._preferred:
            return MS * rng.randrange(timers.min_take_leadership_vote_interval_ms,
                                      timers.max_take_leadership_vote_interval_ms)
        return MS * rng.randrange(timers.min_vote_interval_ms, timers.max_vote_interval_ms)

    # --- when to become a candidate --------------------------------------------------------------------------

    def first_delay_ns(self, rng: Random) -> int:
        """Return 0: a DLedger node starts as a candidate and votes at once."""
        return 0

    def follower_timeout_ns(self, rng: Random, membership: Membership, node_id: str) -> int:
        return self._leak_ns

    # --- answering -------------------------------------------------------------------------------------------

    def decide_vote(self, me: Voter, candidate: str, request: Vote) -> VoteDecision:
        """Decide by the vote table, rows 1 to 7. The role has no influence, and the log comes before the term."""
        if candidate_unknown(me, candidate, request):
            return VoteDecision(VoteResult.REJECT_UNKNOWN_LEADER)  # 1
        if candidate == me.node_id:
            return VoteDecision(VoteResult.REJECT_UNEXPECTED_LEADER)  # 2
        return self._decide(me, candidate, request)

    def decide_own_vote(self, me: Voter, request: Vote) -> VoteDecision:
        """Decide as in DLedger's self-call: by the same table without rows 2 and 6."""
        return self._decide(me, me.node_id, request)

    def _decide(self, me: Voter, candidate: str, request: Vote) -> VoteDecision:
        behind = judge_logs(me, request)
        if behind is not None:
            return VoteDecision(behind)  # 3a, 3b
        term = max(me.term, FIRST_TERM)
        if request.term < term:
            return VoteDecision(VoteResult.REJECT_EXPIRED_VOTE_TERM)  # 4a
        if request.term > term and me.campaigns:
            return VoteDecision(VoteResult.REJECT_TERM_NOT_READY, become_candidate=True, known_term=request.term)  # 4e
        if request.term > term:
            return VoteDecision(VoteResult.ACCEPT, adopt_term=request.term, grant=True)
        if me.voted_for not in (None, candidate):
            if me.leader is not None and me.heard_leader_ns <= self._leak_ns:
                return VoteDecision(VoteResult.REJECT_ALREADY_HAS_LEADER)  # 4b
            return VoteDecision(VoteResult.REJECT_ALREADY_VOTED)  # 4c
        if request.term < me.last_term:
            return VoteDecision(VoteResult.REJECT_TERM_SMALL_THAN_LEDGER)  # 5
        if candidate != me.node_id and self._takes_leadership(me, request):
            return VoteDecision(VoteResult.REJECT_TAKING_LEADERSHIP)  # 6
        assert request.term == term, "a vote is for the present term"
        adopt_term = term if me.term < term else 0
        return VoteDecision(VoteResult.ACCEPT, adopt_term=adopt_term, grant=True)  # 7

    def _takes_leadership(self, me: Voter, request: Vote) -> bool:
        """Return whether this preferred leader takes over and its log is no shorter than the candidate's."""
        taking = me.taking_leadership and me.node_id in self._preferred
        return taking and request.last_term == me.last_term and request.last_index <= me.last_index

    def decide_heartbeat(self, me: Voter, leader: str, term: int) -> HeartbeatDecision:
        """Decide by the receiver's nine rows. Rows 5 and 7 repeat 3 and 4 under DLedger's lock, which is not needed
        here."""
        known = me.membership.everyone
        if known and leader not in known and leader != me.leader and term <= me.last_term:
            return HeartbeatDecision(Code.UNKNOWN_MEMBER)  # 1
        if leader == me.node_id:
            return HeartbeatDecision(Code.UNEXPECTED_MEMBER)  # 2
        own = max(me.term, FIRST_TERM)
        adopt_term = own if me.term < own else 0
        if term < own:
            return HeartbeatDecision(Code.EXPIRED_TERM)  # 3, 5
        if term > own and me.campaigns:
            return HeartbeatDecision(Code.TERM_NOT_READY, become_candidate=True, known_term=term)  # 9
        if term > own:
            return HeartbeatDecision(Code.SUCCESS, follow=True, adopt_term=term)
        if me.role is Role.LEADER or me.leader not in (None, leader):
            return HeartbeatDecision(Code.INCONSISTENT_LEADER)  # 8
        return HeartbeatDecision(Code.SUCCESS, follow=True, adopt_term=adopt_term)  # 4, 6, 7

    # --- asking ----------------------------------------------------------------------------------------------

    def plan_round(self, me: Voter, candidacy: Candidacy, rng: Random) -> RoundPlan:
        """Plan as DLedger's maintainAsCandidate does: take a needed higher term first, and ask in it at the next vote
        time.

        In a term in which its vote went to another, this node only probes: it must not lead without its own vote. It
        also only probes in a term of which it holds an entry: that term has had its leader, and after a change of
        members there may be a quorum that did not vote for it.
        """
        if not me.campaigns:
            return RoundPlan(me.term, probe=False, ask=False, delay_ns=self._leak_ns)
        higher = max(candidacy.known_term, max(me.term, FIRST_TERM) + 1, me.last_term + 1)
        assert higher > me.term and higher > me.last_term, "a term that no entry has"
        if candidacy.need_increase_term:
            delay_ns = self._next_vote_ns(me, rng, taking=candidacy.transfer)
            return RoundPlan(higher, probe=False, ask=False, delay_ns=delay_ns)
        if candidacy.last_result is ParseResult.WAIT_TO_VOTE_NEXT or self._may_have_led(me, candidacy):
            return RoundPlan(higher, probe=False)
        led = me.last_term >= max(me.term, FIRST_TERM)
        if led or me.voted_for not in (None, me.node_id):
            encouraged = candidacy.last_result in (ParseResult.PASSED, ParseResult.REVOTE_IMMEDIATELY)
            if candidacy.last_probe and encouraged:
                return RoundPlan(higher, probe=False)
            return RoundPlan(me.term, probe=True)
        return RoundPlan(max(me.term, FIRST_TERM), probe=False)

    @staticmethod
    def _may_have_led(me: Voter, candidacy: Candidacy) -> bool:
        """Return whether this node may have led its term: it voted for itself, and not only in this candidacy."""
        return me.voted_for == me.node_id and (
            candidacy.failed_rounds == 0 or candidacy.last_result is ParseResult.PASSED)

    def round_timeout_ns(self, rng: Random) -> int:
        return MS * (self._timers.vote_wait_ms + rng.randrange(0, self._timers.max_vote_interval_ms))

    def round_decided(self, tally: Tally) -> bool:
        """Return whether DLedger ends the round early: a leader is reported, a quorum accepts (or will once ready), or
        all answered."""
        accepted = tally.with_result(VoteResult.ACCEPT)
        ready_soon = tally.with_result(VoteResult.ACCEPT, VoteResult.REJECT_TERM_NOT_READY)
        voters = (voter for voter in tally.membership.everyone if tally.membership.votes(voter))
        return bool(
            tally.with_result(VoteResult.REJECT_ALREADY_HAS_LEADER)
            or tally.membership.agree(accepted)
            or tally.membership.agree(ready_soon)
            or all(voter in tally.replies for voter in voters)
        )

    def parse_round(self, me: Voter, tally: Tally, rng: Random) -> RoundOutcome:
        """Judge the round by the parse table; the first row that matches wins. A quorum is a majority of both halves
        while joint."""
        agree = tally.membership.agree
        valid = set(tally.replies) - set(tally.with_result(VoteResult.UNKNOWN))
        terms = (VoteResult.REJECT_EXPIRED_VOTE_TERM, VoteResult.REJECT_TERM_SMALL_THAN_LEDGER)
        known = max((tally.replies[voter].term for voter in tally.with_result(*terms)), default=tally.term)
        accepted = set(tally.with_result(VoteResult.ACCEPT))
        assert accepted <= valid and known >= tally.term
        next_vote_ns = self._next_vote_ns(me, rng)
        if known > tally.term:
            return RoundOutcome(ParseResult.WAIT_TO_VOTE_NEXT, next_vote_ns, known_term=known)  # 1
        if tally.with_result(VoteResult.REJECT_ALREADY_HAS_LEADER):
            return RoundOutcome(ParseResult.WAIT_TO_REVOTE, next_vote_ns + self._leak_ns)  # 2
        if not agree(valid):
            return RoundOutcome(ParseResult.WAIT_TO_REVOTE, next_vote_ns)  # 3
        if not agree(valid - set(tally.with_result(*BIGGER_LEDGER))):
            return RoundOutcome(ParseResult.WAIT_TO_REVOTE, next_vote_ns + MS * self._timers.max_vote_interval_ms)  # 4
        if agree(accepted):
            return RoundOutcome(ParseResult.PASSED)  # 5
        if agree(accepted | set(tally.with_result(VoteResult.REJECT_TERM_NOT_READY))):
            return RoundOutcome(ParseResult.REVOTE_IMMEDIATELY, TICK_NS)  # 6
        return RoundOutcome(ParseResult.WAIT_TO_VOTE_NEXT, next_vote_ns)  # 7

    # --- leading ---------------------------------------------------------------------------------------------

    def judge_heartbeats(self, tally: HeartbeatTally) -> LeaderDecision:
        """Judge by the sender's five rules, in order."""
        replies = tally.replies
        higher = max((term for code, term in replies.values() if code == Code.EXPIRED_TERM), default=tally.term)
        if higher > tally.term:
            return LeaderDecision(True, known_term=higher, reason="a peer is in a higher term")  # 1
        success = {tally.node_id} | {peer for peer, (code, _) in replies.items() if code not in NO_CONTACT}
        if tally.membership.agree(success):
            return LeaderDecision()  # 2: the replica's quorum contact is fresh
        not_ready = {peer for peer, (code, _) in replies.items() if code == Code.TERM_NOT_READY}
        if tally.membership.agree(success | not_ready):
            return LeaderDecision(beat_now=True)  # 3
        if any(code == Code.INCONSISTENT_LEADER for code, _ in replies.values()):
            return LeaderDecision(True, reason="a peer follows another leader in this term")  # 4
        if tally.quorum_contact_ns > self._leak_ns:
            return LeaderDecision(True, reason="no quorum answered within maxHeartBeatLeak heartbeats")  # 5
        return LeaderDecision()

    def taking_leadership_wins(self) -> bool:
        return False
