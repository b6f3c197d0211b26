"""Draws the plan of one seed: faults and their strength, size of the cluster, load.

Everything is drawn from the tape's stream "swarm"; its boring value is a calm cluster of three. Most seeds mix a
random half of the faults; some have one fault often, some none. Knows the names of faults, not how to apply them.
"""

from __future__ import annotations

from typing import Final

import attrs

from raft.config import MS, Config, DLedgerTimers, Rules
from raft.sim.links import LinkProfile
from raft.sim.tape import Chance, Stream, Tape

NEMESES: Final = (
    "crash", "wipe", "pause", "partition", "isolate", "cut", "hold", "rate", "drift", "step", "full", "fail", "stall",
    "transfer", "reconfigure", "snapshot",
)
"""Faults that happen at single moments; ``drift`` is a clock rate beyond what leases allow."""
DAMAGE: Final = "damage"
"""A bit flip or a misdirected write in stored bytes. Only the segment log can notice."""
HANG: Final = "hang"
"""A sync hangs while the leader changes several times."""
BOUNCE: Final = "bounce"
"""A process restarts at once, in the same term, and gets answers meant for its earlier life."""
ROT: Final = "rot"
"""The last block of a disk rots while its node is down."""
COPY: Final = "copy"
"""An older copy of a node's directory is made, and put back."""
LAPSES: Final = "lapses"
"""The profile with both ``ROT`` and ``COPY``."""
TRAITS: Final = ("loss", "duplicate", "reorder", "delay", "overflow", "slow")
"""Faults that a whole seed has."""
PROFILES: Final = ("swarm", "memory", "calm", "network", "disk", "members", "clocks", "dledger", "segment", DAMAGE,
                   BOUNCE, LAPSES, *NEMESES)


@attrs.define(kw_only=True)
class Plan:
    """The draws of one seed: rules, size, load and faults."""

    rules: Rules = Rules.STRICT
    size: int = 3
    learners: int = 0
    duration_ms: int = 20_000
    """Duration of the first phase, with faults."""
    op_ns: int = 10 * MS
    """Interval at which a client may act."""
    op_chance: float = 0.8
    read_share: float = 0.25
    nemesis_ns: int = 50 * MS
    nemesis_chance: float = 0.0
    faults: tuple[str, ...] = ()
    links: LinkProfile = LinkProfile()
    slow: float = 0.0
    """Chance of a slow sync, on every node."""
    tight: bool = False
    """True for tiny windows, caches and frames, so that their limits are met."""
    codec: bool = False
    disk: str = "memory"
    twice: float = 0.0
    whole: bool = False
    """True if a snapshot comes in one piece, and may be the first word of a new leader."""
    narrows: bool = False
    """True for a phase before healing in which only small messages pass."""
    promises: bool = False
    """True if early acknowledgements leave as soon as a sync ends; the node is told later."""

    def config(self) -> Config:
        """Return limits so small that a short run meets them all."""
        tight = self.tight
        return Config(
            rules=self.rules, election_timeout_ms=300, heartbeat_interval_ms=60,
            dledger=DLedgerTimers(
                heart_beat_time_interval_ms=100, max_heart_beat_leak=3, min_vote_interval_ms=60,
                max_vote_interval_ms=200, min_take_leadership_vote_interval_ms=30,
                max_take_leadership_vote_interval_ms=100, vote_wait_ms=200),
            propose_timeout_ms=2_000, transfer_timeout_ms=1_000, reconfigure_timeout_ms=4_000, storage_stall_ms=600,
            replication_timeout_ms=400, entry_bytes_max=1_024, frame_bytes_max=4_096, frame_entries_max=16,
            message_bytes_max=16_384, append_bytes_max=4_096 if tight else 8_192, inflight_bytes_max=16_384,
            inflight_messages_max=3 if tight else 32, uncommitted_bytes_max=16_384 if tight else 65_536,
            cache_bytes_max=2_048 if tight else 32_768, snapshot_log_bytes=0,
            snapshot_tail_entries=8 if tight else 64, learner_lag_entries=16, segment_bytes=65_536,
            snapshot_chunk_bytes=8_192 if self.whole else 128 if tight else 256)


