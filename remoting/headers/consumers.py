"""Headers of the codes about consumer groups, their members and what those know.

34, 41, 42, 46, 328, 400 and 401 have only bodies, except for fields that our brokers tell each other. Field names are
those of the Java classes.
"""

from __future__ import annotations

from remoting.header import Header, Int32, Int64, header, wire_name


@header
class HeartbeatResponse(Header):
    """Answer to 34, a heartbeat: what the next one must bring."""

    is_support_heart_beat_v2: bool = wire_name("IS_SUPPORT_HEART_BEAT_V2", default=True)
    """The next heartbeats may come without subscriptions."""
    is_sub_change: bool = wire_name("IS_SUB_CHANGE", default=False)
    """The next one must bring them."""


@header
class UnregisterClientRequest(Header):
    """35: a client leaves its groups."""

    client_id: str = wire_name("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@header
class ConsumerGroupRequest(Header):
    """38 and 203; 40, from the broker to the members of a group."""

    consumer_group: str


@header
class ProducerGroupRequest(Header):
    """204: who produces in a group."""

    producer_group: str


@header
class DeleteSubscriptionGroupRequest(Header):
    """207: removes a group, with its positions if wanted."""

    group_name: str
    clean_offset: bool = False


@header
class GroupRequest(Header):
    """343: the topics of a group; 352: its configuration."""

    group: str


@header
class TopicGroupRequest(Header):
    """303: a group's times in a topic; 345: its subscription."""

    topic: str
    group: str


@header
class GetAllSubscriptionGroupRequest(Header):
    """201. A broker before 5.4 sends none of them, and wants all."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    """JSON of the ``DataVersion`` that the pages before had."""
    max_group_num: Int32 | None = None


@header
class GetAllSubscriptionGroupResponse(Header):
    """Answer to 201: the number of all groups."""

    total_group_num: Int32 | None = None


@header
class UpdateGroupForbiddenRequest(Header):
    """353. Without ``readable`` it only asks."""

    group: str
    topic: str
    readable: bool | None = None


@header
class ResetOffsetRequest(Header):
    """222 to the broker, 220 from it to a consumer. ``timestamp`` in milliseconds, negative for the end."""

    topic: str
    group: str
    queue_id: Int32 = -1
    """-1: all of them."""
    offset: Int64 | None = None
    """Instead of the time, of one queue."""
    timestamp: Int64 = -1
    is_force: bool = False
    """Forward as well."""


@header
class GetConsumerStatusRequest(Header):
    """223 to the broker, 221 from it to a consumer; the answers have a ``ConsumerStatus``."""

    topic: str
    group: str
    client_addr: str | None = None
    """The id of one client, in spite of the name."""


@header
class CloneGroupOffsetRequest(Header):
    """314: copies a group's positions to another group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@header
class QueryCorrectionOffsetRequest(Header):
    """308: the smallest positions of other groups in a topic."""

    topic: str
    compare_group: str | None = None
    filter_groups: str | None = None
    """Separated by commas: not to be looked at."""


@header
class ConsumerClientRequest(Header):
    """307 and 309, which the broker passes on to the client; other fields go along unread."""

    consumer_group: str
    client_id: str
    topic: str | None = None
    msg_id: str | None = None
    jstack_enable: bool | None = None


@header
class LockBatchRequest(Header):
    """41 and 42, with ``onlyThisBroker``, between brokers of ours; Java's pass these fields over."""

    copied: bool = False
    """41: the sender has granted these queues: this is word of it, and no question."""
    given_back: str | None = None
    """42: which grants (``broker.locks.quorum.written``) are as if they had not been; other locks stay."""


@header
class LockBatchResponse(Header):
    """Answer to 41 with ``onlyThisBroker``, between brokers of ours."""

    newly_locked: str | None = None
    """Which of the queues the client did not hold before, each with its grant: ``broker.locks.quorum.written``."""
    renewed: str | None = None
    """The same, of those that it held."""
