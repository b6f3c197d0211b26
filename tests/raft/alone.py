"""One node without its group: what tests of ``replica`` tell it, and what it says."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

from raft.config import MS, Config, Rules
from raft.frame import Frame
from raft.membership import Member, Membership
from raft.messages import (
    Append,
    Output,
    PeerMessage,
    Recovered,
    Role,
    RoleChanged,
    Send,
    SnapshotMeta,
)
from raft.replica import Replica
from raft.rules import make_rules
from raft.trace import Dropped
from tests.raft.script import disk

NOW = 1_000 * MS
DLEDGER = Config(rules=Rules.DLEDGER)


def among(*names: str, learners: tuple[str, ...] = (), **incarnations: bytes) -> Membership:
    """A membership of these voters; a word names a member's directory."""
    return Membership(names, (), learners, {
        name: Member(f"{name}:1", incarnations.get(name, b"")) for name in (*names, *learners)})


THREE = among("n0", "n1", "n2")


class Node:
    """n0 with entries of these terms, all on its disk; its term is that of the last one, or 3 if there is none."""

    def __init__(
        self, *terms: int, membership: Membership = THREE, config: Config | None = None, incarnation: bytes = b"",
        **recovered: Any,
    ) -> None:
        self.config, self.now = config or Config(), NOW
        self.events: list[Any] = []
        known = disk(terms, term=None if terms else 3).open().get(1) or Recovered()
        self.rules = make_rules(self.config)
        self.replica = Replica(
            group=1, node_id="n0", config=self.config, rules=self.rules, rng=Random(1), now=NOW,
            recovered=attrs.evolve(known, **recovered), membership=membership, life=1, incarnation=incarnation,
            trace=self.events.append)
        self.outputs: list[Output] = []

    def hear(self, message: PeerMessage, peer: str = "n1", later: int = 0) -> list[Any]:
        """What it says at once."""
        self.now += later
        self.replica.receive(self.now, peer, message)
        return self.said()

    def said(self) -> list[Any]:
        self.outputs = self.replica.drain()
        return [output.message for output in self.outputs if isinstance(output, Send)]

    def others(self, kind: type) -> list[Any]:
        return [output for output in self.outputs if isinstance(output, kind)]

    def append(self, previous: int, *frames: Frame, term: int = 3, commit: int = 0, peer: str = "n1") -> list[Any]:
        return self.hear(Append(1, term, 5, 1, previous, self.replica.log.term_at(previous), commit, 0, list(frames)),
                         peer)

    def synced(self) -> list[Any]:
        said = self.said()
        self.replica.durable(self.now, self.replica.writes._next_token - 1)
        return said + self.said()

    def lead(self) -> None:
        """It leads the next term, and all that it wrote so far is on its disk."""
        self.replica.set_hard_state(self.replica.term + 1, "n0")
        self.replica.become_leader(("n0",))
        self.synced()

    def tick(self, later: int = 0) -> list[Any]:
        self.now += later
        self.replica.tick(self.now)
        return self.said()

    @property
    def drops(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, Dropped)]

    @property
    def roles(self) -> list[tuple[Role, int, str | None, int]]:
        return [(each.role, each.term, each.leader, each.leadership_seq) for each in self.others(RoleChanged)]


def meta(index: int, term: int = 1, membership: Membership = THREE, *, size: int = 0) -> SnapshotMeta:
    return SnapshotMeta(index, term, 0, membership, 0, size=size)
