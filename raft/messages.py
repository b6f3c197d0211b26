"""What goes into a replica and what comes out, as values.

Peer messages travel between nodes (``wire`` turns them into bytes). Outputs are what the shell must do, in the
order given. A message that promises something carries the write it depends on (``Send.after``); the shell may
not let it leave before that token is durable. Nothing here computes.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from raft.errors import RejectReason
from raft.frame import Frame
from raft.membership import Membership

# --- codes with DLedger's names and numbers ------------------------------------------------------------------


class Code(enum.IntEnum):
    """DLedger's response codes that a peer message can carry (numbers as in DLedgerResponseCode)."""

    SUCCESS = 200
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    INCONSISTENT_STATE = 406
    INCONSISTENT_LEADER = 409
    DISK_FULL = 415
    TERM_NOT_READY = 416
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506


SUCCESS: Final = Code.SUCCESS
"""Under a name of its own, as the roles below: to Python 3.11 ``Code.SUCCESS`` is a search of 60 ns each time."""


class VoteResult(enum.IntEnum):
    """DLedger's VoteResponse.RESULT, in its order."""

    UNKNOWN = 0
    ACCEPT = 1
    REJECT_UNKNOWN_LEADER = 2
    REJECT_UNEXPECTED_LEADER = 3
    REJECT_EXPIRED_VOTE_TERM = 4
    REJECT_ALREADY_VOTED = 5
    REJECT_ALREADY_HAS_LEADER = 6
    REJECT_TERM_NOT_READY = 7
    REJECT_TERM_SMALL_THAN_LEDGER = 8
    REJECT_EXPIRED_LEDGER_TERM = 9
    REJECT_SMALL_LEDGER_END_INDEX = 10
    REJECT_TAKING_LEADERSHIP = 11


class ParseResult(enum.IntEnum):
    """DLedger's VoteResponse.ParseResult: what a finished round means."""

    WAIT_TO_REVOTE = 0
    REVOTE_IMMEDIATELY = 1
    PASSED = 2
    WAIT_TO_VOTE_NEXT = 3


class Role(enum.IntEnum):
    """Raft's roles. A learner is a follower that no quorum counts."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


FOLLOWER: Final = Role.FOLLOWER
CANDIDATE: Final = Role.CANDIDATE
LEADER: Final = Role.LEADER

# --- peer messages -------------------------------------------------------------------------------------------
# ``session`` names one leader's dealings with one peer in one membership incarnation; ``sequence`` rises with
# every message of a session. A reply echoes both, so a reply from another life is recognised and dropped.


@attrs.define(eq=True)
class Append:
    """Frames that follow (prev_index, prev_term); with no frames, a heartbeat. Leader to peer."""

    group: int
    term: int
    session: int
    sequence: int
    prev_index: int
    prev_term: int
    commit: int
    read_round: int
    """Rises with every round that confirms reads; echoed."""
    frames: tuple[Frame, ...] | list[Frame] = ()


@attrs.define(eq=True)
class AppendReply:
    """Answer to an ``Append``. ``match`` is durable and proven equal to the leader's log; on 406 a hint follows."""

    group: int
    term: int
    session: int
    sequence: int
    code: int
    match: int
    last_index: int
    hint_index: int
    """On INCONSISTENT_STATE: largest index at which the logs may agree. On SUCCESS, above 0: this node lost what it had
    acknowledged, up to here as far as it knows, and is to count for nothing (``Lapse``). Else 0."""
    hint_term: int
    """Term of the follower's entry at ``hint_index``, 0 if it has none; of the lost one on SUCCESS. Else 0."""
    read_round: int
    """Echoed; 0 from a node that lost what it had acknowledged."""


@attrs.define(eq=True)
class Vote:
    """Request for a vote (``probe``: would you? nothing is recorded). ``transfer``: the old leader asked for it."""

    group: int
    term: int
    round: int
    """Candidate's own counter, echoed; an answer to another round counts for nothing."""
    last_index: int
    last_term: int
    probe: bool = False
    transfer: bool = False


@attrs.define(eq=True)
class VoteReply:
    """Answer to a ``Vote``. ``term`` is the voter's term (its last entry's for TERM_SMALL_THAN_LEDGER)."""

    group: int
    term: int
    round: int
    result: int
    probe: bool


@attrs.define(eq=True)
class TimeoutNow:
    """Leader to transferee: campaign at once. The transferee needs (last_index, last_term) on its disk."""

    group: int
    term: int
    last_index: int
    last_term: int


@attrs.define(eq=True)
class SnapshotChunk:
    """One piece of a snapshot. ``meta`` is an encoded ``SnapshotMeta``; the last piece ends at its ``size``."""

    group: int
    term: int
    session: int
    sequence: int
    meta: bytes
    offset: int
    data: bytes


@attrs.define(eq=True)
class SnapshotReply:
    """Answer to a ``SnapshotChunk``: ``offset`` bytes of snapshot ``index`` are staged; done once installed."""

    group: int
    term: int
    session: int
    sequence: int
    code: int
    index: int
    offset: int
    done: bool


@attrs.define(eq=True)
class ReadRequest:
    """Follower to leader: at which index may I answer reads that arrived before this message?"""

    group: int
    term: int
    ticket: int
    """Echoed. No other life of the follower uses it (``Replica.life``), so an answer to another answers nothing."""


@attrs.define(eq=True)
class ReadReply:
    """Leader to follower: at ``index``; or ``code`` says why not."""

    group: int
    term: int
    ticket: int
    code: int
    index: int


