"""A leader's peers as a whole: who is fed, who counts, and what a quorum of them holds, has answered and promised."""

from __future__ import annotations

import pytest

from raft.config import Config
from raft.membership import Member, Membership
from raft.progress import State
from tests.raft.leading import NOW, TERM, Leader

# --- members


def test_a_peer_per_member_and_those_that_left_until_they_know() -> None:
    leader = Leader(1)
    leader.streams()
    every, leads = leader.leads.heartbeat_ns, leader.leads
    leads.tracker.answers = {"n1": (0, TERM), "n2": (0, TERM)}
    leads.changes._unrecorded = False
    leader.replica.membership = Membership(("n0", "n4", "n1"), (), ("n3",))
    leads.sync_peers()
    assert {name: (each.session, each.next, each.contact_ns) for name, each in leads.peers.items()
            if each.session > 2} == {
        "n3": (3, 3, leader.now), "n4": (4, 3, leader.now)}
    assert (leader.peer("n1").session, leader.peer("n2").departing_until_ns) == (1, leader.now + 20 * every)
    assert leads.changes._unrecorded, "whom it knows by directory is looked at again"
    leader.now += 1
    leads.sync_peers()
    assert leader.peer("n2").departing_until_ns == leader.now - 1 + 20 * every, "once"
    leader.replica.membership = leader.membership
    leads.sync_peers()
    assert (leader.peer("n2").session, leader.peer("n2").departing_until_ns) == (5, 0), "it came back"
    assert leads.tracker.answers == {"n1": (0, TERM)}
    assert leader.peer("n3").departing_until_ns and leader.peer("n1").session == 1
    leader.replica.identities.strangers = frozenset({"n2"})
    leads.sync_peers()
    assert leads.tracker.uncounted == {"n2"}


@pytest.mark.parametrize(("match", "sent", "until", "gone"), [
    (2, 2, 1, True), (1, 2, 1, False), (2, 1, 1, False), (3, 3, 1, True), (0, 0, 0, True)])
def test_who_left_is_fed_until_it_knows_or_for_a_time(match: int, sent: int, until: int, gone: bool) -> None:
    leader = Leader(1, 1)
    leads, peer = leader.leads, leader.peer("n2")
    leader.replica.log.memberships.append((2, leader.membership))
    peer.match, peer.sent_commit, peer.departing_until_ns = match, sent, leader.now + until
    leads.tracker.answers = {"n2": (0, TERM)}
    leads.beat()
    assert ("n2" in leads.peers) is not gone and "n1" in leads.peers
    assert "n2" not in leads.tracker.answers


def test_a_peer_with_another_directory_begins_anew() -> None:
    leader = Leader(1)
    leader.streams()
    leader.peer().lapsed = True
    leader.leads.tracker.recount()
    leader.leads.tracker.renew("n1")
    assert (leader.peer().session, leader.peer().match, leader.leads.tracker.uncounted) == (3, 0, frozenset())
    leader.leads.tracker.renew("n9")
    assert set(leader.leads.peers) == {"n1", "n2"}


def test_strangers_and_those_that_lost_what_they_said_do_not_count() -> None:
    leader = Leader(1, peers=4)
    leader.peer("n1").lapsed = True
    leader.peer("n2").owed, leader.peer("n2").match = 2, 1
    leader.peer("n3").owed, leader.peer("n3").match = 2, 2
    leader.replica.identities.strangers = frozenset({"n4"})
    leader.leads.tracker.recount()
    assert leader.leads.tracker.uncounted == {"n1", "n2", "n4"}
    assert [leader.leads.tracker.counted(f"n{number}") for number in range(6)] == [2, 0, 0, 2, 0, 0]


def test_who_is_close_to_the_end_of_the_log_may_become_a_voter() -> None:
    leader = Leader(*[1] * 9, peers=5, config=Config(learner_lag_entries=3))
    assert leader.last == 10
    for number, match in enumerate((7, 6, 8, 10, 10), 1):
        peer = leader.peer(f"n{number}")
        peer.match, peer.state = match, State.REPLICATE
    leader.peer("n4").departing_until_ns = 1
    leader.peer("n5").state = State.PROBE
    assert leader.leads.tracker.caught_up() == {"n1", "n3"}
    leader = Leader(peers=3, config=Config(learner_lag_entries=3))
    for number in (1, 2):
        leader.peer(f"n{number}").match, leader.peer(f"n{number}").state = number - 1, State.REPLICATE
    assert leader.leads.tracker.caught_up() == {"n2"}, "who holds nothing is not"


