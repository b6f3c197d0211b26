"""The state of a node at one moment as one frozen value, for people, metrics and ``explain``.

It computes differences at most, and decides nothing. ``survey`` fills it in.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from raft.membership import Membership
from raft.messages import Role


@attrs.frozen(kw_only=True)
class PeerStatus:
    """One other member. The numbers are the leader's view; on other nodes they are 0 and ``state`` is ""."""

    node_id: str
    address: str
    connected: bool
    """True while a connection to or from the peer stands."""
    voter: bool
    state: str = ""
    """Name of the peer's ``progress`` state: how the leader replicates to it."""
    match: int = 0
    """Last index up to which the peer's log is durable and equal to the leader's."""
    next: int = 0
    inflight_messages: int = 0
    inflight_bytes: int = 0
    silent_ns: int | None = None
    """Time since the peer was last heard; None: never, or not known."""
    disk_full: bool = False
    """True if the peer said that its disk is full."""
    owed: int = 0
    """Last entry that the peer had acknowledged and lost; it counts for nothing until it holds that. 0: nothing."""
    lapsed: bool = False
    """True if the peer says that it lost what it had acknowledged; it counts for nothing until it says otherwise."""
    snapshot_index: int = 0
    """Index of the snapshot that this leader sends to the peer; 0: none."""
    snapshot_offset: int = 0
    """Bytes of that snapshot that the peer has confirmed."""


@attrs.frozen(kw_only=True)
class ElectionStatus:
    """The present round of a candidate, or its last one."""

    round: int
    probe: bool
    asked_term: int
    answers: tuple[tuple[str, str], ...]
    """Answers as (voter, name of its ``VoteResult``), in order of voter."""
    last_result: str = ""
    """Name of the last finished round's ``ParseResult``; "" before the first."""


class RefusalKind(enum.Enum):
    """The reasons why a connection between this node and another was refused."""

    CLUSTER = "cluster"
    """The other node belongs to another cluster."""
    RULES = "rules"
    """The other node runs other election rules, or has another election timeout."""
    VERSION = "version"
    """The other node speaks another version of the protocol."""
    IDENTITY = "identity"
    """The other node is not the one it should be, or two nodes have one id."""
    CERTIFICATE = "certificate"
    """The other node's certificate is missing, not valid or of another node."""
    STRANGER = "stranger"
    """The other node is no member, or no node may connect from its address."""
    OTHER = "other"


@attrs.frozen(kw_only=True)
class Refusal:
    """The latest failed handshake with one peer, as long as none has succeeded since."""

    peer: str
    """Id of the peer if it said one, else its address."""
    kind: RefusalKind
    reason: str
    """A sentence for the operator."""
    at_ns: int = 0


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
    """Time when the core is due again."""
    faulted: str | None
    """Reason why this node stopped applying or storing; None: it works."""
    storage: str = "ok"
    """State of the disk: "ok", "full", "failed", or "damaged" if it gave back other bytes than were stored."""
    lease_valid: bool = False
    """On a leader: True if it could answer a lease read now."""
    pending_proposals: int = 0
    pending_bytes: int = 0
    pending_reads: int = 0
    unsynced_writes: int = 0
    """Writes that were handed to the disk and are not durable yet."""
    installing: int = 0
    """Index of the snapshot being restored into the state machine; 0: none."""
    snapshotting: int = 0
    """Index of the snapshot being written; 0: none."""
    rules: str = "strict"
    heard_leader_ns: int | None = None
    """On other nodes than the leader: time since a leader was last heard, or since the start."""
    quorum_silence_ns: int | None = None
    """On a leader: time since a quorum, with itself, was last in contact; small if all is well."""
    own_term_committed: bool = True
    """On a leader: True once an entry of its own term is committed; before that it answers no reads."""
    strangers: tuple[str, ...] = ()
    """Members that came back with another directory than the membership records."""
    lapse_index: int = 0
    """Last entry, as far as is known, that this node had acknowledged and lost: it neither votes nor counts. 0:
    nothing."""
    refusals: tuple[Refusal, ...] = ()
    transfer_target: str | None = None
    """On a leader: the node to which leadership is being handed over."""
    change: str = ""
    """On a leader: words for what a running ``reconfigure`` waits for; "" if none runs."""
    lease_remaining_ns: int = 0
    """On a leader: time for which it may answer lease reads without asking anybody, if its clock is right."""
    paused_ns: int = 0
    """Length of the latest pause in which this process did not run; 0: none noticed."""
    paused_at_ns: int = 0
    """Time when that pause was noticed."""
    oldest_unsynced_ns: int | None = None
    """Time that the oldest write has been on its way to the disk; None: all are there."""
    storage_stall_ns: int = 5_000_000_000
    """The configured bound for ``oldest_unsynced_ns``."""
    pending_bytes_max: int = 64 << 20
    """The configured bound for ``pending_bytes``."""
    keeps_log: int = 0
    """Bytes of the shared log that stay for this group alone, whose machine has no snapshot; 0: it keeps none."""
    learner_lag_entries: int = 1_000
    """Distance to the leader's last index at which a peer counts as caught up."""
    counters: Mapping[str, int] = attrs.field(factory=dict)
    """Counters that only rise while the process lives. Names: see ``docs/reference/api.md``."""

    @property
    def apply_lag(self) -> int:
        """Number of entries that are committed and not applied here yet."""
        return self.commit_index - self.applied_index

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADER

    def as_dict(self) -> dict[str, Any]:
        """Return plain values (text, numbers, lists, dicts), as JSON and CBOR take them."""
        plain: dict[str, Any] = _plain(self)
        plain["apply_lag"] = self.apply_lag
        return plain


def _plain(value: object) -> Any:
    """Return a plain value: enumerations by name, attrs classes and mappings as dicts, tuples as lists, bytes as
    hex."""
    if isinstance(value, enum.Enum):
        return value.name.lower()
    kind: Any = type(value)
    if attrs.has(kind):
        return {field.name: _plain(getattr(value, field.name)) for field in attrs.fields(kind)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value
