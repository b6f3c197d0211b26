"""A follower without its group: what tests of ``following`` and ``snapshots`` tell it, and what it says."""

from __future__ import annotations

from typing import Any

from raft.config import Config
from raft.frame import Frame
from raft.messages import Append, Output, PeerMessage, Send, SnapshotChunk, SnapshotMeta
from raft.snapshotmeta import encode_meta
from raft.trace import Dropped
from tests.raft.script import Script, disk

SESSION = 5


class Follower:
    """n1, which has entries of these terms; n0 leads term 3."""

    def __init__(self, *terms: int, config: Config | None = None) -> None:
        self.script = Script(3, disks={"n1": disk(terms, term=3)}, config=config)
        self.replica, self.following = self.script["n1"], self.script["n1"].following
        self.outputs: list[Output] = []
        self.sequence = 0
        self.replica.drain()

    def tell(self, message: PeerMessage, peer: str = "n0") -> list[Any]:
        """What it says at once."""
        self.script.now += 1
        self.replica.receive(self.script.now, peer, message)
        return self.said()

    def said(self) -> list[Any]:
        self.outputs = self.replica.drain()
        return [output.message for output in self.outputs if isinstance(output, Send)]

    def append(
        self, previous: int, previous_term: int, *frames: Frame, term: int = 3, commit: int = 0, read_round: int = 0,
        session: int = SESSION, sequence: int | None = None, peer: str = "n0",
    ) -> list[Any]:
        self.sequence += 1
        return self.tell(Append(1, term, session, self.sequence if sequence is None else sequence, previous,
                                previous_term, commit, read_round, list(frames)), peer)

    def synced(self) -> list[Any]:
        """All that it wrote is on its disk."""
        self.replica.durable(self.script.now, self.replica.writes._next_token - 1)
        return self.said()

    def full(self) -> None:
        self.replica.storage_fault(self.script.now, "full")
        self.synced()

    def lost(self) -> bool:
        return self.replica.lapse is not None

    def waits(self) -> bool:
        return self.following.needs_disk

    @property
    def drops(self) -> list[str]:
        return [event.reason for event in self.script.nodes["n1"].traces if isinstance(event, Dropped)]


def chunk(of: SnapshotMeta, offset: int = 0, data: bytes = b"", *, term: int = 3) -> SnapshotChunk:
    return SnapshotChunk(1, term, SESSION, 8, encode_meta(of), offset, data)
