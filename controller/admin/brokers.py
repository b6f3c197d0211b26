"""Commands about brokers and clusters, found by the name server and asked one by one.

Knows the columns of the original's output; controllers are not asked.
"""

from __future__ import annotations

import argparse
from typing import Any

from controller.admin.asking import Admin
from controller.admin.command import (
    AdminError,
    Said,
    broker_address_or_cluster,
    broker_or_cluster,
    command,
    interval,
)
from controller.admin.finding import asked_brokers, first_number, local_time
from remoting import properties
from remoting.bodies.broker import HAClientRuntimeInfo, HARuntimeInfo
from remoting.bodies.controller import END_OFFSET_OPEN, EpochEntryCache
from remoting.bodies.namesrv import KVTable
from remoting.codes import RequestCode
from remoting.errors import RemotingError
from remoting.headers.broker import ResetMasterFlushOffsetRequest


def _epoch_arguments(parser: argparse.ArgumentParser) -> None:
    broker_or_cluster(parser)
    interval(parser)


@command("getBrokerEpoch", _epoch_arguments, by_route=True)
async def broker_epoch(admin: Admin, options: argparse.Namespace) -> Said:
    """the master epochs that each replica of a broker group has in its log, with their offsets"""
    clusters = await admin.clusters()
    names = [options.brokerName] if options.brokerName else await admin.groups_of(options.clusterName)
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    for name in names:
        group = clusters.broker_addr_table.get(name)
        if group is None:
            raise AdminError(f"the name server knows no broker group {name}")
        for _, address in sorted(group.broker_addrs.items()):
            answer = await admin.ask(address, RequestCode.GET_BROKER_EPOCH_CACHE)
            cache = EpochEntryCache.from_json(answer.body)
            lines += ["", f"#clusterName\t{cache.cluster_name}", f"#brokerName\t{cache.broker_name}",
                      f"#brokerAddr\t{address}", f"#brokerId\t{cache.broker_id}"]
            epochs = [(each.epoch, each.start_offset,
                       cache.max_offset if each.end_offset == END_OFFSET_OPEN else each.end_offset)
                      for each in cache.epoch_list]
            lines += [f"#Epoch: EpochEntry{{epoch={epoch}, startOffset={start}, endOffset={end}}}"
                      for epoch, start, end in epochs]
            data.append({"clusterName": cache.cluster_name, "brokerName": cache.broker_name, "brokerAddr": address,
                         "brokerId": cache.broker_id, "epochs": [
                             {"epoch": epoch, "startOffset": start, "endOffset": end}
                             for epoch, start, end in epochs]})
    return Said(lines, data)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--clusterName", metavar="NAME", help="one cluster; default all")
    parser.add_argument("-m", "--moreStats", action="store_true", help="messages of yesterday and today")
    interval(parser)


_COLUMNS = "{:<22}  {:<22}  {:<4}  {:<22} {:<16}  {:>16}  {:>30}  {:>22}  {:>11}  {:<12}  {:<8}  {:>10}"
_MORE = "{:<16}  {:<32} {:>14} {:>14} {:>14} {:>14}"


@command("clusterList", _list_arguments, by_route=True)
async def cluster_list(admin: Admin, options: argparse.Namespace) -> Said:
    """all brokers that the name server knows, with their load"""
    clusters = await admin.clusters()
    data: list[dict[str, Any]] = []
    for cluster, names in sorted(clusters.cluster_addr_table.items()):
        if options.clusterName not in (None, cluster):
            continue
        for name in sorted(names):
            group = clusters.broker_addr_table.get(name)
            for broker_id, address in sorted(group.broker_addrs.items()) if group is not None else ():
                try:
                    answer = await admin.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
                    stats = KVTable.from_json(answer.body).table
                except RemotingError as error:
                    stats = {"unreachable": str(error)}
                data.append({"cluster": cluster, "brokerName": name, "brokerId": broker_id, "address": address,
                             "stats": stats})
    if options.moreStats:
        lines = [_MORE.format("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday",
                              "#OutTotalToday").rstrip(), *map(_more_line, data)]
    else:
        lines = [_COLUMNS.format(
            "#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)",
            "#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED").rstrip(), *map(_list_line, data)]
    return Said(lines, data)


def _list_line(row: dict[str, Any]) -> str:
    stats: dict[str, str] = row["stats"]
    earliest = first_number(stats, "earliestMessageTimeStamp")
    now = first_number(stats, "bootTimestamp") + first_number(stats, "runtimeMillis")
    hours = f"{(now - earliest) / 3.6e6:.2f}" if earliest > 0 and now > earliest else "0.00"
    timer = (f"{stats.get('timerReadBehind', '0')}-{stats.get('timerOffsetBehind', '0')}"
             f"({first_number(stats, 'timerCongestNum') / 10_000:.1f}w, {first_number(stats, 'timerEnqueueTps'):.1f}, "
             f"{first_number(stats, 'timerDequeueTps'):.1f})")
    return _COLUMNS.format(
        row["cluster"], row["brokerName"], row["brokerId"], row["address"],
        stats.get("brokerVersionDesc", "UNREACHABLE" if "unreachable" in stats else "?"),
        f"{first_number(stats, 'putTps'):.2f}({stats.get('sendThreadPoolQueueSize', '0')},"
        f"{stats.get('sendThreadPoolQueueHeadWaitTimeMills', '0')}ms)",
        f"{first_number(stats, 'getTransferredTps') or first_number(stats, 'getTransferedTps'):.2f}"
        f"({stats.get('pullThreadPoolQueueSize', '0')},{stats.get('pullThreadPoolQueueHeadWaitTimeMills', '0')}ms|"
        f"{stats.get('ackThreadPoolQueueSize', '0')},{stats.get('ackThreadPoolQueueHeadWaitTimeMills', '0')}ms)",
        timer, stats.get("pageCacheLockTimeMills", "0"), hours,
        f"{first_number(stats, 'commitLogDiskRatio'):.4f}", stats.get("brokerActive", "true")).rstrip()


