"""Follows clients by heartbeats, goodbyes, closed connections and silence, and tells the members of their groups.

Codes 34, 35 and 46, and 40 to clients, when ``Notices`` says. On a slave nothing is made: its groups and topics are
its master's.
Source: ``ClientManageProcessor``, ``DefaultConsumerIdsChangeListener`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress

import trio

from broker.consumers.locks import Locks
from broker.consumers.members import ConsumerGroup, Consumers, Member, Producers
from broker.consumers.notices import Notices
from broker.consumers.subscriptions import no_property_filter, subscribed
from broker.filters.errors import FilterIllegal
from broker.filters.expressions import compiled
from broker.filters.table import Filters
from broker.groups import GroupTable
from broker.standing import Standing
from broker.topics import TopicTable
from remoting.bodies.consumers import CheckClientRequestBody, ConsumerData, HeartbeatData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import ConnectionClosed
from remoting.headers.consumers import ConsumerGroupRequest, HeartbeatResponse, UnregisterClientRequest
from remoting.wakeup import Bell

logger = logging.getLogger("broker")


class Heartbeats:
    """Handles these codes. ``run`` must be running; call ``closed`` with every connection that closes."""

    def __init__(self, consumers: Consumers, producers: Producers, locks: Locks, *, groups: GroupTable,
                 topics: TopicTable, filters: Filters, standing: Standing, now_ns: Callable[[], int]) -> None:
        self._consumers, self._producers, self._locks = consumers, producers, locks
        self._groups, self._topics, self._filters, self._standing = groups, topics, filters, standing
        self._now_ns = now_ns
        self._notices = Notices()
        self._bell = Bell()
        consumers.on_change, consumers.on_balance = self._note, self._bell.ring

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check,
        }

    # --- requests --------------------------------------------------------------------------------------------

    def heartbeat(self, connection: Connection, command: Command) -> Command:
        """Take a heartbeat (34). Groups that may not be here are passed over, as in Java: their pulls are refused."""
        data = HeartbeatData.from_json(command.body)
        now_ns, known = self._now_ns(), True
        for consumer in data.consumer_data_set:
            if self._made(consumer):
                member = Member(connection, data.client_id, command.language, command.version, now_ns)
                without = data.without_sub and data.heartbeat_fingerprint != 0
                known &= self._consumers.register(
                    consumer, member, data.heartbeat_fingerprint, without_subscriptions=without)
                if not without and self._consumers.is_member(consumer.group_name, connection):
                    self._filters.register(consumer.group_name, consumer.subscription_data_set)
        for producer in data.producer_data_set:
            self._producers.register(producer.group_name, Member(
                connection, data.client_id, command.language, command.version, now_ns))
        changed = not known or data.heartbeat_fingerprint == 0
        return response(command, header=HeartbeatResponse(is_sub_change=changed))

    def _made(self, consumer: ConsumerData) -> bool:
        """Return whether the group is here. Makes it if that is allowed, with the topic of its retries."""
        name = consumer.group_name
        if not self._standing.role.takes_puts:
            return True
        group = self._groups.find(name)
        if group is not None:
            self._topics.create_for_retry(name, group.retry_queue_nums, unit=consumer.unit_mode)
        return group is not None

    def now_master(self) -> None:
        """Make groups and topics that consumers wanted while this broker was a slave, which makes none."""
        for name in self._consumers.groups:
            group = self._groups.find(name)
            if group is not None:
                self._topics.create_for_retry(name, group.retry_queue_nums)

    def unregister(self, connection: Connection, command: Command) -> Command:
        """Code 35: a client leaves its groups."""
        asked = UnregisterClientRequest.from_ext(command.ext)
        if asked.producer_group is not None:
            self._producers.unregister(asked.producer_group, connection)
        if asked.consumer_group is not None:
            self._consumers.unregister(asked.consumer_group, connection)
        return response(command)

    def check(self, _: Connection, command: Command) -> Command:
        """Answer 46: whether an expression will do."""
        data = CheckClientRequestBody.from_json(command.body).subscription_data
        if data is None or subscribed(data).by_tag:
            return response(command)
        if not self._filters.config.enable_property_filter:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=no_property_filter(data.expression_type))
        try:
            compiled(data.sub_string, data.expression_type)
        except FilterIllegal as error:
            return response(command, ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
        return response(command)

    # --- changes ---------------------------------------------------------------------------------------------

    def closed(self, connection: Connection, reason: str = "") -> None:
        """Forget clients that registered over this connection."""
        self._consumers.closed(connection)
        self._producers.closed(connection)

    def _note(self, group: ConsumerGroup) -> None:
        if not group.members:
            self._filters.unregister(group.name)
        self._notices.changed(group, self._now_ns())
        self._bell.ring()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tell members of changes, and look for silence, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._scan)
            task_status.started()
            while True:
                due_ns = self._notices.due_ns
                wait_s = math.inf if due_ns is None else max(due_ns - self._now_ns(), 0) / 1e9
                with trio.move_on_after(wait_s):
                    await self._bell.wait()
                for group, member in self._notices.take(self._now_ns()):
                    self._tell(group, member)

    def _tell(self, group: ConsumerGroup, member: Member) -> None:
        config = self._groups.get(group.name)
        if group.broadcasting or not self._consumers.config.notify_consumer_ids_changed_enable or (
                config is not None and not config.notify_consumer_ids_changed_enable):
            return
        with suppress(ConnectionClosed):  # ``closed`` tells its group
            member.connection.send(request(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ConsumerGroupRequest(group.name), oneway=True))

    async def _scan(self) -> None:
        while True:
            await trio.sleep(self._consumers.config.scan_interval_ms / 1e3)
            now_ns = self._now_ns()
            self._locks.expire()
            for connection in self._consumers.expire(now_ns) | self._producers.expire(now_ns):
                if not self._consumers.has(connection) and not self._producers.has(connection):
                    logger.info("%s sent no heartbeat for %d ms", connection.peer,
                                self._consumers.config.channel_expired_timeout)
                    connection.close("no heartbeat came over it for too long")
