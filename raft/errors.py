"""Every error the library raises, as one tree.

    RaftError
    ├── LocalError                you, the caller, broke a rule: fix the program or the configuration
    │   ├── ConfigError           a configuration field; says field, value and rule
    │   └── UsageError            a call in the wrong order or state, or with a wrong argument
    ├── RemoteError               a peer or client sent what it must not; only that connection suffers
    │   ├── MalformedMessage      bytes that do not decode, or exceed a limit
    │   └── HandshakeRefused      a hello that does not fit: cluster, node, version, rules, certificate
    ├── StorageError              the disk; the node stops trusting it
    │   ├── DiskFull              no room; nothing of the write was kept
    │   ├── DamagedLog            bytes on disk that fail their checks; says path, offset and reason
    │   ├── WriteFailed           a write or sync failed; final, see ``docs/explanation/storage.md``
    │   └── WrongDirectory        the directory belongs to another node, cluster or format, or is not formatted
    ├── Outcome                   a request was refused or lost, or its fate is unknown; handle these
    │   ├── NotLeader             definitely not accepted; ask ``leader``
    │   ├── Rejected              definitely not accepted or definitely lost; says why
    │   │   ├── Busy              a limit is reached; try again later
    │   │   └── NotAllowed        this connection may not ask for that
    │   └── Unknown               may or may not take effect
    └── Faulted                   this node stopped applying; says why

Decoders raise only ``RemoteError`` for bytes from outside: any other exception there is a bug.
This module knows nothing but the standard library.
"""

from __future__ import annotations

import enum


class RaftError(Exception):
    """The base class of every error of this library."""


class LocalError(RaftError):
    """The caller broke a rule: the program or the configuration must be mended."""


class ConfigError(LocalError):
    """A configuration field has a value that its rule forbids."""

    def __init__(self, field: str, value: object, rule: str) -> None:
        super().__init__(f"{field}={value!r}: {rule}")
        self.field, self.value, self.rule = field, value, rule


class UsageError(LocalError):
    """A call came in the wrong order or state, or with a wrong argument."""


class RemoteError(RaftError):
    """A peer or client sent what it must not."""


class MalformedMessage(RemoteError):
    """Bytes from outside do not decode, or exceed a limit."""


class HandshakeRefused(RemoteError):
    """A hello did not fit this node. ``reason`` is a sentence for the operator."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StorageError(RaftError):
    """The disk failed or holds what it must not."""


class DiskFull(StorageError):
    """The disk had no room for a write; nothing of it was kept, and the log is as before."""


class WriteFailed(StorageError):
    """A write or sync failed. Final for this process: after a failed sync nobody knows what the disk holds."""


class DamagedLog(StorageError):
    """Bytes on disk fail their checks, and no crash can explain it."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{path} at byte {offset}: {reason}")
        self.path, self.offset, self.reason = path, offset, reason


class WrongDirectory(StorageError):
    """The directory belongs to another node, cluster or format, or is not formatted."""


class RejectReason(enum.Enum):
    """The reasons why a request was refused or lost. The value is the sentence shown to people."""

    BUSY = "a limit is reached; try again later"
    TRANSFERRING = "leadership is being handed over; try again on the new leader"
    OVERWRITTEN = "another leader's entry was committed in its place"
    TOO_LARGE = "it is larger than the node takes"
    DISK_FULL = "the leader's disk is full"
    CHANGE_IN_PROGRESS = "a membership change is in progress"
    NO_SUCH_MEMBER = "the target is not a member that can do this"
    NOT_CAUGHT_UP = "the target did not catch up in time"
    TIMED_OUT = "the operation timed out and was withdrawn; nothing changed"
    ILLEGAL_CHANGE = "the requested membership is not legal"
    NO_LEASE = "the leader holds no lease at this moment"
    INSTALLING = "this node is installing a snapshot"
    LEADER_LOST = "leadership changed before the answer; ask again"
    NO_SUCH_GROUP = "the group is not open on this node, or not yet"
    STOPPED = "this node is stopping"
    NOT_ALLOWED = "this connection may not ask for that"


class Outcome(RaftError):
    """A request was refused or lost, or its fate is unknown."""


class NotLeader(Outcome):
    """The request was not accepted: this node does not lead. ``leader`` and ``address`` are None when unknown."""

    def __init__(self, leader: str | None, address: str | None) -> None:
        known = f"ask {leader} at {address}" if leader else "no leader is known"
        super().__init__(f"not the leader; {known}")
        self.leader, self.address = leader, address


class Rejected(Outcome):
    """The request was not done, for a reason. A rejected proposal certainly has no effect.

    From ``reconfigure`` and a hand-over it means that the goal was not reached: learners may have been added, or
    another node may lead.
    """

    def __init__(self, reason: RejectReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason, self.detail = reason, detail


class Busy(Rejected):
    """``propose_nowait`` found a limit reached; ``propose`` would wait."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(RejectReason.BUSY, detail)


class NotAllowed(Rejected):
    """This connection may not ask for that: ``raft.Access`` says who may."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(RejectReason.NOT_ALLOWED, detail)


class Unknown(Outcome):
    """The request may or may not take effect. ``first`` and ``last`` are log indices, 0 if these are not known."""

    def __init__(self, first: int = 0, last: int = 0, detail: str = "") -> None:
        where = f"entries {first}..{last}" if first else "the request"
        super().__init__(f"outcome of {where} is unknown" + (f": {detail}" if detail else ""))
        self.first, self.last, self.detail = first, last, detail


class Faulted(RaftError):
    """This node stopped: its state machine raised, or its storage failed. It skips nothing and answers nothing."""
