"""Snapshots of one group: its own let the log go, a leader's come in chunks and take the log's place."""

from __future__ import annotations

import attrs
import pytest

from raft.config import Config
from raft.frame import Kind
from raft.messages import (
    Code,
    Committed,
    Install,
    MembershipChanged,
    Send,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    StoreChunk,
    Write,
)
from raft.trace import LogPurged
from tests.raft.alone import NOW, THREE, Node, among, meta
from tests.raft.follower import SESSION, Follower, chunk
from tests.raft.script import frame

# --- snapshots of its own


def kept(node: Node, *ends: int) -> None:
    """Everything is applied; frames end at these indexes."""
    node.replica.advance_commit(node.replica.log.last_index, counted=False)
    node.replica.applied(NOW, node.replica.log.last_index)
    for end in ends:
        node.replica.log.note_end(end)
    node.said()


@pytest.mark.parametrize(("tail", "purged"), [(0, 6), (2, 4), (6, 0), (9, 0)])
def test_a_snapshot_lets_the_log_go_but_for_a_tail(tail: int, purged: int) -> None:
    node = Node(*[1] * 8, config=Config(snapshot_tail_entries=tail))
    kept(node, 2, 4)
    node.replica.snapshots.taken(NOW, meta(6))
    assert node.replica.log.purged_index == purged
    node.said()
    assert [each.purge_to for each in node.others(Write)] == [purged] * bool(purged)
    assert node.replica.log.snapshot == meta(6)
    assert [each.index for each in node.events if isinstance(each, LogPurged)] == [purged] * bool(purged)


def test_a_tail_has_a_limit_in_bytes_too() -> None:
    node = Node(1, config=Config(snapshot_tail_entries=9, snapshot_tail_bytes=0))
    for index in (2, 3, 4):
        node.append(index - 1, frame(index, 3, b"x" * 99))
    node.synced()
    kept(node, 2, 3)
    node.replica.snapshots.taken(NOW, meta(4, 3))
    assert node.replica.log.purged_index == 4


def test_an_older_snapshot_changes_nothing() -> None:
    node = Node(*[1] * 8, config=Config(snapshot_tail_entries=0))
    kept(node)
    node.replica.snapshots.taken(NOW, meta(6))
    for index in (5, 6):
        node.replica.snapshots.taken(NOW, attrs.evolve(meta(index), size=9))
        assert node.replica.log.snapshot == meta(6)
    node.replica.snapshots.taken(NOW, meta(7))
    assert node.replica.log.snapshot == meta(7) and node.replica.log.purged_index == 7


def test_a_log_that_is_too_long_is_let_go_up_to_the_snapshot() -> None:
    node = Node(*[1] * 8)
    kept(node, 4)
    node.replica.snapshots.let_go(NOW)
    assert node.replica.log.purged_index == 0
    node.replica.snapshots.taken(NOW, meta(6))
    assert node.replica.log.purged_index == 0
    node.replica.snapshots.let_go(NOW)
    assert node.replica.log.purged_index == 6


def test_a_snapshot_is_described_as_of_its_index() -> None:
    node = Node(1, 1)
    later = among("n0", "n1")
    (last,) = [frame(3, 3, b"x", b"y")]
    node.append(2, last, frame(5, 3, later.encode(), kind=Kind.MEMBERSHIP), commit=5)
    node.synced()
    node.replica.applied(node.now, 5)
    node.replica.wall_ms = 77
    assert node.replica.snapshots.meta(4) == SnapshotMeta(4, 3, last.mark, THREE, 0, wall_ms=77)
    assert node.replica.snapshots.meta(5).membership == later and node.replica.snapshots.meta(5).membership_index == 5
    assert node.replica.snapshots.meta(3).mark == 0, "within a frame"
    assert (node.replica.snapshots.meta(2).mark, node.replica.snapshots.meta(2).term) == (0, 1), "not in memory"


# --- a leader's


def staged(code: Code, index: int = 0, offset: int = 0, done: bool = False) -> list[SnapshotReply]:
    return [SnapshotReply(1, 3, SESSION, 8, code, index, offset, done)]


def test_a_piece_that_no_leader_sent_is_answered_to_nobody() -> None:
    node = Node(1)
    node.replica.snapshots.chunk_stored(NOW, "n1", meta(5, 2), 5, False)
    assert node.said() == [] and node.replica.snapshots.answer_due is None


