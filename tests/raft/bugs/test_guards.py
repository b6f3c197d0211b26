"""Guards that could be weakened while every test stayed green (table U): a schedule for each that needs it."""

from __future__ import annotations

import pytest
import trio.testing

from harness.simulation.worlds.nodes import THREE, Counter, network
from raft.config import MS, Read
from raft.frame import Frame
from raft.log import RaftLog
from raft.membership import Membership
from raft.messages import (
    Append,
    AppendReply,
    Code,
    HardState,
    ReadReply,
    ReadRequest,
    Recovered,
    Role,
    Send,
    SnapshotChunk,
    SnapshotMeta,
    StoreChunk,
    TimeoutNow,
    Vote,
    VoteReply,
    VoteResult,
    Write,
)
from raft.replica import Replica
from raft.sim.disk import SimulatedCrash, VirtualDisk
from raft.snapshotmeta import encode_meta
from raft.storage.conformance import frames, read_all, snapshot_at
from raft.storage.identity import format_directory
from raft.storage.memory import MemoryStorage
from raft.storage.segment import SegmentStorage
from tests.raft.script import Mail, Script, disk, frame, led
from tests.raft.storage.test_segment import SEGMENT_BYTES, make, put

FAR_NS = 10_000_000 * MS


class Leader:
    """The test itself, as n0 in term 3, towards one follower."""

    def __init__(self, script: Script, name: str) -> None:
        self.script, self.name, self.sequence = script, name, 0

    def give(self, previous: int, previous_term: int, frames: tuple[Frame, ...] = ()) -> None:
        self.sequence += 1
        self.script[self.name].receive(self.script.now, "n0", Append(
            1, 3, 1, self.sequence, previous, previous_term, 0, 0, list(frames)))
        self.script.pump(self.name)

    def acknowledged(self) -> int:
        """The largest match that the follower has said so far."""
        return max((mail.message.match for mail in self.script.mail
                    if mail.source == self.name and isinstance(mail.message, AppendReply)
                    and mail.message.code == Code.SUCCESS), default=0)


def age(script: Script) -> None:
    """Nobody has heard a leader for long."""
    for node in script.nodes.values():
        node.replica.heard_leader_at = script.now - 2 * node.replica.rules.lease_ns


def rings(script: Script, name: str) -> None:
    """This node's timer."""
    replica = script[name]
    script.now = max(script.now + 1, replica.deadline)
    replica.tick(script.now)
    script.pump(name)
    script.settle()


def test_BUG_U1_while_joint_a_lease_needs_both_halves() -> None:
    """Own: lease and check quorum asked the new half alone. Guards that the old half may elect somebody meanwhile."""
    script = Script(3)
    script.elect("n0")
    script.elapse(300)
    for name in ("n3", "n4"):
        script.start(name, MemoryStorage(), Membership())
    script.reconfigure("n0", ["n0", "n1", "n2"], ["n3", "n4"])
    script.elapse(500)
    for old in ("n1", "n2"):
        for other in ("n0", "n3", "n4"):
            script.cuts |= {(old, other), (other, old)}
    script.reconfigure("n0", ["n0", "n3", "n4"])
    script.settle()
    assert script["n0"].membership.joint and not script["n1"].membership.joint
    elected = None
    for _ in range(60):
        script.elapse(25)
        elected = script.leader()
        if elected is not None and elected.node_id in ("n1", "n2"):
            break
    assert elected is not None and elected.node_id in ("n1", "n2")
    script.propose(elected.node_id, b"behind its back")
    script.settle()
    assert script.nodes[elected.node_id].applied[-1] == b"behind its back"
    assert not script["n0"].lease_valid(script.now)


def test_BUG_U2_a_late_answer_extends_a_lease_from_when_its_question_left() -> None:
    """Own: a lease counted from the arrival of an answer. Guards that it counts from the departure of the question."""
    script = Script(3)
    script.elect("n0")
    script.elapse(200)
    lease_ms = script["n0"].rules.lease_ns // MS
    script.cut("n2")
    held: list[Mail] = []

    def hold(mail: Mail) -> bool:
        if mail.source == "n1":
            held.append(mail)
        return mail.source != "n1"

    script.filter = hold
    for name in ("n1", "n2"):
        script[name].election_deadline = script.now + FAR_NS
    script.elapse(0.9 * lease_ms - 20)
    script.filter = None
    script.deliver(held[0])
    script.filter = lambda mail: False
    script.elapse(0.5 * lease_ms)
    assert not script["n0"].lease_valid(script.now), "the first beat left 1.4 leases ago"


