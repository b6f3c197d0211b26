"""DLedger's tables, row by row and exhaustively, against an independent transcription in DLedger's own numbers.

DLedger counts terms and indices from 0 and writes "none" as -1; here both start at 1. The oracles below speak
DLedger's numbers; ``ours`` moves them over.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import attrs
import pytest

from raft.config import MS, Config, DLedgerTimers, Rules
from raft.messages import Code, ParseResult, Role, Vote, VoteReply, VoteResult
from raft.rules import make_rules
from raft.rules.dledger import TICK_NS, DLedgerRules
from raft.rules.interface import Candidacy, RoundPlan, Tally, Voter
from tests.raft.rules.facts import (
    FIVE,
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
)

RULES = DLedgerRules(Config(rules=Rules.DLEDGER))
PREFERRED = DLedgerRules(Config(rules=Rules.DLEDGER, preferred_leaders=("n0",)))
R = VoteResult
SECOND = 1_000 * MS
LEAK = 6 * SECOND


def ours(number: int) -> int:
    """DLedger's term or index -> this library's."""
    return number + 1


# --- the vote table --------------------------------------------------------------------------------------------

VOTE_ROWS: dict[str, tuple[Voter, str, Vote, VoteResult]] = {
    "DL_VOTE_1": (voter(), "n9", vote(), R.REJECT_UNKNOWN_LEADER),
    "DL_VOTE_2": (voter(), "n0", vote(), R.REJECT_UNEXPECTED_LEADER),
    "DL_VOTE_3a": (voter(), "n1", vote(term=9, last_term=3, last_index=99), R.REJECT_EXPIRED_LEDGER_TERM),
    "DL_VOTE_3b": (voter(), "n1", vote(term=9, last_index=9), R.REJECT_SMALL_LEDGER_END_INDEX),
    "DL_VOTE_4a": (voter(), "n1", vote(term=4), R.REJECT_EXPIRED_VOTE_TERM),
    "DL_VOTE_4b": (voter(voted_for="n2", leader="n2", heard_leader_ns=LEAK), "n1", vote(), R.REJECT_ALREADY_HAS_LEADER),
    "DL_VOTE_4c": (voter(voted_for="n2"), "n1", vote(), R.REJECT_ALREADY_VOTED),
    "DL_VOTE_4d": (voter(voted_for="n1", leader="n2", heard_leader_ns=0), "n1", vote(), R.ACCEPT),
    "DL_VOTE_4e": (voter(role=Role.LEADER, leader="n0", voted_for="n0"), "n1", vote(term=6), R.REJECT_TERM_NOT_READY),
    "DL_VOTE_5": (voter(term=3), "n1", vote(term=3), R.REJECT_TERM_SMALL_THAN_LEDGER),
    "DL_VOTE_6": (voter(taking_leadership=True), "n1", vote(), R.REJECT_TAKING_LEADERSHIP),
    "DL_VOTE_7": (voter(), "n1", vote(last_index=11), R.ACCEPT),
}


@pytest.mark.parametrize("row", VOTE_ROWS)
def test_each_row_of_the_vote_table_answers_as_the_reference_page_says(row: str) -> None:
    me, candidate, request, result = VOTE_ROWS[row]
    decision = PREFERRED.decide_vote(me, candidate, request)
    assert decision.result is result
    _, page_result, page_effect = page_rows("DL_VOTE_")[row]
    assert (page_result, page_effect) == (result.name, effect(decision))


def test_the_reference_page_has_every_row_of_every_dledger_table_and_no_other() -> None:
    expected = {*VOTE_ROWS, *PARSE_ROWS, *HEARTBEAT_ROWS, *BEAT_ROWS}
    assert set(page_rows("DL_")) == expected


def vote_oracle(  # one return per row
    *, curr_term: int, end: tuple[int, int], vote_for: str | None, leader: str | None, taking: bool,
    candidate: str, term: int, r_end: tuple[int, int], own: bool, peers: tuple[str, ...] = ("n0", "n1", "n2"),
) -> VoteResult:
    """DLedger's handleVote in its own numbers; ``end`` is (ledgerEndTerm, ledgerEndIndex)."""
    if candidate not in peers:
        return R.REJECT_UNKNOWN_LEADER
    if not own and candidate == "n0":
        return R.REJECT_UNEXPECTED_LEADER
    if r_end[0] < end[0]:
        return R.REJECT_EXPIRED_LEDGER_TERM
    if r_end[0] == end[0] and r_end[1] < end[1]:
        return R.REJECT_SMALL_LEDGER_END_INDEX
    if term < curr_term:
        return R.REJECT_EXPIRED_VOTE_TERM
    if term == curr_term:
        if vote_for is not None and vote_for != candidate:
            return R.REJECT_ALREADY_HAS_LEADER if leader is not None else R.REJECT_ALREADY_VOTED
    else:
        return R.REJECT_TERM_NOT_READY
    if term < end[0]:
        return R.REJECT_TERM_SMALL_THAN_LEDGER
    if not own and taking and r_end[0] == end[0] and end[1] >= r_end[1]:
        return R.REJECT_TAKING_LEADERSHIP
    return R.ACCEPT


