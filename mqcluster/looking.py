"""Asks a running cluster for its active controller, the master of each group, and the replicas in sync.

Asked over the wire, as any tool would; it knows addresses and answers, and no process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import trio

from controller.admin.asking import Admin
from remoting.bodies.controller import BrokerNames, BrokerReplicasInfo, ReplicasInfo
from remoting.client import Client
from remoting.codes import RequestCode
from remoting.errors import BodyError, HeaderError, RemotingError

POLL_S = 0.1


@attrs.frozen
class GroupView:
    """One broker group as the active controller has it. Brokers by address."""

    master: str | None = None
    epoch: int = 0
    in_sync: frozenset[str] = frozenset()
    alive: frozenset[str] = frozenset()
    ids: Mapping[str, int] = attrs.field(factory=dict)
    set_epoch: int = 0
    """It counts the changes of the SyncStateSet."""


@attrs.frozen
class ClusterView:
    """``active`` is the address of the active controller, None while there is none."""

    active: str | None = None
    groups: Mapping[str, GroupView] = attrs.field(factory=dict)

    def settled(self, names: Sequence[str], replicas: int) -> bool:
        """Return whether each group has a master and ``replicas`` in sync."""
        found = [self.groups.get(name) for name in names]
        return all(group is not None and group.master is not None and len(group.in_sync) >= replicas for group in found)


async def look(client: Client, controllers: Sequence[str], groups: Sequence[str]) -> ClusterView:
    """The cluster now; what cannot be found out is left empty."""
    admin = Admin(client)
    try:
        active = await admin.active(controllers)
    except (RemotingError, HeaderError):
        return ClusterView()
    try:
        answer = await admin.ask(
            active, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, BrokerNames(list(groups)).to_json())
        table = BrokerReplicasInfo.from_json(answer.body).replicas_info_table
    except (RemotingError, BodyError):
        return ClusterView(active)
    return ClusterView(active, {name: _group(found) for name, found in table.items()})


def _group(found: ReplicasInfo) -> GroupView:
    replicas = [*found.in_sync_replicas, *found.not_in_sync_replicas]
    return GroupView(
        found.master_address, found.master_epoch,
        frozenset(each.broker_address for each in found.in_sync_replicas if each.broker_address),
        frozenset(each.broker_address for each in replicas if each.alive and each.broker_address),
        {each.broker_address: each.broker_id for each in replicas
         if each.broker_address and each.broker_id is not None},
        found.sync_state_set_epoch)


async def until_settled(client: Client, controllers: Sequence[str], groups: Sequence[str], replicas: int,
                        timeout_s: float) -> ClusterView:
    """Look until every group has a master and that many in sync. Raises ``trio.TooSlowError``."""
    with trio.fail_after(timeout_s):
        while not (view := await look(client, controllers, groups)).settled(groups, replicas):
            await trio.sleep(POLL_S)
    return view
