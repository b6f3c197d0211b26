"""Draws the conditions of one seed beside those of ``raft.sim.swarm``: groups, brokers, their settings and faults.

The boring plan is one group of three brokers without faults, which acknowledge writes that all members in sync hold.
"""

from __future__ import annotations

from typing import Final

import attrs

from controller.active import ElectionSettings
from controller.metadata.codec import FORMAT
from harness.simulation.brokers.plan import APART_PPM, BrokerPlan, draw_clocks, draw_demands
from raft.config import MS, Config, Read, Rules
from raft.sim.links import LinkProfile
from raft.sim.swarm import BOUNCE, NEMESES, PROFILES, Plan, draw_plan
from raft.sim.tape import Stream, Tape

BROKER_FAULTS: Final = (
    "broker crash", "broker silence", "reset", "severed", "one way", "wiped broker", "gate", "designate", "clean",
    "force clean", "both", "successor", "lonely", "bad disk", "site", "copied disk",
)
"""Faults of brokers and of their channels to controllers.

``both``: a master and the active controller crash at once; ``successor``: a master crashes, and soon its successor;
``lonely``: a broker is cut off from the others; ``bad disk``: brokers report disks that take no writes;
``copied disk``: a copied directory is started elsewhere."""
LATER: Final = ("copied disk", "lonely", "bad disk")
"""Faults that are drawn after the others."""
WILD_CLOCKS: Final = frozenset(("drift", "step"))
"""Clock faults beyond what leases allow for."""
CLOSER_PPM: Final = (955_000, 1_045_000)
"""Bounds of the rates of brokers' clocks where those of controllers vary, too (``rate``)."""
BASES: Final = {"brokers": "calm", "controllers": "swarm", "successors": "calm", "deposed": "clocks",
                "leases": "calm", "releases": "calm", "copies": "calm", "demands": "calm", "hindered": "calm"}
"""The profiles that ``raft.sim`` does not have, with its profile for the faults of controllers.

"brokers": faults of brokers alone; "controllers": of controllers alone. "successors": masters crash, and so do their
successors, which alone hold later acknowledged writes. "deposed": active controllers that do not know their successor
are asked for groups. "leases": masters with a lease lose their channels, some all ways to controllers. "releases":
controllers are upgraded and downgraded. "copies": copied directories are started beside their originals, which crash,
stop or lose their channels. "demands": an operator changes the demands of running masters under faults. "hindered":
masters live and are of no use: stopped, cut off, with bad disks.
"""
OWN_PROFILES: Final = (
    "swarm", "calm", *BASES, *(name for name in PROFILES if name in NEMESES or name in (
        "network", "disk", "members", "clocks", "segment", BOUNCE)))


@attrs.define(kw_only=True)
class ControllerPlan(Plan):
    """The conditions of one seed."""

    groups: int = 1
    brokers: int = 3
    """Brokers of each group."""
    container: bool = False
    """One process holds the n-th broker of every group."""
    fleet: BrokerPlan = BrokerPlan()
    """Conditions of each group, its clients and the network between its brokers."""
    java: bool = False
    """Brokers behave as Java's: they announce nothing and send one-way heartbeats."""
    hangs_up: bool = False
    """A broker closes a channel on which an answer is overdue."""
    lost_notifications: float = 0.0
    close_seen: float = 0.7
    """Chance that a controller hears of a channel that a broker's death or reset closes."""
    late_close_ms: int = 0
    """Largest delay after which it hears of the close."""
    settings: ElectionSettings = ElectionSettings()
    read: Read = Read.INDEX
    outer: LinkProfile = LinkProfile()
    harm_chance: float = 0.0
    harms: tuple[str, ...] = ()
    snapshot_bytes: int = 0
    """A log of so many bytes causes a snapshot."""
    silence_ms: int = 0
    """Time after which brokers report a silent master, or masters their isolation; 0: never."""
    format: int = FORMAT
    """Format of the log to which active controllers raise it."""
    deposed: bool = False
    """Active controllers are deposed without their knowledge, while an onlooker goes on asking them."""
    mixed: bool = False
    """Some controllers are of an older release."""

    def config(self) -> Config:
        return attrs.evolve(super().config(), snapshot_log_bytes=self.snapshot_bytes, snapshot_tail_entries=4)

    def waits_for(self, fleet: BrokerPlan) -> bool:
        """Return whether controllers wait for leases that brokers hold."""
        return self.settings.wait_master_lease and bool(fleet.lease_ms)

    @property
    def sound_clocks(self) -> bool:
        """True if clocks run apart no more than leases allow for, so that leases can be checked."""
        return not WILD_CLOCKS & set(self.faults)


