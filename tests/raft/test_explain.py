"""Each situation from a status made by hand; the sentence must carry the facts, and nothing else may be claimed."""

from __future__ import annotations

import pytest

from raft.explain import SITUATIONS, diagnose, explain
from raft.membership import Membership
from raft.messages import Role
from raft.status import ElectionStatus, PeerStatus, Refusal, RefusalKind, Status
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
    "storage_failed": [(follower(storage="failed"), ["final", "Restart"])],
    "disk_full": [
        (follower(storage="full", durable_index=61), ["disk of this node is full", "61", "still votes"]),
        (make_status(peers=(peer("n1"), peer("n2", disk_full=True, match=40))), ["disk of n2 is full", "40"]),
    ],
    "storage_stalled": [
        (follower(oldest_unsynced_ns=7_000 * MS, unsynced_writes=3, durable_index=90),
         ["7000 ms", "longer than the allowed 5000 ms", "3 wait", "those up to 90"]),
        (follower(oldest_unsynced_ns=600 * MS, unsynced_writes=1), ["600 ms;", "1 wait"]),
    ],
    "not_a_member": [
        (follower(membership=Membership(), peers=()), ["no group yet", "reconfigure"]),
        (follower(membership=Membership(("n1", "n2", "n3")), membership_index=88),
         ["not a member any more", "88", "n1, n2 and n3"]),
    ],
    "wrong_rules": [(refused(RefusalKind.RULES, "it runs dledger, this node strict"),
                     ["n7", "other election rules", "dledger"])],
    "foreign_cluster": [(refused(RefusalKind.CLUSTER, "it is of cluster 'b'"), ["n7", "another cluster", "'b'"])],
    "wrong_version": [(refused(RefusalKind.VERSION, "it speaks 9"), ["n7", "another version", "speaks 9"])],
    "wrong_identity": [(refused(RefusalKind.IDENTITY, "it says it is n3"), ["n7", "not the node", "n3"])],
    "bad_certificate": [(refused(RefusalKind.CERTIFICATE, "expired"), ["n7", "certificate", "expired"])],
    "refused": [(refused(RefusalKind.OTHER, "it closed the connection"), ["n7", "it closed the connection"])],
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
