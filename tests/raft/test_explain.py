"""Each situation from a status made by hand, then from a simulated group: the sentence must carry the facts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from harness.simulation.worlds.nodes import Counter, Nodes
from raft.config import Config, Rules
from raft.errors import RaftError
from raft.explain import SITUATIONS, diagnose, explain
from raft.host import open_node
from raft.membership import Membership
from raft.messages import Role
from raft.sim import Cluster
from raft.status import ElectionStatus, PeerStatus, Refusal, RefusalKind, Status
from raft.survey import survey
from tests.raft.statuses import make_status

MS = 1_000_000


def peer(name: str, **changes: object) -> PeerStatus:
    usual = {"node_id": name, "address": f"{name}:7000", "connected": True, "voter": True, "state": "REPLICATE",
             "match": 100, "next": 101, "silent_ns": 20 * MS}
    return PeerStatus(**{**usual, **changes})  # type: ignore[arg-type]  # tests name the fields


GONE = {"connected": False, "silent_ns": 4_000 * MS}


def follower(**changes: object) -> Status:
    return make_status(**{"role": Role.FOLLOWER, "leader": "n1", "leader_address": "n1:7000", "lease_valid": False,
                          "peers": (
        peer("n1", state="", match=0, next=0, silent_ns=None), peer("n2", state="", match=0, next=0,
                                                                    silent_ns=None)), **changes})


def candidate(**changes: object) -> Status:
    return follower(**{"role": Role.CANDIDATE, "leader": None, "leader_address": None, "heard_leader_ns": 900 * MS,
                       **changes})


def refused(kind: RefusalKind, reason: str) -> Status:
    return follower(refusals=(Refusal(peer="n7", kind=kind, reason=reason),))


CASES: dict[str, list[tuple[Status, list[str]]]] = {
    "faulted": [(follower(faulted="the state machine raised: ValueError(1)"), ["ValueError(1)", "skips no entry"])],
    "storage_failed": [(follower(storage="failed"), ["final", "Restart"]),
                       (follower(storage="damaged"), ["damaged", "join anew"])],
    "disk_full": [
        (follower(storage="full", durable_index=61), ["disk of this node is full", "61", "still votes"]),
        (make_status(peers=(peer("n1"), peer("n2", disk_full=True, match=40))), ["disk of n2 is full", "40"]),
    ],
    "storage_stalled": [
        (follower(oldest_unsynced_ns=7_000 * MS, unsynced_writes=3, durable_index=90),
         ["7000 ms", "longer than the allowed 5000 ms", "3 wait", "those up to 90"]),
        (follower(oldest_unsynced_ns=600 * MS, unsynced_writes=1), ["600 ms;", "1 wait"]),
    ],
    "log_kept": [(follower(keeps_log=900_000_000), ["900000000 bytes", "no snapshot()"])],
    "not_a_member": [
        (follower(membership=Membership(), peers=()), ["no group yet", "reconfigure"]),
        (follower(membership=Membership(("n1", "n2", "n3")), membership_index=88),
         ["not a member any more", "88", "n1, n2 and n3"]),
    ],
    "wrong_rules": [(refused(RefusalKind.RULES, "it runs dledger, this node strict"),
                     ["n7", "other election rules", "dledger"])],
    "foreign_cluster": [(refused(RefusalKind.CLUSTER, "it is of cluster 'b'"), ["n7", "another cluster", "'b'"])],
    "wrong_version": [(refused(RefusalKind.VERSION, "it speaks 9"), ["n7", "another version", "speaks 9"])],
    "unknown_node": [(refused(RefusalKind.STRANGER, "it is no member here"), ["n7", "not let in", "no member here"])],
    "wrong_identity": [(refused(RefusalKind.IDENTITY, "it says it is n3"), ["n7", "not the node", "n3"])],
    "bad_certificate": [(refused(RefusalKind.CERTIFICATE, "expired"), ["n7", "certificate", "expired"])],
    "refused": [(refused(RefusalKind.OTHER, "it closed the connection"), ["n7", "it closed the connection"])],
    "lapsed_voter": [
        (follower(lapse_index=120),
         ["up to entry 120 or further", "holds entries up to 100", "neither votes nor counts"]),
        (candidate(lapse_index=120), ["No leader can be elected with its vote", "raftctl accept-loss"]),
        (make_status(peers=(peer("n1", owed=100, match=40), peer("n2"))),
         ["Voter n1 lost what it had acknowledged up to entry 100", "holds entries up to 40"]),
        (make_status(peers=(peer("n1", lapsed=True, state="SNAPSHOT"), peer("n2"))),
         ["Voter n1 lost what it had acknowledged:", "is being sent a snapshot"]),
    ],
    "wiped_voter": [(make_status(strangers=("n2",)), ["Voter n2", "another directory", "reconfigure"])],
    "no_leader": [
        (candidate(election=ElectionStatus(
            round=4, probe=True, asked_term=8, answers=(("n0", "ACCEPT"), ("n1", "REJECT_ALREADY_HAS_LEADER")),
            last_result="WAIT_TO_REVOTE")),
         ["No leader is known in term 7", "900 ms", "candidate", "round 4, a probe for term 8",
          "n0 ACCEPT and n1 REJECT_ALREADY_HAS_LEADER", "no answer from n2", "WAIT_TO_REVOTE"]),
        (follower(leader=None, heard_leader_ns=10 * MS), ["This node is a follower"]),
    ],
    "no_quorum": [
        (make_status(peers=(peer("n1", **GONE), peer("n2", connected=False, silent_ns=None))),
         ["No quorum of the voters", "1 of 3", "2 are needed", "n1 (last heard 4000 ms ago, not connected)",
          "n2 (never heard, not connected)"]),
        (candidate(peers=(peer("n1", **GONE), peer("n2", **GONE))), ["No quorum of the voters", "n1", "n2"]),
        (make_status(strangers=("n1",), peers=(peer("n1"), peer("n2", **GONE))), ["1 of 3", "n1 (other directory)"]),
        (make_status(membership=Membership(("n0", "n1"), ("n0", "n2", "n3")),
                     peers=(peer("n1"), peer("n2", **GONE), peer("n3", **GONE))),
         ["No quorum of the outgoing voters", "1 of 3", "n2", "n3"]),
    ],
    "commit_held_back": [
        (make_status(last_index=107, durable_index=107, peers=(peer("n1", match=100), peer("n2", match=90, **GONE))),
         ["7 entries after 100", "1 of 3 of the voters hold entry 101", "2 must", "n1 (at 100, last heard 20 ms ago)",
          "n2 (at 90, last heard 4000 ms ago)"]),
        (make_status(last_index=101, durable_index=100, peers=(peer("n1", match=101), peer("n2", match=100))),
         ["1 entry after 100", "n0 (at 100, this leader's own disk)"]),
        (make_status(membership=Membership(("n0", "n1"), ("n0", "n2", "n3")), last_index=101, durable_index=101,
                     peers=(peer("n1", match=101), peer("n2"), peer("n3"))),
         ["1 of 3 of the outgoing voters", "n2 (at 100", "n3 (at 100"]),
    ],
    "not_ready": [(make_status(own_term_committed=False), ["own term 7", "no reads"])],
    "joint": [(make_status(membership=Membership(("n0", "n1"), ("n0", "n2")), membership_index=99),
               ["joint since entry 99", "n0 and n1", "n0 and n2"])],
    "change": [(make_status(change="n3 catches up as a learner"), ["membership change", "n3 catches up"])],
    "transfer": [(make_status(transfer_target="n1", last_index=100, peers=(peer("n1", match=70), peer("n2"))),
                  ["handed over to n1", "30 entries behind", "refused"])],
    "snapshot_sent": [
        (make_status(purged_index=80, snapshot_index=90, snapshot_size=5_000,
                     peers=(peer("n1"), peer("n2", state="SNAPSHOT", match=3, snapshot_index=90,
                                             snapshot_offset=2_048))),
         ["n2 is being sent a snapshot", "up to entry 90", "begins at 81", "stands at 3", "2048 of 5000 bytes"]),
    ],
    "learner_behind": [
        (make_status(commit_index=9_000, applied_index=9_000, durable_index=9_000, last_index=9_000,
                     peers=(peer("n1", match=9_000), peer("n2", match=9_000), peer("n3", voter=False, match=500))),
         ["Learner n3", "8500 entries behind", "1000 or less"]),
    ],
    "peer_lagging": [
        (make_status(peers=(peer("n1"), peer("n2", match=64, **GONE))),
         ["n2 is 36 entries behind", "4000 ms", "holds nothing back"]),
        (make_status(peers=(peer("n1"), peer("n2", **GONE))), ["n2 is out of contact", "a quorum stands without it"]),
    ],
    "clock_pause": [
        (make_status(paused_ns=12_000 * MS, paused_at_ns=999_000_000_000),
         ["stood still for 12 s", "1000 ms ago", "holds again"]),
        (make_status(paused_ns=700 * MS, paused_at_ns=1_000_000_000_000, lease_valid=False),
         ["700 ms", "lease is void until"]),
    ],
    "uncommitted_limit": [
        (make_status(pending_bytes=60 << 20, pending_proposals=1_000), ["62914560 of 67108864", "1000 of them",
                                                                        "Busy"])],
    "installing": [(follower(installing=77), ["restores a snapshot up to entry 77"])],
    "apply_lag": [(follower(commit_index=9_000, applied_index=100),
                   ["8900 entries behind", "up to 9000", "up to 100"])],
}

ALL = [(name, number) for name, cases in CASES.items() for number in range(len(cases))]


@pytest.mark.parametrize(("name", "number"), ALL, ids=[f"{name}-{number}" for name, number in ALL])
def test_a_situation_is_named_with_its_facts(name: str, number: int) -> None:
    status, facts = CASES[name][number]
    said = [sentence for found, sentence in diagnose(status) if found == name]
    assert said, diagnose(status)
    whole = " ".join(said)
    for fact in facts:
        assert fact in whole
    assert explain(status) == [sentence for _, sentence in diagnose(status)]


def test_every_situation_has_a_case() -> None:
    assert set(CASES) == {name for name, _ in SITUATIONS}
    assert len(SITUATIONS) >= 12


@pytest.mark.parametrize("status", [
    make_status(),
    follower(),
    make_status(paused_ns=9_000 * MS, paused_at_ns=1_000_000_000_000 - 61_000 * MS),
    make_status(oldest_unsynced_ns=2 * MS, unsynced_writes=1),
], ids=["leader", "follower", "an old pause", "a write under way"])
def test_a_healthy_node_says_one_sentence(status: Status) -> None:
    (name, sentence), = diagnose(status)
    assert name == "healthy"
    assert "All is well with n0" in sentence


def test_entries_in_flight_are_not_blamed_on_those_who_have_them() -> None:
    status = make_status(last_index=101, durable_index=101, peers=(peer("n1", match=101), peer("n2", match=90, **GONE)))
    assert "commit_held_back" not in dict(diagnose(status))


def test_the_gravest_comes_first() -> None:
    status = follower(faulted="x", commit_index=9_000)
    assert diagnose(status)[0][0] == "faulted"
    order = [name for name, _ in SITUATIONS]
    named = [name for name, _ in diagnose(make_status(peers=(peer("n1", **GONE), peer("n2", **GONE)), last_index=101))]
    assert named == sorted(named, key=order.index)


@pytest.mark.parametrize("name", ["no_quorum", "no_leader", "commit_held_back"])
def test_a_follower_that_knows_its_leader_claims_nothing_of_the_group(name: str) -> None:
    status = follower(peers=(peer("n1", **GONE), peer("n2", **GONE)), last_index=120)
    assert name not in dict(diagnose(status))


# --- the same from simulated groups --------------------------------------------------------------------------


def look(cluster: Cluster, name: str) -> Status:
    """What ``Node.status`` would say of a simulated node: the real survey, over what the simulator has of a shell."""
    life = cluster.life(name)
    shell = SimpleNamespace(
        replica=life.replica, config=cluster.config, name="default", cluster="sim",
        clock=lambda: life.now,
        peers=SimpleNamespace(connected=lambda peer: cluster.hears(name, peer), refusals=list),
        proposals=SimpleNamespace(pending=(len(life.proposals), 0)), barriers=[], counters={},
        applier=SimpleNamespace(index=life.machine.index, commands=0),
        storage_state="failed" if life.broken else "full" if life.replica.writes.disk_full else "ok",
        snapshots=SimpleNamespace(restoring=0, taking=0), submitted=0, durable_token=0, paused_ns=0, paused_at_ns=0,
        keeps_log=0)
    return survey(cast(Any, shell))


def said(cluster: Cluster, name: str | None, situation: str) -> str:
    """The sentences of one situation; fails when there are none."""
    assert name is not None
    found = [sentence for called, sentence in diagnose(look(cluster, name)) if called == situation]
    assert found, diagnose(look(cluster, name))
    return " ".join(found)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    config = Config(learner_lag_entries=5, snapshot_tail_entries=0, snapshot_log_bytes=0, snapshot_chunk_bytes=4_096)
    with Cluster(3, Counter, seed=7, config=config) as made:
        made.propose(b"1")
        made.run_ms(200)
        yield made


def others(cluster: Cluster) -> list[str]:
    return [name for name in cluster.nodes if name != cluster.leader]


def leading(cluster: Cluster) -> str:
    assert cluster.leader is not None
    return cluster.leader


def test_sim_healthy(cluster: Cluster) -> None:
    for name in cluster.nodes:
        assert [called for called, _ in diagnose(look(cluster, name))] == ["healthy"]


def test_sim_no_leader_and_no_quorum(cluster: Cluster) -> None:
    lonely = others(cluster)[0]
    cluster.partition([lonely])
    cluster.run_ms(3_000)
    told = said(cluster, lonely, "no_leader")
    assert "No leader is known" in told
    assert "a probe for term" in told
    assert f"got: {lonely} ACCEPT; no answer from" in told
    assert "WAIT_TO_REVOTE" in told
    assert "1 of 3" in said(cluster, lonely, "no_quorum")


def test_sim_commit_held_back_by_those_who_do_not_answer(cluster: Cluster) -> None:
    leader, (first, second) = leading(cluster), others(cluster)
    cluster.hold(leader, first)
    cluster.hold(leader, second)
    cluster.life(leader).propose([b"1"])
    cluster.run_ms(100)
    told = said(cluster, leader, "commit_held_back")
    assert "1 of 3 of the voters" in told
    assert f"{first} (at " in told and f"{second} (at " in told
    assert "this leader's own disk" not in told


def test_sim_commit_held_back_by_the_leaders_own_disk(cluster: Cluster) -> None:
    leader, (first, _) = leading(cluster), others(cluster)
    cluster.crash(first)
    cluster.stall_disk(leader, 1_000)
    cluster.life(leader).propose([b"1"])
    cluster.run_ms(300)
    assert f"{leader} (at " in (told := said(cluster, leader, "commit_held_back")) and "this leader's own disk" in told


def test_sim_a_lagging_peer_holds_nothing_back(cluster: Cluster) -> None:
    late = others(cluster)[0]
    cluster.crash(late)
    for _ in range(20):
        cluster.propose(b"1")
    cluster.run_ms(1_500)
    told = said(cluster, cluster.leader, "peer_lagging")
    assert late in told
    assert "20 entries behind" in told
    assert "holds nothing back" in told
    assert "commit_held_back" not in dict(diagnose(look(cluster, leading(cluster))))


def test_sim_disk_full_here_and_at_a_peer(cluster: Cluster) -> None:
    full = others(cluster)[0]
    cluster.fill_disk(full)
    cluster.propose(b"1")
    assert cluster.run_until(lambda: cluster.life(leading(cluster)).replica.peers[full].disk_full)
    assert "The disk of this node is full" in said(cluster, full, "disk_full")
    assert f"The disk of {full} is full" in said(cluster, cluster.leader, "disk_full")


def test_sim_storage_stalled(cluster: Cluster) -> None:
    slow = others(cluster)[0]
    cluster.stall_disk(slow, 5_000)
    cluster.propose(b"1")
    cluster.run_ms(800)
    assert "The disk of this node stalls" in said(cluster, slow, "storage_stalled")


def test_sim_storage_failed(cluster: Cluster) -> None:
    broken = others(cluster)[0]
    cluster.fail_sync(broken)
    cluster.propose(b"1")
    cluster.run_ms(300)
    assert "what the disk holds is not known" in said(cluster, broken, "faulted")
    assert "final" in said(cluster, broken, "storage_failed")


def test_sim_joint_and_which_half_lacks(cluster: Cluster) -> None:
    for name in ("n3", "n4"):
        cluster.add(name)
    leader = leading(cluster)
    wanted = {name: name for name in (leader, "n3", "n4")}
    cluster.life(leader).reconfigure(wanted, {})
    assert cluster.run_until(lambda: cluster.life(leader).replica.membership.joint)
    for name in {"n0", "n1", "n2"} - {leader}:
        cluster.hold(name, leader)
    cluster.run_ms(50)
    assert f"{leader}, n3 and n4" in said(cluster, leader, "joint")
    assert "1 of 3 of the outgoing voters" in said(cluster, leader, "commit_held_back")


def test_sim_a_change_waits_for_a_learner(cluster: Cluster) -> None:
    cluster.add("n3")
    leader = leading(cluster)
    for _ in range(20):
        cluster.propose(b"1")
    cluster.hold(leader, "n3")
    cluster.life(leader).reconfigure({name: name for name in ("n0", "n1", "n2", "n3")}, {})
    cluster.run_ms(300)
    assert "n3" in said(cluster, leader, "change")
    assert "Learner n3 has not caught up" in said(cluster, leader, "learner_behind")


def test_sim_a_snapshot_is_being_sent(cluster: Cluster) -> None:
    late = others(cluster)[0]
    cluster.crash(late)
    leader = leading(cluster)
    for _ in range(1_100):  # the log is purged at remembered ends of frames, one in about a thousand entries
        cluster.propose(b"1")
    assert cluster.snapshot(leader)
    cluster.run_ms(300)
    cluster.start(late)
    assert cluster.run_until(lambda: cluster.life(leader).replica.peers[late].state.name == "SNAPSHOT")
    assert f"{late} is being sent a snapshot" in said(cluster, leader, "snapshot_sent")


def test_sim_transfer(cluster: Cluster) -> None:
    leader, target = leading(cluster), others(cluster)[0]
    cluster.hold(leader, target)
    cluster.life(leader).propose([b"1"])
    cluster.life(leader).transfer(target)
    cluster.run_ms(50)
    assert f"handed over to {target}, which is 1 entry behind" in said(cluster, leader, "transfer")


def test_sim_not_a_member_any_more(cluster: Cluster) -> None:
    gone = others(cluster)[0]
    cluster.reconfigure([name for name in cluster.nodes if name != gone])
    cluster.run_ms(500)
    assert "not a member any more" in said(cluster, gone, "not_a_member")


def test_sim_a_wiped_voter_waits_to_be_admitted_again(cluster: Cluster) -> None:
    wiped = others(cluster)[0]
    cluster.crash(wiped)
    cluster.wipe(wiped)
    cluster.start(wiped)
    cluster.run_ms(500)
    assert f"Voter {wiped} came back with another directory" in said(cluster, cluster.leader, "wiped_voter")
    assert "belongs to no group yet" in said(cluster, wiped, "not_a_member")
    cluster.reconfigure(["n0", "n1", "n2"])  # what the sentence advises
    cluster.run_ms(500)
    assert "wiped_voter" not in dict(diagnose(look(cluster, leading(cluster))))
    assert [called for called, _ in diagnose(look(cluster, wiped))] == ["healthy"]


def test_sim_a_leader_that_is_not_ready(cluster: Cluster) -> None:
    cluster.crash(leading(cluster))
    assert cluster.run_until(lambda: cluster.leader is not None)
    assert "not committed an entry of its own term" in said(cluster, cluster.leader, "not_ready")
    cluster.run_ms(100)
    assert "not_ready" not in dict(diagnose(look(cluster, leading(cluster))))


class Raises(Counter):
    def apply(self, command: bytes) -> int:
        raise ValueError("cannot")


async def _node(net: Nodes, name: str, machine: Counter | None = None) -> Any:
    voters = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}
    return await net.start(name, voters, machine or Counter())


async def test_a_real_node_whose_machine_raised(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery)
        for name in ("n0", "n1", "n2"):
            await _node(net, name, Raises())
        leader = await net.leader()
        with pytest.raises(RaftError):
            await leader.propose(b"1")
        assert "ValueError: cannot" in dict(diagnose(leader.status()))["faulted"]
        nursery.cancel_scope.cancel()


async def test_a_real_leader_whose_proposals_pile_up(autojump_clock: MockClock) -> None:
    config = Config(uncommitted_bytes_max=16 << 20, message_bytes_max=2 << 20, inflight_bytes_max=2 << 20)
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery, config)
        for name in ("n0", "n1", "n2"):
            await _node(net, name)
        leader = await net.leader()
        net.isolate(leader.node_id)
        for _ in range(10):
            try:
                for _ in range(10):
                    leader.propose_nowait(b"0" * (1 << 20))
            except RaftError:
                break
        found = dict(diagnose(leader.status()))
        assert "of 16777216 bytes" in found["uncommitted_limit"]
        nursery.cancel_scope.cancel()


async def test_a_real_leader_that_stood_still(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery)
        for name in ("n0", "n1", "n2"):
            await _node(net, name)
        await net.leader()
        await trio.sleep(1)
        autojump_clock.jump(7)
        await trio.testing.wait_all_tasks_blocked()
        told = [dict(diagnose(node.status())).get("clock_pause", "") for node in net.nodes.values()]
        assert all("This process stood still for 7" in sentence or "for 6" in sentence for sentence in told), told
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("other", "situation", "words"), [
    ({"config": Config(rules=Rules.DLEDGER)}, "wrong_rules", "other election rules"),
    ({"cluster": "elsewhere"}, "foreign_cluster", "cluster 'elsewhere'"),
])
async def test_real_nodes_that_refuse_each_other(
    tmp_path: Path, other: dict[str, Any], situation: str, words: str
) -> None:
    listeners = [await trio.open_tcp_listeners(0, host="127.0.0.1") for _ in range(2)]
    peers = {f"n{n}": f"127.0.0.1:{found[0].socket.getsockname()[1]}" for n, found in enumerate(listeners)}

    def open_one(number: int, **changes: Any) -> Any:
        return open_node(f"n{number}", peers, tmp_path / str(number), Counter(), bootstrap=True,
                         listeners=listeners[number], **changes)

    with trio.fail_after(30):
        async with open_one(0) as first, open_one(1, **other):
            while not first.status().refusals:
                await trio.sleep(0.01)
            told = dict(diagnose(first.status()))
    assert words in told[situation]
    assert "n1" in told[situation]
    assert "no_quorum" in told
