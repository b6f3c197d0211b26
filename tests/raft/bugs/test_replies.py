"""Replies, sessions and progress: bugs that other libraries had (table R), each as a scenario."""

from __future__ import annotations

import pytest

from raft.leadership import Leadership
from raft.membership import Membership
from raft.messages import Append, AppendReply, Code, Role, Vote, VoteReply
from raft.progress import Progress, State
from raft.storage.memory import MemoryStorage
from raft.trace import Dropped
from raft.wire import Decoder, encode
from tests.raft.script import Mail, Script, disk


def replies(script: Script, source: str) -> list[Mail]:
    """Append replies of ``source`` that are under way."""
    return [mail for mail in script.mail if mail.source == source and isinstance(mail.message, AppendReply)]


def to_leader(script: Script, leader: str) -> None:
    """Deliver everything but what goes to ``leader``."""
    while rest := [mail for mail in script.mail if mail.target != leader]:
        script.deliver(rest[0])


def leadership(script: Script, name: str) -> Leadership:
    leading = script[name].leadership
    assert leading is not None
    return leading


def progress(script: Script, leader: str, peer: str) -> Progress:
    return leadership(script, leader).peers[peer]


def test_BUG_R1_reordered_acknowledgements_never_lower_match() -> None:
    """PySyncObj 167, raftos 25, CCF 5324: success replies arrive in the opposite order.

    Guards that match only rises and next stays behind it.
    """
    script = Script()
    script.elect("n0")
    script.settle()
    kept: list[Mail] = []
    for payload in (b"a", b"b", b"c"):
        script.propose("n0", payload)
        to_leader(script, "n0")
        kept += replies(script, "n1")
        script.mail = [mail for mail in script.mail if mail not in kept]
    assert len({mail.message.match for mail in kept}) == 3  # type: ignore[union-attr]
    seen = []
    for mail in reversed(kept):
        script.deliver(mail)
        peer = progress(script, "n0", "n1")
        seen.append(peer.match)
        assert peer.next > peer.match
    assert seen == [script["n0"].log.last_index] * 3


def test_BUG_R2_an_acknowledgement_of_an_earlier_leadership_counts_for_nothing() -> None:
    """PySyncObj 169: an ack sent in an earlier leadership of this node arrives in its present one.

    Guards that a reply must bear the leadership's own term.
    """
    script = Script()
    script.elect("n0")
    script.propose("n0", b"a")
    to_leader(script, "n0")
    old = replies(script, "n1")[-1]
    script.mail.clear()
    script.elect("n2")
    script.elect("n0")
    peer = progress(script, "n0", "n1")
    peer.match, peer.next = 0, 1  # as if nothing were known: whatever is known now comes from the old reply
    assert isinstance(old.message, AppendReply)
    old.message.session, old.message.sequence = peer.session, peer.sequence
    script.deliver(old)
    assert peer.match == 0


def test_BUG_R3_an_acknowledgement_from_before_a_removal_is_of_another_session() -> None:
    """raft-rejoin survey (etcd 349 and others): removed and added again in one term, then an ack from before.

    Guards that each membership incarnation of a peer has a session of its own.
    """
    script = Script()
    leader = script.elect("n0")
    script.propose("n0", b"a")
    to_leader(script, "n0")
    old = replies(script, "n2")[-1]
    script.mail.remove(old)
    script.settle()
    script.elapse(10)
    before = progress(script, "n0", "n2").session
    assert script.outcome("n0", script.reconfigure("n0", ["n0", "n1"])) == "open"
    script.elapse(3_000)
    term = leader.term
    script.cut("n2")
    ticket = script.reconfigure("n0", ["n0", "n1"], ["n2"])
    script.elapse(100)
    assert (leader.role, leader.term, script.outcome("n0", ticket)) == (Role.LEADER, term, "done")
    peer = progress(script, "n0", "n2")
    assert peer.session != before
    script.heal()
    script.deliver(old)
    assert peer.match == 0


def test_BUG_R4_a_follower_that_lost_its_log_forms_no_quorum() -> None:
    """openraft cecb5de8: acks and conflicts of a follower whose disk was emptied.

    Guards that a member with another directory than the recorded one counts for nothing.
    """
    script = Script()
    leader = script.elect("n0")
    script.elapse(100)
    script.propose("n0", b"a")
    script.settle()
    script.crash("n2")
    script.crash("n1")
    script.wipe("n2")
    script.settle()
    commit = leader.commit_index
    script.propose("n0", b"b")
    script.settle()
    script.elapse(100)
    assert leader.commit_index == commit, "one voter and a wiped one are no quorum of three"
    assert "n2" in leader.identities.strangers


def test_BUG_R4_an_older_copy_of_a_directory_is_probed_once_per_beat() -> None:
    """A follower's directory was put back from a copy: same incarnation, but entries that it acknowledged are missing.

    Guards that the leader does not ask again at once, for ever.
    """
    script = Script()
    script.elect("n0")
    script.elapse(100)
    script.crash("n2")
    script.start("n2", MemoryStorage(), Membership())
    script.settle(1_000)
    before = progress(script, "n0", "n2").sequence
    script.elapse(10 * script.config.heartbeat_interval_ms)
    assert progress(script, "n0", "n2").sequence - before <= 12
    script.propose("n0", b"a")
    script.settle(1_000)
    assert script["n0"].commit_index == script["n0"].log.last_index


