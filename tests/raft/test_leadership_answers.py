"""A leader, answer by answer: what it takes from them, what it counts as committed, and when it steps down."""

from __future__ import annotations

from typing import Any

import pytest

from raft.config import MS, NEVER, Config, Read
from raft.membership import Member, Membership
from raft.messages import (
    Append,
    Code,
    Committed,
    Load,
    LoadChunk,
    ReadReady,
    Role,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    TimeoutNow,
    Write,
)
from raft.progress import State
from raft.rules.interface import LeaderDecision
from raft.snapshotmeta import encode_meta
from raft.trace import CommitAdvanced
from tests.raft.leading import DLEDGER, NOW, TERM, Leader, limits, purged

# --- answers to appends


@pytest.mark.parametrize("other", [{"session": 9}, {"term": TERM - 1}, {"sequence": 2}, {"peer": "n9"}])
def test_an_answer_to_another_message_says_nothing(other: dict[str, Any]) -> None:
    leader = Leader(1)
    leader.now += 1
    assert leader.reply(**{"match": 2, **other}) == []
    assert leader.drops == ["another term, session or sequence"]
    assert (leader.peer().match, leader.leads.tracker.answers, leader.peer().heard_ns) == (0, {}, NOW)


def test_an_answer_is_contact_as_of_its_message() -> None:
    leader = Leader(1)
    leader.now += 50
    leader.leads.beat()
    leader.now += 5
    leader.reply(match=2, sequence=1)
    peer = leader.peer()
    assert (peer.contact_ns, peer.heard_ns, peer.last_index) == (NOW, leader.now, 2)
    assert leader.leads.tracker.answers == {"n1": (Code.SUCCESS, TERM)}


def test_a_read_round_is_confirmed_as_far_as_it_was_asked() -> None:
    leader = Leader(1, peers=4)
    leader.streams()
    leader.leads.reads.round = 3
    for said, known in ((2, 2), (1, 2), (9, 3)):
        leader.reply(match=2, read_round=said)
        assert leader.peer().read_round == known
    asked: list[int] = []
    leader.leads.reads.advance = lambda: asked.append(1)  # type: ignore[method-assign]
    leader.leads.reads.round = 4
    leader.reply("n2", match=2, read_round=0)
    assert asked == []
    leader.reply("n2", match=2, read_round=4)
    assert asked == [1]


def test_objections_are_heard_of_members_in_their_session() -> None:
    for other in ({"session": 9}, {"peer": "n9"}):
        leader = Leader(1)
        leader.reply(**{"code": Code.EXPIRED_TERM, "term": TERM + 1, **other})  # type: ignore[arg-type]
        assert leader.drops == ["an objection of a non-member"] and leader.replica.leadership
    leader = Leader(1)
    leader.peer().departing_until_ns = 1
    leader.reply(code=Code.EXPIRED_TERM, term=TERM + 1)
    assert leader.drops == ["an objection of a non-member"] and leader.replica.leadership


@pytest.mark.parametrize(("code", "term", "ends"), [
    (Code.EXPIRED_TERM, TERM + 1, "a peer is in a higher term"),
    (Code.SUCCESS, TERM + 1, "a peer is in a higher term"),
    (Code.INCONSISTENT_LEADER, TERM, "a peer follows another leader in this term"),
    (Code.TERM_NOT_READY, TERM, ""),
    (Code.EXPIRED_TERM, TERM, ""),
    (Code.EXPIRED_TERM, TERM - 1, ""),
])
def test_an_objection_is_judged_by_the_rules(code: Code, term: int, ends: str) -> None:
    leader = Leader(1)
    leader.reply(code=code, term=term, sequence=0)
    assert leader.reasons == [ends] * bool(ends)
    assert leader.replica.term == max(term, TERM)
    late = code == Code.EXPIRED_TERM and not ends
    assert leader.drops == ["an objection to an earlier leadership"] * late
    assert leader.leads.tracker.answers == ({} if late else {"n1": (code, term)})


