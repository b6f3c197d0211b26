"""One node of a group: how it begins, its term, vote and role, what is in its log, whom it knows, what it applies."""

from __future__ import annotations

from random import Random

import pytest

from raft.config import MS, NEVER, Read
from raft.errors import DamagedLog, RejectReason
from raft.frame import Kind
from raft.messages import (
    Committed,
    HardState,
    MembershipChanged,
    ReadReady,
    Role,
    Write,
)
from raft.trace import CommitAdvanced, Started
from tests.raft.alone import NOW, THREE, Node, among, meta
from tests.raft.script import frame

# --- a life begins


def test_a_node_begins_as_a_follower_of_nobody() -> None:
    node = Node(1, 2)
    replica = node.replica
    assert (replica.role, replica.term, replica.voted_for, replica.leader) == (Role.FOLLOWER, 2, None, None)
    assert (replica.commit_index, replica.applied_index, replica.announced_index) == (0, 0, 0)
    log = replica.log
    assert (log.last_index, log.durable_index, log.membership_index, log.snapshot) == (2, 2, 0, None)
    assert (replica.led_term, replica.leadership_seq, replica.gave_way, replica.wall_ms) == (0, 0, 0, 0)
    assert replica.peers == {} and not replica.faulted
    assert node.said() == [] and node.outputs == []
    assert [type(event) for event in node.events] == [Started]


def test_a_node_begins_where_its_snapshot_is() -> None:
    replica = Node(1, 1, 1, snapshot=meta(2)).replica
    assert (replica.commit_index, replica.applied_index, replica.announced_index) == (2, 2, 2)
    replica = Node(1, 1, 1, purged_index=1, purged_term=1).replica
    assert (replica.commit_index, replica.applied_index, replica.announced_index) == (1, 1, 1)


@pytest.mark.parametrize(("voted", "led"), [("n0", 3), ("n1", 0), (None, 0)])
def test_a_term_that_it_voted_for_itself_in_is_not_led_again(voted: str | None, led: int) -> None:
    assert Node(hard_state=HardState(3, voted)).replica.led_term == led


def test_a_log_of_a_later_term_than_the_vote_is_damaged() -> None:
    with pytest.raises(DamagedLog, match="term 1 is older than the log's last term 2") as damaged:
        Node(1, 2, hard_state=HardState(1, None))
    assert (damaged.value.path, damaged.value.offset) == ("log", 0)
    Node(1, 2, hard_state=HardState(2, None))


@pytest.mark.parametrize(("term", "voters", "silent", "part"), [
    (3, "n0 n1 n2", True, 1), (0, "n0 n1 n2", False, 4), (3, "n0", False, 0), (0, "n0", False, 0), (1, "n1", True, 1)])