def draw(tape: Tape, profile: str) -> ControllerPlan:
    """Draw the conditions of one seed."""
    base = draw_plan(tape, BASES.get(profile, profile))
    stream = tape.stream("fleet")
    fields = {field.name: getattr(base, field.name) for field in attrs.fields(Plan)}
    if profile != BOUNCE:
        fields["faults"] = tuple(fault for fault in base.faults if fault != BOUNCE)
    plan = ControllerPlan(**{**fields, "rules": Rules.STRICT, "op_ns": 40 * MS, "tight": False})
    plan.groups = stream.pick((1, 1, 2, 3), 1)
    plan.brokers = stream.pick((1, 2, 3, 3, 3, 4), 3)
    plan.container = stream.chance(0.3)
    plan.java = stream.chance(0.25)
    plan.hangs_up = stream.chance(0.5)
    plan.lost_notifications = stream.pick((0.0, 0.0, 0.3, 1.0), 0.0)
    plan.close_seen = stream.pick((0.0, 0.5, 1.0), 0.5)
    plan.late_close_ms = stream.pick((0, 5, 300, 3_000), 0)
    plan.settings = ElectionSettings(
        unclean=stream.chance(0.1), policy=stream.pick(("default", "preferred", "priority"), "default"),
        wait_master_lease=stream.chance(0.5))
    plan.fleet = _fleet(plan, stream)
    plan.read = Read.LEASE if stream.chance(0.5) else Read.INDEX
    plan.snapshot_bytes = stream.pick((0, 1_000, 4_000), 0)
    _harm(plan, stream, profile)
    plan.format = FORMAT - 1 if stream.chance(0.2) else FORMAT
    plan.fleet.shows_all = stream.chance(0.15)
    if profile == "releases":
        plan.format, plan.mixed = FORMAT, True
    else:
        plan.mixed = plan.format == FORMAT and tape.stream("mixed").chance(0.3)
    plan.deposed = plan.size > 2 and (profile == "deposed" or (
        profile in ("swarm", "controllers") and tape.stream("deposed").chance(0.3)))
    if plan.deposed and not plan.sound_clocks:
        plan.read = Read.INDEX
    if profile in ("swarm", "brokers") and plan.harms and stream.chance(0.3):
        plan.harms += ("copied disk",)
    _hinder(plan, tape.stream("hindered"), profile)
    plan.fleet.java_controllers = plan.java  # neither side reports doubts then
    draw_demands(plan.fleet, stream, always=profile == "demands", never=profile == "calm" or not plan.sound_clocks)
    if profile != "calm":
        draw_clocks(plan.fleet, tape.stream("clocks"), CLOSER_PPM if "rate" in plan.faults else APART_PPM)
    return plan


def _hinder(plan: ControllerPlan, stream: Stream, profile: str) -> None:
    """Draw whether brokers report masters that are of no use, and the faults that make them so."""
    if profile == "hindered":
        plan.java, plan.mixed, plan.groups, plan.brokers = False, False, 1, stream.pick((3, 3, 4, 5), 3)
        plan.harms = ("lonely", "lonely", "bad disk", "bad disk", "broker silence", "severed", "broker crash")
        plan.harm_chance = stream.pick((0.01, 0.02, 0.05), 0.02)
        if stream.chance(0.3):
            plan.faults, plan.nemesis_chance = ("pause",), 0.1
        plan.fleet = attrs.evolve(
            plan.fleet, brokers=plan.brokers, learners=0, timeout_ms=6_000, beat_ms=stream.pick((200, 400, 800), 400),
            min_in_sync=stream.pick((1, 2, 2, 2), 2))
    elif profile in ("swarm", "brokers") and plan.harms:
        plan.harms += tuple(harm for harm in ("lonely", "bad disk") if stream.chance(0.3))
    if not plan.java and (profile == "hindered" or stream.chance(0.6)):
        plan.silence_ms = stream.pick((400, 800, 1_600), 800)