def test_a_piece_is_stored_and_then_answered() -> None:
    node = Follower(1)
    of = meta(5, 2, size=10)
    node.append(1, 1)
    node.script.now += 5
    assert node.tell(chunk(of, 0, b"12345")) == []
    assert [(each.peer, each.meta, each.offset, each.data) for each in node.outputs
            if isinstance(each, StoreChunk)] == [("n0", of, 0, b"12345")]
    assert node.replica.election_deadline == node.script.now + node.replica.silence_ns
    node.replica.snapshots.chunk_stored(node.script.now, "n2", of, 5, False)
    assert node.said() == [], "of another leader"
    node.replica.snapshots.chunk_stored(node.script.now, "n0", of, 5, False)
    assert node.said() == staged(Code.SUCCESS, 5, 5)
    node.replica.snapshots.chunk_stored(node.script.now, "n0", of, 5, False)
    assert node.said() == [], "answered once"
    assert node.tell(chunk(of, 5, b"123456")) == [] and node.drops == ["beyond the size of the snapshot"]
    assert node.tell(chunk(of, 5, b"67890")) == [] and len(node.drops) == 1


def test_no_piece_is_stored_before_the_leaders_term_is_on_disk() -> None:
    node = Follower(1)
    piece = chunk(meta(5, 4, size=3), 0, b"123", term=4)
    assert node.tell(piece) == [SnapshotReply(1, 4, SESSION, 8, Code.SUCCESS, 5, 0, False)]
    assert [each.after for each in node.outputs if isinstance(each, Send)] == [node.replica.writes.hard_token]
    assert not [each for each in node.outputs if isinstance(each, StoreChunk)]
    node.synced()
    assert node.tell(piece) == []
    assert [each.data for each in node.outputs if isinstance(each, StoreChunk)] == [b"123"]


def test_a_whole_snapshot_is_installed_and_answered_when_it_is_durable_and_taken() -> None:
    node = Follower(1)
    of = meta(5, 2, size=3)
    node.append(1, 1)
    node.tell(chunk(of, 0, b"123"))
    node.replica.snapshots.chunk_stored(node.script.now, "n0", of, 3, True)
    assert node.said() == []
    assert [each.meta for each in node.outputs if isinstance(each, Install)] == [of]
    assert node.waits()
    assert node.tell(chunk(of, 0, b"123")) == [] and node.drops == ["a snapshot is being installed"]
    assert node.synced() == [], "the state machine does not hold it yet"
    node.replica.snapshots.installed(node.script.now, of)
    assert node.said() == staged(Code.SUCCESS, 5, 3, True)
    assert node.following.verified == 5 and not node.waits()
    assert node.tell(chunk(of, 0, b"123")) == staged(Code.SUCCESS, 5, 3, True)


def test_a_snapshot_that_is_taken_before_it_is_durable_is_answered_by_the_sync() -> None:
    node = Follower(1)
    of = meta(5, 2, size=3)
    node.tell(chunk(of, 0, b"123"))
    node.replica.snapshots.chunk_stored(node.script.now, "n0", of, 3, True)
    node.replica.snapshots.installed(node.script.now, of)
    assert node.said() == []
    assert node.synced() == staged(Code.SUCCESS, 5, 3, True)
    assert node.synced() == []


def test_a_snapshot_installed_for_a_leader_that_is_gone_is_answered_to_nobody() -> None:
    node = Follower(1)
    of = meta(5, 2, size=3)
    node.tell(chunk(of, 0, b"123"))
    node.replica.snapshots.chunk_stored(node.script.now, "n0", of, 3, True)
    node.replica.become_follower(None, "for this test")
    node.said()
    node.replica.snapshots.installed(node.script.now, of)
    assert node.synced() == [] and not node.waits()


def test_a_snapshot_that_the_log_covers_is_done_when_that_is_durable() -> None:
    node = Follower(1, 1, 2)
    assert node.tell(chunk(meta(3, 2, size=4))) == staged(Code.SUCCESS, 3, 4, True)
    assert node.replica.commit_index == 3, "a snapshot is of what is committed"
    node.append(3, 2, frame(4, 3))
    assert node.tell(chunk(meta(4, 3, size=4))) == [], "not durable yet"
    assert node.replica.commit_index == 4
    assert not [each for each in node.outputs if isinstance(each, StoreChunk)]


