"""Membership: bugs that other libraries had (table M), each as a scenario."""

from __future__ import annotations

from itertools import groupby, pairwise
from random import Random

import attrs
import pytest

from raft.config import MS, Config
from raft.errors import HandshakeRefused, RaftError, Rejected, RejectReason, WrongDirectory
from raft.frame import Frame, Kind
from raft.hello import Hello, Lane, check_hello
from raft.leadership import Leadership
from raft.log import BOUNDARY_ENTRIES
from raft.membership import Membership
from raft.messages import Append, AppendReply, Role
from raft.progress import State
from raft.sim.disk import VirtualDisk
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage
from tests.raft.script import Script, led

TIMEOUT = Config().election_timeout_ms


def leadership(script: Script, name: str) -> Leadership:
    leading = script[name].leadership
    assert leading is not None
    return leading


def role(script: Script, name: str) -> Role:
    return script[name].role


def elected(script: Script) -> list[str]:
    """Who has led since it started."""
    return [name for name in script.nodes if script[name].leadership_seq]


def frames(script: Script, name: str) -> list[Frame]:
    """Every frame in this node's log."""
    return script[name].log.cached(script[name].log.purged_index + 1, 1 << 30) or []


def changes(script: Script, name: str) -> list[tuple[int, Membership]]:
    """(index, membership) of every membership entry in this node's log."""
    return [(frame.first, Membership.decode(frame.payloads()[0]))
            for frame in frames(script, name) if frame.kind == Kind.MEMBERSHIP]


def start_joiners(script: Script, *names: str) -> None:
    for name in names:
        script.wipe(name)


def hold_replies(script: Script, *sources: str) -> None:
    """Acknowledgements of these nodes are lost from now on."""
    script.filter = lambda mail: not (mail.source in sources and isinstance(mail.message, AppendReply))


def joint(script: Script, voters: list[str]) -> int:
    """n0 moves the group to these voters; ends when the joint membership is appended. Returns its index."""
    script.reconfigure("n0", voters)
    for _ in range(5_000):
        if script["n0"].membership.joint:
            return script["n0"].log.membership_index
        assert script.mail, "the group never became joint"
        script.deliver(script.mail[0])
    raise AssertionError("the group never became joint")


def step_until_left(script: Script, name: str = "n0") -> int:
    """Deliver until this node has appended the membership that ends the joint one. Returns its index."""
    for _ in range(5_000):
        if not script[name].membership.joint:
            return script[name].log.membership_index
        assert script.mail, "the joint membership is never left"
        script.deliver(script.mail[0])
    raise AssertionError("the joint membership is never left")


def way_from(script: Script, name: str, index: int) -> list[tuple[str, ...]]:
    """Outgoing voters of the memberships from ``index`` on; those that only record a new directory left out."""
    mine = [membership for at, membership in changes(script, name) if at >= index]
    assert all(before != after for before, after in pairwise(mine)), "an entry that changes nothing"
    return [outgoing for outgoing, _ in groupby(membership.outgoing for membership in mine)]


# --- M1, M2: when a change may be appended ----------------------------------------------------------------------


def test_BUG_M1_no_change_before_an_entry_of_the_leaders_own_term_is_committed() -> None:
    """Ongaro, raft-dev 2015; old-raft-rs 41: leaders of consecutive terms append different one-server changes.

    Guards that a new leader appends no membership before its no-op is committed.
    """
    script = led(4)
    script.cut("n0")
    script.reconfigure("n0", ["n0", "n1", "n2"])
    assert script["n0"].membership.joint, "the first change is in n0's log alone"
    hold_replies(script, "n2", "n3")
    new = script.elect("n1")
    before = new.log.membership_index
    ticket = script.reconfigure("n1", ["n1", "n2", "n3"])
    script.settle()
    leading = leadership(script, "n1")
    assert new.commit_index < leading.own_first and new.log.membership_index == before
    script.filter = None
    script.elapse(300)
    assert script.outcome("n1", ticket) == "done"
    assert all(index > leading.own_first for index, _ in changes(script, "n1") if index > before)
    script.heal()
    script.elapse(1_000)
    assert all(script[name].membership == new.membership for name in ("n2", "n3"))
    assert script["n0"].role == Role.FOLLOWER and not script["n0"].membership.joint


