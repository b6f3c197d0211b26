"""Keeps the connected clients: consumers and producers by group and connection, and what each consumer group wants.

A client is there from its first heartbeat until it says goodbye, its connection closes, or it is silent for too long.
It does no I/O: ``on_change`` says that members must be told. Times are monotonic, in nanoseconds.
Source: ``ConsumerManager``, ``ConsumerGroupInfo`` and ``ProducerManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import attrs

from broker.consumers.subscriptions import Subscribed, subscribed
from remoting.bodies.consumers import (
    BROADCASTING,
    CLUSTERING,
    CONSUME_FROM_WHERE,
    CONSUME_TYPES,
    MESSAGE_MODELS,
    ConsumerData,
    SubscriptionData,
    named,
)

if TYPE_CHECKING:
    from remoting.connection import Connection

NS_PER_MS: Final = 1_000_000


@attrs.frozen
class ClientsConfig:
    """Keys of ``BrokerConfig`` and their defaults; those marked so are ours."""

    channel_expired_timeout: int = 120_000
    subscription_expired_timeout: int = 600_000
    """Time for which a subscription that came with a pull is remembered, in milliseconds."""
    notify_consumer_ids_changed_enable: bool = True
    scan_interval_ms: int = 10_000
    """Ours: how often silence is looked for."""
    groups_of_client_max: int = 10_000
    """Ours: most groups of producers and consumers on one connection; others are passed over."""


@attrs.define(eq=False)
class Member:
    """One client of one group. ``language`` and ``version`` as in the frames that it sends."""

    connection: Connection
    client_id: str
    language: int
    version: int
    seen_ns: int
    sub_version: int = 0
    """The newest version of a subscription that its heartbeats brought."""
    balances: bool = False
    """Since its last heartbeat, or with it, it said that it takes or gives up queues: it is between its rounds of
    heartbeats, or the round is a part of that."""
    settled: bool = False
    """It did so before its last heartbeat, so it is connected to the brokers by now: its rounds are short."""


class ConsumerGroup:
    """The members of one group and what they want; the last heartbeat says it for all."""

    __slots__ = ("consume_from_where", "consume_type", "fingerprint", "members", "message_model", "name",
                 "subscriptions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type, self.message_model, self.consume_from_where = "CONSUME_PASSIVELY", CLUSTERING, ""
        self.subscriptions: dict[str, Subscribed] = {}
        self.members: dict[Connection, Member] = {}
        self.fingerprint: int | None = None
        """Fingerprint of the heartbeat that brought the subscriptions."""

    @property
    def broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Ids of the members, sorted, each once."""
        return sorted({member.client_id for member in self.members.values()})

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Set the topics that the group wants. Returns whether they differ from those before."""
        topics = {data.topic: data for data in wanted}
        changed = topics.keys() != self.subscriptions.keys()
        for topic in self.subscriptions.keys() - topics.keys():
            del self.subscriptions[topic]
        for topic, data in topics.items():
            present = self.subscriptions.get(topic)
            if present is None or data.sub_version > present.data.sub_version:
                self.subscriptions[topic] = subscribed(data)
        return changed


class Consumers:
    """Consumer groups that have members, and what pulls said of others."""

    def __init__(self, config: ClientsConfig) -> None:
        self.config = config
        self.groups: dict[str, ConsumerGroup] = {}
        self.on_change: Callable[[ConsumerGroup], None] = lambda group: None
        """Called when members or topics of a group changed, also when no member is left."""
        self.on_balance: Callable[[], None] = lambda: None
        """Called when a member is known to divide queues, not to be in the middle of its heartbeats."""
        self._of: dict[Connection, set[str]] = {}
        self._pulled: dict[tuple[str, str], tuple[Subscribed, int]] = {}
        """Subscriptions that pulls brought, by group and topic, and when they last did."""

    def register(self, data: ConsumerData, member: Member, fingerprint: int = 0, *,
                 without_subscriptions: bool = False) -> bool:
        """Take a heartbeat of a group's member. False: its subscriptions are not known, and it must bring them."""
        if len(self._of.get(member.connection, ())) >= self.config.groups_of_client_max and (
                data.group_name not in self._of[member.connection]):
            return True
        group = self.groups.get(data.group_name)
        if group is None:
            group = self.groups[data.group_name] = ConsumerGroup(data.group_name)
        group.consume_type = named(data.consume_type, CONSUME_TYPES, "CONSUME_PASSIVELY")
        group.message_model = named(data.message_model, MESSAGE_MODELS, CLUSTERING)
        group.consume_from_where = named(data.consume_from_where, CONSUME_FROM_WHERE, CONSUME_FROM_WHERE[0])
        present = group.members.get(member.connection)
        group.members[member.connection] = member
        self._of.setdefault(member.connection, set()).add(group.name)
        known, changed = True, present is None or present.client_id != member.client_id
        if without_subscriptions:
            known = group.fingerprint == fingerprint
            member.sub_version = 0 if present is None else present.sub_version
        else:
            changed |= group.subscribe(data.subscription_data_set)
            group.fingerprint = fingerprint or None
            member.sub_version = max((each.sub_version for each in data.subscription_data_set), default=0)
        if changed:
            self.on_change(group)
        if present is not None:
            member.settled = present.settled or present.balances
            if member.sub_version > present.sub_version:
                self._balances(member)  # a Java client sends this one as its queues change, another round is over
        return known

    def balances(self, name: str, connection: Connection) -> None:
        """The member of that connection, if there is one, asks who the others are: it divides the queues."""
        group = self.groups.get(name)
        member = None if group is None else group.members.get(connection)
        if member is not None:
            self._balances(member)

    def _balances(self, member: Member) -> None:
        if not member.balances:
            member.balances = True
            self.on_balance()

    def unregister(self, name: str, connection: Connection) -> None:
        group = self.groups.get(name)
        if group is None or group.members.pop(connection, None) is None:
            return
        names = self._of[connection]
        names.discard(name)
        if not names:
            del self._of[connection]
        if not group.members:
            del self.groups[name]
        self.on_change(group)

    def closed(self, connection: Connection) -> None:
        for name in list(self._of.get(connection, ())):
            self.unregister(name, connection)

    def expire(self, now_ns: int) -> set[Connection]:
        """Forget silent consumers. Returns connections on which no consumer is left."""
        limit_ns = now_ns - self.config.channel_expired_timeout * NS_PER_MS
        silent = [(group.name, connection) for group in self.groups.values()
                  for connection, member in group.members.items() if member.seen_ns < limit_ns]
        for name, connection in silent:
            self.unregister(name, connection)
        limit_ns = now_ns - self.config.subscription_expired_timeout * NS_PER_MS
        for key in [key for key, (_, seen_ns) in self._pulled.items() if seen_ns < limit_ns]:
            del self._pulled[key]
        return {connection for _, connection in silent if connection not in self._of}

    def has(self, connection: Connection) -> bool:
        return connection in self._of

    def is_member(self, group: str, connection: Connection) -> bool:
        return group in self._of.get(connection, ())

    def pulled(self, group: str, topic: str, wanted: Subscribed, now_ns: int) -> None:
        """Note what a pull wants, perhaps of a group whose members send no heartbeats."""
        self._pulled[group, topic] = wanted, now_ns

    def find(self, group: str, topic: str) -> Subscribed | None:
        """Return what the group wants of the topic, by its members or its pulls; None: it does not want it."""
        found = self.groups.get(group)
        wanted = found.subscriptions.get(topic) if found is not None else None
        if wanted is None and (group, topic) in self._pulled:
            wanted = self._pulled[group, topic][0]
        return wanted

    def is_subscribed(self, group: str, topic: str) -> bool:
        """Return whether its members, if there are any, want messages of the topic."""
        found = self.groups.get(group)
        return found is None or not found.subscriptions or self.find(group, topic) is not None

    def member(self, group: str, client_id: str) -> Member | None:
        found = self.groups.get(group)
        for member in found.members.values() if found is not None else ():
            if member.client_id == client_id:
                return member
        return None