def draw_plan(tape: Tape, profile: str) -> Plan:
    """Draw the conditions of one seed. Profile "memory" is "swarm" without the segment log, for measuring speed."""
    stream = tape.stream("swarm")
    in_memory, profile = profile == "memory", "swarm" if profile == "memory" else profile
    plan = Plan()
    plan.rules = Rules.DLEDGER if profile == "dledger" or stream.chance(0.2) else Rules.STRICT
    plan.size = stream.pick((1, 2, 3, 3, 3, 3, 3, 4, 5, 5), 3)
    plan.learners = stream.pick((0, 0, 0, 1, 2), 0)
    plan.duration_ms = 1_000 * stream.between(8, 30, 20)
    plan.op_ns = MS * stream.pick((2, 4, 8, 15), 8)
    plan.read_share = stream.between(0, 50, 25) / 100
    plan.tight = stream.chance(0.4)
    plan.codec = stream.chance(0.15)
    plan.disk = "segment" if profile in ("segment", DAMAGE) or (stream.chance(0.06) and not in_memory) else "memory"
    plan.twice = 0.01 * stream.between(0, 4, 0)
    mix = stream.between(0, 99, 99)
    plan.faults = _faults(stream, profile, mix)
    plan.nemesis_chance = 0.01 * stream.between(1, 30, 0 if not plan.faults else 10)
    traits = {trait: stream.chance(0.4) for trait in TRAITS}
    strengths = {trait: stream.draw(0.0, _strength) for trait in TRAITS}
    if profile not in ("swarm", "network", "dledger", "segment") or mix >= 90:
        traits = dict.fromkeys(TRAITS, False)
    if profile in ("swarm", "disk", "segment") and mix < 90 and traits["slow"]:
        plan.slow = strengths["slow"]
    plan.links = LinkProfile(
        latency_ns=100_000 * stream.between(1, 40, 5),
        loss=0.4 * strengths["loss"] if traits["loss"] else 0.0,
        duplicate=0.3 * strengths["duplicate"] if traits["duplicate"] else 0.0,
        reorder=0.3 * strengths["reorder"] if traits["reorder"] else 0.0,
        delay=strengths["delay"] if traits["delay"] else 0.0,
        delay_ns=MS * stream.pick((1, 5, 20, 600), 5),
        capacity=stream.between(2, 20, 8) if traits["overflow"] else 4_096)
    if plan.disk == "segment" and plan.faults and stream.chance(0.5):
        plan.faults += (DAMAGE,)
    plan.promises = stream.chance(0.5)
    if "stall" in plan.faults and stream.chance(0.4):
        plan.faults += (HANG,)
    if plan.faults and profile != BOUNCE and tape.stream("bounces").chance(0.3):
        plan.faults += (BOUNCE,)
    return plan


def with_lapses(plan: Plan, tape: Tape, profile: str) -> Plan:
    """Add lapses to some of the seeds with faults, and to some of all a phase without large messages, or snapshots in
    one piece."""
    if plan.faults and profile not in (BOUNCE, LAPSES) and tape.stream(LAPSES).chance(0.3):
        plan.faults += (ROT, COPY)
    plan.narrows = tape.stream("narrows").chance(0.1)
    plan.whole = tape.stream("whole").chance(0.2)
    return plan


def _faults(stream: Stream, profile: str, mix: int) -> tuple[str, ...]:
    half = tuple(fault for fault in NEMESES if stream.chance(0.5))
    one = stream.pick(NEMESES, "crash")
    if profile in NEMESES:
        return (profile,) if profile != "wipe" else ("wipe", "crash", "reconfigure")
    groups = {
        DAMAGE: (DAMAGE, "crash", "snapshot", "reconfigure"), BOUNCE: (BOUNCE,),
        LAPSES: (ROT, COPY, "crash", "isolate", "transfer"),
        "network": ("partition", "isolate", "cut", "hold"), "disk": ("crash", "full", "fail", "stall", "wipe"),
        "members": ("reconfigure", "transfer", "wipe", "crash", "snapshot"),
        "clocks": ("rate", "drift", "step", "pause", "isolate"), "calm": (),
    }
    if profile in groups:
        return groups[profile]
    if mix < 75:
        return half
    return (one,) if mix < 90 else ()


def _strength(chance: Chance) -> float:
    return round(chance() ** 3, 4)
