"""Changes of a group, for metrics, traces and analysis: typed values, derived from the group before and after.

Derived and not reported, so that no decision can forget to report one and every controller sees the same. Nothing here
decides, computes state or does I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from controller.metadata.commands import AnyCommand
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.outcomes import Outcome


@attrs.frozen
class Applied:
    """One command as it was applied. ``command`` is None where the bytes were none."""

    term: int
    command: AnyCommand | None
    outcome: Outcome
    groups: tuple[tuple[GroupKey, BrokerGroup, BrokerGroup], ...]
    """(key, before, after) of each group that it is about, changed or not. Of an import: the groups that came."""


@attrs.frozen
class Change:
    """The fields that every change has."""

    term: int
    key: GroupKey

    def as_dict(self) -> dict[str, Any]:
        """Plain values, with the event's name under ``event``: one line of an NDJSON trace."""
        out: dict[str, Any] = {"event": type(self).__name__, "cluster": self.key.cluster, "broker": self.key.name}
        for field in attrs.fields(type(self)):
            if field.name != "key":
                value = getattr(self, field.name)
                out[field.name] = sorted(value) if isinstance(value, frozenset) else value
        return out


@attrs.frozen
class BrokerAdded(Change):
    broker_id: int
    address: str


@attrs.frozen
class BrokerMoved(Change):
    """It registered at another address, or became a learner or none."""

    broker_id: int
    address: str
    previous: str
    learner: bool


@attrs.frozen
class BrokerRemoved(Change):
    broker_id: int


@attrs.frozen
class MasterChanged(Change):
    """A new master epoch; ``master`` None: the master is lost and nobody could be elected, or it was cleaned."""

    master: int | None
    previous: int | None
    master_epoch: int


@attrs.frozen
class SyncStateSetChanged(Change):
    """A new SyncStateSet epoch; after an election the set may be the former one."""

    sync_state_set: frozenset[int]
    previous: frozenset[int]
    sync_state_set_epoch: int


@attrs.frozen
class EligibleChanged(Change):
    eligible: frozenset[int]


@attrs.frozen
class GroupRemoved(Change):
    pass


def changes(applied: Applied) -> Iterator[Change]:
    """Every change that a command made, in a fixed order."""
    for key, before, after in applied.groups:
        if before is not after:
            yield from _between(applied.term, key, before, after)


def _between(term: int, key: GroupKey, before: BrokerGroup, after: BrokerGroup) -> Iterator[Change]:
    for broker_id, replica in after.replicas.items():
        known = before.replicas.get(broker_id)
        if known is None:
            yield BrokerAdded(term, key, broker_id, replica.address)
        elif known != replica:
            yield BrokerMoved(term, key, broker_id, replica.address, known.address, replica.learner)
    for broker_id in before.replicas:
        if broker_id not in after.replicas:
            yield BrokerRemoved(term, key, broker_id)
    if after.master_epoch != before.master_epoch:
        yield MasterChanged(term, key, after.master, before.master, after.master_epoch)
    if after.sync_state_set_epoch != before.sync_state_set_epoch:
        yield SyncStateSetChanged(term, key, after.sync_state_set, before.sync_state_set, after.sync_state_set_epoch)
    if after.eligible != before.eligible:
        yield EligibleChanged(term, key, after.eligible)
    if after.removed and not before.removed:
        yield GroupRemoved(term, key)