def test_BUG_M2_a_joint_membership_is_left_once_and_only_when_it_is_committed() -> None:
    """etcd bd3c759, 12582: the leave is proposed twice, or when the joint entry is not the last one.

    Guards that no membership is appended while an earlier one is uncommitted, whatever stands behind it.
    """
    script = led()
    start_joiners(script, "n3")
    at = joint(script, ["n0", "n1", "n3"])
    held = [mail for mail in script.mail if mail.target != "n0"]
    script.mail.clear()
    hold_replies(script, "n1", "n2", "n3")
    for mail in held:
        script.deliver(mail)
    for number in range(5):
        script.propose("n0", b"%d" % number)
        script.elapse(60)
    assert script["n0"].commit_index < at and script["n0"].log.membership_index == at and script["n0"].membership.joint
    script.filter = None
    for _ in range(5):
        script.propose("n0", b"and on")
        script.elapse(100)
    assert [index for index, membership in changes(script, "n0") if membership.joint] == [at]
    assert way_from(script, "n0", at) == [("n0", "n1", "n2"), ()]


@pytest.mark.parametrize("has_leave", [False, True])
def test_BUG_M2_a_new_leader_leaves_a_joint_membership_once(has_leave: bool) -> None:
    """etcd 12582: and if leadership changes on the way, with or without the leave in the new leader's log."""
    script = led()
    start_joiners(script, "n3")
    at = joint(script, ["n0", "n1", "n3"])
    if not has_leave:  # all have the joint entry, n0 never learns it
        hold_replies(script, "n1", "n2", "n3")
        script.settle()
    else:  # all have the leave, uncommitted
        step_until_left(script)
        hold_replies(script, "n1", "n2", "n3")
        script.settle()
    assert script["n1"].membership.joint != has_leave
    script.crash("n0")
    script.filter = None
    script.elect("n1")
    script.elapse(500)
    assert way_from(script, "n1", at) == [("n0", "n1", "n2"), ()]
    assert script["n1"].commit_index == script["n1"].log.last_index


# --- M3, M4, M5: memberships that are not applied, rolled back, or restored ---------------------------------------


def test_BUG_M3_a_node_campaigns_by_the_latest_membership_in_its_log() -> None:
    """etcd fb74dd0: a node campaigns with a membership change that it has not applied.

    The rule here: effective on append, so nothing has to be applied first, and its round asks the new voters.
    """
    script = led(3, learners=["n3"])
    script.nodes["n3"].applying = False
    ticket = script.reconfigure("n0", ["n0", "n1", "n2", "n3"])
    script.elapse(200)
    assert script.outcome("n0", ticket) == "done"
    assert script["n3"].applied_index < script["n3"].log.membership_index
    script.crash("n0")
    hold = script["n3"].applied_index
    leader = script.elect("n3")
    assert leader.applied_index == hold and leader.term > 1
    assert leader.membership.voters == ("n0", "n1", "n2", "n3")


def test_BUG_M3_a_voter_goes_on_campaigning_while_its_removal_may_be_uncommitted() -> None:
    """etcd fb74dd0, thesis 4.2.2: it holds its own removal, uncommitted, and the others need its log to go on.

    Guards that not the latest membership alone decides who campaigns, but also the committed one.
    """
    script = led(5)
    joint(script, ["n0", "n1", "n2"])
    script.filter = lambda mail: not (
        mail.target in ("n1", "n2", "n4") and isinstance(mail.message, Append) and any(
            frame.kind == Kind.MEMBERSHIP and not Membership.decode(frame.payloads()[0]).joint
            for frame in mail.message.frames))
    step_until_left(script)
    for _ in range(200):
        if not script["n3"].membership.joint:
            break
        script.deliver(script.mail[0])
    script.crash("n0")
    script.crash("n4")
    script.heal()
    assert not script["n3"].membership.votes("n3") and script["n1"].membership.joint
    assert script["n3"].log.last_index > script["n1"].log.last_index
    script.elapse(20 * TIMEOUT)
    leader = script.leader()
    assert leader is not None and leader.node_id in ("n1", "n2"), "n3 led until its removal was committed"
    assert not leader.membership.joint and leader.commit_index == leader.log.last_index