def test_the_best_successor_holds_most_then_ranks_first() -> None:
    leader = Leader(1, 1, peers=4, learners=("l0",))
    leads = leader.leads
    for number, match in enumerate((2, 3, 3, 1), 1):
        leader.peer(f"n{number}").match = match
    leader.peer("l0").match = 3
    assert leads.tracker.best_successor() == "n3"
    members = leader.replica.membership.members
    members["n2"] = Member("n2", priority=1)  # type: ignore[index]
    assert leads.tracker.best_successor() == "n2"
    leader.replica.identities.strangers = frozenset({"n2"})
    leads.tracker.recount()
    assert leads.tracker.best_successor() == "n3"
    leader.now = leader.replica.now = NOW + 4 * leads.heartbeat_ns
    assert leads.tracker.best_successor() == "n3"
    leader.replica.now += 1
    assert leads.tracker.best_successor() is None
    leader.peer("n4").heard_ns += 1
    assert leads.tracker.best_successor() == "n4"


@pytest.mark.parametrize(("without", "best"), [("n1", "n2"), ("n2", "n2")])
def test_who_has_no_priority_ranks_as_any_other(without: str, best: str) -> None:
    leader = Leader(1)
    leader.streams()
    del leader.replica.membership.members[without]  # type: ignore[attr-defined]
    assert leader.leads.tracker.best_successor() == best


# --- quorums


def test_a_quorum_is_in_contact_since_its_slowest_member() -> None:
    leader = Leader(1, peers=4)
    for number, at in enumerate((10, 30, 20, 5), 1):
        leader.peer(f"n{number}").contact_ns = NOW + at
    leader.replica.now = NOW + 100
    assert leader.leads.tracker.quorum_contact() == NOW + 20
    leader.peer("n2").owed = 9
    leader.leads.tracker.recount()
    assert leader.leads.tracker.quorum_contact() == NOW + 20, "who lost something is in contact"
    assert leader.leads.tracker.quorum_contact(counted=True) == NOW + 10
    leader.replica.identities.strangers = frozenset({"n3"})
    leader.leads.tracker.recount()
    assert leader.leads.tracker.quorum_contact() == NOW + 10, "a stranger is not"
    leader.peer("n1").counted_ns = NOW + 10
    assert leader.leads.tracker.quorum_contact(counted=True) == NOW + 5
    leader.peer("n1").counted_ns += 1
    assert leader.leads.tracker.quorum_contact(counted=True) == 0, "what it promised before it counts again is void"


def test_who_is_not_known_is_in_contact_with_nobody() -> None:
    leader = Leader(1)
    leader.replica.membership = Membership(("n0", "n8", "n9"))
    assert leader.leads.tracker.quorum_contact() == leader.leads.tracker.quorum_contact(counted=True) == 0
    leader.replica.membership = leader.membership
    leader.replica.identities.strangers = frozenset({"n1", "n2"})
    assert leader.leads.tracker.quorum_contact() == 0


def test_of_a_joint_membership_both_halves_are_asked() -> None:
    leader = Leader(1, peers=3)
    leader.replica.membership = Membership(("n0", "n1", "n9"), ("n0", "n2", "n3"))
    for number, at in enumerate((10, 30, 20), 1):
        leader.peer(f"n{number}").contact_ns = NOW + at
        leader.peer(f"n{number}").read_round = number
    leader.replica.now = NOW + 100
    assert leader.leads.tracker.quorum_contact() == NOW + 10
    assert leader.leads.tracker.round_confirmed(1) and not leader.leads.tracker.round_confirmed(2)


def test_a_round_is_confirmed_by_those_who_count() -> None:
    leader = Leader(1, peers=4)
    for number, seen in enumerate((5, 4, 3, 3), 1):
        leader.peer(f"n{number}").read_round = seen
    assert [leader.leads.tracker.round_confirmed(number) for number in (3, 4, 5)] == [True, True, False]
    leader.peer("n1").lapsed = True
    leader.leads.tracker.recount()
    assert [leader.leads.tracker.round_confirmed(number) for number in (3, 4)] == [True, False]
