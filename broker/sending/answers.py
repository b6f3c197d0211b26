"""Answers to puts by their status, as one table; and counters of the answers to sends.

Codes and words are Java's; after them comes the reason, if this broker knows more of it.
Source: ``SendMessageProcessor.handlePutMessageResult`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from broker.ha.acks import PutStatus
from broker.rules import Refusal
from broker.standing import REJECTED
from remoting.codes import ResponseCode
from remoting.command import ONEWAY, RESPONSE, Command
from remoting.record import message_ids

if TYPE_CHECKING:
    from broker.puts import PutResult

STORED: Final[Mapping[PutStatus, int]] = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""The message is in the log, and the answer says where; all but the first leave open whether it stays."""

ILLEGAL: Final = ("the message is illegal, maybe msg body or properties length not matched. msg body length limit "
                  "{body_bytes_max}B, msg properties length limit 32KB.")

NOT_STORED: Final[Mapping[PutStatus, tuple[int, str]]] = {
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR, "create mapped file failed, server is busy or broken."),
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, ILLEGAL),
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, "timer message illegal"),
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: (ResponseCode.SYSTEM_ERROR, "timer message is under flow control"),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: (
        ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"),
    PutStatus.TOPIC_GONE: (ResponseCode.TOPIC_NOT_EXIST, "topic not exist, apply first please!"),
    PutStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now."),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"),
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        ResponseCode.LMQ_QUOTA_EXCEEDED, "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]too many light queues"),
    PutStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
    PutStatus.PUT_TO_REMOTE_BROKER_FAIL: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"),
}
_PUT_OK: Final = PutStatus.PUT_OK  # a global is found sooner than a member of an enum, and compared without a hash
_SUCCESS: Final = int(ResponseCode.SUCCESS)
assert STORED.keys() | NOT_STORED.keys() == set(PutStatus)


def refusal(status: PutStatus, body_bytes_max: int, reason: str = "") -> Refusal:
    """The answer to a put that was not written."""
    code, words = NOT_STORED[status]
    words = words.format(body_bytes_max=body_bytes_max)
    return Refusal(code, f"{words} {reason}" if reason else words)


def illegal(reason: str, body_bytes_max: int) -> Refusal:
    return refusal(PutStatus.MESSAGE_ILLEGAL, body_bytes_max, reason)


def too_large(size: int, body_bytes_max: int) -> Refusal:
    """Refuse a body as it comes, not where it is stored: the log's messages go to other queues whatever their size."""
    return illegal(f"body of {size} bytes; {body_bytes_max} are allowed", body_bytes_max)


def no_topic(name: str) -> Refusal:
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")


def forbidden(what: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, f"the {what} sending message is forbidden")


SLAVE: Final = Refusal(ResponseCode.SYSTEM_BUSY, REJECTED)


@attrs.define
class Counters:
    """Sums since this process began; they only ever rise."""

    messages: int = 0
    bytes: int = 0
    """Bytes of the records that were stored."""
    refused: int = 0
    """Sends without a message stored."""
    dead_letters: int = 0
    sent_back: int = 0
    topic_bytes: dict[str, int] = attrs.field(factory=dict)
    """Bytes of records by the topic that was asked for."""
    sent_back_of: dict[str, int] = attrs.field(factory=dict)
    """By ``topic@group``."""


class Answers:
    """Makes the answers to sends, and counts them."""

    def __init__(self, own: Mapping[str, str], store_host: bytes) -> None:
        """``own`` stands in every answer."""
        self.counters = Counters()
        self.body_bytes_max = 0
        self.own, self._store_host = own, store_host
        self._id_front = store_host.hex().upper()

    def refused(self, refused: Refusal) -> Command:
        self.counters.refused += 1
        return Command(refused.code, 0, RESPONSE, dict(self.own), b"", refused.remark)

    def of_put(self, request: Command, result: PutResult, topic: str, queue_id: int, uniq_key: str | None,
               more: Mapping[str, str] | None = None) -> Command:
        """Return the answer to a put. ``queue_id`` was asked for or chosen, wherever the message waits now.

        ``more`` are fields that rules gave."""
        status, puts, remark = result
        code = _SUCCESS if status is _PUT_OK else STORED.get(status)
        if code is None:
            return self.refused(refusal(status, self.body_bytes_max, remark))
        offset, size, queue_offset = puts[0]
        if len(puts) == 1:
            message_id = f"{self._id_front}{offset:016X}"
        else:
            message_id = ",".join(message_ids(self._store_host, [put.offset for put in puts]))
            size = puts[-1].offset + puts[-1].size - offset
        counters, of_topics = self.counters, self.counters.topic_bytes
        counters.messages += len(puts)
        counters.bytes += size
        of_topics[topic] = of_topics.get(topic, 0) + size
        if request.flag & ONEWAY:
            return Command(code)
        ext = {**self.own, "msgId": message_id, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
        if uniq_key:
            ext["transactionId"] = uniq_key
        if more:
            ext |= more
        return Command(code, 0, RESPONSE, ext, b"", remark or None)