def test_a_peer_that_cannot_take_the_term_gets_the_next_beat_soon_and_not_at_once() -> None:
    leader = Leader(1, config=DLEDGER)
    leads = leader.leads
    leader.reply(code=Code.TERM_NOT_READY)
    assert leads._next_beat == NOW + 10 * MS
    leads._next_beat = NOW + 5
    leader.reply(code=Code.TERM_NOT_READY)
    assert leads._next_beat == NOW + 5, "never later than planned"
    leader.now += 10 * MS + 3
    leads._next_beat = NEVER
    leader.reply(code=Code.TERM_NOT_READY)
    assert leads._next_beat == leader.now, "nor before now"


@pytest.mark.parametrize(("one_step", "told", "may", "role"), [
    (True, False, True, Role.FOLLOWER), (False, False, True, Role.CANDIDATE), (False, True, True, Role.FOLLOWER),
    (False, False, False, Role.FOLLOWER)])
def test_who_promised_no_silence_asks_again_at_once(one_step: bool, told: bool, may: bool, role: Role) -> None:
    leader = Leader(1, config=None if one_step else DLEDGER)
    leader.leads.transfer.told = told
    if not may:
        leader.replica.membership = Membership(("n1", "n2"))
    leader.leads.resign(LeaderDecision(True, known_term=TERM + 2, reason="for this test"))
    assert leader.replica.role == role
    assert (leader.replica.term if one_step else leader.replica.campaign.state.known_term) == TERM + 2


# --- acknowledgements


def test_an_acknowledgement_moves_a_peer_and_feeds_it() -> None:
    leader = Leader(1, 1)
    leader.propose(b"x")
    leader.synced()
    assert leader.reply(match=1) == [] and leader.others(Load), "from its match on, although more was sent"
    assert (leader.peer().state, leader.peer().match) == (State.REPLICATE, 1)
    ((_, message),) = leader.reply("n2", match=3, last=4)
    assert [each.first for each in message.frames] == [4]
    assert leader.turns("n2") == [("REPLICATE", "logs agree")] and leader.commit == 3


def test_an_acknowledgement_beyond_the_log_is_none() -> None:
    leader = Leader(1)
    leader.reply(match=3)
    assert leader.drops == ["a match beyond the log"] and leader.peer().match == 0
    leader.reply(match=2)
    assert leader.peer().match == 2 and len(leader.drops) == 1


def test_a_refusal_of_before_an_answer_is_history() -> None:
    leader = Leader(1, 1, 1)
    leader.leads.beat()
    leader.leads.beat()
    leader.reply(match=3, sequence=2)
    assert leader.peer().resolved_sequence == 2
    for sequence in (1, 2):
        leader.reply(code=Code.INCONSISTENT_STATE, sequence=sequence, last=3, hint=(1, 1))
    assert leader.drops == ["a refusal from the past"] * 2 and leader.peer().state is State.REPLICATE
    leader.reply(match=3, sequence=1)
    assert leader.peer().resolved_sequence == 2, "never falls"


def test_what_was_sent_long_ago_and_is_not_there_was_lost() -> None:
    leader = Leader(1)
    leader.streams()
    leader.propose(b"x")
    every = leader.leads.heartbeat_ns
    for later, last, state in ((2 * every, 2, State.REPLICATE), (1, 3, State.REPLICATE), (0, 2, State.PROBE)):
        leader.now += later
        leader.leads.beat()
        leader.reply(match=2, last=last)
        assert leader.peer().state is state, (later, last)
    assert leader.turns()[-1] == ("PROBE", "appends were lost") and leader.peer().next == 3
    leader = Leader(1)
    leader.streams()
    leader.propose(b"x")
    leader.beat(2 * every + 1)
    leader.propose(b"y")
    leader.reply(match=2, last=3)
    assert leader.peer().state is State.REPLICATE, "the oldest is there"
    leader.reply(match=2, last=2)
    assert leader.peer().state is State.PROBE, "the oldest is not"
    leader = Leader(1)
    leader.streams()
    leader.now += 3 * every
    leader.reply(match=2, last=1, sequence=1)
    assert leader.peer().state is State.REPLICATE, "nothing is in flight"


