"""Replication and commit: bugs that other libraries had (table L), each as a scenario."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import cbor2
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from raft.applier import Applier
from raft.config import MS, Config, Read
from raft.frame import Frame, Kind
from raft.leadership import Leadership
from raft.log import RaftLog
from raft.membership import Membership
from raft.messages import (
    Append,
    AppendReply,
    Code,
    Committed,
    Recovered,
)
from raft.pending import Proposals
from raft.progress import Progress, State
from raft.statemachine import Machine
from raft.trace import CommitAdvanced, Dropped
from raft.wakeup import Bell
from tests.raft.script import Mail, Node, Script, disk, frame

NO_TAIL = Config(snapshot_tail_entries=0)


def append(
    term: int, prev: tuple[int, int], *frames: Frame, commit: int = 0, sequence: int = 1, session: int = 1,
) -> Append:
    """From a leader of ``term``, behind ``prev`` (index, term)."""
    return Append(1, term, session, sequence, *prev, commit, 0, frames)


def follower(terms: list[int]) -> Script:
    """n1 has a log of these terms on its disk."""
    return Script(3, disks={"n1": disk(terms)})


def compacted(purged: int, last: int) -> Script:
    """n1's log of term 1 begins behind ``purged``, where its snapshot ends, and ends at ``last``."""
    script = Script(3, config=NO_TAIL, disks={"n1": disk([1] * purged)})  # a log may be purged where one life ended
    hear(script, append(1, (purged, 1), *(frame(index, 1) for index in range(purged + 1, last + 1)), commit=purged))
    script.snapshot("n1")
    assert script["n1"].log.purged_index == purged and script["n1"].log.last_index == last
    script.mail.clear()
    return script


def hear(script: Script, message: Append, source: str = "n0") -> AppendReply | None:
    """n1 gets a leader's message; its answer, if it gives one."""
    script["n1"].receive(script.now, source, message)
    script.pump("n1")
    answers = [mail for mail in script.mail if mail.source == "n1" and isinstance(mail.message, AppendReply)]
    for mail in answers:
        script.mail.remove(mail)
    answer = answers[-1].message if answers else None
    assert answer is None or isinstance(answer, AppendReply)
    return answer


def leading(replica: Any) -> Leadership:
    assert isinstance(replica.leadership, Leadership)
    return replica.leadership


def acknowledge(script: Script, peer: str, match: int, leader: str = "n0") -> None:
    """``peer`` tells the leader what is durable there; the test says so, whatever the peer holds."""
    replica = script[leader]
    progress = replica.peers[peer]
    replica.receive(script.now, peer, AppendReply(
        1, replica.term, progress.session, progress.sequence, Code.SUCCESS, match, max(match, progress.match),
        0, 0, 0))
    script.pump(leader)


def lonely_leader(terms: list[int], size: int = 5) -> Script:
    """n0 leads with a log of these terms before its own; nothing it sent has arrived."""
    others = [1] if terms else []
    script = Script(size, disks={f"n{i}": disk(others if i else terms) for i in range(size)})
    script.filter = lambda mail: not isinstance(mail.message, Append)
    script.elect("n0")
    script.mail.clear()
    return script


def dropped(node: Node) -> list[str]:
    return [event.reason for event in node.traces if isinstance(event, Dropped)]


def test_BUG_L1_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    """LogCabin 44, PySyncObj 169, CCF; paper Fig. 8: an old entry reaches a majority under a new leader."""
    script = lonely_leader([1, 2])
    leader = script["n0"]
    assert leader.term > 2 and leader.log.term_at(2) == 2
    acknowledge(script, "n1", 2)
    acknowledge(script, "n2", 2)
    acknowledge(script, "n3", 2)
    assert leader.commit_index == 0
    acknowledge(script, "n1", 3)
    acknowledge(script, "n2", 3)
    assert leader.commit_index == 3


