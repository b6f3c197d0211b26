"""A follower, message by message: what it takes, what it answers and when, and what it promises."""

from __future__ import annotations

import attrs
import pytest

from raft.config import NEVER, Config, Read, Rules
from raft.errors import RejectReason
from raft.frame import Frame
from raft.membership import Member, Membership
from raft.messages import (
    AppendReply,
    Code,
    Lapse,
    Output,
    ReadReady,
    ReadReply,
    ReadRequest,
    Resolved,
    Role,
    SnapshotMeta,
    TimeoutNow,
    Write,
)
from raft.trace import CommitAdvanced
from tests.raft.alone import meta
from tests.raft.follower import SESSION, Follower, chunk
from tests.raft.script import Script, frame


def ready(outputs: list[Output]) -> list[tuple[int, int, RejectReason | None]]:
    return [(each.ticket, each.index, each.refused) for each in outputs if isinstance(each, ReadReady)]


def answer(
    sequence: int, code: Code = Code.SUCCESS, *, match: int = 0, last: int = 3, hint: tuple[int, int] = (0, 0),
    read_round: int = 0, session: int = SESSION, term: int = 3,
) -> AppendReply:
    return AppendReply(1, term, session, sequence, code, match, last, *hint, read_round)


KNOWN_OF_A_LEADER = {
    "verified": 0, "_session": 0, "_sequence": 0, "_read_round": 0, "_ack_due": False, "_acked": -1,
    "_timeout_now": None}


def test_nothing_is_known_of_a_leader_before_it_is_heard_and_once_it_is_gone() -> None:
    node = Follower(1)
    assert {name: getattr(node.following, name) for name in KNOWN_OF_A_LEADER} == KNOWN_OF_A_LEADER
    assert not node.following.members_only and not node.waits()
    for name in KNOWN_OF_A_LEADER:
        setattr(node.following, name, 7)
    node.following.reset()
    assert {name: getattr(node.following, name) for name in KNOWN_OF_A_LEADER} == KNOWN_OF_A_LEADER


# --- appends


def test_a_beat_is_answered_with_what_it_proves() -> None:
    node = Follower(1, 1, 2)
    assert node.append(2, 1, read_round=7) == [answer(1, match=2, read_round=7)]
    assert (node.replica.leader, node.replica.role, node.following.verified) == ("n0", Role.FOLLOWER, 2)
    assert node.append(3, 2) == [answer(2, match=3)]
    assert node.append(1, 1, session=6) == [answer(3, match=1, session=6)], "a session proves anew"
    assert node.append(3, 2, session=6) == [answer(4, match=3, session=6)]
    assert node.append(1, 1, session=6) == [answer(5, match=3, session=6)], "nothing is unproven within one"


def test_hearing_the_leader_moves_the_deadline() -> None:
    node = Follower(1)
    for _ in range(2):
        node.script.now += 1_000
        node.append(1, 1)
        assert node.replica.election_deadline == node.script.now + node.replica.silence_ns
        assert node.replica.heard_leader_at == node.script.now
    node.script.now += 1_000
    before = node.replica.election_deadline
    node.append(1, 1, term=2)
    assert node.replica.election_deadline == before, "not the leader of an older term"


@pytest.mark.parametrize(("previous", "term", "hint"), [
    (4, 2, (3, 2)), (4, 1, (2, 1)), (3, 1, (2, 1)), (3, 3, (3, 2)), (2, 0, (0, 0)), (2, 2, (2, 1)),
])
def test_a_beat_that_does_not_fit_is_answered_with_where_the_logs_may_agree(
    previous: int, term: int, hint: tuple[int, int],
) -> None:
    node = Follower(1, 1, 2)
    assert node.append(previous, term, commit=3) == [answer(1, Code.INCONSISTENT_STATE, hint=hint)]
    assert (node.following.verified, node.replica.commit_index) == (0, 0)


