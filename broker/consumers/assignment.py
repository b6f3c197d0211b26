"""Queues shared out by the broker, for consumers that leave it to it: codes 400, 401 and 402.

Every broker of a topic comes to the same shares: they follow from the route and the members alone. A group reads a
topic by pulling; that it should pop it is refused until that is offered.
Source: ``QueryAssignmentProcessor`` and ``MessageRequestModeManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from broker.client.allocation import Allocate, averagely, averagely_by_circle
from broker.consumers.members import Consumers
from broker.groups import GroupTable
from broker.part import QueuesOf
from broker.topics import TopicTable
from broker.topics.names import RETRY_PREFIX
from remoting.bodies.consumers import (
    BROADCASTING,
    MESSAGE_MODELS,
    MessageQueue,
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModes,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    named,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler

PULL: Final = "PULL"
STRATEGIES: Final[dict[str, Allocate]] = {"AVG": averagely, "AVG_BY_CIRCLE": averagely_by_circle}


class Assignments:
    """``saved`` returns when the modes are on disk, or raises ``OSError``."""

    def __init__(self, consumers: Consumers, groups: GroupTable, topics: TopicTable, queues_of: QueuesOf,
                 saved: Callable[[], Awaitable[None]], kept: MessageRequestModes | None = None) -> None:
        self._consumers, self._groups, self._topics, self._queues_of = consumers, groups, topics, queues_of
        self._saved = saved
        self._modes = {topic: dict(groups) for topic, groups in (
            kept or MessageRequestModes()).message_request_mode_map.items()}
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change of a mode."""

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.assign,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    def snapshot(self) -> MessageRequestModes:
        """What ``messageRequestMode.json`` holds."""
        return MessageRequestModes({topic: dict(groups) for topic, groups in self._modes.items()})

    def replace(self, table: MessageRequestModes) -> None:
        """Become what the master has."""
        self._modes = {topic: dict(groups) for topic, groups in table.message_request_mode_map.items()}
        self.on_change()

    def copy(self, answer: bytes) -> None:
        """``replace`` by what a master answered to 402. Raises ``BodyError``."""
        told = MessageRequestModes.from_json(answer)
        if told != self.snapshot():
            self.replace(told)

    async def assign(self, _: Connection, request: Command) -> Command:
        """400. Without an answer to who is there, or what there is, the client keeps what it has."""
        asked = QueryAssignmentRequestBody.from_json(request.body)
        mine = await self._share(asked)
        return response(request, body=QueryAssignmentResponseBody(
            None if mine is None else [MessageQueueAssignment(queue, PULL) for queue in mine]).to_json())

    async def _share(self, asked: QueryAssignmentRequestBody) -> Sequence[MessageQueue] | None:
        queues = await self._queues_of(asked.topic)
        if queues is None or named(asked.message_model, MESSAGE_MODELS, "") == BROADCASTING:
            return queues
        group = self._consumers.groups.get(asked.consumer_group)
        allocate = STRATEGIES.get(asked.strategy_name or "")
        if group is None or allocate is None:
            return None
        return allocate(asked.client_id, queues, group.client_ids())

    async def set_mode(self, _: Connection, request: Command) -> Command:
        """401."""
        asked = MessageRequestMode.from_json(request.body)
        if asked.topic.startswith(RETRY_PREFIX):
            return response(request, ResponseCode.NO_PERMISSION, remark="retry topic is not allowed to set mode")
        if self._topics.get(asked.topic) is None:
            return response(request, ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{asked.topic}] not exist")
        if self._groups.find(asked.consumer_group) is None:
            return response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                            remark="subscription group does not exist")
        if asked.mode != PULL:
            return response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=(
                f"mode {asked.mode} is not supported by this broker; {PULL} is"))
        self._modes.setdefault(asked.topic, {})[asked.consumer_group] = asked
        self.on_change()
        try:
            await self._saved()
        except OSError as error:
            return response(request, ResponseCode.SYSTEM_ERROR, remark=(
                f"done, and kept in memory only: messageRequestMode.json cannot be written, {error}"))
        return response(request)

    def all_modes(self, _: Connection, request: Command) -> Command:
        """402."""
        return response(request, body=self.snapshot().to_json())