def test_a_leadership_that_ends_by_a_commit_feeds_nobody() -> None:
    leader = Leader(1)
    leader.streams("n2")
    leader.replica.membership = Membership(("n1", "n2"), members={"n1": Member("n1"), "n2": Member("n2")})
    leader.propose(b"x")
    leader.synced()
    leader.reply("n2", match=3)
    leader.leads.transfer.advance = pytest.fail  # type: ignore[method-assign]
    leader.reply("n1", match=3)
    assert leader.reasons == ["removed from the group"]


def test_hand_over_and_changes_go_on_with_an_acknowledgement() -> None:
    leader = Leader(1)
    leader.streams()
    leader.propose(b"x")
    leader.replica.leading(leader.now).transfer.begin(7, "n1")
    assert not leader.leads.transfer.told
    assert [message for _, message in leader.reply(match=3)] == [TimeoutNow(1, TERM, 3, 5)]
    leader = Leader(1, peers=4)
    asked: list[int] = []
    leader.streams()
    leader.propose(b"x")
    leader.leads.changes.advance = lambda: asked.append(1)  # type: ignore[method-assign]
    leader.reply("n1", match=3)
    assert asked == []
    leader.leads.changes.waiting = ("n9",)
    leader.reply("n2", match=3)
    assert asked == [1]
    leader.reply("n2", match=3)
    assert asked == [1], "nothing moved"


# --- refusals


@pytest.mark.parametrize(("hint", "following"), [
    ((3, 1), 4), ((5, 1), 4), ((9, 2), 5), ((3, 0), 1), ((1, 1), 2), ((0, 0), 1), ((9, 9), 6)])
def test_a_refusal_jumps_back_over_a_run_of_one_term(hint: tuple[int, int], following: int) -> None:
    leader = Leader(1, 1, 1, 2)
    assert leader.peer().next == 5
    leader.leads.beat()
    leader.reply(code=Code.INCONSISTENT_STATE, last=9, hint=hint)
    assert leader.peer().next == following
    assert leader.turns() == [("PROBE", "logs differ")]
    assert leader.peer().resolved_sequence == leader.peer().sequence - 1 == 2 and leader.peer().probe_sent


def test_a_refusal_of_before_a_match_was_known_is_no_loss() -> None:
    leader = Leader(1, 1, 1)
    leader.beat()
    leader.reply(match=3, sequence=1)
    assert (leader.peer().match_sequence, leader.peer().resolved_sequence) == (2, 1)
    leader.reply(code=Code.INCONSISTENT_STATE, sequence=2, last=9, hint=(1, 1))
    assert not lost(leader) and (leader.peer().state, leader.peer().next) == (State.PROBE, 4)


def test_a_refusal_looks_no_further_than_the_probe() -> None:
    leader = Leader(1, 1, 1, 1)
    leader.peer().next = 3
    leader.reply(code=Code.INCONSISTENT_STATE, last=9, hint=(9, 1))
    assert leader.peer().next == 4


@pytest.mark.parametrize(("hint", "following", "snapshot"), [
    ((1, 1), 2, True), ((2, 0), 2, True), ((2, 1), 3, False), ((3, 1), 4, False)])
def test_a_peer_whose_log_parts_below_what_is_held_needs_a_snapshot(
    hint: tuple[int, int], following: int, snapshot: bool,
) -> None:
    leader = Leader(1, 1, 1)
    leader.streams("n2")
    purged(leader, 2)
    leader.reply(code=Code.INCONSISTENT_STATE, last=9, hint=hint)
    leader.said()
    assert (leader.peer().state is State.SNAPSHOT) is snapshot
    assert snapshot or leader.peer().next == following


