"""The name server's core: a command comes in, its answer goes out, and what else is to be done lies in ``outbox``.

Every code has its method in ``NameServer._handlers``. Whatever a peer sends gets an answer; only what it asks for
decides what changes. Sans-IO: time is a number (ns), a connection any hashable object.

Source: ``DefaultRequestProcessor`` and ``ClientRequestProcessor`` of Apache RocketMQ 5.5.0.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Hashable, Mapping

from controller.namesrv.administration import Administration, Handler
from controller.namesrv.config import NamesrvConfig
from controller.namesrv.counters import Counters
from controller.namesrv.effects import BrokerCame, BrokerLeft, Close, Effect, RegistrationRefused
from controller.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KVConfig
from controller.namesrv.registry import Departed, Registration, RegistrationResult, Registry
from controller.namesrv.routes import Routes, broker_data, encode_cluster
from controller.namesrv.tables import MASTER_ID, Tables
from controller.namesrv.verdict import Verdict
from remoting.bodies.controller import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from remoting.bodies.namesrv import (
    ClusterInfo,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
)
from remoting.codes import STRICT_ROUTE_VERSION, RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.errors import BodyError, HeaderError
from remoting.headers.controller import BrokerHeartbeatRequest
from remoting.headers.namesrv import (
    GetBrokerMemberGroupRequest,
    GetRouteInfoRequest,
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)

NS = 1_000_000_000
NAME_MAX = 1_024
"""Characters of a name or address that is kept. Java's own limits are far below."""
FILTERS_MAX = 100
"""Filter servers of one broker."""
WHOLE_REGISTRATION_VERSION = 37
"""``MQVersion.V3_0_11``: brokers before it send topics alone."""
WAITS = "this name server has just started and waits for brokers"
ZONE_NAME = "__ZONE_NAME"
ZONE_MODE = "__ZONE_MODE"

_REFUSALS: Mapping[Verdict, tuple[int, str]] = {
    Verdict.TOO_EARLY: (ResponseCode.SYSTEM_ERROR, "one topic alone before this broker registered all of its topics"),
    Verdict.FULL: (ResponseCode.SYSTEM_BUSY, "this name server holds as many brokers and topics as it may"),
}
"""Code and remark. OUTRANKED is not among them: Java answers it with success."""