def test_BUG_R5_a_conflict_that_arrives_after_success_is_history() -> None:
    """openraft 1500: a refusal is delayed until after a later success; the leader thinks the follower's log reverted.

    Guards that refusals up to the latest success change nothing.
    """
    script = Script(disks={"n0": disk([1, 1, 2]), "n1": disk([1, 1, 1, 1]), "n2": disk([1, 1, 2])})
    script.elect("n0")
    script.mail.clear()
    peer = progress(script, "n0", "n1")
    refusal = AppendReply(1, script["n0"].term, peer.session, peer.sequence, Code.INCONSISTENT_STATE, 0, 1, 1, 1, 0)
    script.elapse(200)
    assert peer.state == State.REPLICATE and peer.match == script["n0"].log.last_index
    script.deliver(Mail("n1", "n0", refusal))
    assert (peer.state, peer.match, peer.next) == (State.REPLICATE, peer.match, peer.match + 1)


def test_BUG_R5_a_heartbeat_starts_at_the_known_match() -> None:
    """openraft 1500: a heartbeat that starts at the commit index is refused by a follower that is behind it.

    Guards that a heartbeat's previous entry is one the follower is known to hold.
    """
    script = Script(5)
    leader = script.elect("n0")
    script.elapse(100)
    script.cuts |= {("n0", "n4"), ("n4", "n0")}
    script.propose("n0", b"a")
    script.settle()
    script.mail.clear()
    leadership(script, "n0").beat()
    script.pump("n0")
    beat = next(mail.message for mail in script.mail if mail.target == "n4")
    assert isinstance(beat, Append)
    assert beat.prev_index == progress(script, "n0", "n4").match < leader.commit_index


def test_BUG_R6_learners_are_never_counted() -> None:
    """openraft d882e743: acknowledgements of non-voters count towards commit.

    Guards that quorums are taken over voters alone.
    """
    script = Script(["n0", "n1", "n2"], learners=["n3", "n4"])
    leader = script.elect("n0")
    script.elapse(100)
    commit = leader.commit_index
    script.cuts |= {(a, b) for a in ("n1", "n2") for b in script.nodes} | {
        (b, a) for a in ("n1", "n2") for b in script.nodes}
    script.propose("n0", b"a")
    script.settle()
    assert progress(script, "n0", "n3").match == progress(script, "n0", "n4").match == leader.log.last_index
    assert leader.commit_index == commit


@pytest.mark.parametrize("name", ["n0", "n1"])
def test_BUG_R7_the_last_entrys_index_and_term_change_together(name: str) -> None:
    """hashicorp 538e56c: index and term of the last entry are read at different moments.

    Guards that what a vote is judged by is the log's own last entry, also right after a truncation.
    """
    script = Script(disks={"n0": disk([1, 1, 2]), "n1": disk([1, 1, 1, 1]), "n2": disk([1, 1, 2])})
    script.elect("n0")
    script.elapse(200)
    me = script[name].voter()
    log = script[name].log
    assert (me.last_index, me.last_term) == (log.last_index, log.term_at(log.last_index))
    assert (me.last_index, me.last_term) == script.nodes[name].persisted()[-1]
    log.truncate(2)
    assert (log.last_index, log.last_term) == (1, log.term_at(1)) == (1, 1)


def test_BUG_R8_a_hint_is_always_taken() -> None:
    """ClickHouse's NuRaft: next equals the hint, so the leader walks back one entry at a time for minutes.

    Guards that one refusal skips all that the follower does not have.
    """
    script = Script(disks={"n0": disk([1] * 500), "n1": disk([1] * 3), "n2": disk([1] * 500)})
    refusals: list[Mail] = []

    def watch(mail: Mail) -> bool:
        if isinstance(mail.message, AppendReply) and mail.message.code == Code.INCONSISTENT_STATE:
            refusals.append(mail)
        return True

    script.filter = watch
    script.elect("n0")
    script.elapse(100)
    assert progress(script, "n0", "n1").match == script["n0"].log.last_index
    assert 1 <= len(refusals) <= 3


def test_BUG_R9_a_message_from_outside_the_membership_is_dropped_and_counted() -> None:
    """canonical/raft and etcd: replies and requests of a node that is no member.

    Guards that they change no progress, no term and no role, and leave a trace.
    """
    script = Script()
    leader = script.elect("n0")
    script.elapse(100)
    state = (leader.role, leader.term, leader.commit_index)
    ack = AppendReply(1, leader.term, 1, 1, Code.SUCCESS, 10_000, 10_000, 0, 0, 10_000)
    objection = AppendReply(1, leader.term + 9, 1, 1, Code.EXPIRED_TERM, 0, 0, 0, 0, 0)
    for message in (ack, objection, Vote(1, leader.term + 5, 1, 10_000, leader.log.last_term)):
        leader.receive(script.now, "ghost", message)
        script.pump("n0")
    assert (leader.role, leader.term, leader.commit_index) == state
    dropped = [event.peer for event in script.nodes["n0"].traces if isinstance(event, Dropped)]
    assert dropped.count("ghost") == 2
    answers = [mail.message for mail in script.mail if mail.target == "ghost"]
    assert len(answers) == 1 and isinstance(answers[0], VoteReply)


def test_BUG_R10_every_refusal_is_whole_on_the_wire() -> None:
    """raftos 27: a refusal built by a generic path misses a field that the leader reads.

    Guards that each message has one encoder: every reply of a conflicting follower survives the wire unchanged.
    """
    script = Script(disks={"n0": disk([1, 2, 2, 5]), "n1": disk([1, 2, 3, 3, 3]), "n2": disk([1, 2, 2, 5])})
    seen: list[AppendReply] = []

    def watch(mail: Mail) -> bool:
        if isinstance(mail.message, AppendReply):
            seen.append(mail.message)
        return True

    script.filter = watch
    script.elect("n0")
    script.elapse(200)
    assert any(reply.code == Code.INCONSISTENT_STATE for reply in seen)
    for reply in seen:
        decoder = Decoder(script.config.message_bytes_max)
        assert list(decoder.feed(b"".join(encode(reply)))) == [reply]
