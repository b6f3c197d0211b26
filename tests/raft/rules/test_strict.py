"""StrictRules: every row against the reference page, and one test per election bug that other libraries had.

Names that start with a letter and a number (E6, V1, Q3) are the scenarios of the project's catalogue of historical
Raft bugs; each docstring names where the bug was.
"""

from __future__ import annotations

from random import Random

import attrs
import pytest

from raft.config import MS, Config, Rules
from raft.messages import Code, ParseResult, Role, Vote, VoteReply, VoteResult
from raft.rules import make_rules
from raft.rules.dledger import DLedgerRules
from raft.rules.interface import Candidacy, ElectionRules, RoundPlan, Tally, Voter
from raft.rules.strict import StrictRules
from tests.raft.rules.facts import (
    FIVE,
    LEASE,
    LONG_AGO,
    THREE,
    beats,
    combinations,
    effect,
    group,
    page_range,
    page_rows,
    span,
    tally,
    vote,
    voter,
    with_priorities,
)

RULES = StrictRules(Config())
R = VoteResult
CANDIDATE = voter(role=Role.CANDIDATE)
FRESH = {"leader": "n2", "heard_leader_ns": LEASE - 1}

# --- tables ----------------------------------------------------------------------------------------------------

VOTE_ROWS: dict[str, tuple[Voter, str, Vote, VoteResult]] = {
    "ST_VOTE_1": (voter(), "n9", vote(term=6), R.REJECT_UNKNOWN_LEADER),
    "ST_VOTE_2": (voter(), "n0", vote(term=6), R.REJECT_UNEXPECTED_LEADER),
    "ST_VOTE_3a": (voter(), "n1", vote(term=6, last_term=3, last_index=99), R.REJECT_EXPIRED_LEDGER_TERM),
    "ST_VOTE_3b": (voter(), "n1", vote(term=6, last_index=9), R.REJECT_SMALL_LEDGER_END_INDEX),
    "ST_VOTE_4": (voter(**FRESH), "n1", vote(term=6), R.REJECT_ALREADY_HAS_LEADER),
    "ST_VOTE_5": (voter(), "n1", vote(term=4), R.REJECT_EXPIRED_VOTE_TERM),
    "ST_VOTE_6": (voter(term=3), "n1", vote(term=3), R.REJECT_TERM_SMALL_THAN_LEDGER),
    "ST_VOTE_7": (voter(), "n1", vote(term=6, probe=True), R.ACCEPT),
    "ST_VOTE_8": (voter(voted_for="n2"), "n1", vote(term=6), R.ACCEPT),
    "ST_VOTE_9": (voter(role=Role.LEADER, leader="n0"), "n1", vote(), R.REJECT_ALREADY_HAS_LEADER),
    "ST_VOTE_10": (voter(voted_for="n2"), "n1", vote(), R.REJECT_ALREADY_VOTED),
    "ST_VOTE_11": (voter(voted_for="n1"), "n1", vote(), R.ACCEPT),
}


@pytest.mark.parametrize("row", VOTE_ROWS)
def test_each_row_of_the_vote_table_answers_as_the_reference_page_says(row: str) -> None:
    me, candidate, request, result = VOTE_ROWS[row]
    decision = RULES.decide_vote(me, candidate, request)
    assert decision.result is result
    _, page_result, page_effect = page_rows("ST_VOTE_")[row]
    assert (page_result, page_effect) == (result.name, effect(decision))


PARSE_ROWS: dict[str, tuple[Tally, ParseResult]] = {
    "ST_PARSE_1": (tally({"n0": R.ACCEPT, "n1": R.ACCEPT, "n2": R.REJECT_SMALL_LEDGER_END_INDEX}, terms={"n2": 7}),
                   ParseResult.WAIT_TO_REVOTE),
    "ST_PARSE_2": (tally({"n0": R.ACCEPT, "n1": R.REJECT_ALREADY_HAS_LEADER, "n2": R.REJECT_ALREADY_HAS_LEADER}),
                   ParseResult.WAIT_TO_REVOTE),
    "ST_PARSE_3": (tally({"n0": R.ACCEPT, "n1": R.UNKNOWN}), ParseResult.WAIT_TO_REVOTE),
    "ST_PARSE_4": (tally({"n0": R.ACCEPT, "n1": R.REJECT_SMALL_LEDGER_END_INDEX, "n2": R.REJECT_EXPIRED_LEDGER_TERM}),
                   ParseResult.WAIT_TO_REVOTE),
    "ST_PARSE_5": (tally({"n0": R.ACCEPT, "n1": R.ACCEPT, "n2": R.REJECT_ALREADY_HAS_LEADER}), ParseResult.PASSED),
    "ST_PARSE_7": (tally({"n0": R.ACCEPT, "n1": R.REJECT_ALREADY_VOTED, "n2": R.REJECT_ALREADY_VOTED}),
                   ParseResult.WAIT_TO_REVOTE),
}


