"""Every limit and timeout of one group, validated, with the relations between them.

Names here end in ``_ms``; the cores count in integer nanoseconds. This module does no I/O.
"""

from __future__ import annotations

import enum

import attrs

from raft.errors import ConfigError

MS = 1_000_000
"""One millisecond in nanoseconds, the unit of the cores."""
NEVER = 1 << 62
"""A deadline, in ns, that does not come."""


class Rules(enum.Enum):
    """The election rules that a group can run. All its members must run the same."""

    STRICT = "strict"
    DLEDGER = "dledger"


class Sync(enum.Enum):
    """The moment at which a write counts as durable."""

    ALWAYS = "always"
    """Durable after fdatasync. The only policy under which a power cut loses nothing that was acknowledged."""
    INTERVAL = "interval"
    """Synced every ``sync_interval_ms``; a power cut may lose what was acknowledged since. Weaker."""
    NEVER = "never"
    """Never synced by the node, only by the operating system; a power cut may lose anything. Weaker."""


class Read(enum.Enum):
    """Levels of reading: how fresh the answer is, and at what price."""

    INDEX = "index"
    """Linearizable: one round to a quorum, on leader or follower. The default."""
    LEASE = "lease"
    """Linearizable while clocks drift less than ``clock_drift_percent``: no round while the lease holds."""
    LOG = "log"
    """Linearizable: through the log, one entry per read. DLedger's RAFT_LOG_READ."""
    UNSAFE = "unsafe"
    """Whatever this node has applied; may be arbitrarily stale. DLedger's UNSAFE_READ."""


@attrs.frozen(kw_only=True)
class DLedgerTimers:
    """Timers of ``Rules.DLEDGER``, with DLedger's names and defaults (DLedgerConfig 0.4.0)."""

    heart_beat_time_interval_ms: int = 2000
    max_heart_beat_leak: int = 3
    min_vote_interval_ms: int = 300
    max_vote_interval_ms: int = 1000
    min_take_leadership_vote_interval_ms: int = 30
    max_take_leadership_vote_interval_ms: int = 100
    vote_wait_ms: int = 2000
    """Time that a round waits for answers, plus a random share of ``max_vote_interval_ms``."""


