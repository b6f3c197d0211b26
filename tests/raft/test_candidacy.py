"""A candidate's rounds, step by step, under rules that say what a test wants."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from raft.candidacy import Campaign
from raft.config import MS, NEVER, Config
from raft.frame import Kind
from raft.membership import Membership
from raft.messages import Lapse, ParseResult, Role, Vote, VoteReply, VoteResult
from raft.replica import Replica
from raft.rules.interface import Candidacy, RoundOutcome, RoundPlan, Tally, VoteDecision
from tests.raft.alone import DLEDGER, THREE, Node, among, meta
from tests.raft.script import frame

ACCEPT, UNKNOWN = VoteResult.ACCEPT, VoteResult.UNKNOWN
REFUSED = VoteResult.REJECT_ALREADY_VOTED
PATIENCE, ROUND = 700, 50


class Rules:
    """Says what it was told to."""

    def __init__(self) -> None:
        self.plan = RoundPlan(4, probe=False)
        self.own = VoteDecision(ACCEPT, grant=True)
        self.outcome = RoundOutcome(ParseResult.WAIT_TO_REVOTE, 30)
        self.decided: Callable[[Tally], bool] = lambda tally: False

    def plan_round(self, me: object, candidacy: Candidacy, rng: Random) -> RoundPlan:
        return self.plan

    def follower_timeout_ns(self, rng: Random, membership: Membership, node_id: str) -> int:
        return PATIENCE

    def round_timeout_ns(self, rng: Random) -> int:
        return ROUND

    def decide_own_vote(self, me: object, request: Vote) -> VoteDecision:
        return self.own

    def round_decided(self, tally: Tally) -> bool:
        return self.decided(tally)

    def parse_round(self, me: object, tally: Tally, rng: Random) -> RoundOutcome:
        return self.outcome


@attrs.define
class Disk:
    disk_full: bool = False
    hard_token: int = 0
    durable_token: int = 0

    @property
    def hard_state_waits(self) -> bool:
        return self.hard_token > self.durable_token


class Core:
    """As much of a replica as a campaign sees."""

    def __init__(self) -> None:
        self.membership = Membership(("n0", "n1", "n2"), (), ("l0",))
        self.node_id, self.group, self.term, self.led_term, self.now = "n0", 1, 3, 0, 1_000
        self.role, self.trace, self.rng, self.rules = Role.CANDIDATE, None, Random(1), Rules()
        self.installing, self.lapse, self.commit_index, self.incarnation = None, cast(Lapse | None, None), 0, b"mine"
        self.writes = Disk()
        self.log = SimpleNamespace(last_index=7, last_term=2, membership_index=0)
        self.sent: list[tuple[str, Vote]] = []
        self.states: list[tuple[int, str | None]] = []
        self.drops: list[str] = []
        self.learned: list[int] = []
        self.grants: list[tuple[str, ...]] = []

    def voter(self) -> None:
        return None

    def set_hard_state(self, term: int, voted_for: str | None) -> None:
        self.term = term
        self.states.append((term, voted_for))

    def send(self, peer: str, message: Vote) -> None:
        self.sent.append((peer, message))

    def dropped(self, peer: str, message: object, reason: str) -> None:
        self.drops.append(reason)

    def become_leader(self, grants: tuple[str, ...]) -> None:
        self.grants.append(grants)


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def campaign(core: Core) -> Campaign:
    made = Campaign(cast(Replica, core))
    made.learn_term = core.learned.append  # type: ignore[method-assign, assignment]
    return made


def reply(result: VoteResult, *, term: int = 4, number: int = 1, probe: bool = False) -> VoteReply:
    return VoteReply(1, term, number, result, probe)


def answers(campaign: Campaign) -> dict[str, VoteResult]:
    assert campaign._tally is not None
    return {voter: VoteResult(each.result) for voter, each in campaign._tally.replies.items()}


def at(core: Core, campaign: Campaign, now: int) -> None:
    core.now = now
    campaign.tick()


def test_nothing_is_asked_before_a_campaign_begins(core: Core, campaign: Campaign) -> None:
    assert attrs.astuple(campaign.state) == attrs.astuple(Candidacy())
    assert (campaign.cause, campaign.rounds, campaign.started_at) == ("", 0, 0)
    assert (campaign.deadline(), campaign.last_outcome) == (NEVER, None)
    at(core, campaign, 1 << 60)
    campaign.on_durable()
    campaign.on_unreachable("n1")
    assert core.sent == [] and campaign.deadline() == NEVER


def test_a_campaign_begins_at_once_and_keeps_what_was_heard(core: Core, campaign: Campaign) -> None:
    campaign.state = Candidacy(ParseResult.PASSED, False, True, 9, 5, True)
    campaign.rounds = 8
    campaign.start("no leader heard")
    assert attrs.astuple(campaign.state) == attrs.astuple(
        Candidacy(need_increase_term=True, known_term=9, transfer=True))
    assert (campaign.cause, campaign.rounds, campaign.started_at) == ("no leader heard", 0, 1_000)
    assert campaign.deadline() == 1_000


def test_a_round_asks_every_other_voter_once(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    campaign.state.transfer = campaign.state.need_increase_term = True
    at(core, campaign, 999)
    assert core.sent == [], "not due"
    at(core, campaign, 1_000)
    assert [peer for peer, _ in core.sent] == ["n1", "n2"]
    asked = core.sent[0][1]
    assert (asked.group, asked.term, asked.round, asked.last_index, asked.last_term, asked.probe, asked.transfer) == (
        1, 4, 1, 7, 2, False, True)
    assert core.states == [(4, None), (4, "n0")]
    assert (campaign.rounds, campaign.deadline(), campaign.state.need_increase_term) == (1, 1_000 + ROUND, False)
    at(core, campaign, 1_000 + ROUND - 1)
    assert len(core.sent) == 2 and campaign.rounds == 1, "one round at a time"
    at(core, campaign, 1_000 + ROUND)
    assert campaign.deadline() == 1_000 + ROUND + 30
    at(core, campaign, 1_000 + ROUND + 29)
    assert len(core.sent) == 2
    at(core, campaign, 1_000 + ROUND + 30)
    assert (core.sent[-1][1].round, campaign.rounds, campaign.state.failed_rounds) == (2, 2, 1)
    at(core, campaign, 5_000)
    assert campaign.state.failed_rounds == 2


def test_a_probe_takes_no_term_and_no_vote(core: Core, campaign: Campaign) -> None:
    core.rules.plan = RoundPlan(9, probe=True)
    campaign.start("")
    core.writes.hard_token = 5
    campaign.tick()
    assert core.states == [] and core.sent[0][1].probe and answers(campaign) == {"n0": ACCEPT}, "its own at once"


@pytest.mark.parametrize("grant", [False, True])
def test_a_vote_that_the_rules_do_not_give_is_not_written(grant: bool, core: Core, campaign: Campaign) -> None:
    core.rules.plan, core.rules.own = RoundPlan(3, probe=False), VoteDecision(REFUSED, grant=grant)
    core.writes.hard_token = 5
    campaign.start("")
    campaign.tick()
    assert core.states == ([(3, "n0")] if grant else [])
    assert answers(campaign) == {"n0": REFUSED}, "a refusal waits for no disk"


@pytest.mark.parametrize("why", ["may not", "disk full"])
def test_who_may_not_campaign_waits_as_long_as_for_a_leader(why: str, core: Core, campaign: Campaign) -> None:
    core.writes.disk_full = why == "disk full"
    core.lapse = Lapse(1, 1) if why == "may not" else None
    campaign.start("")
    campaign.tick()
    assert core.sent == [] and campaign.deadline() == 1_000 + PATIENCE and campaign.rounds == 0


def test_a_plan_to_wait_takes_its_term_and_waits(core: Core, campaign: Campaign) -> None:
    core.rules.plan = RoundPlan(8, probe=False, ask=False, delay_ns=77)
    campaign.start("")
    campaign.state.need_increase_term, campaign.state.last_result = True, ParseResult.PASSED
    campaign.tick()
    assert (core.states, core.sent, campaign.deadline(), campaign.rounds) == ([(8, None)], [], 1_077, 0)
    assert (campaign.state.need_increase_term, campaign.state.last_result) == (False, ParseResult.WAIT_TO_REVOTE)


def test_a_higher_term_is_taken_at_once_but_not_amid_a_round(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    core.rules.plan = RoundPlan(4, probe=False, ask=False, delay_ns=77)
    campaign.tick()
    core.now = 1_010
    campaign.increase_term()
    assert campaign.state.need_increase_term and campaign.deadline() == 1_010
    core.rules.plan = RoundPlan(4, probe=False)
    campaign.tick()
    core.now = 1_020
    campaign.increase_term()
    assert campaign.deadline() == 1_010 + ROUND
    at(core, campaign, 1_010 + ROUND)
    assert campaign.deadline() == 1_010 + ROUND + 30


def test_who_follows_or_leads_asks_nobody(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    campaign.state.transfer, campaign.state.known_term = True, 9
    campaign.tick()
    campaign.stop()
    assert (campaign.deadline(), campaign.state.transfer, campaign.state.known_term) == (NEVER, False, 9)
    at(core, campaign, 5_000)
    campaign.on_reply("n1", reply(ACCEPT))
    assert len(core.sent) == 2 and core.drops == ["no such round"]


def test_the_own_vote_counts_when_it_is_durable(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    core.writes.hard_token, core.writes.durable_token = 5, 4
    campaign.tick()
    campaign.on_durable()
    assert answers(campaign) == {}
    core.writes.durable_token = 5
    seen: list[dict[str, VoteResult]] = []
    core.rules.decided = lambda tally: bool(seen.append(answers(campaign)))  # type: ignore[func-returns-value]
    campaign.on_durable()
    assert seen == [{"n0": ACCEPT}], "and whether the round is over is asked at once"
    campaign.on_durable()
    assert len(seen) == 1, "once"


def test_without_a_write_under_way_the_own_vote_counts_at_once(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    core.writes.hard_token = core.writes.durable_token = 5
    campaign.tick()
    assert answers(campaign) == {"n0": ACCEPT}
    assert campaign._tally is not None
    own = campaign._tally.replies["n0"]
    assert (own.group, own.term, own.round, own.probe) == (1, 4, 1, False)


def test_an_own_vote_of_an_earlier_round_is_not_counted_in_the_next(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    core.writes.hard_token = 5
    campaign.tick()
    core.rules.own = VoteDecision(REFUSED)
    at(core, campaign, 1_000 + ROUND)
    at(core, campaign, 1_000 + ROUND + 30)
    assert answers(campaign) == {"n0": REFUSED}
    core.writes.durable_token = 5
    campaign.on_durable()
    assert answers(campaign) == {"n0": REFUSED}


def test_answers_count_once_each_and_only_for_this_round(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    campaign.tick()
    for peer, each, reason in (
        ("n1", reply(ACCEPT, number=2), "no such round"),
        ("n1", reply(ACCEPT, probe=True), "not a countable answer"),
        ("n1", VoteReply(1, 4, 1, cast(Any, 99), False), "not a countable answer"),
        ("l0", reply(ACCEPT), "not a countable answer"),
        ("n1", reply(ACCEPT, term=3), "a grant of another term"),
        ("n1", reply(ACCEPT, term=5), "a grant of another term"),
    ):
        core.drops.clear()
        campaign.on_reply(peer, each)
        assert core.drops == [reason] and answers(campaign) == {"n0": ACCEPT}
    core.drops.clear()
    campaign.on_unreachable("l0")
    campaign.on_unreachable("n1")
    assert answers(campaign) == {"n0": ACCEPT, "n1": UNKNOWN}
    assert campaign._tally is not None
    unknown = campaign._tally.replies["n1"]
    assert (unknown.group, unknown.term, unknown.round, unknown.probe) == (1, 0, 1, False)
    campaign.on_reply("n1", reply(ACCEPT))
    assert answers(campaign) == {"n0": ACCEPT, "n1": ACCEPT}, "one that comes all the same counts"
    campaign.on_unreachable("n1")
    campaign.on_reply("n1", reply(REFUSED))
    assert answers(campaign) == {"n0": ACCEPT, "n1": ACCEPT} and core.drops == ["not a countable answer"]
    campaign.on_reply("n2", reply(REFUSED, term=9))
    assert answers(campaign)["n2"] == REFUSED, "a refusal may be of any term"
    core.role = Role.FOLLOWER
    campaign.on_reply("n2", reply(ACCEPT))
    assert core.drops[-1] == "no such round"


def test_a_probe_counts_grants_of_any_term(core: Core, campaign: Campaign) -> None:
    core.rules.plan = RoundPlan(9, probe=True)
    campaign.start("")
    campaign.tick()
    campaign.on_reply("n1", reply(ACCEPT, term=3, probe=True))
    assert answers(campaign) == {"n0": ACCEPT, "n1": ACCEPT}


@pytest.mark.parametrize("how", ["own", "reply", "unreachable"])
def test_a_round_that_is_decided_ends_at_once(how: str, core: Core, campaign: Campaign) -> None:
    core.rules.outcome = RoundOutcome(ParseResult.WAIT_TO_REVOTE, 30, known_term=12)
    if how == "own":
        core.rules.decided = lambda tally: True
    campaign.start("")
    campaign.state.transfer = True
    campaign.tick()
    core.now, core.rules.decided = 1_007, lambda tally: True
    if how == "reply":
        campaign.on_reply("n1", reply(REFUSED))
    elif how == "unreachable":
        campaign.on_unreachable("n1")
    assert campaign._tally is None and core.learned == [12]
    assert campaign.deadline() == (1_030 if how == "own" else 1_037)
    assert campaign.last_outcome == (ParseResult.WAIT_TO_REVOTE, {
        "own": {"n0": ACCEPT}, "reply": {"n0": ACCEPT, "n1": REFUSED}, "unreachable": {"n0": ACCEPT, "n1": UNKNOWN},
    }[how])
    assert (campaign.state.last_result, campaign.state.last_probe, campaign.state.failed_rounds) == (
        ParseResult.WAIT_TO_REVOTE, False, 1)
    assert not campaign.state.transfer, "a hand-over holds for the first round alone"


def test_a_round_that_the_own_vote_can_still_win_is_not_over(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    core.writes.hard_token = 5
    core.rules.decided = lambda tally: len(tally.replies) == 2
    campaign.tick()
    campaign.on_reply("n1", reply(REFUSED))
    campaign.on_reply("n2", reply(ACCEPT))
    assert campaign._tally is not None, "n0 and n2 are a quorum once n0's vote is on its disk"
    core.rules.outcome = RoundOutcome(ParseResult.PASSED)
    core.writes.durable_token, core.rules.decided = 5, lambda tally: True
    campaign.on_durable()
    assert core.grants == [("n0", "n2")]


def test_a_round_that_the_own_vote_cannot_win_is_over(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    core.writes.hard_token = 5
    core.rules.decided = lambda tally: len(tally.replies) == 2
    campaign.tick()
    campaign.on_reply("n1", reply(REFUSED))
    campaign.on_reply("n2", reply(REFUSED))
    assert campaign._tally is None and core.grants == []


def test_a_round_with_its_own_vote_counted_waits_for_nothing(core: Core, campaign: Campaign) -> None:
    campaign.start("")
    campaign.tick()
    core.rules.decided = lambda tally: True
    campaign.on_reply("n1", reply(ACCEPT))
    assert campaign._tally is None


def test_a_probe_that_passes_is_followed_by_the_question_itself(core: Core, campaign: Campaign) -> None:
    core.rules.plan, core.rules.outcome = RoundPlan(4, probe=True), RoundOutcome(ParseResult.PASSED)
    campaign.start("")
    campaign.tick()
    core.rules.plan = RoundPlan(4, probe=False)
    at(core, campaign, 1_000 + ROUND)
    assert [message.probe for _, message in core.sent] == [True, True, False, False]
    assert (campaign.state.last_result, campaign.state.last_probe, core.grants) == (ParseResult.PASSED, True, [])


@pytest.mark.parametrize(("changed", "wins"), [
    ({}, True), ({"led_term": 3}, True), ({"led_term": 4}, False), ({"term": 5}, False),
    ({"membership": Membership(("n0", "n1", "n2"), (), ("l0",))}, False),
])
def test_a_round_that_passes_wins_its_own_term_once(
    changed: dict[str, Any], wins: bool, core: Core, campaign: Campaign,
) -> None:
    campaign.start("")
    campaign.tick()
    campaign.on_reply("n2", reply(ACCEPT))
    campaign.on_reply("n1", reply(REFUSED))
    for name, value in changed.items():
        setattr(core, name, value)
    core.rules.outcome = RoundOutcome(ParseResult.PASSED)
    at(core, campaign, 1_000 + ROUND)
    assert core.grants == ([("n0", "n2")] if wins else [])
    assert campaign.state.need_increase_term is not wins
    assert campaign.deadline() == (NEVER if wins else 1_000 + ROUND + 10 * MS) or wins
    assert campaign.state.failed_rounds == (0 if wins else 1)


# --- of a whole replica: who may ask for votes, and what a higher term means


@pytest.mark.parametrize(("membership", "may"), [
    (THREE, True), (among("n1", learners=("n0",)), False), (among("n1"), False),
    (among("n0", n0=b"mine"), True), (among("n0", n0=b"other"), False), (Membership(("n0",)), True)])
def test_a_voter_with_the_directory_that_is_meant_may_ask_for_votes(membership: Membership, may: bool) -> None:
    assert Node(membership=membership, incarnation=b"mine").replica.campaign.allowed is may


def test_who_is_being_removed_may_ask_for_votes_until_that_is_committed() -> None:
    node = Node(1, 1)
    without = among("n1", "n2")
    node.append(2, frame(3, 3, without.encode(), kind=Kind.MEMBERSHIP))
    assert node.replica.membership == without and node.replica.campaign.allowed
    node.replica.commit_index = 2
    assert node.replica.campaign.allowed
    node.replica.commit_index = 3
    assert not node.replica.campaign.allowed


def test_who_was_no_voter_and_is_none_does_not_ask_for_votes() -> None:
    node = Node(1, membership=among("n1"))
    node.append(1, frame(2, 3, among("n1", "n2").encode(), kind=Kind.MEMBERSHIP))
    assert not node.replica.campaign.allowed


def test_nobody_asks_for_votes_while_it_installs_or_lacks_something() -> None:
    node = Node()
    node.replica.installing = meta(1)
    assert not node.replica.campaign.allowed
    node.replica.installing, node.replica.lapse = None, Lapse(1, 1)
    assert not node.replica.campaign.allowed


@pytest.mark.parametrize(("config", "term", "known", "leader"), [
    (None, 5, 0, None), (DLEDGER, 3, 5, "n1")])
def test_a_higher_term_is_taken_or_remembered(config: Config | None, term: int, known: int, leader: str | None) -> None:
    node = Node(config=config)
    node.append(0)
    node.replica.campaign.learn_term(3)
    assert node.replica.leader == "n1"
    node.replica.campaign.learn_term(5)
    node.replica.campaign.learn_term(4)
    assert (node.replica.term, node.replica.campaign.state.known_term, node.replica.leader) == (term, known, leader)


def test_a_higher_term_changes_no_role_where_nobody_leads() -> None:
    node = Node()
    node.replica.campaign.learn_term(5)
    node.said()
    assert node.roles == [] and node.replica.term == 5