def test_a_peer_that_gets_a_snapshot_refuses_nothing() -> None:
    leader = Leader(1)
    leader.leads._start_snapshot(leader.peer())
    leader.reply(code=Code.INCONSISTENT_STATE, last=1, hint=(1, 1))
    assert leader.drops == ["a refusal from the past"] and leader.peer().state is State.SNAPSHOT


# --- who lost what it had acknowledged


def lost(leader: Leader) -> bool:
    """Whether n1 is taken to have lost what it had acknowledged."""
    return "n1" in leader.leads.tracker.uncounted


@pytest.mark.parametrize(("code", "last", "hint"), [
    (Code.SUCCESS, 1, (0, 0)), (Code.INCONSISTENT_STATE, 9, (1, 1)), (Code.DISK_FULL, 0, (0, 0))])
def test_a_log_that_ends_before_its_match_was_lost(code: Code, last: int, hint: tuple[int, int]) -> None:
    leader = Leader(1, 1)
    leader.streams()
    leader.reply(code=code, last=last, hint=hint, sequence=1)
    assert not lost(leader), "it may have been said before"
    leader.peer().lapsed, leader.peer().departing_until_ns = True, 2 * NOW
    leader.replica.log.memberships.append((9, leader.membership))
    leader.beat(9)
    leader.now += 5
    leader.reply(code=code, last=last, hint=hint)
    peer = leader.peer()
    assert (peer.session, peer.match, peer.owed, peer.lapsed, peer.departing_until_ns) == (3, 0, 3, True, 2 * NOW)
    assert peer.contact_ns == leader.now - 5 and lost(leader)
    assert leader.turns()[-1] == ("PROBE", "lost what it had acknowledged, up to 3")
    assert peer.probe_sent, "it is looked for at once"


def test_a_log_that_ends_at_its_match_was_not_lost() -> None:
    leader = Leader(1, 1)
    leader.streams()
    leader.leads.beat()
    leader.reply(match=0, last=3)
    assert not lost(leader)
    leader.leads.beat()
    leader.reply(code=Code.INCONSISTENT_STATE, last=3, hint=(3, 5))
    assert not lost(leader) and leader.peer().state is State.PROBE


def test_what_is_lost_twice_is_owed_in_whole() -> None:
    leader = Leader(1, 1)
    leader.streams()
    leader.peer().owed = 2
    leader.leads._forgot(leader.peer())
    assert leader.peer().owed == 3
    leader.leads._forgot(leader.peer())
    assert leader.peer().owed == 3
    leader.now += 4
    leader.leads.reads.round = 2
    leader.reply(match=2, read_round=2)
    assert leader.peer().owed == 3 and lost(leader)
    leader.reply(match=3)
    assert leader.peer().owed == 0 and not lost(leader)
    assert (leader.peer().read_round, leader.peer().counted_ns) == (0, leader.now)


def test_who_says_that_it_lost_something_counts_again_when_it_says_so_no_more() -> None:
    leader = Leader(1)
    leader.leads.beat()
    leader.leads.reads.round = 2
    leader.reply(match=2, hint=(9, 2), sequence=1, read_round=2)
    assert (leader.peer().lapsed, leader.peer().lapse_sequence, lost(leader), leader.commit) == (True, 2, True, 0)
    leader.reply(match=2, sequence=2)
    assert lost(leader), "that was under way when it said so"
    leader.now += 8
    leader.leads.beat()
    leader.reply(match=2)
    assert (leader.peer().lapsed, lost(leader), leader.commit) == (False, False, 2)
    assert (leader.peer().read_round, leader.peer().counted_ns) == (0, leader.now)


def test_an_acknowledgement_without_a_word_of_loss_changes_nothing() -> None:
    leader = Leader(1)
    leader.leads._note_lapse = pytest.fail  # type: ignore[method-assign, assignment]
    leader.reply(match=2)
    assert leader.peer().counted_ns == 0


