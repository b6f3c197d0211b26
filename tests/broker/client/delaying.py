"""Brokers in memory that keep messages with a time of their own apart, and forget what is recalled."""

from __future__ import annotations

import base64
from collections.abc import Callable

from broker.client.handles import read_handle
from remoting import record as codec
from remoting.codes import RequestCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.headers.sending import SendMessageRequestV2, SendMessageResponse
from remoting.headers.transactions import RecallMessageRequest, RecallMessageResponse
from tests.broker.client.cluster import FakeBroker


def handle(topic: str = "orders", broker: str = "a", due_ms: int = 1_000, message_id: str = "ID") -> str:
    """As a broker makes it."""
    return base64.urlsafe_b64encode(f"v1 {topic} {broker} {due_ms} {message_id}".encode()).decode()


class DelayingBroker(FakeBroker):
    """Nothing that waits is ever due."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.waiting: dict[str, dict[str, str]] = {}
        """Properties, by message id."""

    def handlers(self) -> dict[int, Callable[[Connection, Command], Command | None]]:
        return {**super().handlers(), RequestCode.RECALL_MESSAGE: self._recall}

    def _send(self, connection: Connection, command: Command) -> Command:
        header = SendMessageRequestV2.from_ext(command.ext)
        properties = codec.decode_properties((header.properties or "").encode())
        if properties.keys().isdisjoint(("TIMER_DELAY_MS", "TIMER_DELIVER_MS")):
            return super()._send(connection, command)
        message_id = properties["UNIQ_KEY"]
        self.waiting[message_id] = properties
        return response(command, header=SendMessageResponse(
            "0" * 32, 0, len(self.waiting), recall_handle=handle(header.topic, self.name, 9, message_id)))

    def _recall(self, _: Connection, command: Command) -> Command:
        asked = read_handle(RecallMessageRequest.from_ext(command.ext).recall_handle)
        if self.waiting.pop(asked.message_id, None) is None:
            return response(command, 604, remark="recall failed, timestamp invalid")
        return response(command, header=RecallMessageResponse(asked.message_id))