def test_BUG_U3_a_grant_of_an_earlier_term_and_life_counts_for_nothing() -> None:
    """Own: a grant to an earlier life of the candidate, in a round of the same number. Guards the term of a grant."""
    script = Script(3)
    for name in ("n1", "n2"):
        script[name].election_deadline = script.now + FAR_NS
    held: list[Mail] = []

    def hold(mail: Mail) -> bool:
        if isinstance(mail.message, VoteReply) and not mail.message.probe:
            held.append(mail)
            return False
        return "n2" not in (mail.source, mail.target)

    def campaign() -> None:
        age(script)
        script["n0"].election_deadline = script.now
        script["n0"].tick(script.now)
        script.pump("n0")
        script.settle()

    script.filter = hold
    campaign()
    late = held[-1]
    assert isinstance(late.message, VoteReply) and late.message.result == VoteResult.ACCEPT
    script.crash("n0")
    script.restart("n0")
    script.filter = lambda mail: not (isinstance(mail.message, Vote) and not mail.message.probe) and (
        "n2" not in (mail.source, mail.target))
    for _ in range(10):
        campaign()
        if script["n0"].term > late.message.term:
            break
        rings(script, "n0")
    assert script["n0"].term > late.message.term and script["n0"].campaign._round == late.message.round
    script.filter = None
    script.deliver(late)
    assert script["n0"].role != Role.LEADER


def test_BUG_U4_a_late_sync_of_before_an_install_says_nothing_of_the_log_behind_it() -> None:
    """Own: entries behind a snapshot were acknowledged when older ones were synced. Guards what a token stands for."""
    script = Script(3, disks={"n1": disk([1, 1], term=1)})
    node, replica, leader = script.nodes["n1"], script["n1"], Leader(script, "n1")
    leader.give(0, 0)
    node.syncing = False
    leader.give(2, 1, tuple(frame(index, 2, b"z") for index in range(3, 13)))
    old = node.writes[-1].token
    meta = node.storage.create_snapshot(1, SnapshotMeta(5, 3, 0, script.bootstrap, 0)).finish()
    replica.snapshots.install(meta)
    script.pump("n1")
    leader.give(5, 3, (frame(6, 3, b"a"), frame(7, 3, b"b")))
    script.mail.clear()
    replica.durable(script.now, old)
    script.pump("n1")
    leader.give(7, 3)
    assert replica.log.durable_index <= 5 and leader.acknowledged() <= 5


def test_BUG_U5_what_replaced_a_durable_suffix_is_not_durable_yet() -> None:
    """Own: after a truncation the new entries counted as synced. Guards that truncating lowers what is durable."""
    script = Script(3, disks={"n1": disk([1, 1, 1], term=1)})
    leader = Leader(script, "n1")
    leader.give(1, 0)
    script.nodes["n1"].syncing = False
    script.mail.clear()
    other = frame(2, 2, b"other")
    leader.give(1, 1, (other, frame(3, 3, b"more", chain=other.mark)))
    assert script["n1"].log.term_at(3) == 3 and script.nodes["n1"].writes
    leader.give(3, 3)
    assert leader.acknowledged() <= 1


def test_BUG_U6_a_voter_restarted_in_the_first_term_keeps_its_silence() -> None:
    """Own: in term 1 a restarted voter forgot its leader's lease. Guards that whoever had a term owes its silence."""
    script = led()
    assert script["n0"].term == 1 and script["n0"].lease_valid(script.now)
    script.crash("n1")
    script.restart("n1")
    for probe in (True, False):
        script["n1"].receive(script.now, "n2", Vote(1, 2, 1, script["n2"].log.last_index, 1, probe))
        script.pump("n1")
    answers = [mail.message.result for mail in script.mail
               if mail.source == "n1" and isinstance(mail.message, VoteReply)]
    assert answers == [VoteResult.REJECT_ALREADY_HAS_LEADER] * 2
    assert script["n1"].term == 1 and script["n0"].lease_valid(script.now)


def test_BUG_U7_a_read_through_the_log_waits_for_its_own_entry() -> None:
    """Own: it was answered with the entry before its own. Guards that its own entry is committed."""
    script = led()
    _, last = script.propose("n0", b"x")
    ticket = script.read("n0", Read.LOG)
    assert script["n0"].log.last_index == last + 1
    script.filter = lambda mail: not (isinstance(mail.message, Append)
                                      and any(each.last > last for each in mail.message.frames))
    script.settle()
    assert script["n0"].commit_index == last
    assert script.outcome("n0", ticket) == "open"