def test_the_vote_table_agrees_with_dledger_on_every_combination_of_facts() -> None:
    ends = [(-1, -1), (0, 0), (0, 1), (1, 0), (1, 2)]
    seen = set()
    for curr_term, end, vote_for, leader, taking, candidate, term, r_end in combinations(
        (0, 1, 2), ends, (None, "n0", "n1", "n2"), (None, "n0", "n1", "n2"), (False, True), ("n0", "n1"),
        (0, 1, 2), ends,
    ):
        me = voter(
            role=Role.LEADER if leader == "n0" else Role.FOLLOWER, term=ours(curr_term), voted_for=vote_for,
            leader=leader, last_term=ours(end[0]), last_index=ours(end[1]), heard_leader_ns=0,
            taking_leadership=taking)
        request = vote(term=ours(term), last_term=ours(r_end[0]), last_index=ours(r_end[1]))
        for own in (False, True):
            if own and candidate != "n0":
                continue
            decision = PREFERRED.decide_own_vote(me, request) if own else PREFERRED.decide_vote(me, candidate, request)
            expected = vote_oracle(
                curr_term=curr_term, end=end, vote_for=vote_for, leader=leader, taking=taking, candidate=candidate,
                term=term, r_end=r_end, own=own)
            assert decision.result is expected, (me, candidate, request, own)
            assert decision.grant == (expected is R.ACCEPT)
            assert decision.become_candidate == (expected is R.REJECT_TERM_NOT_READY)
            assert decision.known_term == (request.term if decision.become_candidate else 0)
            assert not decision.adopt_term  # two-phase: a vote never takes a term
            seen.add(expected)
    assert seen == set(R) - {R.UNKNOWN, R.REJECT_UNKNOWN_LEADER}


def test_a_leader_not_heard_for_a_followers_timeout_is_no_leader() -> None:
    """A learner never becomes a candidate, so it never forgets its leader; a voter has by then."""
    lost = voter(voted_for="n2", leader="n2", heard_leader_ns=LEAK + 1, campaigns=False)
    assert RULES.decide_vote(lost, "n1", vote()).result is R.REJECT_ALREADY_VOTED


def test_an_unknown_candidate_is_heard_only_if_its_log_is_newer_than_mine() -> None:
    """DLedger's peers never change; here a membership that this node has not received may hold the candidate."""
    assert RULES.decide_vote(voter(), "n9", vote(last_index=10)).result is R.REJECT_UNKNOWN_LEADER
    assert RULES.decide_vote(voter(), "n9", vote(last_index=11)).result is R.ACCEPT


def test_a_preferred_leader_refuses_others_only_while_it_takes_over_with_a_log_no_shorter() -> None:
    taking = voter(taking_leadership=True)
    assert RULES.decide_vote(taking, "n1", vote()).result is R.ACCEPT  # not preferred
    assert PREFERRED.decide_vote(voter(), "n1", vote()).result is R.ACCEPT  # not taking over
    assert PREFERRED.decide_vote(taking, "n1", vote(last_index=11)).result is R.ACCEPT  # the other knows more


