"""Commands about topics: where they are, how far they are, and to make, change and delete them.

Asks the name server and the brokers that it names. Source: ``UpdateTopicSubCommand``, ``DeleteTopicSubCommand`` and
``TopicStatusSubCommand`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, Final

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, broker_address_or_cluster, command
from controller.admin.finding import Found, asked_brokers, local_time, of_cluster, of_topic, yes
from controller.admin.showing import topic_words
from remoting.bodies.consumers import MessageQueue
from remoting.bodies.namesrv import TopicConfig
from remoting.bodies.queries import TopicOffset, TopicStatsTable
from remoting.codes import RequestCode
from remoting.errors import ResponseError
from remoting.headers.namesrv import DeleteTopicRequest, KVKeyRequest, KVValueResponse, PutKVConfigRequest
from remoting.headers.queries import TopicRequest
from remoting.headers.topics import CreateTopicRequest

AUTO_CREATE_TOPIC: Final = "TBW102"
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the name servers' tables that says where the queues of ordered topics are."""


def _route_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="which topic")
    parser.add_argument("-l", "--list", action="store_true", help="as a table")


_ROW = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}"


@command("topicRoute", _route_arguments, by_route=True)
async def topic_route(admin: Admin, options: argparse.Namespace) -> Said:
    """which brokers hold a topic's queues"""
    route = await admin.route(options.topic)
    data: dict[str, Any] = json.loads(route.to_json())
    if not options.list:
        return Said(json.dumps(data, indent="\t", separators=(",", ":"), sort_keys=True).splitlines(), data)
    addresses = {group.broker_name: group for group in route.broker_datas}
    lines = [_ROW.format("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm").rstrip()]
    reads = writes = 0
    for queue in sorted(route.queue_datas, key=lambda each: each.broker_name):
        group = addresses.get(queue.broker_name)
        shown = ", ".join(f"{broker_id}={address}" for broker_id, address in sorted(group.broker_addrs.items())) \
            if group is not None else ""
        lines.append(_ROW.format(group.cluster if group is not None else "", queue.broker_name, f"{{{shown}}}",
                                 queue.read_queue_nums, queue.write_queue_nums, queue.perm))
        reads, writes = reads + queue.read_queue_nums, writes + queue.write_queue_nums
    lines.append("-" * 158)
    lines.append(_ROW.format("Total:", len(route.queue_datas), "", reads, writes, ""))
    return Said(lines, data)


# --- made, changed, deleted ----------------------------------------------------------------------------------


def _update_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="which topic")
    parser.add_argument("-r", "--readQueueNums", type=int, default=8, metavar="N", help="queues to read; default 8")
    parser.add_argument("-w", "--writeQueueNums", type=int, default=8, metavar="N", help="queues to write; default 8")
    parser.add_argument("-p", "--perm", type=int, default=6, metavar="N", help="2 write, 4 read, 6 both; default 6")
    parser.add_argument("-o", "--order", type=yes, default=False, metavar="true", help="messages are ordered")
    parser.add_argument("-u", "--unit", type=yes, default=False, metavar="true", help="it belongs to a unit")
    parser.add_argument("-s", "--hasUnitSub", type=yes, default=False, metavar="true", help="a unit subscribes to it")
    parser.add_argument("-a", "--attributes", default="", metavar="+K=V,-K", help="attributes to set and to remove")


@command("updateTopic", _update_arguments)
async def update_topic(admin: Admin, options: argparse.Namespace) -> Said:
    """make a topic, or change it

    With -o true the name servers are told how many queues each broker has, for who consumes in order.
    """
    header = CreateTopicRequest(
        options.topic, options.readQueueNums, options.writeQueueNums, options.perm, AUTO_CREATE_TOPIC,
        topic_sys_flag=int(options.unit) | int(options.hasUnitSub) << 1, order=options.order,
        attributes=options.attributes or None)
    brokers = await asked_brokers(admin, options)
    lines = []
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        lines.append(f"create topic to {broker.address} success.")
    data: dict[str, Any] = {"topic": options.topic, "brokers": [broker.address for broker in brokers]}
    if options.order:
        data["orderConf"] = order = await _set_order(admin, options, brokers)
        scope = "broker" if options.brokerAddr else "cluster"
        lines.insert(0 if options.brokerAddr else len(lines),
                     f"set {scope} orderConf. isOrder=true, orderConf=[{order}]")
    attributes = {part.partition("=")[0]: part.partition("=")[2] for part in options.attributes.split(",") if part}
    lines.append(topic_words(TopicConfig(
        options.topic, options.readQueueNums, options.writeQueueNums, options.perm,
        topic_sys_flag=header.topic_sys_flag or 0, order=options.order, attributes=attributes)))
    return Said(lines, data)


