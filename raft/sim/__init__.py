"""Deterministic simulation: a whole cluster on virtual time, from one seed. See ``Cluster`` and ``explore``.

    from raft.sim import Cluster, explore

The modules below (``tape``, ``world``, ``links``, ``disk``) are public, to build other simulations with.
"""

from raft.invariants import InvariantViolation
from raft.sim.cluster import Cluster
from raft.sim.explored import Explored
from raft.sim.exploring import Counterexample, ExplorationReport, NothingExplored, explore
from raft.sim.failures import NotRepeatable
from raft.sim.links import LinkProfile
from raft.sim.operations import Choices, Operation

__all__ = [
           "Choices",
           "Cluster",
           "Counterexample",
           "ExplorationReport",
           "Explored",
           "InvariantViolation",
           "LinkProfile",
           "NotRepeatable",
           "NothingExplored",
           "Operation",
           "explore",
]
