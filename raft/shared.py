"""The disk and the peers that all groups of a host share, as each group's driver sees them.

Knows the log writer and the transport, and which of them works without the event loop; knows no terms and no roles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized

from raft.membership import Membership
from raft.messages import PeerMessage, Write
from raft.status import Refusal
from raft.storage.interface import Storage
from raft.storage.writer import InlineWriter, LogWriter
from raft.transport import Prepared, Transport


class SharedDisk:
    """Implements ``Disk`` for all groups of a host. ``groups`` are those that write to it."""

    def __init__(self, storage: Storage, writer: LogWriter | InlineWriter, transport: Transport, groups: Sized) -> None:
        self.storage, self.submit = storage, writer.submit
        self._thread = writer if isinstance(writer, LogWriter) else None
        self._transport, self._groups = transport, groups
        self.early_acks = self._thread is not None
        self._waiting = 0
        """Number of groups that wait for tokens."""

    def submit_with_ack(self, write: Write, ack: tuple[str, PeerMessage] | None) -> Prepared | None:
        """Write, and if possible have the writer's thread send this message (peer, message) once that is durable."""
        thread = self._thread
        assert thread is not None
        prepared = self._transport.prepare(*ack) if ack is not None else None
        if ack is None or prepared is not None:
            thread.submit_with_ack(write, prepared)
        else:
            thread.submit(write)
        return prepared

    def write_inline(self, write: Write) -> bool | None:
        """Write and sync this now, if that will be quick and no other group must wait for it. Return None if not
        tried."""
        thread = self._thread
        if thread is None or len(self._groups) > 1 or not thread.takes_inline(write):
            return None
        if not self._transport.flush():  # an inline write pays only if the peers' disks work meanwhile
            return None
        return thread.write_inline(write)

    def report_now(self, wanted: bool) -> None:
        """Note that a group waits for its tokens now, or no longer does."""
        self._waiting += 1 if wanted else -1
        assert self._waiting >= 0
        thread = self._thread
        if thread is not None:
            thread.report_now = self._waiting > 0
            if wanted and thread.reports:
                thread.report()


class SharedPeers:
    """Implements ``Peers`` for all groups of a host. ``members_changed`` is called for every group's new
    membership."""

    def __init__(self, transport: Transport, node_id: str, members_changed: Callable[[Membership], None]) -> None:
        self._transport, self._node_id = transport, node_id
        self.send, self.flush, self.connected = transport.send, transport.flush, transport.connected
        self.early_ack_sent, self.members_changed = transport.note_sent, members_changed

    def refusals(self) -> Sequence[Refusal]:
        """Return the latest refused handshake of each peer."""
        return list(self._transport.refusals.values())

    def learn(self, addresses: Mapping[str, str]) -> None:
        """Learn at which addresses other nodes listen."""
        for peer, address in addresses.items():
            if peer != self._node_id and address:
                self._transport.set_address(peer, address)