class NameServer:
    """``started_ns`` is when it begins to serve. ``outbox`` is emptied by whoever calls, after each call."""

    def __init__(self, config: NamesrvConfig, kv: KVConfig, started_ns: int) -> None:
        self.kv = kv
        self.counters, self.tables = Counters(), Tables()
        self.registry = Registry(self.tables, config, self.counters)
        self.routes = Routes(self.tables, config, kv, self.counters)
        self.outbox: list[Effect] = []
        self._ready_ns = started_ns + (config.wait_seconds_for_service * NS if config.need_wait_for_service else 0)
        self._handlers: dict[int, Handler] = {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            **Administration(config, kv, self.tables, self.outbox, self._changed).handlers(),
        }

    @property
    def codes(self) -> tuple[int, ...]:
        """The codes of the requests that it serves."""
        return tuple(self._handlers)

    @property
    def config(self) -> NamesrvConfig:
        return self.registry.config

    def _changed(self, config: NamesrvConfig, topic: str | None) -> None:
        """Follow a change of what routes show, of one topic or of all."""
        self.registry.config = self.routes.config = config
        self.routes.forget(topic)

    # --- inputs ----------------------------------------------------------------------------------------------

    def handle(self, now: int, connection: Hashable, command: Command) -> Command:
        """Answer one request. Raises nothing for what a peer may send."""
        handler = self._handlers.get(command.code)
        counted = self.counters.requests
        if handler is None:
            counted[-1] = counted.get(-1, 0) + 1
            answer = response(
                command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"request code {command.code} is not served by a name server")
        else:
            counted[command.code] = counted.get(command.code, 0) + 1
            try:
                answer = handler(now, connection, command)
            except (HeaderError, BodyError) as error:
                answer = response(command, ResponseCode.SYSTEM_ERROR, remark=str(error))
        if answer.code:
            failures = self.counters.failures
            failures[answer.code] = failures.get(answer.code, 0) + 1
        return answer

    def closed(self, connection: Hashable, reason: str) -> None:
        """Brokers that registered over this connection leave the routes."""
        departed = self.registry.closed(connection)
        self.counters.brokers_closed += len(departed.replicas)
        self._departed(departed, f"connection ended: {reason}", orderly=False)

    def expire(self, now: int) -> None:
        """Time has come to ``next_deadline``."""
        departed = self.registry.expire(now)
        self.counters.brokers_silent += len(departed.replicas)
        self._departed(departed, "silent for its timeout", orderly=False)

    def next_deadline(self) -> int | None:
        """Return when ``expire`` is to be called next."""
        return self.registry.next_deadline()

    def _departed(self, departed: Departed, reason: str, *, orderly: bool) -> None:
        for replica in departed.replicas:
            left = len(replica.group.replicas)
            self.outbox.append(BrokerLeft(
                replica.cluster, replica.group.name, replica.broker_id, replica.address, reason, orderly, left))
            self.counters.masters_lost += not orderly and left > 0 and replica.broker_id == MASTER_ID
        self.outbox += departed.notices
        self.outbox += map(Close, departed.close)

    # --- brokers ---------------------------------------------------------------------------------------------

    def _register(self, now: int, connection: Hashable, command: Command) -> Command:
        header = RegisterBrokerRequest.from_ext(command.ext)
        looks = _digest(command.body), command.version, _digest(repr(sorted(command.ext.items())).encode())
        outcome = self.registry.repeat(now, header.cluster_name, header.broker_addr, looks, connection)
        if outcome is None:
            if header.body_crc32 and zlib.crc32(command.body) & 0x7FFFFFFF != header.body_crc32:
                self.counters.registrations_damaged += 1
                return response(command, ResponseCode.SYSTEM_ERROR, remark="bodyCrc32 does not match the body")
            outcome = self.registry.register(now, _read(header, command, looks), connection)
        self.outbox += outcome.notices
        self._tell(outcome, header)
        if outcome.verdict in _REFUSALS:
            code, remark = _REFUSALS[outcome.verdict]
            return response(command, code, remark=remark)
        order = self.kv.namespace(ORDER_TOPIC_CONFIG) if self.config.return_order_topic_config_to_broker else None
        return response(
            command, header=RegisterBrokerResponse(
                ha_server_addr=outcome.ha_address, master_addr=outcome.master_address),
            body=KVTable(dict(order)).to_json() if order is not None else b"")

    def _tell(self, outcome: RegistrationResult, header: RegisterBrokerRequest) -> None:
        counters = self.counters
        who = header.cluster_name, header.broker_name, header.broker_id, header.broker_addr
        if outcome.verdict is Verdict.ACCEPTED:
            counters.registrations += 1
            if outcome.came:
                self.outbox.append(BrokerCame(*who))
            return
        refused = counters.registrations_refused
        refused[outcome.verdict] = refused.get(outcome.verdict, 0) + 1
        self.outbox.append(RegistrationRefused(*who, outcome.verdict.value))

    def _unregister(self, now: int, connection: Hashable, command: Command) -> Command:
        header = UnregisterBrokerRequest.from_ext(command.ext)
        departed = self.registry.unregister([(header.cluster_name, header.broker_addr, header.broker_name)])
        self.counters.brokers_unregistered += len(departed.replicas)
        self._departed(departed, "said farewell", orderly=True)
        return response(command)

    def _heartbeat(self, now: int, connection: Hashable, command: Command) -> Command:
        ext = command.ext
        if not self.registry.heartbeat_again(now, ext):
            header = BrokerHeartbeatRequest.from_ext(ext)
            self.registry.heartbeat(now, header.cluster_name, header.broker_addr, ext)
        return response(command)

    def _query_data_version(self, now: int, connection: Hashable, command: Command) -> Command:
        header = QueryDataVersionRequest.from_ext(command.ext)
        theirs = DataVersion.from_json(command.body)
        ours = self.registry.data_version(now, header.cluster_name, header.broker_addr)
        return response(
            command, header=QueryDataVersionResponse(changed=ours != theirs),
            body=ours.to_json() if ours is not None else b"")

    def _member_group(self, now: int, connection: Hashable, command: Command) -> Command:
        header = GetBrokerMemberGroupRequest.from_ext(command.ext)
        group = self.tables.groups.get(header.broker_name)
        members = BrokerMemberGroup(
            header.cluster_name, header.broker_name, group.addresses() if group is not None else {})
        return response(command, body=GetBrokerMemberGroupResponseBody(members).to_json())

    def unready(self, now: int) -> str:
        """Return why routes are not answered; "" if they are."""
        return "" if now >= self._ready_ns else WAITS

    # --- routes ----------------------------------------------------------------------------------------------

    def _route(self, now: int, connection: Hashable, command: Command) -> Command:
        if why := self.unready(now):
            return response(command, ResponseCode.SYSTEM_ERROR, remark=why)
        header = GetRouteInfoRequest.from_ext(command.ext)
        zone = command.ext.get(ZONE_NAME, "").strip() if command.ext.get(ZONE_MODE, "").lower() == "true" else ""
        strict = command.version >= STRICT_ROUTE_VERSION or bool(header.accept_standard_json_only)
        body = self.routes.answer(header.topic, strict=strict, zone=zone or None)
        if body is None:
            return response(
                command, ResponseCode.TOPIC_NOT_EXIST, remark=f"no broker registered the topic {header.topic[:255]!r}")
        return response(command, body=body)

    def _cluster_info(self, now: int, connection: Hashable, command: Command) -> Command:
        groups = self.tables.groups
        info = ClusterInfo({name: broker_data(groups[name]) for name in sorted(groups)}, self.tables.clusters())
        return response(command, body=encode_cluster(info, strict=command.version >= STRICT_ROUTE_VERSION))


