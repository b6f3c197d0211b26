"""Schedules that DLedger 0.4.0 gets wrong, or gets right and must stay right, each with what holds here instead.

Groups run under DLedger's election rules too where the schedule is about more than the strict rules' additions.
Schedules that need a whole node are in ``test_dledger_regressions_nodes``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar, cast

import attrs
import pytest

from raft.config import MS, Config, Read, Rules
from raft.errors import DamagedLog, NotLeader
from raft.leadership import Leadership
from raft.log import BOUNDARY_ENTRIES
from raft.membership import Membership
from raft.messages import (
    Append,
    AppendReply,
    Code,
    HardState,
    PeerMessage,
    Role,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    Vote,
    VoteResult,
    Write,
)
from raft.replica import Replica
from raft.rules.rows import BIGGER_LEDGER
from raft.sim.disk import Chance, SimulatedCrash, VirtualDisk, seeded
from raft.snapshotmeta import encode_meta
from raft.storage.identity import format_directory
from raft.storage.memory import MemoryStorage
from raft.storage.segment import SegmentStorage
from raft.trace import SnapshotInstalled, StorageTrouble, Truncated
from tests.raft.script import Mail, Script, disk, frame, led

T = TypeVar("T")
LEASE_MS = Config().election_timeout_ms
NO_TAIL = Config(snapshot_tail_entries=0)
BOTH = pytest.mark.parametrize("rules", list(Rules))
MANY = [b"%d" % number for number in range(BOUNDARY_ENTRIES)]
"""Enough entries in one frame for the log to be purged at its end."""


def role(script: Script, name: str) -> Role:
    return script[name].role


def leadership(script: Script, name: str) -> Leadership:
    leading = script[name].leadership
    assert leading is not None
    return leading


def wait_until(script: Script, true: Callable[[], bool]) -> None:
    """Let time pass in small steps."""
    for _ in range(5_000):
        if true():
            return
        script.elapse(20)
    raise AssertionError("it never comes true")


def take_over(script: Script, name: str) -> Replica:
    """Let time pass until this node leads; the others do not begin. As ``elect``, but under either rule set."""
    for node in script.nodes.values():
        node.replica.election_deadline += 3_600_000 * MS
    script[name].election_deadline = script.now
    wait_until(script, lambda: script[name].role == Role.LEADER)
    return script[name]


def a_while(rules: Rules) -> int:
    """Milliseconds in which a group under these rules has held several elections, if it can hold any."""
    return 40_000 if rules is Rules.DLEDGER else 20 * LEASE_MS


def lose_all(stream: str, default: T, generator: Callable[[Chance], T], /) -> T:
    """The fate of what was not synced: none of it survives."""
    return default


class Segments:
    """A disk for ``Script``: real segments on a virtual disk. A crash loses whatever was not synced."""

    def __init__(self, name: str) -> None:
        self.files, self._name, self._lives = VirtualDisk(lose_all), name, 0
        format_directory(self.files, "cluster", name, name.encode().ljust(16, b"."))
        self.inner = self._made()

    def _made(self) -> SegmentStorage:
        self._lives += 1
        return SegmentStorage(self.files, "cluster", self._name, segment_bytes=32 << 10, rng=Random(self._lives))

    def crash(self) -> None:
        self.files.crash()
        self.files.restart()
        self.inner = self._made()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def segments(*names: str) -> dict[str, MemoryStorage]:
    return {name: cast(MemoryStorage, Segments(name)) for name in names}


def files_of(script: Script, name: str) -> VirtualDisk:
    return cast(Segments, script.nodes[name].storage).files


def content(script: Script, name: str, first: int) -> list[tuple[int, int, bytes]]:
    """(first index, term, bytes) of the frames from ``first`` on, as this node's storage gives them back."""
    out: list[tuple[int, int, bytes]] = []
    while first <= script[name].log.last_index:
        frames = script.nodes[name].storage.read(1, first, 1 << 30)
        assert frames, f"{name} does not have entry {first}"
        out += [(one.first, one.term, b"".join(one.payloads())) for one in frames]
        first = frames[-1].last + 1
    return out


