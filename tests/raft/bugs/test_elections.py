"""Elections, votes and terms: bugs that other libraries had (table E), each as a scenario."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from raft.config import MS, Config, Read, Rules
from raft.errors import DamagedLog, NotLeader
from raft.frame import Kind
from raft.membership import Member, Membership
from raft.messages import Append, HardState, Role, TimeoutNow, Vote, VoteReply, VoteResult, Write
from raft.quorum import has_majority, majority
from raft.storage.memory import MemoryStorage
from tests.raft.script import Mail, Script, disk

A_WHILE = 10_000 * MS
"""Longer than any voter's promise of silence."""


def ask(
    script: Script, candidate: str, voter: str, term: int, last: tuple[int, int] = (0, 0), *, probe: bool = False,
    transfer: bool = False,
) -> VoteReply | None:
    """``candidate``, whose log ends at ``last`` (term, index), asks ``voter``. Its answer, if one leaves the node."""
    script[voter].receive(script.now, candidate, Vote(1, term, 77, last[1], last[0], probe, transfer))
    script.pump(voter)
    for mail in script.mail:
        if mail.source == voter and isinstance(mail.message, VoteReply) and mail.message.round == 77:
            script.mail.remove(mail)
            return mail.message
    return None


def role(script: Script, name: str) -> Role:
    return script[name].role


def asked(script: Script, candidate: str) -> list[Vote]:
    """Real requests of ``candidate`` that are under way."""
    return [mail.message for mail in script.mail
            if mail.source == candidate and isinstance(mail.message, Vote) and not mail.message.probe]


def campaign(script: Script, name: str) -> None:
    """Let this follower's deadline pass; nothing is delivered."""
    replica = script[name]
    assert replica.role == Role.FOLLOWER
    replica.election_deadline = script.now
    replica.tick(script.now)
    script.pump(name)


def test_BUG_E1_a_vote_survives_a_crash() -> None:
    """PySyncObj 84 and 202, lu-raft-kv 33: a grant in a term, a crash, another candidate in the same term.

    Guards that the vote is part of what is written before the grant leaves.
    """
    script = Script(3)
    first = ask(script, "n0", "n1", term=4)
    assert first is not None and first.result == VoteResult.ACCEPT
    script.crash("n1")
    script.restart("n1")
    script.now += A_WHILE
    second = ask(script, "n2", "n1", term=4)
    assert second is not None and second.result == VoteResult.REJECT_ALREADY_VOTED
    assert script["n1"].term == 4


def test_BUG_E1_no_grant_leaves_before_it_is_durable() -> None:
    """NodeDB 161: the crash comes before any sync. Then nobody may have heard of the vote, in word or in term."""
    script = Script(3)
    script.nodes["n1"].syncing = False
    assert ask(script, "n0", "n1", term=4) is None
    script.crash("n1")
    script.restart("n1")
    assert (script["n1"].term, script["n1"].voted_for) == (0, None)
    second = ask(script, "n2", "n1", term=4)
    assert second is not None and second.result == VoteResult.ACCEPT


def test_BUG_E2_a_group_that_restarts_together_goes_on_above_its_old_term() -> None:
    """PySyncObj 202: logs at term 5, all restart; one must not win term 1, nor a late starter undo what it commits."""
    script = Script(3, disks={name: disk([1, 5, 5]) for name in ("n0", "n1", "n2")})
    assert all(script[name].term == 5 for name in script.nodes)
    script.crash("n2")
    leader = script.elect("n0")
    script.propose("n0", b"kept")
    script.settle()
    assert leader.term > 5 and leader.commit_index == leader.log.last_index > 3
    script.restart("n2")
    script.now += A_WHILE
    for voter in ("n0", "n1"):
        reply = ask(script, "n2", voter, term=leader.term + 10, last=(5, 3), transfer=True)
        assert reply is not None and reply.result == VoteResult.REJECT_EXPIRED_LEDGER_TERM


def test_BUG_E2_a_log_whose_term_was_lost_is_refused() -> None:
    """PySyncObj 202, its cause: only the log survived. A node that lost its term must not start in an old one."""
    with pytest.raises(DamagedLog, match="vote state was lost"):
        Script(3, disks={"n0": disk([1, 5, 5], term=1)})


