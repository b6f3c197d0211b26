"""Requests that brokers send to clients: members of a group changed, go on elsewhere, say how you are; and to
producers: what became of a transaction, and here is a reply.

A table of handlers over what the session has of each. Source: ``ClientRemotingProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.client.message import PRODUCER_GROUP
from broker.client.session import Session
from remoting.bodies.consumers import ConsumerStatus, MessageQueue, ResetOffsetBody, ResetOffsetBodyForC
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import BodyError
from remoting.headers.consumers import (
    ConsumerClientRequest,
    ConsumerGroupRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from remoting.headers.sending import ReplyMessageRequest
from remoting.headers.transactions import CheckTransactionStateRequest
from remoting.record import decode, property_of


class Pushes:
    """Handles brokers' requests. ``session`` is set before anything is read from a broker."""

    session: Session

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
            RequestCode.CHECK_TRANSACTION_STATE: self._check,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._reply,
        }

    def _members_changed(self, _: Connection, command: Command) -> Command:
        consumer = self.session.consumers.get(ConsumerGroupRequest.from_ext(command.ext).consumer_group)
        if consumer is not None:
            consumer.rebalance_soon()
        return response(command)

    def _reset(self, _: Connection, command: Command) -> Command:
        header = ResetOffsetRequest.from_ext(command.ext)
        consumer = self.session.consumers.get(header.group)
        if consumer is None:
            return _no_group(command, header.group)
        try:
            offsets = dict(ResetOffsetBody.from_json(command.body).offset_table)
        except BodyError:
            listed = ResetOffsetBodyForC.from_json(command.body).offset_table
            offsets = {MessageQueue(each.topic, each.broker_name, each.queue_id): each.offset for each in listed}
        consumer.reset({queue: offset for queue, offset in offsets.items() if queue.topic == header.topic})
        return response(command)

    def _status(self, _: Connection, command: Command) -> Command:
        header = GetConsumerStatusRequest.from_ext(command.ext)
        consumer = self.session.consumers.get(header.group)
        if consumer is None:
            return _no_group(command, header.group)
        return response(command, body=ConsumerStatus(consumer.positions(header.topic)).to_json())

    def _running(self, _: Connection, command: Command) -> Command:
        group = ConsumerClientRequest.from_ext(command.ext).consumer_group
        consumer = self.session.consumers.get(group)
        if consumer is None:
            return _no_group(command, group)
        return response(command, body=consumer.running_info())

    def _consume(self, _: Connection, command: Command) -> Command | Coroutine[Any, Any, Command]:
        group = ConsumerClientRequest.from_ext(command.ext).consumer_group
        consumer = self.session.consumers.get(group)
        if consumer is None:
            return _no_group(command, group)

        async def consume() -> Command:
            return response(command, body=await consumer.consume_directly(command.body, command.ext.get("brokerName")))

        return consume()

    def _check(self, connection: Connection, command: Command) -> Command | None:
        """Have a transaction checked. The request is one-way: a broker that hears nothing asks again."""
        header, session = CheckTransactionStateRequest.from_ext(command.ext), self.session
        record = decode(command.body)
        group = property_of(record.message.properties, PRODUCER_GROUP.encode())
        if session.asked is not None and group == session.producer_group.encode():
            session.asked.check(connection, header, record)
        return response(command)

    def _reply(self, _: Connection, command: Command) -> Command:
        """Take a reply, even if nobody waits for it any more: the broker could do nothing else with it."""
        if self.session.requests is not None:
            self.session.requests.take(ReplyMessageRequest.from_ext(command.ext), command.body)
        return response(command)


def _no_group(command: Command, group: str) -> Command:
    return response(command, ResponseCode.SYSTEM_ERROR, remark=f"this client has no consumer in group {group!r}")
