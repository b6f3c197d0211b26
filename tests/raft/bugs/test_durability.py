"""Durability and ordering: bugs that other libraries had (table D), each as a scenario. Disks are in memory."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

import attrs
import pytest

from raft.errors import DamagedLog, WriteFailed
from raft.frame import Frame
from raft.messages import Append, AppendReply, Code, HardState, Role, Write
from raft.sim.disk import Chance, VirtualDisk
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage
from tests.raft.script import Script, frame

T = TypeVar("T")


def append(term: int, prev: tuple[int, int], *frames: Frame, commit: int = 0, sequence: int = 1) -> Append:
    """From a leader of ``term``, behind ``prev`` (index, term)."""
    return Append(1, term, 1, sequence, *prev, commit, 0, frames)


def acknowledged(script: Script, name: str) -> list[int]:
    """Matches that ``name`` has promised and that are under way, in order."""
    return [mail.message.match for mail in script.mail
            if mail.source == name and isinstance(mail.message, AppendReply) and mail.message.code == Code.SUCCESS]


def unsynced_follower(*messages: Append) -> Script:
    """n1 has taken these messages of n0; its term is on disk, none of what it wrote since."""
    script = Script(3)
    script["n1"].receive(script.now, "n0", append(messages[0].term, (0, 0)))
    script.pump("n1")
    script.mail.clear()
    script.nodes["n1"].syncing = False
    for message in messages:
        script["n1"].receive(script.now, "n0", message)
        script.pump("n1")
    return script


class Fate:
    """A crash decided by the test: what is under way is torn, and these sectors of it survive."""

    def __init__(self, sectors: list[bool]) -> None:
        self.sectors = sectors

    def __call__(self, stream: str, default: T, generator: Callable[[Chance], T], /) -> T:
        """See ``Draw``: the middle of five modes and of four fates, each sector as told."""
        if not stream.endswith(".sector"):
            return generator(lambda: 0.5)
        kept = self.sectors.pop(0) if self.sectors else False
        return generator(lambda: 0.0 if kept else 0.9)


def opened(files: VirtualDisk) -> SegmentStorage:
    return SegmentStorage(files, "cluster", "n0", segment_bytes=32 << 10, rng=Random(7))


def directory(files: VirtualDisk | None = None) -> tuple[VirtualDisk, SegmentStorage]:
    """A fresh directory and its storage, open."""
    files = files if files is not None else VirtualDisk()
    format_directory(files, "cluster", "n0", bytes(range(16)))
    storage = opened(files)
    storage.open()
    return files, storage


def fill(storage: SegmentStorage, count: int, size: int = 3_000) -> None:
    """``count`` synced frames of one entry each."""
    chain = 0
    for index in range(1, count + 1):
        one = frame(index, 1, bytes([index % 251]) * size, chain=chain)
        chain = one.mark
        storage.write([Write(index, 1, hard_state=HardState(1, "n0") if index == 1 else None, frames=[one])])
        storage.sync()


def test_BUG_D1_a_single_voter_answers_after_its_own_sync() -> None:
    """etcd 14370: alone in its group it applied and answered first, then crashed. Guards what a leader counts."""
    script = Script(1)
    leader = script.elect("n0")
    script.settle()
    node, before = script.nodes["n0"], leader.commit_index
    node.syncing = False
    script.propose("n0", b"paid")
    script.settle()
    assert leader.commit_index == before and b"paid" not in node.applied
    script.crash("n0")
    assert b"paid" not in script.restart("n0").applied
    script.elect("n0")
    script.propose("n0", b"paid")
    script.settle()
    assert script.nodes["n0"].applied == [b"paid"]


def test_BUG_D1_a_leader_counts_its_own_log_after_its_own_sync() -> None:
    """etcd 14370, KAFKA-10533: with one follower that is enough for a quorum, and a crash of both leaves nothing."""
    script = Script(3)
    leader = script.elect("n0")
    script.cut("n2")
    node, before = script.nodes["n0"], leader.commit_index
    node.syncing = False
    script.propose("n0", b"paid")
    script.settle()
    assert leader.peers["n1"].match == leader.log.last_index and leader.commit_index == before
    script.sync("n0")
    assert leader.commit_index == leader.log.last_index


def test_BUG_D2_a_majority_that_loses_power_loses_nothing_acknowledged() -> None:
    """etcd 12589, PySyncObj 84, robustmq 2039: followers acknowledged from memory. Here they say nothing."""
    script = Script(3)
    leader = script.elect("n0")
    before = leader.commit_index
    for name in ("n1", "n2"):
        script.nodes[name].syncing = False
    for number in range(3):
        script.propose("n0", b"%d" % number)
    script.elapse(100)  # heartbeats flow
    assert leader.commit_index == before and script["n1"].log.last_index == leader.log.last_index
    assert all(leader.peers[peer].match == before for peer in ("n1", "n2"))
    script.crash("n1")
    script.crash("n2")
    script.restart("n1")
    script.restart("n2")
    script.elapse(400)
    assert leader.commit_index == leader.log.last_index == script["n1"].log.durable_index


def test_BUG_D2_one_of_two_writes_is_durable() -> None:
    """Yugabyte 32875: an acknowledgement names the entries of the sync that ended, not those behind it."""
    script = unsynced_follower(append(1, (0, 0), frame(1, 1)), append(1, (1, 1), frame(2, 1), sequence=2))
    first, second = script.nodes["n1"].writes[-2:]
    script["n1"].durable(script.now, first.token)
    script.pump("n1")
    assert acknowledged(script, "n1") == [1]
    script["n1"].durable(script.now, second.token)
    script.pump("n1")
    assert acknowledged(script, "n1") == [1, 2]


def test_BUG_D3_a_heartbeat_is_answered_with_the_durable_index() -> None:
    """Yugabyte 32875: an append without entries arrives while earlier entries are not synced."""
    script = unsynced_follower(
        append(1, (0, 0), frame(1, 1, b"a", b"b")), append(1, (0, 0), sequence=2), append(1, (2, 1), sequence=3))
    assert script["n1"].log.last_index == 2
    assert acknowledged(script, "n1") == [0, 0]
    script.sync("n1")
    script["n1"].receive(script.now, "n0", append(1, (2, 1), sequence=4))
    script.pump("n1")
    assert max(acknowledged(script, "n1")) == 2


@pytest.mark.parametrize("survivors", range(4))
def test_BUG_D4_a_term_is_durable_no_later_than_its_entries(survivors: int) -> None:
    """openraft's io_ordering: entries of term 5 reach the disk, term 5 does not, and term 1 overwrites them."""
    script = unsynced_follower(
        append(1, (0, 0), frame(1, 1)), append(5, (1, 1), frame(2, 5)), append(5, (2, 5), frame(3, 5)))
    node = script.nodes["n1"]
    node.up = False
    node.storage.crash(lambda count: min(survivors, count))
    recovered = node.storage.open()[1]
    assert recovered.hard_state.term >= recovered.last_term
    replica = script.restart("n1").replica
    replica.receive(script.now, "n2", append(1, (0, 0), frame(1, 1), frame(2, 1)))
    assert replica.log.term_at(2) != 1 or recovered.last_term <= 1


