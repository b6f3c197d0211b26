"""Reads, leases and clocks: bugs that other libraries had (table Q), each as a scenario."""

from __future__ import annotations

import ast
from pathlib import Path

import attrs
import pytest

import raft.replica
from raft.config import MS, Config, Read, Rules
from raft.errors import HandshakeRefused, NotLeader, Rejected, RejectReason
from raft.hello import Hello, Lane, check_hello
from raft.leadership import Leadership
from raft.messages import Append, AppendReply, ReadRequest, Role, TimeoutNow
from raft.rules import make_rules
from tests.raft.script import Mail, Script, disk, led

LEASE = Config().election_timeout_ms * (100 - Config().clock_drift_percent) / 100
"""Milliseconds a lease lasts from the departure of the messages that a quorum answered."""


def leadership(script: Script, name: str) -> Leadership:
    leading = script[name].leadership
    assert leading is not None
    return leading


def test_BUG_Q1_no_read_index_before_the_first_commit_of_the_term() -> None:
    """etcd 7331, redisraft 18 and 19: a new leader answers reads before an entry of its own term is committed.

    Guards that such reads wait for the no-op.
    """
    script = Script(disks={name: disk([1, 1]) for name in ("n0", "n1", "n2")})
    leader = script["n0"]
    script.filter = lambda mail: not (isinstance(mail.message, AppendReply) and mail.target == "n0")
    script.elect("n0")
    ticket = script.read("n0")
    script.settle()
    assert script.outcome("n0", ticket) == "open" and leader.commit_index == 0
    script.filter = None
    script.elapse(200)
    assert script.outcome("n0", ticket) == "done"
    assert script.nodes["n0"].reads[ticket].index >= leader.leadership.own_first  # type: ignore[union-attr]


def test_BUG_Q2_answers_to_an_earlier_round_complete_no_later_one() -> None:
    """etcd 20418, raft PR 397: a retried read is completed by heartbeat answers of the first try.

    Guards that each round has a number of its own, and only answers that echo it or a later one count.
    """
    script = led(settled_ms=10)
    first = script.read("n0")
    late = []

    def hold(mail: Mail) -> bool:
        if isinstance(mail.message, AppendReply):
            late.append(mail)
            return False
        return True

    script.filter = hold
    script.settle()
    script.filter = None
    script.cut("n0")
    second = script.read("n0")
    script.settle()
    rounds = {mail.message.read_round for mail in late}  # type: ignore[union-attr]
    script.cuts.clear()
    script.mail.clear()
    for mail in late:
        script.deliver(mail)
        script.mail = [m for m in script.mail if m.source != "n0"]  # the second round's own questions stay cut off
    assert script.outcome("n0", first) == "done"
    assert script.outcome("n0", second) == "open"
    assert leadership(script, "n0").reads.round not in rounds


def test_BUG_Q3_a_lease_ends_before_another_leader_can_be_elected() -> None:
    """jraft 25, 26, 34: the old leader's coarse timer lets it serve for seconds beside a new one.

    Guards that a lease is judged at each read, from when the messages that a quorum answered were sent.
    """
    script = led(settled_ms=10)
    old = script["n0"]
    assert old.lease_valid(script.now)
    script.cut("n0")
    for _ in range(400):
        script.elapse(5)
        others = [script[name] for name in ("n1", "n2")]
        if any(replica.role == Role.LEADER for replica in others):
            break
        fresh = script.now - old.leadership.tracker.quorum_contact() if old.leadership else 1 << 60
        assert old.lease_valid(script.now) == (fresh < LEASE * MS)
    assert script.leader() is not old
    assert not old.lease_valid(script.now)
    if old.role == Role.LEADER:  # it has not noticed yet: then it asks, and gets no answer
        ticket = script.read("n0", Read.LEASE)
        script.settle()
        assert script.outcome("n0", ticket) == "open"
    script.elapse(1_000)
    with pytest.raises(NotLeader):
        script.read("n0", Read.LEASE)


