"""A master without slaves, in place of replication: what is durable is confirmed. For benchmarks and tests of puts.

It knows the journal, and no role.
"""

from __future__ import annotations

import attrs

from broker.ha.acks import BrokerRole, Holders, Mode, Replicas
from broker.journal import Journal


@attrs.frozen
class _Itself:
    """Holds what is durable here, as puts wait for it."""

    journal: Journal

    def holds_all(self, end: int) -> bool:
        return self.journal.durable_end >= end

    def holders(self, end: int) -> int:
        return int(self.journal.durable_end >= end)

    def enough(self, least: int) -> bool:
        return True


class Alone:
    """A single master without slaves: what is durable is confirmed. ``close`` when another role begins."""

    def __init__(self, journal: Journal, role: BrokerRole = BrokerRole.ASYNC_MASTER) -> None:
        self.mode = Mode(role=role)
        self.holders: Holders = _Itself(journal)
        self._journal = journal
        self._replicas = Replicas()
        journal.grown.join("role", self._grown)
        self._grown()

    def replicas(self) -> Replicas:
        return self._replicas

    def close(self) -> None:
        self._journal.grown.leave("role", self._grown)

    def _grown(self) -> None:
        self._journal.confirm(self._journal.durable_end)