def test_a_fresh_node_behaves_as_in_its_first_term() -> None:
    """DLedger's first leader rules term 0; here it is term 1, and an empty disk says 0."""
    fresh = voter(term=0, last_term=0, last_index=0)
    decision = RULES.decide_vote(fresh, "n1", vote(term=1, last_term=0, last_index=0))
    assert (decision.result, decision.adopt_term, decision.grant) == (R.ACCEPT, 1, True)
    assert RULES.plan_round(fresh, Candidacy(), Random(1)).term == 1
    heartbeat = RULES.decide_heartbeat(fresh, "n1", 1)
    assert (heartbeat.code, heartbeat.adopt_term, heartbeat.follow) == (Code.SUCCESS, 1, True)
    assert RULES.first_delay_ns(Random(1)) == 0  # and it votes at once


def test_a_node_without_a_vote_takes_terms_in_one_step() -> None:
    """It never campaigns, so nothing would ever take the term for it."""
    learner = voter(membership=group("n1", "n2", learners=("n0",)), campaigns=False)
    assert RULES.decide_heartbeat(learner, "n1", 9).adopt_term == 9
    decision = RULES.decide_vote(learner, "n1", vote(term=9))
    assert (decision.result, decision.adopt_term, decision.grant) == (R.ACCEPT, 9, True)
    assert RULES.plan_round(learner, Candidacy(known_term=9), Random(1)) == RoundPlan(
        5, probe=False, ask=False, delay_ns=LEAK)


# --- the parse table -------------------------------------------------------------------------------------------

ACCEPT, UNKNOWN, VOTED, BIGGER = R.ACCEPT, R.UNKNOWN, R.REJECT_ALREADY_VOTED, R.REJECT_SMALL_LEDGER_END_INDEX
PARSE_ROWS: dict[str, tuple[Tally, ParseResult, str]] = {
    "DL_PARSE_1": (tally({"n0": ACCEPT, "n1": ACCEPT, "n2": R.REJECT_EXPIRED_VOTE_TERM}, terms={"n2": 7}),
                   ParseResult.WAIT_TO_VOTE_NEXT, "7"),
    "DL_PARSE_2": (tally({"n0": ACCEPT, "n1": ACCEPT, "n2": R.REJECT_ALREADY_HAS_LEADER}),
                   ParseResult.WAIT_TO_REVOTE, "same"),
    "DL_PARSE_3": (tally({"n0": ACCEPT, "n1": UNKNOWN}), ParseResult.WAIT_TO_REVOTE, "same"),
    "DL_PARSE_4": (tally({"n0": ACCEPT, "n1": BIGGER, "n2": R.REJECT_EXPIRED_LEDGER_TERM}),
                   ParseResult.WAIT_TO_REVOTE, "same"),
    "DL_PARSE_5": (tally({"n0": ACCEPT, "n1": ACCEPT, "n2": BIGGER}), ParseResult.PASSED, "leads"),
    "DL_PARSE_6": (tally({"n0": ACCEPT, "n1": R.REJECT_TERM_NOT_READY, "n2": VOTED}),
                   ParseResult.REVOTE_IMMEDIATELY, "same"),
    "DL_PARSE_7": (tally({"n0": ACCEPT, "n1": VOTED, "n2": VOTED}), ParseResult.WAIT_TO_VOTE_NEXT, "higher"),
}


@pytest.mark.parametrize("row", PARSE_ROWS)
def test_each_row_of_the_parse_table_gives_its_result_delay_and_next_term(row: str) -> None:
    answers, result, next_term = PARSE_ROWS[row]
    me = voter(role=Role.CANDIDATE, voted_for="n0")
    _, page_result, page_delay, page_term = page_rows("DL_PARSE_")[row]
    assert page_result == result.name
    rng, delays = Random(7), []
    outcome = RULES.parse_round(me, answers, rng)
    for _ in range(300):
        outcome = RULES.parse_round(me, answers, rng)
        assert outcome.result is result
        assert outcome.known_term == (7 if next_term == "7" else 0)
        delays.append(outcome.delay_ns / MS)
    if page_delay in ("none", "next tick"):
        assert set(delays) == {0.0 if page_delay == "none" else TICK_NS / MS}
    else:
        low, high = page_range(page_delay)
        assert low <= min(delays) < low + 30, "the range starts where the page says"
        assert high - 30 < max(delays) < high, "the range ends where the page says"
    if result is ParseResult.PASSED:
        assert page_term == next_term
        return
    candidacy = Candidacy(last_result=result, last_probe=False, known_term=outcome.known_term, failed_rounds=1)
    plan = RULES.plan_round(me, candidacy, rng)
    assert plan.ask
    assert plan.term == {"same": 5, "higher": 6, "7": 7}[next_term]
    assert page_term == ("known" if next_term == "7" else next_term)