@pytest.mark.parametrize("survivors", range(5))
def test_BUG_E3_term_and_vote_are_recovered_as_a_pair_that_existed(survivors: int) -> None:
    """hashicorp/raft 661: two keys for term and vote, a crash between them. Guards that one write holds both."""
    storage = MemoryStorage()
    script = Script(3, disks={"n1": storage})
    script.nodes["n1"].syncing = False
    replica, existed = script["n1"], list[tuple[int, str | None]]([(0, None)])
    for term, candidate in ((1, "n0"), (2, "n2"), (3, "n0"), (7, "n2")):
        script.now += A_WHILE
        ask(script, candidate, "n1", term)
        existed.append((replica.term, replica.voted_for))
    assert all(write.hard_state and write.hard_state.voted_for for write in script.nodes["n1"].writes)
    storage.crash(lambda count: min(count, survivors))
    state = storage.open()[1].hard_state
    assert (state.term, state.voted_for) == existed[survivors]


def test_BUG_E4_a_vote_whose_write_fails_is_never_granted() -> None:
    """jraft 1243: the write of the vote fails. Guards that the node is out for good, whatever is reported later."""
    script = Script(3)
    node = script.nodes["n1"]
    node.syncing = False
    assert ask(script, "n0", "n1", term=4) is None
    token = node.writes[-1].token
    node.replica.storage_fault(script.now, "failed")
    script.pump("n1")
    node.replica.durable(script.now, token)  # the report of a sync that came too late
    assert ask(script, "n0", "n1", term=4) is None
    assert ask(script, "n2", "n1", term=5) is None
    assert node.replica.faulted and not [mail for mail in script.mail if mail.source == "n1"]


def test_BUG_E5_a_candidates_requests_leave_after_its_own_term_and_vote_are_durable() -> None:
    """jraft 1245: requests sent, then a crash that forgets them. Guards the order of own vote, sync and sending."""
    script = Script(3)
    script.nodes["n0"].syncing = False
    campaign(script, "n0")
    script.settle()  # the probe passes
    assert script["n0"].term == 1 and script["n0"].voted_for == "n0"
    assert not asked(script, "n0") and script["n1"].term == script["n2"].term == 0
    script.sync("n0")
    requests = asked(script, "n0")
    assert {request.term for request in requests} == {1} and len(requests) == 2
    script.crash("n0")
    script.restart("n0")
    assert (script["n0"].term, script["n0"].voted_for) == (1, "n0")


def test_BUG_E6_seeing_a_term_is_not_granting_it() -> None:
    """openraft 94c820c3: a follower learns a term from one node, then a candidate with a shorter log asks in it."""
    script = Script(3, disks={"n1": disk([1, 1, 1])})
    script["n1"].receive(script.now, "n2", Append(1, 5, 1, 1, 0, 0, 0, 0))
    script.pump("n1")
    assert (script["n1"].term, script["n1"].voted_for) == (5, None)
    script.now += A_WHILE
    for term in (5, 6):
        reply = ask(script, "n0", "n1", term, last=(1, 2))
        assert reply is not None and reply.result == VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    assert script["n1"].voted_for is None


def test_BUG_E7_a_refusal_with_a_higher_term_teaches_the_term_alone() -> None:
    """openraft b06cbb37: the higher vote in a refusal was persisted as if granted. Guards ``learn_term``."""
    script = Script(3)
    campaign(script, "n0")
    assert role(script, "n0") == Role.CANDIDATE
    probes = [mail.message for mail in script.mail if isinstance(mail.message, Vote)]
    refusal = VoteReply(1, 9, probes[0].round, VoteResult.REJECT_EXPIRED_VOTE_TERM, True)
    script.mail.clear()
    script["n0"].receive(script.now, "n1", refusal)
    script.pump("n0")
    assert (script["n0"].term, script["n0"].voted_for) == (9, None)
    assert script.nodes["n0"].storage.open()[1].hard_state == HardState(9, None)


