"""What leaves a core and in which order, and how far its log is ahead of the disk."""

from __future__ import annotations

import pytest

from raft.config import NEVER
from raft.log import RaftLog
from raft.membership import Membership
from raft.messages import HardState, Install, Lapse, Output, Recovered, Send, SnapshotMeta, TimeoutNow, Write
from raft.writes import WRITE_BYTES, WRITES_MAX, Writes
from tests.raft.script import frame

GROUP = 4
VOTERS = Membership(("n0", "n1", "n2"))
SAYS = TimeoutNow(GROUP, 1, 0, 0)
OTHER = Install(SnapshotMeta(1, 1, 0, VOTERS, 0))
VOTE = HardState(2, "n1")
BYTES = len(frame(1, 1).data)


class Bench:
    """A log, its writes, and a clock that the caller moves."""

    def __init__(self, durable: int = 0, *, bytes_max: int = 1 << 20) -> None:
        self.log = RaftLog(Recovered(), VOTERS, 1 << 20)
        self.writes = Writes(GROUP, self.log, bytes_max)
        self.now = 10
        if durable:
            self.append(*range(1, durable + 1))
            self.writes.durable(self.write().token)

    def append(self, *indexes: int, term: int = 1) -> None:
        for index in indexes:
            self.writes.append(frame(index, term))

    def drain(self) -> list[Output]:
        self.now += 1
        return self.writes.drain(self.now)

    def write(self) -> Write:
        """The only output that is there."""
        (write,) = self.drain()
        assert isinstance(write, Write)
        return write

    def install(self, index: int) -> None:
        self.writes.install(SnapshotMeta(index, 1, 0, VOTERS, 0), self.now)

    def full(self, hard_state: HardState = VOTE) -> None:
        self.writes.disk_became_full(hard_state)

    def room(self) -> None:
        self.writes.disk_has_room(self.now)


def firsts(write: Write) -> list[int]:
    return [each.first for each in write.frames]


def test_nothing_is_under_way_at_first() -> None:
    bench = Bench()
    writes = bench.writes
    assert (writes.durable_token, writes.hard_token, writes.install_token, writes.unsynced_bytes) == (0, 0, 0, 0)
    assert not writes.disk_full and not writes.disk_lags and writes.oldest_unsynced_ns() == NEVER
    assert bench.drain() == []
    writes.send("n1", SAYS)
    (send,) = bench.drain()
    assert isinstance(send, Send) and send.after == 0


# --- what a step changes


def test_a_step_fills_one_write() -> None:
    bench = Bench(2)
    writes = bench.writes
    bench.log.snapshot = SnapshotMeta(2, 1, 0, VOTERS, 0)
    bench.log.note_end(2)
    writes.keep_lapse(Lapse(9, 2))
    writes.set_hard_state(HardState(2, None))
    writes.set_hard_state(VOTE)
    bench.append(3, 4)
    assert writes.purge(2)
    write = bench.write()
    assert (write.token, write.group, write.hard_state, firsts(write), write.purge_to, write.lapse) == (
        2, GROUP, VOTE, [3, 4], 2, Lapse(9, 2))
    assert (write.install, write.truncate_from, writes.hard_token) == (None, 0, 2)
    bench.append(5)
    assert bench.write().token == 3


@pytest.mark.parametrize("before", ["frames", "snapshot", "truncation"])
def test_a_truncation_behind_what_changes_the_log_begins_another_write(before: str) -> None:
    bench = Bench(3)
    if before == "frames":
        bench.append(4)
    elif before == "truncation":
        bench.writes.truncate(3, bench.now)
    else:
        bench.writes._open().install = SnapshotMeta(1, 1, 0, VOTERS, 0)
    bench.writes.truncate(2, 77)
    first, second = bench.drain()
    assert isinstance(first, Write) and isinstance(second, Write)
    assert (first.token, second.token, second.truncate_from, bench.log.last_index) == (2, 3, 2, 1)
    assert bench.writes.oldest_unsynced_ns() == 77, "the first left when the second began"


