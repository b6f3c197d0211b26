"""Commands about many topics: lists of them, their rates, changes of permission, and how queues would be shared out.

Source: the commands in ``topic`` and ``stats`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import attrs

from controller.admin.asking import Admin
from controller.admin.command import (
    AdminError,
    Said,
    broker_address_or_cluster,
    command,
    streaming,
    text,
)
from controller.admin.consumers import RETRY_PREFIX, consume_stats
from controller.admin.finding import asked_brokers, whom
from controller.admin.showing import topic_words
from controller.admin.topics import AUTO_CREATE_TOPIC
from remoting.allocation import averagely
from remoting.bodies.consumers import GroupList, MessageQueue
from remoting.bodies.namesrv import ClusterInfo, TopicConfig, TopicList, TopicRouteData
from remoting.bodies.queries import BrokerStatsData
from remoting.bodies.topics import CreateTopicListRequestBody
from remoting.codes import RequestCode
from remoting.errors import BodyError, RemotingError
from remoting.fastjson import loads
from remoting.headers.queries import TopicRequest, ViewBrokerStatsRequest
from remoting.headers.topics import CreateTopicRequest, GetTopicConfigRequest

DEAD_PREFIX: Final = "%DLQ%"
MASTER_ID: Final = 0
READ: Final = 4


# --- lists ---------------------------------------------------------------------------------------------------


async def topics_of(admin: Admin, *, users: bool) -> list[str]:
    """All that the name server knows; for ``users`` without those of redelivery and of dead letters."""
    answer = await admin.ask(admin.namesrv[0], RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return [name for name in TopicList.from_json(answer.body).topic_list
            if not (users and name.startswith((RETRY_PREFIX, DEAD_PREFIX)))]


async def readers_of(admin: Admin, topic: str, route: TopicRouteData) -> list[str]:
    """The consumer groups of a topic, as one of its brokers knows them."""
    for group in route.broker_datas:
        if group.broker_addrs:
            answer = await admin.ask(whom(group), RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequest(topic))
            return sorted(GroupList.from_json(answer.body).group_list)
    return []


def _clusters_of(route: TopicRouteData, clusters: ClusterInfo) -> list[str]:
    """Return the clusters of the first group that has the topic."""
    if not route.broker_datas:
        return []
    name = route.broker_datas[0].broker_name
    return [cluster for cluster, names in sorted(clusters.cluster_addr_table.items()) if name in names]


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--clusterModel", action="store_true", help="with clusters and consumer groups")


_LISTED: Final = "{:<20}  {:<64}  {:<64}"


@command("topicList", _list_arguments, by_route=True)
async def topic_list(admin: Admin, options: argparse.Namespace) -> Said:
    """all topics that the name server knows"""
    if not options.clusterModel:
        names = await topics_of(admin, users=False)
        return Said(names, names)
    clusters = await admin.clusters()
    rows: list[tuple[str, str, str]] = []
    for topic in await topics_of(admin, users=True):
        cluster, groups = "", list[str]()
        try:
            route = await admin.route(topic)
            cluster = next(iter(_clusters_of(route, clusters)), "")
            groups = await readers_of(admin, topic, route)
        except RemotingError:  # list the topic without a route too
            pass
        rows += [(cluster, topic, group) for group in groups or [""]]
    return Said([f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}",
                 *(_LISTED.format(cluster[:20], topic[:64], group[:64]) for cluster, topic, group in rows)],
                [{"cluster": cluster, "topic": topic, "group": group or None} for cluster, topic, group in rows])


def _topic_argument(parser: argparse.ArgumentParser) -> None:
    text(parser, "-t --topic", "which topic", required=True)


@command("topicClusterList", _topic_argument, by_route=True)
async def topic_clusters(admin: Admin, options: argparse.Namespace) -> Said:
    """the clusters that have a topic"""
    names = _clusters_of(await admin.route(options.topic), await admin.clusters())
    return Said(names, names)


# --- changes -------------------------------------------------------------------------------------------------


def _perm_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    _topic_argument(parser)
    parser.add_argument("-p", "--perm", required=True, type=int, choices=(2, 4, 6), metavar="N",
                        help="2 write, 4 read, 6 both")


@command("updateTopicPerm", _perm_arguments, by_route=True)
async def update_perm(admin: Admin, options: argparse.Namespace) -> Said:
    """say whether a topic may be read and written; the rest of it stays as each broker has it"""
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    for broker in await asked_brokers(admin, options):
        answer = await admin.ask(broker.address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(options.topic))
        topic = TopicConfig.from_json(answer.body)
        if options.brokerAddr and topic.perm == options.perm:
            return Said(["new perm equals to the old one!"], [])
        await admin.ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest(
            options.topic, topic.read_queue_nums, topic.write_queue_nums, options.perm, AUTO_CREATE_TOPIC,
            topic.topic_filter_type, topic.topic_sys_flag, topic.order))
        lines.append(f"update topic perm from {topic.perm} to {options.perm} in {broker.address} success.")
        if options.brokerAddr:
            lines.append(f"{topic_words(attrs.evolve(topic, perm=options.perm))}.")
        data.append({"brokerAddr": broker.address, "from": topic.perm, "to": options.perm})
    return Said(lines, data)


def _file_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    text(parser, "-f --filename", "a JSON list of topics, each with the fields of TopicConfig", required=True,
         metavar="FILE")


def objects_in(path: str) -> list[Any]:
    """The JSON list of a file. Raises ``AdminError``."""
    try:
        found = loads(Path(path).read_bytes())
    except OSError as error:
        raise AdminError(f"{path}: {error.strerror}") from None
    except BodyError as error:
        raise AdminError(f"{path}: {error}") from None
    if not isinstance(found, list) or not found:
        raise AdminError(f"{path}: a JSON list with at least one object is needed")
    return found


@command("updateTopicList", _file_arguments)
async def update_topics(admin: Admin, options: argparse.Namespace) -> Said:
    """make the topics of a file, or change them"""
    try:
        topics = [TopicConfig.from_plain(each) for each in objects_in(options.filename)]
    except BodyError as error:
        raise AdminError(f"{options.filename}: {error}") from None
    body = CreateTopicListRequestBody(topics).to_json()
    brokers = await asked_brokers(admin, options)
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)
    return Said([f"submit batch of topic config to {broker.address} success, please check the result later."
                 for broker in brokers],
                {"topics": [topic.topic_name for topic in topics], "brokers": [each.address for each in brokers]})


# --- sharing out ---------------------------------------------------------------------------------------------


def _allocate_arguments(parser: argparse.ArgumentParser) -> None:
    _topic_argument(parser)
    text(parser, "-i --ipList", "the members of a consumer group, by any names", required=True, metavar="A[,B...]")


@command("allocateMQ", _allocate_arguments, by_route=True)
async def allocate(admin: Admin, options: argparse.Namespace) -> Said:
    """how the queues of a topic would be shared out among so many consumers"""
    route = await admin.route(options.topic)
    queues = [MessageQueue(options.topic, data.broker_name, queue_id)
              for data in sorted(route.queue_datas, key=lambda each: each.broker_name) if data.perm & READ
              for queue_id in range(data.read_queue_nums)]
    members = [name for name in options.ipList.split(",") if name]
    if not members:
        raise AdminError("-i: name at least one consumer")
    data = {"result": {name: [queue.to_plain() for queue in averagely(name, queues, members)] for name in members}}
    return Said([json.dumps(data, separators=(",", ":"))], data)


# --- rates ---------------------------------------------------------------------------------------------------


def _stats_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--activeTopic", action="store_true", help="those alone that had messages in 24 hours")
    text(parser, "-t --topic", "this topic alone")


_STATS: Final = "{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}"


@streaming("statsAll", _stats_arguments, by_route=True)
async def stats_all(admin: Admin, options: argparse.Namespace) -> AsyncGenerator[Said, None]:
    """how many messages a second each topic gets and each consumer group of it takes"""
    head = _STATS.format("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour",
                         "#OutMsg24Hour")
    first = True
    for topic in await topics_of(admin, users=True):
        if options.topic not in (None, topic):
            continue
        try:
            rows = await _rates(admin, topic, active=options.activeTopic)
        except RemotingError:  # the topic was deleted meanwhile, or its broker is away
            continue
        for row in rows:
            group = row["group"]
            line = _STATS.format(
                topic[:64], (group or "")[:64], row["behind"], f"{row['inTps']:.2f}",
                "" if group is None else f"{row['outTps']:.2f}", row["inToday"],
                "NO_CONSUMER" if group is None else row["outToday"])
            yield Said([head, line] if first else [line], row)
            first = False
    if first:
        yield Said([head], None)


async def _rates(admin: Admin, topic: str, *, active: bool) -> list[dict[str, Any]]:
    """A row for each group that reads it; one without a group where none does."""
    route = await admin.route(topic)
    groups = await readers_of(admin, topic, route)
    masters = [group.broker_addrs[MASTER_ID] for group in route.broker_datas if MASTER_ID in group.broker_addrs]
    in_tps, in_today = await summed(admin, masters, "TOPIC_PUT_NUMS", topic)
    rows: list[dict[str, Any]] = []
    for group in groups:
        out_tps, out_today = await summed(admin, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        try:
            offsets = (await consume_stats(admin, group, topic))[0].values()
            behind = max(0, sum(each.broker_offset - each.consumer_offset for each in offsets))
        except RemotingError:  # the group never stored an offset
            behind = 0
        if not active or in_today or out_today:
            rows.append({"topic": topic, "group": group, "behind": behind, "inTps": in_tps, "outTps": out_tps,
                         "inToday": in_today, "outToday": out_today})
    if not groups and (not active or in_today):
        rows.append({"topic": topic, "group": None, "behind": 0, "inTps": in_tps, "outTps": 0.0, "inToday": in_today,
                     "outToday": 0})
    return rows


async def summed(admin: Admin, masters: list[str], name: str, key: str) -> tuple[float, int]:
    """One statistic of code 315 over several brokers: a second in the last minute, and in the longest span there is."""
    tps, today = 0.0, 0
    for address in masters:
        try:
            answer = await admin.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsRequest(name, key))
        except RemotingError:  # this broker counted nothing
            continue
        found = BrokerStatsData.from_json(answer.body)
        tps += found.stats_minute.tps
        today += found.stats_day.sum_ or found.stats_hour.sum_ or found.stats_minute.sum_
    return tps, today
