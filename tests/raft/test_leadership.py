"""A leader: whom it feeds with what, when it beats, and how it begins and ends."""

from __future__ import annotations

from itertools import chain

import cbor2
import pytest

from raft.config import MS, NEVER, Config, Read
from raft.errors import Busy, Rejected, RejectReason
from raft.frame import Kind
from raft.leadership import COMMIT_NOTICE_NS, Leadership
from raft.messages import (
    Code,
    Load,
    LoadChunk,
    ReadReady,
    Resolved,
    Role,
)
from raft.progress import State
from raft.rules.interface import LeaderDecision
from tests.raft.leading import NOW, SMALL, TERM, Leader, limits, purged
from tests.raft.script import disk

# --- a leadership begins and ends


def test_a_leader_begins_with_a_no_op_that_says_how_it_came_to_lead() -> None:
    leader = Leader(1, 1, 2, durable=False)
    (one, first), (two, second) = leader.first
    (noop,) = first.frames
    assert (one, two) == ("n1", "n2")
    assert first == leader.append(1, 3, 2, noop)
    assert second == leader.append(1, 3, 2, noop, session=2)
    assert (noop.kind, noop.first, noop.term, noop.wall_ms) == (Kind.NOOP, 4, TERM, 77)
    assert cbor2.loads(noop.payloads()[0]) == {
        "leader": "n0", "cause": "", "rounds": 0, "votes": ["n0", "n1"], "previous_leader": "n2",
        "election_ms": NOW // MS}
    leads = leader.leads
    assert (leads.own_first, leads.term, leads.lease_dead, leads.lease_floor) == (4, TERM, False, NOW)
    assert not leads.own_term_committed and leads.deadline() == NOW + leads.heartbeat_ns
    assert leads.pause_ns == max(4 * leads.heartbeat_ns, leader.replica.rules.lease_ns // 2)
    assert (leads.uncommitted_bytes, leads.tracker._sessions) == (len(noop.data), 2)
    assert leads.tracker.uncounted == frozenset()


def test_the_chain_of_frames_goes_on_under_a_new_leader() -> None:
    leader = Leader()
    noop = leader.first[0][1].frames[0]
    leader.streams()
    assert leader.propose(b"x")[0][1].frames[0].chain == noop.mark


@pytest.mark.parametrize(("lease", "pause"), [(0, 4), (4, 4), (8, 4), (10, 5)])
def test_a_long_pause_is_told_by_beats_or_by_the_lease(lease: int, pause: int) -> None:
    leader = Leader()
    leader.replica.rules.lease_ns = lease * leader.leads.heartbeat_ns
    assert Leadership(leader.replica).pause_ns == pause * leader.leads.heartbeat_ns


def test_all_that_wait_are_answered_at_the_end() -> None:
    leader = Leader(1)
    leader.streams()
    leader.replica.read(leader.now, 7, Read.INDEX)
    leader.leads.changes.begin(8, {name: name for name in ("n0", "n1", "n3")}, {}, {})
    leader.leads.transfer.target, leader.leads.transfer._ticket = "n1", 9
    leader.replica.become_follower(None, "for this test")
    leader.said()
    assert [(each.ticket, each.refused) for each in leader.others(ReadReady)] == [(7, RejectReason.LEADER_LOST)]
    assert [(each.ticket, each.unknown) for each in leader.others(Resolved)] == [(8, True)]
    assert leader.replica.following.handed_over is not None and leader.replica.following.handed_over[0] == 9


def test_who_is_alone_commits_by_its_own_disk() -> None:
    leader = Leader(1, 1, peers=0, durable=False)
    assert leader.first == [] and leader.commit == 0
    leader.synced()
    assert leader.commit == 3 and leader.leads.own_term_committed
    leader.propose(b"x")
    assert leader.commit == 3
    leader.synced()
    assert leader.commit == 4 and leader.leads.deadline() == NOW + leader.leads.heartbeat_ns, "nobody to tell"


# --- time


def test_the_next_deadline_is_the_first_of_all() -> None:
    leader = Leader(1)
    leads, beat = leader.leads, NOW + leader.leads.heartbeat_ns
    for part, name in ((leads, "_notice_at"), (leads.transfer, "deadline"), (leads.changes, "deadline")):
        for sooner in (1, 0):
            setattr(part, name, beat - sooner)
            assert leads.deadline() == beat - sooner
        setattr(part, name, NEVER)
        assert leads.deadline() == beat
    leads._stall_ns = leads.heartbeat_ns - 3
    leader.propose(b"x")
    assert leads.deadline() == beat - 3, "since its disk was given something"
    leader.synced()
    assert leads.deadline() == beat


def test_a_leader_whose_disk_stalls_steps_down() -> None:
    leader = Leader(1)
    leader.leads._stall_ns = 5 * MS
    leader.propose(b"x")
    leader.tick(5 * MS - 1)
    assert leader.replica.leadership is leader.leads
    assert leader.tick(1) == []
    assert leader.reasons == ["storage stalls"]
    leader = Leader(1)
    leader.streams()
    leader.propose(b"x")
    leader.leads._stall_ns = leader.leads._notice_at - NOW
    leader.peer().sent_commit = 0
    assert leader.tick(leader.leads._stall_ns) == [] and leader.reasons == ["storage stalls"]
    assert Leader(config=Config(storage_stall_ms=700)).leads._stall_ns == 700 * MS


def test_a_leader_beats_all_and_keeps_its_rhythm() -> None:
    leader = Leader(1)
    leader.streams()
    every = leader.leads.heartbeat_ns
    assert leader.tick(every - 1) and leader.leads._next_beat == NOW + every, "only word of the commit"
    leader.replica.heard_leader_at = 0
    assert leader.tick(0) == []
    beats = leader.tick(1)
    assert [(peer, message.frames, message.commit) for peer, message in beats] == [("n1", (), 2), ("n2", (), 2)]
    assert leader.leads._next_beat == NOW + 2 * every and leader.leads._beaten_at == leader.now
    leader.streams()
    leader.tick(every + 5)
    assert leader.leads._next_beat == NOW + 3 * every, "a late tick does not shift it"
    leader.streams()
    leader.tick(every * 2)
    assert leader.leads._next_beat == leader.now + 1, "and beats that were missed are not made up for"


def test_word_of_a_commit_waits_a_moment_for_an_append_to_ride_on() -> None:
    leader = Leader(1)
    leader.reply("n1", match=2)
    assert (leader.commit, leader.leads._notice_at) == (2, NOW + 2 * MS)
    assert leader.leads.deadline() == NOW + 2 * MS
    leader.reply("n2", match=2)
    leader.peer("n2").disk_full = True
    assert leader.tick(COMMIT_NOTICE_NS - 1) == []
    ((peer, message),) = leader.tick(1)
    assert (peer, message) == ("n1", leader.append(2, 2, 5, commit=2))
    assert leader.leads._notice_at == NEVER and leader.tick(1) == []


def test_who_has_heard_of_the_commit_is_not_told_again() -> None:
    leader = Leader(1)
    leader.streams()
    leader.tick(COMMIT_NOTICE_NS)
    leader.propose(b"x")
    leader.synced()
    leader.reply("n1", match=3)
    assert leader.commit == 3
    assert [(peer, message.commit) for peer, message in leader.propose(b"y")] == [("n1", 3), ("n2", 3)]
    assert leader.tick(COMMIT_NOTICE_NS) == []


def test_a_later_commit_does_not_delay_word_of_an_earlier_one() -> None:
    leader = Leader(1)
    leader.streams()
    due = leader.leads._notice_at
    leader.propose(b"x")
    leader.synced()
    leader.now += 1
    leader.reply("n1", match=3)
    assert (leader.commit, leader.leads._notice_at) == (3, due)


def test_a_leader_that_no_quorum_answers_steps_down() -> None:
    leader = Leader(1)
    leader.streams()
    leader.now += leader.replica.rules.lease_ns
    leader.leads._next_beat = leader.now
    assert leader.tick() != []
    leader.leads._next_beat = leader.now + 1
    assert leader.tick(1) == [] and leader.replica.role == Role.FOLLOWER
    assert leader.reasons == ["no quorum answered within the election timeout"]


def test_a_leader_that_stands_still_gives_way_without_another_beat() -> None:
    leader = Leader(1)
    leader.streams()
    leader.leads._standstill.judge = lambda: LeaderDecision(True, reason="for this test")  # type: ignore[method-assign]
    assert leader.tick(leader.leads.heartbeat_ns - 1) != []
    assert leader.replica.leadership is leader.leads, "asked at a beat"
    assert leader.tick(1) == []
    assert leader.reasons == ["for this test"]
    leader = Leader(1)
    leader.leads._standstill.judge = pytest.fail  # type: ignore[method-assign]
    leader.now += 10 * leader.replica.rules.lease_ns
    leader.tick()
    assert leader.replica.leadership is None


def test_hand_overs_and_changes_are_given_up_in_time() -> None:
    leader = Leader(1)
    leader.streams()
    leader.leads.transfer.target, leader.leads.transfer.deadline = "n1", leader.now
    leader.leads.changes.deadline = leader.now
    leader.tick()
    assert [each.refused for each in leader.others(Resolved)] == [RejectReason.NOT_CAUGHT_UP, RejectReason.TIMED_OUT]


# --- proposing


def test_commands_become_a_frame_for_everyone() -> None:
    leader = Leader(1)
    leader.streams()
    assert leader.replica.propose(leader.now, [b"x", b"y"], 99) == (3, 4)
    said = leader.said()
    (frame,) = said[0][1].frames
    assert [(peer, message) for peer, message in said] == [
        (peer, leader.append(2, 2, 5, frame, commit=2, session=session)) for session, peer in ((1, "n1"), (2, "n2"))]
    assert (frame.kind, frame.term, frame.payloads(), frame.wall_ms) == (Kind.COMMANDS, TERM, [b"x", b"y"], 99)
    assert leader.replica.propose(leader.now, [b"z"], 0) == (5, 5)
    assert (leader.peer().inflight_bytes, leader.peer().inflight[0]) == (
        len(frame.data) + len(leader.said()[0][1].frames[0].data), (4, len(frame.data), NOW))


def test_no_command_is_taken_while_leadership_is_handed_over_or_the_disk_is_full() -> None:
    leader = Leader(1)
    leader.leads.transfer.target = "n1"
    with pytest.raises(Rejected) as refused:
        leader.leads.propose([b"x"])
    assert refused.value.reason is RejectReason.TRANSFERRING
    leader.leads.transfer.target = None
    leader.replica.writes.disk_full = True
    with pytest.raises(Rejected) as refused:
        leader.leads.propose([b"x"])
    assert refused.value.reason is RejectReason.DISK_FULL and leader.last == 2


def test_a_command_has_a_largest_size() -> None:
    leader = Leader(1, config=SMALL)
    assert leader.replica.propose(NOW, [b"x" * 60], 0) == (3, 3)
    with pytest.raises(Rejected, match="61 bytes, entry_bytes_max=60") as refused:
        leader.leads.propose([b"x", b"x" * 61])
    assert refused.value.reason is RejectReason.TOO_LARGE and leader.last == 3


def test_so_much_may_wait_for_commit_and_for_the_disk() -> None:
    leader = Leader(1, config=SMALL)
    leader.leads.uncommitted_bytes = 950
    with pytest.raises(Busy, match="950 bytes wait for commit"):
        leader.leads.propose([b"x" * 51])
    assert leader.leads.propose([b"x" * 50]) == (3, 3)
    leader.leads.uncommitted_bytes = 0
    assert leader.leads.propose([b"x" * 60] * 20) == (4, 23), "whatever its size, when nothing else waits"
    leader.leads.uncommitted_bytes = 0
    leader.replica.writes.unsynced_bytes = SMALL.unsynced_bytes_max
    with pytest.raises(Busy, match=f"{SMALL.unsynced_bytes_max} bytes wait for this node's disk"):
        leader.leads.propose([b"x"])
    leader.replica.writes.unsynced_bytes -= 1
    assert leader.leads.propose([b"x"]) == (24, 24)


def frames_of(leader: Leader, first: int) -> list[list[bytes]]:
    out = []
    while first <= leader.last:
        (frame,) = leader.replica.log.cached(first, 1) or []
        out.append(frame.payloads())
        first = frame.last + 1
    return out


@pytest.mark.parametrize(("sizes", "frames"), [
    ([1] * 4, [4]), ([1] * 5, [4, 1]), ([1] * 9, [4, 4, 1]), ([80] * 4, [4]), ([83] * 4, [3, 1]),
    ([400, 1, 1], [1, 2]), ([1, 400, 1], [1, 1, 1]), ([1, 1, 400], [2, 1])])
def test_commands_are_cut_into_frames_at_the_limits(sizes: list[int], frames: list[int]) -> None:
    leader = Leader(config=limits(entry_bytes_max=400, frame_bytes_max=400, frame_entries_max=4))
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    leader.leads.propose(payloads)
    found = frames_of(leader, 2)
    assert [len(each) for each in found] == frames and list(chain.from_iterable(found)) == payloads
    assert leader.leads.uncommitted_bytes == sum(size for _, size in leader.leads._uncommitted)
    assert [index for index, _ in leader.leads._uncommitted][-1] == leader.last


def test_a_frame_may_be_as_large_as_the_limit() -> None:
    leader = Leader(config=limits(entry_bytes_max=400, frame_bytes_max=400))
    empty = len(leader.leads.append_own(Kind.COMMANDS, b"").data)
    room = 400 - 2 * 4 - (empty - 4)
    leader.leads.propose([b"x" * (room - 10), b"y" * 10])
    assert [len(each) for each in frames_of(leader, 3)] == [2]
    first = leader.last + 1
    leader.leads.propose([b"x" * (room - 9), b"y" * 10])
    assert [len(each) for each in frames_of(leader, first)] == [1, 1]
    cuts = leader.leads._cuts
    assert (cuts([room - 10, 10]), cuts([room - 9, 10])) == ([(0, 2)], [(0, 1), (1, 2)])
    assert cuts([400, room - 10, 10]) == [(0, 1), (1, 3)]
    assert cuts([400, room - 9, 10]) == [(0, 1), (1, 2), (2, 3)]


def test_what_is_committed_waits_for_commit_no_more() -> None:
    leader = Leader(1)
    leader.streams()
    assert (leader.leads.uncommitted_bytes, len(leader.leads._uncommitted)) == (0, 0)
    leader.propose(b"x")
    size = leader.leads.uncommitted_bytes
    leader.propose(b"y")
    leader.synced()
    leader.reply(match=3)
    assert (leader.commit, leader.leads.uncommitted_bytes) == (3, size)


# --- feeding


def test_while_it_probes_one_message_is_under_way() -> None:
    leader = Leader(1)
    assert leader.propose(b"x") == []
    assert leader.peer().probe_sent and leader.peer().state is State.PROBE
    ((peer, message),) = leader.reply(match=2)
    assert (peer, [each.first for each in message.frames], message.prev_index) == (
        "n1", [3], 2)
    assert leader.turns() == [("REPLICATE", "logs agree")]


def test_a_probe_that_is_sent_again_brings_no_frames() -> None:
    leader = Leader(1)
    leader.replica.commit_index = 1
    said = leader.tick(leader.leads.heartbeat_ns)
    assert said[0] == ("n1", leader.append(2, 1, 1, commit=1)) and leader.peer().sent_commit == 1
    leader.peer().probe_sent = False
    leader.peer().disk_full = True
    leader.leads.feed(leader.peer())
    assert leader.said() == [("n1", leader.append(3, 1, 1, commit=1))], "a full disk takes none"


def test_a_probe_of_what_is_there_brings_nothing() -> None:
    leader = Leader(1)
    leader.peer().next, leader.peer().probe_sent = 3, False
    leader.leads.feed(leader.peer())
    assert leader.said() == [("n1", leader.append(2, 2, 5))]


def test_a_probe_within_a_frame_goes_back_to_its_beginning() -> None:
    leader = Leader(1)
    leader.propose(b"x", b"y", b"z")
    leader.propose(b"later")
    leader.peer().next, leader.peer().probe_sent = 5, False
    leader.leads.feed(leader.peer())
    ((_, message),) = leader.said()
    assert (message.prev_index, message.prev_term, [each.first for each in message.frames]) == (2, 5, [3, 6])


def test_a_probe_below_the_log_calls_for_a_snapshot() -> None:
    leader = Leader(1, 1, 1)
    leader.streams("n2")
    purged(leader, 2)
    for following, snapshot in ((3, False), (2, True)):
        leader.peer().probe_from(following)
        leader.leads.feed(leader.peer())
        said = leader.said()
        assert bool(said) is not snapshot and (leader.peer().state is State.SNAPSHOT) is snapshot
        assert [(each.peer, each.session, each.index, each.offset, each.max_bytes)
                for each in leader.others(LoadChunk)] == [("n1", 1, 0, 0, 1 << 20)] * snapshot


def test_a_window_of_messages_and_bytes_bounds_what_is_in_flight() -> None:
    leader = Leader(1, config=Config(inflight_messages_max=2))
    leader.streams()
    said = [leader.propose(b"x") for _ in range(3)]
    assert [[peer for peer, _ in each] for each in said] == [["n1", "n2"], ["n1", "n2"], []]
    leader.synced()
    ((peer, message),) = leader.reply(match=3)
    assert (peer, [each.first for each in message.frames]) == ("n1", [5])
    leader = Leader(1)
    leader.streams()
    leader.peer().inflight_bytes = leader.config.inflight_bytes_max - 1
    leader.peer("n2").inflight_bytes = leader.config.inflight_bytes_max
    assert [peer for peer, _ in leader.propose(b"x")] == ["n1"]


def test_a_message_brings_as_many_frames_as_fit() -> None:
    leader = Leader(1, config=limits(inflight_messages_max=1, append_bytes_max=350))
    leader.streams()
    for letter in b"abcde":
        leader.propose(bytes([letter]) * 100)
    leader.synced()
    ((_, message),) = leader.reply(match=3)
    assert [each.first for each in message.frames] == [4, 5]
    assert leader.peer().inflight_bytes == sum(len(each.data) for each in message.frames)
    assert leader.peer().next == 6


def test_whose_disk_is_full_gets_one_frame_to_see_whether_there_is_room() -> None:
    leader = Leader(1)
    leader.streams()
    leader.propose(b"w")
    leader.reply(code=Code.DISK_FULL, last=2)
    assert (leader.peer().disk_full, leader.peer().state, leader.peer().probe_sent) == (True, State.PROBE, True)
    assert leader.turns()[-1] == ("PROBE", "its disk is full") and leader.peer().next == 3
    leader.propose(b"x")
    leader.propose(b"y")
    ((_, message),) = leader.reply(match=2, last=4)
    assert [each.first for each in message.frames] == [3]
    assert leader.peer().disk_full
    leader.reply(match=3)
    assert not leader.peer().disk_full, "it took something"
    leader.peer().disk_full = True
    leader.reply(match=4)
    leader.peer().disk_full = True
    leader.reply(match=3, last=5)
    assert leader.peer().disk_full
    leader.reply(match=5)
    leader.peer().disk_full = True
    leader.reply(match=5)
    assert not leader.peer().disk_full, "it has all"


def test_what_memory_does_not_hold_is_read_from_the_disk() -> None:
    leader = Leader(1, 1, 1)
    leader.propose(b"x")
    assert leader.reply(match=1) == []
    (load,) = leader.others(Load)
    assert (load.peer, load.session, load.first, load.max_bytes) == ("n1", 1, 2, leader.config.append_bytes_max)
    assert leader.propose(b"y") == [] and leader.peer().load_pending
    frames = [*disk((1, 1, 1)).read(1, 2, 1 << 20)]
    for peer, session in (("n9", 1), ("n1", 9)):
        leader.replica.loaded(leader.now, peer, session, 2, frames)
        assert leader.said() == []
    leader.replica.loaded(leader.now, "n1", 1, 2, frames)
    said = leader.said()
    assert [(message.prev_index, [each.first for each in message.frames]) for _, message in said] == [
        (1, [2, 3]), (3, [4, 5, 6])]
    assert not leader.peer().load_pending
    leader.replica.loaded(leader.now, "n1", 1, 7, frames)
    assert leader.said() == [], "nobody asked"


def test_what_was_read_and_is_not_wanted_any_more_is_asked_for_anew() -> None:
    leader = Leader(1, 1, 1)
    leader.reply(match=1)
    leader.reply(match=2)
    assert leader.peer().next == 3
    leader.replica.loaded(leader.now, "n1", 1, 2, [*disk((1, 1, 1)).read(1, 2, 1)])
    assert leader.said() == [] and [each.first for each in leader.others(Load)] == [3]
    leader.peer().state = State.SNAPSHOT
    leader.replica.loaded(leader.now, "n1", 1, 3, [*disk((1, 1, 1)).read(1, 3, 1)])
    assert leader.said() == [] and not leader.peer().load_pending


@pytest.mark.parametrize("gone", ["nothing", "purged", "purged in part"])
def test_what_storage_does_not_hold_calls_for_a_snapshot(gone: str) -> None:
    leader = Leader(1, 1, 1)
    leader.streams("n2")
    leader.reply(match=1)
    frames = [] if gone == "nothing" else [*disk((1, 1, 1)).read(1, 2, 1 if gone == "purged" else 1 << 20)]
    purged(leader, 2)
    leader.replica.loaded(leader.now, "n1", 1, 2, frames)
    leader.said()
    assert leader.peer().state is State.SNAPSHOT and leader.others(LoadChunk)
    assert leader.turns()[-1] == ("SNAPSHOT", "needs purged entries")


def test_frames_right_behind_what_was_purged_are_sent() -> None:
    leader = Leader(1, 1, 1)
    leader.streams("n2")
    leader.reply(match=2)
    purged(leader, 2)
    leader.replica.loaded(leader.now, "n1", 1, 3, [*disk((1, 1, 1)).read(1, 3, 1)])
    assert [[each.first for each in message.frames] for _, message in leader.said()] == [[3], [4]]


def test_a_peer_that_needs_purged_entries_while_it_streams_gets_a_snapshot() -> None:
    leader = Leader(1, 1, 1)
    leader.streams("n2")
    purged(leader, 2)
    leader.reply(match=1)
    assert leader.peer().state is State.SNAPSHOT and leader.others(LoadChunk) and not leader.others(Load)
    leader = Leader(1, 1, 1)
    leader.streams("n2")
    purged(leader, 2)
    leader.reply(match=2)
    assert leader.peer().state is State.REPLICATE and [each.first for each in leader.others(Load)] == [3]


# --- beating


def test_a_beat_carries_what_is_known_of_a_peer() -> None:
    leader = Leader(1, 1)
    leads = leader.leads
    leader.streams("n2")
    leads.tracker.answers = {"n1": (0, TERM)}
    leads.reads.round = 6
    leader.now = leader.replica.now = NOW + 7
    leads.beat()
    assert leader.said() == [("n1", leader.append(2, 2, 1, commit=3, read_round=6)),
                             ("n2", leader.append(2, 3, 5, commit=3, read_round=6, session=2))]
    assert (leads._beaten_at, leads._next_beat, leads._notice_at, leads.tracker.answers) == (
        leader.now, leader.now + leads.heartbeat_ns, NEVER, {})
    assert leader.peer("n2").sent_commit == 3


def test_a_beat_is_at_the_match_unless_that_is_purged() -> None:
    leader = Leader(1, 1, 1)
    leader.streams("n2")
    leader.reply(match=2)
    purged(leader, 2)
    leader.leads.beat()
    said = dict(leader.said())
    assert (said["n1"].prev_index, said["n1"].prev_term) == (2, 1)
    leader.peer().match = 1
    leader.leads.beat()
    said = dict(leader.said())
    assert (said["n1"].prev_index, said["n1"].prev_term) == (0, 0)


def test_whoever_does_not_answer_is_probed_again() -> None:
    leader = Leader(1, config=Config(replication_timeout_ms=300))
    leader.streams()
    leader.propose(b"x")
    leader.now = leader.replica.now = NOW + 300 * MS
    leader.leads.beat()
    assert leader.peer().state is State.REPLICATE
    leader.propose(b"y")
    leader.replica.now += 1
    leader.leads.beat()
    assert (leader.peer().state, leader.peer().next) == (State.PROBE, 3)
    assert leader.turns()[-1] == ("PROBE", "no answer")
    (_, message), *_ = [each for each in leader.said() if each[0] == "n1"][-1:]
    assert [each.first for each in message.frames] == [3, 4], "the probe itself"


def test_a_chunk_that_nobody_answers_is_asked_for_again() -> None:
    leader = Leader(1, 1, config=Config(replication_timeout_ms=300))
    leader.leads._start_snapshot(leader.peer())
    leader.said()
    assert leader.peer().chunk_asked_ns == NOW
    for later, asks in ((300 * MS, 0), (1, 1), (1, 0)):
        leader.now = leader.replica.now = leader.now + later
        leader.leads.beat()
        said = dict(leader.said())
        assert (said["n1"].prev_index, len(leader.others(LoadChunk))) == (0, asks)
