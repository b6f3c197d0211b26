"""A slave's copy of its master's tables: topics, groups, consumer offsets, delay offsets, request modes.

At once when a master is followed or its log brings messages of an unknown topic, then every few seconds; topics and
groups are replaced only where their version is another. Consumers that find this broker as their master begin where
the last copy ends, and never behind what they committed here. Codes 21, 201, 43, 45 and 402. Source:
``SlaveSynchronize`` of RocketMQ. Knows tables, and no role.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import attrs
import trio

from broker.store.tables import ConsumerOffsets, DelayOffsets, SubscriptionGroups, Topics
from remoting.bodies.consumers import MessageRequestModes
from remoting.bodies.namesrv import DataVersion, TopicConfigSerializeWrapper
from remoting.client import Client, checked
from remoting.codes import RequestCode
from remoting.command import request
from remoting.errors import BodyError, RemotingError
from remoting.wakeup import Bell

logger = logging.getLogger("broker.sync")

TIMEOUT_MS: Final = 30_000
"""For one table."""
PERIOD_S: Final = 3.0


class Versioned(Protocol):
    """A table that is replaced whole."""

    @property
    def version(self) -> DataVersion: ...


class TopicsCopy(Versioned, Protocol):
    def replace(self, table: Topics) -> None: ...


class GroupsCopy(Versioned, Protocol):
    def replace(self, table: SubscriptionGroups) -> None: ...


class OffsetsCopy(Protocol):
    def merge(self, table: ConsumerOffsets) -> None: ...


class DelaysCopy(Protocol):
    def replace(self, table: DelayOffsets) -> None: ...


class ModesCopy(Protocol):
    def snapshot(self) -> MessageRequestModes: ...

    def replace(self, table: MessageRequestModes) -> None: ...


@attrs.frozen
class Tables:
    """What is copied."""

    topics: TopicsCopy
    groups: GroupsCopy
    offsets: OffsetsCopy
    delays: DelaysCopy
    modes: ModesCopy


class MetadataSync:
    """``follow`` a master, or None; ``run`` it."""

    def __init__(self, client: Client, tables: Tables, *, period_s: float = PERIOD_S) -> None:
        self.done = 0
        """Whole rounds without an error."""
        self._client, self._tables, self._period_s = client, tables, period_s
        self._master: str | None = None
        self._bell = Bell()
        self._scope = trio.CancelScope()
        self._problem = ""

    def follow(self, master_address: str | None) -> None:
        """What is under way from another master is dropped."""
        if master_address != self._master:
            self._master = master_address
            self._scope.cancel()
            self._bell.ring()

    def look(self) -> None:
        """Now, not after the pause: there is reason to believe that the master has something new."""
        if self._master is not None:
            self._bell.ring()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            with trio.move_on_after(self._period_s):
                await self._bell.wait()
            await trio.lowlevel.checkpoint()
            if self._master is not None:
                with trio.CancelScope() as self._scope:
                    await self._round(self._master)

    async def _round(self, master: str) -> None:
        problems = []
        steps: Sequence[Callable[[str], Awaitable[None]]] = (
            self._topics, self._groups, self._offsets, self._delays, self._modes)
        for step in steps:
            try:
                await step(master)
            except (RemotingError, BodyError) as error:
                problems.append(str(error))
        self.done += not problems
        problem = "; ".join(dict.fromkeys(problems))
        if problem != self._problem:
            self._problem = problem
            if problem:
                logger.warning("tables not copied", extra={"master": master, "why": problem})
            else:
                logger.info("tables copied", extra={"master": master})

    async def _ask(self, master: str, code: RequestCode) -> bytes:
        answer = await self._client.call(master, request(code), timeout_ms=TIMEOUT_MS)
        await trio.lowlevel.checkpoint_if_cancelled()  # this broker may be master itself since the turn it came in
        return checked(answer, master).body

    async def _topics(self, master: str) -> None:
        told = TopicConfigSerializeWrapper.from_json(await self._ask(master, RequestCode.GET_ALL_TOPIC_CONFIG))
        if told.data_version != self._tables.topics.version and told.topic_config_table:
            self._tables.topics.replace(Topics(told.topic_config_table, told.data_version))

    async def _groups(self, master: str) -> None:
        told = SubscriptionGroups.from_json(await self._ask(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        if told.data_version != self._tables.groups.version:
            self._tables.groups.replace(told)

    async def _offsets(self, master: str) -> None:
        self._tables.offsets.merge(ConsumerOffsets.from_json(
            await self._ask(master, RequestCode.GET_ALL_CONSUMER_OFFSET)))

    async def _delays(self, master: str) -> None:
        self._tables.delays.replace(DelayOffsets.from_json(await self._ask(master, RequestCode.GET_ALL_DELAY_OFFSET)))

    async def _modes(self, master: str) -> None:
        told = MessageRequestModes.from_json(await self._ask(master, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
        if told != self._tables.modes.snapshot():
            self._tables.modes.replace(told)