# --- R1 to R6: leaders that change, snapshots, blank peers --------------------------------------------------------


def acknowledged_elsewhere(rules: Rules) -> Script:
    """n0 led, had 100 entries acknowledged, of which the others do not know yet that they are committed, and died."""
    script = Script(config=Config(rules=rules, frame_entries_max=10))
    script.elect("n0")
    first, last = script.propose("n0", *MANY[:100])
    script.settle()
    assert script["n0"].commit_index == script["n2"].log.last_index == last and script["n2"].commit_index < first
    script.crash("n0")
    return script


def watch_size(script: Script, name: str, sizes: list[int]) -> None:
    def watch(mail: Mail) -> bool:
        sizes.append(script[name].log.last_index)
        return True

    script.filter = watch


@BOTH
def test_DL_R1_a_first_leadership_that_ends_after_its_first_message_costs_nothing(rules: Rules) -> None:
    """DLedger F1: a long-lived follower leads for the first time and dies after one message: all entries were lost.

    Guards that nothing is assumed about a peer when a leadership begins, and that no follower's log shrinks.
    """
    script = acknowledged_elsewhere(rules)
    sent: list[Mail] = []

    def only_the_first(mail: Mail) -> bool:
        if mail.source == "n1" and isinstance(mail.message, Append):
            sent.append(mail)
            return len(sent) == 1
        return True

    before = content(script, "n2", 1)
    script.filter = only_the_first
    take_over(script, "n1")
    script.elapse(1)
    assert sent and content(script, "n2", 1)[: len(before)] == before
    script.crash("n1")
    script.filter = None
    sizes: list[int] = []
    watch_size(script, "n2", sizes)
    script.restart("n0")
    script.restart("n1")
    script.elapse(a_while(rules))
    assert sizes == sorted(sizes)
    assert [node.applied for node in script.nodes.values()] == [MANY[:100]] * 3


@BOTH
def test_DL_R1_a_message_from_far_behind_truncates_nothing(rules: Rules) -> None:
    """DLedger F1, its cause: the first message stands where the leader's cursor stood long ago.

    Guards that entries behind the message's last one stay: only an entry of another term at its place goes.
    """
    script = acknowledged_elsewhere(rules)
    before, at = content(script, "n2", 1), script["n2"].commit_index
    script.filter = lambda mail: not isinstance(mail.message, Append)
    leader = take_over(script, "n1")
    early = leader.log.cached(at + 1, 1)
    assert early is not None and early[0].last == at + 10
    script.filter = None
    script.deliver(Mail("n1", "n2", Append(1, leader.term, 99, 1, at, leader.log.term_at(at), 0, 0, early)))
    assert script["n2"].leader == "n1"
    script.crash("n1")
    assert content(script, "n2", 1) == before
    assert not [event for event in script.nodes["n2"].traces if isinstance(event, Truncated)]


def stale_messages(script: Script, term: int, last: int) -> dict[str, PeerMessage]:
    """What a leader of ``term``, whose log ended at ``last``, may have left in the network, and what each would do."""
    meta = SnapshotMeta(50, term, 0, script.bootstrap, 0, size=3)
    return {
        "truncate": Append(1, term, 7, 1, last, term, 0, 0, (frame(last + 1, term, b"old"),)),
        "commit": Append(1, term, 7, 2, last, term, 99, 0),
        "chunk": SnapshotChunk(1, term, 7, 3, encode_meta(meta), 0, b"old"),
    }


