"""A healthy status that tests bend into the shape they need."""

from __future__ import annotations

import attrs

from raft.membership import Member, Membership
from raft.messages import Role
from raft.status import PeerStatus, Status


def make_status(**changes: object) -> Status:
    """A healthy leader n0 of three."""
    membership = Membership(("n0", "n1", "n2"), members={
        "n0": Member("h0:7000", b"\x01\x02"), "n1": Member("h1:7000"), "n2": Member("h2:7000")})
    peers = tuple(
        PeerStatus(node_id=name, address=f"{name}:7000", connected=True, voter=True, state="REPLICATE", match=100,
                   next=101, silent_ns=20_000_000)
        for name in ("n1", "n2"))
    status = Status(
        node_id="n0", group=1, group_name="default", cluster="default", at_ns=1_000_000_000_000, role=Role.LEADER,
        term=7, voted_for="n0", leader="n0", leader_address="h0:7000", leadership_seq=1, commit_index=100,
        applied_index=100,
        durable_index=100, last_index=100, last_term=7, purged_index=0, snapshot_index=0, snapshot_size=0,
        membership=membership, membership_index=0, peers=peers, election=None, deadline_ns=0, faulted=None,
        lease_valid=True)
    return attrs.evolve(status, **changes)  # type: ignore[arg-type]  # tests name the fields