def test_what_is_purged_fits_whatever_its_term_is_said_to_be() -> None:
    node = Follower(1, 1, 2)
    node.append(3, 2, commit=3)
    node.replica.applied(node.script.now, 3)
    node.replica.log.note_end(2)
    node.replica.snapshots.taken(node.script.now, SnapshotMeta(2, 1, 0, node.replica.membership, 0))
    node.replica.snapshots.purge(2)
    assert node.replica.log.purged_index == 2
    node.said()
    assert [reply.code for reply in node.append(1, 9)] == [Code.SUCCESS]
    assert [reply.code for reply in node.append(2, 2)] == [Code.INCONSISTENT_STATE]
    assert [reply.code for reply in node.append(2, 1)] == [Code.SUCCESS]
    # Frames that are purged in whole are passed over; the next are looked at.
    assert node.append(0, 0, frame(1, 1, b"x", b"y"), frame(3, 2)) == [answer(5, match=3, last=3)]
    assert [reply.code for reply in node.append(0, 0)] == [Code.SUCCESS], "and so does the beginning"


def test_nothing_is_acknowledged_before_it_is_durable() -> None:
    node = Follower(1)
    more = frame(2, 3, b"a")
    assert node.append(1, 1, more, frame(3, 3, b"b", chain=more.mark), commit=9, read_round=4) == []
    assert (node.following.verified, node.replica.commit_index, node.replica.log.durable_index) == (3, 3, 1)
    assert node.append(3, 3) == [answer(2, match=1)]
    assert node.synced() == [answer(2, match=3, read_round=4)]
    assert node.synced() == [], "once"
    assert node.append(1, 1, more) == [answer(3, match=3)], "nothing new: answered at once"


def test_a_commit_index_counts_as_far_as_the_log_is_proven() -> None:
    node = Follower(1, 1, 2)
    node.append(2, 1, commit=3)
    assert node.replica.commit_index == 2
    node.append(2, 1, commit=1)
    assert node.replica.commit_index == 2
    node.append(3, 2, commit=2)
    assert node.replica.commit_index == 2
    node.append(3, 2, commit=3)
    assert node.replica.commit_index == 3


def test_an_acknowledgement_bears_the_newest_message_and_read_round() -> None:
    node = Follower(1)
    first = frame(2, 3)
    node.append(1, 1, first, sequence=5, read_round=6)
    node.append(1, 1, sequence=4, read_round=9)
    assert node.synced() == [answer(5, match=2, last=2, read_round=6)], "a late message says nothing new"
    node.append(2, 3, frame(3, 3, chain=first.mark), sequence=7, read_round=3)
    assert node.synced() == [answer(7, match=3, read_round=6)], "rounds rise"
    node.append(1, 1, sequence=1, read_round=2, session=6)
    node.append(3, 3, frame(4, 3), sequence=2, session=6)
    assert node.synced() == [answer(2, match=4, last=4, read_round=6, session=6)]


def test_each_sync_acknowledges_what_it_made_durable() -> None:
    node = Follower(1)
    first = frame(2, 3)
    node.append(1, 1, first)
    token = node.replica.writes._next_token - 1
    node.append(2, 3, frame(3, 3, chain=first.mark))
    node.replica.durable(node.script.now, token)
    assert node.said() == [answer(2, match=2, last=3)]
    assert node.synced() == [answer(2, match=3)]
    node.append(3, 3, frame(4, 3))
    node.replica.become_follower(None, "for this test")
    assert node.synced() == [], "nobody leads"


def test_a_full_disk_takes_no_frames_and_answers_beats() -> None:
    node = Follower(1)
    node.append(1, 1)
    node.full()
    assert node.append(1, 1) == [answer(2, match=1, last=1)]
    assert node.append(1, 1, frame(2, 3), commit=1) == [answer(3, Code.DISK_FULL, last=1)]
    assert node.replica.commit_index == 0