def test_BUG_D5_a_late_completion_of_a_truncated_append_proves_nothing() -> None:
    """etcd's append/ABA race: (term 1, index 2) completes after it was truncated and (term 2, index 2) appended."""
    script = unsynced_follower(
        append(1, (0, 0), frame(1, 1)), append(1, (1, 1), frame(2, 1), frame(3, 1), sequence=2))
    stale = script.nodes["n1"].writes[-1].token
    script["n1"].receive(script.now, "n2", append(2, (1, 1), frame(2, 2), sequence=1))
    script.pump("n1")
    newer = script.nodes["n1"].writes[-1].token
    assert newer > stale and script["n1"].log.term_at(2) == 2
    script["n1"].durable(script.now, stale)
    script.pump("n1")
    assert script["n1"].log.durable_index == 1 and 2 not in acknowledged(script, "n1")
    script["n1"].durable(script.now, newer)
    script.pump("n1")
    assert script["n1"].log.durable_index == 2 and acknowledged(script, "n1")[-1] == 2


def test_BUG_D6_completions_out_of_order_lose_nothing() -> None:
    """openraft 2af491fb: the later write is reported first. The earlier report changes nothing."""
    script = unsynced_follower(append(1, (0, 0), frame(1, 1)), append(1, (1, 1), frame(2, 1), sequence=2))
    first, second = (write.token for write in script.nodes["n1"].writes[-2:])
    for token in (second, first, second):
        script["n1"].durable(script.now, token)
        script.pump("n1")
        assert (script["n1"].writes.durable_token, script["n1"].log.durable_index) == (second, 2)
    assert acknowledged(script, "n1") == [2]


