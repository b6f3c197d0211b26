"""Whole groups under either rule set, in the simulator with its invariants asked after every event."""

from __future__ import annotations

import pytest

from raft.config import Config, DLedgerTimers, Rules
from raft.frame import Kind
from raft.membership import Membership
from raft.messages import Append, Role
from raft.sim import Cluster
from raft.trace import BecameLeader, Event, RoundEnded, VoteCast
from tests.raft.script import Mail, Script

QUICK = DLedgerTimers(
    heart_beat_time_interval_ms=200, min_vote_interval_ms=30, max_vote_interval_ms=100, vote_wait_ms=200,
    min_take_leadership_vote_interval_ms=3, max_take_leadership_vote_interval_ms=10)
"""DLedger's timers, ten times faster."""
RULES = pytest.mark.parametrize("rules", list(Rules), ids=lambda rules: rules.value)


class Log:
    """Keeps every command."""

    def __init__(self) -> None:
        self.items: list[bytes] = []

    def apply(self, command: bytes) -> int:
        self.items.append(bytes(command))
        return len(self.items)

    def snapshot(self) -> bytes:
        return b"\n".join(self.items)

    def restore(self, data: bytes) -> None:
        self.items = bytes(data).split(b"\n") if data else []


def cluster(size: int, rules: Rules, seed: int, **kwargs: object) -> Cluster:
    return Cluster(size, Log, seed=seed, config=Config(rules=rules, dledger=QUICK), **kwargs)  # type: ignore[arg-type]


def new_leader(group: Cluster, old: str | None, limit_ms: float = 20_000) -> str:
    group.run_until(lambda: group.leader not in (None, old), limit_ms)
    assert group.leader is not None and group.leader != old
    return group.leader


@RULES
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_fresh_group_elects_and_serves(rules: Rules, size: int) -> None:
    group = cluster(size, rules, seed=1)
    assert group.propose(b"one") == 1
    assert group.leader is not None


@RULES
@pytest.mark.parametrize("seed", range(4))
def test_leaders_may_die_one_after_another_and_nothing_acknowledged_is_lost(rules: Rules, seed: int) -> None:
    group = cluster(5, rules, seed)
    acknowledged = []
    for number in range(6):
        command = f"{number}".encode()
        group.propose(command)
        acknowledged.append(command)
        old = group.leader
        group.crash(old)
        new_leader(group, old)
        assert old is not None
        group.start(old)
    group.propose(b"last")
    group.run_ms(5_000)
    for name in group.running:
        assert [item for item in group.machine(name).items if item in acknowledged] == acknowledged


@RULES
def test_a_leader_cut_off_is_replaced_and_comes_back_as_a_follower(rules: Rules) -> None:
    group = cluster(3, rules, seed=3)
    group.propose(b"before")
    old = group.leader
    assert old is not None
    group.partition([old])
    group.run_until(lambda: group.life(old).replica.role is not Role.LEADER, 20_000)
    assert group.life(old).replica.role is not Role.LEADER, "check quorum"
    new_leader(group, old)
    group.propose(b"during")
    group.heal()
    group.run_ms(5_000)
    group.propose(b"after")
    group.run_ms(2_000)
    assert group.machine(old).items == [b"before", b"during", b"after"]


@RULES
@pytest.mark.parametrize("seed", range(4))
def test_leadership_can_be_handed_over(rules: Rules, seed: int) -> None:
    group = cluster(3, rules, seed)
    group.propose(b"x")
    target = next(name for name in group.running if name != group.leader)
    group.transfer(target)
    assert group.leader == target
    assert group.propose(b"y") == 2


def test_r12_an_isolated_follower_comes_back_without_disturbing_a_strict_group() -> None:
    group = cluster(3, Rules.STRICT, seed=2)
    group.propose(b"x")
    leader = group.leader
    assert leader is not None
    term = group.life(leader).replica.term
    alone = next(name for name in group.running if name != leader)
    group.partition([alone])
    group.run_ms(20_000)
    assert group.life(alone).replica.term == term, "probes raise no term (V16, dissertation 9.6)"
    group.heal()
    group.run_ms(3_000)
    assert (group.leader, group.life(leader).replica.term) == (leader, term)


def test_r11_a_broken_link_to_the_leader_raises_no_term_in_a_strict_group() -> None:
    """V7: n hears another follower but not the leader, which the other one hears well."""
    group = cluster(3, Rules.STRICT, seed=5)
    group.propose(b"x")
    leader = group.leader
    assert leader is not None
    term = group.life(leader).replica.term
    deaf = next(name for name in group.running if name != leader)
    group.cut(leader, deaf)
    group.run_ms(10_000)
    assert (group.leader, group.life(leader).replica.term) == (leader, term)