def _more_line(row: dict[str, Any]) -> str:
    stats: dict[str, str] = row["stats"]

    def between(later: str, earlier: str) -> int:
        return int(first_number(stats, later) - first_number(stats, earlier))

    return _MORE.format(
        row["cluster"], row["brokerName"], between("msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning"),
        between("msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning"),
        between("msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        between("msgGetTotalTodayNow", "msgGetTotalTodayMorning"))


# --- one broker, or the masters of a cluster -----------------------------------------------------------------


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser, "all brokers")


@command("brokerStatus", _status_arguments)
async def broker_status(admin: Admin, options: argparse.Namespace) -> Said:
    """what a broker says of its state: rates, offsets, disk"""
    data: dict[str, dict[str, str]] = {}
    for broker in await asked_brokers(admin, options, slaves=True):
        answer = await admin.ask(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        data[broker.address] = dict(sorted(KVTable.from_json(answer.body).table.items()))
    lines = [f"{key:<32}: {value}" if options.brokerAddr else f"{address:<24} {key:<32}: {value}"
             for address, table in data.items() for key, value in table.items()]
    return Said(lines, data[options.brokerAddr] if options.brokerAddr else data)


def _update_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    parser.add_argument("-a", "--updateAllBroker", metavar="true", help="with -c: the slaves too")
    parser.add_argument("-k", "--key", required=True, metavar="KEY", help="which key, by RocketMQ's name")
    parser.add_argument("-v", "--value", required=True, metavar="VALUE", help="its new value")


@command("updateBrokerConfig", _update_arguments)
async def update_config(admin: Admin, options: argparse.Namespace) -> Said:
    """change one key of running brokers"""
    body = properties.encode({options.key: options.value}).encode()
    brokers = await asked_brokers(admin, options, slaves=options.updateAllBroker is not None)
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, None, body)
    return Said([f"update broker config success, {broker.address}" for broker in brokers],
                {"key": options.key, "value": options.value, "brokers": [broker.address for broker in brokers]})


def _flushed_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--brokerAddr", required=True, metavar="HOST:PORT", help="which slave")
    parser.add_argument("-o", "--offset", required=True, type=int, metavar="N", help="the offset to set")


@command("resetMasterFlushOffset", _flushed_arguments)
async def reset_master_flushed(admin: Admin, options: argparse.Namespace) -> Said:
    """set what a slave says its master had flushed"""
    await admin.ask(options.brokerAddr, RequestCode.RESET_MASTER_FLUSH_OFFSET,
                    ResetMasterFlushOffsetRequest(options.offset))
    return Said([f"reset master flush offset to {options.offset} success"],
                {"brokerAddr": options.brokerAddr, "offset": options.offset})


def _ha_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    interval(parser)


_SLAVE = "{:<32}  {:<16} {:>16} {:>16} {:>16} {:>16}"


@command("haStatus", _ha_arguments)
async def ha_status(admin: Admin, options: argparse.Namespace) -> Said:
    """who replicates a broker's log, or what it replicates, and how far"""
    lines: list[str] = []
    data: dict[str, Any] = {}
    for broker in await asked_brokers(admin, options):
        info = HARuntimeInfo.from_json((await admin.ask(broker.address, RequestCode.GET_BROKER_HA_STATUS)).body)
        data[broker.address] = info.to_plain()
        lines += _master_lines(broker.address, info) if info.master else _slave_lines(info.ha_client_runtime_info)
    return Said(lines, data)


def _master_lines(address: str, info: HARuntimeInfo) -> list[str]:
    return [
        "", f"#MasterAddr\t{address}", f"#MasterCommitLogMaxOffset\t{info.master_commit_log_max_offset}",
        f"#SlaveNum\t{len(info.ha_connection_info)}", f"#InSyncSlaveNum\t{info.in_sync_slave_nums}",
        _SLAVE.format("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status",
                      "#TransferFromWhere"),
        *(_SLAVE.format(
            slave.addr or "", slave.slave_ack_offset, slave.diff, f"{slave.transferred_byte_in_second / 1024:.2f}",
            "OK" if slave.in_sync else "Fall Behind", slave.transfer_from_where) for slave in info.ha_connection_info)]


def _slave_lines(info: HAClientRuntimeInfo) -> list[str]:
    return [
        "", f"#MasterAddr\t{info.master_addr}", f"#CommitLogMaxOffset\t{info.max_offset}",
        f"#TransferSpeed(KB/s)\t{info.transferred_byte_in_second / 1024:.2f}",
        f"#LastReadTime\t{local_time(info.last_read_timestamp)}",
        f"#LastWriteTime\t{local_time(info.last_write_timestamp)}",
        f"#MasterFlushOffset\t{info.master_flush_offset}"]