@BOTH
@pytest.mark.parametrize("kind", ["truncate", "commit", "chunk"])
def test_DL_R2_what_a_deposed_leader_sent_is_refused_with_the_present_term(rules: Rules, kind: str) -> None:
    """DLedger F2: TRUNCATE, COMMIT and InstallSnapshot of any term were carried out.

    Guards that the term comes first, also where no leader of the present term is known yet.
    """
    script = Script(config=Config(rules=rules))
    script.elect("n0")
    script.propose("n0", b"a")
    script.settle()
    old, at = script["n0"].term, script["n0"].log.last_index
    script.cut("n0")
    script.filter = lambda mail: not (mail.source == "n2" and isinstance(mail.message, AppendReply))
    term = take_over(script, "n1").term
    wait_until(script, lambda: script["n2"].log.last_index > at)
    assert term > old and script["n2"].log.term_at(at + 1) == term
    script.crash("n2")
    voter = script.restart("n2").replica
    script.mail.clear()
    before = (voter.term, voter.commit_index, content(script, "n2", 1))
    assert voter.leader is None
    voter.receive(script.now, "n0", stale_messages(script, old, at)[kind])
    script.pump("n2")
    answers = [mail.message for mail in script.mail if (mail.source, mail.target) == ("n2", "n0")]
    assert [(answer.code, answer.term) for answer in answers if isinstance(answer, AppendReply | SnapshotReply)] == [
        (Code.EXPIRED_TERM, term)]
    assert (voter.term, voter.commit_index, content(script, "n2", 1)) == before
    assert script["n2"].leader is None and script.nodes["n2"].sink is None


@BOTH
def test_DL_R3_a_blank_peer_does_not_win_against_a_compacted_log(rules: Rules) -> None:
    """DLedger F5, E5: after a restart the log is all in the snapshot, and votes are judged by an empty log.

    Guards that the log's last entry is known from where it was purged, and that the blank one catches up instead.
    """
    script = Script(config=Config(rules=rules, snapshot_tail_entries=0))
    script.elect("n0")
    script.propose("n0", *MANY)
    script.settle()
    script.crash("n1")
    script.restart("n1")
    script.elapse(5_000)
    script.snapshot("n1")
    assert script["n1"].log.purged_index == script["n1"].log.last_index
    for name in ("n0", "n1", "n2"):
        script.crash(name)
    holder = script.restart("n1").replica
    blank = script.start("n2", MemoryStorage()).replica
    assert holder.log.last_index == holder.log.purged_index > len(MANY) and holder.log.last_term == 1
    holder.election_deadline += 10_000 * MS
    for _ in range(200):
        if blank.campaign.last_outcome is not None:
            break
        script.elapse(20)
    assert blank.campaign.last_outcome is not None
    assert blank.campaign.last_outcome[1]["n1"] in BIGGER_LEDGER and holder.voted_for != "n2"
    script.elapse(10_000 + a_while(rules))
    assert script.leader() is holder and blank.leadership_seq == 0
    assert script.nodes["n2"].applied == script.nodes["n1"].applied == MANY


def test_DL_R4_truncation_behind_an_installed_snapshot_survives_a_restart() -> None:
    """DLedger F6, E4: a snapshot is installed, a suffix truncated, and after a restart the removed entries are back.

    Guards that what goes is found by its place in this node's own segments, on disk as in memory.
    """
    script = led(config=NO_TAIL, disks=segments("n0", "n1", "n2"))
    script.cut("n2")
    script.propose("n0", *MANY)
    script.settle()
    script.elapse(10)
    script.snapshot("n0")
    script.heal()
    script.elapse(500)
    boundary = script["n2"].log.purged_index
    assert [event.index for event in script.nodes["n2"].traces if isinstance(event, SnapshotInstalled)] == [boundary]
    for number in range(10):
        script.propose("n0", b"shared %d" % number)
        script.settle()
    script.elect("n2")
    script.elapse(100)
    script.cut("n2")
    for number in range(10):
        script.propose("n2", b"removed %d" % number * 100)
    script.pump("n2")
    longest = script["n2"].log.last_index
    script.elect("n0")
    for number in range(5):
        script.propose("n0", b"new %d" % number * 60)
        script.settle()
    script.heal()
    script.elapse(500)
    expected = content(script, "n0", boundary + 1)
    assert script["n2"].log.last_index == script["n0"].log.last_index < longest
    script.crash("n2")
    script.restart("n2")
    assert (script["n2"].log.purged_index, script["n2"].log.last_index) == (boundary, script["n0"].log.last_index)
    assert content(script, "n2", boundary + 1) == expected
    script.elapse(500)
    assert script.nodes["n2"].applied == script.nodes["n0"].applied
    assert not any(b"removed" in command for command in script.nodes["n2"].applied)