def test_while_a_snapshot_is_installed_no_entry_is_taken() -> None:
    node = Follower(1)
    node.append(1, 1)
    node.replica.snapshots.install(meta(5, 2))
    assert node.append(5, 2, frame(6, 3)) == [answer(2, match=0, last=5)]
    assert node.replica.log.last_index == 5
    node.full()
    assert node.append(5, 2) == [answer(3, Code.DISK_FULL, last=5)]


@pytest.mark.parametrize(("frames", "reason"), [
    ((frame(3, 3),), "frames do not follow each other"),
    ((frame(1, 1),), "frames do not follow each other"),
    ((frame(2, 1), frame(4, 2)), "frames do not follow each other"),
    ((frame(2, 4),), "frames do not follow each other"),
    ((attrs.evolve(frame(2, 2), group=2),), "frames do not follow each other"),
    ((frame(2, 1, b"a"), frame(3, 2, b"b", b"c")), "a frame that is here in part"),
    ((frame(2, 3),), "contradicts committed entry 2"),
    ((frame(2, 1), frame(3, 2), frame(4, 1)), "a term that falls"),
])
def test_frames_that_cannot_be_are_refused_in_words(frames: tuple[Frame, ...], reason: str) -> None:
    node = Follower(1, 1, 2)
    node.append(2, 1, commit=2)
    assert node.append(1, 1, *frames) == []
    assert node.drops[-1] == reason
    assert (node.replica.log.last_index, node.replica.log.last_term) == (3, 2)


def test_only_what_conflicts_is_truncated() -> None:
    node = Follower(1, 1, 2, 2)
    node.append(1, 1, commit=1)
    third = frame(3, 3)
    assert node.append(1, 1, frame(2, 1), third) == []
    assert [write.truncate_from for write in node.outputs if isinstance(write, Write)] == [3]
    assert (node.replica.log.last_index, node.replica.log.term_at(3), node.following.verified) == (3, 3, 3)
    assert node.append(1, 1, frame(2, 1), third) == [answer(3, match=2, last=3)], "and nothing that is here already"
    assert node.synced() == [answer(3, match=3)]


def test_the_last_entry_alone_may_conflict() -> None:
    node = Follower(1, 1, 2)
    assert node.append(2, 1, frame(3, 3)) == []
    assert [write.truncate_from for write in node.outputs if isinstance(write, Write)] == [3]
    assert (node.replica.log.last_index, node.replica.log.term_at(3)) == (3, 3)


def test_a_frame_that_reaches_the_end_of_the_log_is_there_in_whole() -> None:
    node = Follower(1, 1, 2)
    assert node.append(1, 1, frame(2, 1), frame(3, 2)) == [answer(1, match=3)]
    assert node.drops == []


def test_a_disk_that_lags_takes_nothing_more_and_proves_what_it_has() -> None:
    node = Follower(1)
    second, third = frame(2, 3), frame(3, 3)
    node.append(1, 1, second)
    node.replica.writes.unsynced_bytes += node.replica.config.unsynced_bytes_max
    assert node.append(1, 1, second, third, frame(4, 3)) == [answer(2, match=1, last=2)]
    assert (node.replica.log.last_index, node.following.verified) == (2, 2)
    node.replica.writes.unsynced_bytes -= node.replica.config.unsynced_bytes_max
    assert node.synced() == [answer(2, match=2, last=2)]
    assert node.append(2, 3, third) == [] and node.replica.log.last_index == 3


def test_a_disk_that_lags_proves_nothing_of_what_conflicts() -> None:
    node = Follower(1, 1, 2, 2)
    node.append(1, 1)
    node.replica.writes.unsynced_bytes += node.replica.config.unsynced_bytes_max
    assert node.append(1, 1, frame(2, 1), frame(3, 3)) == [answer(2, match=2, last=4)]
    assert node.following.verified == 2