def test_only_who_may_have_promised_silence_keeps_it_at_first(term: int, voters: str, silent: bool, part: int) -> None:
    node = Node(hard_state=HardState(term, None), membership=among(*voters.split()))
    whole = node.rules.first_delay_ns(Random(1))
    assert node.replica.heard_leader_at == NOW - (0 if silent else node.rules.lease_ns)
    assert node.replica.silence_ns == (whole // part if part else 0)
    assert node.replica.election_deadline == NOW + node.replica.silence_ns


# --- looked at


def test_the_next_deadline_is_that_of_its_role() -> None:
    node = Node(1)
    replica = node.replica
    assert replica.deadline == replica.election_deadline
    for part in (replica.following, replica.regaining):
        if part is replica.following:
            replica.following.handed_over = 1, "n1", NOW + 1
        else:
            replica.regaining.deadline = NOW + 1
        assert replica.deadline == NOW + 1
        replica.following.handed_over, replica.regaining.deadline = None, NEVER
    replica.become_candidate("for this test")
    replica.campaign._next_round_at = NOW + 7
    assert replica.deadline == NOW + 7
    node.lead()
    assert replica.leadership is not None and replica.deadline == replica.leadership.deadline()
    replica.fault(NOW, "for this test")
    assert replica.deadline == NEVER


def test_who_may_not_ask_for_votes_has_nothing_to_wait_for() -> None:
    assert Node(membership=among("n1", "n2")).replica.deadline == NEVER


def test_rules_judge_what_a_node_knows() -> None:
    node = Node(1, 2)
    node.replica.set_hard_state(4, "n2")
    node.replica.heard_leader_at = NOW - 30
    me = node.replica.voter()
    assert (me.node_id, me.role, me.term, me.voted_for, me.leader) == ("n0", Role.FOLLOWER, 4, "n2", None)
    assert (me.last_term, me.last_index, me.membership, me.heard_leader_ns) == (2, 2, THREE, 30)
    node.lead()
    node.replica.now = NOW + 5
    assert node.replica.voter().heard_leader_ns == 5, "a leader's silence is that of its quorum"


# --- term and vote


def test_a_term_is_written_once() -> None:
    node = Node()
    node.replica.set_hard_state(3, None)
    assert node.said() == [] and node.outputs == []
    node.replica.set_hard_state(3, "n1")
    node.replica.set_hard_state(3, "n1")
    node.replica.set_hard_state(4, None)
    node.said()
    assert [each.hard_state for each in node.others(Write)] == [HardState(4, None)]
    assert (node.replica.term, node.replica.voted_for) == (4, None)


# --- roles


def test_a_role_is_told_once() -> None:
    node = Node()
    node.replica.become_follower(None, "it is one")
    assert node.said() == [] and node.roles == []
    node.replica.become_follower("n1", "for this test")
    node.replica.become_follower("n1", "for this test")
    node.said()
    assert node.roles == [(Role.FOLLOWER, 3, "n1", 0)]
    node.replica.set_hard_state(4, None)
    node.replica.become_follower("n1", "in a new term")
    node.said()
    assert node.roles == [(Role.FOLLOWER, 4, "n1", 0)]
    node.replica.become_follower("n1", "in a new term")
    assert node.said() == [] and node.outputs == []
    node.replica.become_candidate("for this test")
    node.replica.become_candidate("for this test")
    node.said()
    assert node.roles == [(Role.CANDIDATE, 4, None, 0)] and node.replica.previous_leader == "n1"
    node.lead()
    assert node.replica.role == Role.LEADER and node.replica.leader == "n0"


def test_a_leadership_ends_with_its_role() -> None:
    for end in ("become_follower", "become_candidate"):
        node = Node()
        node.lead()
        leadership = node.replica.leadership
        assert leadership is not None
        node.replica.read(NOW, 7, Read.INDEX)
        if end == "become_follower":
            node.replica.become_follower("n1", "for this test")
        else:
            node.replica.become_candidate("for this test")
        node.said()
        assert node.replica.leadership is None and node.replica.previous_leader == "n0"
        assert [each.refused for each in node.others(ReadReady)] == [RejectReason.LEADER_LOST]


def test_who_follows_begins_anew_with_its_leader() -> None:
    node = Node(1)
    node.append(1)
    assert node.replica.following.verified == 1
    node.replica.regaining.deadline, node.replica.silence_ns = 5, 1
    node.replica.become_candidate("for this test")
    assert node.replica.campaign.deadline() == NOW
    node.replica.now = NOW + 9
    node.replica.become_follower(None, "for this test")
    assert node.replica.following.verified == 0 and node.replica.regaining.deadline == NEVER
    assert node.replica.campaign.deadline() == NEVER
    assert node.replica.election_deadline == NOW + 9 + node.replica.silence_ns > NOW + 10


def test_a_candidacy_goes_on_with_its_round() -> None:
    node = Node()
    node.replica.become_candidate("once")
    node.replica.campaign.rounds = 4
    node.replica.become_candidate("twice")
    assert (node.replica.campaign.rounds, node.replica.campaign.cause) == (4, "once")


def test_each_leadership_has_a_number_of_its_own() -> None:
    node = Node()
    for number, term in ((1, 4), (2, 5)):
        node.replica.campaign.start("for this test")
        node.replica.campaign.rounds, node.replica.campaign.started_at = 2, NOW - 12 * MS
        node.replica.set_hard_state(term, "n0")
        node.replica.become_leader(("n0", "n2"))
        node.said()
        assert node.roles == [(Role.LEADER, term, "n0", number)] and node.replica.led_term == term
        assert node.replica.campaign.deadline() == NEVER
        led = next(event for event in node.events if type(event).__name__ == "BecameLeader" and event.term == term)
        assert (led.grants, led.cause, led.rounds, led.election_ms) == (("n0", "n2"), "for this test", 2, 12)
        node.replica.step_down("for this test")
        node.said()
        assert node.roles == [(Role.FOLLOWER, term, None, number)] and node.replica.previous_leader == "n0"


def test_a_follower_does_not_step_down() -> None:
    node = Node()
    node.append(0)
    node.replica.step_down("for this test")
    assert node.replica.leader == "n1"
    node.replica.become_candidate("for this test")
    node.replica.step_down("for this test")
    assert node.replica.role == Role.FOLLOWER


# --- the log and the membership


def test_a_membership_holds_from_its_append_on() -> None:
    node = Node(1)
    later = among("n0", "n1", "n3")
    node.append(1, frame(2, 3, later.encode(), kind=Kind.MEMBERSHIP))
    (changed,) = node.others(MembershipChanged)
    assert (changed.membership, changed.index, node.replica.membership) == (later, 2, later)
    node.append(2, frame(3, 3))
    assert node.others(MembershipChanged) == []
    node.append(1, frame(2, 4), term=4)
    (changed,) = node.others(MembershipChanged)
    assert (changed.membership, changed.index, node.replica.membership) == (THREE, 0, THREE)


def test_a_membership_changes_whom_a_leader_feeds_and_who_asks_for_votes() -> None:
    node = Node(1)
    node.lead()
    node.replica.append(frame(3, 4, among("n0", "n1", "n3").encode(), kind=Kind.MEMBERSHIP))
    assert "n3" in node.replica.peers
    node = Node(1)
    node.replica.become_candidate("for this test")
    node.replica.append(frame(2, 1, among("n0", "n1").encode(), kind=Kind.MEMBERSHIP))
    node.said()
    assert [role for role, *_ in node.roles] == [Role.CANDIDATE]
    node.replica.commit_index = 3
    node.replica.append(frame(3, 1, among("n1").encode(), kind=Kind.MEMBERSHIP))
    node.said()
    assert [role for role, *_ in node.roles] == [Role.FOLLOWER]
    node = Node(1)
    node.append(1)
    node.replica.commit_index = 2
    node.replica.append(frame(2, 3, among("n1").encode(), kind=Kind.MEMBERSHIP))
    assert node.replica.leader == "n1", "only a candidacy ends by it"


# --- committed and applied


def test_a_commit_index_rises_within_the_log() -> None:
    node = Node(1, 1, 1)
    for index, commit, told in ((2, 2, [2]), (2, 2, []), (1, 2, []), (9, 3, [3])):
        node.replica.advance_commit(index, counted=False)
        node.said()
        assert (node.replica.commit_index, [each.index for each in node.others(Committed)]) == (commit, told)
    assert [each.index for each in node.events if isinstance(each, CommitAdvanced)] == [2, 3]


def test_what_is_committed_is_applied_when_it_is_durable() -> None:
    node = Node(1)
    node.append(1, frame(2, 3), frame(3, 3), commit=3)
    assert [each.index for each in node.others(Committed)] == [1] and node.replica.commit_index == 3
    node.synced()
    assert [each.index for each in node.others(Committed)] == [3]
    assert node.replica.announced_index == 3
    node.replica.set_hard_state(4, None)
    node.synced()
    assert node.others(Committed) == [], "once"
    node.replica.applied(NOW, 2)
    assert node.replica.applied_index == 2
    node.replica.applied(NOW + 4, 3)
    assert (node.replica.applied_index, node.replica.now) == (3, NOW + 4)