def test_DL_R5_one_process_installs_one_snapshot_after_another() -> None:
    """DLedger F17, E7: the second InstallSnapshot to the same process failed for ever.

    Guards that nothing of a finished installation is left behind.
    """
    script = led(config=NO_TAIL)
    for turn in range(2):
        script.cut("n2")
        script.propose("n0", *MANY)
        script.settle()
        script.elapse(10)
        meta = script.snapshot("n0")
        assert script["n0"].log.purged_index > script["n2"].log.last_index
        script.heal()
        script.elapse(500)
        assert script["n2"].commit_index >= meta.index and script["n2"].installing is None, f"turn {turn}"
        assert script.nodes["n2"].applied == script.nodes["n0"].applied
    installed = [event for event in script.nodes["n2"].traces if isinstance(event, SnapshotInstalled)]
    assert len(installed) == 2


def test_DL_R6_a_blank_replica_joins_a_leader_that_compacted_its_log() -> None:
    """DLedger F18, issue 319: COMPARE and INSTALL_SNAPSHOT took turns for ever.

    Guards that a peer whose common point was purged gets the snapshot, in a bounded number of messages.
    """
    script = led(config=NO_TAIL)
    script.propose("n0", *MANY)
    script.settle()
    script.elapse(10)
    script.snapshot("n0")
    assert script["n0"].log.purged_index > 500
    script.wipe("n3")
    seen: list[Mail] = []

    def watch(mail: Mail) -> bool:
        if "n3" in (mail.source, mail.target):
            seen.append(mail)
        return True

    script.filter = watch
    ticket = script.reconfigure("n0", ["n0", "n1", "n2", "n3"])
    script.elapse(500)
    assert script.outcome("n0", ticket) == "done" and script["n3"].membership.votes("n3")
    assert script.nodes["n3"].applied == script.nodes["n0"].applied
    assert len(seen) < 60
    installed = [event for event in script.nodes["n3"].traces if isinstance(event, SnapshotInstalled)]
    assert len(installed) == 1


# --- R7 to R9: disks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", [("n0", "n1"), ("n1", "n2"), ("n0", "n1", "n2")])
def test_DL_R7_a_majority_loses_power_right_after_the_answer(down: tuple[str, ...]) -> None:
    """DLedger F7: followers answer and the leader counts itself before anything is flushed.

    Guards that with sync=always what was answered is on the platters of a majority, whatever caches lose.
    """
    script = Script(disks=segments("n0", "n1", "n2"))
    script.elect("n0")
    for number in range(20):
        payload = b"%d" % number * 500
        script.propose("n0", payload)
        while payload not in script.nodes["n0"].applied:
            script.deliver(script.mail[0])
    answered = list(script.nodes["n0"].applied)
    for name in down:
        script.crash(name)
    for name in down:
        script.restart(name)
    held = [{body for _, _, body in content(script, name, 1)} for name in script.nodes]
    assert sum(bodies >= set(answered) for bodies in held) >= 2
    script.elapse(20 * LEASE_MS)
    leader = script.leader()
    assert leader is not None and len(answered) == 20
    assert all(node.applied == answered for node in script.nodes.values())