def _digest(content: bytes) -> bytes:
    """Return what is kept in place of a content that may be of any size."""
    return hashlib.sha256(content).digest()


def _check_names(header: RegisterBrokerRequest, wrapper: TopicConfigSerializeWrapper, zone: str | None,
                 filters: tuple[str, ...]) -> None:
    """Check names that are kept for long. Raises ``HeaderError`` and ``BodyError``."""
    if header.broker_id < 0:
        raise HeaderError(type(header).__name__, "brokerId", f"= {header.broker_id}: must not be negative")
    for field, text in (
        ("clusterName", header.cluster_name), ("brokerName", header.broker_name), ("brokerAddr", header.broker_addr),
        ("haServerAddr", header.ha_server_addr or "-"), (ZONE_NAME, zone or "-"),
    ):
        if not 0 < len(text) <= NAME_MAX:
            raise HeaderError(type(header).__name__, field, f"has {len(text)} characters; 1 to {NAME_MAX} are allowed")
    if len(filters) > FILTERS_MAX or any(len(address) > NAME_MAX for address in filters):
        raise BodyError(f"filterServerList: {FILTERS_MAX} addresses of {NAME_MAX} characters are allowed")
    for name, topic in wrapper.topic_config_table.items():
        if not 0 < len(topic.topic_name) <= NAME_MAX:
            raise BodyError(
                f"topic {name[:40]!r} has a name of {len(topic.topic_name)} characters; 1 to {NAME_MAX} are allowed")


def _read(header: RegisterBrokerRequest, command: Command, looks: object) -> Registration:
    """Raises ``HeaderError`` or ``BodyError`` for a damaged one."""
    wrapper = TopicConfigSerializeWrapper()
    filters: tuple[str, ...] | None = None
    if command.version >= WHOLE_REGISTRATION_VERSION:
        filters = ()
        if command.body:
            body = RegisterBrokerBody.decode(command.body, compressed=header.compressed)
            wrapper, filters = body.topic_config_serialize_wrapper, tuple(body.filter_server_list)
    elif command.body:
        wrapper = TopicConfigSerializeWrapper.from_json(command.body)
    zone = command.ext.get(ZONE_NAME)
    _check_names(header, wrapper, zone, filters or ())
    return Registration(
        cluster=header.cluster_name, address=header.broker_addr, broker_name=header.broker_name,
        broker_id=header.broker_id, ha_address=header.ha_server_addr, zone=zone,
        timeout_ms=header.heartbeat_timeout_millis, acting_master=header.enable_acting_master,
        data_version=wrapper.data_version, topics=wrapper.topic_config_table,
        mappings=wrapper.topic_queue_mapping_info_map, filter_servers=filters, looks=looks)
