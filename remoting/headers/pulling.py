"""Headers of the codes that read messages and keep consumers' offsets. Field names are those of the Java classes."""

from __future__ import annotations

from typing import Final

from remoting.header import Header, Int32, Int64, header

COMMIT_OFFSET: Final = 1
"""Bits of ``PullMessageRequest.sys_flag``: ``commit_offset`` is to be stored."""
SUSPEND: Final = 2
"""Wait for a message, up to ``suspend_timeout_millis``."""
SUBSCRIPTION: Final = 4
"""The filter comes with the request; without it the one of the heartbeat holds."""


@header
class PullMessageRequest(Header):
    """11 and 361. ``queue_offset`` is the first wanted; ``sub_version`` says which subscription the client means."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32 = 32
    sys_flag: Int32 = 0
    commit_offset: Int64 = 0
    suspend_timeout_millis: Int64 = 0
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None


@header
class PullMessageResponse(Header):
    """Answer to 11 and 361; body: records, one behind the other, as they stand in the log."""

    suggest_which_broker_id: Int64 = 0
    next_begin_offset: Int64 = 0
    min_offset: Int64 = 0
    max_offset: Int64 = 0
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
    """With NO_PERMISSION: 1 broker, 2 group, 3 topic, 4 broadcasting, 5 this group for this topic."""


@header
class QueryConsumerOffsetRequest(Header):
    """14: a group's position in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@header
class UpdateConsumerOffsetRequest(Header):
    """15: sets a group's position in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@header
class QueueRequest(Header):
    """A queue's end (30), begin (31) or its oldest message's time (32)."""

    topic: str
    queue_id: Int32


@header
class SearchOffsetRequest(Header):
    """29. ``timestamp`` in milliseconds; ``boundary_type`` is LOWER or UPPER."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


@header
class OffsetResponse(Header):
    """Answer to 14, 29, 30 and 31."""

    offset: Int64


@header
class TimestampResponse(Header):
    """Answer to 32: milliseconds, -1 without a message."""

    timestamp: Int64
