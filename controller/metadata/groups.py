"""The state that is kept of a broker group: frozen values, so that snapshots and readers hold one version without
copying.

A change makes a new ``BrokerGroup``; nobody changes one in place, its mappings included.
This module decides nothing and knows no commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import attrs

FIRST_BROKER_ID: Final = 1


class GroupKey(NamedTuple):
    """The name of a broker group. Java keys by ``name`` alone, so there two clusters with one broker name collide."""

    cluster: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


@attrs.frozen
class Replica:
    """One member of a group: a broker that holds a copy."""

    address: str
    """``host:port`` at which it serves."""
    check_code: str | None
    """Check code with which it claimed its id; None when imported from a place that does not tell it."""
    learner: bool = False
    """It said at registration that it must never be elected."""
    life: int | None = None
    """Number of its process's life, as it registered; None of one that told none, such as every Java broker."""

    def is_process(self, address: str, life: int | None) -> bool:
        """Return whether a process with this address and life is the one on record.

        Without a life on record the address decides.
        """
        return address == self.address if self.life is None else life == self.life


@attrs.frozen
class BrokerGroup:
    """One broker group. Epochs and ``next_broker_id`` never fall, not even when the group is removed and comes back.

    Without replicas it is *removed*: only what must not start again from zero is left of it.
    """

    replicas: Mapping[int, Replica] = attrs.field(factory=dict)
    """Replicas by broker id, in the order of ids. An id never changes; a role does (elsewhere a master has id 0)."""
    next_broker_id: int = FIRST_BROKER_ID
    """Larger than every id that was ever bound here."""
    sync_state_set: frozenset[int] = frozenset()
    """The members that were in sync, as its master last had it accepted. Empty: no one was ever master here."""
    sync_state_set_epoch: int = 0
    master: int | None = None
    master_epoch: int = 0
    eligible: frozenset[int] = frozenset()
    """Beside the SyncStateSet, who may still be elected without loss: see ``controller.metadata.eligible``."""
    vacant: bool = False
    """Another process has registered as the master since that was elected: nobody leads this epoch any more."""

    @property
    def removed(self) -> bool:
        return not self.replicas

    @property
    def leader(self) -> int | None:
        """The master, where the process on record under its id is the one that was elected."""
        return None if self.vacant else self.master

    @property
    def electable(self) -> frozenset[int]:
        """The members that a clean election may choose from."""
        return self.sync_state_set | self.eligible

    def address_of(self, broker_id: int | None) -> str | None:
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    def life_of(self, broker_id: int | None) -> int | None:
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.life

    def addresses(self) -> dict[int, str]:
        """Every member's address by its id."""
        return {broker_id: replica.address for broker_id, replica in self.replicas.items()}
