"""The header of code 10, which the broker takes and our client never sends. It knows fields, and no broker."""

from __future__ import annotations

from remoting.header import Header, Int32, Int64, header


@header
class SendMessageRequest(Header):
    """10, ``SendMessageRequestHeader``; the body is the message's. A ``queue_id`` below 0: the broker chooses."""

    topic: str
    queue_id: Int32
    producer_group: str = ""
    default_topic: str = ""
    default_topic_queue_nums: Int32 = 4
    sys_flag: Int32 = 0
    born_timestamp: Int64 = 0
    flag: Int32 = 0
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None