async def _set_order(admin: Admin, options: argparse.Namespace, brokers: Sequence[Found]) -> str:
    """Tell every name server where the topic's ordered queues are; of one broker, beside those of the others."""
    if not admin.namesrv:
        raise AdminError("-o true needs -n: the name servers keep where ordered queues are")
    queues = str(options.writeQueueNums)
    order = {broker.name: queues for broker in brokers}
    if options.brokerAddr:
        order = {await _group_at(admin, options.brokerAddr): queues}
    added = ";".join(f"{name}:{count}" for name, count in order.items())
    if options.brokerAddr:
        order = await _kept_order(admin, options.topic) | order
    whole = ";".join(f"{name}:{count}" for name, count in order.items())
    for address in admin.namesrv:
        await admin.ask(address, RequestCode.PUT_KV_CONFIG, PutKVConfigRequest(ORDER_NAMESPACE, options.topic, whole))
    return added


async def _group_at(admin: Admin, address: str) -> str:
    for group in (await admin.clusters()).broker_addr_table.values():
        if address in group.broker_addrs.values():
            return group.broker_name
    raise AdminError(f"the name server knows no broker at {address}")


async def _kept_order(admin: Admin, topic: str) -> dict[str, str]:
    try:
        answer = await admin.ask(admin.namesrv[0], RequestCode.GET_KV_CONFIG, KVKeyRequest(ORDER_NAMESPACE, topic))
    except ResponseError:  # the topic has no order
        return {}
    parts = (part.rpartition(":") for part in (KVValueResponse.from_ext(answer.ext).value or "").split(";"))
    return {name: count for name, _, count in parts if name}


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="which topic")
    parser.add_argument("-c", "--clusterName", required=True, metavar="NAME", help="in which cluster")


@command("deleteTopic", _delete_arguments, by_route=True)
async def delete_topic(admin: Admin, options: argparse.Namespace) -> Said:
    """delete a topic, with its queues, from the masters of a cluster and from the name servers"""
    brokers = await of_cluster(admin, options.clusterName)
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(options.topic))
    for address in admin.namesrv:
        await admin.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV,
                        DeleteTopicRequest(options.topic, options.clusterName))
    return Said(
        [f"delete topic [{options.topic}] from cluster [{options.clusterName}] success.",
         f"delete topic [{options.topic}] from NameServer success."],
        {"topic": options.topic, "brokers": [broker.address for broker in brokers], "nameServers": [*admin.namesrv]})


# --- how far it is -------------------------------------------------------------------------------------------


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="which topic")
    parser.add_argument("-c", "--cluster", metavar="NAME", help="ask the brokers that have a topic of this name")


_STATUS = "{:<32}  {:<4}  {:<20}  {:<20}    {}"


@command("topicStatus", _status_arguments, by_route=True)
async def topic_status(admin: Admin, options: argparse.Namespace) -> Said:
    """the queues of a topic: first and next offset, and when the last message came"""
    found: list[tuple[MessageQueue, TopicOffset]] = []
    tps = 0.0
    for broker in await of_topic(admin, options.cluster or options.topic):
        answer = await admin.ask(broker.address, RequestCode.GET_TOPIC_STATS_INFO, TopicRequest(options.topic))
        stats = TopicStatsTable.from_json(answer.body)
        found += stats.offset_table.items()
        tps += stats.topic_put_tps
    found.sort(key=lambda each: (each[0].broker_name, each[0].queue_id))
    return Said(
        [_STATUS.format("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"),
         *(_STATUS.format(
             queue.broker_name[:32], queue.queue_id, offset.min_offset, offset.max_offset,
             local_time(offset.last_update_timestamp) if offset.last_update_timestamp > 0 else "")
           for queue, offset in found),
         "", f"Topic Put TPS: {tps}"],
        {"topic": options.topic, "putTps": tps, "queues": [
            {"brokerName": queue.broker_name, "queueId": queue.queue_id, "minOffset": offset.min_offset,
             "maxOffset": offset.max_offset, "lastUpdateTimestamp": offset.last_update_timestamp}
            for queue, offset in found]})