@pytest.mark.parametrize("seed", range(4))
def test_DL_R8_a_crash_at_any_step_leaves_the_old_vote_or_the_new_one(seed: int) -> None:
    """DLedger F8: the vote file is deleted and renamed; between the two there is no vote.

    Guards every step from writing a vote to recycling the segment it was written to.
    """
    old, new = HardState(3, "n1"), HardState(4, "n2")
    for step in range(1, 1_000):
        files, seen = VirtualDisk(seeded(1_000 * seed + step)), old
        format_directory(files, "cluster", "n0", bytes(range(16)))
        storage = SegmentStorage(files, "cluster", "n0", segment_bytes=32 << 10, rng=Random(1))
        storage.open()
        storage.write([Write(1, 1, hard_state=old)])
        storage.sync()
        files.crash_at(files.operations + step)
        try:
            storage.write([Write(2, 1, hard_state=new)])
            storage.sync()
            seen = new
            fill_and_purge(storage)
        except SimulatedCrash:
            files.restart()
            again = SegmentStorage(files, "cluster", "n0", segment_bytes=32 << 10, rng=Random(2))
            assert again.open()[1].hard_state in (seen, new), f"after a crash in step {step}"
            continue
        assert "log/00000000000000000001.seg" not in [f"log/{name}" for name in files.list("log")]
        assert step > 20, "many steps were tried"
        return
    raise AssertionError("there is no end of steps")


def fill_and_purge(storage: SegmentStorage) -> None:
    """Write frames over several segments, take a snapshot, and let the log behind it go."""
    chain = 0
    for index in range(1, 31):
        one = frame(index, 1, bytes(3_000), chain=chain)
        chain = one.mark
        storage.write([Write(2 + index, 1, frames=[one])])
        storage.sync()
    sink = storage.create_snapshot(1, SnapshotMeta(25, 1, 0, Membership(["n0"]), 0))
    sink.write(b"state")
    sink.finish()
    storage.write([Write(40, 1, frames=[frame(31, 1, chain=chain)], purge_to=25)])
    storage.sync()


@pytest.mark.parametrize("where", [0, 700, 1_499])
def test_DL_R9_a_flipped_byte_in_a_committed_body_is_never_served(where: int) -> None:
    """DLedger F9, E4: CRCs were stored and never checked. Guards the body's checksum.

    The node stops, in words; with an empty directory it gets everything from its peers.
    """
    script = led(disks=segments("n0", "n1", "n2"))
    rotten = b"committed".ljust(1_500, b"!")
    for payload in (rotten, *(b"%d" % number * 100 for number in range(5))):
        script.propose("n0", payload)
        script.settle()
    script.elapse(100)
    script.crash("n1")
    flip(files_of(script, "n1"), rotten, where)
    with pytest.raises(DamagedLog) as caught:
        script.restart("n1")
    assert caught.value.path.startswith("log/") and caught.value.offset > 0
    script.wipe("n1")
    ticket = script.reconfigure("n0", ["n0", "n1", "n2"])
    script.elapse(500)
    assert script.outcome("n0", ticket) == "done"
    assert script.nodes["n1"].applied == script.nodes["n0"].applied and rotten in script.nodes["n1"].applied


def test_DL_R9_a_flipped_byte_in_an_old_segment_stops_the_node_where_it_would_be_used() -> None:
    """DLedger F9: a sealed segment is opened by its footer, so its bodies are checked where they are read."""
    script = led(disks=segments("n0", "n1", "n2"))
    rotten = b"committed".ljust(1_500, b"!")
    for payload in (rotten, *(b"%d" % number * 1_000 for number in range(30))):
        script.propose("n0", payload)
        script.settle()
    script.elapse(100)
    script.crash("n1")
    flip(files_of(script, "n1"), rotten, 700)
    node = script.restart("n1")
    with pytest.raises(DamagedLog):
        script.elapse(500)  # it hears what is committed and applies
    assert node.applied == [b"a"]


def flip(files: VirtualDisk, body: bytes, where: int) -> None:
    """Flip one bit of the byte ``where`` of the only place where these bytes are."""
    for name in files.list("log"):
        file = files.open(f"log/{name}")
        at = file.pread(file.size(), 0).find(body)
        if at >= 0:
            files.rot(f"log/{name}", at + where)
            return
    raise AssertionError("there is no such body")


# --- R10: commit -----------------------------------------------------------------------------------------------------


