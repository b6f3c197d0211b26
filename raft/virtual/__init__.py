"""Whole programs for trio on virtual time, from one seed. See ``run_on_virtual_time`` and ``search``.

    from raft.virtual import VirtualWorld, run_on_virtual_time

It is for services of yours, with ``raft`` inside or without. The simulator of the cores alone is ``raft.sim``, whose
tape, digest and disk these are; no event loop runs there.
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