def parse_oracle(replies: dict[str, VoteReply], term: int, size: int) -> ParseResult:
    """DLedger's counters and rows."""
    results = [reply.result for reply in replies.values()]
    valid = sum(result != R.UNKNOWN for result in results)
    accepted = results.count(R.ACCEPT)
    not_ready = results.count(R.REJECT_TERM_NOT_READY)
    bigger = results.count(R.REJECT_EXPIRED_LEDGER_TERM) + results.count(R.REJECT_SMALL_LEDGER_END_INDEX)
    known = max((reply.term for reply in replies.values() if reply.result in (
        R.REJECT_EXPIRED_VOTE_TERM, R.REJECT_TERM_SMALL_THAN_LEDGER)), default=-1)
    need = size // 2 + 1
    if known > term:
        return ParseResult.WAIT_TO_VOTE_NEXT
    if R.REJECT_ALREADY_HAS_LEADER in results:
        return ParseResult.WAIT_TO_REVOTE
    if valid < need:
        return ParseResult.WAIT_TO_REVOTE
    if valid - bigger < need:
        return ParseResult.WAIT_TO_REVOTE
    if accepted >= need:
        return ParseResult.PASSED
    if accepted + not_ready >= need:
        return ParseResult.REVOTE_IMMEDIATELY
    return ParseResult.WAIT_TO_VOTE_NEXT


@pytest.mark.parametrize("membership", [THREE, FIVE], ids=["three", "five"])
def test_the_parse_table_agrees_with_dledger_on_every_set_of_answers(membership: Any) -> None:
    rng, me = Random(3), voter(role=Role.CANDIDATE, voted_for="n0", membership=membership)
    peers = membership.voters[1:]
    seen = set()
    for answers in itertools.combinations_with_replacement((None, *R), len(peers)):
        higher = {name: 9 for name, answer in zip(peers, answers, strict=True)
                  if answer in (R.REJECT_EXPIRED_VOTE_TERM, R.REJECT_TERM_SMALL_THAN_LEDGER)}
        given = {name: answer for name, answer in zip(peers, answers, strict=True) if answer is not None}
        round_ = tally({"n0": ACCEPT} | given, membership=membership, terms=higher)
        outcome = RULES.parse_round(me, round_, rng)
        assert outcome.result is parse_oracle(round_.replies, round_.term, len(membership.voters)), answers
        seen.add(outcome.result)
    assert seen == set(ParseResult)


@pytest.mark.parametrize(
    ("answers", "decided"),
    [
        ({"n0": ACCEPT, "n1": R.REJECT_ALREADY_HAS_LEADER}, True),
        ({"n0": ACCEPT, "n1": ACCEPT, "n2": ACCEPT}, True),
        ({"n0": ACCEPT, "n1": R.REJECT_TERM_NOT_READY, "n2": R.REJECT_TERM_NOT_READY}, True),
        (dict.fromkeys(FIVE.voters, VOTED), True),
        ({"n0": ACCEPT, "n1": ACCEPT, "n2": VOTED, "n3": UNKNOWN}, False),
    ],
    ids=["has leader", "accepted", "accepted or ready soon", "all answered", "one voice may decide"],
)
def test_a_round_ends_early_on_dledgers_four_conditions(answers: dict[str, VoteResult], decided: bool) -> None:
    assert RULES.round_decided(tally(answers, membership=FIVE)) is decided


def test_a_round_waits_two_seconds_and_a_random_share_of_another() -> None:
    assert span(RULES.round_timeout_ns) == (2 * SECOND, 3 * SECOND - MS)


