"""What is asked about a group (1004, 1006), as values. Knows groups; who is alive is told by whoever asks."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from controller.metadata.groups import BrokerGroup, GroupKey


@attrs.frozen
class ReplicaInfo:
    """1004: the master, alive or not, and the SyncStateSet."""

    master: int | None
    address: str | None
    """The master's."""
    master_epoch: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


@attrs.frozen
class Member:
    """``ReplicaIdentity`` in Java's answer."""

    broker_id: int
    address: str
    alive: bool


@attrs.frozen
class SyncStateData:
    """1006: every member of a group on its side, in the order of ids."""

    key: GroupKey
    info: ReplicaInfo
    in_sync: tuple[Member, ...]
    not_in_sync: tuple[Member, ...]


def replica_info(group: BrokerGroup) -> ReplicaInfo:
    return ReplicaInfo(
        group.master, group.address_of(group.master), group.master_epoch, group.sync_state_set,
        group.sync_state_set_epoch)


def sync_state_data(key: GroupKey, group: BrokerGroup, alive: Collection[int]) -> SyncStateData:
    """``alive``: ids of the group's brokers that whoever asks takes to be alive."""
    members = [Member(broker_id, r.address, broker_id in alive) for broker_id, r in group.replicas.items()]
    return SyncStateData(
        key, replica_info(group),
        tuple(m for m in members if m.broker_id in group.sync_state_set),
        tuple(m for m in members if m.broker_id not in group.sync_state_set))
