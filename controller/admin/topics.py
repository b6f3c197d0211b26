"""Commands about topics, asked of the name server.

Knows routes as they are sent to clients, and nothing of what brokers store.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from controller.admin.asking import Admin
from controller.admin.command import Said, command


def _route_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", required=True, metavar="NAME", help="which topic")
    parser.add_argument("-l", "--list", action="store_true", help="as a table")


_ROW = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}"


@command("topicRoute", _route_arguments)
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