@pytest.mark.parametrize("row", PARSE_ROWS)
def test_each_row_of_the_parse_table_gives_its_result_delay_and_term(row: str) -> None:
    answers, result = PARSE_ROWS[row]
    _, page_result, page_delay, page_term = page_rows("ST_PARSE_")[row]
    assert page_result == result.name
    rng, delays = Random(7), []
    outcome = RULES.parse_round(CANDIDATE, answers, rng)
    for _ in range(400):
        outcome = RULES.parse_round(CANDIDATE, answers, rng)
        assert outcome.result is result
        delays.append(outcome.delay_ns / LEASE)
    if page_delay == "none":
        assert set(delays) == {0.0}
    else:
        low, high = page_range(page_delay)
        margin = (high - low) / 20
        assert low <= min(delays) < low + margin, "the range starts where the page says"
        assert high - margin < max(delays) < high, "the range ends where the page says"
    assert outcome.known_term == (7 if page_term == "known" else 0)


HEARTBEAT_ROWS: dict[str, tuple[Voter, str, int, Code, str]] = {
    "ST_HB_1": (voter(), "n0", 6, Code.UNEXPECTED_MEMBER, "none"),
    "ST_HB_2": (voter(), "n1", 4, Code.EXPIRED_TERM, "none"),
    "ST_HB_3": (voter(leader="n2", voted_for="n2"), "n1", 6, Code.SUCCESS, "takes the term, follows"),
    "ST_HB_4": (voter(leader="n2"), "n1", 5, Code.INCONSISTENT_LEADER, "none"),
    "ST_HB_5": (voter(role=Role.CANDIDATE), "n1", 5, Code.SUCCESS, "follows"),
}


@pytest.mark.parametrize("row", HEARTBEAT_ROWS)
def test_each_row_of_the_heartbeat_table_answers_as_the_reference_page_says(row: str) -> None:
    me, leader, term, code, expected = HEARTBEAT_ROWS[row]
    decision = RULES.decide_heartbeat(me, leader, term)
    parts = ["takes the term"] if decision.adopt_term == term else []
    parts += ["follows"] if decision.follow else []
    assert not decision.become_candidate and not decision.known_term
    assert (decision.code, ", ".join(parts) or "none") == (code, expected)
    assert page_rows("ST_HB_")[row][1:] == [f"{code.name} {code.value}", expected]


BEAT_ROWS: dict[str, tuple[dict[str, tuple[int, int]], int, str]] = {
    "ST_BEAT_1": ({"n1": (Code.SUCCESS, 5), "n2": (Code.EXPIRED_TERM, 7)}, 0, "steps down, takes the term"),
    "ST_BEAT_2": ({"n1": (Code.INCONSISTENT_LEADER, 5)}, 0, "steps down"),
    "ST_BEAT_3": ({}, LEASE + 1, "steps down"),
    "ST_BEAT_4": ({"n1": (Code.INCONSISTENT_STATE, 5)}, LEASE, "goes on"),
}


@pytest.mark.parametrize("row", BEAT_ROWS)
def test_each_rule_for_heartbeat_answers_does_what_the_reference_page_says(row: str) -> None:
    replies, silence, expected = BEAT_ROWS[row]
    decision = RULES.judge_heartbeats(beats(replies, silence=silence))
    parts = ["steps down" if decision.step_down else "goes on"]
    parts += ["takes the term"] if decision.known_term == 7 and RULES.one_step else []
    assert ", ".join(parts) == expected == page_rows("ST_BEAT_")[row][1]
    assert bool(decision.reason) == decision.step_down
    assert not decision.beat_now


def test_the_reference_page_has_every_row_of_every_strict_table_and_no_other() -> None:
    assert set(page_rows("ST_")) == {*VOTE_ROWS, *PARSE_ROWS, *HEARTBEAT_ROWS, *BEAT_ROWS}