@pytest.mark.parametrize(("mine", "theirs", "result"), [
    ([3], (2, 9), VoteResult.REJECT_EXPIRED_LEDGER_TERM),
    ([2] * 9, (3, 1), VoteResult.ACCEPT),
    ([2] * 9, (2, 8), VoteResult.REJECT_SMALL_LEDGER_END_INDEX),
    ([2] * 9, (2, 9), VoteResult.ACCEPT),
])
def test_BUG_E8_logs_compare_by_term_then_by_index(mine: list[int], theirs: tuple[int, int], result: int) -> None:
    """openraft a48a3282: (term 2, index 9) against (term 3, index 1). Paper §5.4.1: term first."""
    script = Script(3, disks={"n1": disk(mine)})
    script.now += A_WHILE
    reply = ask(script, "n0", "n1", term=8, last=theirs)
    assert reply is not None and reply.result == result


def test_BUG_E9_a_repeated_grant_counts_once() -> None:
    """Xraft (SandTable), Coyote sample 8: one voter's answer arrives again and again. Guards the count of voters."""
    script = Script(5)
    script.filter = lambda mail: isinstance(mail.message, Vote | VoteReply) and mail.message.probe
    campaign(script, "n0")
    script.settle()  # the probe passes, no real request arrives anywhere
    script.filter = None
    number = script["n0"].campaign._round
    for _ in range(5):
        script["n0"].receive(script.now, "n1", VoteReply(1, 1, number, VoteResult.ACCEPT, False))
    script.pump("n0")
    assert role(script, "n0") == Role.CANDIDATE
    script["n0"].receive(script.now, "n2", VoteReply(1, 1, number, VoteResult.ACCEPT, False))
    assert role(script, "n0") == Role.LEADER


def test_BUG_E10_a_leader_grants_nobody_the_term_it_leads() -> None:
    """DaosRaft 70 (SandTable): a vote request in the leader's own term. Guards both the vote record and the role."""
    script = Script(3)
    leader = script.elect("n0")
    reply = ask(script, "n1", "n0", leader.term, last=(9, 9), transfer=True)
    assert reply is not None and reply.result != VoteResult.ACCEPT
    assert leader.role == Role.LEADER and leader.voted_for == "n0"
    forgetful = attrs.evolve(leader.voter(), voted_for=None)
    decision = leader.rules.decide_vote(forgetful, "n1", Vote(1, leader.term, 1, 9, 9, transfer=True))
    assert decision.result != VoteResult.ACCEPT and not decision.grant


@pytest.mark.parametrize("rules", list(Rules))
@pytest.mark.parametrize("remembers", [True, False])
def test_BUG_E11_a_leader_that_restarts_does_not_resume_its_term(rules: Rules, remembers: bool) -> None:
    """KAFKA-10527: everyone still votes for it in that term, and its log there may differ. Guards led terms.

    Worst when its vote is on its disk and its first entry, which the others have, is not.
    """
    script = Script(3, config=Config(rules=rules))

    def lose_what_follows(mail: Mail) -> bool:
        if isinstance(mail.message, VoteReply) and mail.message.result == VoteResult.ACCEPT and not mail.message.probe:
            script.nodes[mail.target].syncing = remembers
        return True

    script.filter = lose_what_follows
    for _ in range(2_000):
        if script.leader() is not None:
            break
        script.elapse(10)
    leader = script.leader()
    assert leader is not None
    name, led = leader.node_id, leader.term
    script.crash(name)
    script.nodes[name].syncing = True
    script.restart(name)
    assert role(script, name) == Role.FOLLOWER and script[name].voted_for == name
    assert bool(script[name].log.last_index) == remembers
    for other in script.nodes.values():
        if other.name != name:
            other.replica.election_deadline = script.now + 5_000 * MS
    requests: list[int] = []

    def watch(mail: Mail) -> bool:
        if mail.source == name and isinstance(mail.message, Vote) and not mail.message.probe:
            requests.append(mail.message.term)
        return True

    script.filter = watch
    script.elapse(20_000)
    assert script[name].term > led and all(term > led for term in requests)
    assert script.leader() is not None