def test_BUG_D7_a_leader_applies_what_is_on_its_own_disk() -> None:
    """openraft ee460f37: committed by the others, answered before its own write ended. Answers follow durability."""
    script = Script(3)
    leader = script.elect("n0")
    node = script.nodes["n0"]
    node.syncing = False
    _, last = script.propose("n0", b"x")
    script.settle()
    assert leader.commit_index == last and node.to_apply < last and b"x" not in node.applied
    script.sync("n0")
    assert node.to_apply == last and node.applied[-1] == b"x"


def test_BUG_D8_a_restart_applies_each_entry_once() -> None:
    """etcd 13766: a crash between the data and the applied index. State comes with its index."""
    script = Script(1)
    script.elect("n0")
    for number in range(6):
        script.propose("n0", b"%d" % number)
        script.settle()
        if number == 3:
            script.snapshot("n0")
    assert script["n0"].log.purged_index == 0  # the entries behind the snapshot are still in the log
    script.crash("n0")
    node = script.restart("n0")
    assert node.applied == [b"0", b"1", b"2", b"3"]
    assert node.replica.log.snapshot is not None and node.replica.applied_index == node.replica.log.snapshot.index
    script.elect("n0")
    script.settle()
    assert script.nodes["n0"].applied == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_BUG_D9_a_commit_index_never_outlives_its_entries() -> None:
    """PySyncObj 197: a stored commit index ran ahead of a lost tail. Here none is stored: it is learnt anew."""
    assert [field.name for field in attrs.fields(HardState)] == ["term", "voted_for"]
    script = Script(3)
    leader = script.elect("n0")
    script.nodes["n2"].syncing = False
    for number in range(4):
        script.propose("n0", b"%d" % number)
        script.settle()
    script.elapse(100)
    kept = script["n2"].log.durable_index
    assert script["n2"].commit_index == leader.log.last_index > kept  # known to be committed, and not on its disk
    script.crash("n2")
    node = script.restart("n2")
    assert node.replica.log.last_index == kept and node.replica.commit_index == 0
    script.elapse(200)
    assert node.replica.commit_index == leader.log.last_index and node.applied == [b"0", b"1", b"2", b"3"]


def test_BUG_D10_a_leader_counts_itself_when_its_disk_says_so() -> None:
    """KAFKA-10533: one follower holds the entry, the leader only in memory. Two of three, and yet not committed."""
    script = Script(3)
    leader = script.elect("n0")
    script.nodes["n0"].syncing = False
    script.cut("n2")
    before = leader.commit_index
    _, last = script.propose("n0", b"x")
    script.settle()
    assert leader.peers["n1"].match == last and leader.commit_index == before
    script.sync("n0")
    assert leader.commit_index == last


def test_BUG_D11_a_sync_that_failed_once_is_never_trusted_again() -> None:
    """LazyFS, etcd 14143: the sync fails, the pages are dropped, the next sync claims success. Guards the storage."""
    files, storage = directory()
    fill(storage, 1)
    storage.write([Write(9, 1, frames=[frame(2, 1, b"lost", chain=storage.read(1, 1, 1)[0].mark)])])
    files.fail("sync")
    with pytest.raises(WriteFailed):
        storage.sync()
    for _ in range(2):
        with pytest.raises(WriteFailed):
            storage.sync()
        with pytest.raises(WriteFailed):
            storage.write([Write(10, 1, hard_state=HardState(2, "n0"))])
    files.crash()
    files.restart()
    assert opened(files).open()[1].last_index == 1


def test_BUG_D11_a_node_whose_sync_failed_is_out() -> None:
    """etcd 14140: and the node neither acknowledges nor votes, whatever its disk reports later. Guards the replica."""
    script = unsynced_follower(append(1, (0, 0), frame(1, 1)))
    token = script.nodes["n1"].writes[-1].token
    script["n1"].storage_fault(script.now, "failed")
    script["n1"].durable(script.now, token)
    script["n1"].storage_fault(script.now, "room")
    script["n1"].receive(script.now, "n0", append(1, (1, 1), sequence=2))
    script.pump("n1")
    assert script["n1"].faulted and not script.mail