# --- a broken connection


def test_what_was_in_flight_when_a_connection_broke_is_sent_again() -> None:
    leader = Leader(1)
    leader.streams()
    leader.replica.unreachable(leader.now, "n1")
    assert leader.peer().state is State.REPLICATE, "nothing was in flight"
    leader.propose(b"x")
    leader.replica.unreachable(leader.now, "n9")
    leader.replica.unreachable(leader.now, "n1")
    peer = leader.peer()
    assert (peer.state, peer.next, peer.probe_sent, leader.said()) == (State.PROBE, 3, True, [])
    assert leader.turns()[-1] == ("PROBE", "unreachable")
    peer.inflight.append((3, 1, 1))
    leader.replica.unreachable(leader.now, "n1")
    assert leader.turns().count(("PROBE", "unreachable")) == 1


# --- snapshots


META = SnapshotMeta(2, 1, 0, Membership(("n0", "n1", "n2"), members={"n1": Member("n1")}), 0, 250)


def sending(leader: Leader, offset: int = 0) -> None:
    """n1 is sent a snapshot, from this offset on."""
    leader.leads._start_snapshot(leader.peer())
    leader.peer().chunk_offset = offset
    if offset:
        leader.peer().snapshot_index = META.index
    leader.said()


def loaded(leader: Leader, meta: SnapshotMeta | None, offset: int, data: bytes | None, **other: Any) -> list[Any]:
    asked = {"peer": "n1", "session": leader.peer().session, **other}
    leader.replica.snapshots.chunk_loaded(leader.now, asked["peer"], asked["session"], meta, offset, data)
    return leader.said()


def taken(leader: Leader, peer: str = "n1", code: Code = Code.SUCCESS, **other: Any) -> list[Any]:
    values = {"term": TERM, "session": leader.peer().session, "sequence": leader.peer().sequence, "index": META.index,
              "offset": 0, "done": False, **other}
    return leader.tell(peer, SnapshotReply(1, values["term"], values["session"], values["sequence"], code,
                                           values["index"], values["offset"], values["done"]))


def test_a_snapshot_is_asked_for_once() -> None:
    leader = Leader(1, config=limits(snapshot_chunk_bytes=100))
    leader.leads._start_snapshot(leader.peer())
    leader.leads._start_snapshot(leader.peer())
    leader.said()
    assert [(each.session, each.index, each.offset, each.max_bytes) for each in leader.others(LoadChunk)] == [
        (1, 0, 0, 100)]
    assert leader.turns() == [("SNAPSHOT", "needs purged entries")]


def test_a_chunk_that_was_read_is_sent() -> None:
    leader = Leader(1)
    sending(leader)
    assert loaded(leader, META, 0, b"abc") == [
        ("n1", SnapshotChunk(1, TERM, 1, 2, encode_meta(META), 0, b"abc"))]
    assert leader.peer().snapshot_index == 2
    leader.peer().chunk_offset = 3
    assert loaded(leader, META, 3, b"")[0][1].offset == 3


@pytest.mark.parametrize("other", [{"peer": "n9"}, {"session": 9}, {"peer": "n2", "session": 2}])
def test_a_chunk_for_somebody_else_is_not_sent(other: dict[str, Any]) -> None:
    leader = Leader(1)
    sending(leader)
    assert loaded(leader, META, 0, b"abc", **other) == []


@pytest.mark.parametrize(("index", "offset"), [(3, 3), (2, 4), (3, 0)])
def test_a_chunk_that_is_not_next_is_not_sent(index: int, offset: int) -> None:
    leader = Leader(1)
    sending(leader, 3)
    leader.peer().snapshot_index = index
    assert loaded(leader, META, offset, b"abc") == [] and leader.peer().snapshot_index == index


