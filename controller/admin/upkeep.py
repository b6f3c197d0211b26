"""Commands that look after brokers: their configuration, old files, and how far all groups are behind.

Source: the commands in ``broker`` of RocketMQ.
"""

from __future__ import annotations

import argparse
from typing import Final

from controller.admin.asking import Admin
from controller.admin.command import AdminError, Said, broker_address_or_cluster, command, number, text
from controller.admin.finding import local_time, replicas, titled, yes
from controller.admin.showing import settings
from remoting.bodies.queries import ConsumeStatsList
from remoting.codes import RequestCode
from remoting.headers.queries import GetBrokerConsumeStatsRequest


def _everyone_arguments(parser: argparse.ArgumentParser) -> None:
    broker_address_or_cluster(parser, "all brokers")


@command("getBrokerConfig", _everyone_arguments)
async def get_config(admin: Admin, options: argparse.Namespace) -> Said:
    """print the configuration of brokers"""
    lines: list[str] = []
    data: dict[str, dict[str, str]] = {}
    for title, address in await titled(admin, options):
        values = await admin.settings(address, RequestCode.GET_BROKER_CONFIG)
        lines += [title, *settings(values), ""]
        data[address] = values
    return Said(lines, data)


# --- old files -----------------------------------------------------------------------------------------------


def _clean_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-b --brokerAddr", "one broker", metavar="HOST:PORT")
    text(parser, "-c --cluster", "all brokers of a cluster; default all that the name server knows")


async def _clean(admin: Admin, options: argparse.Namespace, code: int) -> Said:
    if options.brokerAddr:
        addresses = [options.brokerAddr]
    else:
        names = [options.cluster] if options.cluster else sorted((await admin.clusters()).cluster_addr_table)
        addresses = [address for name in names for _, group in await replicas(admin, name)
                     for _, address in sorted(group.items())]
    if not addresses:
        raise AdminError("the name server knows no broker there")
    for address in addresses:
        await admin.ask(address, code)
    return Said(["success"], {"brokers": addresses})


@command("cleanExpiredCQ", _clean_arguments)
async def clean_queues(admin: Admin, options: argparse.Namespace) -> Said:
    """have brokers drop entries of consume queues whose messages are gone"""
    return await _clean(admin, options, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


@command("cleanUnusedTopic", _clean_arguments)
async def clean_topics(admin: Admin, options: argparse.Namespace) -> Said:
    """have brokers drop the queues of topics that they do not have any more"""
    return await _clean(admin, options, RequestCode.CLEAN_UNUSED_TOPIC)


@command("deleteExpiredCommitLog", _clean_arguments)
async def clean_log(admin: Admin, options: argparse.Namespace) -> Said:
    """have brokers delete files of the log that are old enough, without waiting for the hour"""
    return await _clean(admin, options, RequestCode.DELETE_EXPIRED_COMMITLOG)


# --- progress ------------------------------------------------------------------------------------------------


def _behind_arguments(parser: argparse.ArgumentParser) -> None:
    text(parser, "-b --brokerAddr", "which broker", required=True, metavar="HOST:PORT")
    number(parser, "-t --timeoutMillis", "how long to wait for its answer", default=50_000, least=1, metavar="MS")
    number(parser, "-l --level", "leave out queues that are behind by less", default=0)
    parser.add_argument("-o", "--order", type=yes, default=False, metavar="true",
                        help="ordered topics alone; default false")


_BEHIND: Final = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}"


@command("brokerConsumeStats", _behind_arguments)
async def consume_stats(admin: Admin, options: argparse.Namespace) -> Said:
    """how far all consumer groups are behind at one broker"""
    # The original prints no line for a queue without any consumption; --json has all queues.
    answer = await admin.ask(options.brokerAddr, RequestCode.GET_BROKER_CONSUME_STATS,
                             GetBrokerConsumeStatsRequest(options.order), timeout_ms=options.timeoutMillis)
    found = ConsumeStatsList.from_json(answer.body)
    rows = [(queue, group, offset, offset.broker_offset - offset.consumer_offset)
            for table in found.consume_stats_list for group, listed in table.items() for stats in listed
            for queue, offset in sorted(stats.offset_table.items(), key=lambda each: (
                each[0].topic, each[0].broker_name, each[0].queue_id))]
    rows = [row for row in rows if row[3] >= options.level]
    return Said(
        [_BEHIND.format("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff",
                        "#LastTime"),
         *(_BEHIND.format(
             queue.topic[:64], group, queue.broker_name[:32], queue.queue_id, offset.broker_offset,
             offset.consumer_offset, behind,
             local_time(offset.last_timestamp, millis=False))
           for queue, group, offset, behind in rows if offset.last_timestamp > 0),
         "", f"Diff Total: {found.total_diff}"],
        {"diffTotal": found.total_diff, "queues": [
            {"topic": queue.topic, "group": group, "brokerName": queue.broker_name, "queueId": queue.queue_id,
             "brokerOffset": offset.broker_offset, "consumerOffset": offset.consumer_offset, "diff": behind,
             "lastTimestamp": offset.last_timestamp} for queue, group, offset, behind in rows]})
