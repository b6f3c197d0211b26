"""The command that watches all consumer groups until it is interrupted. Source: ``MonitorService`` of RocketMQ."""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncGenerator
from typing import Final

import trio

from controller.admin.asking import Admin
from controller.admin.clients import agree, complaints, members_of, running_info
from controller.admin.command import AdminError, Said, no_arguments, streaming
from controller.admin.consumers import RETRY_PREFIX, consume_stats
from controller.admin.reading import Queue, pull, queues_of
from controller.admin.topiclists import topics_of
from remoting.bodies.consumers import ConsumerRunningInfo, MessageQueue
from remoting.bodies.queries import OffsetWrapper
from remoting.errors import RemotingError

ROUND_S: Final = 60.0
_RULE: Final = "[MONITOR] " + "=" * 41


@streaming("startMonitoring", no_arguments, by_route=True)
async def monitor(admin: Admin, _: argparse.Namespace) -> AsyncGenerator[Said, None]:
    """what consumer groups have not consumed, and which of their members stand still, each minute

    The original writes it to a log of its own.
    """
    while True:
        yield Said([f"{_RULE}beginRound"], None)
        for topic in await topics_of(admin, users=False):
            if topic.startswith(RETRY_PREFIX):
                group = topic.removeprefix(RETRY_PREFIX)
                for said in await _undone(admin, group) + await _members(admin, group):
                    yield said
        yield Said([f"{_RULE}endRound"], None)
        await trio.sleep(ROUND_S)


async def _undone(admin: Admin, group: str) -> list[Said]:
    """Say what a group has not consumed, by topic; nothing when it has no members."""
    try:
        table, _ = await consume_stats(admin, group)
        await members_of(admin, group)
    except (AdminError, RemotingError):
        return []
    topics: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
    for queue, offset in table.items():
        topics.setdefault(queue.topic, {})[queue] = offset
    found: list[Said] = []
    for topic, offsets in sorted(topics.items()):
        behind = [max(0, offset.broker_offset - offset.consumer_offset) for offset in offsets.values()]
        late_ms = await _late_ms(admin, topic, offsets)
        found.append(Said(
            [f"[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup={group}, topic={topic}, "
             f"undoneMsgsTotal={sum(behind)}, undoneMsgsSingleMQ={max(behind, default=0)}, "
             f"undoneMsgsDelayTimeMills={late_ms}]"],
            {"group": group, "topic": topic, "undone": sum(behind), "undoneOfOneQueue": max(behind, default=0),
             "delayMs": late_ms}))
    return found


async def _late_ms(admin: Admin, topic: str, offsets: dict[MessageQueue, OffsetWrapper]) -> int:
    """Return the delay between the last consumed and the last stored message, of the queue with the largest."""
    most = 0
    try:
        addresses = {queue.name.broker_name: queue.address for queue in await queues_of(admin, topic)}
        for queue, offset in offsets.items():
            if offset.last_timestamp > 0 and offset.broker_offset > 0 and queue.broker_name in addresses:
                last = await pull(admin, Queue(queue, addresses[queue.broker_name]), offset.broker_offset - 1, 1)
                for stored in last.messages:
                    most = max(most, stored.record.store_time_ms - offset.last_timestamp)
    except (AdminError, RemotingError):  # a queue that cannot be read adds no delay
        pass
    return most


async def _members(admin: Admin, group: str) -> list[Said]:
    found: dict[str, ConsumerRunningInfo] = {}
    try:
        for member in (await members_of(admin, group)).connection_set:
            found[member.client_id] = await running_info(admin, group, member.client_id)
    except (AdminError, RemotingError):  # a silent member is no reason for a complaint
        pass
    if not found:
        return []
    now_ms = time.time_ns() // 1_000_000
    begun = f"[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: {group}"
    said = [] if agree(found, now_ms) else [Said([f"{begun}, Subscription different"],
                                                 {"group": group, "sameSubscription": False})]
    return said + [Said([f"{begun}, {words}"], {"group": group, "complaint": words})
                   for words in complaints(found, now_ms)]
