"""``StrictRules``, the default, use DLedger's words with the Raft paper's additions for safety and liveness.

Differences from ``dledger``: higher terms are taken in one step; the round before a real vote is a probe that leaves
no trace (thesis §9.6); voters ignore candidates while a leader was heard lately, and leaders resign without a quorum
(thesis §6.4.1 and §9.6); deadlines are random; priorities delay, they never veto.
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


class StrictRules:
    """The strict rules. ``ElectionRules`` says what each method answers."""

    name = "strict"
    one_step = True

    def __init__(self, config: Config) -> None:
        self.heartbeat_ns = config.heartbeat_interval_ms * MS
        self.lease_ns = config.election_timeout_ms * MS

    def _share(self, rng: Random, low: float, high: float) -> int:
        """Draw a delay between two fractions of the election timeout."""
        assert 0 < low <= high
        return int(self.lease_ns * rng.uniform(low, high))

    # --- when to become a candidate --------------------------------------------------------------------------

    def first_delay_ns(self, rng: Random) -> int:
        """Draw a follower's timeout: before it stopped, this node may have promised a leader to ignore candidates."""
        silence = self._share(rng, 1.0, 1.5)
        assert silence >= self.lease_ns, "leases outlive the restart of a voter"
        return silence

    def follower_timeout_ns(self, rng: Random, membership: Membership, node_id: str) -> int:
        """Draw 1 to 1.5 election timeouts; members of lower priority wait up to 0.5 more, so that higher ones go first.

        Only the first round of a candidacy is delayed: from then on availability counts more than preference.
        """
        priorities = {name: membership.members[name].priority for name in membership.everyone
                      if membership.votes(name) and name in membership.members}
        ranks = sorted(set(priorities.values()), reverse=True)
        silence = self._share(rng, 1.0, 1.5)
        assert silence >= self.lease_ns, "leases rest on the silence that each voter keeps"
        if len(ranks) < 2 or node_id not in priorities:
            return silence
        return silence + self.lease_ns * ranks.index(priorities[node_id]) // (2 * (len(ranks) - 1))

    # --- answering -------------------------------------------------------------------------------------------

    def decide_vote(self, me: Voter, candidate: str, request: Vote) -> VoteDecision:
        """Decide by membership, self, log, stickiness, term, vote, in this order. A refusal before the term row adopts
        no term.

        So neither a candidate with a stale log nor one that cannot hear the leader ever raises a healthy group's term.
        """
        if candidate_unknown(me, candidate, request):
            return VoteDecision(VoteResult.REJECT_UNKNOWN_LEADER)
        if candidate == me.node_id:
            return VoteDecision(VoteResult.REJECT_UNEXPECTED_LEADER)
        return self._decide(me, candidate, request)

    def decide_own_vote(self, me: Voter, request: Vote) -> VoteDecision:
        """Decide as for a peer: the candidate breaks no lease that it granted, and votes once in a term."""
        return self._decide(me, me.node_id, request)

    def _decide(self, me: Voter, candidate: str, request: Vote) -> VoteDecision:
        behind = judge_logs(me, request)
        if behind is not None:
            return VoteDecision(behind)
        if not request.transfer and self._has_fresh_leader(me, candidate):
            return VoteDecision(VoteResult.REJECT_ALREADY_HAS_LEADER)
        if request.term < me.term or (request.probe and request.term == me.term):
            return VoteDecision(VoteResult.REJECT_EXPIRED_VOTE_TERM)
        if request.term < me.last_term:
            return VoteDecision(VoteResult.REJECT_TERM_SMALL_THAN_LEDGER)
        if request.probe:
            return VoteDecision(VoteResult.ACCEPT)
        if request.term > me.term:
            return VoteDecision(VoteResult.ACCEPT, adopt_term=request.term, grant=True)
        if me.role is Role.LEADER:
            # Whatever its vote record says, a leader gives its own term to nobody else.
            return VoteDecision(VoteResult.REJECT_ALREADY_HAS_LEADER)
        if me.voted_for not in (None, candidate):
            return VoteDecision(VoteResult.REJECT_ALREADY_VOTED)
        assert request.term == me.term, "a vote is for the present term"
        return VoteDecision(VoteResult.ACCEPT, grant=True)

    def _has_fresh_leader(self, me: Voter, candidate: str) -> bool:
        """Return whether a promise to ignore candidates still holds, given to another leader than this candidate.

        A node that does not know its leader (it just started) keeps the promise towards everyone. A leader counts the
        time since a quorum was in contact: after that, some voter's promise may be over.
        """
        return me.heard_leader_ns < self.lease_ns and me.leader != candidate

    def decide_heartbeat(self, me: Voter, leader: str, term: int) -> HeartbeatDecision:
        """Take a higher term and follow in one step. The leader may be missing in my membership, which may be older."""
        if leader == me.node_id:
            return HeartbeatDecision(Code.UNEXPECTED_MEMBER)
        if term < me.term:
            return HeartbeatDecision(Code.EXPIRED_TERM)
        if term > me.term:
            return HeartbeatDecision(Code.SUCCESS, follow=True, adopt_term=term)
        if me.role is Role.LEADER or me.leader not in (None, leader):
            return HeartbeatDecision(Code.INCONSISTENT_LEADER)
        return HeartbeatDecision(Code.SUCCESS, follow=True)

    # --- asking ----------------------------------------------------------------------------------------------

    def plan_round(self, me: Voter, candidacy: Candidacy, rng: Random) -> RoundPlan:
        """Plan a probe, unless one just passed or the leader hands over. Real votes are always asked in a new term."""
        term = max(me.term, candidacy.known_term) + 1
        if not me.campaigns:
            return RoundPlan(me.term, probe=True, ask=False, delay_ns=self._share(rng, 1.0, 1.5))
        handed_over = candidacy.transfer and candidacy.failed_rounds == 0
        if me.heard_leader_ns < self.lease_ns and not handed_over:
            # Its own promise to the leader binds it too (after a hand-over that failed): it has no vote to give.
            return RoundPlan(me.term, probe=True, ask=False, delay_ns=self.lease_ns - me.heard_leader_ns)
        passed = candidacy.last_probe and candidacy.last_result is ParseResult.PASSED
        assert term > me.term and term > candidacy.known_term, "a fresh one"
        return RoundPlan(term, probe=not (handed_over or passed))

    def round_timeout_ns(self, rng: Random) -> int:
        return self._share(rng, 0.5, 0.75)

    def round_decided(self, tally: Tally) -> bool:
        """Return whether a higher term is known, a quorum accepts, or no quorum can accept any more."""
        accepted = tally.with_result(VoteResult.ACCEPT)
        if self._higher_term(tally) or tally.membership.agree(accepted):
            return True
        possible = [voter for voter in tally.membership.everyone if voter not in tally.replies]
        return not tally.membership.agree([*accepted, *possible])

    @staticmethod
    def _higher_term(tally: Tally) -> int:
        """Return a term of some voter that makes this round useless; 0 if there is none. Any answer may tell of it."""
        highest = max((reply.term for reply in tally.replies.values()), default=0)
        return highest if highest > tally.term or (tally.probe and highest == tally.term) else 0

    def parse_round(self, me: Voter, tally: Tally, rng: Random) -> RoundOutcome:
        """Judge by DLedger's rows 1 to 7, but row 2 is weaker and row 6 is gone. One voice does not stop a quorum, and
        no term is deferred."""
        higher = self._higher_term(tally)
        if higher > me.term:
            return self._again(rng, 0.05, 0.15, known_term=higher)
        if tally.term <= me.term if tally.probe else tally.term != me.term:
            return self._again(rng, 0.05, 0.25)  # the term moved on while answers were under way
        everyone = set(tally.membership.everyone)
        agree = tally.membership.agree
        if not agree(everyone - set(tally.with_result(VoteResult.REJECT_ALREADY_HAS_LEADER))):
            return self._again(rng, 0.2, 0.4)
        valid = set(tally.replies) - set(tally.with_result(VoteResult.UNKNOWN))
        if not agree(valid):
            return self._again(rng, 0.05, 0.25)
        if not agree(valid - set(tally.with_result(*BIGGER_LEDGER))):
            return self._again(rng, 0.5, 1.0)  # the better informed go first
        if agree(tally.with_result(VoteResult.ACCEPT)):
            assert tally.term > me.term if tally.probe else tally.term == me.term, "the round is not outdated"
            return RoundOutcome(ParseResult.PASSED)
        return self._again(rng, 0.05, 0.25)

    def _again(self, rng: Random, low: float, high: float, known_term: int = 0) -> RoundOutcome:
        """Probe anew after a random share of the election timeout, so that two candidates separate."""
        return RoundOutcome(ParseResult.WAIT_TO_REVOTE, self._share(rng, low, high), known_term)

    # --- leading ---------------------------------------------------------------------------------------------

    def judge_heartbeats(self, tally: HeartbeatTally) -> LeaderDecision:
        """Decide to step down for a higher term, for a second leader in its own, and when its lease may be over."""
        highest = max((term for _, term in tally.replies.values()), default=tally.term)
        if highest > tally.term:
            return LeaderDecision(True, known_term=highest, reason="a peer is in a higher term")
        if any(code == Code.INCONSISTENT_LEADER for code, _ in tally.replies.values()):
            return LeaderDecision(step_down=True, reason="a peer follows another leader in this term")
        if tally.quorum_contact_ns > self.lease_ns:
            return LeaderDecision(step_down=True, reason="no quorum answered within the election timeout")
        return LeaderDecision()

    def taking_leadership_wins(self) -> bool:
        return True
