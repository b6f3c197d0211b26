"""Deterministic simulation: a whole cluster on virtual time, from one seed. See ``Cluster``.

    from raft.sim import Cluster

Everything beneath is public for those who build further (``tape``, ``world``, ``links``, ``disk``).
"""

from raft.invariants import InvariantViolation
from raft.sim.cluster import Cluster
from raft.sim.links import LinkProfile

__all__ = ["Cluster", "InvariantViolation", "LinkProfile"]