def test_while_joint_a_round_needs_a_majority_of_both_halves() -> None:
    joint = group("n0", "n3", "n4", outgoing=("n0", "n1", "n2"))
    one_half = tally({"n0": ACCEPT, "n3": ACCEPT, "n1": VOTED, "n2": VOTED}, membership=joint)
    both = tally({"n0": ACCEPT, "n3": ACCEPT, "n1": ACCEPT}, membership=joint)
    me = voter(role=Role.CANDIDATE, membership=joint)
    assert RULES.parse_round(me, one_half, Random(1)).result is ParseResult.WAIT_TO_VOTE_NEXT
    assert RULES.parse_round(me, both, Random(1)).result is ParseResult.PASSED


# --- candidacies: terms are taken late, and led once ------------------------------------------------------------


def test_a_term_of_which_this_node_holds_an_entry_is_asked_about_without_a_trace() -> None:
    """It had its leader, under a membership that may have changed since: another quorum could make a second one."""
    holds = voter(role=Role.CANDIDATE, last_term=5)
    assert RULES.plan_round(holds, Candidacy(), Random(1)) == RoundPlan(5, probe=True)
    assert RULES.plan_round(holds, Candidacy(last_result=ParseResult.PASSED), Random(1)) == RoundPlan(6, probe=False)


def test_a_needed_term_is_taken_first_and_asked_in_later() -> None:
    rng = Random(2)
    candidacy = Candidacy(need_increase_term=True, known_term=8)
    waits = []
    for _ in range(200):
        plan = RULES.plan_round(voter(role=Role.CANDIDATE), candidacy, rng)
        assert (plan.term, plan.ask, plan.probe) == (8, False, False)
        waits.append(plan.delay_ns / MS)
    assert 300 <= min(waits) < 330
    assert 970 < max(waits) < 1000
    taken = RULES.plan_round(voter(role=Role.CANDIDATE, term=8), Candidacy(known_term=8), rng)
    assert (taken.term, taken.ask) == (8, True)


def test_a_preferred_leader_that_takes_over_waits_thirty_to_a_hundred_ms() -> None:
    rng = Random(2)
    handed_over = Candidacy(need_increase_term=True, known_term=6, transfer=True)
    preferred = [PREFERRED.plan_round(voter(), handed_over, rng).delay_ns / MS for _ in range(200)]
    other = [RULES.plan_round(voter(), handed_over, rng).delay_ns / MS for _ in range(200)]
    assert 30 <= min(preferred) <= max(preferred) < 100
    assert 300 <= min(other) <= max(other) < 1000
    failed = tally({"n0": ACCEPT})
    taking = PREFERRED.parse_round(voter(taking_leadership=True), failed, rng)
    assert 30 <= taking.delay_ns / MS < 100
    assert span(lambda rng: PREFERRED.parse_round(voter(), failed, rng).delay_ns) == (300 * MS, 999 * MS), "not taking"


def test_losing_a_leader_asks_in_the_current_term_first() -> None:
    """Seed and DLedger: WAIT_TO_REVOTE keeps the term."""
    plan = RULES.plan_round(voter(), Candidacy(), Random(1))
    assert (plan.term, plan.probe, plan.ask) == (5, False, True)


def test_a_node_whose_vote_went_to_another_asks_without_a_trace_and_leads_a_higher_term() -> None:
    """DLedger asks for real and may lead a term it gave its vote away in; after a restart it could lead it again."""
    gave = voter(role=Role.CANDIDATE, voted_for="n1")
    assert RULES.plan_round(gave, Candidacy(), Random(1)) == RoundPlan(5, probe=True)
    assert RULES.decide_own_vote(gave, vote(probe=True)).result is R.REJECT_ALREADY_VOTED
    for encouraged in (ParseResult.PASSED, ParseResult.REVOTE_IMMEDIATELY):
        state = Candidacy(last_result=encouraged, failed_rounds=1)
        assert RULES.plan_round(gave, state, Random(1)) == RoundPlan(6, probe=False)
    refused = Candidacy(last_result=ParseResult.WAIT_TO_REVOTE, failed_rounds=1)
    assert RULES.plan_round(gave, refused, Random(1)) == RoundPlan(5, probe=True)


