"""Brokers in memory that serve transactions as Java's do: whoever commits twice delivers twice."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from broker.client.decisions import Decision
from remoting import record as codec
from remoting.bodies.consumers import HeartbeatData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.headers.sending import SendMessageRequestV2, SendMessageResponse
from remoting.headers.transactions import CheckTransactionStateRequest, EndTransactionRequest
from remoting.record import Message
from tests.broker.client.cluster import FakeBroker

PREPARED_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
_BYTES = 100
"""Of a half in the log."""


@attrs.define
class Halves:
    """What all members of a group hold: halves by queue offset, and what became of them."""

    records: list[Message] = attrs.field(factory=list)
    decided: dict[int, Decision] = attrs.field(factory=dict)
    moved: set[int] = attrs.field(factory=set)
    """Those that were put back behind the others."""
    finals: list[str] = attrs.field(factory=list)
    """Message ids, as consumers get them."""
    ended: list[tuple[str, Decision]] = attrs.field(factory=list)
    """All that was told, in its order."""

    def put(self, message: Message) -> int:
        self.records.append(message)
        return len(self.records) - 1

    @property
    def open(self) -> list[int]:
        return [number for number in range(len(self.records)) if number not in self.decided.keys() | self.moved]

    def id_of(self, number: int) -> str:
        return codec.decode_properties(self.records[number].properties)["UNIQ_KEY"]


class HalfBroker(FakeBroker):
    """A master of the group that has these ``halves``."""

    def __init__(self, name: str, halves: Halves | None = None) -> None:
        super().__init__(name)
        self.halves = halves if halves is not None else Halves()
        self.connections: dict[str, Connection] = {}
        """Of producers, by client id."""

    def handlers(self) -> dict[int, Callable[[Connection, Command], Command | None]]:
        return {**super().handlers(), RequestCode.SEND_MESSAGE_V2: self._send_half,
                RequestCode.END_TRANSACTION: self._end, RequestCode.HEART_BEAT: self._greeted}

    def _greeted(self, connection: Connection, command: Command) -> Command:
        data = HeartbeatData.from_json(command.body)
        if data.producer_data_set:
            self.connections[data.client_id] = connection
        return self._beat(connection, command)

    def _send_half(self, connection: Connection, command: Command) -> Command:
        header = SendMessageRequestV2.from_ext(command.ext)
        properties = codec.decode_properties((header.properties or "").encode())
        if properties.get("TRAN_MSG") != "true":
            return self._send(connection, command)
        assert properties["PGROUP"] == header.producer_group and header.sys_flag & codec.PREPARED
        number = self.halves.put(Message(
            header.topic.encode(), command.body, header.queue_id, (header.properties or "").encode(), header.flag,
            header.sys_flag & ~codec.ROLLBACK))
        return response(command, header=SendMessageResponse(
            codec.message_id(PREPARED_HOST, number * _BYTES), 0, number, properties["UNIQ_KEY"]))

    def _end(self, _: Connection, command: Command) -> Command | None:
        header, halves = EndTransactionRequest.from_ext(command.ext), self.halves
        number, decision = header.tran_state_table_offset, Decision(header.commit_or_rollback)
        if decision is Decision.UNDECIDED:
            return None
        if number >= len(halves.records) or header.commit_log_offset != number * _BYTES:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="Find prepared transaction message failed")
        assert header.msg_id == halves.id_of(number) and header.topic == halves.records[number].topic.decode()
        halves.ended.append((halves.id_of(number), decision))
        halves.decided[number] = decision
        if decision is Decision.COMMIT:
            halves.finals.append(halves.id_of(number))
        return response(command)

    def ask(self) -> int:
        """Put each open half back and ask a producer about it; how many were asked."""
        asked = 0
        for number in self.halves.open:
            connection = next((each for each in self.connections.values() if not each.closed), None)
            if connection is None:
                continue
            message = self.halves.records[number]
            self.halves.moved.add(number)
            again = self.halves.put(message)
            header = CheckTransactionStateRequest(
                again, again * _BYTES, self.halves.id_of(number), self.halves.id_of(number),
                codec.message_id(PREPARED_HOST, again * _BYTES), message.topic.decode())
            connection.send(request(
                RequestCode.CHECK_TRANSACTION_STATE, header, codec.encode(message, again, again * _BYTES, 0),
                oneway=True))
            asked += 1
        return asked
