"""Answers on the wire: outcomes of commands, reads of the metadata, and notifications. Pure.

Java brokers need every one of these shapes: 1002 with the SyncStateSet in its body whether the master is new or stays,
1003, 1004 and 1001 with a SyncStateSet always, absent numbers left out rather than null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.outcomes import (
    Altered,
    BrokerIdApplied,
    BrokerIdRefused,
    Elected,
    MasterStillExists,
    Outcome,
    Registered,
    UnknownLife,
)
from controller.yielding import NoSuccessor
from remoting.bodies.controller import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.header import Header
from remoting.headers.controller import (
    AlterSyncStateSetResponse,
    ApplyBrokerIdResponse,
    BrokerHeartbeatResponse,
    ElectMasterResponse,
    GetNextBrokerIdResponse,
    GetReplicaInfoResponse,
    NotifyBrokerRoleChangedRequest,
    RegisterBrokerToControllerResponse,
)

EMPTY: dict[int, Callable[[], Header]] = {RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: AlterSyncStateSetResponse}
"""Headers that an unsuccessful answer carries too, because Java's has primitive fields."""


def answer(to: Command, outcome: Outcome) -> Command:
    """Return the response for the outcome of a command."""
    code, remark = outcome.code, outcome.remark or None
    match outcome:
        case Altered():
            body = SyncStateSet(outcome.sync_state_set, outcome.sync_state_set_epoch)
            header: Header = AlterSyncStateSetResponse(outcome.sync_state_set_epoch)
            return response(to, code, header, body.to_json(), remark)
        case Elected() | MasterStillExists():
            header = ElectMasterResponse(
                outcome.master, outcome.address, outcome.master_epoch, outcome.sync_state_set_epoch, outcome.life)
            members = BrokerMemberGroup(outcome.key.cluster, outcome.key.name, dict(outcome.members))
            elected = ElectMasterResponseBody(outcome.sync_state_set, members)
            return response(to, code, header, elected.to_json(), remark)
        case NoSuccessor(wait=True):
            return response(to, code, ElectMasterResponse(yield_wait=True), b"", remark)
        case Registered():
            key, master = outcome.key, outcome.master
            header = RegisterBrokerToControllerResponse(
                key.cluster, key.name, master, outcome.address, outcome.master_epoch,
                outcome.sync_state_set_epoch if master is not None else None, outcome.life)
            body = SyncStateSet(outcome.sync_state_set, outcome.sync_state_set_epoch)
            return response(to, code, header, body.to_json(), remark)
        case UnknownLife(life=life):
            return response(to, code, RegisterBrokerToControllerResponse(unknown_life=life), b"", remark)
        case BrokerIdApplied() | BrokerIdRefused():
            key = outcome.key
            refused = isinstance(outcome, BrokerIdRefused)
            header = ApplyBrokerIdResponse(key.cluster, key.name, outcome.next_broker_id if refused else None)
            return response(to, code, header, b"", remark)
    empty = EMPTY.get(to.code)
    return response(to, code, empty() if empty is not None else None, b"", remark)


def heartbeat(to: Command, group: BrokerGroup | None, renewed: bool, in_doubt: bool, life: int | None) -> Command:
    """904. A lease is one mastership's: a master that was replaced, and elected again, may not have heard of either."""
    assert group is not None or not renewed, "a master's group is known"
    epoch = group.master_epoch if group is not None and renewed else None
    header = BrokerHeartbeatResponse(renewed, in_doubt or None, life, epoch)
    return response(to, ResponseCode.SUCCESS, header, remark="Heart beat success")


def replica_info(to: Command, group: BrokerGroup | None, key: GroupKey) -> Command:
    """1004, whether the master lives or not."""
    if group is None:
        return response(to, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
                        remark=f"Broker metadata is not existed: no broker group {key} is registered")
    leader = group.leader
    header = GetReplicaInfoResponse(leader, group.address_of(leader), group.master_epoch, group.life_of(leader))
    body = SyncStateSet(group.sync_state_set, group.sync_state_set_epoch)
    return response(to, ResponseCode.SUCCESS, header, body.to_json())


def next_broker_id(to: Command, key: GroupKey, broker_id: int) -> Command:
    """Answers 1012: the id to apply for next."""
    return response(to, ResponseCode.SUCCESS, GetNextBrokerIdResponse(key.cluster, key.name, broker_id))


def sync_state_data(
    to: Command, groups: Iterable[tuple[GroupKey, BrokerGroup]], alive: Callable[[GroupKey, int], bool]
) -> Command:
    """1006: groups that exist, by broker name."""
    table = {}
    for key, group in groups:
        replicas = [
            (broker_id in group.sync_state_set,
             ReplicaIdentity(key.name, broker_id, replica.address, alive(key, broker_id)))
            for broker_id, replica in group.replicas.items()
        ]
        table[key.name] = ReplicasInfo(
            group.leader, group.address_of(group.leader), group.master_epoch, group.sync_state_set_epoch,
            [replica for in_sync, replica in replicas if in_sync],
            [replica for in_sync, replica in replicas if not in_sync])
    return response(to, ResponseCode.SUCCESS, None, BrokerReplicasInfo(table).to_json())


def role_changed(change: Elected) -> Command:
    """1008, two-way so that it can be acknowledged."""
    header = NotifyBrokerRoleChangedRequest(
        change.address, change.master_epoch, change.sync_state_set_epoch, change.master, change.life)
    body = SyncStateSet(change.sync_state_set, change.sync_state_set_epoch)
    return request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body.to_json())