def test_BUG_L2_the_count_goes_on_past_old_terms() -> None:
    """raftos 30: the leader's own entry sits behind old ones. It commits them all, not nothing."""
    script = lonely_leader([1, 1, 2, 2])
    leader = script["n0"]
    acknowledge(script, "n1", 5)
    assert leader.commit_index == 0
    acknowledge(script, "n2", 5)
    assert leader.commit_index == 5


@pytest.mark.parametrize("late", [
    append(1, (0, 0), frame(1, 1)),
    append(1, (1, 1)),
    append(1, (1, 1), frame(2, 1)),
    append(1, (0, 0)),
])
def test_BUG_L3_a_late_append_truncates_nothing_without_a_conflict(late: Append) -> None:
    """raftos 26, openraft 9540c904, PySyncObj: delayed or empty appends that match arrive after newer ones."""
    script = follower([])
    hear(script, append(1, (0, 0), frame(1, 1), frame(2, 1), frame(3, 1), sequence=9))
    answer = hear(script, late)
    assert answer is not None and answer.code == Code.SUCCESS and answer.match == 3
    assert script.nodes["n1"].persisted() == [(1, 1), (2, 1), (3, 1)]


def test_BUG_L4_a_divergent_suffix_is_not_committed_by_an_empty_append() -> None:
    """copycat 265, nebula 2483: commit is bounded by what this leader's messages have verified."""
    script = follower([1, 1, 2, 2])
    answer = hear(script, append(3, (2, 1), commit=4))
    assert answer is not None and answer.match == 2
    assert script["n1"].commit_index == 2
    hear(script, append(3, (2, 1), frame(3, 3), commit=4, sequence=2))
    assert script["n1"].commit_index == 3 and script.nodes["n1"].persisted() == [(1, 1), (2, 1), (3, 3)]


def test_BUG_L5_a_commit_index_never_falls() -> None:
    """PySyncObj 166: a new leader knows less of what is committed and says so in its heartbeats."""
    script = follower([1, 1, 1])
    hear(script, append(1, (3, 1), commit=3))
    for number, commit in enumerate((1, 0, 2), 1):
        hear(script, append(2, (3, 1), commit=commit, sequence=number), source="n2")
        assert script["n1"].commit_index == 3
    commits = [event.index for event in script.nodes["n1"].traces if isinstance(event, CommitAdvanced)]
    assert commits == [3]


def test_BUG_L6_a_leader_never_names_a_term_it_no_longer_knows() -> None:
    """etcd 76f1249: an empty append built after compaction had term 0 at its prev. The peer gets the snapshot."""
    script = Script(3, config=NO_TAIL)
    leader = script.elect("n0")
    script.cut("n2")
    for _ in range(3):
        script.propose("n0", *[b"x"] * 600)
        script.settle()
    assert leader.peers["n2"].state == State.REPLICATE
    script.snapshot("n0")
    assert leader.log.purged_index > leader.peers["n2"].match
    sent: list[Append] = []

    def watch(mail: Mail) -> bool:
        if isinstance(mail.message, Append):
            sent.append(mail.message)
        return True

    script.heal()
    script.filter = watch
    script.elapse(3_000)
    assert sent and all(message.prev_term for message in sent if message.prev_index)
    assert script["n2"].commit_index == leader.commit_index and script.nodes["n2"].applied == script.nodes["n0"].applied


def test_BUG_L6_a_follower_refuses_an_index_without_a_term() -> None:
    """etcd 76f1249, the other side: prev above 0 with term 0 is nothing a leader can mean, purged or not."""
    script = compacted(purged=3, last=5)
    for prev in (2, 3, 4, 5):
        answer = hear(script, append(1, (prev, 0), sequence=2))
        assert answer is not None and answer.code == Code.INCONSISTENT_STATE


