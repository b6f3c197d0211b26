"""Producers of transactions beside whole brokers in virtual time: what they send, are asked, and answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import attrs
import trio

from broker.transactions.feeding import PATH
from broker.transactions.part import TransactionsPart
from harness.simulation.worlds.brokers import Cluster, Node, wall_ms
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.bodies.consumers import HeartbeatData, ProducerData
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.headers.transactions import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    ResumeCheckHalfMessageRequest,
)
from remoting.record import (
    COMMIT,
    PREPARED,
    ROLLBACK,
    Record,
    decode,
    decode_properties,
    encode_properties,
    message_id,
    parse_message_id,
)

FAST = {"transactionTimeOut": "1000", "transactionCheckInterval": "2000"}
GROUP = "shop"
NOTHING: Mapping[str, str] = MappingProxyType({})


@attrs.frozen
class Place:
    """Of a half, as its producer knows it."""

    offset: int
    queue_offset: int


def place_of(answer: Command) -> Place:
    """Of the half that this answer to a send is about."""
    return Place(parse_message_id(answer.ext["msgId"])[1], int(answer.ext["queueOffset"]))


@attrs.frozen
class Check:
    """What the broker asked."""

    place: Place
    record: Record
    asked: CheckTransactionStateRequest
    at_s: float


@attrs.define(eq=False)
class Producer:
    client: Client
    address: str
    checks: list[Check] = attrs.field(factory=list)
    decision: int | None = None
    """Answered to every check."""
    uniques: dict[Place, str] = attrs.field(factory=dict)
    """The transactions whose halves it sent."""

    def asked(self, connection: Connection, command: Command) -> None:
        header = CheckTransactionStateRequest.from_ext(command.ext)
        place = Place(header.commit_log_offset, header.tran_state_table_offset)
        self.uniques[place] = header.transaction_id or ""
        self.checks.append(Check(place, decode(command.body), header, trio.current_time()))
        if self.decision is not None:
            connection.send(request(RequestCode.END_TRANSACTION, self.header(place, self.decision, checked=True),
                                    oneway=True))

    async def beat(self, group: str = GROUP) -> None:
        body = HeartbeatData(f"p@{group}", [ProducerData(group)]).to_json()
        assert (await self.client.call(self.address, request(RequestCode.HEART_BEAT, body=body))).code == 0

    async def send(self, body: bytes = b"paid", *, unique: str = "U1", topic: str = "T", queue: int = 0,
                   sys_flag: int = PREPARED, group: str | None = GROUP,
                   values: Mapping[str, str] = NOTHING, born_ago_ms: int = 0) -> Command:
        values = {"UNIQ_KEY": unique, "TRAN_MSG": "true", **values}
        if group is not None:
            values["PGROUP"] = group
        header = SendMessageRequest(
            producer_group=group or "", topic=topic, default_topic="TBW102", default_topic_queue_nums=4,
            queue_id=queue, born_timestamp=wall_ms() - born_ago_ms, properties=encode_properties(values).decode(),
            reconsume_times=0, unit_mode=False, batch=False, sys_flag=sys_flag)
        return await self.client.call(self.address, request(RequestCode.SEND_MESSAGE, header, body))

    async def half(self, body: bytes = b"paid", *, unique: str = "U1", topic: str = "T", queue: int = 0,
                   **properties: str) -> Place:
        answer = await self.send(body, unique=unique, topic=topic, queue=queue, values=properties)
        assert answer.code == ResponseCode.SUCCESS, answer
        assert answer.ext["transactionId"] == unique
        self.uniques[place_of(answer)] = unique
        return place_of(answer)

    def header(self, place: Place, decision: int, *, checked: bool = False,
               group: str = GROUP) -> EndTransactionRequest:
        unique = self.uniques.get(place)
        return EndTransactionRequest(group, place.queue_offset, place.offset, decision, checked, "id", unique)

    async def end(self, place: Place, decision: int, *, checked: bool = False, group: str = GROUP) -> Command:
        """As Java's, but that it wants an answer."""
        return await self.client.call(self.address, request(
            RequestCode.END_TRANSACTION, self.header(place, decision, checked=checked, group=group)))

    async def commit(self, place: Place) -> None:
        assert (await self.end(place, COMMIT)).code == ResponseCode.SUCCESS

    async def roll_back(self, place: Place) -> None:
        assert (await self.end(place, ROLLBACK)).code == ResponseCode.SUCCESS

    async def resume(self, record: Record) -> Command:
        header = ResumeCheckHalfMessageRequest(message_id(record.message.store_host, record.offset))
        return await self.client.call(self.address, request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))


@asynccontextmanager
async def producer(made: Cluster, node: Node, name: str = "p", *, beat: bool = True) -> AsyncGenerator[Producer, None]:
    held: list[Producer] = []

    def asked(connection: Connection, command: Command) -> Command | None:
        held[0].asked(connection, command)
        return None

    async with open_client(connector=made.network.connector(f"{name}:1"),
                           handlers={RequestCode.CHECK_TRANSACTION_STATE: asked}) as client:
        held.append(Producer(client, node.address))
        if beat:
            await held[0].beat()
        yield held[0]


def records(node: Node, topic: str = "T", queue: int = 0) -> list[Record]:
    """What consumers see there."""
    messages, found = node.broker.journal.messages, list[Record]()
    at = messages.min_offset(topic.encode(), queue)
    while raw := messages.get(topic.encode(), queue, at):
        found += [decode(each) for each in raw]
        at = found[-1].queue_offset + 1
    return found


def bodies(node: Node, topic: str = "T", queue: int = 0) -> list[bytes]:
    return [each.message.body for each in records(node, topic, queue)]


def values(record: Record) -> dict[str, str]:
    return decode_properties(record.message.properties)


def transactions(node: Node) -> TransactionsPart:
    return node.broker.parts[TransactionsPart]


def without_a_checkpoint(node: Node) -> None:
    """Delete the file of open transactions, and the one before it, of a broker that does not run."""
    for path in (PATH, f"{PATH}.bak"):
        node.store.remove(path)
