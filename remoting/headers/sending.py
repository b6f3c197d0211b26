"""Headers of the codes that store messages: 310, 320 and 36, and of their answers.

Field names are those of the Java header classes; 310 and 320 have names of one letter on the wire. Code 10 carries the
same fields under their whole names: nothing here sends it, and ``broker.sending.request`` reads it.
"""

from __future__ import annotations

from remoting.header import Header, Int32, Int64, header, wire_name


@header
class SendMessageRequestV2(Header):
    """310, and 320 with ``batch``; ``SendMessageRequestHeaderV2``."""

    topic: str = wire_name("b")
    queue_id: Int32 = wire_name("e")
    producer_group: str = wire_name("a", default="")
    default_topic: str = wire_name("c", default="")
    default_topic_queue_nums: Int32 = wire_name("d", default=4)
    sys_flag: Int32 = wire_name("f", default=0)
    born_timestamp: Int64 = wire_name("g", default=0)
    flag: Int32 = wire_name("h", default=0)
    properties: str | None = wire_name("i", default=None)
    reconsume_times: Int32 | None = wire_name("j", default=None)
    unit_mode: bool | None = wire_name("k", default=None)
    max_reconsume_times: Int32 | None = wire_name("l", default=None)
    batch: bool | None = wire_name("m", default=None)
    broker_name: str | None = wire_name("n", default=None)


@header
class SendMessageResponse(Header):
    """``SendMessageResponseHeader``. A batch has all ``msg_id`` with commas, and the first ``queue_offset``."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str | None = wire_name("MSG_REGION", default=None)
    trace_on: str | None = wire_name("TRACE_ON", default=None)


@header
class ReplyMessageRequest(Header):
    """326, ``ReplyMessageRequestHeader``: the reply as it was sent, from whom, and when it reached the broker."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    born_host: str = ""
    store_host: str = ""
    store_timestamp: Int64 = 0


@header
class ConsumerSendMsgBackRequest(Header):
    """36, ``ConsumerSendMsgBackRequestHeader``. ``offset`` is that of the log; a level below 0: dead letters."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
