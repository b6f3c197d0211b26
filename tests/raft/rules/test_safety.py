"""What must hold whatever the rules decide: one leader a term, once; probes without a trace; promises kept.

A small world of voters without storage or network carries decisions out in any order hypothesis thinks of.
"""

from __future__ import annotations

from random import Random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raft.config import Config, Rules
from raft.membership import Membership
from raft.messages import Role, Vote, VoteReply, VoteResult
from raft.rules import make_rules
from raft.rules.interface import Candidacy, ElectionRules, Tally, Voter
from tests.raft.rules.facts import LEASE, LONG_AGO

NAMES = ("n0", "n1", "n2", "n3")
SETS = [Membership(NAMES[:3]), Membership(NAMES), Membership(("n0", "n1", "n3"), ("n0", "n1", "n2"))]
BOTH = pytest.mark.parametrize("rules", [make_rules(Config(rules=rules)) for rules in Rules],
                               ids=lambda rules: rules.name)


@attrs.define(eq=False)
class Node:
    """A voter between its steps. ``durable``: (term, index) of its log's end before its own no-op."""

    me: Voter
    durable: tuple[int, int] = (1, 1)
    candidacy: Candidacy = attrs.Factory(Candidacy)
    tally: Tally | None = None
    request: Vote | None = None


class World:
    """Voters that ask, answer, lead, beat and restart as told. Time never makes a promise lapse by itself."""

    def __init__(self, rules: ElectionRules, membership: Membership) -> None:
        self.rules, self.membership, self.rng = rules, membership, Random(1)
        self.rounds = 0
        self.led: dict[int, str] = {}
        self.nodes = {
            name: Node(Voter(name, Role.FOLLOWER, 1, None, None, 1, 1, membership, LONG_AGO)) for name in NAMES}

    def take_term(self, node: Node, term: int) -> None:
        assert term >= node.me.term, "terms never fall"
        if term > node.me.term:
            node.me.term, node.me.voted_for = term, None
            node.me.role, node.me.leader = Role.FOLLOWER, None

    def follow(self, node: Node, leader: str | None) -> None:
        node.me.role, node.me.leader, node.tally = Role.FOLLOWER, leader, None
        node.candidacy = Candidacy(known_term=node.candidacy.known_term)

    def campaign(self, name: str) -> None:
        """A round's question: the plan carried out and the candidate's own answer."""
        node, me = self.nodes[name], self.nodes[name].me
        if me.role is Role.LEADER or not self.membership.votes(name):
            return
        if me.role is Role.FOLLOWER:
            node.candidacy = Candidacy(need_increase_term=node.candidacy.need_increase_term,
                                       known_term=node.candidacy.known_term)
        me.role, me.leader = Role.CANDIDATE, None
        plan = self.rules.plan_round(me, node.candidacy, self.rng)
        if not plan.probe:
            self.take_term(node, plan.term)
            me.role = Role.CANDIDATE
        node.candidacy.need_increase_term = False
        if not plan.ask:
            return
        self.rounds += 1
        node.request = Vote(1, plan.term, self.rounds, me.last_index, me.last_term, plan.probe)
        node.tally = Tally(self.membership, plan.term, plan.probe)
        decision = self.rules.decide_own_vote(me, node.request)
        if decision.grant and not plan.probe:
            assert me.voted_for in (None, name)
            me.voted_for = name
        node.tally.replies[name] = VoteReply(1, me.term, self.rounds, decision.result, plan.probe)

    def answer(self, name: str, candidate: str) -> None:
        """``name`` gets ``candidate``'s latest question, perhaps again and late; its answer arrives at once."""
        node, asker = self.nodes[name], self.nodes[candidate]
        request = asker.request
        if request is None or name == candidate:
            return
        me = node.me
        before = attrs.evolve(me)
        decision = self.rules.decide_vote(me, candidate, request)
        if request.probe:
            assert vars_of(me) == vars_of(before)
        else:
            if decision.adopt_term:
                self.take_term(node, decision.adopt_term)
                self.follow(node, None)
            if decision.become_candidate:
                me.role, me.leader, node.tally = Role.CANDIDATE, None, None
                node.candidacy = Candidacy(need_increase_term=True)
                node.candidacy.known_term = max(node.candidacy.known_term, decision.known_term)
            if decision.grant:
                assert me.role is not Role.LEADER and me.term == request.term
                assert me.voted_for in (None, candidate), "one vote a term"
                me.voted_for = candidate
        if asker.tally is not None and self.membership.votes(name):
            asker.tally.replies[name] = VoteReply(1, me.term, request.round, decision.result, request.probe)

    def finish(self, name: str) -> None:
        """The round's time is over: parse it."""
        node, me = self.nodes[name], self.nodes[name].me
        tally, node.tally = node.tally, None
        if tally is None or me.role is not Role.CANDIDATE:
            return
        outcome = self.rules.parse_round(me, tally, self.rng)
        node.candidacy.last_result, node.candidacy.last_probe = outcome.result, tally.probe
        node.candidacy.known_term = max(node.candidacy.known_term, outcome.known_term)
        if outcome.result.name != "PASSED":
            node.candidacy.failed_rounds += 1
        elif not tally.probe:
            assert self.membership.agree(tally.with_result(VoteResult.ACCEPT))
            assert tally.term == me.term and me.voted_for == name
            assert tally.term not in self.led, f"{name} leads term {tally.term}, which {self.led[tally.term]} led"
            self.led[tally.term] = name
            me.role, me.leader = Role.LEADER, name
            node.durable = me.last_term, me.last_index
            me.last_term, me.last_index = me.term, me.last_index + 1  # its no-op

    def beat(self, name: str, follower: str) -> None:
        """A leader's heartbeat; who follows has its log."""
        leader, node = self.nodes[name].me, self.nodes[follower]
        if leader.role is not Role.LEADER or name == follower:
            return
        decision = self.rules.decide_heartbeat(node.me, name, leader.term)
        if decision.become_candidate:
            node.me.role, node.me.leader, node.tally = Role.CANDIDATE, None, None
            node.candidacy = Candidacy(need_increase_term=True, known_term=decision.known_term)
        if decision.follow:
            assert not decision.adopt_term or decision.adopt_term == leader.term
            self.take_term(node, leader.term)
            self.follow(node, name)
            node.me.last_term, node.me.last_index = leader.last_term, leader.last_index

    def restart(self, name: str) -> None:
        """What is durable stays: term and vote, and of a leader's log all but its no-op."""
        node = self.nodes[name]
        if node.me.role is Role.LEADER:
            node.me.last_term, node.me.last_index = node.durable
        self.follow(node, None)
        node.candidacy = Candidacy()

    def resign(self, name: str) -> None:
        if self.nodes[name].me.role is Role.LEADER:
            self.follow(self.nodes[name], None)