def test_what_a_follower_commits_it_was_told() -> None:
    node = Follower(1, 1, 2)
    node.append(1, 1, commit=1)
    node.append(3, 2)
    node.tell(chunk(meta(2, 1)))
    node.replica.read(node.script.now, 70, Read.INDEX)
    node.tell(ReadReply(1, 3, node.replica.life + 1, Code.SUCCESS, 3))
    assert [(event.index, event.counted) for event in node.script.nodes["n1"].traces
            if isinstance(event, CommitAdvanced)] == [(1, False), (2, False), (3, False)]


# --- promises


def test_a_promise_is_what_will_be_said_and_is_not_said_again() -> None:
    node = Follower(1)
    assert node.following.early_ack() is None
    node.append(1, 1, frame(2, 3), read_round=4)
    promise = node.following.early_ack()
    assert promise == ("n0", answer(1, match=2, last=2, read_round=4))
    assert promise is not None
    node.following.early_ack_sent(attrs.evolve(promise[1], term=2))
    node.following.early_ack_sent(attrs.evolve(promise[1], session=6))
    assert node.following._acked == -1, "of another leadership or session"
    node.following.early_ack_sent(promise[1])
    node.following.early_ack_sent(attrs.evolve(promise[1], match=1))
    assert node.synced() == []
    assert node.following.early_ack() is None
    node.append(2, 3, frame(3, 3))
    assert node.synced() == [answer(2, match=3, read_round=4)]


def test_what_is_behind_a_kept_promise_is_said_when_it_is_durable() -> None:
    node = Follower(1)
    first = frame(2, 3)
    node.append(1, 1, first)
    promise = node.following.early_ack()
    assert promise is not None
    token = node.replica.writes._next_token - 1
    node.append(2, 3, frame(3, 3, chain=first.mark))
    node.following.early_ack_sent(promise[1])
    node.replica.durable(node.script.now, token)
    assert node.said() == []
    assert node.synced() == [answer(2, match=3)]
    node.append(1, 1, session=6)
    assert node.following._acked == -1


@pytest.mark.parametrize("why", ["full", "nobody", "nothing"])
def test_nothing_is_promised_without_a_leader_or_room(why: str) -> None:
    node = Follower(1)
    if why != "nothing":
        node.append(1, 1, frame(2, 3))
    if why == "full":
        node.replica.writes.disk_full = True
    elif why == "nobody":
        node.replica.become_follower(None, "for this test")
    assert node.following.early_ack() is None


def test_a_leader_promises_nothing_to_itself() -> None:
    node = Follower(1)
    node.append(1, 1, frame(2, 3))
    node.replica.become_candidate("for this test")
    assert node.following.early_ack() is None
    node.replica.role, node.replica.leader = Role.LEADER, "n1"
    assert node.following.early_ack() is None


def test_who_lost_what_it_acknowledged_says_so_in_every_answer() -> None:
    node = Follower(1)
    node.append(1, 1)
    node.replica.lapse = Lapse(9, 2)
    assert node.append(1, 1, read_round=3) == [answer(2, match=1, last=1, hint=(9, 2))]
    assert node.append(4, 2, read_round=3) == [
        answer(3, Code.INCONSISTENT_STATE, last=1, hint=(1, 1), read_round=3)]
    node.append(1, 1, frame(2, 2), read_round=3)
    promise = node.following.early_ack()
    assert promise == ("n0", answer(4, match=2, last=2, hint=(9, 2)))
    assert node.synced() == [answer(4, match=2, last=2, hint=(9, 2))]


def test_who_regained_what_it_lost_says_so_with_the_proof() -> None:
    node = Follower(1)
    node.append(1, 1)
    node.replica.lapse = Lapse(2, 3)
    node.append(1, 1, frame(2, 3), read_round=4)
    assert node.lost()
    assert node.synced() == [answer(2, match=2, last=2, read_round=4)] and not node.lost()
    node.replica.lapse = Lapse(2, 3)
    assert node.append(2, 3, read_round=5) == [answer(3, match=2, last=2, read_round=5)]
    node.replica.lapse = Lapse(4, 2)
    of = meta(5, 3, size=3)
    node.tell(chunk(of, 0, b"123"))
    node.replica.snapshots.chunk_stored(node.script.now, "n0", of, 3, True)
    node.synced()
    assert node.lost()
    node.replica.snapshots.installed(node.script.now, of)
    assert not node.lost()