def test_a_truncation_joins_a_write_that_leaves_the_log_alone() -> None:
    bench = Bench(3)
    bench.writes.set_hard_state(VOTE)
    bench.writes.truncate(2, bench.now)
    bench.append(2, term=2)
    write = bench.write()
    assert (write.hard_state, write.truncate_from, firsts(write)) == (VOTE, 2, [2])


def test_a_snapshot_is_a_write_of_its_own_that_has_left() -> None:
    bench = Bench(1)
    bench.append(2)
    bench.install(8)
    bench.writes.output(OTHER)
    bench.writes.set_hard_state(VOTE)
    frames, install, other, vote = bench.drain()
    assert isinstance(frames, Write) and isinstance(install, Write) and isinstance(vote, Write) and other is OTHER
    assert (firsts(frames), frames.install, firsts(install)) == ([2], None, [])
    assert install.install is not None and install.install.index == 8 == bench.log.last_index
    assert (frames.token, install.token, vote.token, bench.writes.install_token) == (2, 3, 4, 3)


def test_a_snapshot_joins_a_vote() -> None:
    bench = Bench(1)
    bench.writes.set_hard_state(VOTE)
    bench.install(8)
    write = bench.write()
    assert write.install is not None and write.hard_state == VOTE


@pytest.mark.parametrize(("index", "snapshot", "gone"), [(4, 5, 4), (9, 5, 5), (9, 9, 6), (1, 9, 1), (0, 9, 0)])
def test_the_log_goes_as_far_as_a_durable_snapshot_covers(index: int, snapshot: int, gone: int) -> None:
    bench = Bench(6)
    bench.append(7, 8, 9)
    bench.drain()
    for end in range(1, 9):
        bench.log.note_end(end)
    bench.log.snapshot = SnapshotMeta(snapshot, 1, 0, VOTERS, 0)
    assert bench.writes.purge(index) is (gone > 0)
    assert bench.log.purged_index == gone
    assert [each.purge_to for each in bench.drain() if isinstance(each, Write)] == [gone] * (gone > 0)
    assert not bench.writes.purge(index), "it is gone"


# --- what leaves


def test_outputs_leave_once_in_order_and_the_write_last() -> None:
    bench = Bench()
    bench.append(1)
    bench.writes.output(OTHER)
    bench.writes.send("n1", SAYS)
    other, send, write = bench.drain()
    assert other is OTHER and isinstance(send, Send) and isinstance(write, Write)
    assert (send.peer, send.message) == ("n1", SAYS)
    assert bench.drain() == []


def test_a_message_waits_for_the_write_of_term_and_vote() -> None:
    bench = Bench()
    for _ in range(3):
        bench.writes.set_hard_state(VOTE)
        bench.writes.send("n1", SAYS)
        bench.append(bench.log.last_index + 1)
        assert [each.after for each in bench.drain() if isinstance(each, Send)] == [bench.writes.hard_token]
    bench.append(4)
    bench.drain()
    for token, after in ((2, 3), (3, 0), (4, 0)):
        bench.writes.durable(token)
        bench.writes.send("n1", SAYS)
        (send,) = bench.drain()
        assert isinstance(send, Send) and send.after == after


def test_who_is_out_says_nothing_and_still_writes() -> None:
    bench = Bench()
    bench.writes.send("n1", SAYS)
    bench.writes.output(OTHER)
    bench.append(1)
    bench.writes.say_nothing()
    other, write = bench.drain()
    assert other is OTHER and isinstance(write, Write)


def test_what_comes_when_enough_is_under_way_joins_one_write() -> None:
    bench = Bench()
    for index in range(1, WRITES_MAX + 1):
        bench.append(index)
        assert bench.write().token == index
    for index in (1, 2):
        bench.append(WRITES_MAX + index)
        assert bench.drain() == []
    bench.writes.durable(1)
    assert firsts(bench.write()) == [WRITES_MAX + 1, WRITES_MAX + 2]


# --- what the disk reports