@pytest.mark.parametrize(("meta", "data"), [(None, b""), (META, None), (None, None)])
def test_a_snapshot_that_is_gone_gives_way_to_a_newer_one(meta: SnapshotMeta | None, data: bytes | None) -> None:
    leader = Leader(1)
    sending(leader, 3)
    assert loaded(leader, meta, 3, data) == []
    assert [(each.index, each.offset) for each in leader.others(LoadChunk)] == [(0, 0)]
    assert (leader.peer().snapshot_index, leader.peer().chunk_offset) == (0, 0)
    assert loaded(leader, meta, 0, data) == [] and leader.others(LoadChunk) == [], "there is none: a beat asks again"


def test_a_chunk_that_was_taken_calls_for_the_next() -> None:
    leader = Leader(1)
    sending(leader)
    loaded(leader, META, 0, b"abc")
    leader.now += 1
    taken(leader, offset=3)
    assert [(each.index, each.offset) for each in leader.others(LoadChunk)] == [(2, 3)]
    assert (leader.peer().chunk_offset, leader.peer().heard_ns, leader.peer().chunk_asked_ns) == (
        3, leader.now, leader.now)
    taken(leader, offset=3)
    assert leader.others(LoadChunk) == [], "it is being read"
    taken(leader, offset=0)
    assert [each.offset for each in leader.others(LoadChunk)] == [0]
    taken(leader, offset=0)
    assert [each.offset for each in leader.others(LoadChunk)] == [0], "a receiver that begins anew"


@pytest.mark.parametrize("other", [
    {"session": 9}, {"term": TERM - 1}, {"sequence": 3}, {"peer": "n9"}])
def test_a_reply_to_another_chunk_says_nothing(other: dict[str, Any]) -> None:
    leader = Leader(1)
    sending(leader)
    loaded(leader, META, 0, b"abc")
    leader.now += 1
    assert leader.peer().sequence == 2
    taken(leader, **{"offset": 3, **other})
    assert leader.drops == ["another term, session or sequence"]
    assert (leader.peer().chunk_offset, leader.peer().heard_ns) == (0, NOW)


@pytest.mark.parametrize("other", [{"code": Code.DISK_FULL}, {"index": 3}])
def test_a_reply_that_takes_nothing_is_contact_alone(other: dict[str, Any]) -> None:
    leader = Leader(1)
    sending(leader)
    loaded(leader, META, 0, b"abc")
    leader.now += 1
    taken(leader, **{"offset": 3, **other})
    assert (leader.peer().chunk_offset, leader.peer().heard_ns, leader.others(LoadChunk)) == (0, leader.now, [])
    leader.peer().state = State.PROBE
    taken(leader, offset=3)
    assert leader.others(LoadChunk) == []


def test_a_snapshot_that_is_installed_counts_and_the_log_goes_on_behind_it() -> None:
    leader = Leader(1)
    sending(leader)
    loaded(leader, META, 0, b"abc")
    said = taken(leader, offset=250, done=True)
    assert (leader.peer().match, leader.peer().state, leader.commit) == (2, State.PROBE, 2)
    assert leader.turns()[-1] == ("PROBE", "snapshot installed")
    assert [message.prev_index for _, message in said] == [2]


def test_a_leadership_that_ends_by_an_installed_snapshot_feeds_nobody() -> None:
    leader = Leader(1)
    leader.replica.membership = Membership(("n1",), members={"n1": Member("n1")})
    sending(leader)
    loaded(leader, META, 0, b"abc")
    said = taken(leader, offset=250, done=True)
    assert leader.reasons == ["removed from the group"]
    assert not [message for _, message in said if isinstance(message, Append) and message.prev_index == 2
                and message.sequence > 3]


@pytest.mark.parametrize(("other", "ends"), [
    ({}, True), ({"session": 9}, False), ({"peer": "n9"}, False), ({"departing": True}, False)])
