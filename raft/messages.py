"""The inputs and outputs of a replica, as values.

Peer messages travel between nodes (``wire`` turns them into bytes). Outputs are what the shell must do, in the
order given. A message that promises something names the write that it depends on (``Send.after``); the shell must
not send it before that token is durable. Nothing here computes.
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
"""``Code.SUCCESS`` as a name of its own, as the roles below: in Python 3.11 each look-up in the enum takes 60 ns."""


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
    """Frames that follow (prev_index, prev_term), or a heartbeat without frames. Leader to peer."""

    group: int
    term: int
    session: int
    sequence: int
    prev_index: int
    prev_term: int
    commit: int
    read_round: int
    """Number of the latest round that confirms reads; echoed."""
    frames: tuple[Frame, ...] | list[Frame] = ()


@attrs.define(eq=True)
class AppendReply:
    """Answer to an ``Append``. ``match`` is durable and proven equal to the leader's log; with code 406 there is a
    hint."""

    group: int
    term: int
    session: int
    sequence: int
    code: int
    match: int
    last_index: int
    hint_index: int
    """With INCONSISTENT_STATE: largest index at which the logs may agree. With SUCCESS, above 0: this node lost what it
    had acknowledged, up to here as far as it knows, and must not count (``Lapse``). Else 0."""
    hint_term: int
    """Term of the follower's entry at ``hint_index``, 0 if it has none; with SUCCESS, of the lost entry. Else 0."""
    read_round: int
    """Read round, echoed; 0 from a node that lost what it had acknowledged."""


@attrs.define(eq=True)
class Vote:
    """Request for a vote. ``probe`` only asks, and nothing is recorded. ``transfer``: the old leader hands over."""

    group: int
    term: int
    round: int
    """Number of the candidate's round, echoed; an answer to another round counts for nothing."""
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
    """Asks the target of a hand-over to campaign at once. It needs (last_index, last_term) on its disk."""

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
    """Answer to a ``SnapshotChunk``: ``offset`` bytes of snapshot ``index`` are staged. ``done`` once it is
    installed."""

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
    """Asks a leader, from a follower, at which index it may answer reads that came before this message."""

    group: int
    term: int
    ticket: int
    """Number of the question, echoed. Every life of the follower uses other numbers (``Replica.life``), so it knows
    answers to its own questions."""


@attrs.define(eq=True)
class ReadReply:
    """Answer to a ``ReadRequest``: the index, or a ``code`` that says why there is none."""

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
    """Term and vote of a node, which it must never forget. ``voted_for`` is None if it did not vote in the term."""

    term: int = 0
    voted_for: str | None = None


@attrs.frozen
class Lapse:
    """A node lost entries or votes that its disk had held, synced: up to entry ``index`` of ``term``, or more.

    Until it holds that again it neither votes nor counts.
    """

    index: int = 0
    """Last index that was lost as far as is known; 0: nothing is lost, or no longer."""
    term: int = 0
    """Term of that entry; ``UNKNOWN_TERM``: nobody knows how much is lost."""
    told: tuple[int, ...] = ()
    """Lives that peers met of this directory although it never had them (``raft.lives``): the group knows of these."""


WHOLE: Final = Lapse()
UNKNOWN_TERM: Final = (1 << 63) - 1
"""A term that no log reaches."""


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
    """Size of the state in bytes."""
    crc: int = 0
    """CRC-32C of the state's bytes."""
    wall_ms: int = 0


@attrs.define
class Recovered:
    """The storage's knowledge of one group when it opens. An unknown group is ``Recovered()``."""

    hard_state: HardState = HardState()
    purged_index: int = 0
    """Last entry that is gone from the log; (term, mark) belong to it."""
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
    """The loss that the storage knows of: entries were synced here, and are gone."""
    told: tuple[int, ...] = ()
    """``Lapse.told``, also of a lapse that is over."""


# --- outputs -------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Write:
    """One write to the disk. Writes are persisted strictly in token order, and may share a sync. The fields apply in
    their order."""

    token: int
    group: int
    install: SnapshotMeta | None = None
    """Empty the log after this snapshot, which is on disk already; if the log holds (index, term), it stays."""
    truncate_from: int = 0
    """First index of the entries to drop, a frame's first; 0: none."""
    hard_state: HardState | None = None
    frames: list[Frame] = attrs.Factory(list)
    purge_to: int = 0
    """Last index of the entries that may go (never beyond the newest snapshot), at once or later; 0: none."""
    lapse: Lapse | None = None
    """A lapse to keep beside the log until another replaces it; ``WHOLE`` ends it."""
    forget: bool = False
    """True: the group was removed here. Before the other fields apply, its log becomes empty, but term and vote
    stay."""


@attrs.define(eq=False)
class Send:
    """A message that may leave for ``peer`` once token ``after`` is durable (0: at once). Order for each peer is kept
    if possible."""

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
    """The role, term or leader changed. (term, leadership_seq) is a fencing token: it rises with every leadership."""

    role: Role
    term: int
    leader: str | None
    leadership_seq: int


@attrs.define(eq=False)
class MembershipChanged:
    """The membership in effect changed to this one, by the entry at ``index``, when that was appended."""

    membership: Membership
    index: int


@attrs.define(eq=False)
class Resolved:
    """A ``reconfigure`` or ``transfer`` under ``ticket`` ended. ``refused`` is None if it succeeded."""

    ticket: int
    refused: RejectReason | None = None
    detail: str = ""
    unknown: bool = False
    """True: leadership was lost before the end; the change may or may not happen."""


Output = (
    Write | Send | Committed | Load | LoadChunk | StoreChunk | Install | ReadReady | RoleChanged | MembershipChanged
    | Resolved
)
