"""Headers of the codes by which consumers pop messages, acknowledge them and wait for them. Names are Java's.

Their codes are beyond 16 bits, so they travel with JSON headers alone. What the texts in them mean says
``remoting.receipts``.
"""

from __future__ import annotations

from typing import Final

from remoting.header import Header, Int32, Int64, header

FROM_MIN: Final = 0
"""``PopMessageRequest.init_mode``: a group without an offset begins with the first message of a queue."""
FROM_MAX: Final = 1
"""It begins with the last one."""
ALL_QUEUES: Final = -1
"""A ``queue_id`` that stands for every queue of the topic."""


@header
class PopMessageRequest(Header):
    """200050. Times in milliseconds; ``poll_time`` is how long it may wait, ``born_time`` 0 is the moment it came."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0
    init_mode: Int32 = FROM_MIN
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    """With ``order``: a repeated request with the same id gets the same messages again."""


@header
class PopMessageResponse(Header):
    """Answer to 200050 and 200052; body: records, one behind the other."""

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
    rest_num: Int64 = 0
    """Messages that the group has not got, of the queues that were looked at."""
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@header
class PeekMessageRequest(Header):
    """200052: the same messages are there for the next one who asks."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32


@header
class AckMessageRequest(Header):
    """200051: done with the message at ``offset``; ``topic`` is the one that it stands in, a retry topic perhaps."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


@header
class ChangeInvisibleTimeRequest(Header):
    """200053: the message comes back ``invisible_time`` milliseconds from now unless it is acknowledged before."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool | None = None
    """It then comes back without having failed once more."""


@header
class ChangeInvisibleTimeResponse(Header):
    """With these three the receipt is written anew."""

    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0


@header
class NotificationRequest(Header):
    """200054: is there a message for the group? Waits as a pop does, and takes nothing."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


@header
class NotificationResponse(Header):
    has_msg: bool = False
    polling_full: bool = False


@header
class PollingInfoRequest(Header):
    """200055: how many pops of exactly this queue id wait."""

    consumer_group: str
    topic: str
    queue_id: Int32


@header
class PollingInfoResponse(Header):
    polling_num: Int32 = 0