def test_no_combination_of_facts_gives_a_vote_that_a_promise_or_the_paper_forbids() -> None:
    ends = [(0, 0), (1, 1), (1, 2), (2, 1)]
    granted = refused = 0
    for role, term, voted_for, leader, end, heard, candidate, asked, r_end, probe, transfer in combinations(
        Role, (1, 2, 3), (None, "n0", "n1", "n2"), (None, "n0", "n1", "n2"), ends, (0, LEASE - 1, LEASE),
        ("n1", "n0"), (1, 2, 3, 4), ends, (False, True), (False, True),
    ):
        if (role is Role.LEADER) != (leader == "n0") or term < end[0]:
            continue
        me = Voter("n0", role, term, voted_for, leader, end[0], end[1], THREE, heard)
        request = Vote(1, asked, 1, r_end[1], r_end[0], probe, transfer)
        own = candidate == "n0"
        decision = RULES.decide_own_vote(me, request) if own else RULES.decide_vote(me, candidate, request)
        accepted = decision.result is R.ACCEPT
        assert decision.grant == (accepted and not probe)
        assert decision.adopt_term in (0, asked if asked > term and decision.grant else 0)
        assert not decision.become_candidate and not decision.known_term
        if accepted:
            granted += 1
            assert r_end >= end, "a log that is behind"
            assert asked >= term + probe, "a term that is over"
            assert asked > term or (role is not Role.LEADER and voted_for in (None, candidate)), "a second vote"
            assert heard >= LEASE or transfer or leader == candidate, "a promise of silence"
        else:
            refused += 1
            assert not decision.adopt_term, "a refusal takes no term"
    assert min(granted, refused) > 1_000


# --- catalogue: votes and terms --------------------------------------------------------------------------------


def test_e6_seeing_a_higher_term_is_not_granting() -> None:
    """openraft 94c820c3: after learning term 9 elsewhere, a candidate with a shorter log in term 9 got the vote."""
    learned = voter(term=9, voted_for=None)
    assert RULES.decide_vote(learned, "n1", vote(term=9, last_index=9)).result is R.REJECT_SMALL_LEDGER_END_INDEX


def test_e7_a_refusal_with_a_higher_term_teaches_the_term_and_no_vote() -> None:
    """openraft b06cbb37: the refuser's vote was stored as if granted."""
    refused = tally({"n0": R.ACCEPT, "n1": R.REJECT_EXPIRED_VOTE_TERM}, terms={"n1": 9})
    outcome = RULES.parse_round(CANDIDATE, refused, Random(1))
    assert (outcome.result, outcome.known_term) == (ParseResult.WAIT_TO_REVOTE, 9)


@pytest.mark.parametrize(("theirs", "accepted"), [((3, 1), True), ((2, 9), True), ((2, 8), False), ((1, 99), False)])
def test_e8_logs_compare_by_term_first_then_index(theirs: tuple[int, int], accepted: bool) -> None:
    """openraft a48a3282."""
    me = voter(term=3, last_term=2, last_index=9)
    decision = RULES.decide_vote(me, "n1", vote(term=4, last_term=theirs[0], last_index=theirs[1]))
    assert (decision.result is R.ACCEPT) == accepted


def test_e9_a_repeated_answer_counts_once() -> None:
    """Xraft (SandTable): one peer's duplicate replies made a majority."""
    round_ = tally({"n0": R.ACCEPT}, membership=FIVE)
    for _ in range(5):
        round_.replies["n1"] = VoteReply(1, 5, 1, R.ACCEPT, False)
    assert not RULES.round_decided(round_)
    assert RULES.parse_round(CANDIDATE, round_, Random(1)).result is ParseResult.WAIT_TO_REVOTE


@pytest.mark.parametrize("transfer", [False, True])
@pytest.mark.parametrize("silence", [0, LEASE])
def test_e10_a_leader_never_grants_in_the_term_it_leads(transfer: bool, silence: int) -> None:
    """DaosRaft PR 70 (SandTable). Not even if its vote record were lost."""
    leader = voter(role=Role.LEADER, leader="n0", voted_for=None, heard_leader_ns=silence)
    decision = RULES.decide_vote(leader, "n1", vote(transfer=transfer))
    assert decision.result is R.REJECT_ALREADY_HAS_LEADER


