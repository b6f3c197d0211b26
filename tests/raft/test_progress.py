"""What a leader notes of one peer: nothing to begin with, then exactly what was sent and answered."""

from __future__ import annotations

from collections import deque
from typing import Any

from raft.progress import Progress, State


def noted(progress: Progress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in Progress.__slots__}


def test_to_begin_with_nothing_is_known_of_a_peer() -> None:
    assert noted(Progress("n1", 7, 10, 5)) == {
        "peer": "n1", "session": 7, "state": State.PROBE, "next": 10, "match": 0, "match_sequence": 0,
        "sequence": 0, "resolved_sequence": 0, "inflight": deque(), "inflight_bytes": 0, "sent_times": deque(),
        "contact_ns": 5, "heard_ns": 5, "chunk_asked_ns": 5, "counted_ns": 0, "departing_until_ns": 0,
        "owed": 0, "lapsed": False, "lapse_sequence": 0, "sent_commit": 0, "read_round": 0, "last_index": 0,
        "probe_sent": False, "load_pending": False, "disk_full": False, "snapshot_index": 0, "chunk_offset": 0}


def test_contact_is_as_fresh_as_the_departure_of_the_newest_message_that_is_answered() -> None:
    progress = Progress("n1", 1, 1, 5)
    assert [progress.stamp(now) for now in (10, 20, 30, 40)] == [1, 2, 3, 4]
    for sequence, contact in ((0, 5), (1, 10), (3, 30), (2, 30), (3, 30), (9, 40)):
        progress.answered(sequence, 100 + sequence)
        assert (progress.contact_ns, progress.heard_ns) == (contact, 100 + sequence)


def test_a_window_is_open_below_both_of_its_limits() -> None:
    progress = Progress("n1", 1, 1, 0)
    progress.sent_frames(3, 100, 8)
    progress.sent_frames(5, 50, 9)
    assert (progress.next, progress.inflight_bytes, list(progress.inflight)) == (6, 150, [(3, 100, 8), (5, 50, 9)])
    assert progress.window_open(151, 3)
    assert not progress.window_open(150, 3) and not progress.window_open(151, 2)


def test_an_acknowledgement_frees_the_window_and_never_lowers_match() -> None:
    progress = Progress("n1", 1, 1, 0)
    progress.sequence = 4
    for last in (3, 5, 8):
        progress.sent_frames(last, 10, 0)
    assert progress.acknowledge(4)
    assert (progress.match, progress.next, progress.inflight_bytes, len(progress.inflight)) == (4, 9, 20, 2)
    assert progress.match_sequence == 4
    progress.sequence = 6
    assert not progress.acknowledge(4) and not progress.acknowledge(2)
    assert (progress.match, progress.match_sequence) == (4, 4)
    assert progress.acknowledge(8)
    assert (progress.match, progress.next, progress.inflight_bytes, progress.match_sequence) == (8, 9, 0, 6)
    progress.next = 9
    assert progress.acknowledge(9) and progress.next == 10, "what was sent before a probe is acknowledged late"
    assert progress.acknowledge(20) and progress.next == 21


def test_a_probe_forgets_what_is_in_flight_and_never_begins_at_or_below_match() -> None:
    progress = Progress("n1", 1, 1, 0)
    progress.replicate()
    progress.acknowledge(5)
    for asked, begins in ((9, 9), (6, 6), (5, 6), (1, 6)):
        progress.sent_frames(30, 10, 0)
        progress.probe_sent = progress.load_pending = True
        progress.probe_from(asked)
        assert (progress.state, progress.next, progress.probe_sent, progress.load_pending) == (
            State.PROBE, begins, False, False)
        assert (list(progress.inflight), progress.inflight_bytes) == ([], 0)
    progress.next = 30
    progress.replicate()
    assert (progress.state, progress.next) == (State.REPLICATE, 6), "from what is durable there"


def test_a_snapshot_is_sent_from_its_beginning() -> None:
    progress = Progress("n1", 1, 1, 0)
    progress.acknowledge(5)
    progress.sent_frames(30, 10, 0)
    progress.snapshot_index, progress.chunk_offset, progress.load_pending = 9, 4, True
    progress.send_snapshot()
    assert (progress.state, progress.next, progress.snapshot_index, progress.chunk_offset) == (
        State.SNAPSHOT, 6, 0, 0)
    assert (list(progress.inflight), progress.inflight_bytes, progress.load_pending) == ([], 0, False)
