"""Checks whether a pull may read, in the order in which a Java broker finds out, and what it wants to read.

Source: ``PullMessageProcessor.processRequest`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.consumers.members import Consumers
from broker.consumers.subscriptions import Subscribed, SubscriptionIllegal, is_by_tag, no_property_filter, parse
from broker.filters.errors import FilterIllegal
from broker.filters.expressions import compiled
from broker.filters.table import Filters
from broker.groups import GroupTable
from broker.pulling.filtering import RetryFilter
from broker.rules import Refusal
from broker.store.tables import SubscriptionGroup
from broker.topics import TopicTable
from broker.topics.names import RETRY_PREFIX
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import ResponseCode
from remoting.headers.pulling import SUBSCRIPTION, PullMessageRequest

READABLE: Final = 4
"""Bit of a permission."""
BROKER_FORBIDDEN: Final = 1
GROUP_FORBIDDEN: Final = 2
TOPIC_FORBIDDEN: Final = 3
BROADCASTING_FORBIDDEN: Final = 4
SUBSCRIPTION_FORBIDDEN: Final = 5


@attrs.frozen
class PullConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    broker_permission: int = 6
    lite_pull_message_enable: bool = True
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000
    """Time that a pull is held without long polling."""
    slave_read_enable: bool = False
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold: int = 16 << 30
    """Bytes."""


@attrs.frozen
class PullRefusal(Refusal):
    """The refusal of a pull. ``forbidden_type``: with NO_PERMISSION, what forbids it."""

    forbidden_type: int | None = None


def no_group(name: str) -> PullRefusal:
    return PullRefusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist")


def no_topic(name: str) -> PullRefusal:
    return PullRefusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")


def illegal_queue(queue_id: int, topic: TopicConfig) -> str:
    """The remark for a queue that the topic does not have."""
    return (f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}]")


def check(asked: PullMessageRequest, *, lite: bool, leads: bool, config: PullConfig, groups: GroupTable,
          topics: TopicTable, consumers: Consumers,
          filters: Filters) -> PullRefusal | tuple[SubscriptionGroup, TopicConfig, Subscribed]:
    """Check whether a pull may read. ``lite``: code 361. On a slave an unknown group may read, and is not made."""
    if not config.broker_permission & READABLE:
        return PullRefusal(ResponseCode.NO_PERMISSION, "the broker pulling message is forbidden", BROKER_FORBIDDEN)
    if lite and not config.lite_pull_message_enable:
        return PullRefusal(
            ResponseCode.NO_PERMISSION, "the broker for lite pull consumer is forbidden", BROKER_FORBIDDEN)
    name = asked.consumer_group
    group = groups.get(name) or groups.find(name, keep=leads)
    if group is None:
        return no_group(name)
    if not group.consume_enable:
        return PullRefusal(
            ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}", GROUP_FORBIDDEN)
    topic = topics.get(asked.topic)
    if topic is None:
        return no_topic(asked.topic)
    if not topic.perm & READABLE:
        return PullRefusal(
            ResponseCode.NO_PERMISSION, f"the topic[{asked.topic}] pulling message is forbidden", TOPIC_FORBIDDEN)
    if not 0 <= asked.queue_id < topic.read_queue_nums:
        return PullRefusal(ResponseCode.INVALID_PARAMETER, illegal_queue(asked.queue_id, topic))
    if asked.sys_flag & SUBSCRIPTION:
        try:
            wanted = parse(asked.topic, asked.subscription, asked.expression_type)
        except SubscriptionIllegal as error:
            return PullRefusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}")
    else:
        registered = _registered(asked, group, groups, consumers)
        if isinstance(registered, PullRefusal):
            return registered
        wanted = registered
    if not wanted.by_tag or filters.config.filter_support_retry:
        filtered = _filtered(asked, wanted, filters)
        if isinstance(filtered, PullRefusal):
            return filtered
        wanted = filtered
    return group, topic, wanted


def _filtered(asked: PullMessageRequest, wanted: Subscribed, filters: Filters) -> PullRefusal | Subscribed:
    """Add the filter over properties, if there is one."""
    data, name = wanted.data, asked.consumer_group
    registered = None
    if not wanted.by_tag and not asked.sys_flag & SUBSCRIPTION:
        registered = filters.get(name, asked.topic)
        if registered is None:
            return PullRefusal(ResponseCode.FILTER_DATA_NOT_EXIST, (
                "The broker's consumer filter data is not exist!Your expression may be wrong!"))
        if registered.version < asked.sub_version:
            return PullRefusal(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
    if not wanted.by_tag and not filters.config.enable_property_filter:
        return PullRefusal(ResponseCode.SYSTEM_ERROR, no_property_filter(data.expression_type))
    if filters.config.filter_support_retry and asked.topic.startswith(RETRY_PREFIX):
        of = asked.topic.removeprefix(RETRY_PREFIX)
        return attrs.evolve(wanted, filter=RetryFilter(filters, of)) if filters.has(of) else wanted
    if wanted.by_tag:
        return wanted
    if registered is not None:
        return attrs.evolve(wanted, filter=registered.expression)
    try:
        return attrs.evolve(wanted, filter=compiled(data.sub_string, data.expression_type))
    except FilterIllegal as error:
        return PullRefusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}")


def _registered(asked: PullMessageRequest, group: SubscriptionGroup, groups: GroupTable,
                consumers: Consumers) -> PullRefusal | Subscribed:
    """Return what the group's heartbeats say that it wants of the topic, or why the pull is refused."""
    name = asked.consumer_group
    online = consumers.groups.get(name)
    if online is None:
        return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
    if online.broadcasting and not group.consume_broadcast_enable:
        return PullRefusal(ResponseCode.NO_PERMISSION, f"the consumer group[{name}] can not consume by broadcast way",
                       BROADCASTING_FORBIDDEN)
    if groups.is_forbidden(name, asked.topic):
        return PullRefusal(ResponseCode.NO_PERMISSION,
                       f"the consumer group[{name}] is forbidden for topic[{asked.topic}]", SUBSCRIPTION_FORBIDDEN)
    wanted = online.subscriptions.get(asked.topic)
    if wanted is None:
        return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
    if wanted.data.sub_version >= asked.sub_version:
        return wanted
    if not wanted.by_tag or wanted.data.class_filter_mode or not is_by_tag(asked.expression_type):
        return PullRefusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
    # A Java client that rebalances while a heartbeat leaves tells its new tags with the next one, 30 s later (#3434).
    # Until then it gets all messages, and looks at the tags itself.
    return attrs.evolve(wanted, codes=None)
