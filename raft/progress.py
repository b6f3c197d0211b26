"""What a leader knows of one peer: where it stands, what is in flight to it, when it was last in contact.

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
    """How a peer is fed."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


PROBE: Final = State.PROBE
REPLICATE: Final = State.REPLICATE
SNAPSHOT: Final = State.SNAPSHOT


class Progress:
    """One peer in one leadership and one membership incarnation: its ``session``."""

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
        """Messages up to here left before ``match`` was known; an answer to a later one cannot fall short of it."""
        self.owed = 0
        """Above 0: the peer lost what it had acknowledged up to here; it counts for nothing until it holds that."""
        self.lapsed = False
        """The peer says of itself that it lost what it had acknowledged."""
        self.lapse_sequence = 0
        """Messages up to here were sent before it said so."""
        self.counted_ns = 0
        """Since when it counts again: what it promised before that may contradict what it forgot."""
        self.next = next_index
        self.sequence = 0
        self.resolved_sequence = 0
        """Answers up to here are history: a refusal among them says nothing any more (openraft 1500)."""
        self.inflight: deque[tuple[int, int, int]] = deque()
        """(last index, bytes, sent at) of appends with frames, rising."""
        self.inflight_bytes = 0
        self.sent_times: deque[tuple[int, int]] = deque(maxlen=SENT_TIMES_MAX)
        self.contact_ns = now
        """When the latest answered message was *sent*: bounds lease and check quorum."""
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
        """When the latest chunk was asked for. Beats are answered even when chunks are lost."""
        self.departing_until_ns = 0
        """Above 0: no longer a member; fed until it knows, at most until then."""

    def stamp(self, now: int) -> int:
        """Number the next message and remember when it left."""
        self.sequence = sequence = self.sequence + 1
        self.sent_times.append((sequence, now))
        return sequence

    def answered(self, sequence: int, now: int) -> None:
        """An answer echoing ``sequence`` arrived: contact is as fresh as that message's departure."""
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
        """Take a durable match; True if it moved. It never falls."""
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
        """Forget what is in flight and look for the common point from here; never at or below ``match``."""
        self.state = State.PROBE
        self.next = max(next_index, self.match + 1)
        self.probe_sent = False
        self.load_pending = False
        self.inflight.clear()
        self.inflight_bytes = 0

    def replicate(self) -> None:
        """The logs agree up to ``match``. A probe puts nothing in flight."""
        assert not self.inflight and not self.inflight_bytes
        self.state = State.REPLICATE
        self.next = self.match + 1

    def send_snapshot(self) -> None:
        self.probe_from(self.match + 1)
        self.state = State.SNAPSHOT
        self.snapshot_index = 0
        self.chunk_offset = 0