def test_a_reply_of_a_higher_term_ends_a_leadership(other: dict[str, Any], ends: bool) -> None:
    leader = Leader(1)
    sending(leader)
    leader.peer().departing_until_ns = 5 * bool(other.pop("departing", False))
    taken(leader, **{"term": TERM + 1, "offset": 3, "code": Code.EXPIRED_TERM, **other})
    assert (leader.replica.leadership is None) is ends
    assert leader.reasons == ["a peer is in a higher term"] * ends
    assert leader.leads.tracker.answers == ({"n1": (Code.EXPIRED_TERM, TERM + 1)} if ends else {})
    assert leader.others(LoadChunk) == leader.drops == []


# --- counting


def test_an_entry_of_an_earlier_term_commits_with_one_of_its_own() -> None:
    leader = Leader(1, 1)
    leader.reply("n1", match=2)
    leader.reply("n2", match=2)
    assert leader.commit == 0 and leader.leads._notice_at == NEVER
    leader.replica.gave_way = 3
    leader.reply("n1", match=3)
    assert (leader.commit, leader.replica.gave_way) == (3, 0)
    assert [each.index for each in leader.others(Committed)] == [3]
    assert [(each.index, each.counted) for each in leader.events if isinstance(each, CommitAdvanced)] == [(3, True)]


def test_its_own_disk_counts_as_any_other() -> None:
    leader = Leader(1, durable=False)
    leader.reply("n1", match=2)
    assert (leader.commit, leader.leads.tracker.needs_disk) == (0, True)
    leader.synced()
    assert (leader.commit, leader.leads.tracker.needs_disk) == (2, False)
    leader.propose(b"x")
    assert (leader.commit, leader.leads.tracker.needs_disk) == (2, False), "the others do not hold it either"
    leader.reply("n1", match=3)
    assert (leader.commit, leader.leads.tracker.needs_disk) == (2, True)
    leader.reply("n2", match=3)
    assert (leader.commit, leader.leads.tracker.needs_disk) == (3, False)


def test_a_hand_over_waits_for_its_own_disk_too() -> None:
    leader = Leader(1)
    asked: list[int] = []
    leader.leads.transfer.advance = lambda: asked.append(1)  # type: ignore[method-assign]
    leader.propose(b"x")
    leader.synced()
    assert asked == [1]
    leader = Leader(1, peers=0, durable=False)
    leader.replica.membership = Membership(("n1",))
    leader.leads.transfer.advance = pytest.fail  # type: ignore[method-assign]
    leader.leads._count = lambda: leader.replica.step_down("for this test")  # type: ignore[method-assign]
    leader.synced()
    assert leader.reasons == ["for this test"]


def test_a_commit_goes_on_with_reads_and_changes() -> None:
    leader = Leader(1)
    asked: list[str] = []
    leader.leads.reads.on_commit = lambda: asked.append("reads")  # type: ignore[method-assign]
    leader.leads.changes.advance = lambda: asked.append("changes")  # type: ignore[method-assign]
    leader.reply("n1", match=2)
    assert asked == ["reads", "changes"]
    leader.reply("n2", match=2)
    assert asked == ["reads", "changes"], "nothing new is committed"


def removed(leader: Leader) -> None:
    """The latest membership, at the end of the log, is one without n0."""
    leader.replica.membership = Membership(("n1", "n2"), members={"n1": Member("n1"), "n2": Member("n2")})
    leader.replica.log.memberships.append((leader.last, leader.replica.membership))


def test_a_leader_that_was_removed_leads_until_that_is_committed() -> None:
    leader = Leader(1)
    leader.streams()
    leader.propose(b"x")
    removed(leader)
    leader.synced()
    leader.reply("n1", match=3)
    assert leader.commit == 2 and leader.replica.leadership, "it does not count itself"
    asked: list[int] = []
    leader.leads.changes.advance = lambda: asked.append(1)  # type: ignore[method-assign]
    said = leader.reply("n2", match=3)
    assert leader.reasons == ["removed from the group"] and asked == [1]
    assert [(peer, type(message)) for peer, message in said] == [
        ("n1", Append), ("n2", Append), ("n2", TimeoutNow)]
    assert said[0][1].commit == 3 and said[2][1] == TimeoutNow(1, TERM, 3, 5)


