"""Draws what one seed of groups without controllers is about.

The boring values are a calm master with one slave, three name servers, and another group whose master takes what
escapes.
"""

from __future__ import annotations

from typing import Final

import attrs

from harness.simulation.brokers.plan import BrokerPlan
from raft.config import MS
from raft.sim.links import LinkProfile
from raft.sim.tape import Stream, Tape
from raft.sim.world import MILLION

TIMEOUT_MS: Final = 2_500
"""``brokerNotActiveTimeoutMillis`` of all its members."""
RIGHT_MS: Final = 900
"""``actingRightMs`` of all its members."""
PERIOD_MS: Final = 300
"""Interval of heartbeats, and of questions about living members."""
GROUPS: Final = ("a", "z")
"""Names of broker groups: the one that is looked at, and one whose master takes what escapes."""
DRIFT_PPM: Final = 20_000
"""Clocks run up to so much too slowly or too fast."""
ACTING_HARMS: Final = (
    "kill", "power cut", "away", "pause", "cut", "apart", "one way apart", "lonely", "server kill", "server pause",
    "closed", "both", "split", "split", "relieved", "swapped", "swapped",
)
"""``away``: the master is killed and stays away for longer than the timeout; ``apart``: a member from name servers;
``closed``: a connection of a member to a name server; ``both``: the master and the slave that acts for it;
``split``: the master reaches some name servers, its slaves the others; ``relieved``: the slaves are cut off from all as
their master comes back; ``swapped``: first the master is cut off from all name servers, and as it registers again its
slaves are."""


@attrs.define(kw_only=True)
class ActingPlan(BrokerPlan):
    """The conditions of one seed."""

    servers: int = 3
    slaves: int = 1
    beside: int = 1
    """Members of the other group."""
    beside_harmed: bool = False
    """Faults befall the other group, too."""
    strict: bool = False
    """``lockInStrictMode`` of groups with more than two members."""
    stays_away: bool = False
    """True: when all else is healed the master is away, and comes back later."""
    act_ns: int = 60 * MS
    notices: bool = True
    """``notifyMinBrokerIdChanged`` of all name servers."""
    server_rates_ppm: tuple[int, ...] = ()

    @property
    def drift_ppm(self) -> int:
        """Difference between the fastest and the slowest clock, in parts per million."""
        rates = (*self.rates_ppm, *self.server_rates_ppm, MILLION)
        return max(rates) - min(rates)


ACTING_PROFILES: Final = ("acting", "locks")
"""``locks``: always by majority, which takes long, as a broker that starts grants nothing for a minute."""


def draw_acting(tape: Tape, profile: str = "acting") -> ActingPlan:
    """Draws the conditions of one seed."""
    stream = tape.stream("acting")
    plan = ActingPlan(all_ack=False, min_in_sync=1, op_ns=150 * MS, producers=1, features=())
    plan.servers = stream.pick((1, 2, 3, 3, 4), 3)
    plan.slaves = stream.pick((1, 1, 2, 2), 1)
    plan.strict = stream.chance(0.05) or profile == "locks"
    plan.duration_ms = 1_000 * (stream.between(75, 120, 75) if plan.strict else stream.between(12, 50, 20))
    if plan.strict:
        plan.slaves = 2
    plan.sync_flush = stream.chance(0.4)
    plan.in_sync_replicas = stream.pick((1, 2), 1)
    plan.beside = stream.pick((1, 1, 2), 1)
    plan.beside_harmed = stream.chance(0.3)
    plan.stays_away = stream.chance(0.5)
    plan.notices = not stream.chance(0.2)
    plan.act_ns = MS * (150 if plan.strict else stream.pick((30, 60, 150), 60))
    plan.body_max = stream.pick((40, 200), 40)
    plan.pieces = stream.chance(0.2)
    plan.sync_ms = stream.pick((0, 0, 5, 60), 0)
    plan.busy = stream.pick((0.0, 0.0, 0.1), 0.0)
    plan.save_ms = stream.pick((100, 1_000, 5_000), 1_000)
    plan.copy_ms = stream.pick((300, 1_000), 1_000)
    plan.close_seen = stream.pick((0.0, 0.5, 1.0), 0.5)
    _harm(plan, stream)
    if stream.chance(0.3):
        plan.rates_ppm = tuple(_rate(stream) for _ in range(1 + plan.slaves + plan.beside))
        plan.server_rates_ppm = tuple(_rate(stream) for _ in range(plan.servers))
    return plan


def _rate(stream: Stream) -> int:
    return stream.pick((MILLION - DRIFT_PPM, MILLION, MILLION + DRIFT_PPM), MILLION)


def _harm(plan: ActingPlan, stream: Stream) -> None:
    plan.harms = tuple(harm for harm in ACTING_HARMS if stream.chance(0.5))
    plan.harm_chance = stream.between(1, 10, 4) / (20 if plan.strict else 100)
    plan.harm_ns = (3_000 if plan.strict else 150) * MS
    plan.site_chance = stream.pick((0.0, 0.0, 0.0003), 0.0)
    plan.links = LinkProfile(
        latency_ns=100_000 * stream.between(1, 40, 5), loss=stream.pick((0.0, 0.0, 0.005), 0.0),
        delay=stream.pick((0.0, 0.0, 0.05), 0.0), delay_ns=MS * stream.pick((5, 50, 400), 5))