def vars_of(me: Voter) -> tuple[object, ...]:
    return me.role, me.term, me.voted_for, me.leader, me.last_term, me.last_index


VERBS = ["campaign", "answer", "answer", "answer", "finish", "finish", "beat", "beat", "restart", "resign"]


@BOTH
@settings(max_examples=150)
@given(st.integers(0, 1 << 32), st.sampled_from(SETS), st.integers(1, 10))
def test_a_term_is_led_once_by_one_node_whatever_the_order_of_events(
    rules: ElectionRules, seed: int, membership: Membership, calm: int,
) -> None:
    """A random walk; ``calm`` of ten steps are whole rounds, so that leaders exist that can be challenged."""
    world, rng = World(rules, membership), Random(seed)
    for _ in range(200):
        name, other = rng.choice(NAMES), rng.choice(NAMES)
        if rng.randrange(10) < calm - 1:
            world.campaign(name)
            for voter in rng.sample(NAMES, rng.randint(1, 4)):
                world.answer(voter, name)
            if rng.random() < 0.7:
                world.finish(name)
            continue
        verb = rng.choice(VERBS)
        if verb in ("answer", "beat"):
            getattr(world, verb)(name, other)
        else:
            getattr(world, verb)(name)
    leaders = [node.me for node in world.nodes.values() if node.me.role is Role.LEADER]
    assert len({leader.term for leader in leaders}) == len(leaders)


@BOTH
def test_the_world_above_does_elect(rules: ElectionRules) -> None:
    """Else the property would hold for nothing."""
    world = World(rules, SETS[0])
    for _ in range(4):
        world.campaign("n1")
        for name in NAMES:
            world.answer(name, "n1")
        world.finish("n1")
        for name in NAMES:  # under DLedger, voters that were not ready take the term
            if world.nodes[name].candidacy.need_increase_term:
                world.campaign(name)
    assert world.led and set(world.led.values()) == {"n1"}


facts = st.builds(
    Voter, st.just("n0"), st.sampled_from(Role), st.integers(1, 4), st.sampled_from([None, *NAMES]),
    st.sampled_from([None, *NAMES]), st.integers(0, 4), st.integers(0, 4), st.sampled_from([*SETS, Membership()]),
    st.sampled_from([0, LEASE - 1, LEASE, LONG_AGO]), st.booleans(), st.booleans())
requests = st.builds(
    Vote, st.just(1), st.integers(0, 5), st.just(1), st.integers(0, 4), st.integers(0, 4), st.booleans(), st.booleans())


@BOTH
@settings(max_examples=500)
@given(facts, st.sampled_from([*NAMES, "n9"]), requests)
def test_a_decision_changes_nothing_by_itself_and_never_lowers_a_term(
    rules: ElectionRules, me: Voter, candidate: str, request: Vote,
) -> None:
    before = attrs.evolve(me)
    decision = rules.decide_vote(me, candidate, request)
    assert vars_of(me) == vars_of(before)
    assert decision.adopt_term == 0 or decision.adopt_term > me.term
    assert decision.known_term == 0 or decision.known_term > me.term
    assert decision == rules.decide_vote(me, candidate, request), "a decision depends on nothing else"
    if decision.grant:
        assert decision.result is VoteResult.ACCEPT
        assert (request.last_term, request.last_index) >= (me.last_term, me.last_index)
        assert request.term == max(me.term, decision.adopt_term)
        assert decision.adopt_term or me.voted_for in (None, candidate)


@BOTH
@given(facts, st.sampled_from([*NAMES, "n9"]), st.integers(0, 6))
def test_only_one_leader_is_followed_in_a_term(rules: ElectionRules, me: Voter, leader: str, term: int) -> None:
    decision = rules.decide_heartbeat(me, leader, term)
    assert decision.follow == (decision.code == 200)
    if decision.follow:
        assert leader != me.node_id and term >= me.term
        if term == me.term:
            assert me.role is not Role.LEADER and me.leader in (None, leader)
