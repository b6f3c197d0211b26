"""Puts a node's ``Status`` together. Reads everything, changes nothing, and knows where each figure lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.config import MS, NEVER
from raft.messages import Role
from raft.progress import Progress, State
from raft.replica import Replica
from raft.status import ElectionStatus, PeerStatus, Status

if TYPE_CHECKING:
    from raft.driver import Driver


def survey(driver: Driver) -> Status:
    """Return the node's present status."""
    replica, config, now = driver.replica, driver.config, driver.clock()
    log, leadership = replica.log, replica.leadership
    pending, pending_bytes = driver.proposals.pending
    oldest = replica.writes.oldest_unsynced_ns()
    leads = leadership is not None
    return Status(
        node_id=replica.node_id, group=replica.group, group_name=driver.name, cluster=driver.cluster, at_ns=now,
        role=replica.role, term=replica.term, voted_for=replica.voted_for, leader=replica.leader,
        leader_address=replica.membership.address_of(replica.leader), leadership_seq=replica.leadership_seq,
        commit_index=replica.commit_index, applied_index=driver.applier.index, durable_index=log.durable_index,
        last_index=log.last_index, last_term=log.last_term, purged_index=log.purged_index,
        snapshot_index=log.snapshot.index if log.snapshot else 0,
        snapshot_size=log.snapshot.size if log.snapshot else 0,
        membership=replica.membership, membership_index=log.membership_index,
        peers=tuple(_peer(driver, name, now) for name in replica.membership.everyone if name != replica.node_id),
        election=_election(replica), deadline_ns=replica.deadline, faulted=replica.faulted,
        storage=driver.storage_state, lease_valid=leads and replica.lease_valid(now),
        pending_proposals=pending, pending_bytes=pending_bytes, pending_reads=len(driver.barriers),
        unsynced_writes=driver.submitted - driver.durable_token, installing=driver.snapshots.restoring,
        snapshotting=driver.snapshots.taking, rules=config.rules.value,
        heard_leader_ns=None if leads else now - replica.heard_leader_at,
        quorum_silence_ns=now - leadership.tracker.quorum_contact() if leadership else None,
        own_term_committed=leadership.own_term_committed if leadership else True,
        strangers=tuple(sorted(replica.identities.strangers)), lapse_index=replica.lapse.index if replica.lapse else 0,
        refusals=tuple(driver.peers.refusals()),
        transfer_target=leadership.transfer.target if leadership else None, change=_change(replica),
        lease_remaining_ns=_lease_remaining(replica, now), paused_ns=driver.paused_ns, paused_at_ns=driver.paused_at_ns,
        oldest_unsynced_ns=None if oldest == NEVER else now - oldest,
        storage_stall_ns=config.storage_stall_ms * MS, pending_bytes_max=config.uncommitted_bytes_max,
        learner_lag_entries=config.learner_lag_entries, keeps_log=driver.keeps_log,
        counters={**driver.counters, "commands_applied": driver.applier.commands},
    )


def _peer(driver: Driver, name: str, now: int) -> PeerStatus:
    replica = driver.replica
    membership = replica.membership
    member = membership.members.get(name)
    progress: Progress | None = replica.peers.get(name)
    known = PeerStatus(
        node_id=name, address=member.address if member else "", connected=driver.peers.connected(name),
        voter=membership.votes(name))
    if progress is None:
        return known
    sends_snapshot = progress.state == State.SNAPSHOT
    return PeerStatus(
        node_id=name, address=known.address, connected=known.connected, voter=known.voter, state=progress.state.name,
        match=progress.match, next=progress.next, inflight_messages=len(progress.inflight),
        inflight_bytes=progress.inflight_bytes, silent_ns=now - progress.heard_ns, disk_full=progress.disk_full,
        owed=progress.owed if progress.owed > progress.match else 0, lapsed=progress.lapsed,
        snapshot_index=progress.snapshot_index if sends_snapshot else 0,
        snapshot_offset=progress.chunk_offset if sends_snapshot else 0)


def _election(replica: Replica) -> ElectionStatus | None:
    if replica.role is not Role.CANDIDATE:
        return None
    campaign = replica.campaign
    result, answers = campaign.last_outcome or (None, {})
    return ElectionStatus(
        round=campaign.rounds, probe=campaign.state.last_probe, asked_term=replica.term,
        answers=tuple((voter, answer.name) for voter, answer in sorted(answers.items())),
        last_result=result.name if result is not None else "")


def _change(replica: Replica) -> str:
    changes = replica.leadership.changes if replica.leadership else None
    if changes is None or changes.desired is None:
        return ""
    return f"waiting for {', '.join(changes.waiting)} to catch up" if changes.waiting else "waiting for a commit"


def _lease_remaining(replica: Replica, now: int) -> int:
    leadership = replica.leadership
    if leadership is None or not leadership.lease_valid():
        return 0
    length = replica.rules.lease_ns * (100 - replica.config.clock_drift_percent) // 100
    return max(0, leadership.tracker.quorum_contact(counted=True) + length - now)
