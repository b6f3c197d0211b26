"""Commands about broker groups, asked of the active controller.

Brokers themselves are not asked; a cluster's groups are those that the name server has.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from controller.admin.asking import Admin, split_addresses
from controller.admin.command import (
    AdminError,
    Said,
    broker_or_cluster,
    command,
    controller_argument,
    interval,
    or_null,
)
from controller.imported import write_groups
from controller.metadata.commands import ImportedGroup
from controller.metadata.groups import GroupKey, Replica
from controller.own_codes import OwnCode
from remoting.bodies.controller import (
    BrokerNames,
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
)
from remoting.codes import RequestCode
from remoting.headers.controller import (
    CleanBrokerDataRequest,
    ElectMasterRequest,
    ElectMasterResponse,
    GetNextBrokerIdRequest,
    GetNextBrokerIdResponse,
    GetSyncStateDataRequest,
)


def _sync_arguments(parser: argparse.ArgumentParser) -> None:
    controller_argument(parser)
    broker_or_cluster(parser)
    interval(parser)


@command("getSyncStateSet", _sync_arguments)
async def sync_state_set(admin: Admin, options: argparse.Namespace) -> Said:
    """who is master of a broker group, and which replicas are in sync with it"""
    active = await admin.active(split_addresses(options.controllerAddress))
    names = [options.brokerName] if options.brokerName else await admin.groups_of(options.clusterName)
    found = await _replicas(admin, active, names, options.clusterName) if names else {}
    lines = [line for name, group in found.items() for line in _group_lines(name, group)]
    return Said(lines, {name: _group_data(group) for name, group in found.items()})


async def _replicas(
    admin: Admin, active: str, names: Sequence[str], cluster: str | None
) -> dict[str, ReplicasInfo]:
    """Return replicas by group name. Java's controllers ignore ``cluster``: their group names are unique."""
    answer = await admin.ask(
        active, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, GetSyncStateDataRequest(cluster),
        BrokerNames(list(names)).to_json())
    return BrokerReplicasInfo.from_json(answer.body).replicas_info_table


def _group_lines(name: str, group: ReplicasInfo) -> list[str]:
    def shown(kind: str, replica: ReplicaIdentity) -> list[str]:
        alive = "true" if replica.alive else "false"
        return ["", f"{kind}:\tReplicaIdentity{{brokerName='{replica.broker_name}', brokerId={replica.broker_id}, "
                    f"brokerAddress='{replica.broker_address}', alive={alive}}}"]

    lines = [
        "", f"#brokerName\t{name}", f"#MasterBrokerId\t{or_null(group.master_broker_id)}",
        f"#MasterAddr\t{or_null(group.master_address)}", f"#MasterEpoch\t{group.master_epoch}",
        f"#SyncStateSetEpoch\t{group.sync_state_set_epoch}", f"#SyncStateSetNums\t{len(group.in_sync_replicas)}"]
    for replica in group.in_sync_replicas:
        lines += shown("InSyncReplica", replica)
    for replica in group.not_in_sync_replicas:
        lines += shown("NotInSyncReplica", replica)
    return lines


def _group_data(group: ReplicasInfo) -> dict[str, Any]:
    def plain(replica: ReplicaIdentity) -> dict[str, Any]:
        return {"brokerId": replica.broker_id, "brokerAddress": replica.broker_address, "alive": replica.alive}

    return {
        "masterBrokerId": group.master_broker_id, "masterAddress": group.master_address,
        "masterEpoch": group.master_epoch, "syncStateSetEpoch": group.sync_state_set_epoch,
        "inSyncReplicas": [plain(replica) for replica in group.in_sync_replicas],
        "notInSyncReplicas": [plain(replica) for replica in group.not_in_sync_replicas]}


def _elect_arguments(parser: argparse.ArgumentParser) -> None:
    controller_argument(parser)
    parser.add_argument("-b", "--brokerId", required=True, type=int, metavar="ID", help="who shall be master")
    parser.add_argument("-bn", "--brokerName", required=True, metavar="NAME", help="of which broker group")
    parser.add_argument("-c", "--clusterName", required=True, metavar="NAME", help="in which cluster")


@command("electMaster", _elect_arguments)
async def elect_master(admin: Admin, options: argparse.Namespace) -> Said:
    """make one living broker in sync the master of its group"""
    active = await admin.active(split_addresses(options.controllerAddress))
    answer = await admin.ask(active, RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequest(
        options.clusterName, options.brokerName, options.brokerId, designate_elect=True))
    header = ElectMasterResponse.from_ext(answer.ext)
    members = ElectMasterResponseBody.from_json(answer.body).broker_member_group
    addresses = members.broker_addrs if members is not None else {}
    return Said(
        ["", f"#ClusterName\t{options.clusterName}", f"#BrokerName\t{options.brokerName}",
         f"#BrokerMasterAddr\t{header.master_address}", f"#MasterEpoch\t{header.master_epoch}",
         f"#SyncStateSetEpoch\t{header.sync_state_set_epoch}",
         *(f"\t#Broker\t{broker_id}\t{address}" for broker_id, address in sorted(addresses.items()))],
        {"clusterName": options.clusterName, "brokerName": options.brokerName,
         "masterBrokerId": header.master_broker_id, "masterAddress": header.master_address,
         "masterEpoch": header.master_epoch, "syncStateSetEpoch": header.sync_state_set_epoch,
         "brokers": {str(broker_id): address for broker_id, address in sorted(addresses.items())}})


