"""Commands about consumer groups: to make and change them, how far they are, and to set them back.

Source: ``UpdateSubGroupSubCommand``, ``ConsumerProgressSubCommand`` and ``ResetOffsetByTimeCommand`` of RocketMQ.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, broker_address_or_cluster, command
from controller.admin.finding import Found, asked_brokers, in_java, local_time, of_topic, yes
from remoting.bodies.consumers import ConsumerConnection, ConsumerRunningInfo, MessageQueue, ResetOffsetBody
from remoting.bodies.namesrv import TopicList
from remoting.bodies.queries import ConsumeStats, OffsetWrapper
from remoting.codes import RequestCode, version_name
from remoting.errors import RemotingError
from remoting.fastjson import dumps
from remoting.fields import decimal
from remoting.headers.consumers import ConsumerClientRequest, ConsumerGroupRequest, ResetOffsetRequest
from remoting.headers.queries import GetConsumeStatsRequest

RETRY_PREFIX: Final = "%RETRY%"


def _group_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser)
    parser.add_argument("-g", "--groupName", required=True, metavar="NAME", help="which consumer group")
    for option, default, about in (
        ("-s --consumeEnable", True, "it may consume"), ("-m --consumeFromMinEnable", False, "from the first offset"),
        ("-d --consumeBroadcastEnable", False, "every member gets all"),
        ("-o --consumeMessageOrderly", False, "in order"),
        ("-a --notifyConsumerIdsChanged", True, "members hear of each other"),
    ):
        parser.add_argument(*option.split(), type=yes, default=default, metavar="true",
                            help=f"{about}; default {str(default).lower()}")
    for option, default_number, about in (
        ("-q --retryQueueNums", 1, "queues of its retry topic"), ("-r --retryMaxTimes", 16, "tries of a message"),
        ("-i --brokerId", 0, "which replica to consume from"),
        ("-w --whichBrokerWhenConsumeSlowly", 1, "which one when it is behind"),
    ):
        parser.add_argument(*option.split(), type=int, default=default_number, metavar="N",
                            help=f"{about}; default {default_number}")
    parser.add_argument("-p", "--groupRetryPolicy", type=_policy, default={"type": "CUSTOMIZED"}, metavar="JSON",
                        help='how long to wait before the next try, {"type":"CUSTOMIZED"} by default')
    parser.add_argument("--attributes", default="", metavar="+K=V,-K", help="attributes to set and to remove")


def _policy(text: str) -> dict[str, Any]:
    policy = json.loads(text)
    if not isinstance(policy, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return policy


@command("updateSubGroup", _group_arguments)
async def update_group(admin: Admin, options: argparse.Namespace) -> Said:
    """make a consumer group, or change it"""
    attributes: dict[str, str] = {}
    for part in filter(None, options.attributes.split(",")):
        key, _, value = part.partition("=")
        attributes[key] = value
    group: dict[str, Any] = {
        "groupName": options.groupName, "consumeEnable": options.consumeEnable,
        "consumeFromMinEnable": options.consumeFromMinEnable,
        "consumeBroadcastEnable": options.consumeBroadcastEnable,
        "consumeMessageOrderly": options.consumeMessageOrderly, "retryQueueNums": options.retryQueueNums,
        "retryMaxTimes": options.retryMaxTimes, "groupRetryPolicy": options.groupRetryPolicy,
        "brokerId": options.brokerId, "whichBrokerWhenConsumeSlowly": options.whichBrokerWhenConsumeSlowly,
        "notifyConsumerIdsChangedEnable": options.notifyConsumerIdsChanged, "groupSysFlag": 0,
        "consumeTimeoutMinute": 15, "subscriptionDataSet": None, "attributes": attributes}
    brokers = await asked_brokers(admin, options)
    for broker in brokers:
        await admin.ask(broker.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, dumps(group))
    shown = ", ".join(f"{key}={in_java(value)}" for key, value in {
        **group, "groupRetryPolicy": policy_words(options.groupRetryPolicy)}.items())
    return Said([*(f"create subscription group to {broker.address} success." for broker in brokers),
                 f"SubscriptionGroupConfig{{{shown}}}"],
                {"group": group, "brokers": [broker.address for broker in brokers]})


def policy_words(policy: dict[str, Any]) -> str:
    """Return the retry policy of a group as the original prints it."""
    return "GroupRetryPolicy{" + ", ".join(f"{key}={in_java(policy.get(key))}" for key in (
        "type", "exponentialRetryPolicy", "customizedRetryPolicy")) + "}"


# --- progress ------------------------------------------------------------------------------------------------


def _progress_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-g", "--groupName", metavar="NAME", help="one group, queue by queue; default all, in short")
    parser.add_argument("-t", "--topicName", metavar="NAME", help="one topic")
    parser.add_argument("-s", "--showClientIP", type=yes, default=False, metavar="true",
                        help="which client has each queue; with -g")
    parser.add_argument("-c", "--cluster", metavar="NAME", help="ask the brokers that have a topic of this name")


_QUEUE = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {}{:<20} {:<20}{}"
_GROUP = "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}"


@command("consumerProgress", _progress_arguments, by_route=True)
async def progress(admin: Admin, options: argparse.Namespace) -> Said:
    """how far consumer groups are behind"""
    if options.groupName is None:
        return await _all_groups(admin)
    table, tps = await consume_stats(admin, options.groupName, options.topicName, options.cluster)
    if not table:
        raise AdminError(f"no broker has offsets of group {options.groupName}: it may not have consumed anything yet")
    queues = sorted(table.items(), key=lambda each: (each[0].topic, each[0].broker_name, each[0].queue_id))
    clients = await _clients(admin, options.groupName) if options.showClientIP else None
    rows = [(queue, offset, offset.broker_offset - offset.consumer_offset,
             offset.pull_offset - offset.consumer_offset) for queue, offset in queues]
    lines = [_QUEUE.format("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset",
                           "" if clients is None else f"{'#Client IP':<20}  ", "#Diff", "#Inflight", "#LastTime")]
    lines += [_QUEUE.format(
        queue.topic[:64], queue.broker_name[:32], queue.queue_id, offset.broker_offset, offset.consumer_offset,
        "" if clients is None else f"{clients.get(queue, 'N/A'):<20}  ", behind, in_flight,
        f" {local_time(offset.last_timestamp, millis=False) if offset.last_timestamp else 'N/A'}")
        for queue, offset, behind, in_flight in rows]
    total, flying = sum(row[2] for row in rows), sum(row[3] for row in rows)
    lines += ["", f"Consume TPS: {tps:.2f}", f"Consume Diff Total: {total}", f"Consume Inflight Total: {flying}"]
    return Said(lines, {
        "group": options.groupName, "consumeTps": tps, "diffTotal": total, "inflightTotal": flying, "queues": [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id,
             "brokerOffset": offset.broker_offset, "consumerOffset": offset.consumer_offset, "diff": behind,
             "inflight": in_flight, "lastTimestamp": offset.last_timestamp,
             **({} if clients is None else {"client": clients.get(queue)})}
            for queue, offset, behind, in_flight in rows]})


async def _clients(admin: Admin, group: str) -> dict[MessageQueue, str]:
    """Return the client that has each queue, as far as the group's members tell."""
    found: dict[MessageQueue, str] = {}
    for member in (await _members(admin, group)).connection_set:
        for broker in await of_topic(admin, RETRY_PREFIX + group):
            try:
                answer = await admin.ask(broker.address, RequestCode.GET_CONSUMER_RUNNING_INFO,
                                         ConsumerClientRequest(group, member.client_id))
            except RemotingError:  # the member does not answer, or another broker knows it
                continue
            queues = ConsumerRunningInfo.from_json(answer.body).mq_table
            found |= dict.fromkeys(queues, member.client_id.partition("@")[0])
            break
    return found