class Producers:
    """The producers that are here, by group."""

    def __init__(self, config: ClientsConfig) -> None:
        self.config = config
        self.groups: dict[str, dict[Connection, Member]] = {}
        self.on_come: Callable[[str], None] = lambda _: None
        """Called with a client's id when it has a connection that it did not have."""
        self._of: dict[Connection, set[str]] = {}
        self._clients: dict[str, Connection] = {}
        self._ids: dict[Connection, Counter[str]] = {}
        """For each connection, its clients' ids, and for how many groups each produces over it."""

    def register(self, name: str, member: Member) -> None:
        connection, client_id = member.connection, member.client_id
        if len(self._of.get(connection, ())) >= self.config.groups_of_client_max and name not in self._of[connection]:
            return
        members = self.groups.setdefault(name, {})
        before, members[connection] = members.get(connection), member
        self._of.setdefault(connection, set()).add(name)
        self._ids.setdefault(connection, Counter())[client_id] += 1
        if before is not None:
            self._leaves(before)
        if self._clients.get(client_id) is not connection:
            self._clients[client_id] = connection
            self.on_come(client_id)

    def client(self, client_id: str) -> Connection | None:
        """Return the connection over which the client last said that it produces."""
        return self._clients.get(client_id)

    def unregister(self, name: str, connection: Connection) -> None:
        members = self.groups.get(name, {})
        member = members.pop(connection, None)
        if member is None:
            return
        names = self._of[connection]
        names.discard(name)
        if not names:
            del self._of[connection]
        self._leaves(member)
        if not members:
            del self.groups[name]

    def _leaves(self, member: Member) -> None:
        """It produces for a group no more, or under another id: one that is used no more leads to no connection."""
        connection, client_id = member.connection, member.client_id
        ids = self._ids[connection]
        ids[client_id] -= 1
        if ids[client_id]:
            return
        del ids[client_id]
        if not ids:
            del self._ids[connection]
        if self._clients.get(client_id) is connection:
            del self._clients[client_id]

    def closed(self, connection: Connection) -> None:
        for name in list(self._of.get(connection, ())):
            self.unregister(name, connection)

    def expire(self, now_ns: int) -> set[Connection]:
        """Forget silent producers. Returns connections on which no producer is left."""
        limit_ns = now_ns - self.config.channel_expired_timeout * NS_PER_MS
        silent = [(name, connection) for name, members in self.groups.items()
                  for connection, member in members.items() if member.seen_ns < limit_ns]
        for name, connection in silent:
            self.unregister(name, connection)
        return {connection for _, connection in silent if connection not in self._of}

    def has(self, connection: Connection) -> bool:
        return connection in self._of
