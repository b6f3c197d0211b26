"""A name server's core and brokers that talk to it in commands, as they would over the wire; time is a number here."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from controller.namesrv.config import NamesrvConfig, from_properties
from controller.namesrv.effects import Effect, MinIdChanged
from controller.namesrv.kvconfig import KVConfig
from controller.namesrv.requests import NameServer
from controller.namesrv.tables import Tables, mapping_chars
from remoting.bodies.controller import GetBrokerMemberGroupResponseBody
from remoting.bodies.namesrv import (
    ClusterInfo,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.daemon.keys import written
from remoting.header import Header
from remoting.headers.controller import BrokerHeartbeatRequest
from remoting.headers.namesrv import (
    GetBrokerMemberGroupRequest,
    GetRouteInfoRequest,
    QueryDataVersionRequest,
    RegisterBrokerRequest,
    UnregisterBrokerRequest,
)

MS = 1_000_000
SYSTEM = "SELF_TEST_TOPIC"
"""In every registration, for a single topic is refused."""


def topic(name: str, perm: int = 6, queues: int = 4, **more: object) -> TopicConfig:
    return TopicConfig.from_plain(
        {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": perm, **more})


def config(**keys: object) -> NamesrvConfig:
    """By RocketMQ's keys."""
    return from_properties({name: written(value) for name, value in keys.items()})


def registration(
    group: str = "a", broker_id: int = 0, address: str = "", *, topics: Sequence[TopicConfig | str] = ("T",),
    cluster: str = "C", version: int = 1, epoch: int = 0, acting: bool | None = False, timeout_ms: int | None = None,
    filters: Sequence[str] = (), mappings: Mapping[str, TopicQueueMappingInfo] | None = None, compressed: bool = False,
    system: bool = True, zone: str | None = None, wire_version: int = 513,
) -> Command:
    """Code 103. ``address`` is ``a0:1`` for broker 0 of group a."""
    address = address or f"{group}{broker_id}:1"
    all_topics = [topic(each) if isinstance(each, str) else each for each in topics]
    if system:
        all_topics.append(topic(SYSTEM))
    wrapper = TopicConfigSerializeWrapper(
        {each.topic_name: each for each in all_topics}, DataVersion(epoch, 1_000, version), dict(mappings or {}))
    body = RegisterBrokerBody(wrapper, list(filters)).encode(compressed=compressed)
    made = request(RequestCode.REGISTER_BROKER, RegisterBrokerRequest(
        broker_name=group, broker_addr=address, cluster_name=cluster, broker_id=broker_id,
        ha_server_addr=f"ha-{address}", heartbeat_timeout_millis=timeout_ms, enable_acting_master=acting,
        compressed=compressed, body_crc32=zlib.crc32(body) & 0x7FFFFFFF), body)
    if zone is not None:
        made.ext["__ZONE_NAME"] = zone
    made.version = wire_version
    return made


