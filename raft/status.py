"""What a node looks like from outside at one moment, as one frozen value: for people, metrics and ``explain``.

Nothing here computes more than a difference, and nothing here decides anything. Filled in by ``node``.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from raft.membership import Membership
from raft.messages import Role


@attrs.frozen(kw_only=True)
class PeerStatus:
    """One other member. The numbers are the leader's view; on other nodes they are 0 and ``state`` is ""."""

    node_id: str
    address: str
    connected: bool
    """Whether a connection to or from it stands now."""
    voter: bool
    state: str = ""
    """How the leader replicates to it: the name of its ``progress`` state."""
    match: int = 0
    """Its log is durable and equal to the leader's up to here."""
    next: int = 0
    inflight_messages: int = 0
    inflight_bytes: int = 0
    silent_ns: int | None = None
    """Since it was last heard; None: never, or not known."""


@attrs.frozen(kw_only=True)
class ElectionStatus:
    """The round a candidate is in, or the last it finished."""

    round: int
    probe: bool
    asked_term: int
    answers: tuple[tuple[str, str], ...]
    """(voter, name of its ``VoteResult``), in order of voter."""
    last_result: str = ""
    """Name of the last finished round's ``ParseResult``; "" before the first."""


@attrs.frozen(kw_only=True)
class Status:
    """One node of one group. Times are nanoseconds of the node's monotonic clock; indices as in the glossary."""

    node_id: str
    group: int
    group_name: str
    cluster: str
    at_ns: int
    role: Role
    term: int
    voted_for: str | None
    leader: str | None
    leader_address: str | None
    leadership_seq: int
    """With ``term``, a fencing token: it rises with every leadership."""
    commit_index: int
    applied_index: int
    durable_index: int
    last_index: int
    last_term: int
    purged_index: int
    snapshot_index: int
    snapshot_size: int
    membership: Membership
    membership_index: int
    peers: tuple[PeerStatus, ...]
    """Every other member, in order of id."""
    election: ElectionStatus | None
    deadline_ns: int
    """When the core wants to be asked again."""
    faulted: str | None
    """Why this node stopped applying or storing; None: it works."""
    storage: str = "ok"
    """"ok", "full" or "failed"."""
    lease_valid: bool = False
    """On a leader: whether it could answer a lease read now."""
    pending_proposals: int = 0
    pending_bytes: int = 0
    pending_reads: int = 0
    unsynced_writes: int = 0
    """Write tokens handed to the disk and not reported durable yet."""
    installing: int = 0
    """Index of the snapshot being restored into the state machine; 0: none."""
    snapshotting: int = 0
    """Index of the snapshot being written; 0: none."""
    counters: Mapping[str, int] = attrs.field(factory=dict)
    """Only ever rise while the process lives. Names: see ``docs/reference/api.md``."""

    @property
    def apply_lag(self) -> int:
        """Entries committed and not applied here yet."""
        return self.commit_index - self.applied_index