def test_BUG_L7_an_append_from_the_start_duplicates_nothing_that_was_compacted() -> None:
    """willemt 118: prev 0 arrives after the follower compacted. What is purged is skipped, the rest compared."""
    script = compacted(purged=3, last=5)
    answer = hear(script, append(1, (0, 0), *(frame(index, 1) for index in range(1, 7)), sequence=2))
    assert answer is not None and (answer.code, answer.match) == (Code.SUCCESS, 6)
    assert script.nodes["n1"].persisted() == [(4, 1), (5, 1), (6, 1)]


def test_BUG_L8_a_commit_index_beyond_the_log_is_clamped() -> None:
    """TiKV 10078 and 7353, etcd 2676, raft-rs 209: the process aborted. Guards both bounds of a commit index."""
    script = follower([1, 1])
    hear(script, append(1, (2, 1), commit=1 << 40))
    assert script["n1"].commit_index == 2
    script["n1"].advance_commit(1 << 40, counted=False)
    assert script["n1"].commit_index == 2


def test_BUG_L8_an_acknowledgement_beyond_the_log_is_refused() -> None:
    """raft-rs 209, from below: a peer claims entries that do not exist."""
    script = lonely_leader([])
    before = script["n0"].commit_index
    for peer in ("n1", "n2", "n3"):
        acknowledge(script, peer, 1 << 40)
    assert script["n0"].commit_index == before
    assert dropped(script.nodes["n0"]).count("a match beyond the log") == 3


@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3", "n4"]), st.integers(0, 12)), max_size=20))
def test_BUG_L9_commit_is_what_sorting_all_matches_gives(acks: list[tuple[str, int]]) -> None:
    """openraft 1802: a fast path went wrong for some orders of acknowledgements. Compared after every single one."""
    script = lonely_leader([])
    leader = script["n0"]
    for _ in range(10):
        script.propose("n0", b"x")
    assert leader.log.durable_index == leader.log.last_index == 11
    held = dict.fromkeys(("n1", "n2", "n3", "n4"), 0)
    for peer, match in acks:
        acknowledge(script, peer, match)
        if match <= leader.log.last_index:
            held[peer] = max(held[peer], match)
        agreed = max(index for index in range(leader.log.last_index + 1)
                     if 1 + sum(match >= index for match in held.values()) >= 3)
        assert leader.commit_index == agreed