@pytest.mark.parametrize("result", list(ParseResult))
def test_a_candidacy_never_starts_in_a_term_this_node_voted_for_itself_in(result: ParseResult) -> None:
    """It may have led that term: after a restart or a resignation, two entries could get one (index, term)."""
    plan = RULES.plan_round(voter(voted_for="n0"), Candidacy(last_result=result), Random(1))
    assert plan.term == 6
    led = RULES.plan_round(voter(voted_for="n0"), Candidacy(last_result=ParseResult.PASSED, failed_rounds=3), Random(1))
    assert led.term == 6


def test_f11_a_term_taken_is_above_the_last_entrys() -> None:
    """DLedger takes exactly ledgerEndTerm after losing its vote file, and may have voted in it."""
    lost = voter(term=1, last_term=4)
    candidacy = Candidacy(last_result=ParseResult.WAIT_TO_VOTE_NEXT, known_term=4, failed_rounds=1)
    assert RULES.plan_round(lost, candidacy, Random(1)).term == 5


def test_followers_wait_exactly_the_leaked_heartbeats() -> None:
    assert {RULES.follower_timeout_ns(Random(seed), THREE, "n0") for seed in range(9)} == {6 * SECOND}
    timers = DLedgerTimers(heart_beat_time_interval_ms=500, max_heart_beat_leak=4)
    other = make_rules(Config(rules=Rules.DLEDGER, dledger=timers))
    assert other.follower_timeout_ns(Random(1), THREE, "n0") == 2 * SECOND
    assert other.heartbeat_ns == 500 * MS


# --- heartbeats ------------------------------------------------------------------------------------------------

HEARTBEAT_ROWS: dict[str, tuple[Voter, str, int, Code]] = {
    "DL_HB_1": (voter(), "n9", 4, Code.UNKNOWN_MEMBER),
    "DL_HB_2": (voter(), "n0", 5, Code.UNEXPECTED_MEMBER),
    "DL_HB_3": (voter(), "n1", 4, Code.EXPIRED_TERM),
    "DL_HB_4": (voter(leader="n1"), "n1", 5, Code.SUCCESS),
    "DL_HB_5": (voter(role=Role.CANDIDATE), "n1", 4, Code.EXPIRED_TERM),
    "DL_HB_6": (voter(role=Role.CANDIDATE), "n1", 5, Code.SUCCESS),
    "DL_HB_7": (voter(leader="n1", voted_for="n2"), "n1", 5, Code.SUCCESS),
    "DL_HB_8": (voter(leader="n2"), "n1", 5, Code.INCONSISTENT_LEADER),
    "DL_HB_9": (voter(leader="n2"), "n1", 6, Code.TERM_NOT_READY),
}


@pytest.mark.parametrize("row", HEARTBEAT_ROWS)
def test_each_row_of_the_heartbeat_table_answers_as_the_reference_page_says(row: str) -> None:
    me, leader, term, code = HEARTBEAT_ROWS[row]
    decision = RULES.decide_heartbeat(me, leader, term)
    assert decision.code is code
    assert decision.follow == (code is Code.SUCCESS)
    assert decision.become_candidate == (code is Code.TERM_NOT_READY)
    assert decision.known_term == (term if decision.become_candidate else 0)
    assert not decision.adopt_term
    assert page_rows("DL_HB_")[row][1] == f"{code.name} {code.value}"


def test_the_heartbeat_table_agrees_with_dledger_on_every_combination_of_facts() -> None:
    for leader_known, role, sender, mine, term in combinations(
        (None, "n0", "n1", "n2"), Role, ("n0", "n1", "n9"), (0, 1, 2), (0, 1, 2, 3),
    ):
        if (role is Role.LEADER) != (leader_known == "n0"):
            continue
        if sender == "n9":
            expected = Code.UNKNOWN_MEMBER
        elif sender == "n0":
            expected = Code.UNEXPECTED_MEMBER
        elif term < mine:
            expected = Code.EXPIRED_TERM
        elif term > mine:
            expected = Code.TERM_NOT_READY
        else:
            expected = Code.SUCCESS if leader_known in (None, sender) else Code.INCONSISTENT_LEADER
        me = voter(role=role, leader=leader_known, term=ours(mine), last_term=ours(3), last_index=9)
        assert RULES.decide_heartbeat(me, sender, ours(term)).code is expected, (me, sender, term)


