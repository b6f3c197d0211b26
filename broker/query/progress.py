"""Tells how full topics are and how far groups have come: codes 202, 208, 303, 317 and 315.

Codes and words are Java's. Source: ``AdminBrokerProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

from broker.consumers.members import Consumers
from broker.groups import GroupTable
from broker.offsets import OffsetTable
from broker.query.stats import GROUP_GET_NUMS, TOPIC_PUT_NUMS, Stats
from broker.standing import Standing
from broker.store.messages import StoredMessages
from broker.topics import TopicTable
from remoting.bodies.consumers import MessageQueue
from remoting.bodies.namesrv import TopicConfig
from remoting.bodies.queries import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    OffsetWrapper,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.headers.consumers import TopicGroupRequest
from remoting.headers.queries import (
    GetBrokerConsumeStatsRequest,
    GetConsumeStatsRequest,
    TopicRequest,
    ViewBrokerStatsRequest,
)

if TYPE_CHECKING:
    from remoting.connection import Connection
    from remoting.endpoint import Handler


class Progress:
    """Handles these codes. ``wall_ms`` is the wall clock, as in the times of messages."""

    def __init__(self, messages: StoredMessages, *, topics: TopicTable, groups: GroupTable, offsets: OffsetTable,
                 consumers: Consumers, stats: Stats, standing: Standing, wall_ms: Callable[[], int]) -> None:
        self._messages, self._topics, self._groups, self._offsets = messages, topics, groups, offsets
        self._consumers, self._stats, self._standing, self._wall_ms = consumers, stats, standing, wall_ms

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_spans,
            RequestCode.GET_BROKER_CONSUME_STATS: self.all_consume_stats,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats_data,
        }

    # --- topics ----------------------------------------------------------------------------------------------

    def topic_stats(self, _: Connection, request: Command) -> Command:
        """Answer 202 with every queue of the topic, also those without a message."""
        name = TopicRequest.from_ext(request.ext).topic
        topic = self._topics.get(name)
        if topic is None:
            return _no_topic(request, name)
        key, table = name.encode(), {}
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            least, most = self._messages.min_offset(key, queue_id), self._messages.max_offset(key, queue_id)
            last_ms = max(self._messages.store_time_ms(key, queue_id, most - 1), 0)
            table[self._queue(name, queue_id)] = TopicOffset(least, most, last_ms)
        return response(request, body=TopicStatsTable(table, self._stats.tps(TOPIC_PUT_NUMS, name)).to_json())

    def time_spans(self, _: Connection, request: Command) -> Command:
        """Answer 303: when the first, the last and the last consumed message of each queue were stored."""
        asked = TopicGroupRequest.from_ext(request.ext)
        name, topic = asked.topic, self._topics.get(asked.topic)
        if topic is None:
            return _no_topic(request, name)
        key, messages, spans = name.encode(), self._messages, []
        for queue_id in range(topic.write_queue_nums):
            least, most = messages.min_offset(key, queue_id), messages.max_offset(key, queue_id)
            offset = self._offsets.query(asked.group, name, queue_id) or 0
            first_ms = messages.store_time_ms(key, queue_id, least)
            next_ms = messages.store_time_ms(key, queue_id, offset) if offset < most else -1
            spans.append(QueueTimeSpan(
                self._queue(name, queue_id), first_ms, messages.store_time_ms(key, queue_id, most - 1),
                messages.store_time_ms(key, queue_id, offset - 1) if offset > 0 else first_ms,
                self._wall_ms() - next_ms if next_ms >= 0 else 0))
        return response(request, body=ConsumeTimeSpans(spans).to_json())

    # --- groups ----------------------------------------------------------------------------------------------

    def consume_stats(self, _: Connection, request: Command) -> Command:
        """Answer 208 for the topics that are named, or for all in which the group ever committed an offset."""
        asked = GetConsumeStatsRequest.from_ext(request.ext)
        group = asked.consumer_group
        named = [name for name in (asked.topic_list or "").split(";") if name.strip()]
        if not named and asked.topic and asked.topic.strip():
            named = [asked.topic]
        found = [self._of_topic(group, topic.topic_name, topic.read_queue_nums)
                 for name in named or self._offsets.topics_of(group)
                 if (topic := self._topics.get(name)) is not None and (named or self._reads(group, name))]
        table = dict(chain.from_iterable(each.offset_table.items() for each in found))
        return response(request, body=ConsumeStats(table, sum(each.consume_tps for each in found)).to_json())

    def all_consume_stats(self, _: Connection, request: Command) -> Command:
        """Code 317: how far each group has come."""
        only_ordered = GetBrokerConsumeStatsRequest.from_ext(request.ext).is_order
        listed: list[dict[str, list[ConsumeStats]]] = []
        behind = pulled_behind = 0
        for group in sorted(self._groups.groups):
            found = [self._of_topic(group, topic.topic_name, topic.write_queue_nums)
                     for name in self._offsets.topics_of(group)
                     if (topic := self._topics.get(name)) is not None and _is_listed(topic, only_ordered)
                     and self._reads(group, name)]
            listed.append({group: found})
            for each in found:
                behind += sum(queue.broker_offset - queue.consumer_offset for queue in each.offset_table.values())
                pulled_behind += sum(queue.pull_offset - queue.consumer_offset for queue in each.offset_table.values())
        return response(request, body=ConsumeStatsList(
            listed, self._standing.address, behind, pulled_behind).to_json())

    def _reads(self, group: str, topic: str) -> bool:
        """Return whether the group reads the topic: not if its members are here and want other topics."""
        return self._consumers.is_subscribed(group, topic)

    def _of_topic(self, group: str, topic: str, queues: int) -> ConsumeStats:
        key, table = topic.encode(), {}
        for queue_id in range(queues):
            consumed = self._offsets.query(group, topic, queue_id) or 0
            pulled = self._offsets.query_pulled(group, topic, queue_id) or 0
            last_ms = max(self._messages.store_time_ms(key, queue_id, consumed - 1), 0)
            table[self._queue(topic, queue_id)] = OffsetWrapper(
                self._messages.max_offset(key, queue_id), consumed, max(consumed, pulled), last_ms)
        return ConsumeStats(table, self._stats.tps(GROUP_GET_NUMS, f"{topic}@{group}"))

    def stats_data(self, _: Connection, request: Command) -> Command:
        """Code 315: one counter's rates over time."""
        asked = ViewBrokerStatsRequest.from_ext(request.ext)
        found = self._stats.data(asked.stats_name, asked.stats_key)
        if found is None:
            return response(request, ResponseCode.SYSTEM_ERROR,
                            remark=f"The stats <{asked.stats_name}> <{asked.stats_key}> not exist")
        return response(request, body=found.to_json())

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._standing.broker_name, queue_id)


def _no_topic(request: Command, name: str) -> Command:
    return response(request, ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{name}] not exist")


def _is_listed(topic: TopicConfig, only_ordered: bool) -> bool:
    return topic.order or not only_ordered