class Fleet:
    """The core, and short words for what brokers, clients and operators do. Each broker has a connection of its own."""

    def __init__(self, settings: NamesrvConfig | None = None, kv: KVConfig | None = None) -> None:
        self.core = NameServer(settings or NamesrvConfig(), kv or KVConfig(), 0)
        self.now = 0
        self.effects: list[Effect] = []

    @property
    def tables(self) -> Tables:
        return self.core.tables

    def ask(
        self, code: int, header: Header | None = None, body: bytes = b"", *, connection: Hashable = "admin",
        version: int = 513, **ext: Any,
    ) -> Command:
        command = request(code, header, body)
        command.version = version
        command.ext.update(ext)
        return self.hand_over(command, connection)

    def hand_over(self, command: Command, connection: Hashable = "admin") -> Command:
        answer = self.core.handle(self.now, connection, command)
        self._collect()
        return answer

    def _collect(self) -> None:
        self.effects += self.core.outbox
        self.core.outbox.clear()
        consistent(self.tables)

    # --- brokers ---------------------------------------------------------------------------------------------

    def register(
        self, group: str = "a", broker_id: int = 0, *, connection: Hashable | None = None, **what: Any,
    ) -> Command:
        """As ``registration``; over a connection that is called as its address."""
        command = registration(group, broker_id, **what)
        return self.hand_over(command, command.ext["brokerAddr"] if connection is None else connection)

    def heartbeat(self, address: str, cluster: str = "C") -> Command:
        return self.ask(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequest(cluster, address, address[0]))

    def data_version(self, address: str, version: DataVersion) -> Command:
        header = QueryDataVersionRequest(address[0], address, "C", 0)
        return self.ask(RequestCode.QUERY_DATA_VERSION, header, version.to_json())

    def unregister(self, group: str, broker_id: int, address: str = "", cluster: str = "C") -> Command:
        return self.ask(RequestCode.UNREGISTER_BROKER, UnregisterBrokerRequest(
            broker_name=group, broker_addr=address or f"{group}{broker_id}:1", cluster_name=cluster,
            broker_id=broker_id))

    def close(self, connection: Hashable) -> None:
        self.core.closed(connection, "reset")
        self._collect()

    def pass_to(self, now_ms: float) -> None:
        """Let time pass, and judge silence whenever it is due."""
        while (due := self.core.next_deadline()) is not None and due <= now_ms * MS:
            self.now = max(self.now, due)
            self.core.expire(self.now)
            self._collect()
        self.now = int(now_ms * MS)

    # --- what is seen ----------------------------------------------------------------------------------------

    def route(self, name: str = "T", *, version: int = 513, **ext: Any) -> TopicRouteData | None:
        """None: TOPIC_NOT_EXIST."""
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(name), version=version, **ext)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        assert answer.code == ResponseCode.SUCCESS, answer
        return TopicRouteData.from_json(answer.body)

    def addresses(self, name: str = "T") -> dict[str, dict[int, str]]:
        """Of a topic's route, by group; empty without a route."""
        route = self.route(name)
        return {} if route is None else {broker.broker_name: broker.broker_addrs for broker in route.broker_datas}

    def perms(self, name: str = "T") -> dict[str, int]:
        route = self.route(name)
        return {} if route is None else {queue.broker_name: queue.perm for queue in route.queue_datas}

    def cluster(self) -> ClusterInfo:
        return ClusterInfo.from_json(self.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)

    def members(self, group: str) -> dict[int, str]:
        answer = self.ask(RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequest("C", group))
        members = GetBrokerMemberGroupResponseBody.from_json(answer.body).broker_member_group
        assert members is not None
        return members.broker_addrs

    def topics(self, code: int = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, **ext: Any) -> list[str]:
        return TopicList.from_json(self.ask(code, **ext).body).topic_list

    def notices(self) -> list[MinIdChanged]:
        """Since the last time."""
        found = [effect for effect in self.effects if isinstance(effect, MinIdChanged)]
        self.effects.clear()
        return found


def consistent(tables: Tables) -> None:
    """What must hold between the tables and their indices: nothing of a replica or topic outlives it."""
    members = {
        (replica.cluster, replica.address): replica
        for group in tables.groups.values() for replica in group.replicas.values()}
    assert members == tables.live
    for name, group in tables.groups.items():
        assert group.name == name
        assert group.replicas, f"group {name} without replicas"
        assert all(replica.group is group and replica.broker_id == key for key, replica in group.replicas.items())
    held = {(topic, name): queue for name, group in tables.groups.items() for topic, queue in group.queues.items()}
    listed = {(topic, name): queue for topic, queues in tables.topics.items() for name, queue in queues.items()}
    assert held == listed
    assert tables.rows == len(held)
    assert tables.chars == (
        sum(replica.chars for replica in tables.live.values()) + sum(len(topic) for topic, _ in held)
        + sum(mapping_chars(each) for groups in tables.mappings.values() for each in groups.values()))
    assert all(tables.topics.values())
    assert all(groups and groups.keys() <= tables.topics[topic].keys() for topic, groups in tables.mappings.items())
    assert tables.answers.keys() <= tables.topics.keys()
    carried = {replica for replicas in tables._by_connection.values() for replica in replicas}
    assert carried == set(tables.live.values())
    assert all(
        replicas and all(replica.connection == connection for replica in replicas)
        for connection, replicas in tables._by_connection.items())
