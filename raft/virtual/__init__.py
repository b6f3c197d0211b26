"""Runs whole programs for trio on virtual time, from one seed. See ``run_on_virtual_time`` and ``search``.

    from raft.virtual import VirtualWorld, run_on_virtual_time

For your own services, with or without ``raft`` inside. ``raft.sim`` simulates the cores alone, without an event loop;
tape, digest and disk come from there.
"""

from raft.sim.exploring import Counterexample
from raft.sim.failures import NotRepeatable
from raft.virtual.hosts import SMALL, LeakedTasks, VirtualHost, VirtualWorld
from raft.virtual.nemesis import torture
from raft.virtual.running import StandsStill, VirtualRun, run_on_virtual_time
from raft.virtual.scheduling import NOT_REPLAYABLE
from raft.virtual.searching import SearchReport, search
from raft.virtual.wires import Latency

__all__ = [
    "NOT_REPLAYABLE",
    "SMALL",
    "Counterexample",
    "Latency",
    "LeakedTasks",
    "NotRepeatable",
    "SearchReport",
    "StandsStill",
    "VirtualHost",
    "VirtualRun",
    "VirtualWorld",
    "run_on_virtual_time",
    "search",
    "torture",
]