def test_BUG_Q4_no_wall_clock_decides_anything() -> None:
    """jraft 24: a lease on the wall clock, which steps.

    Guards that cores take monotonic time as an argument: none of them reads a clock, and wall time is only recorded.
    """
    script = led(settled_ms=10)
    for replica in (script["n0"], script["n1"], script["n2"]):
        replica.wall_ms = 1 << 45
    script.elapse(2_000)
    script["n0"].wall_ms = 0
    script.elapse(2_000)
    assert script.leader() is script["n0"] and script["n0"].lease_valid(script.now)
    package = Path(raft.replica.__file__).parent
    for core in ("replica", "leadership", "following", "candidacy", "reads", "transfer", "changes", "rules/strict"):
        tree = ast.parse((package / f"{core}.py").read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert not imported & {"time", "datetime"}, core


def test_BUG_Q5_a_leader_that_was_stopped_beyond_its_lease_asks_again() -> None:
    """etcd 20418 and process pauses: a leader resumes with a read in hand after its lease ran out.

    Guards that the lease is checked against the moment of the answer, and that a pause voids what was heard before.
    """
    script = led(settled_ms=10)
    old = script["n0"]
    assert old.lease_valid(script.now)
    script.now += int(2 * LEASE * MS)
    assert not old.lease_valid(script.now)
    ticket = script.read("n0", Read.LEASE)
    assert script.outcome("n0", ticket) == "open"
    script.settle()
    assert script.outcome("n0", ticket) == "done"
    assert not script.nodes["n0"].reads[ticket].lease


def test_BUG_Q5_a_pause_shorter_than_the_lease_voids_it_too() -> None:
    """A suspended machine's clock may have stood still: after any long gap only messages sent since then count."""
    script = led(settled_ms=10)
    old = script["n0"]
    script.now += old.leadership.pause_ns + 1  # type: ignore[union-attr]
    assert not old.lease_valid(script.now)
    script.elapse(200)
    assert old.lease_valid(script.now)


def test_BUG_Q6_the_lease_leaves_room_for_clock_drift() -> None:
    """Clock-rate skew: a voter whose clock runs faster lets another candidate in earlier.

    Guards that a lease is shorter than a voter's silence by the configured drift.
    """
    script = led(settled_ms=10)
    leader = script["n0"]
    start = leader.leadership.tracker.quorum_contact()  # type: ignore[union-attr]
    leader.leadership.pause_ns = 1 << 60  # type: ignore[union-attr]
    silence = make_rules(script.config).lease_ns
    end = start + silence * (100 - script.config.clock_drift_percent) // 100
    assert leader.lease_valid(end - 1)
    assert not leader.lease_valid(end)
    assert end < start + silence


def test_BUG_Q6_voters_that_keep_a_shorter_silence_are_refused_at_the_door() -> None:
    """Clock-rate skew, at its worst: the voters' timers are set to another time than the leader's lease is made of.

    Guards that members whose election timeouts differ do not talk, where the rules grant leases.
    """
    leader, voter = (
        Hello(cluster="c", node=name, incarnation=name.encode() * 8, lane=Lane.CONTROL, lease_ms=lease_ms)
        for name, lease_ms in (("n0", 2_000), ("n1", 400)))
    for own, theirs in ((leader, voter), (voter, leader)):
        with pytest.raises(HandshakeRefused, match=r"election_timeout_ms=\d+, node 'n\d' has \d+: a leader's lease"):
            check_hello(own, theirs)
    check_hello(leader, attrs.evolve(voter, lease_ms=2_000))


def test_BUG_Q7_reads_are_gated_during_a_hand_over_like_writes() -> None:
    """openraft 1747: reads keep refreshing the followers during a transfer to a dead target, which never ends.

    Guards that reads are refused while leadership moves, and that the hand-over times out.
    """
    script = led(settled_ms=10)
    script.cuts |= {("n0", "n1"), ("n1", "n0")}
    script.propose("n0", b"b")
    ticket = script.transfer("n0", "n1")
    with pytest.raises(Rejected) as refused:
        script.read("n0")
    assert refused.value.reason is RejectReason.TRANSFERRING
    script.elapse(script.config.transfer_timeout_ms + 100)
    assert script.outcome("n0", ticket) is RejectReason.NOT_CAUGHT_UP
    again = script.read("n0")
    script.settle()
    assert script.outcome("n0", again) == "done"


def test_BUG_Q8_a_read_round_needs_the_voters_quorum() -> None:
    """openraft d60f1e85, MicroRaft c768342: read quorum off by one, or learners counted.

    Guards that reads are confirmed by the quorum that commits.
    """
    script = Script(["n0", "n1", "n2", "n3", "n4"], learners=["n5", "n6"])
    script.elect("n0")
    script.elapse(100)
    for name in ("n2", "n3", "n4"):
        script.cuts |= {("n0", name), (name, "n0")}
    ticket = script.read("n0")
    script.settle()
    assert script.outcome("n0", ticket) == "open", "two voters and two learners are no quorum of five"
    script.cuts -= {("n0", "n2"), ("n2", "n0")}
    script.elapse(100)
    assert script.outcome("n0", ticket) == "done"


def test_BUG_Q8_while_joint_a_read_needs_both_halves() -> None:
    """As above: in a joint membership one half alone confirms nothing."""
    script = led(settled_ms=10)
    for name in ("n3", "n4"):
        script.start(name, disk([]), membership=type(script.bootstrap)())
    ticket = script.reconfigure("n0", ["n0", "n3", "n4"])
    for _ in range(2_000):
        if script["n0"].membership.joint or not script.mail:
            break
        script.deliver(script.mail[0])
    assert script["n0"].membership.joint
    script.mail.clear()
    for name in ("n1", "n2"):
        script.cuts |= {("n0", name), (name, "n0")}
    read = script.read("n0")
    script.elapse(50)
    assert script.outcome("n0", read) == "open"
    script.heal()
    script.elapse(500)
    assert script.outcome("n0", read) == "done"
    assert script.outcome("n0", ticket) == "done"


def test_BUG_Q9_every_read_ends() -> None:
    """raft-rs e6784ab, Ratis 2044: reads dropped while others wait, or lost in a race.

    Guards that each ticket is answered once, whatever overtakes it.
    """
    script = led(settled_ms=10)
    tickets = [("n0", script.read("n0")) for _ in range(5)] + [("n1", script.read("n1")) for _ in range(5)]
    script.deliver(script.mail[0])
    tickets += [("n0", script.read("n0")), ("n2", script.read("n2"))]
    script.cut("n0")
    script.elapse(3_000)
    assert all(script.outcome(name, ticket) != "open" for name, ticket in tickets)


def test_BUG_Q10_no_lease_without_promised_silence() -> None:
    """raft-rs 141: lease reads with check quorum switched off.

    Guards that rules under which voters promise no silence grant no lease: such a read takes a round.
    """
    config = Config(rules=Rules.DLEDGER)
    script = Script(config=config)
    script.elect("n0")
    script.settle()
    assert not script["n0"].lease_valid(script.now)
    ticket = script.read("n0", Read.LEASE)
    assert script.outcome("n0", ticket) == "open"
    script.settle()
    assert script.outcome("n0", ticket) == "done" and not script.nodes["n0"].reads[ticket].lease


def test_BUG_Q11_reads_end_with_the_leadership_and_free_their_memory() -> None:
    """etcd raft tests of pending reads: a leader change leaves them behind.

    Guards that all are refused and none is kept.
    """
    script = led(settled_ms=10)
    script.cut("n0")
    tickets = [script.read("n0") for _ in range(10)] + [script.read("n0", Read.LOG)]
    reads = leadership(script, "n0").reads
    assert len(reads) == 11
    script.elapse(3_000)
    assert {script.outcome("n0", ticket) for ticket in tickets} == {RejectReason.LEADER_LOST}
    assert len(reads) == 0 and script["n0"].leadership is None


def test_BUG_Q12_no_read_while_a_snapshot_is_installed() -> None:
    """Ratis 2511: a follower answers from a state machine that is being replaced.

    Guards that a read on an installing node is refused.
    """
    script = led(settled_ms=10)
    replica = script["n1"]
    script.snapshot("n0")
    replica.installing = script["n0"].log.snapshot
    with pytest.raises(Rejected) as refused:
        script.read("n1")
    assert refused.value.reason is RejectReason.INSTALLING


def test_BUG_Q13_confirmation_comes_first_even_if_apply_is_current() -> None:
    """d-engine 381: the read is served at once because everything is applied already.

    Guards that no read is ready before a quorum answered its round.
    """
    script = led(settled_ms=10)
    assert script["n0"].applied_index == script["n0"].log.last_index
    script.cut("n0")
    ticket = script.read("n0")
    script.elapse(100)
    assert script.outcome("n0", ticket) == "open"


def test_BUG_Q14_the_lease_is_gone_once_the_successor_was_told() -> None:
    """Thesis 6.4.1, braft 3cfb1f1: the transferee wins inside the old lease.

    Guards that telling the successor ends the lease of that term for good: the message may arrive at any time.
    """
    script = led(settled_ms=10)
    old, term = script["n0"], script["n0"].term
    script.filter = lambda mail: not isinstance(mail.message, TimeoutNow)
    assert old.lease_valid(script.now)
    script.transfer("n0", "n1")
    script.elapse(script.config.transfer_timeout_ms - 10)
    assert old.role == Role.LEADER and old.term == term and not old.lease_valid(script.now)
    leading = old.leadership
    assert leading is not None
    leading.transfer.target = None  # given up, and the next term not taken yet
    ticket = script.read("n0", Read.LEASE)
    script.settle()
    assert script.outcome("n0", ticket) == "done" and not script.nodes["n0"].reads[ticket].lease


def test_a_followers_read_waits_for_the_leaders_index() -> None:
    """A read on a follower gets the leader's commit index, not its own."""
    script = led(settled_ms=10)
    script.filter = lambda mail: not (isinstance(mail.message, Append) and mail.target == "n1" and mail.message.frames)
    script.propose("n0", b"b")
    script.settle()
    ticket = script.read("n1")
    assert any(isinstance(mail.message, ReadRequest) for mail in script.mail)
    script.settle()
    assert script.nodes["n1"].reads[ticket].index == script["n0"].commit_index > script["n1"].log.last_index
