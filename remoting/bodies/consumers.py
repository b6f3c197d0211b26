"""Bodies of the codes about clients and their groups: heartbeats, members, locks, assignments, offsets.

Fields are those of the Java classes; which code carries what stands at each class. Java's enums come by name or by
number: ``named`` makes the name of either.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs

from remoting.body import Body, body
from remoting.fields import Int32, Int64, wire_name

TAG: Final = "TAG"
"""The kind of expression that looks at tags; whatever else there is looks at properties (``SQL92``)."""
ALL: Final = "*"
"""The expression that every message matches."""
CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
BROADCASTING: Final = "BROADCASTING"
CLUSTERING: Final = "CLUSTERING"
MESSAGE_MODELS: Final = (BROADCASTING, CLUSTERING)
CONSUME_FROM_WHERE: Final = (
    "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP")


def named(value: str | None, names: tuple[str, ...], default: str) -> str:
    """One of ``names``, of itself or of its place among them; ``default`` for what is missing or unknown."""
    if value in names:
        return value
    if value is not None and len(value) < 3 and value.isdecimal() and int(value) < len(names):
        return names[int(value)]
    return default


@body
class MessageQueue(Body):
    """One queue of a topic on one broker group; a key of tables, too."""

    topic: str
    broker_name: str
    queue_id: Int32


@body
class SubscriptionData(Body):
    """A group's subscription to a topic. ``code_set`` has the hashes of ``tags_set``, which brokers compare."""

    topic: str
    sub_string: str | None = None
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[Int32] = frozenset()
    sub_version: Int64 = 0
    """When the client made it, in milliseconds."""
    expression_type: str | None = TAG
    class_filter_mode: bool = False
    filter_class_source: str | None = None


@body
class ConsumerData(Body):
    """One group of a heartbeat."""

    group_name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionData] = attrs.field(factory=list)
    unit_mode: bool = False


@body
class ProducerData(Body):
    """One group of a heartbeat."""

    group_name: str


@body
class HeartbeatData(Body):
    """34. With a fingerprint it may come without subscriptions, to a broker that has seen them under it."""

    json_bytes_max: ClassVar[int] = 1 << 20

    client_id: str = wire_name("clientID")
    producer_data_set: list[ProducerData] = attrs.field(factory=list)
    consumer_data_set: list[ConsumerData] = attrs.field(factory=list)
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False


@body
class CheckClientRequestBody(Body):
    """Asks a broker whether it accepts the filter of a subscription (46)."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


@body
class ConsumerIdList(Body):
    """Answer to 38: the members of a group that this broker hears."""

    consumer_id_list: list[str] = attrs.field(factory=list)


@body
class ClientConnection(Body):
    """One client in the answers to 203 and 204."""

    client_id: str
    client_addr: str
    language: str
    version: Int32


@body
class ConsumerConnection(Body):
    """Answer to 203: a group's members, and what it subscribed to."""

    connection_set: list[ClientConnection] = attrs.field(factory=list)
    subscription_table: dict[str, SubscriptionData] = attrs.field(factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


@body
class ProducerConnection(Body):
    """Answer to 204: the clients of a producer group."""

    connection_set: list[ClientConnection] = attrs.field(factory=list)


@body
class ProducerInfo(Body):
    """One producer in the answer to 328."""

    client_id: str
    remote_ip: str = wire_name("remoteIP")
    language: str = "JAVA"
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


@body
class ProducerTableInfo(Body):
    """Answer to 328, by group."""

    data: dict[str, list[ProducerInfo]] = attrs.field(factory=dict)


@body
class GroupList(Body):
    """Answer to 300: the groups that consume a topic."""

    group_list: list[str] = attrs.field(factory=list)


@body
class ConsumerRunningInfo(Body):
    """Answer to 307: what a client says of itself, of its queues and of its rates; these as they come."""

    properties: dict[str, str] = attrs.field(factory=dict)
    mq_table: dict[MessageQueue, Any] = attrs.field(factory=dict)
    subscription_set: list[SubscriptionData] = attrs.field(factory=list)
    mq_pop_table: dict[MessageQueue, Any] = attrs.field(factory=dict)
    status_table: dict[str, Any] = attrs.field(factory=dict)
    user_consumer_info: dict[str, str] = attrs.field(factory=dict)
    jstack: str | None = None


@body
class ConsumeMessageDirectlyResult(Body):
    """Answer to 309: what became of one message given to a client."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0


@body
class QuerySubscriptionResponseBody(Body):
    """Answer to 345: a group's subscription to a topic."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


@body
class LockBatchRequestBody(Body):
    """Locks (41) or unlocks (42) queues that a client consumes in order."""

    consumer_group: str
    client_id: str
    mq_set: list[MessageQueue] = attrs.field(factory=list)
    only_this_broker: bool = False


@body
class LockBatchResponseBody(Body):
    """Answer to 41: the queues that are locked now."""

    lock_ok_mq_set: list[MessageQueue] = wire_name("lockOKMQSet", factory=list)


@body
class QueryAssignmentRequestBody(Body):
    """Asks the broker which queues a client shall consume (400)."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: str | None = None


@body
class MessageQueueAssignment(Body):
    """One queue in the answer to 400."""

    message_queue: MessageQueue
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


@body
class QueryAssignmentResponseBody(Body):
    """Answer to 400. None: the client keeps what it has; an empty list takes everything from it."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


@body
class MessageRequestMode(Body):
    """401: how the members of a group read a topic. ``mode`` is PULL or POP."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: Int32 = 0


@body
class MessageRequestModes(Body):
    """Answer to 402 and ``messageRequestMode.json``: by topic and group."""

    message_request_mode_map: dict[str, dict[str, MessageRequestMode]] = attrs.field(factory=dict)


@body
class GroupForbidden(Body):
    """Answer to 353: whether a group may read a topic."""

    group: str
    topic: str
    readable: bool = True


@body
class ResetOffsetBody(Body):
    """220, and the answer to 222."""

    offset_table: dict[MessageQueue, Int64] = attrs.field(factory=dict)


@body
class QueueOffset(Body):
    """One queue's new position in ``ResetOffsetBodyForC``."""

    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


@body
class ResetOffsetBodyForC(Body):
    """220 for C++ clients, which know no objects as keys."""

    offset_table: list[QueueOffset] = attrs.field(factory=list)


@body
class ConsumerStatus(Body):
    """Answer to 221 (``message_queue_table``) and 223 (``consumer_table``, by client id)."""

    message_queue_table: dict[MessageQueue, Int64] | None = None
    consumer_table: dict[str, Any] | None = None


@body
class CorrectionOffsets(Body):
    """Answer to 308, by queue id."""

    correction_offsets: dict[Int32, Int64] = attrs.field(factory=dict)