@pytest.mark.parametrize(("peer", "terms_on"), [("n1", 0), ("n0", 2)], ids=["another peer", "another term"])
def test_BUG_U8_a_read_is_answered_by_the_leader_it_was_asked_of(peer: str, terms_on: int) -> None:
    """Own: any peer's answer of any term was taken, and told a follower that entries since replaced were committed.

    Guards that an answer comes from the present leader, of the present term.
    """
    script = led()
    script.filter = lambda mail: not (isinstance(mail.message, AppendReply) or mail.target == "n1")
    script.propose("n0", b"uncommitted")
    ticket = script.read("n2")
    question = next(mail.message for mail in script.mail if isinstance(mail.message, ReadRequest))
    script.filter = lambda mail: not isinstance(mail.message, (AppendReply, ReadReply)) and mail.target != "n1"
    script.settle()
    follower = script["n2"]
    assert follower.following.verified == follower.log.last_index > follower.commit_index == script["n0"].commit_index
    follower.receive(script.now, peer, ReadReply(
        1, follower.term + terms_on, question.ticket, Code.SUCCESS, follower.log.last_index))
    script.pump("n2")
    assert follower.commit_index == script["n0"].commit_index
    assert script.outcome("n2", ticket) == "open"


def test_BUG_U9_the_boundary_of_a_purge_has_the_term_of_its_own_entry() -> None:
    """Own: the boundary had the newest term, so a log that parts there seemed to agree. Guards the boundary's term."""
    log = RaftLog(Recovered(), Membership(("n0",)), 1 << 20)
    for index, term in ((1, 1), (2, 1), (3, 2)):
        log.append(frame(index, term))
    log.durable_index = 3
    log.purge(2)
    assert (log.purged_index, log.purged_term, log.term_at(2), log.last_term) == (2, 1, 1, 2)
    log.purge(3)
    assert (log.purged_term, log.last_term) == (2, 2)


def test_BUG_U10_nothing_is_announced_while_a_snapshot_is_installed() -> None:
    """Own: entries would be applied to a machine that is being replaced. Guards that commit stands still meanwhile."""
    script = Script(3, disks={"n1": disk([1, 1], term=1)})
    replica: Replica = script["n1"]
    Leader(script, "n1").give(2, 1)
    replica.snapshots.install(SnapshotMeta(5, 3, 0, script.bootstrap, 0))
    replica.drain()
    replica.receive(script.now, "n0", Append(1, 3, 1, 9, 5, 3, 6, 0, [frame(6, 3)]))
    assert replica.commit_index == replica.log.last_index == replica.announced_index == 5


def test_BUG_U11_the_vote_of_a_stranger_does_not_count() -> None:
    """Own: a voter that came back with an empty disk elected a leader. Guards that a stranger's votes are dropped."""
    script = led()
    script.crash("n2")
    script.wipe("n2")
    script.crash("n0")
    script.restart("n0")
    assert script["n0"].identities.strangers == {"n2"}
    script.filter = lambda mail: not (isinstance(mail.message, Vote) and not mail.message.probe) and (
        "n2" not in (mail.source, mail.target))
    age(script)
    script["n1"].election_deadline = script.now + FAR_NS
    script["n0"].election_deadline = script.now
    for _ in range(10):
        rings(script, "n0")
        if script["n0"].term > 1:
            break
    candidate = script["n0"]
    assert candidate.role == Role.CANDIDATE and candidate.voted_for == "n0"
    candidate.receive(script.now, "n2", VoteReply(
        1, candidate.term, candidate.campaign._round, VoteResult.ACCEPT, probe=False))
    script.pump("n0")
    assert candidate.role == Role.CANDIDATE


def test_BUG_U12_no_membership_entry_is_appended_while_leadership_is_handed_over() -> None:
    """Own: the way out of a joint membership was appended behind what the target was told to have.

    Guards that a change waits for the end of a hand-over.
    """
    script = led()
    script.start("n3", MemoryStorage(), Membership())
    script.reconfigure("n0", ["n0", "n1", "n2"], ["n3"])
    script.elapse(500)
    script.nodes["n0"].syncing = False
    script.filter = lambda mail: mail.source not in ("n2", "n3") and not isinstance(mail.message, TimeoutNow)
    change = script.reconfigure("n0", ["n0", "n1", "n3"])
    script.settle()
    leader = script["n0"]
    assert leader.membership.joint and leader.log.membership_index > leader.commit_index
    ticket = script.transfer("n0", "n1")
    assert leader.leadership is not None and leader.leadership.transfer.told
    end = leader.log.last_index
    script.nodes["n0"].syncing = True
    script.sync("n0")
    script.settle()
    assert leader.commit_index >= leader.log.membership_index and leader.leadership.transfer.busy
    assert leader.log.last_index == end
    script.filter = None
    script.elapse(5_000)
    assert script.outcome("n0", ticket) != "open" != script.outcome("n0", change)


