"""Commands that write what a cluster has into files: topics and groups, configurations, rates.

Source: the commands in ``export`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from controller.admin.asking import Admin
from controller.admin.clients import members_of
from controller.admin.command import AdminError, Said, command, text
from controller.admin.consumers import RETRY_PREFIX
from controller.admin.finding import MASTER_ID, Found, first_number, of_cluster, replicas
from controller.admin.topiclists import DEAD_PREFIX, summed
from remoting.bodies.namesrv import KVTable, TopicList
from remoting.codes import VERSION, RequestCode, version_name
from remoting.errors import BodyError, RemotingError
from remoting.fastjson import loads

FOLDER: Final = "/tmp/rocketmq/export"
KEPT_KEYS: Final = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup")
"""Keys of a broker's configuration that are exported."""
SYSTEM_GROUPS: Final = frozenset((
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS", "DEFAULT_CONSUMER"))
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
PERM_MOST: Final = 7


def _folder_argument(parser: argparse.ArgumentParser, name: str) -> None:
    text(parser, "-f --filePath", f"the folder that gets {name}; default {FOLDER}", metavar="FOLDER", default=FOLDER)


def _write(folder: str, name: str, data: Any) -> Path:
    """The file that has it now. Raises ``AdminError``."""
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent="\t", sort_keys=True, ensure_ascii=False) + "\n")
    except OSError as error:
        raise AdminError(f"{path} cannot be written: {error.strerror}") from None
    return path


# --- topics and groups ---------------------------------------------------------------------------------------


def _metadata_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("-c", "--clusterName", metavar="NAME", help="of the masters of a cluster, queues summed")
    which.add_argument("-b", "--brokerAddr", metavar="HOST:PORT", help="of one broker; with -t or -g")
    _folder_argument(parser, "topic.json, subscriptionGroup.json or metadata.json")
    parser.add_argument("-t", "--topic", action="store_true", help="topics alone")
    parser.add_argument("-g", "--subscriptionGroup", action="store_true", help="consumer groups alone")
    parser.add_argument("-s", "--specialTopic", action="store_true", help="topics of redelivery and dead letters too")


_COUNTS: Final = ("perm", "writeQueueNums", "readQueueNums", "retryQueueNums")
"""Fields of a topic or group that are numbers here."""


async def _table(admin: Admin, address: str, code: int, name: str) -> dict[str, Any]:
    """The answer of 21 or 201, whose ``name`` is a table."""
    found = loads((await admin.ask(address, code)).body)
    if not isinstance(found, dict) or not isinstance(table := found.get(name), dict):
        raise BodyError(f"{address} answered without {name}")
    for each, fields in table.items():
        if not isinstance(fields, dict) or not all(isinstance(fields.get(key, 0), int) for key in _COUNTS):
            raise BodyError(f"{address} answered with a {name} in which {each} is damaged")
    return found


