"""How each status of a put is answered, as one table.

Codes and words are Java's; behind them stands what this broker knows of the reason.
Source: ``SendMessageProcessor.handlePutMessageResult`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from broker.ha.acks import PutStatus
from broker.standing import REJECTED
from remoting.codes import ResponseCode


@attrs.frozen
class Refusal:
    """Nothing was put: the code and the words of the answer."""

    code: int
    remark: str


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
    PutStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now."),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"),
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        ResponseCode.LMQ_QUOTA_EXCEEDED, "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]too many light queues"),
    PutStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
    PutStatus.PUT_TO_REMOTE_BROKER_FAIL: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR DEFAULT"),
}
assert STORED.keys() | NOT_STORED.keys() == set(PutStatus)


def refusal(status: PutStatus, body_bytes_max: int, reason: str = "") -> Refusal:
    """Of a put that was not written."""
    code, words = NOT_STORED[status]
    words = words.format(body_bytes_max=body_bytes_max)
    return Refusal(code, f"{words} {reason}" if reason else words)


SLAVE: Final = Refusal(ResponseCode.SYSTEM_BUSY, REJECTED)
