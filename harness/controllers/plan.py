"""What one seed is about, beside what ``raft.sim.swarm`` draws: groups, brokers, their settings, and what befalls them.

The boring value everywhere is one group of three calm brokers that acknowledge what all in sync hold.
"""

from __future__ import annotations

from typing import Final

import attrs

from controller.active import ElectionSettings
from raft.config import MS, Config, Read, Rules
from raft.sim.links import LinkProfile
from raft.sim.swarm import NEMESES, PROFILES, Plan, draw_plan
from raft.sim.tape import Stream, Tape

BROKER_FAULTS: Final = (
    "broker crash", "broker silence", "reset", "severed", "one way", "wiped broker", "gate", "designate", "clean",
    "force clean", "both", "site",
)
"""What happens to brokers and between them and controllers; ``both``: a master and the active controller at once."""
CLOCKS: Final = frozenset(("rate", "drift", "step"))
OWN_PROFILES: Final = (
    "swarm", "calm", "brokers", "controllers", *(name for name in PROFILES if name in NEMESES or name in (
        "network", "disk", "members", "clocks", "segment")))


@attrs.define(kw_only=True)
class ControllerPlan(Plan):
    """One seed's conditions."""

    groups: int = 1
    brokers: int = 3
    """Of each group."""
    container: bool = False
    """One process holds the n-th broker of every group."""
    java: bool = False
    """Brokers announce nothing and beat one-way."""
    all_ack: bool = True
    gate: int = 1
    """``minInSyncReplicas``."""
    lease_ms: int = 0
    timeout_ms: int = 3_000
    """Of heartbeats."""
    beat_ms: int = 1_000
    tick_ms: int = 100
    poll_ms: int = 2_000
    check_ms: int = 700
    put_chance: float = 0.5
    log_max: int = 300
    hangs_up: bool = False
    """A broker closes a channel on which an answer is overdue."""
    priorities: bool = False
    lost_notifications: float = 0.0
    close_seen: float = 0.7
    """Chance that a controller hears of a channel that a broker's death or reset closes."""
    late_close_ms: int = 0
    """Up to how late it hears of it."""
    settings: ElectionSettings = ElectionSettings()
    read: Read = Read.INDEX
    outer: LinkProfile = LinkProfile()
    harm_chance: float = 0.0
    harms: tuple[str, ...] = ()
    site_chance: float = 0.0
    """Chance of a crash at each write of a registration."""

    snapshot_bytes: int = 0
    """Log of so many bytes makes a snapshot."""

    def config(self) -> Config:
        return attrs.evolve(super().config(), snapshot_log_bytes=self.snapshot_bytes, snapshot_tail_entries=4)

    def priority(self, broker_id: int) -> int | None:
        return 10 - broker_id if self.priorities else None

    @property
    def waits(self) -> bool:
        """Whether controllers wait for leases that brokers hold."""
        return self.settings.wait_master_lease and bool(self.lease_ms)

    @property
    def true_clocks(self) -> bool:
        """Whether time promises may be held to the letter."""
        return not CLOCKS & set(self.faults)


def draw(tape: Tape, profile: str) -> ControllerPlan:
    """Draw the conditions of one seed. "brokers": controllers are left alone; "controllers": brokers are."""
    base = draw_plan(tape, {"brokers": "calm", "controllers": "swarm"}.get(profile, profile))
    stream = tape.stream("fleet")
    fields = {field.name: getattr(base, field.name) for field in attrs.fields(Plan)}
    plan = ControllerPlan(**{**fields, "rules": Rules.STRICT, "op_ns": 40 * MS, "tight": False})
    plan.groups = stream.pick((1, 1, 2, 3), 1)
    plan.brokers = stream.pick((1, 2, 3, 3, 3, 4), 3)
    plan.container = stream.chance(0.3)
    plan.java = stream.chance(0.25)
    plan.all_ack = not stream.chance(0.3)
    plan.gate = stream.pick((1, 1, 2, 2, 3), 1)
    plan.timeout_ms = stream.pick((1_500, 3_000, 6_000), 3_000)
    plan.beat_ms = plan.timeout_ms // stream.pick((3, 5, 10), 3)
    plan.lease_ms = int(plan.timeout_ms * 0.8) if stream.chance(0.5) else 0
    plan.tick_ms = stream.pick((50, 100, 200), 100)
    plan.poll_ms = stream.pick((1_000, 2_000, 5_000), 2_000)
    plan.put_chance = stream.between(1, 10, 5) / 10
    plan.hangs_up = stream.chance(0.5)
    plan.priorities = stream.chance(0.3)
    plan.lost_notifications = stream.pick((0.0, 0.0, 0.3, 1.0), 0.0)
    plan.close_seen = stream.pick((0.0, 0.5, 1.0), 0.5)
    plan.late_close_ms = stream.pick((0, 5, 300, 3_000), 0)
    plan.settings = ElectionSettings(
        unclean=stream.chance(0.1), policy=stream.pick(("default", "preferred", "priority"), "default"),
        wait_master_lease=stream.chance(0.5))
    if plan.waits and stream.chance(0.8):
        plan.faults = tuple(fault for fault in plan.faults if fault not in CLOCKS)
        plan.java = plan.all_ack = False
    plan.read = Read.LEASE if stream.chance(0.5) else Read.INDEX
    plan.snapshot_bytes = stream.pick((0, 1_000, 4_000), 0)
    _harm(plan, stream, profile)
    return plan


def _harm(plan: ControllerPlan, stream: Stream, profile: str) -> None:
    harms = tuple(harm for harm in BROKER_FAULTS if stream.chance(0.5))
    if plan.waits and "reset" not in harms:
        harms += ("reset",)
    strength = stream.between(1, 10, 4) / 100
    shape = LinkProfile(
        latency_ns=100_000 * stream.between(1, 40, 5), loss=stream.pick((0.0, 0.0, 0.02, 0.2), 0.0),
        duplicate=stream.pick((0.0, 0.0, 0.1), 0.0), reorder=stream.pick((0.0, 0.0, 0.1), 0.0),
        delay=stream.pick((0.0, 0.0, 0.05, 0.3), 0.0), delay_ns=MS * stream.pick((5, 50, 800), 5))
    if profile in ("swarm", "brokers"):
        plan.harms, plan.outer = harms, shape
        plan.harm_chance = strength if harms else 0.0
        plan.site_chance = 0.2 if "site" in harms else 0.0