async def topics_at(admin: Admin, address: str, *, special: bool = False) -> dict[str, Any]:
    """The answer of 21, without the broker's own topics."""
    found = await _table(admin, address, RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable")
    answer = await admin.ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    system = set(TopicList.from_json(answer.body).topic_list)
    found["topicConfigTable"] = {
        name: topic for name, topic in found["topicConfigTable"].items()
        if name not in system and not name.startswith("rmq_sys_") and 0 <= topic.get("perm", 0) <= PERM_MOST
        and (special or not name.startswith((RETRY_PREFIX, DEAD_PREFIX)))}
    return found


async def groups_at(admin: Admin, address: str) -> dict[str, Any]:
    """The answer of 201, without RocketMQ's own groups."""
    found = await _table(admin, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable")
    found["subscriptionGroupTable"] = {
        name: group for name, group in found["subscriptionGroupTable"].items()
        if name not in SYSTEM_GROUPS and not name.startswith(SYSTEM_GROUP_PREFIX)}
    return found


@command("exportMetadata", _metadata_arguments)
async def export_metadata(admin: Admin, options: argparse.Namespace) -> Said:
    """write topics and consumer groups into a file"""
    if options.brokerAddr:
        if not (options.topic or options.subscriptionGroup):
            raise AdminError("-b goes with -t or -g")
        data = (await topics_at(admin, options.brokerAddr, special=options.specialTopic) if options.topic
                else await groups_at(admin, options.brokerAddr))
    else:
        topics: dict[str, Any] = {}
        groups: dict[str, Any] = {}
        for broker in await of_cluster(admin, options.clusterName):
            found = await topics_at(admin, broker.address, special=options.specialTopic)
            _sum(topics, found["topicConfigTable"], "writeQueueNums", "readQueueNums")
            _sum(groups, (await groups_at(admin, broker.address))["subscriptionGroupTable"], "retryQueueNums")
        data = {"exportTime": time.time_ns() // 1_000_000}
        if not options.subscriptionGroup or options.topic:
            data["topicConfigTable"] = topics
        if not options.topic:
            data["subscriptionGroupTable"] = groups
    name = "topic" if options.topic else "subscriptionGroup" if options.subscriptionGroup else "metadata"
    path = _write(options.filePath, f"{name}.json", data)
    return Said([f"export {path} success"], {"path": str(path)})


def _sum(whole: dict[str, Any], found: Mapping[str, Any], *counts: str) -> None:
    """Merge the entries of several brokers; their counts are added up."""
    for name, each in found.items():
        before = whole.get(name, {})
        whole[name] = each | {key: each.get(key, 0) + before.get(key, 0) for key in counts}


# --- configurations ------------------------------------------------------------------------------------------


def _configs_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-c --clusterName", "which cluster", required=True)
    _folder_argument(parser, "configs.json")


@command("exportConfigs", _configs_arguments, by_route=True)
async def export_configs(admin: Admin, options: argparse.Namespace) -> Said:
    """write what matters of the masters' configurations into a file"""
    configs, slaves = {}, 0
    masters = 0
    for name, addresses in await replicas(admin, options.clusterName):
        slaves += sum(broker_id != MASTER_ID for broker_id in addresses)
        if MASTER_ID in addresses:
            masters += 1
            found = await admin.settings(addresses[MASTER_ID], RequestCode.GET_BROKER_CONFIG)
            configs[found.get("brokerName", name)] = {key: found[key] for key in KEPT_KEYS if key in found}
    path = _write(options.filePath, "configs.json", {
        "brokerConfigs": configs, "clusterScale": {
            "namesrvSize": len(admin.namesrv), "masterBrokerSize": masters, "slaveBrokerSize": slaves}})
    return Said([f"export {path} success"], {"path": str(path)})


# --- rates ---------------------------------------------------------------------------------------------------


def _metrics_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-c --clusterName", "which cluster", required=True)
    _folder_argument(parser, "metrics.json")


KINDS: Final = {"trans": "RMQ_SYS_TRANS_HALF_TOPIC", "schedule": "SCHEDULE_TOPIC_XXXX"}
"""Topics that have what is neither ordinary nor visible yet."""


@command("exportMetrics", _metrics_arguments, by_route=True)
async def export_metrics(admin: Admin, options: argparse.Namespace) -> Said:
    """write how much the masters do into a file"""
    report: dict[str, Any] = {}
    tps: dict[str, float] = {}
    today: dict[str, int] = {}
    for broker in await of_cluster(admin, options.clusterName):
        report[broker.name] = found = await _measured(admin, broker)
        quota = found["runtimeQuota"]
        for key, value in quota["tps"].items():
            name = f"total{key[0].upper()}{key[1:]}"
            tps[name] = tps.get(name, 0.0) + value
        for key, value in quota["oneDayNum"].items():
            name = f"total{key[0].upper()}{key[1:]}"
            today[name] = today.get(name, 0) + value
    path = _write(options.filePath, "metrics.json", {
        "evaluateReport": report, "totalData": {"totalTps": tps, "totalOneDayNum": today}})
    return Said([f"export {path} success"], {"path": str(path)})


async def _measured(admin: Admin, broker: Found) -> dict[str, Any]:
    address = broker.address
    stats = KVTable.from_json((await admin.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table
    config = await admin.settings(address, RequestCode.GET_BROKER_CONFIG)
    groups = (await groups_at(admin, address))["subscriptionGroupTable"]
    tps = {"normalInTps": first_number(stats, "putTps"), "normalOutTps": first_number(stats, "getTransferredTps")}
    day = {f"normalOneDay{way}Num": int(first_number(stats, f"msg{of}TotalTodayMorning")
                                        - first_number(stats, f"msg{of}TotalYesterdayMorning"))
           for way, of in (("In", "Put"), ("Out", "Get"))}
    for kind, topic in KINDS.items():
        tps[f"{kind}InTps"], day[f"{kind}OneDayInNum"] = await summed(admin, [address], "TOPIC_PUT_NUMS", topic)
    clients: set[str] = set()
    for group in groups:
        try:
            members = (await members_of(admin, group)).connection_set
        except (AdminError, RemotingError):  # no member of the group is online
            continue
        clients |= {f"{each.language}%{version_name(each.version)}" for each in members}
    return {
        "runtimeEnv": {"cpuNum": config.get("clientCallbackExecutorThreads"),
                       "totalMemKBytes": stats.get("totalMemKBytes")},
        "runtimeQuota": {
            "diskRatio": {key: stats.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
            "tps": tps, "oneDayNum": day, "messageAverageSize": stats.get("putMessageAverageSize"),
            "topicSize": len((await topics_at(admin, address))["topicConfigTable"]), "groupSize": len(groups)},
        "runtimeVersion": {"rocketmqVersion": version_name(VERSION), "clientInfo": sorted(clients)}}