def test_a_write_makes_the_log_durable_as_it_was_then() -> None:
    bench = Bench()
    for index in (1, 2, 3):
        bench.append(index)
        bench.drain()
    bench.append(4)
    assert bench.writes.unsynced_bytes == 4 * BYTES + 3 * WRITE_BYTES
    assert bench.writes.oldest_unsynced_ns() == 11
    bench.writes.durable(2)
    assert (bench.log.durable_index, bench.writes.durable_token) == (2, 2)
    assert bench.writes.unsynced_bytes == 2 * BYTES + WRITE_BYTES
    assert bench.writes.oldest_unsynced_ns() == 13
    bench.writes.durable(3)
    assert (bench.log.durable_index, bench.writes.unsynced_bytes) == (3, BYTES)
    assert bench.writes.oldest_unsynced_ns() == NEVER
    bench.writes.durable(bench.write().token)
    assert (bench.log.durable_index, bench.writes.unsynced_bytes) == (4, 0)


def test_what_was_truncated_is_not_durable_when_its_write_is() -> None:
    bench = Bench(2)
    bench.append(3, 4)
    bench.drain()
    bench.writes.truncate(3, bench.now)
    bench.append(3, term=2)
    bench.drain()
    assert bench.writes.unsynced_bytes == 3 * BYTES + 2 * WRITE_BYTES, "it is on its way all the same"
    bench.writes.durable(2)
    assert bench.log.durable_index == 2
    bench.writes.durable(3)
    assert bench.log.durable_index == 3
    bench.append(4, term=2)
    bench.drain()
    bench.writes.truncate(2, bench.now)
    bench.writes.durable(4)
    assert (bench.log.durable_index, bench.log.last_index) == (1, 1)


def test_what_stayed_of_a_write_is_durable_with_it() -> None:
    bench = Bench()
    bench.append(1, 2, 3)
    bench.drain()
    bench.writes.truncate(3, bench.now)
    bench.writes.durable(1)
    assert bench.log.durable_index == 2


def test_a_late_word_of_writes_that_a_full_disk_lost_makes_nothing_durable() -> None:
    bench = Bench()
    bench.append(1)
    bench.drain()
    bench.full()
    bench.writes.durable(1)
    assert (bench.log.durable_index, bench.writes.durable_token) == (0, 1)


def test_a_write_of_before_a_snapshot_says_nothing_of_the_log_behind_it() -> None:
    bench = Bench()
    bench.append(1, 2)
    bench.drain()
    bench.install(8)
    bench.drain()
    bench.writes.durable(1)
    assert bench.log.durable_index == 0
    bench.writes.durable(2)
    assert bench.log.durable_index == 8


def test_a_write_of_no_frame_does_not_lower_what_is_durable() -> None:
    bench = Bench(3)
    bench.writes.set_hard_state(VOTE)
    bench.drain()
    bench.log.durable_index = 9
    bench.writes.durable(2)
    assert (bench.log.durable_index, bench.writes.unsynced_bytes) == (9, 0)


def test_a_disk_lags_from_a_limit_on() -> None:
    bench = Bench(bytes_max=2 * BYTES)
    bench.append(1)
    assert not bench.writes.disk_lags
    bench.append(2)
    assert bench.writes.disk_lags


# --- a full disk


def test_a_full_disk_is_told_again_what_must_not_be_forgotten() -> None:
    bench = Bench(2)
    bench.append(3)
    bench.drain()
    bench.append(4)
    bench.writes.output(OTHER)
    bench.install(9)
    bench.writes.durable(bench.writes.install_token)
    bench.append(10)
    bench.drain()
    bench.append(11)
    bench.writes.truncate(11, bench.now)
    bench.writes.send("n1", SAYS)
    bench.full()
    assert bench.writes.disk_full and bench.writes.unsynced_bytes == 0
    assert bench.writes.oldest_unsynced_ns() == NEVER
    send, write = bench.drain()
    assert isinstance(send, Send) and isinstance(write, Write), "the writes that were to leave are lost as well"
    assert (write.hard_state, write.truncate_from, write.install, write.frames) == (VOTE, 10, None, [])
    assert write.token == bench.writes.hard_token
    bench.writes.durable(write.token)
    assert (bench.log.durable_index, bench.log.last_index) == (9, 10), "the frame is in memory only"


