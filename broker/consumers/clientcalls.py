"""Passes administrators' requests on to a client: codes 307, 309, 223 (221 to the client) and pushes of 220.

Source: ``AdminBrokerProcessor.callConsumer`` and ``Broker2Client`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Any, Final

from broker.consumers.members import Consumers, Member
from broker.groups import GroupTable
from broker.standing import Standing
from broker.store.errors import StoreError
from broker.store.log import Log
from broker.topics import TopicTable
from remoting.bodies.consumers import ConsumerStatus, MessageQueue, QueueOffset, ResetOffsetBody, ResetOffsetBodyForC
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import BodyError, ConnectionClosed, DamagedRecord, MessageIllegal, RemotingError, RequestTimeout
from remoting.headers.consumers import ConsumerClientRequest, GetConsumerStatusRequest, ResetOffsetRequest
from remoting.record import parse_message_id

TIMEOUT_MS: Final = 10_000
STATUS_TIMEOUT_MS: Final = 5_000
PUSHES_SINCE: Final = 28
"""Version of clients that understand 220 and 221 (``V3_0_7_SNAPSHOT``)."""
RELAYED_SINCE: Final = 62
"""Version of clients that understand 307 and 309 (``V3_1_8_SNAPSHOT``)."""


class ClientCalls:
    """Knows clients by group and id."""

    def __init__(self, consumers: Consumers, *, groups: GroupTable, topics: TopicTable, log: Log,
                 standing: Standing) -> None:
        self._consumers, self._groups, self._topics = consumers, groups, topics
        self._log, self._standing = log, standing

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
        }

    # --- one client ------------------------------------------------------------------------------------------

    async def running_info(self, _: Connection, command: Command) -> Command:
        """Code 307: a consumer tells what it does."""
        return await self._call(command, ConsumerClientRequest.from_ext(command.ext), command.ext, command.body)

    async def consume_directly(self, _: Connection, command: Command) -> Command:
        """309: the client gets the message, and what its group and topic are."""
        asked = ConsumerClientRequest.from_ext(command.ext)
        ext = {**command.ext, "brokerName": self._standing.broker_name}
        topic, group = self._topics.get(asked.topic or ""), self._groups.get(asked.consumer_group)
        if topic is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        if group is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        try:
            offset = parse_message_id(asked.msg_id or "")[1]
            body = self._log.read(offset, self._log.record(offset).size)
        except (MessageIllegal, StoreError, DamagedRecord) as error:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=str(error))
        return await self._call(command, asked, ext, body)

    async def _call(self, command: Command, asked: ConsumerClientRequest, ext: dict[str, str], body: bytes) -> Command:
        group, client_id = asked.consumer_group, asked.client_id
        member = self._consumers.member(group, client_id)
        if member is None:
            return response(command, ResponseCode.SYSTEM_ERROR,
                            remark=f"The Consumer <{group}> <{client_id}> not online")
        if member.version < RELAYED_SINCE:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=(
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please upgrade it to "
                "V3_1_8_SNAPSHOT"))
        try:
            return await member.connection.call(Command(command.code, ext=dict(ext), body=body), TIMEOUT_MS)
        except RequestTimeout as error:
            return response(command, ResponseCode.CONSUME_MSG_TIMEOUT,
                            remark=f"consumer <{group}> <{client_id}> Timeout: {error}")
        except RemotingError as error:
            return response(command, ResponseCode.SYSTEM_ERROR,
                            remark=f"invoke consumer <{group}> <{client_id}> Exception: {error}")

    # --- all clients of a group ------------------------------------------------------------------------------

    async def status(self, _: Connection, command: Command) -> Command:
        """223: how far each client, or the one that is named, is in its queues. Those that do not answer are left out.
        """
        asked = GetConsumerStatusRequest.from_ext(command.ext)
        members = self._members(asked.group)
        if not members:
            return response(command, ResponseCode.SYSTEM_ERROR,
                            remark=f"No Any Consumer online in the consumer group: [{asked.group}]")
        if (fault := _too_old(members)) is not None:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=fault)
        found: dict[str, Any] = {}
        for member in members:
            if asked.client_addr and asked.client_addr.strip() and member.client_id != asked.client_addr:
                continue
            header = GetConsumerStatusRequest(asked.topic, asked.group)
            try:
                answer = await member.connection.call(
                    request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header), STATUS_TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    table = ConsumerStatus.from_json(answer.body).message_queue_table
                    found[member.client_id] = ConsumerStatus(table or {}).to_plain()["messageQueueTable"]
            except (RemotingError, BodyError):  # that client is left out
                continue
        return response(command, body=ConsumerStatus(consumer_table=found).to_json())

    def push_reset(self, asked: ResetOffsetRequest, offsets: dict[MessageQueue, int], *, as_list: bool) -> str | None:
        """220 to all members of a group; in words, why that cannot be done."""
        members = self._members(asked.group)
        if not members:
            return (f"Consumer not online, so can not reset offset, Group: {asked.group} Topic: {asked.topic} "
                    f"Timestamp: {asked.timestamp}")
        if (fault := _too_old(members)) is not None:
            return fault
        body = ResetOffsetBody(offsets).to_json() if not as_list else ResetOffsetBodyForC([
            QueueOffset(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in offsets.items()
        ]).to_json()
        header = ResetOffsetRequest(asked.topic, asked.group, timestamp=asked.timestamp)
        for member in members:
            try:
                member.connection.send(
                    request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body, oneway=True))
            except ConnectionClosed:  # the client asks for its offset when it comes back
                continue
        return None

    def is_subscribed(self, group: str, topic: str) -> bool:
        """Return whether the group subscribes to the topic."""
        return self._consumers.is_subscribed(group, topic)

    def _members(self, group: str) -> list[Member]:
        found = self._consumers.groups.get(group)
        return list(found.members.values()) if found is not None else []


def _too_old(members: list[Member]) -> str | None:
    for member in members:
        if member.version < PUSHES_SINCE:
            return f"the client does not support this feature. version={member.version}"
    return None