PeerMessage = (
    Append | AppendReply | Vote | VoteReply | TimeoutNow | SnapshotChunk | SnapshotReply | ReadRequest | ReadReply
)

# --- what is stored ------------------------------------------------------------------------------------------


@attrs.frozen
class HardState:
    """What a node must never forget: its term and its vote in it (None: none)."""

    term: int = 0
    voted_for: str | None = None


@attrs.frozen
class Lapse:
    """A node lost entries or votes that its disk had held, synced: up to entry ``index`` of ``term``, or more.

    Until it holds that again it neither votes nor counts.
    """

    index: int = 0
    """0: nothing is lost (any more)."""
    term: int = 0
    """``UNKNOWN_TERM``: nobody knows how much is lost."""
    told: tuple[int, ...] = ()
    """Lives of this directory that it never had and that peers met (``raft.lives``): of these the group knows."""


WHOLE: Final = Lapse()
UNKNOWN_TERM: Final = (1 << 63) - 1
"""No log reaches as far."""


@attrs.frozen
class SnapshotMeta:
    """A snapshot covers the log up to ``index``. ``mark`` is the ``Frame.mark`` there (0: unknown)."""

    index: int
    term: int
    mark: int
    membership: Membership
    membership_index: int
    """Log index of the entry that made ``membership``; 0 for the bootstrap membership."""
    size: int = 0
    """Bytes of state."""
    crc: int = 0
    """CRC-32C of the state."""
    wall_ms: int = 0


@attrs.define
class Recovered:
    """What storage knows of one group when it opens. An unknown group is ``Recovered()``."""

    hard_state: HardState = HardState()
    purged_index: int = 0
    """Entries up to here are gone from the log; (term, mark) belong to the last of them."""
    purged_term: int = 0
    purged_mark: int = 0
    last_index: int = 0
    last_term: int = 0
    last_mark: int = 0
    term_runs: list[tuple[int, int]] = attrs.Factory(list)
    """(first index, term) of each run of one term in the log, rising; empty for an empty log."""
    memberships: list[Frame] = attrs.Factory(list)
    """Frames of kind MEMBERSHIP still in the log, rising."""
    snapshot: SnapshotMeta | None = None
    lapse: Lapse | None = None
    """What the storage knows to have been synced here, and is not here any more."""
    told: tuple[int, ...] = ()
    """``Lapse.told``, also of a lapse that is over."""


# --- outputs -------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Write:
    """To be persisted strictly in token order; one or more may share a sync. Applied in the order of the fields."""

    token: int
    group: int
    install: SnapshotMeta | None = None
    """Log := empty behind this snapshot (which is on disk already), unless it holds (index, term): then it stays."""
    truncate_from: int = 0
    """Drop entries at and after this index, a frame's first; 0: none."""
    hard_state: HardState | None = None
    frames: list[Frame] = attrs.Factory(list)
    purge_to: int = 0
    """Entries up to here may go (never beyond the newest snapshot); 0: none. May be carried out lazily."""
    lapse: Lapse | None = None
    """To be kept beside the log until another takes its place; ``WHOLE`` ends it."""
    forget: bool = False
    """First of all: the group's log is as if nothing had ever been written, but for term and vote. The group was
    removed here."""


@attrs.define(eq=False)
class Send:
    """May leave for ``peer`` once token ``after`` is durable (0: at once). Order per peer is kept where possible."""

    peer: str
    message: PeerMessage
    after: int = 0


@attrs.define(eq=False)
class Committed:
    """Apply up to ``index``; the shell applies no further than what is durable here too."""

    index: int


@attrs.define(eq=False)
class Load:
    """Read frames for ``peer`` from storage, starting with the one that holds ``first``; answer with ``loaded``."""

    peer: str
    session: int
    first: int
    max_bytes: int


@attrs.define(eq=False)
class LoadChunk:
    """Read a piece of the newest snapshot for ``peer``; answer with ``chunk_loaded``."""

    peer: str
    session: int
    index: int
    """Snapshot wanted; 0: the newest."""
    offset: int
    max_bytes: int


@attrs.define(eq=False)
class StoreChunk:
    """Stage a piece of a snapshot from the leader; answer with ``chunk_stored``."""

    peer: str
    meta: SnapshotMeta
    offset: int
    data: bytes


@attrs.define(eq=False)
class Install:
    """The log now stands on this snapshot: restore the state machine from it, then answer ``installed``."""

    meta: SnapshotMeta


@attrs.define(eq=False)
class ReadReady:
    """Reads under ``ticket`` may be answered once ``index`` is applied; ``refused`` says why not."""

    ticket: int
    index: int
    refused: RejectReason | None = None
    lease: bool = False
    """The shell must ask ``lease_valid`` again when it answers."""


@attrs.define(eq=False)
class RoleChanged:
    """Fired once per actual change. (term, leadership_seq) is a fencing token: it rises with every leadership."""

    role: Role
    term: int
    leader: str | None
    leadership_seq: int


@attrs.define(eq=False)
class MembershipChanged:
    """The membership in effect (on append) is now this one, made by the entry at ``index``."""

    membership: Membership
    index: int


@attrs.define(eq=False)
class Resolved:
    """A ``reconfigure`` or ``transfer`` under ``ticket`` ended; None: as asked."""

    ticket: int
    refused: RejectReason | None = None
    detail: str = ""
    unknown: bool = False
    """True: leadership was lost on the way; it may or may not come about."""


Output = (
    Write | Send | Committed | Load | LoadChunk | StoreChunk | Install | ReadReady | RoleChanged | MembershipChanged
    | Resolved
)
