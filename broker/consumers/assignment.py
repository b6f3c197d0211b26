"""Queues shared out by the broker, for consumers that leave it to it: codes 400, 401 and 402.

Every broker of a topic comes to the same shares: they follow from the route, the members and the mode alone. A client
that pulls has its queues for itself; one that pops shares them, with all others or with some of its neighbours.
Source: ``QueryAssignmentProcessor`` and ``MessageRequestModeManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from broker.consumers.members import Consumers
from broker.groups import GroupTable
from broker.part import QueuesOf
from broker.topics import TopicTable
from broker.topics.admin import Saved, when_saved
from broker.topics.names import RETRY_PREFIX
from remoting.allocation import Allocate, averagely, averagely_by_circle, shared
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
from remoting.daemon.keys import key
from remoting.endpoint import Handler
from remoting.errors import BodyError

PULL: Final = "PULL"
POP: Final = "POP"
MODES: Final = (PULL, POP)
STRATEGIES: Final[dict[str, Allocate]] = {"AVG": averagely, "AVG_BY_CIRCLE": averagely_by_circle}


@attrs.frozen(kw_only=True)
class AssignmentKeys:
    """Keys of the broker's configuration."""

    default_message_request_mode: str = key(
        PULL, "how groups read topics for which code 401 said nothing", choices=MODES, live=True)
    default_pop_share_queue_num: int = key(
        -1, "a client that pops shares queues of so many neighbours; -1 or 0: all queues", least=-1, most=(1 << 31) - 1,
        live=True)
    server_load_balancer_enable: bool = key(
        True, "share queues out among clients that ask (code 400); false: each gets all", live=True)


class Assignments:
    """Shares queues out. ``keys`` may be replaced at any time. ``saved`` returns when the modes are on disk, or raises
    ``OSError``."""

    def __init__(self, consumers: Consumers, groups: GroupTable, topics: TopicTable, queues_of: QueuesOf,
                 saved: Saved, kept: MessageRequestModes | None = None) -> None:
        self._consumers, self._groups, self._topics, self._queues_of = consumers, groups, topics, queues_of
        self._saved, self.keys = saved, AssignmentKeys()
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
        """The content of ``messageRequestMode.json``, as it is now."""
        return MessageRequestModes({topic: dict(groups) for topic, groups in self._modes.items()})

    def replace(self, table: MessageRequestModes) -> None:
        """Take over the master's modes."""
        self._modes = {topic: dict(groups) for topic, groups in table.message_request_mode_map.items()}
        self.on_change()

    def copy(self, answer: bytes) -> None:
        """Take over a master's answer to 402. Raises ``BodyError``."""
        told = MessageRequestModes.from_json(answer)
        if told != self.snapshot():
            self.replace(told)

    def join(self, answer: bytes) -> None:
        """Take over modes of a member's answer to 402; others stay. Raises ``BodyError``."""
        told = MessageRequestModes.from_json(answer)
        for topic, groups in told.message_request_mode_map.items():
            self._modes[topic] = {**self._modes.get(topic, {}), **groups}
        self.on_change()

    async def assign(self, _: Connection, request: Command) -> Command:
        """Answer 400. Without known members or a route the answer has no list, and the client keeps its queues."""
        asked = QueryAssignmentRequestBody.from_json(request.body)
        mode = self._mode(asked.topic, asked.consumer_group)
        mine = await self._share(asked, mode)
        return response(request, body=QueryAssignmentResponseBody(None if mine is None else [
            MessageQueueAssignment(queue, mode.mode) for queue in dict.fromkeys(mine)]).to_json())

    def _mode(self, topic: str, group: str) -> MessageRequestMode:
        kept = self._modes.get(topic, {}).get(group)
        if kept is not None:
            return kept
        mode = PULL if topic.startswith(RETRY_PREFIX) else self.keys.default_message_request_mode
        return MessageRequestMode(topic, group, mode, self.keys.default_pop_share_queue_num if mode == POP else 0)

    async def _share(self, asked: QueryAssignmentRequestBody,
                     mode: MessageRequestMode) -> Sequence[MessageQueue] | None:
        queues = await self._queues_of(asked.topic)
        if queues is None or not self.keys.server_load_balancer_enable or (
                named(asked.message_model, MESSAGE_MODELS, "") == BROADCASTING):
            return queues
        group = self._consumers.groups.get(asked.consumer_group)
        allocate = STRATEGIES.get(asked.strategy_name or "")
        if group is None or allocate is None:
            return None
        clients = group.client_ids()
        if mode.mode == POP:
            return shared(allocate, asked.client_id, queues, clients, mode.pop_share_queue_num)
        return allocate(asked.client_id, queues, clients)

    async def set_mode(self, _: Connection, request: Command) -> Command:
        """Code 401: how a group asks for a topic's messages."""
        asked = MessageRequestMode.from_json(request.body)
        mode = named(asked.mode, MODES, "")
        if not mode:
            raise BodyError(f"mode {asked.mode[:40]!r}: PULL or POP is needed")
        if asked.topic.startswith(RETRY_PREFIX):
            return response(request, ResponseCode.NO_PERMISSION, remark="retry topic is not allowed to set mode")
        if self._topics.get(asked.topic) is None:
            return response(request, ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{asked.topic}] not exist")
        if self._groups.find(asked.consumer_group) is None:
            return response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                            remark="subscription group does not exist")
        self._modes.setdefault(asked.topic, {})[asked.consumer_group] = attrs.evolve(asked, mode=mode)
        self.on_change()
        return await when_saved(request, self._saved, "messageRequestMode.json")

    def all_modes(self, _: Connection, request: Command) -> Command:
        """Code 402: the modes of all groups."""
        return response(request, body=self.snapshot().to_json())
