"""Protocols for a driver's surroundings: a disk to write to, peers to talk to, and the system's time and threads.

A node runs on any implementation of them. ``shared`` has those that all groups of a host use; tests have their own.
Nothing here knows terms, roles or sockets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

from raft.membership import Membership
from raft.messages import PeerMessage, Write
from raft.status import Refusal
from raft.storage.interface import EarlyAck, Storage

Clock: TypeAlias = Callable[[], int]
RunBlocking: TypeAlias = Callable[..., Awaitable[Any]]


class Disk(Protocol):
    """The disk of a group: takes writes in order. Their tokens come back through ``Driver.durable``."""

    early_acks: bool
    """True if ``submit_with_ack`` may be called, since there is a thread that could send one."""

    @property
    def storage(self) -> Storage:
        """The storage, to read entries from, and for snapshots."""

    def submit(self, write: Write) -> None:
        """Hand over a write; the loop is woken when it is durable."""

    def submit_with_ack(self, write: Write, ack: tuple[str, PeerMessage] | None) -> EarlyAck | None:
        """Hand over a write whose token may come late, unless ``report_now`` says otherwise: the loop is not woken.
        ``ack`` (peer, message) leaves once the write is durable. Returns None if the loop must send it."""

    def write_inline(self, write: Write) -> bool | None:
        """Flush what was sent to peers, then write and sync at once. Return True if durable; False if it failed, which
        is reported later; None if it was not tried and must be submitted."""

    def report_now(self, wanted: bool) -> None:
        """Say whether something waits for tokens now."""


class Peers(Protocol):
    """The other nodes, which messages may reach or not."""

    def send(self, peer: str, message: PeerMessage, /) -> object:
        """Hand a message to the transport; it may get lost."""

    def flush(self, most: int | None, /) -> object:
        """Flush messages sent since the last call: to at most this many peers, in the order of ``send``; None: to
        all."""

    def early_ack_sent(self, peer: str, ack: Any, /) -> object:
        """Note that this acknowledgement to this peer left without the loop."""

    def connected(self, peer: str, /) -> bool:
        """Return whether messages reach this peer now."""

    def refusals(self) -> Sequence[Refusal]:
        """Return handshakes with this node that failed lately."""

    def learn(self, addresses: Mapping[str, str], /) -> None:
        """Learn at which addresses other nodes listen."""

    def members_changed(self, membership: Membership, /) -> None:
        """Stay connected to the members of the group's new membership."""


def never_suspended() -> int:
    """Return 0, for clocks that a suspension cannot stop."""
    return 0


@attrs.define(eq=False)
class System:
    """The system's clocks, and a way to run blocking functions."""

    clock: Clock
    """Monotonic clock of the node, in ns."""
    wall_ms: Callable[[], int]
    run_blocking: RunBlocking
    """Runs a blocking function outside the event loop."""
    suspended_ns: Callable[[], int] = never_suspended
    """Time (ns) that the machine was suspended since it booted, which ``clock`` does not count."""
