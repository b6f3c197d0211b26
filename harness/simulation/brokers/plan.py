"""Draws the conditions of one seed: the group's mode, its brokers, the load, and the faults.

The boring plan is three brokers without faults, which acknowledge writes that all members in sync hold.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.ha.config import HaConfig
from broker.replicas.lease import CLOCK_DRIFT_PERCENT
from raft.config import MS
from raft.sim.links import LinkProfile
from raft.sim.tape import Stream, Tape
from raft.sim.world import MILLION

CLUSTER: Final = "c"
GROUP: Final = "g"
HARMS: Final = (
    "kill", "power cut", "pause", "cut", "one way", "severed", "failover", "reset", "designate", "notify late", "both",
    "blink", "forged", "lonely", "deaf", "mute", "controller pause", "slow disk", "stalled disk", "hanging disk",
    "full disk",
)
"""Faults at moments.

``severed``: cut off from controllers; ``both``: a kill and a failover at once; ``blink``: a power cut that no
controller notices, while another broker does not hear this one; ``forged``: a notification of a role that no controller
gave; ``lonely``: cut off from all other brokers; ``deaf`` and ``mute``: one way, from or to all servers. With demands
also ``alone``: all other brokers die, and the operator lets this one go on alone. ``older copy``: a broker is killed
and its directory copied, or such a copy put back, without a boot of its machine in between."""
SILENCE_MS: Final = 500
"""A peer that sends repeated messages counts as silent after so long."""
FLUSH_TIMEOUT_MS: Final = 600
YIELD_WAIT_MS: Final = 250
"""Time that a yielding master waits for members to report whom they reach."""
FEATURES: Final = ("delays", "timers", "transactions", "pops", "deletions")
"""Features of brokers that a seed may have; each is also a profile that always has it."""
PROFILES: Final = (
    "swarm", "calm", "kills", "power", "network", "roles", "weak", "demands", "silence", "disks", "late", "copies",
    *FEATURES)
"""``demands``: an operator often changes ``minInSyncReplicas`` of running brokers. ``silence``: no process dies, but
processes pause or are cut off. ``disks``: disks are slow, stall, hang or are full. ``late``: a replica begins its copy
behind the first messages. ``copies``: older copies of directories are put back."""
DELAYS_MS: Final = (1_000, 2_000, 3_000)
"""Delays of the levels, from the first."""
TIMER_MS: Final = 100
"""``timerPrecisionMs``."""
APART_PPM: Final = (MILLION * 100 // (100 + CLOCK_DRIFT_PERCENT) + 1, MILLION * (100 + CLOCK_DRIFT_PERCENT) // 100)
"""The slowest and the fastest clock that leases allow for, beside a true one."""
_OF: Final = {
    "calm": (), "kills": ("kill",), "power": ("kill", "power cut", "blink"),
    "network": ("cut", "one way", "severed", "reset"),
    "demands": ("kill", "cut", "one way", "severed", "failover", "designate"),
    "silence": ("pause", "cut", "one way", "severed", "lonely", "lonely", "deaf", "mute", "controller pause"),
    "disks": ("slow disk", "stalled disk", "hanging disk", "full disk", "full disk"),
    "late": ("kill", "kill", "power cut", "blink", "designate", "cut"),
    "copies": ("kill", "both", "cut", "severed", "failover", *["older copy"] * 4),
    "roles": ("failover", "designate", "pause", "notify late", "severed", "forged"),
}


@attrs.define(kw_only=True)
class BrokerPlan:
    """The conditions of one seed."""

    brokers: int = 3
    learners: int = 0
    """Number of brokers that are learners: the last ones."""
    duration_ms: int = 15_000
    all_ack: bool = True
    sync_flush: bool = False
    min_in_sync: int = 1
    in_sync_replicas: int = 1
    lease_ms: int = 0
    wait_master_lease: bool = False
    unclean: bool = False
    timeout_ms: int = 1_500
    """Timeout of heartbeats to controllers."""
    beat_ms: int = 300
    poll_ms: int = 700
    priorities: bool = False
    """The first broker is preferred, then the second."""
    flow_bytes: int = 0
    pieces: bool = False
    """Streams arrive in pieces."""
    index: bool = False
    from_last_file: bool = False
    late_ms: int = 0
    """Time of the first start of the last machine."""
    seldom_ms: int = 0
    """Between two messages to one more queue, the first of which comes at once; 0: there is no such queue."""
    producers: int = 2
    queues: int = 2
    op_ns: int = 15 * MS
    put_chance: float = 0.7
    body_max: int = 200
    harms: tuple[str, ...] = ()
    harm_chance: float = 0.0
    harm_ns: int = 60 * MS
    site_chance: float = 0.0
    """Chance of a crash right before an operation on files."""
    sync_ms: int = 0
    """Largest extra duration of a sync."""
    busy: float = 0.0
    """Chance that a turn comes late."""
    young_hold_ms: int = 0
    shows_all: bool = False
    """A new master shows all that it has, as a Java master does."""
    java_controllers: bool = False
    """Controllers do not know our fields: neither leases nor logs in doubt."""
    controllers_by_name: bool = False
    """Controllers speak from other addresses than those configured."""
    lost_notifications: float = 0.0
    close_seen: float = 0.7
    late_close_ms: int = 0
    links: LinkProfile = LinkProfile()
    demand_chance: float = 0.0
    """Chance that an operator changes a broker's demand, in each ``demand_ns``."""
    demand_ns: int = 150 * MS
    slave_timeout_ms: int = 700
    disk_stall_ms: int = 600
    beat_interval_ms: int = 100
    """Interval of repeated replication messages; 0: brokers do not repeat them."""
    features: tuple[str, ...] = ()
    """Features in this seed; without any, brokers have no parts."""
    feature_ns: int = 60 * MS
    """Interval of clients' acts, for each feature."""
    save_ms: int = 1_000
    """Interval at which a part's position is written."""
    checks_max: int = 1_000
    """``transactionCheckMax``."""
    reset_chance: float = 0.0
    """Chance that an operator resets a popping group, in each ``feature_ns``."""
    copy_ms: int = 800
    """Interval at which a slave copies its master's tables."""
    rates_ppm: tuple[int, ...] = ()
    """Rates of the machines' clocks, in turn; empty: all are true."""

    def ha(self) -> HaConfig:
        return HaConfig(
            all_ack_in_sync_state_set=self.all_ack, heartbeat_interval_ms=200, housekeeping_interval_ms=900,
            beat_interval_ms=self.beat_interval_ms, silence_ms=SILENCE_MS, handshake_timeout_ms=600, role_wait_ms=600,
            max_time_not_caught_up_ms=1_200, admission_ms=100,
            asked_void_ms=120_000, transfer_batch_bytes=700, catch_up_batch_bytes=3_000, confirm_interval_ms=20,
            reconnect_wait_ms=80, connect_timeout_ms=300, truncate_retry_ms=150, dispatch_wait_ms=2_000,
            flow_control_bytes_per_second=self.flow_bytes, young_master_shows_all=self.shows_all)

    @property
    def queues_read(self) -> int:
        return self.queues + (self.seldom_ms > 0)

    def learns(self, number: int) -> bool:
        return number >= self.brokers - self.learners

    def rate_of(self, number: int) -> int:
        return self.rates_ppm[number % len(self.rates_ppm)] if self.rates_ppm else MILLION