def test_BUG_U13_a_piece_stored_for_an_earlier_leader_is_not_answered_to_it() -> None:
    """Own: the report of a stored piece took the place of the next leader's. Guards whose piece it was."""
    script = led()
    replica = script["n2"]
    meta = SnapshotMeta(900, 1, 0, script.bootstrap, 0, size=100, crc=1)

    def piece(leader: str, term: int) -> None:
        replica.receive(script.now, leader, Append(1, term, 7, 1, 0, 0, 0, 0))
        script.pump("n2")  # its term is on disk
        replica.receive(script.now, leader, SnapshotChunk(1, term, 7, 2, encode_meta(meta), 0, b"x" * 10))

    def sent() -> list[Send]:
        return [output for output in replica.drain() if isinstance(output, Send)]

    piece("n0", replica.term)
    assert any(isinstance(output, StoreChunk) for output in replica.drain())
    piece("n1", replica.term + 1)
    replica.drain()
    replica.snapshots.chunk_stored(script.now, "n0", meta, 10, False)
    assert sent() == []
    replica.snapshots.chunk_stored(script.now, "n1", meta, 10, False)
    assert [send.peer for send in sent()] == ["n1"]


def test_BUG_U14_a_frame_that_is_here_in_part_is_not_taken_for_whole() -> None:
    """Own: its first entry was here, so all of it was proven. Guards that such a message is refused."""
    script = Script(3, disks={"n1": disk([1, 1, 3], term=3)})
    replica, leader = script["n1"], Leader(script, "n1")
    leader.give(2, 1)
    script.mail.clear()
    leader.give(2, 1, (frame(3, 3, b"one", b"two"),))
    assert (replica.log.last_index, replica.following.verified) == (3, 2)
    assert leader.acknowledged() == 0 and not script.mail


async def test_BUG_U15_nothing_is_said_of_a_term_that_is_on_no_disk(autojump_clock: trio.testing.MockClock) -> None:
    """Own: messages left once their write was handed over. Guards that they wait until it is durable."""
    async with network() as net:
        net.record = True
        for name in THREE:
            await net.start(name, THREE, Counter())
        net.disks["n1"].stalled = True
        leader = await net.leader()
        assert leader._driver.replica.node_id != "n1"
        await trio.sleep(20)
        assert net.nodes["n1"]._driver.replica.term == leader._driver.replica.term > 0
        said = [message for source, _, message in net.sent if source == "n1" and not isinstance(message, Vote)]
        assert said and all(message.term == 0 for message in said), "its term and vote are not on its disk"
        net.disks["n1"].stalled = False
        net.disks["n1"].bell.ring()
        await trio.sleep(1)
        assert any(message.term == leader._driver.replica.term for source, _, message in net.sent if source == "n1")


def test_BUG_U16_the_name_of_a_segment_that_was_in_the_cache_only_survives_a_power_cut() -> None:
    """Own: what was acknowledged in a segment could be gone with its name. Guards the order of names and contents."""
    log = frames(60, size=2_000)

    def lose_all(stream: str, default: object, generator: object) -> object:
        return default

    for operation in range(1, 40):
        disk_ = VirtualDisk(lose_all)  # type: ignore[arg-type]
        format_directory(disk_, "c", "n", bytes(16))
        storage = make(disk_)
        storage.open()
        put(storage, log[:10])
        disk_.crash_at(disk_.operations + operation)
        with pytest.raises(SimulatedCrash):
            put(storage, log[10:])
        disk_.kill()
        storage = make(disk_)
        storage.open()
        held = read_all(storage, 1, 1)[-1].last
        put(storage, log[held : held + 1])
        disk_.crash()
        disk_.restart()
        storage = make(disk_)
        storage.open()
        assert read_all(storage, 1, 1)[-1].last == held + 1, f"killed in operation {operation}"


def test_BUG_U17_a_segment_is_let_go_only_when_what_made_it_dead_is_durable() -> None:
    """Own: segments were used anew before the snapshot's record in the log was synced. Guards the order of the two."""
    disk_ = VirtualDisk()
    format_directory(disk_, "c", "n", bytes(16))
    storage = SegmentStorage(disk_, "c", "n", segment_bytes=SEGMENT_BYTES, background=False)
    storage.open()
    log = frames(60, size=2_000)
    put(storage, log)
    ahead = snapshot_at(frame(900, 1))
    sink = storage.receive_snapshot(1, ahead)
    sink.finish()
    storage.write([Write(900, 1, install=ahead, hard_state=HardState(9))])
    journal: list[str] = []
    disk_.journal = journal
    storage.sync()
    used_anew = [number for number, words in enumerate(journal) if words.startswith(("rename", "remove"))]
    synced = [number for number, words in enumerate(journal) if words.startswith("sync") and "log/" in words]
    assert used_anew and synced and synced[0] < used_anew[0], journal
