"""Liveness: bugs that other libraries had (table V), each as a scenario."""

from __future__ import annotations

import inspect

import attrs
import pytest

from raft.config import MS, Config
from raft.errors import HandshakeRefused, Rejected, RejectReason
from raft.hello import Hello, Lane, check_hello
from raft.membership import Membership
from raft.messages import Append, AppendReply, HardState, Role, TimeoutNow, Vote, VoteResult, Write
from raft.progress import State
from raft.trace import BecameCandidate, BecameLeader, RoundStarted
from raft.transfer import LeadershipTransfer
from tests.raft.script import Mail, Script, disk, led

TIMEOUT = Config().election_timeout_ms


def terms(script: Script) -> list[int]:
    return [script[name].term for name in script.nodes]


def test_BUG_V1_a_refused_probe_teaches_the_term() -> None:
    """etcd 8243, canonical 279, openraft 1796: probes of a node in a lower term are ignored for ever.

    Guards that a probe is answered, with the voter's term, and that the candidate takes it.
    """
    script = Script(disks={"n0": disk([1], term=9), "n1": disk([1, 1], term=2), "n2": disk([1], term=9)})
    script.cut("n2")
    script.elapse(10 * TIMEOUT)
    assert script["n1"].role == Role.LEADER, "n1 alone may win: its log is longer"
    assert script["n1"].term > 9


def test_BUG_V2_a_group_with_mixed_rules_is_refused_at_the_door() -> None:
    """etcd 8501, raft-rs 42: pre-vote on here and off there during a rolling restart ends in a deadlock.

    Guards that peers run the same rules: the greeting names them, and others are refused in words.
    """
    strict, other = (
        Hello(cluster="c", node=name, incarnation=name.encode() * 8, lane=Lane.CONTROL, rules=rules)
        for name, rules in (("n0", "strict"), ("n1", "dledger")))
    for own, theirs in ((strict, other), (other, strict)):
        with pytest.raises(HandshakeRefused, match=r"runs '[a-z]+' election rules, .* runs '[a-z]+'"):
            check_hello(own, theirs)
    check_hello(strict, attrs.evolve(other, rules="strict"))


def test_BUG_V3_a_dead_leaders_followers_do_not_protect_it_for_ever() -> None:
    """etcd 9586, 10355: leader dead, its followers reject each other as still led.

    Guards that patience ends with the last contact, and that a candidate knows no leader.
    """
    script = led(settled_ms=10)
    script.crash("n0")
    script.elapse(3 * TIMEOUT)
    new = script.leader()
    assert new is not None and new.node_id in ("n1", "n2")


def test_BUG_V4_a_node_in_a_higher_term_comes_back_within_a_timeout() -> None:
    """etcd's stuck candidate: a node in a higher term refuses the leader, which cannot depose itself.

    Guards that the refusal's term makes the leader step down and a new one be elected above it.
    """
    script = led(settled_ms=10)
    script.crash("n2")
    script.elapse(100)
    storage = script.nodes["n2"].storage
    storage.write([Write(1 << 40, 1, hard_state=HardState(7))])
    storage.sync()
    script.propose("n0", b"b")
    script.settle()
    script.restart("n2")
    script.elapse(4 * TIMEOUT)
    leader = script.leader()
    assert leader is not None and leader.term > 7
    assert all(replica.leader == leader.node_id for replica in (script["n0"], script["n1"], script["n2"]))


def test_BUG_V5_a_probe_judges_the_log() -> None:
    """ClickHouse's NuRaft PR 134: a candidate with an old log passes the probe because everybody lives.

    Guards that probes and real votes judge the log by one function.
    """
    script = Script(disks={"n0": disk([1, 1]), "n1": disk([1]), "n2": disk([1, 1])})
    for name in ("n0", "n2"):
        script[name].heard_leader_at -= 10_000 * MS
        script[name].election_deadline += 10_000 * MS
    script.elapse(3 * TIMEOUT)
    assert script["n1"].role == Role.CANDIDATE and script["n1"].term == 1
    outcome = script["n1"].campaign.last_outcome
    assert outcome is not None and outcome[1]["n0"] == VoteResult.REJECT_SMALL_LEDGER_END_INDEX


def test_BUG_V6_a_leader_is_known_by_its_id_not_by_its_address() -> None:
    """hashicorp 605: the sitting leader's address differs from the one in the membership, so it rejects itself.

    Guards that addresses decide nothing.
    """
    script = led(settled_ms=10)
    ticket = script.nodes["n0"].ticket()
    elsewhere = {name: f"{name}.elsewhere:9" for name in script.nodes}
    script["n0"].leading(script.now).changes.begin(ticket, elsewhere, {})
    script.pump("n0")
    script.elapse(2_000)
    assert script.outcome("n0", ticket) == "done"
    assert script.leader() is script["n0"] and terms(script) == [1, 1, 1]
    script.crash("n0")
    script.elapse(3 * TIMEOUT)
    assert script.leader() is not None