def test_BUG_L10_a_leader_alone_commits_nothing_in_a_group_of_several() -> None:
    """openraft beb0302b: no voter has answered. Its own disk is one vote."""
    script = Script(3)
    leader = script.elect("n0")
    before = leader.commit_index
    script.cut("n0")
    script.propose("n0", b"x")
    script.elapse(script.config.election_timeout_ms // 2)
    assert leader.log.durable_index > before and leader.commit_index == before


def test_BUG_L11_diverged_logs_meet_in_one_step_per_term() -> None:
    """openraft 6d53aa12: 50 and more conflicting entries, one step back per message. Guards the hint's jumps."""
    script = Script(3, disks={
        "n0": disk([1] * 10 + [5] * 60), "n1": disk([1] * 10 + [2] * 30 + [3] * 40), "n2": disk([1] * 10 + [5] * 60)})
    refusals = 0

    def watch(mail: Mail) -> bool:
        nonlocal refusals
        message = mail.message
        refusals += isinstance(message, AppendReply) and message.code == Code.INCONSISTENT_STATE and mail.source == "n1"
        return True

    script.filter = watch
    script.elect("n0")
    script.elapse(500)
    assert script.nodes["n1"].persisted() == script.nodes["n0"].persisted()
    assert refusals <= 4


def test_BUG_L12_a_purged_prev_matches_and_nothing_is_deleted() -> None:
    """openraft 71a290cd and 511 (databend 7112): prev was purged by a snapshot. It is committed, so it matches."""
    script = compacted(purged=3, last=6)
    answer = hear(script, append(1, (2, 1), frame(3, 1), frame(4, 1), sequence=2))
    assert answer is not None and answer.code == Code.SUCCESS
    assert script.nodes["n1"].persisted() == [(4, 1), (5, 1), (6, 1)]


def test_BUG_L13_the_term_at_the_end_of_a_snapshot_is_known() -> None:
    """MicroRaft d300e13: an old leader's log is a snapshot and a tail that nobody else has; prev is the boundary."""
    script = compacted(purged=3, last=6)
    answer = hear(script, append(2, (3, 1), frame(4, 2)), source="n2")
    assert answer is not None and (answer.code, answer.match) == (Code.SUCCESS, 4)
    assert script.nodes["n1"].persisted() == [(4, 2)]
    answer = hear(script, append(2, (3, 2), sequence=2), source="n2")
    assert answer is not None and answer.code == Code.INCONSISTENT_STATE


def test_BUG_L14_nothing_below_the_commit_index_is_truncated() -> None:
    """KAFKA-12460: a leader that is wrong orders it. Refused and told, whatever its term."""
    script = follower([1, 1, 1])
    hear(script, append(1, (3, 1), commit=2))
    assert hear(script, append(9, (1, 1), frame(2, 9), frame(3, 9), frame(4, 9)), source="n2") is None
    assert script.nodes["n1"].persisted() == [(1, 1), (2, 1), (3, 1)]
    assert dropped(script.nodes["n1"]) == ["contradicts committed entry 2"]


def test_BUG_L15_a_new_leader_shows_no_commit_before_its_own_entry_is_committed() -> None:
    """KAFKA-12619: until then it knows less than it holds. No read is answered, no commit is told."""
    script = Script(3, disks={f"n{i}": disk([1, 1, 1]) for i in range(3)})
    script.filter = lambda mail: not isinstance(mail.message, AppendReply)
    leader = script.elect("n0")
    ticket = script.read("n0", Read.INDEX)
    script["n0"].receive(script.now, "n1", AppendReply(
        1, leader.term, leader.peers["n1"].session, leader.peers["n1"].sequence, Code.SUCCESS, 3, 4, 0, 0,
        leading(leader).reads.round))
    script.pump("n0")
    assert leader.commit_index == 0 and script.nodes["n0"].to_apply == 0
    assert script.outcome("n0", ticket) == "open"
    script.heal()
    script.elapse(200)
    assert script.outcome("n0", ticket) == "done" and script.nodes["n0"].reads[ticket].index >= 4


def test_BUG_L16_an_entry_above_its_leaders_term_is_refused() -> None:
    """Zeebe 5360: an old leader stamped one entry with the new term while it stepped down; two entries became one."""
    script = follower([1, 1])
    assert hear(script, append(3, (2, 1), frame(3, 4))) is None
    assert script.nodes["n1"].persisted() == [(1, 1), (2, 1)]
    assert dropped(script.nodes["n1"]) == ["frames do not follow each other"]


def test_BUG_L16_the_first_entry_of_a_term_names_its_creator() -> None:
    """Zeebe 5360: two creators of one term can be told apart by reading the log."""
    script = Script(3)
    script.elect("n0")
    script.transfer("n0", "n1")
    script.settle()
    frames = script.nodes["n2"].storage.read(1, 1, 1 << 20)
    creators = {one.term: cbor2.loads(one.payloads()[0])["leader"] for one in frames if one.kind == Kind.NOOP}
    assert creators == {1: "n0", 2: "n1"}


class Recorder:
    """A state machine that notes what it is given, and how long that takes on its clock."""

    def __init__(self, cost_ns: int = 0) -> None:
        self.seen: list[bytes] = []
        self.now = 0
        self._cost_ns = cost_ns

    def apply(self, command: bytes) -> object:
        self.seen.append(command)
        self.now += self._cost_ns
        return None

    def clock(self) -> int:
        return self.now


def applier(machine: Recorder, frames: list[Frame],
            load: Callable[[int, int], Awaitable[list[Frame]]],
            progress: Callable[[], None] = lambda: None) -> Applier:
    """Over a log of these frames, of which only the last is in memory."""
    log = RaftLog(Recovered(), Membership(), cache_bytes_max=1)
    for one in frames:
        log.append(one)
        log.durable_index = log.last_index

    async def blocking(call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    def fault(error: Exception) -> None:
        raise error

    config = Config()
    return Applier(
        machine=Machine(machine), log=log, config=config,
        proposals=Proposals(config, machine.clock, Bell(), lambda _: None, lambda: None),
        clock=machine.clock, load=load, progress=progress, fault=fault, run_blocking=blocking)


async def test_BUG_L17_storage_that_returns_more_than_asked_skips_and_repeats_nothing() -> None:
    """etcd 2519 and 8ecce32: paging committed entries. Loads here begin too early and go beyond what is committed."""
    frames: list[Frame] = []
    for index in range(1, 21, 2):
        frames.append(frame(index, 1, b"%d" % index, b"%d" % (index + 1), chain=frames[-1].mark if frames else 0))

    async def load(first: int, max_bytes: int) -> list[Frame]:
        return frames

    machine = Recorder()
    async with trio.open_nursery() as nursery:
        work = applier(machine, frames, load)
        nursery.start_soon(work.run)
        for target in (2, 4, 10, 18, 20):
            work.advance(target)
            await trio.testing.wait_all_tasks_blocked()
            assert machine.seen == [b"%d" % index for index in range(1, target + 1)]
        nursery.cancel_scope.cancel()


def test_BUG_L17_a_load_for_another_position_is_not_sent() -> None:
    """etcd 2519: a page that was read for an old position arrives after the position moved. No gap is sent."""
    script = Script(3)
    leader = script.elect("n0")
    for number in range(6):
        script.propose("n0", b"%d" % number)
        script.settle()
    progress = leader.peers["n1"]
    assert progress.state == State.REPLICATE
    late = leader.log.cached(6, 1)
    assert late is not None
    script.filter = lambda mail: False
    progress.next, progress.load_pending = 4, True
    leader.loaded(script.now, "n1", progress.session, 6, late)
    script.pump("n0")
    sent = [mail.message for mail in script.mail if mail.target == "n1" and isinstance(mail.message, Append)]
    assert [one.first for message in sent for one in message.frames] == list(range(4, leader.log.last_index + 1))
    assert progress.next == leader.log.last_index + 1


async def test_BUG_L18_applying_in_slices_keeps_order_while_more_is_committed() -> None:
    """etcd 2e0653d: the limit of a page, and new commits while a page is being applied. Both span slices here."""
    frames: list[Frame] = []
    for index in range(1, 61, 3):
        commands = [b"%d" % (index + step) for step in range(3)]
        frames.append(frame(index, 1, *commands, chain=frames[-1].mark if frames else 0))

    async def load(first: int, max_bytes: int) -> list[Frame]:
        at = (first - 1) // 3
        return frames[at : at + 4]

    machine, slices = Recorder(cost_ns=MS), [0]
    async with trio.open_nursery() as nursery:
        work = applier(machine, frames, load, lambda: slices.append(len(machine.seen)))
        nursery.start_soon(work.run)
        for target in (30, 33, 60):
            work.advance(target)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert machine.seen == [b"%d" % index for index in range(1, 61)]
    longest = max(after - before for before, after in pairwise(slices))
    assert Config().apply_slice_ms <= longest < 2 * Config().apply_slice_ms


def test_BUG_L18_the_window_spans_all_appends_in_flight() -> None:
    """etcd 2e0653d: a limit per message is none. Bytes of every unanswered append count against one window."""
    config = Config(
        frame_bytes_max=4_096, append_bytes_max=4_096, entry_bytes_max=4_096, snapshot_chunk_bytes=4_096,
        message_bytes_max=16 << 10, inflight_bytes_max=16 << 10, segment_bytes=1 << 20)
    script = Script(3, config=config)
    leader = script.elect("n0")
    script.cut("n1")
    for _ in range(20):
        script.propose("n0", b"x" * 3_000)
    progress = leader.peers["n1"]
    assert len(progress.inflight) > 1
    assert progress.inflight_bytes <= config.inflight_bytes_max + config.frame_bytes_max


def test_BUG_L19_uncommitted_bytes_return_to_zero() -> None:
    """etcd a370b6f: the counter drifted over refused and rewritten proposals, until nothing was accepted any more."""
    script = Script(3)
    leader = script.elect("n0")
    for number in range(5):
        script.propose("n0", b"x" * (number + 1) * 100)
    assert leading(leader).uncommitted_bytes > 1_500
    script.settle()
    assert leading(leader).uncommitted_bytes == 0
    script.propose("n0", b"never committed here")
    script.transfer("n0", "n1")
    script.settle()
    script.transfer("n1", "n0")
    script.settle()
    assert leading(script["n0"]).uncommitted_bytes == 0


def test_BUG_L20_bytes_in_flight_are_the_sum_of_what_is_in_flight() -> None:
    """etcd e419ba5: a reset forgot the messages and kept their bytes, so the window closed for ever."""
    script = Script(3)
    leader = script.elect("n0")

    def check(progress: Progress) -> None:
        assert progress.inflight_bytes == sum(size for _, size, _ in progress.inflight)

    script.cut("n1")
    progress = leader.peers["n1"]
    for _ in range(4):
        script.propose("n0", b"x" * 1_000)
        check(progress)
    assert progress.inflight_bytes > 4_000
    leader.unreachable(script.now, "n1")
    check(progress)
    assert progress.inflight_bytes == 0
    script.heal()
    script.elapse(300)
    check(progress)
    script.propose("n0", b"y")
    check(progress)
    script.settle()
    assert progress.inflight_bytes == 0 and progress.match == leader.log.last_index


def test_BUG_L21_a_commit_index_alone_proves_nothing_about_this_log() -> None:
    """DLedger 278: a follower advanced its commit without comparing logs. Guards what counts as verified."""
    script = follower([1, 1, 2, 2, 2])
    for number, prev in enumerate(((0, 0), (1, 1), (0, 0)), 1):
        hear(script, append(5, prev, commit=5, sequence=number))
    assert script["n1"].commit_index == 1
    hear(script, append(6, (0, 0), commit=5), source="n2")  # another leader verifies anew
    assert script["n1"].commit_index == 1


def test_BUG_L22_an_equal_commit_index_is_no_change() -> None:
    """Ratis-2109: an update to the same value was reported as one. Nobody is told twice."""
    script = follower([1, 1])
    hear(script, append(1, (2, 1), commit=2))
    for number in range(2, 5):
        script["n1"].receive(script.now, "n0", append(1, (2, 1), commit=2, sequence=number))
        assert not any(isinstance(output, Committed) for output in script["n1"].drain())
    commits = [event for event in script.nodes["n1"].traces if isinstance(event, CommitAdvanced)]
    assert len(commits) == 1


def test_BUG_L23_a_committed_entry_sent_again_with_another_term_is_never_taken() -> None:
    """YugabyteDB 23453: same index, another term, within what is committed. Neither overwritten nor acknowledged."""
    script = follower([1, 1, 1])
    hear(script, append(1, (3, 1), commit=3))
    assert hear(script, append(2, (2, 1), frame(3, 2), frame(4, 2)), source="n2") is None
    assert script.nodes["n1"].persisted() == [(1, 1), (2, 1), (3, 1)]
    assert dropped(script.nodes["n1"]) == ["contradicts committed entry 3"]
    assert script["n1"].following.verified == 0