def test_a_snapshot_of_what_is_purged_is_here() -> None:
    node = Follower(1, 1, 2)
    node.append(3, 2, commit=3)
    node.replica.applied(node.script.now, 3)
    node.replica.log.note_end(2)
    node.replica.snapshots.taken(node.script.now, meta(2, 1))
    node.replica.snapshots.purge(2)
    assert node.tell(chunk(meta(1, 1, size=4))) == staged(Code.SUCCESS, 1, 4, True)


def test_a_snapshot_that_contradicts_what_is_committed_is_refused_in_words() -> None:
    node = Follower(1, 1, 2)
    node.append(3, 2, commit=2)
    assert node.tell(chunk(meta(2, 2, size=4))) == []
    assert node.drops == ["contradicts committed entry 2"]
    assert node.tell(chunk(meta(3, 1, size=4))) == []
    assert [each.meta.index for each in node.outputs if isinstance(each, StoreChunk)] == [3], "not committed: taken"


def test_entries_that_came_while_a_snapshot_was_stored_save_installing_it() -> None:
    node = Follower(1)
    of = meta(2, 3, size=3)
    node.tell(chunk(of, 0, b"123"))
    node.append(1, 1, frame(2, 3))
    node.synced()
    node.replica.snapshots.chunk_stored(node.script.now, "n0", of, 3, True)
    assert node.said() == staged(Code.SUCCESS, 2, 3, True)
    assert node.replica.installing is None


def test_no_snapshot_is_taken_on_a_full_disk() -> None:
    node = Follower(1)
    of = meta(5, 2, size=3)
    node.tell(chunk(of, 0, b"123"))
    node.full()
    node.replica.snapshots.chunk_stored(node.script.now, "n0", of, 3, True)
    assert node.said() == staged(Code.DISK_FULL) and node.replica.installing is None
    deadline = node.replica.election_deadline
    assert node.tell(chunk(of, 0, b"123")) == staged(Code.DISK_FULL)
    assert node.replica.election_deadline == deadline
    assert node.tell(chunk(of, term=2)) == staged(Code.EXPIRED_TERM)


def test_a_piece_that_makes_no_sense_or_meets_a_lagging_disk_is_dropped() -> None:
    node = Follower(1)
    assert node.tell(SnapshotChunk(1, 3, SESSION, 8, b"rubbish", 0, b"")) == []
    assert len(node.drops) == 1
    node.replica.writes.unsynced_bytes += node.replica.config.unsynced_bytes_max
    assert node.tell(chunk(meta(5, 2, size=3), 0, b"123")) == []
    assert node.drops[-1] == "the disk lags behind"


# --- installed


def test_nothing_is_applied_while_a_snapshot_is_installed() -> None:
    node = Node(1)
    node.append(1)
    snapshot = meta(5, 2)
    node.replica.snapshots.install(snapshot)
    node.said()
    assert [type(output) for output in node.outputs] == [Write, Install]
    assert node.others(Install)[0].meta is snapshot
    assert (node.replica.commit_index, node.replica.announced_index, node.replica.installing) == (5, 5, snapshot)
    node.replica.append(frame(6, 3))
    node.synced()
    node.replica.advance_commit(6, counted=False)
    assert node.said() == [] and node.others(Committed) == []
    node.replica.snapshots.installed(NOW, meta(5, 2))
    assert node.replica.installing is snapshot, "another one"
    node.replica.snapshots.installed(NOW, snapshot)
    node.said()
    assert (node.replica.installing, node.replica.applied_index) == (None, 5)
    assert [each.index for each in node.others(Committed)] == [6]


def test_a_snapshot_brings_its_membership() -> None:
    node = Node(1)
    later = among("n0", "n4")
    node.replica.snapshots.install(meta(5, 2, later))
    node.said()
    assert node.replica.membership == later
    assert [each.membership for each in node.others(MembershipChanged)] == [later]


def test_a_machine_that_is_further_than_a_snapshot_stays_there() -> None:
    node = Node(1)
    snapshot = meta(5, 2)
    node.replica.snapshots.install(snapshot)
    node.replica.applied_index = 7
    node.replica.snapshots.installed(NOW, snapshot)
    assert node.replica.applied_index == 7