def test_BUG_V7_a_leader_that_can_send_but_not_hear_gives_way() -> None:
    """Howard and Abraham's liveness note, Cloudflare 2020: one direction of the leader's links is dead.

    Guards check quorum with stickiness: the leader resigns, and somebody who is heard leads.
    """
    script = led(settled_ms=10)
    script.cuts |= {("n1", "n0"), ("n2", "n0")}
    script.elapse(6 * TIMEOUT)
    leader = script.leader()
    assert leader is not None and leader.node_id in ("n1", "n2")
    assert script["n0"].role != Role.LEADER
    at = leader.term
    script.elapse(10 * TIMEOUT)
    assert leader.role == Role.LEADER and leader.term == at, "and it stays"


def test_BUG_V7_a_chain_of_three_keeps_its_middle() -> None:
    """A partial partition: the ends do not hear each other. The middle leads or follows, and the terms stand still."""
    script = led(settled_ms=10)
    script.cuts |= {("n0", "n2"), ("n2", "n0")}
    script.elapse(20 * TIMEOUT)
    at = max(terms(script))
    script.elapse(20 * TIMEOUT)
    assert max(terms(script)) == at


def test_BUG_V8_patience_starts_when_the_vote_is_durable() -> None:
    """openraft 228077a6, Ratis 980: a slow disk eats the follower's timer, so it campaigns against whom it voted for.

    Guards that the deadline is set anew when the vote may leave.
    """
    script = Script()
    voter = script["n1"]
    script.nodes["n1"].syncing = False
    voter.heard_leader_at -= 10_000 * MS
    voter.receive(script.now, "n0", Vote(1, 1, 1, 0, 0))
    script.pump("n1")
    script.now += 300 * MS
    script.sync("n1")
    assert voter.voted_for == "n0"
    assert voter.election_deadline >= script.now + TIMEOUT * MS


def test_BUG_V9_writes_stop_during_a_hand_over_and_resume_after_it() -> None:
    """hashicorp PR 581: the leader goes on accepting, so the target never catches up.

    Guards that proposals are refused while leadership moves, for a bounded time.
    """
    script = led(settled_ms=10)
    script.cuts |= {("n0", "n1"), ("n1", "n0")}
    script.propose("n0", b"b")
    ticket = script.transfer("n0", "n1")
    with pytest.raises(Rejected) as refused:
        script.propose("n0", b"c")
    assert refused.value.reason is RejectReason.TRANSFERRING
    script.elapse(script.config.transfer_timeout_ms + 10)
    assert script.outcome("n0", ticket) is RejectReason.NOT_CAUGHT_UP
    script.propose("n0", b"d")
    script.settle()
    assert script["n0"].commit_index == script["n0"].log.last_index


def test_BUG_V10_the_target_of_a_hand_over_asks_for_votes_at_once() -> None:
    """dragonboat 1c7ebd3, 175f332: with pre-vote on, the target's probes are refused because the leader is fresh.

    Guards that it skips the probe and patience, and that asking for a transfer names no term.
    """
    script = led(settled_ms=10)
    script.transfer("n0", "n1")
    script.settle()
    assert script.leader() is script["n1"], "in no time at all"
    rounds = [event for event in script.nodes["n1"].traces if isinstance(event, RoundStarted)]
    assert [event.probe for event in rounds] == [False]
    assert "term" not in inspect.signature(LeadershipTransfer.begin).parameters


def test_BUG_V11_one_hung_follower_blocks_no_membership_change() -> None:
    """openraft 1810: a change waits on a connection that never answers.

    Guards that nothing waits for one peer.
    """
    script = led(settled_ms=10)
    script.cut("n2")
    script.start("n3", disk([]), Membership())
    ticket = script.reconfigure("n0", ["n0", "n1", "n3"])
    script.elapse(1_000)
    assert script.outcome("n0", ticket) == "done"


def test_BUG_V12_a_stuck_pipeline_is_torn_down() -> None:
    """hashicorp 612, 614: after a stall appends to one follower get no answer any more while heartbeats succeed.

    Guards that appends without an answer are given up after a while and the follower is probed anew.
    """
    script = led(settled_ms=10)
    leading = script["n0"].leadership
    assert leading is not None
    script.nodes["n1"].syncing = False
    sent: list[Mail] = []

    def watch(mail: Mail) -> bool:
        if mail.target == "n1" and isinstance(mail.message, Append) and mail.message.frames:
            sent.append(mail)
        return True

    script.filter = watch
    script.propose("n0", b"b")
    script.elapse(script.config.replication_timeout_ms - 100)
    peer = leading.peers["n1"]
    assert len(sent) == 1 and peer.inflight
    script.elapse(300)
    assert len(sent) >= 2 and script["n0"].role == Role.LEADER, "given up and sent anew"
    script.nodes["n1"].syncing = True
    script.elapse(200)
    assert (peer.state, peer.match) == (State.REPLICATE, script["n0"].log.last_index)