@attrs.frozen(kw_only=True)
class Config:
    """Limits and timeouts of one group. Raises ``ConfigError``, which names the field, its value and the broken
    rule."""

    rules: Rules = Rules.STRICT
    election_timeout_ms: int = 400
    """Least silence before a follower asks for votes: each time it draws 1 to 1.5 times this. Also bounds lease and
    check quorum."""
    heartbeat_interval_ms: int = 80
    clock_drift_percent: int = 10
    """Most that one node's monotonic clock may run faster than another's, in percent. Leases rest on it."""
    dledger: DLedgerTimers = DLedgerTimers()
    preferred_leaders: tuple[str, ...] = ()
    """DLedger's preferredLeaderIds: these nodes hurry, and refuse others, while leadership is handed to them."""

    propose_timeout_ms: int = 5_000
    transfer_timeout_ms: int = 2_000
    reconfigure_timeout_ms: int = 60_000
    storage_stall_ms: int = 5_000
    """Time after which a leader resigns if its write is not durable yet."""
    replication_timeout_ms: int = 1_000
    """Time after which in-flight appends without an answer are given up, and the peer is probed anew."""

    entry_bytes_max: int = 1 << 20
    frame_bytes_max: int = 256 << 10
    """Size at which a frame closes; a larger entry gets a frame of its own."""
    frame_entries_max: int = 4_096
    message_bytes_max: int = 8 << 20
    """Largest message of a peer. A larger one closes its connection before anything is allocated."""
    append_bytes_max: int = 1 << 20
    """Most bytes of frames in one append, which has at least one frame."""
    inflight_bytes_max: int = 16 << 20
    inflight_messages_max: int = 256
    uncommitted_bytes_max: int = 64 << 20
    uncommitted_frames_target: int = 8
    """Number of frames that wait for commit from which on proposals gather into a larger frame: group commit without
    a timer."""
    cache_bytes_max: int = 32 << 20
    """Bytes of recent frames kept in memory, for peers and for applying."""
    reads_pending_max: int = 100_000
    proposals_pending_max: int = 100_000

    snapshot_log_bytes: int = 256 << 20
    """Growth of the log since the last snapshot after which a new one is taken. 0: only when asked."""
    snapshot_tail_entries: int = 10_000
    """Entries kept behind a snapshot for slow followers."""
    snapshot_tail_bytes: int = 64 << 20
    """Bytes of such entries, about: no more are kept, however few entries that is."""
    snapshot_chunk_bytes: int = 1 << 20
    learner_lag_entries: int = 1_000
    """Distance to the leader's last index at which a learner counts as caught up."""

    segment_bytes: int = 64 << 20
    sync: Sync = Sync.ALWAYS
    sync_interval_ms: int = 10
    loop_sync_max_ms: int = 50
    """Longest sync of a lone entry on the event loop; beyond it the writer's thread syncs for a while. 0: always the
    thread."""
    apply_slice_ms: int = 4
    """Longest time that applying keeps the event loop from other tasks."""

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Config):
            value = getattr(self, field.name)
            if str(field.type) == "int" and (type(value) is not int or value < 0):
                raise ConfigError(field.name, value, "must be a whole number, 0 or more")
        for name, kind in (("rules", Rules), ("sync", Sync), ("dledger", DLedgerTimers)):
            self._require(name, isinstance(getattr(self, name), kind), f"must be a raft.{kind.__name__}")
        leaders: object = self.preferred_leaders
        self._require("preferred_leaders", isinstance(leaders, tuple) and all(type(name) is str for name in leaders),
                      "must be a tuple of node ids")
        for name in ("election_timeout_ms", "heartbeat_interval_ms", "propose_timeout_ms", "frame_entries_max",
                     "entry_bytes_max", "inflight_messages_max", "snapshot_chunk_bytes", "apply_slice_ms",
                     "uncommitted_frames_target", "proposals_pending_max", "reads_pending_max", "transfer_timeout_ms",
                     "reconfigure_timeout_ms", "storage_stall_ms", "replication_timeout_ms"):
            self._require(name, getattr(self, name) > 0, "must be above 0")
        self._require("heartbeat_interval_ms", 3 * self.heartbeat_interval_ms <= self.election_timeout_ms,
                      f"three beats must fit into election_timeout_ms={self.election_timeout_ms}")
        self._require("clock_drift_percent", self.clock_drift_percent <= 50, "must be 50 or less")
        self._require("frame_bytes_max", 4_096 <= self.frame_bytes_max, "must be 4096 or more")
        self._require("append_bytes_max", self.frame_bytes_max <= self.append_bytes_max,
                      f"must hold a frame: frame_bytes_max={self.frame_bytes_max}")
        largest = max(self.append_bytes_max, self.entry_bytes_max + 68, self.snapshot_chunk_bytes) + 4_096
        self._require("message_bytes_max", largest <= self.message_bytes_max,
                      f"must hold the largest append, entry or snapshot chunk with its header: {largest}")
        self._require("message_bytes_max", self.message_bytes_max < 1 << 31, "must be below 2 GiB")
        self._require("inflight_bytes_max", self.message_bytes_max <= self.inflight_bytes_max,
                      f"must hold one message: message_bytes_max={self.message_bytes_max}")
        self._require("uncommitted_bytes_max", self.message_bytes_max <= self.uncommitted_bytes_max,
                      f"must hold one message: message_bytes_max={self.message_bytes_max}")
        self._require("segment_bytes", 2 * self.message_bytes_max <= self.segment_bytes,
                      f"must hold two of message_bytes_max={self.message_bytes_max}")
        timers = self.dledger
        for field in attrs.fields(DLedgerTimers):
            value = getattr(timers, field.name)
            self._require(f"dledger.{field.name}", type(value) is int and value > 0, "must be above 0")
        self._require("dledger.max_vote_interval_ms", timers.min_vote_interval_ms < timers.max_vote_interval_ms,
                      "must be above min_vote_interval_ms")
        self._require("dledger.max_take_leadership_vote_interval_ms",
                      timers.min_take_leadership_vote_interval_ms < timers.max_take_leadership_vote_interval_ms,
                      "must be above min_take_leadership_vote_interval_ms")

    @property
    def unsynced_bytes_max(self) -> int:
        """Bytes of frames on their way to a node's own disk at which it takes no more. It is more than a leader has in
        flight to the node, or uncommitted, so what is under way already is still taken."""
        return self.inflight_bytes_max + self.uncommitted_bytes_max

    def _require(self, field: str, holds: bool, rule: str) -> None:
        if not holds:
            target: object = self
            for part in field.split("."):
                target = getattr(target, part)
            raise ConfigError(field, target, rule)