def test_e11_a_node_never_asks_in_a_term_it_may_have_led() -> None:
    """KAFKA-10527: a leader restarted inside its own term and led it again."""
    for last_result in ParseResult:
        for last_probe in (False, True):
            plan = RULES.plan_round(voter(voted_for="n0"), Candidacy(last_result, last_probe), Random(1))
            assert plan.term > 5


@pytest.mark.parametrize("membership", [group("n1", "n2"), group("n1", learners=("n0",)), group()],
                         ids=["removed", "learner", "joiner"])
def test_e12_a_node_that_is_no_voter_asks_for_nothing(membership: object) -> None:
    """cockroach #8535, etcd db54973: "campaign now" reached a removed node."""
    plan = RULES.plan_round(voter(membership=membership, campaigns=False), Candidacy(transfer=True), Random(1))
    assert not plan.ask and plan.delay_ns >= LEASE
    me = voter(membership=membership, campaigns=False)
    assert span(lambda rng: RULES.plan_round(me, Candidacy(), rng).delay_ns) == (LEASE, LEASE * 3 // 2)
    assert RULES.plan_round(me, Candidacy(known_term=9), Random(1)) == RoundPlan(5, True, False, plan.delay_ns)


def test_e13_a_learner_answers_a_candidate_that_knows_of_its_promotion() -> None:
    """etcd PR 10998: the promoted learner had not received its promotion, and its vote was needed."""
    learner = voter(membership=group("n1", "n2", learners=("n0",)))
    assert RULES.decide_vote(learner, "n1", vote(term=6, last_index=11)).grant


def test_e13_a_voter_answers_a_candidate_that_only_a_newer_membership_holds() -> None:
    """Thesis §4.1: the candidate's log is newer, so its membership may be."""
    assert RULES.decide_vote(voter(), "n9", vote(term=6, last_index=11)).grant
    assert RULES.decide_vote(voter(), "n9", vote(term=6, last_term=5, last_index=1)).grant


@pytest.mark.parametrize("rules", [RULES, DLedgerRules(Config(rules=Rules.DLEDGER))], ids=lambda rules: rules.name)
def test_a_node_without_a_membership_grants_nothing(rules: ElectionRules) -> None:
    """It may be a voter that lost its disk: with one that never heard of the others it would elect an empty log."""
    blank = Voter("n0", Role.FOLLOWER, 0, None, None, 0, 0, group(), LONG_AGO, campaigns=False)
    for probe in (False, True):
        for request in (vote(probe=probe), vote(term=1, last_term=0, last_index=0, probe=probe)):
            assert rules.decide_vote(blank, "n1", request).result is R.REJECT_UNKNOWN_LEADER


def test_e15_a_repeated_request_gets_the_same_grant() -> None:
    """nebula PR 2419: the reply was lost, the candidate asked again and was refused."""
    me = voter(term=6, voted_for="n1")
    assert RULES.decide_vote(me, "n1", vote(term=6)).grant
    following = attrs.evolve(me, leader="n1", heard_leader_ns=0)
    assert RULES.decide_vote(following, "n1", vote(term=6)).grant


def test_e18_a_round_whose_term_is_over_does_not_pass() -> None:
    """openraft 511f33c7: a pre-vote round completed after its node had won another one."""
    everyone = dict.fromkeys(THREE.voters, R.ACCEPT)
    for answers in (tally(everyone, term=5, probe=True), tally(everyone, term=4)):
        assert RULES.parse_round(CANDIDATE, answers, Random(1)).result is ParseResult.WAIT_TO_REVOTE


# --- catalogue: liveness ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", sorted(set(R) - {R.UNKNOWN, R.ACCEPT}))
def test_v1_any_refusal_of_a_probe_teaches_a_higher_term(result: VoteResult) -> None:
    """etcd #8243: a pre-vote from a lower term was ignored for ever."""
    answers = tally({"n0": R.ACCEPT, "n1": result}, term=6, probe=True, terms={"n1": 8})
    assert RULES.round_decided(answers)
    outcome = RULES.parse_round(CANDIDATE, answers, Random(1))
    assert outcome.known_term == 8
    assert RULES.plan_round(attrs.evolve(CANDIDATE, term=8), Candidacy(), Random(1)).term == 9


def test_v2_members_of_one_group_cannot_mix_rules() -> None:
    """etcd #8501: pre-vote on and off in one group dead-locked. Here the names differ and the hello compares them."""
    assert make_rules(Config()).name != make_rules(Config(rules=Rules.DLEDGER)).name
    assert isinstance(make_rules(Config(rules=Rules.DLEDGER)), DLedgerRules)


def test_v3_a_promise_to_a_leader_ends_with_its_silence() -> None:
    """etcd #9586: with the leader dead, followers "in lease" went on to refuse each other."""
    asked = vote(term=6, probe=True)
    assert RULES.decide_vote(voter(leader="n2", heard_leader_ns=LEASE - 1), "n1", asked).result is not R.ACCEPT
    assert RULES.decide_vote(voter(leader="n2", heard_leader_ns=LEASE), "n1", asked).result is R.ACCEPT


def test_v4_a_candidate_stuck_in_a_higher_term_is_met_by_its_leader() -> None:
    """etcd "free stuck candidate": its votes are refused, so the leader must come to its term."""
    stuck = voter(role=Role.CANDIDATE, term=7, voted_for="n0")
    heard = RULES.decide_heartbeat(stuck, "n1", 5)
    assert heard.code is Code.EXPIRED_TERM and not heard.follow
    decision = RULES.judge_heartbeats(beats({"n2": (heard.code, stuck.term)}))
    assert decision.step_down and decision.known_term == 7


def test_v5_a_probe_needs_an_up_to_date_log() -> None:
    """ClickHouse NuRaft PR 134: pre-votes passed by liveness alone; 10 leader changes in 32 minutes."""
    for request in (vote(term=6, last_index=9), vote(term=6, last_term=3)):
        real = RULES.decide_vote(voter(), "n1", request)
        probe = RULES.decide_vote(voter(), "n1", attrs.evolve(request, probe=True))
        assert real.result is probe.result is not R.ACCEPT


def test_v6_members_are_told_apart_by_id_alone() -> None:
    """hashicorp #605: a leader refused itself because its address was written in two ways."""
    leader = voter(role=Role.LEADER, leader="n0", voted_for="n0", heard_leader_ns=LEASE)
    assert RULES.decide_vote(leader, "n0", vote(term=6)).result is R.REJECT_UNEXPECTED_LEADER
    assert RULES.decide_vote(leader, "n1", vote(term=6)).grant


def test_v7_a_leader_that_cannot_hear_resigns_and_its_followers_elect() -> None:
    """Cloudflare 2020: half-working links kept a group without progress for hours."""
    assert RULES.judge_heartbeats(beats({}, silence=LEASE + 1)).step_down
    released = voter(leader="n2", heard_leader_ns=LEASE)
    assert RULES.decide_vote(released, "n1", vote(term=6)).grant


def test_v7_a_voter_that_hears_the_leader_keeps_the_group_stable() -> None:
    """A chain n1 - n0 - n2: n1 cannot hear the leader n2 and asks n0; no term rises."""
    assert RULES.decide_vote(voter(**FRESH), "n1", vote(term=9)).adopt_term == 0


def test_v10_a_hand_over_needs_no_probe_and_no_silence() -> None:
    """dragonboat 1c7ebd3: with pre-vote on, the target's probe was refused because the leader was alive."""
    plan = RULES.plan_round(voter(), Candidacy(transfer=True), Random(1))
    assert (plan.probe, plan.term) == (False, 6)
    handed_over = vote(term=6, transfer=True)
    old_leader = voter(role=Role.LEADER, leader="n0", voted_for="n0", heard_leader_ns=0)
    assert RULES.decide_vote(voter(**FRESH), "n1", handed_over).grant
    assert RULES.decide_vote(old_leader, "n1", handed_over).grant
    assert RULES.decide_own_vote(voter(**FRESH, role=Role.CANDIDATE, term=6), handed_over).grant
    assert RULES.plan_round(voter(), Candidacy(transfer=True, failed_rounds=1), Random(1)).probe


def test_v16_a_removed_node_cannot_raise_the_groups_term() -> None:
    """It knows nothing of its removal and asks on; its log is not newer than anyone's who was told."""
    assert RULES.decide_vote(voter(), "n9", vote(term=50)).adopt_term == 0
    assert RULES.decide_vote(voter(), "n9", vote(term=50, last_index=3)).adopt_term == 0


# --- catalogue: leases -----------------------------------------------------------------------------------------


def test_q3_no_vote_is_free_before_the_leaders_bound() -> None:
    """jraft #25: a new leader existed for two seconds beside an old one that still served leased reads.

    Every way to a vote without a hand-over takes at least ``lease_ns`` of silence, boot included, and a leader counts
    its quorum no longer than that.
    """
    rng = Random(11)
    for _ in range(500):
        assert RULES.follower_timeout_ns(rng, THREE, "n0") >= RULES.lease_ns
        assert RULES.first_delay_ns(rng) >= RULES.lease_ns
    booted = voter(leader=None, heard_leader_ns=LEASE - 1)
    for candidate in ("n1", "n2"):
        assert RULES.decide_vote(booted, candidate, vote(term=6)).result is R.REJECT_ALREADY_HAS_LEADER
    assert RULES.decide_own_vote(booted, vote(term=6)).result is R.REJECT_ALREADY_HAS_LEADER
    assert RULES.judge_heartbeats(beats({}, silence=RULES.lease_ns + 1)).step_down


def test_q3_changing_the_leader_name_alone_frees_no_vote() -> None:
    """Taking a higher term forgets the leader, not the promise made to it."""
    assert RULES.decide_vote(voter(leader=None, heard_leader_ns=1), "n1", vote(term=9)).adopt_term == 0


# --- rounds and delays -----------------------------------------------------------------------------------------


def test_a_real_vote_follows_only_a_probe_that_passed() -> None:
    for last_result, last_probe in combinations(ParseResult, (False, True)):
        plan = RULES.plan_round(CANDIDATE, Candidacy(last_result, last_probe), Random(1))
        assert plan.ask
        assert plan.probe != (last_result is ParseResult.PASSED and last_probe)
        assert plan.term == 6
    assert RULES.plan_round(CANDIDATE, Candidacy(known_term=9), Random(1)).term == 10


@pytest.mark.parametrize(
    ("answers", "decided"),
    [
        ({"n0": R.ACCEPT, "n1": R.ACCEPT, "n2": R.ACCEPT}, True),
        ({"n0": R.ACCEPT, "n1": R.REJECT_ALREADY_VOTED, "n2": R.REJECT_ALREADY_VOTED}, False),
        ({"n0": R.ACCEPT, "n1": R.REJECT_ALREADY_VOTED, "n2": R.UNKNOWN, "n3": R.UNKNOWN}, True),
        ({"n0": R.ACCEPT, "n1": R.REJECT_ALREADY_HAS_LEADER, "n2": R.ACCEPT}, False),
    ],
    ids=["accepted", "open", "hopeless", "one voice stops nobody"],
)
def test_a_round_ends_when_its_answer_is_certain(answers: dict[str, VoteResult], decided: bool) -> None:
    assert RULES.round_decided(tally(answers, membership=FIVE)) is decided


def test_r14_one_voter_that_still_hears_the_leader_does_not_stop_a_quorum() -> None:
    """dledger F23: a single HAS_LEADER answer cost the first detector seven seconds."""
    answers = dict.fromkeys(("n0", "n1", "n2"), R.ACCEPT) | {"n3": R.REJECT_ALREADY_HAS_LEADER}
    outcome = RULES.parse_round(attrs.evolve(CANDIDATE, membership=FIVE), tally(answers, membership=FIVE), Random(1))
    assert outcome.result is ParseResult.PASSED


def test_while_joint_both_halves_must_accept() -> None:
    joint = group("n0", "n3", "n4", outgoing=("n0", "n1", "n2"))
    me = attrs.evolve(CANDIDATE, membership=joint)
    half = tally({"n0": R.ACCEPT, "n3": R.ACCEPT, "n4": R.ACCEPT}, membership=joint)
    assert not RULES.round_decided(half)
    assert RULES.parse_round(me, half, Random(1)).result is ParseResult.WAIT_TO_REVOTE
    half.replies["n1"] = VoteReply(1, 5, 1, R.ACCEPT, False)
    assert RULES.round_decided(half)
    assert RULES.parse_round(me, half, Random(1)).result is ParseResult.PASSED


def test_a_candidate_waits_out_its_own_promise_of_silence() -> None:
    """It has no vote to give before; without its own vote it must not lead (found in simulation)."""
    failed_hand_over = Candidacy(ParseResult.PASSED, transfer=True, failed_rounds=1)
    plan = RULES.plan_round(attrs.evolve(CANDIDATE, heard_leader_ns=LEASE - 5), failed_hand_over, Random(1))
    assert plan == RoundPlan(5, probe=True, ask=False, delay_ns=5)
    assert RULES.plan_round(attrs.evolve(CANDIDATE, heard_leader_ns=LEASE), failed_hand_over, Random(1)).ask


def test_two_candidates_that_split_the_votes_draw_different_delays() -> None:
    """dledger F24: both survivors asked at the same time, again and again."""
    split = tally({"n0": R.ACCEPT, "n1": R.REJECT_ALREADY_VOTED})
    delays = {RULES.parse_round(CANDIDATE, split, Random(seed)).delay_ns // MS for seed in range(40)}
    assert len(delays) > 20


def test_higher_priorities_go_first_and_equal_ones_are_not_delayed() -> None:
    membership = with_priorities(n0=0, n1=5, n2=10)
    spans = {}
    for name in membership.voters:
        waits = [RULES.follower_timeout_ns(Random(seed), membership, name) / LEASE for seed in range(300)]
        spans[name] = round(min(waits) * 20), round(max(waits) * 20)  # twentieths of the election timeout
    assert spans == {"n2": (20, 30), "n1": (25, 35), "n0": (30, 40)}
    flat = with_priorities(n0=3, n1=3, n2=3)
    assert max(RULES.follower_timeout_ns(Random(seed), flat, "n1") for seed in range(300)) < 1.5 * LEASE


def test_of_two_priorities_the_lower_waits_half_an_election_timeout_more() -> None:
    two = with_priorities(n0=0, n1=10)
    for name, least in (("n1", LEASE), ("n0", LEASE * 3 // 2), ("n9", LEASE)):
        assert span(lambda rng, name=name: RULES.follower_timeout_ns(rng, two, name)) == (  # type: ignore[misc]
            least, least + LEASE // 2), name


def test_a_node_that_starts_waits_as_long_as_any_follower() -> None:
    assert span(RULES.first_delay_ns) == (LEASE, LEASE * 3 // 2)


@pytest.mark.parametrize("answers", [tally({"n0": R.ACCEPT}, term=5, probe=True), tally({"n0": R.ACCEPT}, term=4)],
                         ids=["probe", "vote"])
def test_a_round_that_its_term_left_behind_is_asked_again_soon(answers: Tally) -> None:
    assert span(lambda rng: RULES.parse_round(CANDIDATE, answers, rng).delay_ns) == (LEASE // 20, LEASE // 4)


def test_a_round_teaches_no_term_that_is_the_candidates_own_by_now() -> None:
    overtaken = tally({"n0": R.ACCEPT, "n1": R.REJECT_EXPIRED_VOTE_TERM}, terms={"n1": 7})
    outcome = RULES.parse_round(attrs.evolve(CANDIDATE, term=7), overtaken, Random(1))
    assert (outcome.result, outcome.known_term) == (ParseResult.WAIT_TO_REVOTE, 0)


def test_a_probe_in_the_first_term_is_not_decided_before_anybody_answered() -> None:
    assert not RULES.round_decided(tally({}, term=1, probe=True))


def test_a_vote_in_the_term_of_the_last_entry_may_be_given_and_the_leader_may_ask_for_one() -> None:
    me = voter(term=4, last_term=4)
    assert RULES.decide_vote(me, "n1", vote(term=4)).grant
    assert RULES.decide_vote(voter(leader="n1", heard_leader_ns=0), "n1", vote(term=6)).grant


def test_e14_a_low_priority_delays_and_never_forbids() -> None:
    """NuRaft 470799d: a zero-priority node in a group of one never led."""
    alone = with_priorities(n0=0)
    assert RULES.follower_timeout_ns(Random(1), alone, "n0") < 1.5 * LEASE
    low = attrs.evolve(CANDIDATE, membership=with_priorities(n0=0, n1=9))
    assert RULES.plan_round(low, Candidacy(), Random(1)).ask
    passed = tally({"n0": R.ACCEPT, "n1": R.ACCEPT}, membership=low.membership)
    assert RULES.parse_round(low, passed, Random(1)).result is ParseResult.PASSED


def test_the_times_come_from_the_config() -> None:
    rules = StrictRules(Config(election_timeout_ms=1_000, heartbeat_interval_ms=100))
    assert (rules.lease_ns, rules.heartbeat_ns) == (1_000 * MS, 100 * MS)
    waits = [rules.round_timeout_ns(Random(seed)) / MS for seed in range(200)]
    assert 500 <= min(waits) < 520 < 730 < max(waits) < 750
    assert rules.taking_leadership_wins()