def test_BUG_M4_what_a_rollback_needs_outlives_compaction() -> None:
    """canonical/raft 250 and 323: an uncommitted membership is truncated, and the one before it was compacted.

    Guards that purging keeps the membership in effect at the purged index.
    """
    script = led(config=Config(snapshot_tail_entries=0))
    old = script["n0"].membership
    assert old.members["n1"].incarnation, "the membership in effect comes from an entry, not from the bootstrap"
    script.propose("n0", *[b"b"] * BOUNDARY_ENTRIES)
    script.settle()
    script.elapse(10)
    at = script["n0"].commit_index
    assert script["n0"].log.membership_index < at
    script.cut("n0")
    script.reconfigure("n0", ["n0", "n1", "n2"], ["n3"])
    assert script["n0"].membership != old
    script.snapshot("n0")
    assert script["n0"].log.purged_index == at
    script.elect("n1")
    script.propose("n1", b"c")
    script.settle()
    script.heal()
    script.elapse(300)
    assert script["n0"].membership == old == script["n1"].membership
    script.crash("n0")
    assert script.restart("n0").replica.membership == old


def test_BUG_M5_a_restart_in_a_joint_membership_needs_both_majorities() -> None:
    """openraft 6c0ccaf3, 4d58a51e: the whole group restarts while joint. Guards the quorum of elections."""
    script = led()
    start_joiners(script, "n3", "n4")
    joint(script, ["n0", "n3", "n4"])
    hold_replies(script, "n1", "n2", "n3", "n4")
    script.settle()
    names = list(script.nodes)
    for name in names:
        script.crash(name)
    script.filter = None
    for name in names:
        assert script.restart(name).replica.membership.joint
    script.crash("n3")
    script.crash("n4")
    script.elapse(20 * TIMEOUT)
    assert elected(script) == [], "a majority of the old voters alone elects nobody"
    script.crash("n2")
    script.restart("n3")
    script.restart("n4")
    script.crash("n1")
    script.elapse(20 * TIMEOUT)
    assert elected(script) == [], "nor does one of the new"
    script.restart("n1")
    script.elapse(20 * TIMEOUT)
    leader = script.leader()
    assert leader is not None and leader.membership.voters == ("n0", "n3", "n4") and not leader.membership.joint


def test_BUG_M5_an_outsider_that_is_silent_blocks_nothing() -> None:
    """openraft 4d58a51e: replication waits for a node of neither majority. Guards that learners are not waited for."""
    script = led(3, learners=["l0"])
    start_joiners(script, "n3", "l1")
    script.crash("l0")
    script.crash("l1")
    script.crash("n2")
    ticket = script.reconfigure("n0", ["n0", "n1", "n3"], ["l0", "l1"])
    script.elapse(300)
    assert script.outcome("n0", ticket) == "done"
    script.propose("n0", b"b")
    script.settle()
    assert script["n0"].commit_index == script["n0"].log.last_index


# --- M6: partitions, kills and pauses on the way ------------------------------------------------------------------


def test_BUG_M6_a_cut_off_half_of_a_shrinking_group_decides_nothing() -> None:
    """redisraft 17, 28, 44: a change, a partition and a kill, and two leaders commit side by side.

    Guards that a joint membership's entries need the old majority too, also when the new voters are all here.
    """
    script = led(5)
    joint(script, ["n0", "n1"])
    script.mail.clear()
    script.cut("n0", "n1")
    script.propose("n0", b"minority")
    script.elapse(150)
    assert script["n1"].membership.joint and script["n0"].commit_index < script["n0"].log.membership_index
    script.crash("n1")
    script.restart("n1")
    new = script.elect("n2")
    script.propose("n2", b"majority")
    script.settle()
    assert new.commit_index == new.log.last_index
    script.now += 5_000 * MS  # n0 and all others stood still
    script.heal()
    script.elapse(10 * TIMEOUT)
    for node in script.nodes.values():
        assert node.applied == [b"a", b"majority"], node.name
        assert node.replica.membership == new.membership


