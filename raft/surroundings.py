"""What a driver needs around it: a disk to write to, peers to talk to, and the system's time and threads.

Two protocols and a record, so that a node can be driven on any of them. ``shared`` has the ones that all groups of a
host use; tests have theirs. Nothing here knows terms, roles or sockets.
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
    """Takes writes in order. Their tokens come back through ``Driver.durable``."""

    early_acks: bool
    """Whether ``submit_with_ack`` may be called: there is a thread that could send one."""

    @property
    def storage(self) -> Storage:
        """To read from, and for snapshots."""

    def submit(self, write: Write) -> None:
        """Hand over a write; the loop is woken when it is durable."""

    def submit_with_ack(self, write: Write, ack: tuple[str, PeerMessage] | None) -> EarlyAck | None:
        """Hand over a write that the loop need not be woken for: its token may come late, unless ``report_now`` says
        otherwise. ``ack`` (to whom, what) leaves the moment the write is durable; None: it will not, the loop must."""

    def write_inline(self, write: Write) -> bool | None:
        """Let out what was sent, then write and sync here and now. True: it is durable; False: it failed, which is told
        later; None: not tried, ``submit`` it."""

    def report_now(self, wanted: bool) -> None:
        """Whether something waits for tokens now."""


class Peers(Protocol):
    """The other nodes, as far as messages may reach them."""

    def send(self, peer: str, message: PeerMessage, /) -> object:
        """Hand a message to the transport; it may get lost."""

    def flush(self, most: int | None, /) -> object:
        """Let out what was sent since the last time: to this many peers, in the order of ``send``; None: to all."""

    def early_ack_sent(self, peer: str, ack: Any, /) -> object:
        """That message to that peer left without the loop."""

    def connected(self, peer: str, /) -> bool:
        """Whether messages reach this peer now."""

    def refusals(self) -> Sequence[Refusal]:
        """Handshakes with this node that failed lately."""

    def learn(self, addresses: Mapping[str, str], /) -> None:
        """Learn at which addresses other nodes listen."""

    def members_changed(self, membership: Membership, /) -> None:
        """The group has another membership now: stay connected to those."""


def never_suspended() -> int:
    """For clocks that a suspension cannot stop."""
    return 0


@attrs.define(eq=False)
class System:
    """Clocks, and a way to run what blocks."""

    clock: Clock
    """Monotonic, ns."""
    wall_ms: Callable[[], int]
    run_blocking: RunBlocking
    """Run a function that blocks, away from the event loop."""
    suspended_ns: Callable[[], int] = never_suspended
    """How long the machine has been suspended since it booted, ns: ``clock`` does not count that."""
