"""Commands about consumer groups as brokers keep them: their settings, their offsets, how they are given messages.

Source: ``DeleteSubscriptionGroupCommand``, ``UpdateSubGroupListSubCommand``, ``GetConsumerConfigSubCommand``,
``SetConsumeModeSubCommand``, ``CloneGroupOffsetCommand`` and ``SkipAccumulationSubCommand`` of RocketMQ.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, broker_address_or_cluster, command, number, text
from controller.admin.consumers import RETRY_PREFIX, consume_stats, policy_words, reset_offsets
from controller.admin.finding import asked_brokers, in_java, whom, yes
from controller.admin.topiclists import DEAD_PREFIX, objects_in
from remoting.bodies.consumers import MessageRequestMode
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError, ResponseError
from remoting.fastjson import dumps, loads
from remoting.headers.consumers import DeleteSubscriptionGroupRequest, GroupRequest
from remoting.headers.namesrv import DeleteTopicRequest
from remoting.headers.pulling import UpdateConsumerOffsetRequest
from remoting.headers.queries import TopicRequest

# --- settings ------------------------------------------------------------------------------------------------


def _group_argument(parser: argparse.ArgumentParser) -> None:
    text(parser, "-g --groupName", "which consumer group", required=True)


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    _group_argument(parser)
    parser.add_argument("-r", "--removeOffset", type=yes, default=False, metavar="true",
                        help="with its offsets; default false")


@command("deleteSubGroup", _delete_arguments)
async def delete_group(admin: Admin, options: argparse.Namespace) -> Said:
    """delete a consumer group; of a cluster, with its topics of redelivery and of dead letters"""
    brokers = await asked_brokers(admin, options)
    where = "" if options.brokerAddr else f" in cluster [{options.clusterName}]"
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.DELETE_SUBSCRIPTIONGROUP,
                        DeleteSubscriptionGroupRequest(options.groupName, options.removeOffset))
    lines = [f"delete subscription group [{options.groupName}] from broker [{broker.address}]{where} success."
             for broker in brokers]
    if options.clusterName:
        for topic in (RETRY_PREFIX + options.groupName, DEAD_PREFIX + options.groupName):
            for broker in brokers:
                await admin.ask(broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic))
            for address in admin.namesrv:
                await admin.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV,
                                DeleteTopicRequest(topic, options.clusterName))
    return Said(lines, {"group": options.groupName, "brokers": [each.address for each in brokers]})


def _file_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    text(parser, "-f --filename", "a JSON list of groups, each with the fields of SubscriptionGroupConfig",
         required=True, metavar="FILE")


@command("updateSubGroupList", _file_arguments)
async def update_groups(admin: Admin, options: argparse.Namespace) -> Said:
    """make the consumer groups of a file, or change them"""
    groups = objects_in(options.filename)
    for number_, each in enumerate(groups, 1):
        if not (isinstance(each, dict) and isinstance(each.get("groupName"), str)):
            raise AdminError(f"{options.filename}: entry {number_} has no groupName")
    brokers = await asked_brokers(admin, options)
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None,
                        dumps({"groupConfigList": groups}))
    kind = "group" if options.brokerAddr else "subscription group"
    return Said([f"submit batch of {kind} config to {broker.address} success, please check the result later."
                 for broker in brokers],
                {"groups": [each["groupName"] for each in groups], "brokers": [each.address for each in brokers]})


FIELDS: Final = (
    "groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "consumeMessageOrderly",
    "retryQueueNums", "retryMaxTimes", "groupRetryPolicy", "brokerId", "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable", "groupSysFlag", "consumeTimeoutMinute", "subscriptionDataSet", "attributes")


@command("getConsumerConfig", _group_argument, by_route=True)
async def consumer_config(admin: Admin, options: argparse.Namespace) -> Said:
    """the settings of a consumer group, as each broker group keeps them"""
    clusters = await admin.clusters()
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    for name, group in sorted(clusters.broker_addr_table.items()):
        try:
            answer = await admin.ask(
                whom(group), RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupRequest(options.groupName))
        except ResponseError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            continue
        found = loads(answer.body)
        if not isinstance(found, dict):
            raise BodyError(f"{whom(group)} answered with no object")
        cluster = next((each for each, names in clusters.cluster_addr_table.items() if name in names), None)
        lines.append(f"============================={in_java(cluster)}:{name}=============================")
        for key in FIELDS:
            value = found.get(key)
            shown = policy_words(value) if key == "groupRetryPolicy" and value else in_java(value)
            lines.append(f"{key:<40}=  {'' if value is None else shown}")
        data.append({"cluster": cluster, "brokerName": name, "config": found})
    if not data:
        raise AdminError(f"no broker has a group {options.groupName}")
    return Said(lines, data)


def _mode_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    text(parser, "-t --topicName", "of which topic", required=True)
    _group_argument(parser)
    parser.add_argument("-m", "--mode", required=True, choices=("PULL", "POP"), help="how its members get messages")
    number(parser, "-q --popShareQueueNum", "with POP: how many members share a queue", default=0, least=-1)


@command("setConsumeMode", _mode_arguments)
async def set_mode(admin: Admin, options: argparse.Namespace) -> Said:
    """say whether the members of a group pull a topic's messages or pop them"""
    body = MessageRequestMode(options.topicName, options.groupName, options.mode, options.popShareQueueNum).to_json()
    brokers = await asked_brokers(admin, options)
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)
    return Said([*(f"set consume mode to {broker.address} success." for broker in brokers),
                 f"topic[{options.topicName}] group[{options.groupName}] consume mode[{options.mode}] "
                 f"popShareQueueNum[{options.popShareQueueNum}]"],
                {"topic": options.topicName, "group": options.groupName, "mode": options.mode,
                 "popShareQueueNum": options.popShareQueueNum, "brokers": [each.address for each in brokers]})