@pytest.mark.parametrize("seed", range(6))
def test_BUG_M6_changes_among_partitions_kills_and_pauses_lose_nothing(seed: int) -> None:
    """redisraft 17, 28, 44: drawn at random. At most one leader per term, one history, nothing acknowledged lost."""
    rng, script = Random(seed), led(4, seed=seed)
    names, leaders, acknowledged = list(script.nodes), dict[int, str](), list[bytes]()
    for step in range(60):
        leader, kind = script.leader(), rng.choice(("change", "change", "cut", "heal", "kill", "pause", "propose"))
        if kind == "cut":
            script.cuts.clear()
            script.cut(*rng.sample(names, 2))
        elif kind == "heal":
            script.cuts.clear()
        elif kind == "kill":
            victim = rng.choice(names)
            script.crash(victim)
            script.restart(victim)
        elif kind == "pause":
            script.now += rng.randrange(2_000) * MS
        elif kind == "change" and leader is not None:
            try:
                script.reconfigure(leader.node_id, rng.sample(names, rng.randint(1, 4)))
            except RaftError:
                continue
        elif leader is not None:
            payload = b"%d" % step
            try:
                _, last = script.propose(leader.node_id, payload)
            except RaftError:
                continue
            script.settle()
            if leader.role == Role.LEADER and leader.commit_index >= last:
                acknowledged.append(payload)
        script.elapse(rng.randrange(600))
        for name in names:
            if script[name].role == Role.LEADER:
                assert leaders.setdefault(script[name].term, name) == name, "two leaders in one term"
        histories = sorted((node.applied for node in script.nodes.values()), key=len)
        assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(histories))
    script.cuts.clear()
    script.elapse(10 * TIMEOUT)
    leader = script.leader()
    assert leader is not None and leader.commit_index == leader.log.last_index
    assert acknowledged and set(acknowledged) <= set(script.nodes[leader.node_id].applied)


# --- M7, M8: those who leave ----------------------------------------------------------------------------------------


def test_BUG_M7_a_member_that_leaves_is_fed_until_it_knows() -> None:
    """Ratis 2274: a peer keeps an obsolete membership. Guards that the last entries still go to who is removed."""
    script = led()
    ticket = script.reconfigure("n0", ["n0", "n1"])
    script.elapse(200)
    assert script.outcome("n0", ticket) == "done"
    assert script["n2"].membership.voters == ("n0", "n1")
    assert script["n2"].commit_index >= script["n2"].log.membership_index and not script["n2"].campaign.allowed
    assert "n2" not in script["n0"].peers, "and no longer than that"


def test_BUG_M7_elections_end_with_an_obsolete_member_and_after_one_is_removed_in_the_middle() -> None:
    """Ratis 2274, 2146, 1912: a peer that does not know its removal campaigns while the others elect.

    Guards that a candidate with an older log than the voters' is answered and changes nothing.
    """
    script = led(4)
    script.cuts |= {("n0", "n3"), ("n3", "n0")}
    script["n3"].election_deadline = script.now  # it is a candidate when it is removed
    script["n3"].tick(script.now)
    script.pump("n3")
    assert role(script, "n3") == Role.CANDIDATE
    ticket = script.reconfigure("n0", ["n0", "n1", "n2"])
    script.settle()
    script.elapse(50)
    assert script.outcome("n0", ticket) == "done" and script["n3"].membership.votes("n3")
    term = script["n0"].term
    script.elapse(5 * TIMEOUT)
    assert script.leader() is script["n0"] and script["n0"].term == term
    script.crash("n0")
    script.elapse(5 * TIMEOUT)
    leader = script.leader()
    assert leader is not None and leader.node_id in ("n1", "n2") and role(script, "n3") != Role.LEADER
    assert leader.term <= term + 3


def test_BUG_M8_a_leader_that_is_removed_commits_without_itself_and_goes() -> None:
    """KAFKA-16530, etcd's step-down cases: the leader is not in the new voter set.

    Guards that it does not count itself, and that it steps down once its removal is committed.
    """
    script = led()
    joint(script, ["n1", "n2"])
    at = step_until_left(script)
    leader, term = script["n0"], script["n0"].term
    script.cut("n2")
    script.elapse(150)
    assert at > leader.commit_index, "the leader and one of two are no majority of two"
    assert leader.peers["n1"].match >= at and not leader.lease_valid(script.now)
    script.heal()
    script.elapse(200)
    assert leader.commit_index >= at and role(script, "n0") == Role.FOLLOWER
    successor = script.leader()
    assert successor is not None and successor.node_id in ("n1", "n2") and successor.term == term + 1
    script.elapse(20 * TIMEOUT)
    assert role(script, "n0") == Role.FOLLOWER and script.leader() is successor