def test_BUG_V13_a_busy_state_machine_starts_no_election() -> None:
    """jraft PR 969, toydb 22: heartbeats wait behind apply.

    Guards that answers to a leader never wait for what is applied.
    """
    script = led(settled_ms=10)
    for node in script.nodes.values():
        node.applying = False
    for payload in range(50):
        script.propose("n0", bytes([payload]))
        script.elapse(TIMEOUT / 4)
    assert script.leader() is script["n0"] and terms(script) == [1, 1, 1]
    assert script["n1"].applied_index < script["n1"].commit_index == script["n0"].commit_index


def test_BUG_V14_late_ticks_do_not_add_up() -> None:
    """etcd 6315e22, openraft 5e15946d: each late tick moves all later ones.

    Guards that the next heartbeat is planned from the last one's plan, not from when it was carried out.
    """
    script = led(settled_ms=10)
    leader = script["n0"]
    beat = script.config.heartbeat_interval_ms * MS
    leader.leadership.beat()  # type: ignore[union-attr]
    planned = leader.leadership._next_beat  # type: ignore[union-attr]
    for turn in range(1, 20):
        leader.tick(planned + 5 * MS)
        leader.drain()
        assert leader.leadership is not None
        for progress in leader.leadership.peers.values():
            progress.contact_ns = leader.now
        planned += beat
        assert leader.leadership._next_beat == planned, turn


def test_BUG_V15_after_a_restart_reads_cover_the_nodes_own_tail() -> None:
    """openraft 97d92771: a restarted node reports itself recovered at an old commit index.

    Guards that reads wait for the new term's first commit, which covers everything durable before it.
    """
    script = led(settled_ms=10)
    for payload in (b"b", b"c"):
        script.propose("n0", payload)
    script.settle()
    tail = script["n0"].log.last_index
    for name in script.nodes:
        script.crash(name)
    for name in list(script.nodes):
        script.restart(name)
    assert all(script[name].commit_index == 0 for name in script.nodes)
    script.filter = lambda mail: not (isinstance(mail.message, AppendReply) and mail.target == "n1")
    leader = script.elect("n1")
    ticket = script.read("n1")
    script.settle()
    script.filter = None
    script.elapse(200)
    assert script.nodes["n1"].reads[ticket].index > tail
    assert script.nodes["n1"].applied == [b"a", b"b", b"c"] and leader.role == Role.LEADER


def test_BUG_V16_a_removed_node_that_does_not_know_it_disturbs_nobody() -> None:
    """A node that missed its own removal goes on asking for votes.

    Guards that it raises no term, and that the answers tell it why nobody votes for it.
    """
    script = led(settled_ms=10)
    script.cut("n2")
    ticket = script.reconfigure("n0", ["n0", "n1"])
    script.elapse(5_000)
    assert script.outcome("n0", ticket) == "done"
    script.heal()
    script.elapse(5_000)
    assert script.leader() is script["n0"] and terms(script)[:2] == [1, 1]
    assert script["n2"].term == 1
    outcome = script["n2"].campaign.last_outcome
    assert script["n2"].role != Role.LEADER and (
        not script["n2"].campaign.allowed or (outcome and VoteResult.REJECT_UNKNOWN_LEADER in outcome[1].values()))


def test_BUG_V16_a_leader_tells_a_member_it_removes() -> None:
    """As above: who can be reached learns of the removal by the entry itself and stops campaigning."""
    script = led(settled_ms=10)
    ticket = script.reconfigure("n0", ["n0", "n1"])
    script.elapse(2_000)
    assert script.outcome("n0", ticket) == "done"
    assert "n2" not in script["n2"].membership.voters
    before = len([event for event in script.nodes["n2"].traces if isinstance(event, BecameCandidate)])
    script.elapse(5_000)
    after = [event for event in script.nodes["n2"].traces if isinstance(event, (BecameCandidate, BecameLeader))]
    assert len(after) == before == 0


def test_BUG_V17_a_leader_that_was_not_relieved_has_a_lease_again() -> None:
    """Own: a hand-over whose last word was lost left a leader that never had a lease again.

    Guards that it takes the next term, in which that word says nothing.
    """
    script = led()
    replica, term, late = script["n0"], script["n0"].term, list[Mail]()

    def kept(mail: Mail) -> bool:
        late.extend([mail] if isinstance(mail.message, TimeoutNow) else [])
        return not isinstance(mail.message, TimeoutNow)

    script.filter = kept
    ticket = script.transfer("n0", "n1")
    script.settle()
    assert not replica.lease_valid(script.now)
    script.elapse(script.config.transfer_timeout_ms + 100)
    assert script.outcome("n0", ticket) == "unknown"
    assert script.leader() is replica and replica.term == term + 1
    assert replica.lease_valid(script.now)
    script.heal()
    script.deliver(late[0])
    script.settle()
    assert script.leader() is replica and replica.term == term + 1, "what comes now says nothing"


def test_the_filter_sees_replies() -> None:
    """The driver's own filter works both ways; the scenarios above rest on it."""
    script = led(settled_ms=10)
    seen: list[Mail] = []

    def watch(mail: Mail) -> bool:
        seen.append(mail)
        return True

    script.filter = watch
    script.propose("n0", b"z")
    script.settle()
    assert {type(mail.message) for mail in seen} >= {Append, AppendReply}
