"""The part of connected clients: heartbeats, locks on queues, shares of queues, and requests for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from broker.config import BrokerConfig, pick
from broker.consumers.assignment import AssignmentKeys, Assignments
from broker.consumers.clientcalls import ClientCalls
from broker.consumers.heartbeats import Heartbeats
from broker.consumers.locks import Locks
from broker.consumers.members import ClientsConfig, Consumers, Producers
from broker.filters.part import FiltersPart
from broker.groups.part import GroupsPart
from broker.part import Part, Parts, Shared, Table
from broker.standing import Role
from broker.store.tables import PATHS, load
from broker.topics.part import TopicsPart
from remoting.bodies.consumers import MessageRequestModes
from remoting.codes import RequestCode
from remoting.connection import Connection
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page


class ClientsPart(Part):
    keys = AssignmentKeys

    def __init__(self, shared: Shared, before: Parts) -> None:
        topics, groups, standing = before[TopicsPart].table, before[GroupsPart].table, shared.standing
        self.consumers = Consumers(pick(shared.config, ClientsConfig))
        self.producers = Producers(self.consumers.config)
        self.locks = Locks(shared.now_ns, 1 + shared.rng.getrandbits(62))
        self.calls = ClientCalls(
            self.consumers, groups=groups, topics=topics, log=shared.journal.log, standing=standing)
        self._heartbeats = Heartbeats(self.consumers, self.producers, self.locks, groups=groups, topics=topics,
                                      filters=before[FiltersPart].filters, standing=standing, now_ns=shared.now_ns)
        self._modes_file = shared.table_file(self._modes, path=PATHS[MessageRequestModes])
        self._assignments = Assignments(self.consumers, groups, topics, shared.queues_of, self._modes_file.saved,
                                        load(shared.files, MessageRequestModes))
        self._assignments.on_change = self._modes_file.changed

    def handlers(self) -> Mapping[int, Handler]:
        return {**self._heartbeats.handlers(), **self._assignments.handlers(),
                **self.calls.handlers()}

    def tables(self) -> Sequence[Table]:
        modes = self._assignments
        return (Table(self._modes_file, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, modes.copy, modes.join),)

    def _modes(self) -> MessageRequestModes:
        return self._assignments.snapshot()

    def metrics(self, page: Page) -> Iterator[Metric]:
        yield page.gauge("rocketmq_producer_connections", "Producers.", [
            ((group,), len(members)) for group, members in sorted(self.producers.groups.items())], "producer_group")
        yield page.gauge("rocketmq_consumer_connections", "Consumers.", [
            ((name,), len(group.members)) for name, group in sorted(self.consumers.groups.items())], "consumer_group")

    def configure(self, config: BrokerConfig) -> None:
        self.consumers.config = self.producers.config = pick(config, ClientsConfig)
        self._assignments.keys = pick(config, AssignmentKeys)

    def role_changed(self, role: Role) -> None:
        if role.leads:
            self._heartbeats.now_master()

    def connection_closed(self, connection: Connection, reason: str) -> None:
        self._heartbeats.closed(connection, reason)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._heartbeats.run(task_status=task_status)