def figure_8() -> Script:
    """Step (c) of the paper's Figure 8: n0 leads again; its old entry of term 2 is at n1, n4 has another of term 3."""
    logs = {"n0": [1, 2], "n1": [1, 2], "n2": [1], "n3": [1], "n4": [1, 3]}
    script = Script(5, disks={name: disk(terms, term=3) for name, terms in logs.items()})
    script.cut("n4")
    return script


def without_own_entry(mail: Mail) -> bool:
    """Let appends through, but not the entries of the leader's own term."""
    if isinstance(mail.message, Append):
        mail.message.frames = [one for one in mail.message.frames if one.term < mail.message.term]
    return True


def test_DL_R10_an_entry_of_an_old_term_on_a_majority_is_not_committed() -> None:
    """DLedger F10, paper Fig. 8 (c) and (d): the old entry is on three of five, and is overwritten all the same.

    Guards that counting commits entries of the leader's own term alone.
    """
    script = figure_8()
    script.filter = without_own_entry
    leader = script.elect("n0")
    script.elapse(150)
    assert leader.term == 4
    assert [script[name].log.term_at(2) for name in ("n0", "n1", "n2")] == [2, 2, 2]
    assert all(node.replica.commit_index == 0 for node in script.nodes.values())
    script.crash("n0")
    script.heal()
    script.elect("n4")
    script.elapse(500)
    assert [script[name].log.term_at(2) for name in ("n1", "n2", "n3", "n4")] == [3] * 4
    script.restart("n0")
    script.elapse(500)
    assert all(node.applied == [b"1/1", b"2/3"] for node in script.nodes.values())


def test_DL_R10_with_an_entry_of_its_own_term_all_before_it_is_committed() -> None:
    """Paper Fig. 8 (e): once an own entry is on a majority, whoever lacks it is not elected any more."""
    script = figure_8()
    leader = script.elect("n0")
    script.elapse(150)
    assert leader.commit_index >= 3
    script.crash("n0")
    script.heal()
    for name in ("n1", "n2", "n3"):
        script[name].election_deadline += 3_000 * MS
    script.elapse(3_000)
    assert script["n4"].leadership_seq == 0
    script.elapse(5_000)
    assert script.leader() is not None
    assert all(script.nodes[name].applied[:2] == [b"1/1", b"2/2"] for name in ("n1", "n2", "n3", "n4"))


# --- R11 to R14: elections ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("writes", [False, True])
def test_DL_R11_a_cut_between_the_leader_and_one_follower_changes_nothing(rules: Rules, writes: bool) -> None:
    """DLedger's row 2: B does not hear the leader, C hears both and says so. No term grows, the leader stays.

    Guards that a voter with a leader that it hears refuses to help in replacing it.
    """
    script = led(config=Config(rules=rules))
    term = script["n0"].term
    script.cuts |= {("n0", "n1"), ("n1", "n0")}
    for number in range(20):
        script.elapse(a_while(rules) / 10)
        if writes:  # else the logs are equal, and only who is heard speaks against n1
            script.propose("n0", b"%d" % number)
    script.settle()
    assert script.leader() is script["n0"] and script["n0"].leadership_seq == 1
    assert [node.replica.term for node in script.nodes.values()] == [term] * 3
    assert script["n0"].commit_index == script["n0"].log.last_index


@BOTH
def test_DL_R12_a_node_that_was_isolated_comes_back_without_disturbing(rules: Rules) -> None:
    """DLedger's probes of the same term: alone, a node asks and asks, and its term does not grow.

    Guards that a round without a quorum's consent takes no term.
    """
    script = led(config=Config(rules=rules))
    term = script["n0"].term
    script.cut("n2")
    script.elapse(3 * a_while(rules))
    assert role(script, "n2") == Role.CANDIDATE and script["n2"].term == term
    script.heal()
    script.elapse(a_while(rules))
    assert script.leader() is script["n0"] and (script["n0"].term, script["n0"].leadership_seq) == (term, 1)
    assert script["n2"].leader == "n0"


