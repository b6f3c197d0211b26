"""Bodies of the codes that look at queues and at how far consumers are. Fields are those of the Java classes."""

from __future__ import annotations

import attrs

from remoting.bodies.consumers import MessageQueue, SubscriptionData
from remoting.body import Body, body
from remoting.fields import Int32, Int64, wire_name


@body
class TopicOffset(Body):
    """Offsets of one queue, and the time of its last message in milliseconds; 0 without one."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


@body
class TopicStatsTable(Body):
    """Answer to 202: the offsets of each queue of a topic."""

    offset_table: dict[MessageQueue, TopicOffset] = attrs.field(factory=dict)
    topic_put_tps: float = 0.0


@body
class OffsetWrapper(Body):
    """Progress of a group in one queue, and the time of the last consumed message in milliseconds."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


@body
class ConsumeStats(Body):
    """Answer to 208: how far a group has read, queue by queue."""

    offset_table: dict[MessageQueue, OffsetWrapper] = attrs.field(factory=dict)
    consume_tps: float = 0.0


@body
class ConsumeStatsList(Body):
    """Answer to 317: by group, one for each of its topics."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = attrs.field(factory=list)
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


@body
class QueueTimeSpan(Body):
    """Times in milliseconds, -1 where there is no message."""

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0


@body
class ConsumeTimeSpans(Body):
    """Answer to 303: the oldest, newest and consumed times of each queue."""

    consume_time_span_set: list[QueueTimeSpan] = attrs.field(factory=list)


@body
class ConsumeQueueData(Body):
    """One entry of a consume queue."""

    physic_offset: Int64
    physic_size: Int32
    tags_code: Int64
    eval_: bool = wire_name("eval", default=False)
    msg: str | None = None


@body
class QueryConsumeQueueResponseBody(Body):
    """Answer to 321: entries of a consume queue, filtered as asked."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = attrs.field(factory=list)
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0


@body
class BrokerStatsItem(Body):
    """Figures of one span of time: the sum, the sum per second, and the mean per call."""

    sum_: Int64 = wire_name("sum", default=0)
    tps: float = 0.0
    avgpt: float = 0.0


@body
class BrokerStatsData(Body):
    """Answer to 315: a figure's sums over minute, hour and day."""

    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()