def test_BUG_D12_recovery_believes_the_content_of_a_segment_not_its_name() -> None:
    """dqlite 190, k3s 1919: after a kill the newest name holds an older segment's bytes (it was about to be reused)."""
    files, storage = directory()
    fill(storage, 30)
    storage.close()
    names = [name for name in files.list("log") if name.endswith(".seg")]
    assert len(names) > 2
    oldest = files.open(f"log/{names[0]}")
    stale = oldest.pread(oldest.size(), 0)
    newest = files.open(f"log/{int(names[-1][:-4]) + 1:020d}.seg", create=True)
    newest.pwrite([stale], 0)
    newest.sync()
    files.sync_dir("log")
    again = opened(files)
    assert again.open()[1].last_index == 30
    assert [one.first for index in (1, 15, 30) for one in again.read(1, index, 1)] == [1, 15, 30]


def test_BUG_D13_rot_inside_the_log_is_refused_not_cut_off() -> None:
    """braft's and jraft's corruption flags, TiKV 13123: one bit in the middle. No voter with an amputated log."""
    files, storage = directory()
    fill(storage, 5)
    storage.close()
    name = next(name for name in files.list("log") if name.endswith(".seg"))
    files.rot(f"log/{name}", 4_000)
    with pytest.raises(DamagedLog) as caught:
        opened(files).open()
    assert caught.value.offset > 0 and name in caught.value.path


def test_BUG_D13_rot_in_a_closed_segment_is_found_when_it_is_read_or_scrubbed() -> None:
    """TiKV 13123: a closed segment is taken over by its footer, so its bodies are checked where they are used."""
    files, storage = directory()
    fill(storage, 30)
    storage.close()
    names = [name for name in files.list("log") if name.endswith(".seg")]
    files.rot(f"log/{names[0]}", 4_000)
    again = opened(files)
    assert again.open()[1].last_index == 30
    with pytest.raises(DamagedLog):
        [again.read(1, index, 1) for index in range(1, 8)]
    with pytest.raises(DamagedLog):
        list(again.scrub())


@pytest.mark.parametrize("sectors", [
    [], [True], [True, True, False], [True, False, True, True], [False, True, True, True]])
def test_BUG_D14_a_torn_write_costs_its_own_frame_alone(sectors: list[bool]) -> None:
    """The machine dies in the last write; any of its sectors may have arrived. Earlier frames are whole."""
    files, storage = directory(VirtualDisk(Fate(sectors)))
    fill(storage, 4, 500)
    storage.write([Write(5, 1, frames=[frame(5, 1, b"torn" * 700, chain=storage.read(1, 4, 1)[0].mark)])])
    files.crash()
    files.restart()
    again = opened(files)
    recovered = again.open()[1]
    assert recovered.last_index == 4 and recovered.hard_state == HardState(1, "n0")
    assert [len(again.read(1, index, 1)[0].payloads()[0]) for index in range(1, 5)] == [500] * 4


def test_BUG_D15_a_leader_whose_disk_hangs_steps_down() -> None:
    """hashicorp/raft 503, 666, RobustIRC: heartbeats flow for minutes while nothing can be committed."""
    script = Script(3)
    leader = script.elect("n0")
    term = leader.term
    script.nodes["n0"].syncing = False
    script.propose("n0", b"x")
    script.elapse(script.config.storage_stall_ms - 100)
    assert leader.leadership_seq == 1 and script.leader() is leader
    script.elapse(2_000)
    successor = script.leader()
    assert successor is not None and successor is not leader and successor.term > term
    script.propose(successor.node_id, b"y")
    script.settle()
    assert successor.commit_index == successor.log.last_index


def test_BUG_D16_one_write_error_ends_a_leadership() -> None:
    """Tarantool 9399: the leader kept beating after its write failed, so nobody else was elected."""
    script = Script(3)
    leader = script.elect("n0")
    leader.storage_fault(script.now, "failed")
    script.pump("n0")
    script.mail.clear()
    assert leader.faulted and leader.leadership is None
    silent = True

    def watch(mail: object) -> bool:
        nonlocal silent
        silent = silent and getattr(mail, "source", "") != "n0"
        return True

    script.filter = watch
    script.elapse(3_000)
    successor = script.leader()
    assert silent and successor is not None and successor is not leader


def test_BUG_D16_a_full_disk_ends_a_leadership() -> None:
    """Tarantool 9399, the milder error: the disk is full. The node follows on, answers so, and somebody else leads."""
    script = Script(3)
    leader = script.elect("n0")
    leader.storage_fault(script.now, "full")
    script.pump("n0")
    assert leader.role == Role.FOLLOWER and not leader.faulted
    script.elapse(3_000)
    successor = script.leader()
    assert successor is not None and successor is not leader
    assert leader.leader == successor.node_id
