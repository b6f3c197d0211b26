"""Puts in force what an operator demands of puts while the broker runs. The shell and the simulation share it.

All of it counts at once, except a lower ``minInSyncReplicas``, which counts when the gate says so. It knows the gate,
and neither puts nor replication.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from broker.ha.acks import QuorumConfig
from broker.replicas.lease import Gate


class Demand:
    """The operator's demand. ``apply`` is told what puts need from now on, with the minimum that is in force."""

    def __init__(self, gate: Callable[[], Gate], wanted: QuorumConfig, apply: Callable[[QuorumConfig], None]) -> None:
        """``wanted`` is in force until the gate says otherwise."""
        self._gate, self._wanted, self._apply = gate, wanted, apply
        self._in_force = wanted.min_in_sync_replicas

    def change(self, wanted: QuorumConfig) -> None:
        """Put in force what the operator demands from now on."""
        self._gate().announce(wanted.min_in_sync_replicas)
        self._wanted, self._in_force = wanted, 0
        self.settle()
        assert self._in_force >= wanted.min_in_sync_replicas, "a higher minimum counts at once"

    def settle(self) -> None:
        """Look at the gate again; called now and then, before a role is taken, and when writes open."""
        in_force = self._gate().in_force
        assert in_force >= self._wanted.min_in_sync_replicas, "a gate is raised at once"
        if in_force != self._in_force:
            self._in_force = in_force
            self._apply(attrs.evolve(
                self._wanted, min_in_sync_replicas=in_force, total_replicas=max(in_force, self._wanted.total_replicas)))