def test_DL_R13_a_node_with_a_shorter_log_joins_without_deposing_the_leader() -> None:
    """DLedger's heartbeat reply of a higher term: a node that campaigned alone came back and deposed the leader.

    Guards both halves: its campaigns raise no term, and a request from behind raises nobody else's.
    """
    script = led()
    leader, term = script["n0"], script["n0"].term
    script.cut("n2")
    for number in range(20):
        script.propose("n0", b"%d" % number)
        script.elapse(LEASE_MS)
    assert script["n2"].campaign.rounds > 5
    behind = script["n2"].voter()
    script.heal()
    script.elapse(2 * LEASE_MS)
    assert (leader.role, leader.term, leader.leadership_seq) == (Role.LEADER, term, 1)
    assert script["n2"].leader == "n0" and script["n2"].log.last_index == leader.log.last_index
    for voter in ("n0", "n1"):
        for transfer in (False, True):
            request = Vote(1, term + 9, 99, behind.last_index, behind.last_term, False, transfer)
            script[voter].receive(script.now, "n2", request)
            script.pump(voter)
    assert (role(script, "n0"), script["n0"].term, script["n1"].term) == (Role.LEADER, term, term)


def detected(seed: int) -> Script:
    """n0 is dead. n1 noticed it just now; n2 heard its last heartbeat just now."""
    script = led(seed=seed)
    script.elapse(500)
    script.crash("n0")
    script["n1"].heard_leader_at, script["n1"].election_deadline = script.now - LEASE_MS * MS, script.now
    script["n2"].heard_leader_at, script["n2"].election_deadline = script.now, script.now + script["n2"].silence_ns
    return script


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("helps", [True, False])
def test_DL_R14_the_first_to_notice_loses_no_more_than_a_lease(seed: int, helps: bool) -> None:
    """DLedger F23: one answer "I have a leader" cost the first detector seven seconds.

    Guards that it asks again soon after the patience of the voter it met is over, also if that one never asks itself.
    """
    script, leases = detected(seed), 2.0 if helps else 2.05
    start = script.now
    if not helps:
        script["n2"].election_deadline += 60_000 * MS
    while script.leader() is None:
        script.elapse(1)
        assert script.now - start < leases * LEASE_MS * MS
    assert script.now - start >= LEASE_MS * MS, "n2 kept its promise"


def test_DL_R14_the_first_detector_is_told_of_the_leader() -> None:
    """DLedger F23, the answer itself: within its patience a voter names its reason."""
    script = detected(1)
    script.elapse(0.8 * LEASE_MS)  # a round whose third voter is silent
    outcome = script["n1"].campaign.last_outcome
    assert outcome is not None and outcome[1]["n2"] == VoteResult.REJECT_ALREADY_HAS_LEADER


# --- R15, R16: leaders and hand-overs -------------------------------------------------------------------------------


@BOTH
def test_DL_R15_a_leader_that_is_cut_off_is_fenced_before_another_can_lead(rules: Rules) -> None:
    """DLedger F13: the old leader answered reads for six to eight seconds beside the new one.

    Guards that no read is answered from a leadership that another one may have ended: by round or by lease.
    """
    script = led(config=Config(rules=rules))
    script.elapse(2_000)
    old, silent_at = script["n0"], script.now
    old_term = old.term
    contact = leadership(script, "n0").tracker.quorum_contact()
    script.cut("n0")
    if rules is Rules.STRICT:  # the earliest another leader can be: both voters at the end of their patience
        script["n1"].election_deadline = contact + LEASE_MS * MS + 1
    while script["n1"].role != Role.LEADER and script["n2"].role != Role.LEADER:
        script.elapse(1)
        assert script.now - silent_at < a_while(rules) * MS
    assert not old.lease_valid(script.now)
    new = script.leader()
    assert new is not None and new.term > old_term
    for level in (Read.INDEX, Read.LEASE):
        try:
            ticket = script.read("n0", level)
        except NotLeader:
            continue
        script.elapse(20)
        assert script.outcome("n0", ticket) == "open"
    before = old.commit_index
    if old.role == Role.LEADER:
        script.propose("n0", b"nobody hears")
    script.elapse(a_while(rules))
    assert role(script, "n0") != Role.LEADER and old.commit_index == before