def test_the_leaders_word_regains_what_was_lost_and_reads_are_answered_meanwhile() -> None:
    node = Follower(1)
    node.replica.lapse = Lapse(9, 9)
    asked = [each for each in node.append(1, 1) if isinstance(each, ReadRequest)]
    node.replica.read(node.script.now, 70, Read.INDEX)
    (read,) = node.said()
    node.tell(ReadReply(1, 3, read.ticket, Code.SUCCESS, 1))
    assert ready(node.outputs) == [(70, 1, None)] and node.lost()
    node.tell(ReadReply(1, 3, asked[0].ticket, Code.SUCCESS, 1))
    assert not node.lost() and node.drops == []


# --- reads through the leader


def test_a_read_is_asked_of_the_leader_and_answered_once() -> None:
    node = Follower(1, 1)
    node.append(2, 1)
    node.replica.read(node.script.now, 70, Read.INDEX)
    (asked,) = node.said()
    number = node.replica.life + 1
    assert asked == ReadRequest(1, 3, number)
    assert node.following.deadline() == node.script.now + 2 * node.replica.silence_ns
    for reply, peer in (
        (ReadReply(1, 3, number + 1, Code.SUCCESS, 2), "n0"), (ReadReply(1, 3, number, Code.SUCCESS, 2), "n2"),
        (ReadReply(1, 2, number, Code.SUCCESS, 2), "n0"),
    ):
        node.tell(reply, peer)
        assert node.drops.pop() == "no such read"
        assert ready(node.outputs) == []
    node.tell(ReadReply(1, 3, number, Code.SUCCESS, 9))
    assert ready(node.outputs) == [(70, 9, None)]
    assert node.replica.commit_index == 2, "committed as far as the log is proven"
    assert node.following.deadline() == NEVER
    node.tell(ReadReply(1, 3, number, Code.SUCCESS, 9))
    assert node.drops.pop() == "no such read"


@pytest.mark.parametrize(("code", "reason"), [
    (Code.LEADER_TRANSFERRING, RejectReason.TRANSFERRING), (Code.NOT_LEADER, RejectReason.LEADER_LOST)])
def test_a_read_that_the_leader_refuses_is_refused(code: Code, reason: RejectReason) -> None:
    node = Follower(1)
    node.append(1, 1)
    node.replica.read(node.script.now, 70, Read.INDEX)
    node.said()
    node.tell(ReadReply(1, 3, node.replica.life + 1, code, 9))
    assert ready(node.outputs) == [(70, 0, reason)]


def test_reads_end_in_time_and_with_their_leader() -> None:
    node = Follower(1)
    node.append(1, 1)
    node.replica.read(node.script.now, 70, Read.INDEX)
    first = node.following.deadline()
    node.script.now += 10
    node.replica.read(node.script.now, 71, Read.INDEX)
    assert node.following.deadline() == first, "the oldest"
    node.said()

    def ready_at(now: int) -> list[tuple[int, int, RejectReason | None]]:
        node.script.now = node.replica.now = now
        node.following.tick()
        return ready(node.replica.drain())

    assert ready_at(first - 1) == []
    assert ready_at(first) == [(70, 0, RejectReason.TIMED_OUT)]
    assert node.following.deadline() == first + 10
    node.replica.become_follower(None, "for this test")
    assert ready(node.replica.drain()) == [(71, 0, RejectReason.LEADER_LOST)]
    assert ready_at(first + 100) == []


# --- whose messages count


