"""The event vocabulary: one set of typed events for logs, metrics, NDJSON files, the simulator and analysis.

Cores hand events to one callable and never log. An event says what happened, on which node and group, and when by that
node's monotonic clock. Nothing here computes or does I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs


@attrs.define(eq=False)
class Event:
    """The common part of all events: ``at_ns`` is monotonic, ``term`` the node's own."""

    at_ns: int
    node: str
    group: int
    term: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, with the event's name under ``event``: one line of an NDJSON trace."""
        out: dict[str, Any] = {"event": type(self).__name__}
        for field in attrs.fields(type(self)):
            value = getattr(self, field.name)
            out[field.name] = list(value) if isinstance(value, tuple) else value
        return out


@attrs.define(eq=False)
class Started(Event):
    last_index: int
    voted_for: str | None


@attrs.define(eq=False)
class BecameFollower(Event):
    leader: str | None
    reason: str


@attrs.define(eq=False)
class BecameCandidate(Event):
    reason: str


@attrs.define(eq=False)
class BecameLeader(Event):
    leadership_seq: int
    last_index: int
    grants: tuple[str, ...]
    cause: str
    rounds: int
    election_ms: int


@attrs.define(eq=False)
class RoundStarted(Event):
    round: int
    probe: bool
    asked_term: int


@attrs.define(eq=False)
class RoundEnded(Event):
    round: int
    probe: bool
    result: str
    accepted: int
    valid: int


@attrs.define(eq=False)
class VoteCast(Event):
    candidate: str
    asked_term: int
    probe: bool
    result: str
    candidate_last: tuple[int, int]
    """(last term, last index) that the candidate claimed; compare with ``own_last``."""
    own_last: tuple[int, int]


@attrs.define(eq=False)
class Appended(Event):
    first: int
    last: int
    entry_term: int
    kind: int
    mark: int


@attrs.define(eq=False)
class Truncated(Event):
    first: int
    last: int


@attrs.define(eq=False)
class CommitAdvanced(Event):
    index: int
    counted: bool
    """True: this leader counted replicas; False: learned from the leader."""


@attrs.define(eq=False)
class ReadGranted(Event):
    ticket: int
    index: int
    lease: bool


@attrs.define(eq=False)
class MembershipSet(Event):
    index: int
    voters: tuple[str, ...]
    outgoing: tuple[str, ...]
    learners: tuple[str, ...]


@attrs.define(eq=False)
class PeerState(Event):
    peer: str
    state: str
    reason: str


@attrs.define(eq=False)
class SnapshotInstalled(Event):
    index: int
    entry_term: int


@attrs.define(eq=False)
class LogPurged(Event):
    index: int


@attrs.define(eq=False)
class Transfer(Event):
    target: str
    state: str


@attrs.define(eq=False)
class Outlived(Event):
    peer: str
    lives: int
    last_index: int


@attrs.define(eq=False)
class Regained(Event):
    index: int
    entry_term: int
    how: str


@attrs.define(eq=False)
class StorageTrouble(Event):
    kind: str


@attrs.define(eq=False)
class Dropped(Event):
    peer: str
    message: str
    reason: str


Trace = Callable[[Event], None]