def test_DL_R16_a_hand_over_in_a_fresh_term_succeeds_behind_a_long_log() -> None:
    """DLedger F25: code 417 when the entries of the fresh term are few and the log is long.

    Guards that a target is judged by whether it holds the membership, and then given time to hold the rest.
    """
    disks = {name: MemoryStorage() for name in ("n0", "n1", "n2")}
    chain, frames = 0, []
    for part in range(25):
        frames.append(frame(1 + 4_000 * part, 1, *[b"x"] * 4_000, chain=chain))
        chain = frames[-1].mark
    for storage in disks.values():
        storage.write([Write(1, 1, hard_state=HardState(1, None), frames=frames)])
        storage.sync()
    script = Script(disks=disks)
    script.filter = lambda mail: not isinstance(mail.message, AppendReply)
    leader = script.elect("n0")
    script.filter = None
    assert leader.log.last_index == 100_001 and leader.peers["n1"].match == 0
    ticket = script.transfer("n0", "n1")
    assert script.outcome("n0", ticket) == "open"
    script.elapse(500)
    assert script.outcome("n0", ticket) == "done" and script.leader() is script["n1"]


# --- R19, R20: a full disk, a batch ----------------------------------------------------------------------------------


def test_DL_R19_a_full_disk_on_a_follower_costs_one_try_per_heartbeat() -> None:
    """DLedger F27: answered with 406, so the leader compared in a tight loop, and nobody saw why.

    Guards that the answer has a code of its own, that the leader backs off, and that the others do not notice.
    """
    script = led()
    script["n2"].storage_fault(script.now, "full")
    script.pump("n2")
    tries: list[Append] = []

    def watch(mail: Mail) -> bool:
        if (mail.source, mail.target) == ("n0", "n2") and isinstance(mail.message, Append) and mail.message.frames:
            tries.append(mail.message)
        return True

    script.filter = watch
    start = script.now
    for number in range(200):
        script.propose("n0", b"%d" % number)
        script.settle()
        assert script["n0"].commit_index == script["n0"].log.last_index
        script.elapse(10)
    beats = (script.now - start) // MS // script.config.heartbeat_interval_ms
    assert 2 < len(tries) <= beats + 3
    assert all(len(message.frames) == 1 for message in tries), "not all that has gathered, each time"
    assert script["n0"].peers["n2"].disk_full and not script["n0"].peers["n1"].disk_full
    assert [event.kind for event in script.nodes["n2"].traces if isinstance(event, StorageTrouble)] == ["full"]
    assert script["n0"].leadership_seq == 1
    script["n2"].storage_fault(script.now, "room")
    script.pump("n2")
    script.elapse(300)
    assert script.nodes["n2"].applied == script.nodes["n0"].applied and not script["n0"].peers["n2"].disk_full


def test_DL_R20_a_batch_is_appended_in_one_step_or_not_at_all() -> None:
    """DLedger F16: a batch append raced with a change of role and was cut anywhere.

    Guards that a proposal's entries stand together in one leadership's log, whatever frames they are in.
    """
    script = led(config=attrs.evolve(Config(), frame_entries_max=4))
    first, last = script.propose("n0", *MANY[:10])
    assert last - first == 9 and frame_sizes(script, first) == [4, 4, 2]
    script["n0"].receive(script.now, "n1", Append(1, script["n0"].term + 1, 1, 1, 0, 0, 0, 0))
    script.pump("n0")
    end = script["n0"].log.last_index
    with pytest.raises(NotLeader):
        script.propose("n0", *MANY[:10])
    assert script["n0"].log.last_index == end


def frame_sizes(script: Script, first: int) -> list[int]:
    return [one.count for one in script["n0"].log.cached(first, 1 << 30) or []]
