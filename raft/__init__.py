"""Raft for trio: a sans-IO core, and a thin shell that runs it on real disks and sockets.

Start with ``open_node``. Importing this package does not load trio; the names of the shell load it when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from raft.access import Access
from raft.config import Config, DLedgerTimers, Read, Rules, Sync
from raft.errors import (
    Busy,
    ConfigError,
    DamagedLog,
    DiskFull,
    Faulted,
    HandshakeRefused,
    LocalError,
    MalformedMessage,
    NotAllowed,
    NotLeader,
    Outcome,
    RaftError,
    Rejected,
    RejectReason,
    RemoteError,
    StorageError,
    Unknown,
    UsageError,
    WriteFailed,
    WrongDirectory,
)
from raft.membership import Member, Membership
from raft.messages import MembershipChanged, Role, RoleChanged, SnapshotMeta
from raft.statemachine import AnyMachine, Codec, CodedMachine, Entries, EntryMachine, Sink, StateMachine
from raft.status import PeerStatus, Status

if TYPE_CHECKING:
    from raft.client import Client, connect
    from raft.events import Lagged, NodeEvent, NodeFaulted, SnapshotRestored, SnapshotTaken, Subscription
    from raft.host import Host, open_host, open_node
    from raft.node import Node
    from raft.pending import Ticket
    from raft.tls import TLSConfig
    from raft.transport import TransportLimits

_LAZY = {
    "Client": "client", "connect": "client",
    "Lagged": "events", "NodeEvent": "events", "NodeFaulted": "events", "SnapshotRestored": "events",
    "SnapshotTaken": "events", "Subscription": "events",
    "Host": "host", "open_host": "host", "open_node": "host",
    "Node": "node", "Ticket": "pending", "TLSConfig": "tls", "TransportLimits": "transport",
}
"""Names that need trio, with the module of this package that defines each."""

__version__ = "0.1.0"

__all__ = [
    "Access",
    "AnyMachine",
    "Busy",
    "Client",
    "Codec",
    "CodedMachine",
    "Config",
    "ConfigError",
    "DLedgerTimers",
    "DamagedLog",
    "DiskFull",
    "Entries",
    "EntryMachine",
    "Faulted",
    "HandshakeRefused",
    "Host",
    "Lagged",
    "LocalError",
    "MalformedMessage",
    "Member",
    "Membership",
    "MembershipChanged",
    "Node",
    "NodeEvent",
    "NodeFaulted",
    "NotAllowed",
    "NotLeader",
    "Outcome",
    "PeerStatus",
    "RaftError",
    "Read",
    "RejectReason",
    "Rejected",
    "RemoteError",
    "Role",
    "RoleChanged",
    "Rules",
    "Sink",
    "SnapshotMeta",
    "SnapshotRestored",
    "SnapshotTaken",
    "StateMachine",
    "Status",
    "StorageError",
    "Subscription",
    "Sync",
    "TLSConfig",
    "Ticket",
    "TransportLimits",
    "Unknown",
    "UsageError",
    "WriteFailed",
    "WrongDirectory",
    "connect",
    "open_host",
    "open_node",
]


def __getattr__(name: str) -> object:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