def test_BUG_E12_campaign_now_reaches_a_learner() -> None:
    """etcd db54973, cockroach 8535: whoever must not lead ignores the order to campaign."""
    script = Script(3, learners=["l0"])
    leader = script.elect("n0")
    order = TimeoutNow(1, leader.term, leader.log.last_index, leader.log.last_term)
    script["l0"].receive(script.now, "n0", order)
    script.pump("l0")
    assert role(script, "l0") == Role.FOLLOWER
    script.cut("l0")
    script.elapse(20_000)
    assert role(script, "l0") == Role.FOLLOWER and script["l0"].term == leader.term


def test_BUG_E12_campaign_now_reaches_a_removed_node() -> None:
    """cockroach 8535: the removed node neither panics nor campaigns, then or later."""
    script = Script(3)
    leader = script.elect("n0")
    ticket = script.reconfigure("n0", ["n0", "n1"])
    script.elapse(200)
    assert script.outcome("n0", ticket) == "done" and not script["n2"].membership.votes("n2")
    order = TimeoutNow(1, leader.term, script["n2"].log.last_index, script["n2"].log.last_term)
    script["n2"].receive(script.now, "n0", order)
    script.pump("n2")
    assert role(script, "n2") == Role.FOLLOWER
    script.elapse(20_000)
    assert role(script, "n2") == Role.FOLLOWER and leader.role == Role.LEADER


def test_BUG_E13_a_learner_that_does_not_know_of_its_promotion_votes() -> None:
    """etcd 10998: promoted in an entry it has not received; the leader dies and its vote is the missing one."""
    script = Script(2, learners=["l0"])
    script.elect("n0")
    script.settle()
    script.cut("l0")
    ticket = script.reconfigure("n0", ["n0", "n1", "l0"])
    script.elapse(200)
    assert script.outcome("n0", ticket) == "done"
    assert script["n1"].membership.votes("l0") and not script["l0"].membership.votes("l0")
    script.crash("n0")
    script.heal()
    assert script.elect("n1").role == Role.LEADER


def test_BUG_E13_a_voter_answers_a_candidate_that_only_a_newer_membership_knows() -> None:
    """etcd 10998, the other side (thesis §4.1): the voter's membership is older, so it does not know who asks."""
    script = Script(3, disks={"n1": disk([1, 1])})
    script.now += A_WHILE
    reply = ask(script, "joiner", "n1", term=2, last=(1, 3))
    assert reply is not None and reply.result == VoteResult.ACCEPT
    reply = ask(script, "stranger", "n1", term=3, last=(1, 2))
    assert reply is not None and reply.result == VoteResult.REJECT_UNKNOWN_LEADER


def test_BUG_E14_a_zero_priority_waits_longer_and_still_leads() -> None:
    """NuRaft 470799d: the rule here is that priority delays and never vetoes, down to the last voter that lives."""
    script = Script(3)
    names = {name: f"{name}:1" for name in script.nodes}
    script.elect("n0")
    script["n0"].leading(script.now).changes.begin(1, names, {}, {"n0": 9, "n1": 0, "n2": 0})
    script.elapse(200)
    for giver, taker in (("n0", "n1"), ("n1", "n0")):  # every follower draws its deadline anew
        script.transfer(giver, taker)
        script.settle()
    assert role(script, "n0") == Role.LEADER
    script.crash("n0")
    script.elapse(5 * script.config.election_timeout_ms)
    successor = script.leader()
    assert successor is not None and successor.node_id in ("n1", "n2")
    script.reconfigure(successor.node_id, [successor.node_id])
    script.elapse(200)
    alone = successor.node_id
    assert script[alone].membership.voters == (alone,)
    script.crash("n1")
    script.crash("n2")
    script.restart(alone)
    script.elapse(5 * script.config.election_timeout_ms)
    assert role(script, alone) == Role.LEADER