# --- M9, M10: those who are promoted --------------------------------------------------------------------------------


def test_BUG_M9_a_promoted_learner_keeps_its_progress() -> None:
    """dragonboat ac6a472: promotion makes a new progress, and what the learner holds is forgotten.

    Guards that match and session outlive a change of role.
    """
    script = led(3, learners=["n3"])
    peer = script["n0"].peers["n3"]
    session, match = peer.session, peer.match
    assert peer.state == State.REPLICATE and match == script["n0"].log.last_index
    script.cut("n3")
    ticket = script.reconfigure("n0", ["n0", "n1", "n2", "n3"])
    script.elapse(100)
    assert script.outcome("n0", ticket) == "done"
    assert script["n0"].peers["n3"] is peer and (peer.session, peer.match) == (session, match)
    script.heal()
    script.elapse(300)
    assert peer.match == script["n0"].log.last_index and peer.session == session


def test_BUG_M10_no_hand_over_to_a_voter_that_does_not_hold_its_promotion() -> None:
    """openraft 1805: leadership goes to a learner that was just promoted and does not know it, so it cannot campaign.

    Guards that the target must hold the latest membership; the refusal says so.
    """
    script = led(3, learners=["n3"])
    script.cut("n3")
    ticket = script.reconfigure("n0", ["n0", "n1", "n2", "n3"])
    script.elapse(100)
    assert script.outcome("n0", ticket) == "done" and not script["n3"].membership.votes("n3")
    with pytest.raises(Rejected, match="does not hold the latest membership") as refused:
        script.transfer("n0", "n3")
    assert refused.value.reason is RejectReason.NOT_CAUGHT_UP
    script.propose("n0", b"writes go on")
    script.heal()
    script.elapse(200)
    ticket = script.transfer("n0", "n3")
    script.settle()
    assert script.outcome("n0", ticket) == "done" and script.leader() is script["n3"]


# --- M11, M12: identity ---------------------------------------------------------------------------------------------


def test_BUG_M11_nodes_of_two_clusters_refuse_each_other() -> None:
    """NuRaft 83a847b, f51ca25: a node that belongs to one cluster is added to another. Guards the greeting."""
    one, other = (Hello(cluster=cluster, node=node, incarnation=node.encode() * 8, lane=Lane.CONTROL)
                  for cluster, node in (("blue", "n0"), ("green", "n1")))
    for own, theirs in ((one, other), (other, one)):
        with pytest.raises(HandshakeRefused, match=r"belongs to cluster '\w+', node '\w+' to cluster '\w+'"):
            check_hello(own, theirs)
    check_hello(one, attrs.evolve(other, cluster="blue"))


def test_BUG_M11_a_directory_of_another_cluster_is_refused() -> None:
    """NuRaft f51ca25: and so is a node that starts for another cluster than its directory's."""
    files = VirtualDisk()
    format_directory(files, "blue", "n0", bytes(range(16)))
    with pytest.raises(WrongDirectory, match="belongs to cluster 'blue'"):
        SegmentStorage(files, "green", "n0", segment_bytes=32 << 10, rng=Random(1)).open()
    with pytest.raises(WrongDirectory, match="belongs to node 'n0'"):
        SegmentStorage(files, "blue", "n1", segment_bytes=32 << 10, rng=Random(1)).open()


