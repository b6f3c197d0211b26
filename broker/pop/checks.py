"""Decides whether a client may pop, peek or acknowledge: RocketMQ's checks, in its order and with its texts.

Source: ``PopMessageProcessor``, ``PeekMessageProcessor``, ``AckMessageProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.consumers.subscriptions import Subscribed, SubscriptionIllegal, parse
from broker.filters.errors import FilterIllegal
from broker.filters.expressions import compiled
from broker.groups import GroupTable
from broker.pulling.checks import illegal_queue, no_group, no_topic
from broker.rules import Refusal
from broker.store.tables import SubscriptionGroup
from broker.topics import TopicTable
from broker.topics.names import group_fault, topic_fault
from broker.topics.table import READ
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import ResponseCode

NOT_PARSED: Final = "parse the consumer's subscription failed"


@attrs.frozen
class PopConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    broker_permission: int = 6
    broker_ip1: str = "127.0.0.1"


@attrs.frozen
class Checks:
    """Checks requests against broker, topic and group. A new ``config`` needs a new object."""

    config: PopConfig
    groups: GroupTable
    topics: TopicTable

    def broker(self, what: str) -> Refusal | None:
        """Refuse ``what`` if the broker's permissions forbid reading."""
        if self.config.broker_permission & READ:
            return None
        return Refusal(ResponseCode.NO_PERMISSION, f"the broker[{self.config.broker_ip1}] {what} is forbidden")

    def asking(self, what: str, group: str, topic: str,
               queue_id: int) -> Refusal | tuple[SubscriptionGroup, TopicConfig]:
        """The refusal of ``broker``, else the result of ``reader``."""
        return self.broker(what) or self.reader(group, topic, queue_id)

    def reader(self, group: str, topic: str, queue_id: int) -> Refusal | tuple[SubscriptionGroup, TopicConfig]:
        """Group and topic, if the group may read this queue; a negative ``queue_id`` means any queue."""
        found = self.topics.get(topic)
        if found is None:
            return no_topic(topic)
        if not found.perm & READ:
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden")
        if queue_id >= found.read_queue_nums:
            return Refusal(ResponseCode.INVALID_PARAMETER, illegal_queue(queue_id, found))
        reader = self.groups.get(group) or self.groups.find(group)
        if reader is None:
            return no_group(group)
        if not reader.consume_enable:
            return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        return reader, found

    def queue(self, topic: str, queue_id: int) -> Refusal | None:
        """Refuse an acknowledgement for a queue that does not exist."""
        found = self.topics.get(topic)
        if found is None:
            return no_topic(topic)
        if not 0 <= queue_id < found.read_queue_nums:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, illegal_queue(queue_id, found))
        return None

    def names(self, group: str, topic: str) -> Refusal | None:
        """Refuse an acknowledgement with names that no group or topic can have: they would go into records here."""
        fault = group_fault(group) if self.groups.get(group) is None else None
        if fault is None and self.topics.get(topic) is None:
            fault = topic_fault(topic)
        return Refusal(ResponseCode.INVALID_PARAMETER, fault) if fault is not None else None


def wanted_of(topic: str, expression: str | None, kind: str | None) -> Refusal | Subscribed:
    """The subscription of a request; no expression means everything. As in RocketMQ, no key forbids SQL92 here."""
    if not expression or not expression.strip():
        return parse(topic, None, None)
    try:
        wanted = parse(topic, expression, kind)
        if not wanted.by_tag:
            wanted = attrs.evolve(wanted, filter=compiled(expression, kind))
    except (SubscriptionIllegal, FilterIllegal) as error:
        return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{NOT_PARSED}: {error}")
    return wanted
