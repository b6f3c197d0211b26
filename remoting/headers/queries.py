"""Headers of the codes that look at messages and queues without consuming.

Field names are those of the Java classes.
"""

from __future__ import annotations

from remoting.header import Header, Int32, Int64, header, wire_name


@header
class TopicRequest(Header):
    """202: a topic's offsets; 300: the groups that consume it."""

    topic: str


@header
class QueryMessageRequest(Header):
    """12: messages by key, between two times in milliseconds."""

    topic: str
    key: str
    max_num: Int32 = 32
    begin_timestamp: Int64 = 0
    end_timestamp: Int64 = 2**63 - 1
    index_type: str | None = None
    """K key (when it is missing), U unique id, T tag: since 5.5.0."""
    last_key: str | None = None
    unique: bool = wire_name("_UNIQUE_KEY_QUERY", default=False)


@header
class QueryMessageResponse(Header):
    """Answer to 12; body: records."""

    index_last_update_timestamp: Int64 = 0
    index_last_update_phyoffset: Int64 = 0


@header
class ViewMessageRequest(Header):
    """33: an offset of the commit log. The answer's body is one record."""

    offset: Int64


@header
class GetConsumeStatsRequest(Header):
    """208: how far a group has read."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    """Separated by semicolons."""


@header
class QueryConsumeQueueRequest(Header):
    """321: ``count`` entries from queue offset ``index`` on."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


@header
class ViewBrokerStatsRequest(Header):
    """315: one of the figures that a broker keeps."""

    stats_name: str
    stats_key: str


@header
class GetBrokerConsumeStatsRequest(Header):
    """317: of ordered topics alone, or of all."""

    is_order: bool = False
