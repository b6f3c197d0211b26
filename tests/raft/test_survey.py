"""Where each figure of a status comes from: a node of stand-ins, each with a figure of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from raft.config import MS, NEVER, Config
from raft.membership import Member, Membership
from raft.messages import Lapse, Role, VoteResult
from raft.progress import State
from raft.status import PeerStatus, Status
from raft.survey import survey

GROUP = Membership(("n0", "n1"), learners=("n2",), members={"n0": Member("h0:1"), "n1": Member("h1:1")})
NOW = 1_000


def progress(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{
        "state": State.REPLICATE, "match": 20, "next": 23, "inflight": [1, 2, 3], "inflight_bytes": 77, "heard_ns": 960,
        "disk_full": False, "owed": 0, "lapsed": False, "snapshot_index": 15, "chunk_offset": 4_096, **changes})


def leadership(desired: Any = None, waiting: tuple[str, ...] = (), leases: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        tracker=SimpleNamespace(quorum_contact=lambda counted=False: 900 if counted else 930),
        own_term_committed=False, transfer=SimpleNamespace(target="n1"), lease_valid=lambda: leases,
        changes=SimpleNamespace(desired=desired, waiting=waiting))


def look(*, pending: tuple[int, int] = (0, 0), oldest: int = NEVER, log: Any = None,
         **changes: Any) -> Status:
    """The status of a follower of n1, but for ``changes`` to its replica."""
    logged = {"durable_index": 41, "last_index": 42, "last_term": 6, "purged_index": 10, "snapshot": None,
              "membership_index": 30}
    replica = SimpleNamespace(**{
        "node_id": "n0", "group": 1, "role": Role.FOLLOWER, "term": 7, "voted_for": "n1", "leader": "n1",
        "leadership": None, "leadership_seq": 3, "membership": GROUP, "commit_index": 40, "peers": {},
        "deadline": 1_100, "faulted": None, "heard_leader_at": 970, "lapse": None,
        "log": SimpleNamespace(**{**logged, **(log or {})}),
        "writes": SimpleNamespace(oldest_unsynced_ns=lambda: oldest),
        "identities": SimpleNamespace(strangers={"x", "n2"}), "rules": SimpleNamespace(lease_ns=205),
        "config": Config(clock_drift_percent=10), "lease_valid": lambda now: now == NOW, **changes})
    driver = SimpleNamespace(
        replica=replica, config=Config(storage_stall_ms=4, learner_lag_entries=9), clock=lambda: NOW, name="orders",
        cluster="c", proposals=SimpleNamespace(pending=pending), applier=SimpleNamespace(index=39, commands=5),
        peers=SimpleNamespace(connected=lambda peer: peer == "n1", refusals=list), storage_state="ok",
        barriers=[1, 2, 3], submitted=12, durable_token=8, snapshots=SimpleNamespace(restoring=0, taking=16),
        paused_ns=5, paused_at_ns=6, keeps_log=0, counters={"a": 1})
    return survey(cast(Any, driver))


def test_a_follower_says_when_it_heard_its_leader_and_nothing_that_only_a_leader_knows() -> None:
    status = look(pending=(2, 300), oldest=930)
    assert (status.leader_address, status.heard_leader_ns, status.oldest_unsynced_ns) == ("h1:1", 30, 70)
    assert (status.quorum_silence_ns, status.transfer_target, status.change) == (None, None, "")
    assert (status.lease_valid, status.lease_remaining_ns, status.own_term_committed) == (False, 0, True)
    assert (status.unsynced_writes, status.pending_reads, status.pending_proposals, status.pending_bytes) == (
        4, 3, 2, 300)
    assert (status.snapshot_index, status.snapshot_size, status.lapse_index, status.storage_stall_ns) == (
        0, 0, 0, 4 * MS)
    assert status.election is None and status.strangers == ("n2", "x") and status.counters == {
        "a": 1, "commands_applied": 5}
    assert [(each.node_id, each.address, each.connected, each.voter, each.state, each.silent_ns) for each in
            status.peers] == [("n1", "h1:1", True, True, "", None), ("n2", "", False, False, "", None)]


def test_what_waits_for_no_disk_has_no_age() -> None:
    assert look().oldest_unsynced_ns is None


def test_a_snapshot_and_a_lapse_are_told_by_their_ends() -> None:
    status = look(log={"snapshot": SimpleNamespace(index=31, size=600)}, lapse=Lapse(35, 6))
    assert (status.snapshot_index, status.snapshot_size, status.lapse_index) == (31, 600, 35)


@pytest.mark.parametrize(("leads", "lasts"), [(leadership(), 84), (leadership(leases=False), 0)])
def test_a_leader_says_how_long_its_lease_and_its_silence_last(leads: Any, lasts: int) -> None:
    """By counted contacts, less what clocks may drift apart: 900 + 205 * 90 % - 1000."""
    status = look(role=Role.LEADER, leadership=leads)
    assert (status.lease_valid, status.lease_remaining_ns, status.quorum_silence_ns) == (True, lasts, 70)
    assert (status.heard_leader_ns, status.own_term_committed, status.transfer_target) == (None, False, "n1")
    assert status.change == ""


def test_a_lease_that_is_over_lasts_no_more() -> None:
    rules = SimpleNamespace(lease_ns=100)
    assert look(role=Role.LEADER, leadership=leadership(), rules=rules).lease_remaining_ns == 0


@pytest.mark.parametrize(("waiting", "words"), [
    (("n2", "n3"), "waiting for n2, n3 to catch up"), ((), "waiting for a commit")])
def test_a_leader_says_what_its_change_waits_for(waiting: tuple[str, ...], words: str) -> None:
    assert look(role=Role.LEADER, leadership=leadership({"n0": "h0:1"}, waiting)).change == words


@pytest.mark.parametrize(("known", "told"), [
    (progress(), {}), (progress(owed=20), {}), (progress(owed=21, lapsed=True), {"owed": 21, "lapsed": True}),
    (progress(state=State.SNAPSHOT), {"state": "SNAPSHOT", "snapshot_index": 15, "snapshot_offset": 4_096}),
    (progress(disk_full=True), {"disk_full": True})])
def test_a_leader_says_how_far_each_peer_is(known: Any, told: dict[str, Any]) -> None:
    status = look(role=Role.LEADER, leadership=leadership(), peers={"n1": known})
    assert status.peers[0] == PeerStatus(**{
        "node_id": "n1", "address": "h1:1", "connected": True, "voter": True, "state": "REPLICATE", "match": 20,
        "next": 23, "inflight_messages": 3, "inflight_bytes": 77, "silent_ns": 40, **told})


@pytest.mark.parametrize(("outcome", "told"), [
    (None, ((), "")),
    ((VoteResult.REJECT_ALREADY_VOTED, {"n2": VoteResult.ACCEPT, "n1": VoteResult.REJECT_ALREADY_VOTED}),
     ((("n1", "REJECT_ALREADY_VOTED"), ("n2", "ACCEPT")), "REJECT_ALREADY_VOTED"))])
def test_a_candidate_says_how_its_last_round_ended(outcome: Any, told: tuple[Any, str]) -> None:
    campaign = SimpleNamespace(rounds=4, state=SimpleNamespace(last_probe=True), last_outcome=outcome)
    election = look(role=Role.CANDIDATE, leader=None, campaign=campaign).election
    assert election is not None
    assert (election.round, election.probe, election.asked_term) == (4, True, 7)
    assert (election.answers, election.last_result) == told