async def consume_stats(
    admin: Admin, group: str, topic: str | None = None, cluster: str | None = None,
) -> tuple[dict[MessageQueue, OffsetWrapper], float]:
    """Return a group's position in each of its queues, and its messages per second."""
    table: dict[MessageQueue, OffsetWrapper] = {}
    tps = 0.0
    for broker in await of_topic(admin, cluster or RETRY_PREFIX + group):
        answer = await admin.ask(
            broker.address, RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequest(group, topic))
        stats = ConsumeStats.from_json(answer.body)
        table |= stats.offset_table
        tps += stats.consume_tps
    return table, tps


async def _all_groups(admin: Admin) -> Said:
    """Return all groups with a retry topic; one that cannot be asked is shown as a group that is not online."""
    answer = await admin.ask(admin.namesrv[0], RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    groups = sorted(name.removeprefix(RETRY_PREFIX) for name in TopicList.from_json(answer.body).topic_list
                    if name.startswith(RETRY_PREFIX))
    data: list[dict[str, Any]] = []
    for group in groups:
        try:
            table, tps = await consume_stats(admin, group)
        except RemotingError:
            table, tps = {}, 0.0
        members = await _members(admin, group)
        clients = members.connection_set
        pushed = members.consume_type != "CONSUME_ACTIVELY"
        data.append({
            "group": group, "count": len(clients), "version": min((each.version for each in clients), default=None),
            "type": ("PUSH" if pushed else "PULL") if clients else "",
            "model": members.message_model or "" if clients and pushed else "", "consumeTps": int(tps),
            "diffTotal": _behind(table.values())})
    return Said(
        [_GROUP.format("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"),
         *(_GROUP.format(
             str(row["group"])[:64], row["count"],
             "OFFLINE" if row["version"] is None else version_name(row["version"]),
             row["type"], row["model"], row["consumeTps"], row["diffTotal"]) for row in data)],
        data)


def _behind(offsets: Iterable[OffsetWrapper]) -> int:
    return sum(offset.broker_offset - offset.consumer_offset for offset in offsets)


async def _members(admin: Admin, group: str) -> ConsumerConnection:
    try:
        for broker in await of_topic(admin, RETRY_PREFIX + group):
            answer = await admin.ask(
                broker.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequest(group))
            return ConsumerConnection.from_json(answer.body)
    except RemotingError:  # no member is online
        pass
    return ConsumerConnection()


# --- setting back --------------------------------------------------------------------------------------------


def _reset_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-g", "--group", required=True, metavar="NAME", help="which consumer group")
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="of which topic")
    parser.add_argument("-s", "--timestamp", required=True, metavar="TIME",
                        help="now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS in this machine's zone")
    parser.add_argument("-f", "--force", type=yes, default=True, metavar="true", help="forward too; default true")
    parser.add_argument("-b", "--broker", metavar="HOST:PORT", help="at this broker; with -q")
    parser.add_argument("-q", "--queue", type=int, metavar="N", help="this queue alone; with -b")
    parser.add_argument("-o", "--offset", type=int, metavar="N", help="to this offset of the queue; with -b and -q")
    parser.add_argument("-c", "--cluster", metavar="NAME", help="ask the brokers that have a topic of this name")