def _clean_arguments(parser: argparse.ArgumentParser) -> None:
    controller_argument(parser)
    parser.add_argument("-bn", "--brokerName", required=True, metavar="NAME", help="of which broker group")
    parser.add_argument("-b", "--brokerControllerIdsToClean", metavar="1;2;3",
                        help="which brokers to forget; default: the whole group")
    parser.add_argument("-c", "--clusterName", metavar="NAME", help="in which cluster; needed without -l")
    parser.add_argument("-l", "--cleanLivingBroker", action="store_true", help="forget them although they live")


@command("cleanBrokerMetadata", _clean_arguments)
async def clean(admin: Admin, options: argparse.Namespace) -> Said:
    """make the controllers forget brokers that will not come back

    An id that was cleaned is never given to another broker.
    """
    if not options.cleanLivingBroker and not options.clusterName:
        raise AdminError("-c is needed without -l: whether the brokers live is known by their cluster")
    for item in (options.brokerControllerIdsToClean or "").split(";"):
        if item.strip() and not item.strip().isdecimal():
            raise AdminError(f"-b: {item!r} is no broker id; 1;2;3 is a list of them")
    active = await admin.active(split_addresses(options.controllerAddress))
    await admin.ask(active, RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataRequest(
        options.brokerName, options.clusterName, options.brokerControllerIdsToClean, options.cleanLivingBroker))
    which = options.brokerControllerIdsToClean or "all"
    return Said([f"clear broker {options.brokerName} metadata from controller success!"],
                {"brokerName": options.brokerName, "cleaned": which})


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    controller_argument(parser, "controllers that the groups are on now, Java's or ours",
                        flags=("-f", "--from"), dest="source")
    controller_argument(parser, "our controllers, which are to have them")
    broker_or_cluster(parser)
    parser.add_argument("--cluster-of", dest="cluster", metavar="NAME",
                        help="with -b: the cluster of that group; default DefaultCluster")
    parser.add_argument("--dry-run", action="store_true", help="show what would be imported")


@command("importControllerMetaData", _import_arguments)
async def import_metadata(admin: Admin, options: argparse.Namespace) -> Said:
    """move broker groups from a Java controller here, with their ids and epochs

    Reads the groups from the old controllers and writes them to the new ones in one step, all or none; it may be
    repeated. Then point the brokers' controllerAddr at the new controllers. See the how-to on moving a fleet.
    """
    source = await admin.active(split_addresses(options.source))
    cluster = options.clusterName or options.cluster or "DefaultCluster"
    names = [options.brokerName] if options.brokerName else await admin.groups_of(cluster)
    found = await _replicas(admin, source, names, cluster) if names else {}
    missing = sorted(set(names) - found.keys())
    if missing or not found:
        raise AdminError(f"{source} has no broker group {', '.join(missing) or 'in ' + cluster}")
    groups = [await _imported(admin, source, GroupKey(cluster, name), group) for name, group in found.items()]
    if not options.dry_run:
        target = await admin.active(split_addresses(options.controllerAddress))
        await admin.ask(target, OwnCode.IMPORT_METADATA, None, write_groups(groups))
    done = "would be imported" if options.dry_run else "imported"
    return Said(
        [f"{group.key} {done}: {len(group.replicas)} brokers, next id {group.next_broker_id}, master {group.master}, "
         f"epoch {group.master_epoch}" for group in groups],
        [{"cluster": group.key.cluster, "brokerName": group.key.name, "brokers": sorted(group.replicas),
          "masterEpoch": group.master_epoch} for group in groups])


async def _imported(admin: Admin, source: str, key: GroupKey, group: ReplicasInfo) -> ImportedGroup:
    answer = await admin.ask(
        source, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequest(key.cluster, key.name))
    following = GetNextBrokerIdResponse.from_ext(answer.ext).next_broker_id or 1
    replicas = {
        replica.broker_id: Replica(replica.broker_address or "", None)
        for replica in (*group.in_sync_replicas, *group.not_in_sync_replicas) if replica.broker_id is not None}
    in_sync = frozenset(replica.broker_id for replica in group.in_sync_replicas if replica.broker_id is not None)
    # Java's clean does not touch the master field: a forgotten master is still named there.
    master = group.master_broker_id if group.master_broker_id in in_sync else None
    return ImportedGroup(
        key=key, replicas=dict(sorted(replicas.items())),
        next_broker_id=max(following, max(replicas, default=0) + 1),  # Java's counter may name an id in use
        sync_state_set=in_sync,
        sync_state_set_epoch=group.sync_state_set_epoch, master=master,
        master_epoch=group.master_epoch)