def test_BUG_E14_higher_priorities_go_first() -> None:
    """NuRaft 470799d: that delay is what a priority is worth. Two members, one deadline each, the ranks decide."""
    members = {"n0": Member("n0:1", b"", 9), "n1": Member("n1:1", b"", 0), "n2": Member("n2:1", b"", 0)}
    membership = Membership(["n0", "n1", "n2"], (), (), members)
    rules = Script(3)["n0"].rules
    for seed in range(50):
        first = rules.follower_timeout_ns(Random(seed), membership, "n0")
        later = rules.follower_timeout_ns(Random(seed), membership, "n1")
        assert first < later <= 2 * rules.lease_ns


def test_BUG_E15_a_repeated_request_gets_its_grant_again() -> None:
    """nebula 2419: the first reply was lost. A voter that refuses its own candidate wastes the term."""
    script = Script(3)
    replies = [ask(script, "n0", "n1", term=4) for _ in range(3)]
    assert replies[0] is not None and replies[0].result == VoteResult.ACCEPT
    assert replies[0] == replies[1] == replies[2]


def test_BUG_E16_an_entry_bears_the_term_its_leader_was_elected_in() -> None:
    """hashicorp/raft 695, Ratis-2154: a heartbeat raises the term while the old leader stamps entries."""
    script = Script(3)
    old = script.elect("n0")
    leadership = old.leadership
    assert leadership is not None
    script.propose("n0", b"mine")
    held = script.nodes["n0"].persisted()
    old.receive(script.now, "n1", Append(1, 8, 1, 1, 0, 0, 0, 0))
    assert old.term == 8 and old.leadership is None
    with pytest.raises(NotLeader):
        script.propose("n0", b"too late")
    with pytest.raises(NotLeader):
        old.read(script.now, 1, Read.LOG)
    with pytest.raises(AssertionError):
        leadership.append_own(Kind.NOOP, b"by a leadership that is over")
    script.pump("n0")
    assert script.nodes["n0"].persisted() == held and {term for _, term in held} == {1}


@pytest.mark.parametrize(("voters", "least"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5), (9, 5)])
def test_BUG_E17_a_majority_is_more_than_half(voters: int, least: int) -> None:
    """hashicorp/raft 163a55f: quorum sizes of 2, 4 and 6 voters. Two majorities always share a voter."""
    assert majority(voters) == least and 2 * majority(voters) > voters
    names = [f"n{i}" for i in range(voters)]
    for agreeing in range(voters + 1):
        assert has_majority(names, names[:agreeing].__contains__) == (agreeing >= least)


def test_BUG_E18_an_answer_to_an_earlier_probe_completes_nothing() -> None:
    """openraft 511f33c7: two rounds of probes overlap. Guards the round number that answers echo."""
    script = Script(3)
    campaign(script, "n0")
    first = script["n0"].campaign._round
    script.mail.clear()  # nobody answers in time
    while script["n0"].campaign._round == first:
        script.now = script["n0"].deadline
        script["n0"].tick(script.now)
        script.pump("n0")
        script.mail.clear()
    script["n0"].receive(script.now, "n1", VoteReply(1, 0, first, VoteResult.ACCEPT, True))
    script.pump("n0")
    assert script["n0"].term == 0 and not asked(script, "n0")


def test_BUG_E18_a_winner_starts_no_second_campaign() -> None:
    """openraft 511f33c7: answers of either round arrive after the win. Nothing happens, the leader leads on."""
    script = Script(3)
    leader = script.elect("n0")
    term, rounds = leader.term, leader.campaign._round
    for number in range(rounds + 2):
        for probe in (True, False):
            for peer in ("n1", "n2"):
                leader.receive(script.now, peer, VoteReply(1, term, number, VoteResult.ACCEPT, probe))
    script.pump("n0")
    script.elapse(2_000)
    assert (leader.role, leader.term, leader.leadership_seq) == (Role.LEADER, term, 1)
    assert leader.campaign._round == rounds


def test_BUG_E3_a_write_names_the_vote_with_its_term() -> None:
    """hashicorp/raft 661: the same in the type: there is no way to write one without the other."""
    assert [field.name for field in attrs.fields(HardState)] == ["term", "voted_for"]
    assert [field.name for field in attrs.fields(Write) if "term" in field.name or "vote" in field.name] == []
