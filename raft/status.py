"""What a node looks like from outside at one moment, as one frozen value: for people, metrics and ``explain``.

Nothing here computes more than a difference, and nothing here decides anything. Filled in by ``node``.
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
    disk_full: bool = False
    """It said that its disk is full."""
    owed: int = 0
    """Above 0: it lost what it had acknowledged up to this entry, and counts for nothing until it holds that again."""
    lapsed: bool = False
    """It says of itself that it lost what it had acknowledged; it counts for nothing until it says otherwise."""
    snapshot_index: int = 0
    """On a leader: the snapshot being sent to it; 0: none."""
    snapshot_offset: int = 0
    """Bytes of that snapshot which it has confirmed."""


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


class RefusalKind(enum.Enum):
    """Why a connection between this node and another did not come about."""

    CLUSTER = "cluster"
    """It belongs to another cluster."""
    RULES = "rules"
    """It runs other election rules, or has another election timeout."""
    VERSION = "version"
    """It speaks another version of the protocol."""
    IDENTITY = "identity"
    """It is not the node it should be, or another node has its id."""
    CERTIFICATE = "certificate"
    """Its certificate does not do."""
    STRANGER = "stranger"
    """It is no member, or comes from where no node does."""
    OTHER = "other"


@attrs.frozen(kw_only=True)
class Refusal:
    """The latest handshake with one peer that failed, as long as none has succeeded since."""

    peer: str
    """Its id as far as it said one, else its address."""
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
    """When the core wants to be asked again."""
    faulted: str | None
    """Why this node stopped applying or storing; None: it works."""
    storage: str = "ok"
    """"ok", "full", "failed", or "damaged": what was stored is not what comes back."""
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
    rules: str = "strict"
    heard_leader_ns: int | None = None
    """On other nodes than the leader: since a leader was last heard, or since the start."""
    quorum_silence_ns: int | None = None
    """On a leader: for how long less than a quorum, itself included, has been in contact; small when all is well."""
    own_term_committed: bool = True
    """On a leader: whether an entry of its own term is committed; before that it answers no reads."""
    strangers: tuple[str, ...] = ()
    """Members that came back with another directory than the one the membership knows."""
    lapse_index: int = 0
    """Above 0: this node lost what it had acknowledged, up to this entry or further; it neither votes nor counts."""
    refusals: tuple[Refusal, ...] = ()
    transfer_target: str | None = None
    """On a leader: who is being handed the leadership."""
    change: str = ""
    """On a leader: what a running ``reconfigure`` is waiting for; "" when none runs."""
    lease_remaining_ns: int = 0
    """On a leader: for how long a lease read may be answered without asking anybody, if the clock is true."""
    paused_ns: int = 0
    """Length of the latest pause in which this process did not run; 0: none noticed."""
    paused_at_ns: int = 0
    """When it was noticed."""
    oldest_unsynced_ns: int | None = None
    """For how long the oldest write has been on its way to the disk; None: all are there."""
    storage_stall_ns: int = 5_000_000_000
    """The configured bound for it."""
    pending_bytes_max: int = 64 << 20
    """The configured bound for ``pending_bytes``."""
    keeps_log: int = 0
    """Bytes of the shared log that stay for this group alone, whose machine has no snapshot; 0: it keeps none."""
    learner_lag_entries: int = 1_000
    """A peer this close behind counts as caught up."""
    counters: Mapping[str, int] = attrs.field(factory=dict)
    """Only ever rise while the process lives. Names: see ``docs/reference/api.md``."""

    @property
    def apply_lag(self) -> int:
        """Entries committed and not applied here yet."""
        return self.commit_index - self.applied_index

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADER

    def as_dict(self) -> dict[str, Any]:
        """Plain values (text, numbers, lists, dicts), as JSON and CBOR take them."""
        plain: dict[str, Any] = _plain(self)
        plain["apply_lag"] = self.apply_lag
        return plain


def _plain(value: object) -> Any:
    """Enumerations by name, attrs classes and mappings as dicts, tuples as lists, bytes as hex."""
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