@command("resetOffsetByTime", _reset_arguments)
async def reset_by_time(admin: Admin, options: argparse.Namespace) -> Said:
    """set a consumer group to what was stored from some time on"""
    time_ms = parse_time(options.timestamp)
    if (options.broker is None) != (options.queue is None) or (options.offset is not None and options.queue is None):
        raise AdminError("-b and -q go together, and -o with both: one queue is set at one broker")
    if options.broker is None and not admin.namesrv:
        raise AdminError("-n is needed: the address of a name server, or $NAMESRV_ADDR")
    queues = await reset_offsets(
        admin, options.cluster or options.topic, options.topic, options.group, time_ms, force=options.force,
        broker=options.broker, queue_id=-1 if options.queue is None else options.queue, offset=options.offset)
    data = [{"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset} for queue, offset in queues]
    if options.broker is not None:
        return Said([
            f"start reset consumer offset by specified, group[{options.group}], topic[{options.topic}], "
            f"queueId[{options.queue}], broker[{options.broker}], timestamp(string)[{options.timestamp}], "
            f"timestamp(long)[{time_ms}]", *(f"reset consumer offset to {offset}" for _, offset in queues)], data)
    lines = [f"start reset consumer offset by specified, group[{options.group}], topic[{options.topic}], "
             f"force[{str(options.force).lower()}], timestamp(string)[{options.timestamp}], timestamp(long)[{time_ms}]",
             f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}".rstrip()]
    lines += [f"{queue.broker_name[:32]:<40}  {queue.queue_id:<40}  {offset}" for queue, offset in queues]
    return Said(lines, data)


async def reset_offsets(
    admin: Admin, routed: str, topic: str, group: str, time_ms: int, *, force: bool, broker: str | None = None,
    queue_id: int = -1, offset: int | None = None,
) -> list[tuple[MessageQueue, int]]:
    """Reset offsets at one broker, or at all that have the topic ``routed``, and return the queues' new offsets. A
    negative time means the end."""
    found: dict[MessageQueue, int] = {}
    for each in [Found("", broker)] if broker is not None else await of_topic(admin, routed):
        answer = await admin.ask(each.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequest(
            topic, group, queue_id, offset, time_ms, force))
        found |= ResetOffsetBody.from_json(answer.body).offset_table
    return sorted(found.items(), key=lambda item: (item[0].broker_name, item[0].queue_id))


def parse_time(text: str) -> int:
    """Returns milliseconds since 1970. Raises ``AdminError``."""
    if text == "now":
        return time.time_ns() // 1_000_000
    number = decimal(text)
    if number is not None:
        return number
    try:
        whole, _, millis = text.rpartition(":")
        if not (len(millis) == 3 and millis.isdecimal()):
            raise ValueError
        when = datetime.strptime(whole, "%Y-%m-%d#%H:%M:%S").astimezone()
    except ValueError:
        raise AdminError(f"-s: {text!r} is no time: now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS") from None
    return int(when.timestamp()) * 1_000 + int(millis)