def draw(tape: Tape, profile: str) -> BrokerPlan:
    """Draws the conditions of one seed."""
    stream = tape.stream("swarm")
    plan = BrokerPlan()
    plan.brokers = stream.pick((1, 2, 2, 3, 3, 3, 3, 4), 3)
    plan.learners = min(stream.pick((0, 0, 0, 0, 1), 0), plan.brokers - 1)
    plan.duration_ms = 1_000 * stream.between(6, 20, 15)
    plan.all_ack = not (stream.chance(0.25) or profile == "weak")
    plan.sync_flush = stream.chance(0.5)
    plan.min_in_sync = stream.pick((1, 1, 2), 1)
    plan.in_sync_replicas = 1 if plan.all_ack else stream.pick((1, 1, 2), 1)
    plan.lease_ms = 900 if stream.chance(0.4) else 0
    plan.wait_master_lease = stream.chance(0.5)
    if plan.lease_ms and stream.chance(0.4):
        plan.all_ack, plan.wait_master_lease = False, True  # only the lease protects acknowledged writes
    plan.unclean = stream.chance(0.04)
    plan.timeout_ms = stream.pick((1_200, 1_500, 3_000), 1_500)
    plan.poll_ms = stream.pick((400, 700, 2_000), 700)
    plan.flow_bytes = stream.pick((0, 0, 0, 20_000), 0)
    plan.pieces = stream.chance(0.3)
    plan.index = stream.chance(0.2)
    plan.from_last_file = stream.chance(0.15) or profile == "late"
    plan.producers = stream.between(1, 3, 2)
    plan.op_ns = MS * stream.pick((5, 15, 40), 15)
    plan.put_chance = stream.between(1, 10, 7) / 10
    plan.body_max = stream.pick((40, 200, 1_500), 200)
    if plan.flow_bytes:  # a lower rate would keep slaves behind for ever, and prove nothing
        plan.flow_bytes = max(plan.flow_bytes, plan.body_max * 1_000 * MS // plan.op_ns)
    plan.sync_ms = stream.pick((0, 0, 5, 60), 0)
    plan.busy = stream.pick((0.0, 0.0, 0.1), 0.0)
    plan.lost_notifications = stream.pick((0.0, 0.0, 0.3, 1.0), 0.0)
    plan.close_seen = stream.pick((0.0, 0.5, 1.0), 0.5)
    plan.late_close_ms = stream.pick((0, 5, 300, 2_000), 0)
    plan.beat_interval_ms = stream.pick((100, 100, 100, 0), 100)
    plan.disk_stall_ms = stream.pick((600, 600, 0), 600)
    _harm(plan, stream, profile)
    plan.java_controllers = stream.chance(0.2)
    plan.controllers_by_name = stream.chance(0.2)
    plan.young_hold_ms = stream.pick((0, 200, 900), 0)
    plan.shows_all = stream.chance(0.15)
    draw_demands(plan, stream, always=profile == "demands", never=profile == "calm")
    if profile == "demands":
        plan.brokers, plan.min_in_sync, plan.harms = max(plan.brokers, 3), 2, (*plan.harms, "alone", "alone")
    elif profile in ("silence", "disks"):
        plan.brokers, plan.java_controllers = max(plan.brokers, 3), False
        plan.min_in_sync = 2 if stream.chance(0.8) else 1
    if profile != "demands" and plan.demand_chance and plan.harms and stream.chance(0.5):
        plan.harms += ("alone",)
    draw_features(plan, tape.stream("features"), profile)
    if profile not in ("calm", *FEATURES):
        draw_clocks(plan, tape.stream("clocks"), APART_PPM)
    if plan.from_last_file:
        draw_late(plan, tape.stream("late"))
    if profile == "copies":
        plan.all_ack, plan.java_controllers = True, False
    elif profile == "swarm" and plan.all_ack and plan.harms and not (plan.java_controllers or plan.features):
        if tape.stream("copies").chance(0.3):
            plan.harms += ("older copy",)
    return plan


def draw_late(plan: BrokerPlan, stream: Stream) -> None:
    """Draw a machine that starts late, and a queue that is mostly idle."""
    plan.seldom_ms = stream.pick((3_000, 6_000, 12_000), 6_000)
    if plan.brokers > 1 and stream.chance(0.8):
        plan.late_ms = 1_000 * stream.between(1, 6, 3)


def draw_clocks(plan: BrokerPlan, stream: Stream, apart_ppm: tuple[int, int]) -> None:
    """Draw the rates of machines' clocks: true ones in half of the seeds with leases, else also those in ``apart_ppm``.
    """
    if plan.lease_ms and stream.chance(0.5):
        plan.rates_ppm = tuple(stream.pick((*apart_ppm, MILLION), MILLION) for _ in range(plan.brokers))


def draw_features(plan: BrokerPlan, stream: Stream, profile: str) -> None:
    """Draw the features, mostly none: they cost time, and no property of replication needs them."""
    drawn = tuple(feature for feature in FEATURES[:3] if stream.chance(0.2))
    plan.feature_ns = MS * stream.pick((20, 60, 200), 60)
    plan.save_ms = stream.pick((100, 1_000, 10_000), 1_000)
    plan.copy_ms = stream.pick((300, 800, 3_000), 800)
    plan.checks_max = stream.pick((1_000, 1_000, 3), 1_000)
    if stream.chance(0.2):  # drawn after the others, so that old seeds mean the same
        drawn += FEATURES[3:4]
    plan.reset_chance = stream.pick((0.0, 0.0, 0.02), 0.0)
    if stream.chance(0.1):
        drawn += FEATURES[4:]
    if profile in FEATURES:
        plan.features = tuple(feature for feature in FEATURES if feature in drawn or feature == profile)
    elif profile in ("swarm", "weak"):
        plan.features = drawn
    if {"transactions", "pops"} & {*plan.features}:
        plan.flow_bytes = 0  # throttled slaves might never keep up with messages put back


def draw_demands(plan: BrokerPlan, stream: Stream, *, always: bool, never: bool) -> None:
    """Draw whether an operator changes the demands of running brokers."""
    chance = stream.pick((0.0, 0.0, 0.02, 0.1), 0.0)
    plan.demand_chance = 0.0 if never else max(chance, 0.05) if always else chance
    if plan.demand_chance:  # a put has to live until a minimum is lowered
        plan.slave_timeout_ms = stream.pick((700, 5_000, 5_000), 700)


def _harm(plan: BrokerPlan, stream: Stream, profile: str) -> None:
    harms = tuple(harm for harm in HARMS if stream.chance(0.5))
    strength = stream.between(1, 10, 4) / 100
    site = stream.pick((0.0, 0.0, 0.0005, 0.003), 0.0)
    shape = LinkProfile(
        latency_ns=100_000 * stream.between(1, 40, 5), loss=stream.pick((0.0, 0.0, 0.001, 0.02), 0.0),
        delay=stream.pick((0.0, 0.0, 0.05, 0.3), 0.0), delay_ns=MS * stream.pick((5, 50, 500), 5))
    harms = _OF.get(profile, harms)
    if profile == "calm":
        return
    plan.harms = harms
    plan.harm_chance = strength if harms else 0.0
    if profile in ("swarm", "weak", "power", *FEATURES):
        plan.site_chance = site
    if profile in ("swarm", "weak", "network", "demands", "silence", *FEATURES):
        plan.links = shape
