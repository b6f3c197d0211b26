"""Questions to brokers: offsets, messages by id, by key, by time.

A shell: each is one request, or one to each broker of a topic. Source: ``MQAdminImpl`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final, TypeVar

from broker.client.errors import ClientError, MessageIllegal, Refused, Unreachable
from broker.client.message import Received
from broker.client.session import Session
from remoting.address import join_address
from remoting.bodies.consumers import MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.errors import DamagedRecord
from remoting.errors import MessageIllegal as NoSuchId
from remoting.header import Header
from remoting.headers.pulling import OffsetResponse, QueueRequest, SearchOffsetRequest, TimestampResponse
from remoting.headers.queries import QueryMessageRequest, ViewMessageRequest
from remoting.headers.topics import CreateTopicRequest
from remoting.record import Record, decode_all, parse_message_id, unpacked_host

_FOREVER: Final = 2**63 - 1
_Header = TypeVar("_Header", bound=Header)


class Queries:
    """All raise ``Refused``, ``Unreachable``, ``NoRoute`` and ``NoNameServer``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that can be read."""
        return list((await self._session.routes.get(topic)).readable)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will have."""
        return await self._offset(RequestCode.GET_MAX_OFFSET, queue, QueueRequest(queue.topic, queue.queue_id))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that is kept."""
        return await self._offset(RequestCode.GET_MIN_OFFSET, queue, QueueRequest(queue.topic, queue.queue_id))

    async def search_offset(self, queue: MessageQueue, time_ms: int, *, upper: bool = False) -> int:
        """The first message stored at ``time_ms`` or later; ``upper``: the last stored until then."""
        return await self._offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, SearchOffsetRequest(
            queue.topic, queue.queue_id, time_ms, "UPPER" if upper else "LOWER"))

    async def earliest_time(self, queue: MessageQueue) -> int:
        """Milliseconds at which the first message that is kept was stored; -1 without one."""
        header = QueueRequest(queue.topic, queue.queue_id)
        return (await self._ask(TimestampResponse, RequestCode.GET_EARLIEST_MSG_STORETIME, queue, header)).timestamp

    async def view(self, offset_message_id: str) -> Received:
        """The message with that id of a broker's. Raises ``MessageIllegal`` for what is no such id."""
        try:
            host, offset = parse_message_id(offset_message_id)
        except NoSuchId as error:
            raise MessageIllegal(str(error)) from None
        address = join_address(*unpacked_host(host))
        command = request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset))
        answer = await self._session.ask(f"message {offset_message_id}", address, command)
        found = self._received(answer, address, "")
        if not found:
            raise Refused(f"message {offset_message_id}", ResponseCode.QUERY_NOT_FOUND, "no message there", address)
        return found[0]

    async def query(
        self, topic: str, key: str, *, most: int = 32, begin_ms: int = 0, end_ms: int = _FOREVER, unique: bool = False,
    ) -> list[Received]:
        """Messages with that key, or with that ``message_id`` if ``unique``, stored in that time; by store time.

        Brokers that cannot be asked are passed over, unless none can.
        """
        route = await self._session.routes.get(topic)
        header = QueryMessageRequest(topic, key, most, begin_ms, end_ms, unique=unique)
        found: list[Received] = []
        failures: list[ClientError] = []
        for name in sorted(route.brokers):
            member = route.address(name)
            if member is None:
                continue
            try:
                answer = await self._session.ask(
                    f"query of {topic}", member[0], request(RequestCode.QUERY_MESSAGE, header),
                    fine=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND))
            except (Refused, Unreachable) as error:
                failures.append(error)
                continue
            if answer.code == ResponseCode.SUCCESS:
                found += (message for message in self._received(answer, member[0], name)
                          if (message.message_id == key if unique else key in message.keys))
        if failures and len(failures) == len(route.brokers):
            raise failures[0]
        return sorted(found, key=lambda message: message.store_time_ms)[:most]

    async def create_topic(self, topic: str, queues: int = 8) -> None:
        """Make a topic with so many queues on each broker that has the default topic now. It takes a moment until
        routes show it."""
        template = self._session.settings.default_topic
        route = await self._session.routes.get_anew(template)
        for name in sorted(route.brokers):
            address = route.master(name)
            if address is None:
                raise Unreachable(f"{name} has no master to create {topic} at")
            header = CreateTopicRequest(topic, queues, queues, 6, template)
            await self._session.ask(f"topic {topic}", address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        self._session.routes.renew_soon(topic)

    async def _offset(self, code: int, queue: MessageQueue, header: Header) -> int:
        return (await self._ask(OffsetResponse, code, queue, header)).offset

    async def _ask(self, answer: type[_Header], code: int, queue: MessageQueue, header: Header) -> _Header:
        return await self._session.ask_master(answer, f"request {code:d} about {queue}", queue, request(code, header))

    def _received(self, answer: Command, address: str, broker: str) -> list[Received]:
        try:
            records = decode_all(answer.body)
        except DamagedRecord as error:
            raise Refused("messages", answer.code, str(error), address) from None
        bytes_max = self._session.settings.expanded_bytes_max
        return [Received(record, _place(record, broker), bytes_max) for record in records]


def _place(record: Record, broker: str) -> MessageQueue:
    return MessageQueue(record.message.topic.decode(errors="replace"), broker, record.message.queue_id)
