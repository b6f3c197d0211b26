"""Decides which requests waited too long, and how they are refused, with RocketMQ's codes and texts.

RocketMQ has a queue for each kind of request, and a thread that removes what waited too long. Here requests wait in
their connections, while the event loop handles others or a write of the log blocks it.
Source: ``BrokerFastFailure``, ``BrokerController.registerProcessor``, ``SendMessageProcessor.rejectRequest`` and
``DefaultMessageStore.isOSPageCacheBusy`` of RocketMQ 5.5.0. Values only: no clock, no connection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from broker.overload.keys import OverloadKeys
from broker.standing import REJECTED
from remoting.codes import RequestCode as Code
from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.late import Late

SENDS: Final = frozenset(map(int, (
    Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK)))
"""Requests that are refused at once while a write takes too long."""
_QUEUES: Final[Mapping[str, frozenset[int]]] = {
    "wait_time_mills_in_send_queue": SENDS | {int(Code.RECALL_MESSAGE)},
    "wait_time_mills_in_pull_queue": frozenset(map(int, (
        Code.PULL_MESSAGE, Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.NOTIFICATION, Code.POLLING_INFO))),
    "wait_time_mills_in_lite_pull_queue": frozenset({int(Code.LITE_PULL_MESSAGE)}),
    "wait_time_mills_in_heartbeat_queue": frozenset({int(Code.HEART_BEAT)}),
    "wait_time_mills_in_transaction_queue": frozenset({int(Code.END_TRANSACTION)}),
    "wait_time_mills_in_ack_queue": frozenset(map(int, (
        Code.ACK_MESSAGE, Code.BATCH_ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME))),
}
PATIENT: Final = frozenset(map(int, (
    Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID,
    Code.UNREGISTER_CLIENT, Code.CHECK_CLIENT_CONFIG, Code.GET_CONSUMER_LIST_BY_GROUP, Code.UPDATE_CONSUMER_OFFSET,
    Code.QUERY_CONSUMER_OFFSET, Code.QUERY_ASSIGNMENT, Code.SET_MESSAGE_REQUEST_MODE)))
"""Requests that are carried out however long they waited."""


class Overload(Late):
    """Refuses late requests. Call ``configure`` first. Times are seconds of the loop's clock."""

    def __init__(self, patient: Iterable[int] = ()) -> None:
        """``patient``: further codes of requests that may wait without limit."""
        self._patient = PATIENT.union(patient)
        self._wait_s: dict[int, float] = {}
        self._else_s = self._busy_s = math.inf
        self._throws_out = False
        self._busy_from = self._busy_until = -math.inf
        """Begin and end of the last slow write, from when it exceeded its limit."""
        self._patience_s = math.inf

    def configure(self, keys: OverloadKeys) -> None:
        """Use these keys from now on."""
        self._throws_out = keys.broker_fast_failure_enable
        self._busy_s = keys.os_page_cache_busy_time_out_mills / 1e3
        self._wait_s = {code: getattr(keys, name) / 1e3 for name, codes in _QUEUES.items() for code in codes}
        self._wait_s.update(dict.fromkeys(self._patient, math.inf))
        self._else_s = keys.wait_time_mills_in_admin_broker_queue / 1e3
        self._patience_s = min(self._else_s, *self._wait_s.values()) if self._throws_out else math.inf
        self.calm()

    def wrote(self, began: float, ended: float) -> None:
        """A write of the log blocked the loop from ``began`` to ``ended``; requests of that time are handled next."""
        if ended - began > self._busy_s:
            self._busy_from, self._busy_until = began + self._busy_s, ended
            self.after_s = 0.0

    def calm(self) -> None:
        """The requests of the slow write are handled: from now on only late ones are looked at."""
        self.after_s = self._patience_s

    def answer(self, request: Command, came_at: float, waited_s: float, under_way: int) -> Command | None:
        code = request.code
        if came_at < self._busy_until and code in SENDS:
            if came_at >= self._busy_from:
                return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
            if self._throws_out:
                return _thrown_out(request, "PCBUSY", waited_s, under_way)
        if self._throws_out and waited_s >= self._wait_s.get(code, self._else_s):
            return _thrown_out(request, "TIMEOUT", waited_s, under_way)
        return None


def _thrown_out(request: Command, why: str, waited_s: float, under_way: int) -> Command:
    return response(request, ResponseCode.SYSTEM_BUSY, remark=(
        f"[{why}_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {waited_s * 1e3:.0f}ms, "
        f"size of queue: {under_way}"))
