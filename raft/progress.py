"""A leader's record of one peer: where its log stands, what is in flight to it, when it was last in contact.

States (DLedger's dispatcher in brackets): PROBE (COMPARE) finds the common point with one message outstanding,
REPLICATE (APPEND) streams within a window of bytes and messages, SNAPSHOT (INSTALL_SNAPSHOT) sends chunks.
Pure bookkeeping: it sends nothing and decides nothing about commit.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

SENT_TIMES_MAX = 4_096


class State(enum.IntEnum):
    """The ways in which a leader feeds a peer."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


PROBE: Final = State.PROBE
REPLICATE: Final = State.REPLICATE
SNAPSHOT: Final = State.SNAPSHOT


class Progress:
    """One peer in one leadership, as long as it is a member with the same directory: its ``session``."""

    __slots__ = (
        "chunk_asked_ns", "chunk_offset", "contact_ns", "counted_ns", "departing_until_ns", "disk_full", "heard_ns",
        "inflight", "inflight_bytes", "lapse_sequence", "lapsed", "last_index", "load_pending", "match",
        "match_sequence", "next", "owed", "peer", "probe_sent", "read_round", "resolved_sequence", "sent_commit",
        "sent_times", "sequence", "session", "snapshot_index", "state",
    )

    def __init__(self, peer: str, session: int, next_index: int, now: int) -> None:
        self.peer, self.session = peer, session
        assert next_index > 0 and session > 0, (next_index, session)
        self.state = State.PROBE
        self.match = 0
        """Largest index known to be durable on the peer and equal to ours."""
        self.match_sequence = 0
        """Last message that left before ``match`` was known. An answer to a later one cannot have a smaller match."""
        self.owed = 0
        """Last index that the peer had acknowledged and lost; it counts for nothing until it holds that. 0: nothing."""
        self.lapsed = False
        """True if the peer says of itself that it lost what it had acknowledged."""
        self.lapse_sequence = 0
        """Last message that was sent before the peer said so."""
        self.counted_ns = 0
        """Time from which the peer counts again: its earlier promises may contradict what it forgot."""
        self.next = next_index
        self.sequence = 0
        self.resolved_sequence = 0
        """Last message whose answer is outdated: a refusal of it or an earlier one is ignored (openraft 1500)."""
        self.inflight: deque[tuple[int, int, int]] = deque()
        """(last index, bytes, sent at) of appends with frames, rising."""
        self.inflight_bytes = 0
        self.sent_times: deque[tuple[int, int]] = deque(maxlen=SENT_TIMES_MAX)
        self.contact_ns = now
        """Time when the latest answered message was *sent*. Bounds lease and check quorum."""
        self.heard_ns = now
        self.sent_commit = 0
        self.read_round = 0
        self.last_index = 0
        self.probe_sent = False
        self.load_pending = False
        self.disk_full = False
        self.snapshot_index = 0
        self.chunk_offset = 0
        self.chunk_asked_ns = now
        """Time when the latest chunk was read for the peer. Answered heartbeats do not prove that chunks arrive."""
        self.departing_until_ns = 0
        """Time until which a removed member is fed at most, so that it learns of its removal. 0: it is a member."""

    def stamp(self, now: int) -> int:
        """Return the number of the next message, and remember when it left."""
        self.sequence = sequence = self.sequence + 1
        self.sent_times.append((sequence, now))
        return sequence

    def answered(self, sequence: int, now: int) -> None:
        """Note an answer that echoes ``sequence``: the contact dates from when that message was sent."""
        times = self.sent_times
        while times and times[0][0] <= sequence:
            self.contact_ns = times.popleft()[1]
        assert self.contact_ns <= now, "it was sent before it was answered"
        self.heard_ns = now

    def window_open(self, bytes_max: int, messages_max: int) -> bool:
        return self.inflight_bytes < bytes_max and len(self.inflight) < messages_max

    def sent_frames(self, last: int, size: int, now: int) -> None:
        assert last >= self.next and size > 0, (last, self.next, size)
        self.inflight.append((last, size, now))
        self.inflight_bytes += size
        self.next = last + 1

    def acknowledge(self, match: int) -> bool:
        """Take a durable match, which never falls. Return whether it rose."""
        inflight = self.inflight
        while inflight and inflight[0][0] <= match:
            self.inflight_bytes -= inflight.popleft()[1]
        assert (self.inflight_bytes > 0) == bool(inflight), (self.inflight_bytes, len(inflight))
        if match <= self.match:
            return False
        self.match = match
        self.match_sequence = self.sequence
        if match >= self.next:
            self.next = match + 1
        assert self.match < self.next
        return True

    def probe_from(self, next_index: int) -> None:
        """Forget what is in flight and probe for the common point from here; never at or below ``match``."""
        self.state = State.PROBE
        self.next = max(next_index, self.match + 1)
        self.probe_sent = False
        self.load_pending = False
        self.inflight.clear()
        self.inflight_bytes = 0

    def replicate(self) -> None:
        """Stream frames from now on, since the logs agree up to ``match``. A probe puts nothing in flight."""
        assert not self.inflight and not self.inflight_bytes
        self.state = State.REPLICATE
        self.next = self.match + 1

    def send_snapshot(self) -> None:
        self.probe_from(self.match + 1)
        self.state = State.SNAPSHOT
        self.snapshot_index = 0
        self.chunk_offset = 0
