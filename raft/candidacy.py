"""The candidate's part: it asks for votes in rounds, which the election rules plan and judge.

Owns the state between rounds and the answers of the running one. Takes terms and votes through the replica; knows
no log entries and no timers but its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.config import MS, NEVER
from raft.messages import LEADER, ParseResult, Role, Vote, VoteReply, VoteResult
from raft.rules.interface import Candidacy, RoundOutcome, RoundPlan, Tally
from raft.trace import RoundEnded, RoundStarted

if TYPE_CHECKING:
    from raft.replica import Replica

_RESULTS = frozenset(map(int, VoteResult))


class Campaign:
    """One node's candidacy; idle while it follows or leads."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.state = Candidacy()
        self.cause = ""
        self.rounds = 0
        self.started_at = 0
        self.last_outcome: tuple[ParseResult, dict[str, VoteResult]] | None = None
        """Result and answers of the latest finished round, for people."""
        self._tally: Tally | None = None
        self._round = 0
        self._round_deadline = NEVER
        self._next_round_at = NEVER
        self._own_vote_after = 0
        """Token of the write that makes the candidate's own vote durable; the vote counts only then (KAFKA-10533)."""

    @property
    def allowed(self) -> bool:
        """Return whether this node may ask for votes: only a voter may, and only with the directory that the latest
        membership records. A removed node never asks (etcd db54973). After a wipe, older memberships still name the
        lost directory.

        A voter goes on asking while its removal may be uncommitted (thesis §4.2.2): the remaining voters may have
        shorter logs and need it.
        """
        core = self.core
        member = core.membership.members.get(core.node_id)
        voter = core.membership.votes(core.node_id) or (
            core.log.membership_index > core.commit_index
            and core.log.membership_at(core.commit_index)[1].votes(core.node_id))
        return (voter and not core.installing and core.lapse is None
                and (member is None or not member.incarnation or member.incarnation == core.incarnation))

    def deadline(self) -> int:
        assert not self._tally or self._round_deadline < NEVER, "a round ends"
        return self._round_deadline if self._tally else self._next_round_at

    def start(self, cause: str) -> None:
        """Become a candidate; the first round is due at once unless the rules delay it."""
        assert not self._tally, "no round runs"
        self.state = Candidacy(
            need_increase_term=self.state.need_increase_term, known_term=self.state.known_term,
            transfer=self.state.transfer)
        self.cause = cause
        self.rounds = 0
        self.started_at = self._next_round_at = self.core.now

    def take_over(self, cause: str) -> None:
        """Ask for real votes at once, since the leader hands over: what voters promised that leader does not stop it.
        Holds for one attempt, in the next term."""
        core, state = self.core, self.state
        state.transfer, state.need_increase_term = True, not core.rules.taking_leadership_wins()
        core.become_candidate(cause)
        self.tick()

    def learn_term(self, known_term: int) -> None:
        """Note that a higher term exists. One-step rules take it now, DLedger when the next round needs it (§2.5)."""
        core = self.core
        assert core.role != LEADER
        if known_term <= core.term:
            return
        if core.rules.one_step:
            core.set_hard_state(known_term, None)
            if core.leader is not None:
                core.become_follower(None, f"term {known_term} exists")
        else:
            self.state.known_term = max(self.state.known_term, known_term)

    def increase_term(self) -> None:
        """Make the next round due at once, in a higher term: DLedger's needIncreaseTermImmediately."""
        self.state.need_increase_term = True
        if self._tally is None:
            self._next_round_at = self.core.now

    def stop(self) -> None:
        """End the candidacy, to follow or to lead. Higher terms that were heard of are kept."""
        self._tally = None
        self._next_round_at = self._round_deadline = NEVER
        self.state.transfer = False

    def tick(self) -> None:
        now = self.core.now
        if self._tally and now >= self._round_deadline:
            self._finish()
        elif self._tally is None and now >= self._next_round_at:
            self._ask()

    def _ask(self) -> None:
        """Plan the next round and ask for votes."""
        assert self._tally is None, "one round at a time"
        core, state = self.core, self.state
        if not self.allowed or core.writes.disk_full:
            self._next_round_at = core.now + core.rules.follower_timeout_ns(core.rng, core.membership, core.node_id)
            return
        plan = core.rules.plan_round(core.voter(), state, core.rng)
        assert plan.term >= core.term and plan.delay_ns >= 0, plan
        if plan.term > core.term and not plan.probe:
            core.set_hard_state(plan.term, None)
        state.need_increase_term = False
        assert plan.probe or plan.term == core.term, "a vote is asked for in the term that was taken"
        if not plan.ask:
            state.last_result = ParseResult.WAIT_TO_REVOTE  # the higher term it called for is taken
            self._next_round_at = core.now + plan.delay_ns
            return
        self._round += 1
        self.rounds += 1
        tally = self._tally = Tally(core.membership, plan.term, plan.probe)
        self._round_deadline = core.now + core.rules.round_timeout_ns(core.rng)
        if core.trace:
            core.trace(RoundStarted(core.now, core.node_id, core.group, core.term, self._round, plan.probe, plan.term))
        request = Vote(core.group, plan.term, self._round, core.log.last_index, core.log.last_term,
                       plan.probe, state.transfer)
        self._answer_self(request, plan)
        for peer in tally.membership.everyone:
            if peer != core.node_id and tally.membership.votes(peer):
                core.send(peer, request)
        self._maybe_finish()

    def _answer_self(self, request: Vote, plan: RoundPlan) -> None:
        core = self.core
        decision = core.rules.decide_own_vote(core.voter(), request)
        if decision.grant and not plan.probe:
            assert request.term == core.term, "the plan's term is taken"
            core.set_hard_state(request.term, core.node_id)
        writes = core.writes
        if decision.result == VoteResult.ACCEPT and not plan.probe and writes.hard_state_waits:
            self._own_vote_after = writes.hard_token
            return
        self._own_vote_after = 0
        self._tally_own(decision.result)

    def _tally_own(self, result: VoteResult) -> None:
        if self._tally:
            assert self.core.node_id not in self._tally.replies, "each votes once in a round"
            self._tally.replies[self.core.node_id] = VoteReply(
                self.core.group, self.core.term, self._round, result, self._tally.probe)

    def on_durable(self) -> None:
        if self._tally and 0 < self._own_vote_after <= self.core.writes.durable_token:
            assert not self._tally.probe, "a probe leaves no vote to be kept"
            self._own_vote_after = 0
            self._tally_own(VoteResult.ACCEPT)
            self._maybe_finish()

    def on_reply(self, peer: str, reply: VoteReply) -> None:
        """Count an answer once for each voter, and only in the running round (Xraft duplicate votes)."""
        tally = self._tally
        if self.core.role != Role.CANDIDATE or tally is None or reply.round != self._round:
            self.core.dropped(peer, reply, "no such round")
        elif (reply.result not in _RESULTS or reply.probe != tally.probe or not tally.membership.votes(peer)
                or (peer in tally.replies and tally.replies[peer].result != VoteResult.UNKNOWN)):
            self.core.dropped(peer, reply, "not a countable answer")
        elif reply.result == VoteResult.ACCEPT and not tally.probe and reply.term != tally.term:
            self.core.dropped(peer, reply, "a grant of another term")
        else:
            tally.replies[peer] = reply
            self._maybe_finish()

    def on_unreachable(self, peer: str) -> None:
        """Expect no answer from this peer (DLedger's UNKNOWN). If one comes all the same, it still counts."""
        tally = self._tally
        if tally and peer not in tally.replies and tally.membership.votes(peer):
            tally.replies[peer] = VoteReply(self.core.group, 0, self._round, VoteResult.UNKNOWN, tally.probe)
            self._maybe_finish()

    def _maybe_finish(self) -> None:
        tally = self._tally
        if tally is None or not self.core.rules.round_decided(tally):
            return
        if self._own_vote_after and tally.membership.agree(
                [self.core.node_id, *tally.with_result(VoteResult.ACCEPT)]):
            return  # the own vote is not durable yet, and may still win this round
        self._finish()

    def _finish(self) -> None:
        core, state, tally = self.core, self.state, self._tally
        assert tally is not None
        self._tally, self._round_deadline = None, NEVER
        outcome = core.rules.parse_round(core.voter(), tally, core.rng)
        self.last_outcome = outcome.result, {
            voter: VoteResult(reply.result) for voter, reply in tally.replies.items()}
        if core.trace:
            accepted, unknown = tally.with_result(VoteResult.ACCEPT), tally.with_result(VoteResult.UNKNOWN)
            core.trace(RoundEnded(core.now, core.node_id, core.group, core.term, self._round, tally.probe,
                                  outcome.result.name, len(accepted), len(tally.replies) - len(unknown)))
        state.last_result, state.last_probe = outcome.result, tally.probe
        self.learn_term(outcome.known_term)
        if outcome.result is ParseResult.PASSED:
            self._passed(tally)
        else:
            self._again(outcome)

    def _passed(self, tally: Tally) -> None:
        core = self.core
        if tally.probe:
            self._ask()
        elif tally.term == core.term and core.term > core.led_term and tally.membership is core.membership:
            assert tally.membership.agree(tally.with_result(VoteResult.ACCEPT)), "only a quorum makes a leader"
            core.become_leader(tuple(sorted(tally.with_result(VoteResult.ACCEPT))))
        else:
            self.state.need_increase_term = True
            self._again(RoundOutcome(ParseResult.WAIT_TO_VOTE_NEXT, 10 * MS))

    def _again(self, outcome: RoundOutcome) -> None:
        assert outcome.result is not ParseResult.PASSED and outcome.delay_ns >= 0, outcome
        self.state.failed_rounds += 1
        self.state.transfer = False
        self._next_round_at = self.core.now + outcome.delay_ns
