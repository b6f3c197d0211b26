"""Requests 200054 and 200055: tell whether a group has a message to pop, and how many POPs wait.

Neither takes a message. A notification waits as a POP does; when it is answered, another client may already have
popped the message.
Source: ``NotificationProcessor`` and ``PollingInfoProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from broker.again import attempt_of
from broker.consumers.subscriptions import Subscribed
from broker.offsets import OffsetTable
from broker.pop.chain import Checkpoints
from broker.pop.checks import Checks, wanted_of
from broker.pop.progress import Key
from broker.pop.taking import RetryNames, Visit, visits
from broker.pop.waiting import Parking, WaitingRoom
from broker.rules import Refusal
from broker.standing import REJECTED, Standing
from broker.store.consumequeue import ENTRY
from broker.store.messages import StoredMessages
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.popping import (
    NotificationRequest,
    NotificationResponse,
    PollingInfoRequest,
    PollingInfoResponse,
)


@attrs.frozen
class NotifyingConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    use_message_filter_for_notification: bool = True
    max_message_filter_num_for_notification: int = 64


class Notifying:
    """Handles both requests. ``config``, ``checks`` and ``retry_names`` may be replaced at any time. ``ready``: this
    broker may give messages. ``held``: a batch of the queue is out in order, so a request with this attempt id gets
    nothing."""

    def __init__(self, config: NotifyingConfig, checks: Checks, retry_names: RetryNames, *, messages: StoredMessages,
                 offsets: OffsetTable, chain: Checkpoints, room: WaitingRoom, standing: Standing,
                 ready: Callable[[], bool],
                 held: Callable[[Key, str], bool] = lambda key, attempt_id: False,
                 lends: Callable[[], bool] = lambda: False) -> None:
        """``lends`` returns whether this broker is an acting slave that serves POP."""
        self._lends = lends
        self.config, self.checks, self.retry_names = config, checks, retry_names
        self._messages, self._offsets, self._chain, self._room = messages, offsets, chain, room
        self._standing, self._ready, self._held = standing, ready, held
        self._again = attempt_of(self.notify, "a notification")

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.NOTIFICATION: self.notify, RequestCode.POLLING_INFO: self.polling_info}

    def notify(self, connection: Connection, request: Command) -> Command | None:
        """Answer 200054. None: the request waits for a message."""
        if not self._standing.role.takes_puts and not self._lends():
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        asked = NotificationRequest.from_ext(request.ext)
        reader = self.checks.asking("notification", asked.consumer_group, asked.topic, asked.queue_id)
        if isinstance(reader, Refusal):
            return reader.answer(request)
        filters = self.config.use_message_filter_for_notification and asked.exp and asked.exp_type
        wanted = wanted_of(asked.topic, *((asked.exp, asked.exp_type) if filters else (None, None)))
        if isinstance(wanted, Refusal):
            return wanted.answer(request)
        if self._ready() and self._has_message(asked, reader[1].read_queue_nums, wanted):
            return response(request, header=NotificationResponse(True))
        parked = self._room.park(
            connection, request, self._again, topic=asked.topic, group=asked.consumer_group,
            queue_id=max(-1, asked.queue_id), born_ms=asked.born_time, poll_ms=asked.poll_time, wanted=wanted,
            latest=True)
        if parked is Parking.PARKED:
            return None
        return response(request, header=NotificationResponse(False, parked is Parking.FULL))

    def _has_message(self, asked: NotificationRequest, queues: int, wanted: Subscribed) -> bool:
        found = visits(asked.topic, queues, asked.queue_id, None, 0, retry_first=False)
        if asked.order:
            return any(self._has(visit, asked.consumer_group, wanted) and not self._held(
                (visit.topic, asked.consumer_group, visit.queue_id), asked.attempt_id or "") for visit in found)
        if any(self._has(visit, asked.consumer_group, wanted) for visit in found):
            return True
        for name, flag in self.retry_names.readable(asked.topic, asked.consumer_group):
            retry = self.checks.topics.get(name)
            queues = retry.read_queue_nums if retry is not None else 0
            if any(self._has(Visit(name, flag, each), asked.consumer_group) for each in range(queues)):
                return True
        return False

    def _has(self, visit: Visit, group: str, wanted: Subscribed | None = None) -> bool:
        """Return whether the queue has messages that no POP has looked at. Where few are left, one must have a tag that
        is ``wanted``."""
        topic, queue_id = visit.topic.encode(), visit.queue_id
        known = self._offsets.query(group, visit.topic, queue_id)
        floor = self._messages.min_offset(topic, queue_id) if known is None else known
        at = self._chain.where((visit.topic, group, queue_id), floor)[1]
        left, queue = self._messages.max_offset(topic, queue_id) - at, self._messages.queue(topic, queue_id)
        if left <= 0 or queue is None:
            return False
        if wanted is None or wanted.codes is None or at < queue.min_offset or (
                left >= self.config.max_message_filter_num_for_notification):
            return True
        return any(code in wanted.codes for _, _, code in ENTRY.iter_unpack(queue.read(at, left)))

    def polling_info(self, _: Connection, request: Command) -> Command:
        """Answer 200055: POPs that named exactly this queue id, -1 included."""
        asked = PollingInfoRequest.from_ext(request.ext)
        reader = self.checks.asking("polling info", asked.consumer_group, asked.topic, asked.queue_id)
        if isinstance(reader, Refusal):
            return reader.answer(request)
        return response(request, header=PollingInfoResponse(
            self._room.count(asked.topic, asked.consumer_group, asked.queue_id)))