def test_an_unknown_leader_is_heard_if_it_may_hold_a_newer_membership() -> None:
    """DLedger's peers never change. Here a leader newer than my last entry, or the one I follow, may be no member."""
    assert RULES.decide_heartbeat(voter(), "n9", 5).code is Code.SUCCESS
    assert RULES.decide_heartbeat(voter(leader="n9", last_term=5), "n9", 5).code is Code.SUCCESS
    assert RULES.decide_heartbeat(voter(last_term=5), "n9", 5).code is Code.UNKNOWN_MEMBER
    assert RULES.decide_heartbeat(voter(membership=group(), term=0), "n9", 1).code is Code.SUCCESS


def test_joining_a_term_takes_two_heartbeats() -> None:
    """Parity: 416 first, the term at the node's own next turn, then 200."""
    me = voter(leader="n2")
    first = RULES.decide_heartbeat(me, "n1", 6)
    assert (first.code, first.become_candidate) == (Code.TERM_NOT_READY, True)
    candidacy = Candidacy(need_increase_term=True, known_term=first.known_term)
    plan = RULES.plan_round(attrs.evolve(me, role=Role.CANDIDATE, leader=None), candidacy, Random(1))
    assert (plan.term, plan.ask) == (6, False)
    second = RULES.decide_heartbeat(attrs.evolve(me, role=Role.CANDIDATE, leader=None, term=6), "n1", 6)
    assert (second.code, second.follow) == (Code.SUCCESS, True)


OK = (Code.SUCCESS, 5)
NOT_READY = (Code.TERM_NOT_READY, 4)
BEAT_ROWS: dict[str, tuple[dict[str, tuple[int, int]], int, str]] = {
    "DL_BEAT_1": ({"n1": OK, "n2": (Code.EXPIRED_TERM, 7)}, 0, "steps down, remembers the term"),
    "DL_BEAT_2": ({"n1": OK, "n2": (Code.INCONSISTENT_LEADER, 5)}, 0, "goes on"),
    "DL_BEAT_3": ({"n1": NOT_READY}, LEAK + 1, "beats again at once"),
    "DL_BEAT_4": ({"n1": (Code.INCONSISTENT_LEADER, 5)}, 0, "steps down"),
    "DL_BEAT_5": ({}, LEAK + 1, "steps down"),
}


@pytest.mark.parametrize("row", BEAT_ROWS)
def test_each_rule_for_heartbeat_answers_does_what_the_reference_page_says(row: str) -> None:
    replies, silence, expected = BEAT_ROWS[row]
    decision = RULES.judge_heartbeats(beats(replies, silence=silence))
    parts = ["steps down"] if decision.step_down else ["beats again at once"] if decision.beat_now else ["goes on"]
    parts += ["remembers the term"] if decision.known_term else []
    assert ", ".join(parts) == expected == page_rows("DL_BEAT_")[row][1]


def test_a_leader_leaves_only_after_more_than_the_leaked_heartbeats() -> None:
    assert not RULES.judge_heartbeats(beats({}, silence=LEAK)).step_down
    assert RULES.judge_heartbeats(beats({}, silence=LEAK + 1)).step_down


def test_an_append_refused_for_its_log_still_confirms_the_leader() -> None:
    """Heartbeats and appends are one message here, so more codes can come back than DLedger's heartbeats give."""
    refused = {"n1": (int(Code.INCONSISTENT_STATE), 5)}
    assert not RULES.judge_heartbeats(beats(refused, silence=LEAK + 1)).step_down


def test_a_peer_that_calls_the_leaders_own_term_over_teaches_no_higher_one() -> None:
    decision = RULES.judge_heartbeats(beats({"n1": (Code.EXPIRED_TERM, 5)}))
    assert not decision.step_down and not decision.known_term


def test_terms_are_taken_in_two_steps_and_immediately_means_the_next_look() -> None:
    assert not RULES.one_step
    assert TICK_NS == 10_000_000


def test_there_are_no_leases_under_dledger() -> None:
    assert RULES.lease_ns == 0
    assert RULES.taking_leadership_wins() is False
    assert RULES.decide_vote(voter(leader="n2", heard_leader_ns=0), "n1", vote()).grant  # row 4d of the original