@pytest.mark.parametrize("lapse", [Lapse(3, 1, (5,)), Lapse(told=(5,))])
def test_a_full_disk_is_told_again_of_a_lapse_that_it_lost(lapse: Lapse) -> None:
    """It was written never: the node voted again after its next start."""
    bench = Bench(2)
    bench.writes.keep_lapse(lapse)
    bench.drain()
    bench.full()
    assert bench.write().lapse == lapse
    bench.full()  # it takes that neither
    assert bench.drain() == []
    bench.room()
    again = bench.write()
    assert again.lapse == lapse
    bench.writes.durable(again.token)
    bench.full()
    assert bench.write().lapse is None


def test_a_full_disk_is_told_again_of_a_snapshot_that_it_lost() -> None:
    bench = Bench(2)
    bench.install(8)
    bench.append(9)
    bench.drain()
    bench.full()
    again = bench.write()
    assert again.install is not None and (again.install.index, again.truncate_from) == (8, 0)
    assert again.token == bench.writes.install_token
    bench.writes.durable(again.token)
    assert bench.log.durable_index == 8
    bench.room()
    assert firsts(bench.write()) == [9]


def test_where_not_even_a_vote_finds_room_nothing_leaves_that_rests_on_it() -> None:
    bench = Bench(1)
    bench.append(2)
    bench.full()
    bench.writes.send("n1", SAYS)
    send, write = bench.drain()
    assert isinstance(send, Send) and isinstance(write, Write) and send.after == write.token
    bench.full(HardState(3, None))
    bench.writes.send("n1", SAYS)
    bench.writes.output(OTHER)
    assert bench.drain() == [OTHER]
    bench.now = 40
    bench.room()
    bench.writes.send("n1", SAYS)
    vote, send, frames = bench.drain()
    assert isinstance(vote, Write) and isinstance(send, Send) and isinstance(frames, Write)
    assert (vote.hard_state, vote.frames, send.after, firsts(frames)) == (HardState(3, None), [], vote.token, [2])
    assert (bench.writes.oldest_unsynced_ns(), bench.writes.disk_full) == (40, False)
    bench.writes.durable(vote.token)
    assert bench.log.durable_index == 1
    bench.writes.durable(frames.token)
    assert bench.log.durable_index == 2


def test_a_disk_that_takes_votes_is_asked_again_although_it_is_full() -> None:
    bench = Bench(1)
    for term in (3, 4):
        bench.full(HardState(term, None))
        write = bench.write()
        assert write.hard_state == HardState(term, None)
        bench.writes.durable(write.token)
        bench.writes.send("n1", SAYS)
        (send,) = bench.drain()
        assert isinstance(send, Send) and send.after == 0


def test_what_a_full_disk_did_not_take_is_written_when_there_is_room() -> None:
    bench = Bench(1)
    bench.append(2, 3)
    bench.full()
    bench.writes.durable(bench.write().token)
    bench.room()
    assert bench.writes.unsynced_bytes == 2 * BYTES
    write = bench.write()
    assert (firsts(write), bench.log.durable_index) == ([2, 3], 1)
    bench.append(4)
    bench.drain()
    bench.writes.durable(write.token)
    assert (bench.log.durable_index, bench.writes.unsynced_bytes) == (3, BYTES + WRITE_BYTES)


def test_room_where_nothing_was_lost_writes_nothing() -> None:
    bench = Bench(1)
    bench.room()
    bench.append(2)
    assert bench.drain()
    bench.room()
    assert bench.drain() == []
    bench.writes.durable(2)
    bench.full()
    bench.drain()
    bench.room()
    assert bench.drain() == [] and not bench.writes.disk_full