def test_another_leader_proves_everything_anew() -> None:
    node = Follower(1, 1)
    node.append(2, 1, frame(3, 3), read_round=9)
    promise = node.following.early_ack()
    assert promise is not None
    node.following.early_ack_sent(promise[1])
    node.append(1, 1, term=4, session=SESSION, sequence=1, peer="n2")
    assert (node.replica.leader, node.replica.term, node.following.verified) == ("n2", 4, 1)
    assert (node.following._acked, node.following._read_round, node.following._sequence) == (-1, 0, 1)
    assert node.following.early_ack() is None
    assert node.synced() == []


def test_only_members_and_a_possible_leader_are_heard_where_strangers_are_not() -> None:
    node = Follower(1)
    following, replica = node.following, node.replica
    assert following.hears("n9"), "not configured"
    following.members_only = True
    assert [following.hears(peer) for peer in ("n0", "n1", "n9")] == [True, True, True], "no leader is known"
    node.append(1, 1)
    assert [following.hears(peer) for peer in ("n0", "n2", "n9")] == [True, True, False]
    replica.now = replica.election_deadline - 1
    assert not following.hears("n9")
    replica.now = replica.election_deadline
    assert following.hears("n9"), "the leader is not heard any more"
    replica.now -= 1
    replica.leader = "n9"
    assert following.hears("n9") and not following.hears("n8")
    replica.leader, replica.membership = "n0", Membership(("n0", "n1"), (), (), {})
    assert following.hears("n9"), "a membership without members knows nobody"
    replica.membership = Membership(("n0", "n1"), (), (), {"n0": Member("n0:1")})
    assert not following.hears("n9")


def test_a_leader_hears_whom_it_still_feeds() -> None:
    script = Script(3)
    leader = script.elect("n0")
    leader.following.members_only = True
    assert leader.leadership is not None
    leader.leadership.peers["n9"] = leader.leadership.peers["n1"]
    leader.now = leader.election_deadline
    assert leader.following.hears("n9") and not leader.following.hears("n8")


def test_a_leader_of_an_older_term_or_a_second_one_is_refused() -> None:
    node = Follower(1)
    node.append(1, 1)
    assert node.append(1, 1, term=2) == [answer(2, Code.EXPIRED_TERM, last=1)]
    assert node.append(1, 1, peer="n2") == [answer(3, Code.INCONSISTENT_LEADER, last=1)]
    assert node.append(1, 1, term=5, peer="n2") == [answer(4, match=1, last=1, term=5)]
    assert (node.replica.leader, node.replica.term) == ("n2", 5)


def test_a_leader_of_a_higher_term_makes_a_dledger_node_ask_for_votes() -> None:
    node = Follower(1, config=Config(rules=Rules.DLEDGER))
    node.append(1, 1)
    assert node.replica.leader == "n0"
    replies = node.append(1, 1, term=6, peer="n2")
    assert [reply.code for reply in replies if isinstance(reply, AppendReply)] == [Code.TERM_NOT_READY]
    assert (node.replica.role, node.replica.campaign.cause) == (Role.CANDIDATE, "n2 leads term 6")
    assert node.replica.campaign.state.need_increase_term and node.replica.campaign.state.known_term == 6
    assert node.replica.deadline == node.script.now


# --- taking over


def test_a_follower_takes_over_once_it_holds_everything() -> None:
    node = Follower(1)
    more = frame(2, 3)
    node.append(1, 1, more)
    assert node.tell(TimeoutNow(1, 3, 2, 3)) == []
    assert node.replica.role == Role.FOLLOWER and node.waits()
    node.synced()
    assert (node.replica.role, node.replica.campaign.cause) == (Role.CANDIDATE, "the leader handed over")
    assert node.replica.campaign.state.transfer and node.replica.campaign.rounds == 1, "it asks at once"
    assert not node.replica.campaign.state.need_increase_term and not node.waits()


def test_what_is_durable_already_is_taken_over_at_once() -> None:
    node = Follower(1)
    node.append(1, 1)
    node.tell(TimeoutNow(1, 3, 1, 1))
    assert node.replica.role == Role.CANDIDATE