def test_BUG_M12_a_wiped_node_votes_again_only_after_it_was_a_learner() -> None:
    """etcd 2676, 2746: a voter's disk was emptied and it comes back under its old id; it has forgotten its votes.

    Guards that its directory is its identity: it counts for nothing until it was admitted anew, as a learner.
    """
    script = led()
    lost = script["n0"].membership.members["n2"].incarnation
    script.crash("n2")
    script.wipe("n2")
    fresh = script.incarnations["n2"]
    script.elapse(200)
    assert "n2" in script["n0"].identities.strangers
    script.cuts |= {("n0", "n1"), ("n1", "n0")}
    before = script["n0"].commit_index
    script.propose("n0", b"b")
    script.elapse(100)
    assert script["n0"].commit_index == before, "n0 and a node that lost its log are no majority"
    script.heal()
    ticket = script.reconfigure("n0", ["n0", "n1", "n2"])
    script.elapse(500)
    assert script.outcome("n0", ticket) == "done" and "n2" not in script["n0"].identities.strangers
    way = [("learner" if "n2" in membership.learners and not membership.votes("n2") else
            "voter" if membership.votes("n2") else "gone", membership.members.get("n2"))
           for _, membership in changes(script, "n0")]
    roles = [role for role, member in way if member is not None and member.incarnation == fresh]
    assert roles[0] == "learner" and roles[-1] == "voter"
    assert all(member is None or member.incarnation in (lost, fresh) for _, member in way)


def test_BUG_M12_a_newcomer_is_known_by_its_directory_before_it_votes() -> None:
    """The same of a node that was never a voter before: it is promoted with its directory written down, so no wipe
    right behind its promotion goes unnoticed."""
    script = led()
    start_joiners(script, "n3")
    known = script.incarnations["n3"]
    ticket = script.reconfigure("n0", ["n0", "n1", "n2", "n3"])
    script.elapse(500)
    assert script.outcome("n0", ticket) == "done"
    votes = [membership for _, membership in changes(script, "n0") if membership.votes("n3")]
    assert votes and all(membership.members["n3"].incarnation == known for membership in votes)
    script.crash("n3")
    script.wipe("n3")
    script.elapse(200)
    assert "n3" in script["n0"].identities.strangers, "though nothing was committed since it became a voter"


# --- M13, M14 -------------------------------------------------------------------------------------------------------


def test_BUG_M13_a_removal_behind_an_older_snapshot_is_taken_again_without_harm() -> None:
    """etcd PR 13479: after a restart from a snapshot that still knows the member, its removal is replayed.

    Guards that entries hold whole memberships, and that those behind the snapshot are in effect from the start.
    """
    script = led()
    script.snapshot("n0")
    snapshot = script["n0"].log.snapshot
    ticket = script.reconfigure("n0", ["n0", "n1"])
    script.elapse(200)
    assert script.outcome("n0", ticket) == "done"
    script.propose("n0", b"b")
    script.settle()
    removed, at = script["n0"].membership, script["n0"].log.membership_index
    for _ in range(2):
        script.crash("n0")
        node = script.restart("n0")
        assert snapshot is not None and node.replica.log.snapshot == snapshot and "n2" in snapshot.membership.voters
        assert (node.replica.membership, node.replica.log.membership_index) == (removed, at)
        script.elapse(3 * TIMEOUT)
        assert (node.replica.membership, node.applied) == (removed, [b"a", b"b"])
        assert "n2" not in node.replica.peers


def test_BUG_M14_a_member_that_leaves_is_in_no_quorum_though_it_is_still_fed() -> None:
    """NuRaft ed1c153, 57356df: the quorum is computed from a list of servers, a leaving one among them.

    Guards that the membership alone says whose acknowledgements count.
    """
    script = led()
    ticket = script.reconfigure("n0", ["n0", "n1"])
    script.settle()
    assert script.outcome("n0", ticket) == "done"
    leader = script["n0"]
    assert "n2" in leader.peers and "n2" not in leader.membership.everyone
    script.cut("n1")
    before = leader.commit_index
    script.propose("n0", b"b")
    script.settle()
    assert leader.peers["n2"].match == leader.log.last_index > leader.commit_index == before


def test_BUG_M14_busy_voters_are_still_voters() -> None:
    """NuRaft ed1c153: servers that do not answer are left out of the count. Here five voters need three, always."""
    script = led(5)
    leader = script["n0"]
    before = leader.commit_index
    script.cut("n2", "n3", "n4")
    script.propose("n0", b"b")
    for name in ("n2", "n3", "n4"):
        leader.unreachable(script.now, name)
    script.elapse(100)
    assert leader.peers["n1"].match == leader.log.last_index and leader.commit_index == before