def test_a_leader_whose_removal_is_not_committed_yet_goes_on() -> None:
    leader = Leader(1)
    leader.streams()
    leader.propose(b"x")
    leader.propose(b"y")
    removed(leader)
    leader.synced()
    leader.reply("n1", match=3)
    leader.reply("n2", match=3)
    assert leader.commit == 3 and leader.replica.leadership


def test_a_removed_leader_tells_nobody_who_lacks_something() -> None:
    leader = Leader(1)
    leader.streams()
    leader.propose(b"x")
    removed(leader)
    leader.propose(b"y")
    leader.synced()
    leader.reply("n1", match=3)
    said = leader.reply("n2", match=3)
    assert leader.reasons == ["removed from the group"]
    assert [type(message) for _, message in said] == [Append, Append]
    leader = Leader(1)
    leader.streams()
    leader.propose(b"x")
    removed(leader)
    leader.synced()
    leader.leads.tracker.best_successor = lambda: None  # type: ignore[method-assign]
    leader.reply("n1", match=3)
    leader.reply("n2", match=3)
    assert leader.reasons == ["removed from the group"]


# --- contact and leases


def test_a_lease_lasts_from_when_a_quorums_messages_were_sent() -> None:
    leader = Leader(1, config=Config(clock_drift_percent=10))
    length = leader.replica.rules.lease_ns * 90 // 100
    assert not leader.replica.lease_valid(leader.now), "it does not know what is committed"
    leader.streams()
    leader.replica.now = NOW + length - 1  # no pause
    assert leader.leads.lease_valid()
    leader.replica.now += 1
    assert not leader.replica.lease_valid(NOW + length)


def test_a_lease_rests_on_those_who_count() -> None:
    leader = Leader(1)
    leader.streams()
    leader.peer("n1").lapsed = leader.peer("n2").lapsed = True
    leader.leads.tracker.recount()
    assert leader.leads.tracker.quorum_contact() == NOW and leader.leads.tracker.quorum_contact(counted=True) == 0
    assert not leader.leads.lease_valid() and not leader.leads.tracker.round_confirmed(1)


@pytest.mark.parametrize("without", ["rules", "dead", "transfer", "vote", "floor"])
def test_a_lease_ends_with_what_it_rests_on(without: str) -> None:
    leader = Leader(1)
    leader.streams()
    leads = leader.leads
    assert leads.lease_valid()
    if without == "rules":
        leader.replica.rules.lease_ns = 0
    elif without == "dead":
        leads.lease_dead = True
    elif without == "transfer":
        leads.transfer.target = "n1"
    elif without == "vote":
        leader.replica.membership = Membership(("n1", "n2"), (), ("n0",))
    else:
        leads.lease_floor = NOW + 1
    assert not leads.lease_valid()


def test_a_lease_is_void_after_a_pause_until_newer_messages_are_answered() -> None:
    leader = Leader(1)
    leader.streams()
    leader.replica.void_lease(NOW)
    assert leader.leads.lease_floor == NOW + 1 and not leader.leads.lease_valid()
    leader.now += 1
    leader.leads.core.now = leader.now
    leader.leads.beat()
    leader.streams()
    assert leader.leads.lease_valid()


def test_reads_are_asked_of_the_leadership() -> None:
    leader = Leader(1)
    leader.streams()
    leader.leads.read(3, Read.LEASE)
    leader.said()
    assert [(each.ticket, each.lease) for each in leader.others(ReadReady)] == [(3, True)]


def test_a_leader_writes_its_frames() -> None:
    leader = Leader(1)
    leader.propose(b"x")
    assert [each.frames[0].first for each in leader.others(Write)] == [3]
