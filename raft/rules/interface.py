"""The interface of election rules: pure functions from facts to decisions.

Two sets implement it, ``strict`` (default) and ``dledger``; the replica carries decisions out and never asks which
set it runs. Vocabulary is DLedger's (DLedgerLeaderElector): a candidate runs *rounds*; a finished round is *parsed*
into a ``ParseResult`` and a delay; WAIT_TO_VOTE_NEXT allows a higher term in the next round.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

import attrs

from raft.membership import Membership
from raft.messages import Code, ParseResult, Role, Vote, VoteReply, VoteResult


@attrs.define(eq=False)
class Voter:
    """What a node knows when it is asked for its vote or hears a leader."""

    node_id: str
    role: Role
    term: int
    voted_for: str | None
    leader: str | None
    last_term: int
    last_index: int
    membership: Membership
    heard_leader_ns: int
    """How long ago a leader was last heard (or this node started); while leading, a quorum of voters."""
    taking_leadership: bool = False
    """Whether the leader asked this node to take over in the term it is in (DLedger's termToTakeLeadership)."""
    campaigns: bool = True
    """Whether it asks for votes itself: not as a learner, a joiner or a removed node."""


@attrs.frozen
class VoteDecision:
    """``adopt_term``: take this term first (0: keep). ``grant``: record the vote. Nothing happens on a probe."""

    result: VoteResult
    adopt_term: int = 0
    grant: bool = False
    become_candidate: bool = False
    """DLedger row 4e: leave the role, but do not take the term yet."""
    known_term: int = 0
    """Raise what is known of the group's largest term to this."""


@attrs.frozen
class HeartbeatDecision:
    """What an append from ``leader`` in ``term`` means. ``follow``: it is the leader, take its entries."""

    code: Code
    follow: bool = False
    adopt_term: int = 0
    become_candidate: bool = False
    known_term: int = 0


@attrs.define(eq=False)
class Candidacy:
    """Where a candidate stands between rounds.

    Carrying out a plan that asks, or that takes a term, sets ``last_result`` back to WAIT_TO_REVOTE and
    ``need_increase_term`` to False.
    """

    last_result: ParseResult = ParseResult.WAIT_TO_REVOTE
    last_probe: bool = True
    """Whether the last finished round was a probe."""
    need_increase_term: bool = False
    """A decision said ``become_candidate``, or DLedger's leader hands over: take a higher term before asking."""
    known_term: int = 0
    """Largest term heard in the group."""
    failed_rounds: int = 0
    """Rounds of this candidacy that ended without PASSED. It ends with the role; a new candidacy starts at 0."""
    transfer: bool = False
    """The leader asked this node to take over: no probe, no stickiness. Holds for the first round alone."""


@attrs.frozen
class RoundPlan:
    """Next step of a candidate. Take ``term`` if above its own (a probe only names it). ``ask``: False = only wait."""

    term: int
    probe: bool
    ask: bool = True
    delay_ns: int = 0
    """When ``ask`` is False: come again after this long."""


@attrs.define(eq=False)
class Tally:
    """Answers of one round so far, the candidate's own among them: voter -> reply."""

    membership: Membership
    term: int
    probe: bool
    replies: dict[str, VoteReply] = attrs.Factory(dict)

    def with_result(self, *results: VoteResult) -> list[str]:
        """Who answered one of these."""
        return [voter for voter, reply in self.replies.items() if reply.result in results]


@attrs.frozen
class RoundOutcome:
    """What a round means. ``delay_ns``: until the next one. ``known_term``: a term heard that is above this round's."""

    result: ParseResult
    delay_ns: int = 0
    known_term: int = 0


@attrs.define(eq=False)
class HeartbeatTally:
    """Answers to the leader's latest heartbeat round: peer -> (code, term); the leader's own success is implied."""

    membership: Membership
    node_id: str
    term: int
    replies: dict[str, tuple[int, int]]
    quorum_contact_ns: int
    """How long ago a quorum was last in contact."""


@attrs.frozen
class LeaderDecision:
    """``step_down``: leave leadership. ``beat_now``: send the next heartbeats at once."""

    step_down: bool = False
    known_term: int = 0
    beat_now: bool = False
    reason: str = ""


class ElectionRules(Protocol):
    """All methods are pure but for the ``rng`` that some draw from. Times are nanoseconds."""

    name: str
    one_step: bool
    """Whether a higher term is taken when heard; else it is remembered and taken when the next round needs it."""
    heartbeat_ns: int
    lease_ns: int
    """Silence that every voter observes before it may grant another vote; 0: none, so no leases."""

    def first_delay_ns(self, rng: Random) -> int:
        """From start to the first candidacy."""
    def follower_timeout_ns(self, rng: Random, membership: Membership, node_id: str) -> int:
        """Silence after which a follower becomes a candidate."""
    def decide_vote(self, me: Voter, candidate: str, request: Vote) -> VoteDecision:
        """What a peer's request gets. For a probe only ``result`` counts."""
    def decide_own_vote(self, me: Voter, request: Vote) -> VoteDecision:
        """The candidate's answer to itself, after the plan's term is taken; belongs into ``Tally.replies``."""
    def decide_heartbeat(self, me: Voter, leader: str, term: int) -> HeartbeatDecision: ...
    def plan_round(self, me: Voter, candidacy: Candidacy, rng: Random) -> RoundPlan: ...
    def round_timeout_ns(self, rng: Random) -> int:
        """Longest wait for a round's answers."""
    def round_decided(self, tally: Tally) -> bool:
        """Whether the answers so far allow an early end."""
    def parse_round(self, me: Voter, tally: Tally, rng: Random) -> RoundOutcome: ...
    def judge_heartbeats(self, tally: HeartbeatTally) -> LeaderDecision:
        """What the answers to a heartbeat round mean for the leader; asked after each reply and at each beat."""
    def taking_leadership_wins(self) -> bool:
        """Whether TimeoutNow skips the probe (strict) or follows DLedger's take-leadership window."""