def _fleet(plan: ControllerPlan, stream: Stream) -> BrokerPlan:
    fleet = BrokerPlan(
        brokers=plan.brokers, duration_ms=plan.duration_ms, unclean=plan.settings.unclean, close_seen=plan.close_seen,
        late_close_ms=plan.late_close_ms, producers=stream.between(1, 2, 1), op_ns=40 * MS)
    fleet.all_ack = not stream.chance(0.3)
    fleet.sync_flush = stream.chance(0.5)
    fleet.min_in_sync = stream.pick((1, 1, 2, 2, 3), 1)
    fleet.in_sync_replicas = 1 if fleet.all_ack else stream.pick((1, 1, 2), 1)
    fleet.timeout_ms = stream.pick((1_500, 3_000, 6_000), 3_000)
    fleet.beat_ms = fleet.timeout_ms // stream.pick((3, 5, 10), 3)
    fleet.lease_ms = int(fleet.timeout_ms * 0.8) if stream.chance(0.5) and not plan.java else 0
    fleet.poll_ms = stream.pick((1_000, 2_000, 5_000), 2_000)
    fleet.put_chance = stream.between(1, 10, 5) / 10
    fleet.learners = stream.pick((0, 0, 0, 1), 0) if plan.brokers > 1 and not plan.java else 0
    fleet.priorities = stream.chance(0.3)
    fleet.pieces = stream.chance(0.2)
    fleet.sync_ms = stream.pick((0, 0, 5, 60), 0)
    fleet.harms = ("power cut",) if stream.chance(0.4) else ()
    if plan.waits_for(fleet) and stream.chance(0.8):
        plan.faults = tuple(fault for fault in plan.faults if fault not in WILD_CLOCKS)
        fleet.all_ack = False
    fleet.wait_master_lease = plan.waits_for(fleet) and plan.sound_clocks
    return fleet


def _harm(plan: ControllerPlan, stream: Stream, profile: str) -> None:
    harms = tuple(harm for harm in BROKER_FAULTS if harm not in LATER and stream.chance(0.5))
    if plan.waits_for(plan.fleet) and "reset" not in harms:
        harms += ("reset",)
    strength = stream.between(1, 10, 4) / 100
    shape = LinkProfile(
        latency_ns=100_000 * stream.between(1, 40, 5), loss=stream.pick((0.0, 0.0, 0.02, 0.2), 0.0),
        duplicate=stream.pick((0.0, 0.0, 0.1), 0.0), reorder=stream.pick((0.0, 0.0, 0.1), 0.0),
        delay=stream.pick((0.0, 0.0, 0.05, 0.3), 0.0), delay_ns=MS * stream.pick((5, 50, 800), 5))
    if profile in ("swarm", "brokers"):
        plan.harms, plan.outer = harms, shape
        plan.harm_chance = strength if harms else 0.0
        plan.fleet.site_chance = 0.003 if "site" in harms else 0.0
    if profile == "successors":
        plan.harms, plan.harm_chance, plan.close_seen = ("successor",), 0.01, 1.0
        plan.settings = attrs.evolve(plan.settings, unclean=False, wait_master_lease=False)
        plan.groups, plan.brokers, plan.lost_notifications = 1, max(plan.brokers, 3), 0.0
        plan.fleet = attrs.evolve(
            plan.fleet, brokers=plan.brokers, all_ack=True, in_sync_replicas=1, sync_flush=True, learners=0, lease_ms=0,
            put_chance=0.9, unclean=False, wait_master_lease=False, close_seen=1.0,
            min_in_sync=2 if plan.fleet.min_in_sync == 2 else 1)
    elif profile == "leases":
        plan.harms, plan.harm_chance, plan.close_seen, plan.java = ("reset", "reset", "severed"), 0.1, 1.0, False
        plan.settings = attrs.evolve(plan.settings, wait_master_lease=True)
        plan.brokers = max(plan.brokers, 3)
        plan.fleet = attrs.evolve(
            plan.fleet, brokers=plan.brokers, all_ack=False, lease_ms=int(plan.fleet.timeout_ms * 0.8), put_chance=0.9,
            wait_master_lease=True, close_seen=1.0)
    elif profile == "copies":
        plan.harms = ("copied disk", "broker crash", "broker silence", "reset", "designate", "gate")
        plan.harm_chance = 0.08
    elif profile == "demands":
        plan.harms, plan.harm_chance, plan.java = ("broker crash", "severed", "reset", "designate"), 0.05, False
    elif profile == "deposed":
        plan.harms, plan.harm_chance, plan.read = ("broker crash", "designate", "reset"), 0.1, Read.INDEX
        plan.size = max(plan.size, 3)
