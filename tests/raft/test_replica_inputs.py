"""One node of a group, input by input: messages, time, what callers ask, what the disk reports, what goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from raft.config import NEVER, Read
from raft.errors import NotLeader, Rejected, RejectReason
from raft.messages import (
    Append,
    AppendReply,
    Code,
    HardState,
    Lapse,
    PeerMessage,
    ReadReady,
    ReadReply,
    ReadRequest,
    Resolved,
    Role,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteReply,
    VoteResult,
    Write,
)
from raft.replica import LIFE_BITS
from tests.raft.alone import NOW, Node, among, meta
from tests.raft.script import frame

ACCEPT = VoteResult.ACCEPT


# --- messages


def test_a_message_of_another_group_or_of_itself_is_misdirected() -> None:
    node = Node()
    for peer, group in (("n0", 1), ("n1", 2)):
        assert node.hear(Append(group, 3, 5, 1, 0, 0, 0, 0, []), peer) == []
    assert node.drops == ["misdirected"] * 2 and node.replica.leader is None


def test_a_stranger_is_heard_only_as_a_leader() -> None:
    node = Node(membership=among("n0", "n1", "n2", n1=b"one"))
    node.replica.identities.meet(NOW, "n1", b"other")
    for message in (Vote(1, 9, 1, 9, 9, False, False), AppendReply(1, 3, 1, 1, 0, 0, 0, 0, 0, 0), ReadRequest(1, 3, 1)):
        assert node.hear(message) == []
    assert node.drops == ["stranger"] * 3
    assert [reply.code for reply in node.append(0)] == [Code.SUCCESS]
    node.hear(SnapshotChunk(1, 3, 5, 2, b"", 0, b""))
    assert "stranger" not in node.drops[3:]


def test_who_is_no_member_is_heard_when_it_asks_for_votes() -> None:
    node = Node()
    node.append(0)
    node.replica.following.members_only = True
    assert node.hear(Append(1, 9, 5, 1, 0, 0, 0, 0, []), "n9") == [] and node.drops == ["no member"]
    assert [type(reply) for reply in node.hear(Vote(1, 9, 1, 9, 9, True, False), "n9")] == [VoteReply]


MESSAGES: dict[str, PeerMessage] = {
    "following.on_append": Append(1, 3, 5, 1, 0, 0, 0, 0, []),
    "leadership.on_append_reply": AppendReply(1, 3, 1, 1, 0, 0, 0, 0, 0, 0),
    "campaign.on_reply": VoteReply(1, 3, 1, ACCEPT, False),
    "snapshots.on_chunk": SnapshotChunk(1, 3, 5, 2, b"", 0, b""),
    "leadership.on_snapshot_reply": SnapshotReply(1, 3, 1, 1, 0, 0, 0, False),
    "following.on_read_reply": ReadReply(1, 3, 1, 0, 0),
    "following.on_timeout_now": TimeoutNow(1, 3, 0, 0),
}


@pytest.mark.parametrize("to", MESSAGES)
def test_each_message_has_its_place(to: str) -> None:
    node = Node()
    node.lead()
    part, method = to.split(".")
    heard: list[tuple[str, PeerMessage]] = []
    setattr(getattr(node.replica, part), method, lambda peer, message: heard.append((peer, message)))
    node.hear(MESSAGES[to], "n2")
    assert heard == [("n2", MESSAGES[to])]


@pytest.mark.parametrize("to", [name for name in MESSAGES if name.startswith("leadership")])
def test_an_answer_to_a_leader_that_is_none_is_nothing(to: str) -> None:
    node = Node()
    assert node.hear(MESSAGES[to]) == [] and node.drops == [] and node.outputs == []


def test_a_request_for_a_vote_is_answered() -> None:
    node = Node(hard_state=HardState(0, None))
    (reply,) = node.hear(Vote(1, 5, 4, 0, 0, False, False))
    assert (reply.result, reply.round, node.replica.voted_for, node.replica.term) == (ACCEPT, 4, "n1", 5)


def test_a_leader_is_asked_where_reads_may_begin() -> None:
    node = Node()
    assert node.hear(ReadRequest(1, 3, 8)) == [ReadReply(1, 3, 8, Code.NOT_LEADER, 0)]
    node.lead()
    asked: list[tuple[int, str | None]] = []
    assert node.replica.leadership is not None
    node.replica.leadership.reads.ask = lambda *question: asked.append(question)  # type: ignore[method-assign]
    assert node.hear(ReadRequest(1, 3, 8)) == [] and asked == [(8, "n1")]


# --- time


def test_time_does_not_go_back() -> None:
    node = Node()
    node.tick()
    for later, now in ((5, 5), (-3, 5), (4, 6)):
        node.tick(later)
        assert node.replica.now == NOW + now


def test_a_leader_that_stood_still_has_no_lease() -> None:
    node = Node(membership=among("n0"))
    node.lead()
    leadership = node.replica.leadership
    assert leadership is not None and node.replica.lease_valid(NOW + leadership.pause_ns)
    floor = leadership.lease_floor
    assert floor == NOW
    node.replica.lease_valid(node.replica.now + leadership.pause_ns + 1)
    assert leadership.lease_floor == node.replica.now + 1
    node.replica.void_lease(node.replica.now + 5)
    assert leadership.lease_floor == node.replica.now + 1
    follower = Node()
    follower.replica.void_lease(NOW + 5)
    assert follower.replica.now == NOW + 5 and not follower.replica.lease_valid(NOW + 5)


def test_a_follower_that_hears_no_leader_asks_for_votes() -> None:
    node = Node()
    due = node.replica.deadline - NOW
    assert node.tick(due - 1) == [] and node.roles == []
    assert [message.probe for message in node.tick(1)] == [True, True]
    assert node.roles == [(Role.CANDIDATE, 3, None, 0)]
    node.replica.campaign._tally = None
    node.replica.campaign._next_round_at = node.now + 1
    assert node.tick() == []
    assert [type(message) for message in node.tick(1)] == [Vote, Vote]


def test_a_tick_reaches_every_part() -> None:
    node = Node()
    asked: list[str] = []
    for part in ("following", "regaining"):
        getattr(node.replica, part).tick = lambda part=part: asked.append(part)
    node.tick()
    assert asked == ["following", "regaining"]
    node.lead()
    assert node.replica.leadership is not None
    node.replica.leadership.tick = lambda: asked.append("leadership")  # type: ignore[method-assign]
    node.tick()
    assert asked[2:] == ["following", "leadership", "regaining"]


# --- what a caller asks


def test_only_a_leader_takes_commands_changes_and_hand_overs() -> None:
    node = Node()
    node.append(0)
    asks = (lambda: node.replica.propose(NOW, [b"x"], 5), lambda: node.replica.leading(NOW))
    for ask in asks:
        with pytest.raises(NotLeader) as refused:
            ask()
        assert (refused.value.leader, refused.value.address) == ("n1", "n1:1")
    node.lead()
    assert node.replica.propose(NOW + 1, [b"x"], 5) == (2, 2)
    assert (node.replica.wall_ms, node.replica.now) == (5, NOW + 1)
    assert node.replica.leading(NOW + 2) is node.replica.leadership and node.replica.now == NOW + 2
    node.replica.faulted = "for this test"
    for ask in asks:
        with pytest.raises(NotLeader):
            ask()


@pytest.mark.parametrize("level", [Read.INDEX, Read.LEASE, Read.LOG])
def test_a_read_needs_a_leader(level: Read) -> None:
    node = Node()
    with pytest.raises(NotLeader):
        node.replica.read(NOW, 1, level)
    node.append(0)
    if level is Read.LOG:
        with pytest.raises(NotLeader) as refused:
            node.replica.read(NOW, 1, level)
        assert (refused.value.leader, refused.value.address) == ("n1", "n1:1")
    else:
        node.replica.read(NOW, 1, level)
        assert [type(message) for message in node.said()] == [ReadRequest]
        node.replica.installing = meta(1)
        with pytest.raises(Rejected) as rejected:
            node.replica.read(NOW, 1, level)
        assert rejected.value.reason is RejectReason.INSTALLING
    node.lead()
    asked: list[tuple[int, Read]] = []
    assert node.replica.leadership is not None
    node.replica.leadership.read = lambda *question: asked.append(question)  # type: ignore[method-assign]
    node.replica.read(NOW, 2, level)
    assert asked == [(2, level)]
    node.replica.faulted = "for this test"
    with pytest.raises(NotLeader) as refused:
        node.replica.read(NOW, 2, level)
    assert (refused.value.leader, refused.value.address) == (None, None)


def test_an_unsafe_read_is_answered_from_what_is_here() -> None:
    node = Node(1)
    node.replica.applied_index = 1
    node.replica.read(NOW + 3, 4, Read.UNSAFE)
    node.said()
    assert [(each.ticket, each.index) for each in node.others(ReadReady)] == [(4, 1)] and node.replica.now == NOW + 3


# --- what the disk reports


def test_a_late_report_does_no_harm() -> None:
    node = Node(1)
    node.append(1, frame(2, 3))
    node.append(2, frame(3, 3))
    told: list[int] = []
    log = node.replica.log
    node.replica.following.on_durable = lambda: told.append(log.durable_index)  # type: ignore[method-assign]
    for token, durable, calls in ((1, 2, 1), (1, 2, 1), (0, 2, 1), (2, 3, 2)):
        node.replica.durable(NOW, token)
        assert (log.durable_index, len(told)) == (durable, calls)


def test_a_report_reaches_those_who_wait() -> None:
    node = Node(1)
    told: list[str] = []
    for part in ("campaign", "following"):
        getattr(node.replica, part).on_durable = lambda part=part: told.append(part)
    node.replica.set_hard_state(4, None)
    node.synced()
    assert told == ["campaign", "following"]
    node.lead()
    told.clear()
    assert node.replica.leadership is not None
    node.replica.leadership.on_durable = lambda: told.append("leadership")  # type: ignore[method-assign]
    node.replica.propose(NOW, [b"x"], 0)
    node.synced()
    assert told == ["leadership"]


@pytest.mark.parametrize(("leader", "candidate", "token", "anew"), [
    (None, False, 2, True), (None, False, 3, True), (None, False, 1, False), ("n1", False, 2, False),
    (None, True, 2, False)])
def test_patience_begins_when_a_vote_is_durable(leader: str | None, candidate: bool, token: int, anew: bool) -> None:
    node = Node(1)
    replica = node.replica
    for write in range(3):
        if write == 1:
            replica.set_hard_state(4, "n1")
        else:
            replica.writes.keep_lapse(Lapse())
        node.said()
    replica.leader = leader
    replica.role = Role.CANDIDATE if candidate else Role.FOLLOWER
    replica.election_deadline = 7
    replica.durable(NOW + 9, token)
    assert (replica.election_deadline != 7) is anew
    assert not anew or replica.election_deadline == NOW + 9 + replica.silence_ns
    replica.election_deadline = 7
    replica.durable(NOW + 9, 3)
    assert (replica.election_deadline != 7) is (token == 1 and leader is None and not candidate), "once"


def waits(node: Node) -> bool:
    return node.replica.needs_disk


def test_something_waits_for_its_own_disk_alone() -> None:
    node = Node(1)
    node.append(1, frame(2, 3), commit=1)
    assert not waits(node)
    node.replica.commit_index = 2
    assert waits(node), "it is committed and cannot be applied"
    node.replica.commit_index = 1
    node.replica.following._timeout_now = TimeoutNow(1, 3, 2, 3)
    assert waits(node)
    node.replica.log.durable_index = 2
    assert not waits(node), "all is there"
    node = Node(1, membership=among("n0"))
    node.lead()
    assert not waits(node)
    node.replica.propose(NOW, [b"x"], 0)
    assert waits(node), "a leader needs it to commit"


def test_what_was_read_for_a_peer_reaches_the_leadership() -> None:
    node = Node()
    node.replica.loaded(NOW, "n1", 1, 1, [])
    node.replica.snapshots.chunk_loaded(NOW, "n1", 1, None, 0, None)
    node.lead()
    heard: list[tuple[Any, ...]] = []
    leadership = node.replica.leadership
    assert leadership is not None
    leadership.on_loaded = lambda *answer: heard.append(answer)  # type: ignore[method-assign]
    leadership.on_chunk_loaded = lambda *answer: heard.append(answer)  # type: ignore[method-assign]
    leadership.on_unreachable = lambda *answer: heard.append(answer)  # type: ignore[method-assign]
    node.replica.loaded(NOW, "n1", 1, 2, [])
    node.replica.snapshots.chunk_loaded(NOW, "n1", 1, None, 3, b"x")
    node.replica.unreachable(NOW, "n2")
    assert heard == [("n1", 1, 2, []), ("n1", 1, None, 3, b"x"), ("n2",)]
    node.replica.step_down("for this test")
    node.replica.campaign.on_unreachable = lambda *answer: heard.append(answer)  # type: ignore[method-assign]
    node.replica.unreachable(NOW, "n1")
    assert heard[3:] == [("n1",)]


# --- what goes wrong


def test_a_full_disk_ends_a_leadership_and_keeps_the_vote() -> None:
    node = Node()
    node.lead()
    node.replica.storage_fault(NOW + 2, "full")
    node.said()
    assert node.roles == [(Role.FOLLOWER, 4, None, 1)] and node.replica.writes.disk_full
    assert [each.hard_state for each in node.others(Write)] == [HardState(4, "n0")]
    node.replica.storage_fault(NOW + 3, "room")
    assert (node.replica.writes.disk_full, node.replica.now) == (False, NOW + 3)


def test_a_disk_that_stalls_ends_a_leadership_and_nothing_else() -> None:
    node = Node()
    node.lead()
    node.replica.storage_fault(NOW, "stall")
    node.said()
    assert node.roles == [(Role.FOLLOWER, 4, None, 1)] and not node.replica.writes.disk_full
    node.replica.storage_fault(NOW, "room")
    assert node.replica.faulted is None


def test_a_node_that_failed_does_and_says_nothing_any_more() -> None:
    node = Node()
    node.lead()
    node.replica.send("n1", TimeoutNow(1, 4, 0, 0))
    node.replica.storage_fault(NOW, "failed")
    assert node.replica.faulted == "a write or sync failed; what the disk holds is not known"
    assert node.said() == [] and node.roles[-1] == (Role.FOLLOWER, 4, None, 1)
    assert (node.replica.role, node.replica.leader, node.replica.leadership) == (Role.FOLLOWER, None, None)
    replica = node.replica
    before = (replica.term, replica.commit_index, replica.writes.durable_token, replica.identities.met)
    replica.log.snapshot = meta(1)
    replica.tick(NEVER)
    assert node.hear(Append(1, 9, 5, 1, 0, 0, 0, 0, []), "n1") == []
    replica.durable(NOW, 99)
    replica.snapshots.taken(NOW, meta(2))
    replica.snapshots.let_go(NOW)
    replica.loaded(NOW, "n1", 1, 1, [])
    replica.snapshots.chunk_stored(NOW, "n1", meta(5), 0, True)
    replica.identities.meet(NOW, "n1", b"one")
    replica.campaign.on_unreachable = pytest.fail  # type: ignore[method-assign, assignment]
    replica.unreachable(NOW, "n1")
    replica.storage_fault(NOW, "full")
    replica.fault(NOW, "again")
    replica.installing = meta(7)
    replica.snapshots.installed(NOW, replica.installing)
    assert not replica.regaining.outlived(NOW, "n1", (5,)) and not replica.lease_valid(NOW)
    replica.lapse = Lapse(1, 1)
    replica.regaining.accept_loss(NOW)
    assert (replica.lapse, replica.installing) == (Lapse(1, 1), meta(7))
    assert replica.faulted == "a write or sync failed; what the disk holds is not known"
    assert before == (replica.term, replica.commit_index, replica.writes.durable_token, replica.identities.met)
    assert node.said() == [] and node.outputs == [] and replica.log.snapshot == meta(1)


def test_a_machine_that_raised_ends_the_node() -> None:
    node = Node()
    node.append(0)
    node.replica.fault(NOW, "the state machine raised: ValueError: no")
    assert node.replica.faulted == "the state machine raised: ValueError: no"
    node.said()
    assert node.roles == [(Role.FOLLOWER, 3, None, 0)] and node.replica.leader is None
    node = Node()
    node.replica.become_candidate("for this test")
    node.replica.fault(NOW, "")
    assert node.replica.role == Role.FOLLOWER


def test_a_loss_is_accepted_once() -> None:
    node = Node()
    node.replica.regaining.accept_loss(NOW)
    assert node.said() == [] and node.outputs == []
    node.replica.lapse = Lapse(4, 2)
    node.replica.regaining.accept_loss(NOW)
    node.said()
    assert [each.lapse for each in node.others(Write)] == [Lapse()]
    assert node.replica.campaign.allowed


def test_lives_that_it_never_had_are_news_once() -> None:
    node = Node(1)
    assert node.replica.regaining.outlived(NOW, "n1", (8,)) and not node.replica.regaining.outlived(NOW, "n1", (8,))
    assert node.replica.lapse is not None


def test_a_hand_over_that_it_left_open_ends_in_time() -> None:
    node = Node()
    node.replica.following.handed_over = 3, "n1", NOW + 5
    node.tick(5)
    assert [(each.ticket, each.unknown) for each in node.others(Resolved)] == [(3, True)]
    node.replica.following.handed_over = 4, "n1", NOW + 50
    node.append(0)
    assert [(each.ticket, each.refused) for each in node.others(Resolved)] == [(4, None)]


def test_the_questions_of_a_life_fit_into_what_travels() -> None:
    last = (1 << LIFE_BITS) - 1
    assert last + (1 << 62) < 1 << 63
