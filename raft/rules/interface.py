"""The interface of election rules: pure functions from facts to decisions.

Two sets implement it, ``strict`` (default) and ``dledger``; the replica carries decisions out and never asks which
set it runs. The words are DLedger's (DLedgerLeaderElector): a candidate runs *rounds*; a finished round is *parsed*
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
    """The facts about a node that is asked for its vote or hears a leader."""

    node_id: str
    role: Role
    term: int
    voted_for: str | None
    leader: str | None
    last_term: int
    last_index: int
    membership: Membership
    heard_leader_ns: int
    """Time since a leader was last heard (or this node started); while leading, since a quorum was in contact."""
    taking_leadership: bool = False
    """True if the leader asked this node to take over in its present term (DLedger's termToTakeLeadership)."""
    campaigns: bool = True
    """True if it may ask for votes itself; False for a learner, a joiner and a removed node."""


@attrs.frozen
class VoteDecision:
    """The decision about a request for a vote. ``adopt_term``: take this term first (0: keep). ``grant``: record the
    vote. A probe changes nothing."""

    result: VoteResult
    adopt_term: int = 0
    grant: bool = False
    become_candidate: bool = False
    """True to leave the role without taking the term yet (DLedger's row 4e)."""
    known_term: int = 0
    """Term that exists in the group: the largest known term rises to it."""


@attrs.frozen
class HeartbeatDecision:
    """The decision about an append from ``leader`` in ``term``. ``follow``: it is the leader, so take its entries."""

    code: Code
    follow: bool = False
    adopt_term: int = 0
    become_candidate: bool = False
    known_term: int = 0


@attrs.define(eq=False)
class Candidacy:
    """The state of a candidate between rounds.

    Carrying out a plan that asks, or that takes a term, sets ``last_result`` back to WAIT_TO_REVOTE and
    ``need_increase_term`` to False.
    """

    last_result: ParseResult = ParseResult.WAIT_TO_REVOTE
    last_probe: bool = True
    """True if the last finished round was a probe."""
    need_increase_term: bool = False
    """True to take a higher term before asking: a decision said ``become_candidate``, or DLedger's leader hands
    over."""
    known_term: int = 0
    """Largest term that was heard in the group."""
    failed_rounds: int = 0
    """Rounds of this candidacy that ended without PASSED. It ends with the role; a new candidacy starts at 0."""
    transfer: bool = False
    """True if the leader asked this node to take over: no probe, no stickiness. Only for the first round."""


@attrs.frozen
class RoundPlan:
    """The next step of a candidate. It takes ``term`` if that is above its own (a probe only names it). ``ask`` False:
    only wait."""

    term: int
    probe: bool
    ask: bool = True
    delay_ns: int = 0
    """Time after which to plan again, if ``ask`` is False."""


@attrs.define(eq=False)
class Tally:
    """The answers of one round so far, with the candidate's own: voter -> reply."""

    membership: Membership
    term: int
    probe: bool
    replies: dict[str, VoteReply] = attrs.Factory(dict)

    def with_result(self, *results: VoteResult) -> list[str]:
        """Return the voters whose answer is one of these."""
        return [voter for voter, reply in self.replies.items() if reply.result in results]


@attrs.frozen
class RoundOutcome:
    """The judgement of a round. ``delay_ns``: time until the next one. ``known_term``: a term above this round's that
    was heard."""

    result: ParseResult
    delay_ns: int = 0
    known_term: int = 0


@attrs.define(eq=False)
class HeartbeatTally:
    """The answers to the leader's latest heartbeats: peer -> (code, term). The leader counts as a success."""

    membership: Membership
    node_id: str
    term: int
    replies: dict[str, tuple[int, int]]
    quorum_contact_ns: int
    """Time since a quorum was last in contact."""


@attrs.frozen
class LeaderDecision:
    """The decision about a leadership. ``step_down``: leave it. ``beat_now``: send the next heartbeats at once."""

    step_down: bool = False
    known_term: int = 0
    beat_now: bool = False
    reason: str = ""


class ElectionRules(Protocol):
    """A set of election rules. All methods are pure, except that some draw from ``rng``. Times are nanoseconds."""

    name: str
    one_step: bool
    """True if a higher term is taken when it is heard; else it is remembered, and taken when the next round needs
    it."""
    heartbeat_ns: int
    lease_ns: int
    """Silence of the leader that every voter waits for before it grants another vote; 0: none, so there are no
    leases."""

    def first_delay_ns(self, rng: Random) -> int:
        """Return the time from the start to the first candidacy."""
    def follower_timeout_ns(self, rng: Random, membership: Membership, node_id: str) -> int:
        """Return the silence after which a follower becomes a candidate."""
    def decide_vote(self, me: Voter, candidate: str, request: Vote) -> VoteDecision:
        """Decide about a peer's request for a vote. For a probe only ``result`` counts."""
    def decide_own_vote(self, me: Voter, request: Vote) -> VoteDecision:
        """Decide about the candidate's own vote, after the plan's term is taken. It goes into ``Tally.replies``."""
    def decide_heartbeat(self, me: Voter, leader: str, term: int) -> HeartbeatDecision: ...
    def plan_round(self, me: Voter, candidacy: Candidacy, rng: Random) -> RoundPlan: ...
    def round_timeout_ns(self, rng: Random) -> int:
        """Return the longest wait for a round's answers."""
    def round_decided(self, tally: Tally) -> bool:
        """Return whether the answers so far allow an early end of the round."""
    def parse_round(self, me: Voter, tally: Tally, rng: Random) -> RoundOutcome: ...
    def judge_heartbeats(self, tally: HeartbeatTally) -> LeaderDecision:
        """Decide what the answers to heartbeats mean for the leader. Called after each reply and at each heartbeat."""
    def taking_leadership_wins(self) -> bool:
        """Return True if TimeoutNow skips the probe (strict), False if DLedger's take-leadership window applies."""