@RULES
@pytest.mark.parametrize("seed", range(3))
def test_a_lossy_reordering_network_with_crashes_keeps_every_invariant(rules: Rules, seed: int) -> None:
    group = cluster(3, rules, seed, codec=True)
    group.lose(0.05)
    group.delay(0.1, 60)
    group.duplicate(0.05)
    group.reorder(0.1)
    acknowledged = []
    for number in range(8):
        command = f"{number}".encode()
        group.propose(command)
        acknowledged.append(command)
        victim = group.running[number % 3]
        group.crash(victim)
        group.run_ms(50)
        group.start(victim)
    group.lose(0)
    group.run_ms(5_000)
    group.propose(b"last")
    group.run_ms(2_000)
    for name in group.running:
        items = group.machine(name).items
        assert [item for item in dict.fromkeys(items) if item in acknowledged] == acknowledged


def events_of(group: Cluster) -> list[Event]:
    return list(group.checker.recent)


def test_dledger_takes_terms_in_two_steps_and_leads_each_once() -> None:
    """The sequence of DLedger's fail-over: the old term first, then a higher one, NOT_READY and again at once."""
    group = cluster(3, Rules.DLEDGER, seed=1)
    group.propose(b"x")
    old = group.leader
    assert old is not None
    term = group.life(old).replica.term
    group.crash(old)
    new = new_leader(group, old)
    assert group.life(new).replica.term > term
    seen = events_of(group)
    assert any(isinstance(e, RoundEnded) and e.probe for e in seen), "a vote given away: asked without a trace"
    assert any(isinstance(e, RoundEnded) and e.result == "WAIT_TO_VOTE_NEXT" for e in seen)
    assert any(isinstance(e, VoteCast) and e.result == "REJECT_TERM_NOT_READY" for e in seen)
    assert any(isinstance(e, RoundEnded) and e.result == "REVOTE_IMMEDIATELY" for e in seen)
    assert any(isinstance(e, BecameLeader) and e.node == new for e in seen)


def test_a_restarted_dledger_leader_does_not_lead_its_term_again() -> None:
    """A group of one restarts in the term it led: it must take the next."""
    group = cluster(1, Rules.DLEDGER, seed=1)
    group.propose(b"x")
    terms = [group.life("n0").replica.term]
    for _ in range(3):
        group.crash("n0")
        group.start("n0")
        group.propose(b"y")
        terms.append(group.life("n0").replica.term)
    assert terms == sorted(set(terms))


@RULES
def test_members_can_change_under_either_rules(rules: Rules) -> None:
    """DLedger has no membership change; the added and the removed must be no stumbling block for its tables."""
    group = cluster(3, rules, seed=4)
    group.propose(b"x")
    group.reconfigure(["n0", "n1", "n2", "n3", "n4"])
    for _ in range(2):
        old = group.leader
        group.crash(old)
        new_leader(group, old)
    assert group.propose(b"y") == 2
    for name in list(group.nodes):
        if name not in group.running:
            group.start(name)
    group.reconfigure(["n3", "n4"], ["n0"])
    group.run_ms(3_000)
    assert group.leader in ("n3", "n4")
    assert group.propose(b"z") == 3
    group.run_ms(2_000)
    assert group.machine("n0").items == [b"x", b"y", b"z"]


@RULES
def test_removed_voters_still_elect_while_their_removal_is_not_committed(rules: Rules) -> None:
    """Thesis §4.2.2: all but n1 hold the entry that leaves n1 alone; they refuse n1's shorter log, so one must lead."""
    script = Script(4, config=Config(rules=rules, dledger=QUICK))
    script.elect("n0")
    script.settle()
    ticket = script.reconfigure("n0", ["n1"])

    def last_step(mail: Mail) -> bool:
        """Whatever carries the last membership does not reach n1."""
        return mail.target != "n1" or not isinstance(mail.message, Append) or not any(
            frame.kind == Kind.MEMBERSHIP and not Membership.decode(frame.payloads()[0]).joint
            for frame in mail.message.frames)

    script.filter = last_step
    script.settle()
    assert script["n1"].membership.joint
    assert [script[name].membership.voters for name in ("n0", "n2", "n3")] == [("n1",)] * 3
    script.crash("n0")
    script.heal()
    script.elapse(30_000)
    leader = script.leader()
    assert leader is not None and leader.node_id == "n1"
    assert (leader.membership.voters, leader.membership.joint) == (("n1",), False)
    assert script.outcome("n0", ticket) == "open"
    script.propose("n1", b"served")
    assert leader.commit_index == leader.log.last_index