def test_a_log_that_ends_otherwise_takes_nothing_over() -> None:
    node = Follower(1, 1)
    node.append(1, 1)
    node.tell(TimeoutNow(1, 3, 2, 2))
    assert node.replica.role == Role.FOLLOWER and not node.waits()


@pytest.mark.parametrize(("peer", "term", "voter"), [("n2", 3, True), ("n0", 2, True), ("n0", 3, False)])
def test_a_hand_over_is_heeded_from_its_leader_by_a_voter(peer: str, term: int, voter: bool) -> None:
    node = Follower(1)
    node.append(1, 1)
    if not voter:
        node.replica.lapse = Lapse(9, 2)
    node.tell(TimeoutNow(1, term, 1, 1), peer)
    assert node.drops == ["not from my leader, or not a voter"] and node.replica.role == Role.FOLLOWER


def test_who_may_not_campaign_any_more_takes_nothing_over() -> None:
    node = Follower(1)
    node.append(1, 1, frame(2, 3))
    node.tell(TimeoutNow(1, 3, 2, 3))
    node.replica.lapse = Lapse(9, 9)
    node.synced()
    assert node.replica.role == Role.FOLLOWER


def test_a_dledger_node_takes_over_in_a_higher_term() -> None:
    node = Follower(1, config=Config(rules=Rules.DLEDGER))
    node.append(1, 1)
    node.tell(TimeoutNow(1, 3, 1, 1))
    assert node.replica.role == Role.CANDIDATE and node.replica.term == 4


# --- what a leader that stepped down left open


def left(node: Follower, target: str = "n2") -> int:
    """It was handing leadership over to ``target`` and stepped down; returns until when that is open."""
    until = node.script.now + 100
    node.following.handed_over = 9, target, until
    return until


def resolved(node: Follower) -> list[tuple[int, RejectReason | None, str, bool]]:
    return [(each.ticket, each.refused, each.detail, each.unknown)
            for each in node.outputs if isinstance(each, Resolved)]


@pytest.mark.parametrize(("target", "refused", "detail"), [
    ("n0", None, ""), ("n2", RejectReason.NOT_CAUGHT_UP, "n0 leads instead")])
def test_a_hand_over_ends_when_a_leader_is_known(target: str, refused: RejectReason | None, detail: str) -> None:
    node = Follower(1)
    left(node, target)
    node.replica.become_follower(None, "nobody yet")
    node.said()
    assert resolved(node) == []
    node.append(1, 1)
    assert resolved(node) == [(9, refused, detail, False)]
    node.append(1, 1, term=4, peer="n2")
    assert resolved(node) == [], "once"


def test_a_hand_over_whose_outcome_nobody_learns_ends_in_time() -> None:
    node = Follower(1)
    until = left(node)
    assert node.following.deadline() == until
    node.replica.tick(until - 1)
    node.said()
    assert resolved(node) == []
    node.replica.tick(until)
    node.said()
    assert resolved(node) == [(9, None, "leadership was given up; no new leader seen yet", True)]
    assert node.following.deadline() == NEVER


def test_the_first_of_a_read_and_a_hand_over_is_due() -> None:
    node = Follower(1)
    node.append(1, 1)
    node.replica.read(node.script.now, 7, Read.INDEX)
    read = node.following.deadline()
    for at, due in ((read - 1, read - 1), (read + 1, read)):
        node.following.handed_over = 9, "n2", at
        assert node.following.deadline() == due


def test_a_follower_waits_for_a_leader_as_long_as_it_drew() -> None:
    node = Follower(1)
    node.replica.silence_ns = 0
    node.script.now += 7
    node.replica.tick(node.script.now)
    node.following.wait_for_leader()
    assert node.replica.silence_ns > 0
    assert node.following.patience_deadline() == node.script.now + node.replica.silence_ns
    node.replica.installing = meta(5, 2)
    assert node.following.patience_deadline() == NEVER, "who may not ask for votes waits on"