# --- offsets -------------------------------------------------------------------------------------------------


def _clone_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-s --srcGroup", "whose offsets to take", required=True)
    text(parser, "-d --destGroup", "who gets them", required=True)
    text(parser, "-t --topic", "of which topic", required=True)
    text(parser, "-o --offline", "taken and not used, as in the original", metavar="true")


@command("cloneGroupOffset", _clone_arguments, by_route=True)
async def clone_offsets(admin: Admin, options: argparse.Namespace) -> Said:
    """set a consumer group to where another one is in a topic

    The original sets it in every topic that the other one reads, at brokers of this one; here it is this topic alone.
    """
    table, _ = await consume_stats(admin, options.srcGroup, options.topic)
    if not table:
        raise AdminError(f"group {options.srcGroup} has no offsets in topic {options.topic}")
    route = await admin.route(options.topic)
    addresses = {group.broker_name: whom(group) for group in route.broker_datas if group.broker_addrs}
    data = []
    for queue, offset in sorted(table.items(), key=lambda each: (each[0].broker_name, each[0].queue_id)):
        if offset.consumer_offset < 0 or queue.broker_name not in addresses:
            continue
        await admin.ask(addresses[queue.broker_name], RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest(
            options.destGroup, queue.topic, queue.queue_id, offset.consumer_offset))
        data.append({"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset.consumer_offset})
    return Said([f"clone group offset success. srcGroup[{options.srcGroup}], destGroup=[{options.destGroup}], "
                 f"topic[{options.topic}]"], data)


def _skip_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-g --group", "which consumer group", required=True)
    text(parser, "-t --topic", "of which topic", required=True)
    parser.add_argument("-f", "--force", type=yes, default=True, metavar="true", help="forward too; default true")
    text(parser, "-c --cluster", "ask the brokers that have a topic of this name")


@command("skipAccumulatedMessage", _skip_arguments, by_route=True)
async def skip(admin: Admin, options: argparse.Namespace) -> Said:
    """set a consumer group to the end of a topic: what it has not had it will not get"""
    queues = await reset_offsets(admin, options.cluster or options.topic, options.topic, options.group, -1,
                                 force=options.force)
    return Said([f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}",
                 *(f"{queue.broker_name[:32]:<40}  {queue.queue_id:<40}  {offset:<40}" for queue, offset in queues)],
                [{"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
                 for queue, offset in queues])
