"""A broker towards its name servers: registrations, signs of life, the living members of its group, and the farewell.

Each name server has a task of its own, so that a lost one delays no other. A registration goes out at the start, at
once after each change of topics or role, after a name server came back, and now and then. Source: ``BrokerOuterAPI``
and ``BrokerController.registerBrokerAll`` of RocketMQ 5.5.0. It decides nothing of what is registered.
"""

from __future__ import annotations

import logging
import math
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs
import trio

from broker.haaddress import MasterAddress
from broker.part import Part
from broker.standing import Role, Standing
from broker.topics.table import READ
from remoting.bodies.consumers import MessageQueue
from remoting.bodies.controller import GetBrokerMemberGroupResponseBody
from remoting.bodies.namesrv import KVTable, RegisterBrokerBody, TopicConfigSerializeWrapper, TopicRouteData
from remoting.client import Client, checked
from remoting.codes import HEARTBEATS_SINCE, RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.errors import BodyError, RemotingError, RequestTimeout, ResponseError
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
from remoting.wakeup import Bell

logger = logging.getLogger("broker.registration")

FAREWELL_TIMEOUT_MS: Final = 1_000
MEMBERS_TIMEOUT_MS: Final = 1_000
SYNC_MEMBERS: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Begin of a topic's name, with the group's behind: its route has the group's members, for old name servers."""
RETRY_S: Final = 1.0
"""Pause after a registration that did not succeed."""


@attrs.frozen(kw_only=True)
class RegistrationConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 24_000
    force_register: bool = True
    compressed_register: bool = False
    broker_heartbeat_interval: int = 1_000
    broker_not_active_timeout_millis: int = 10_000
    send_heartbeat_timeout_millis: int = 1_000
    sync_broker_member_group_period: int = 1_000
    enable_controller_mode: bool = False
    enable_slave_acting_master: bool = False
    compatible_with_old_name_srv: bool = True

    @property
    def acting(self) -> bool:
        """Return whether heartbeats are answered, since the right to deliver counts them."""
        return self.enable_slave_acting_master and not self.enable_controller_mode


async def ask_members(
    client: Client, name_server: str, cluster_name: str, broker_name: str, timeout_ms: int,
) -> dict[int, str]:
    """Ask one name server for a group's members: addresses by broker id. Raises ``RemotingError``, ``BodyError``."""
    header = GetBrokerMemberGroupRequest(cluster_name, broker_name)
    answer = checked(await client.call(name_server, request(RequestCode.GET_BROKER_MEMBER_GROUP, header), timeout_ms))
    group = GetBrokerMemberGroupResponseBody.from_json(answer.body).broker_member_group
    return {} if group is None else group.broker_addrs


def members_by_route(broker_name: str) -> Command:
    """The question for a group's members that name servers before RocketMQ 5 know."""
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(f"{SYNC_MEMBERS}{broker_name}"))


def is_old(answer: Command) -> bool:
    """True: it is of a name server before RocketMQ 5, which does not answer what it does not know."""
    return 0 < answer.version < HEARTBEATS_SINCE


async def ask_members_by_route(
    client: Client, name_server: str, broker_name: str, timeout_ms: int,
) -> dict[int, str]:
    """Ask a name server before RocketMQ 5 for a group's members, by the route of a topic that each broker has.

    Raises ``RemotingError``, ``BodyError``."""
    answer = await client.call(name_server, members_by_route(broker_name), timeout_ms)
    return members_in(answer, name_server, broker_name)


def members_in(answer: Command, name_server: str, broker_name: str) -> dict[int, str]:
    """Members by the answer to ``members_by_route``. Raises ``ResponseError``, ``BodyError``."""
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return {}
    route = TopicRouteData.from_json(checked(answer, name_server).body)
    return {broker_id: address for group in route.broker_datas if group.broker_name == broker_name
            for broker_id, address in group.broker_addrs.items()}


class Registration(Part):
    """Registers this broker. ``changed`` says that there is something new to register."""

    def __init__(
        self, config: RegistrationConfig, name_servers: Iterable[str], client: Client, standing: Standing, *,
        ha_address: str, topics: Callable[[], TopicConfigSerializeWrapper],
        found: Callable[[MasterAddress], None] = lambda _: None,
        ordered: Callable[[Iterable[str]], None] = lambda _: None,
        grouped: Callable[[Mapping[int, str]], None] = lambda _: None, members: bool = False,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """``found`` hears of a live master, as name servers tell slaves; ``ordered`` which topics they keep ordered.
        ``members``: also ask which members live; ``grouped`` hears when they change."""
        self.members: dict[int, str] = {}
        """Addresses of the group's brokers by id, as a name server last said."""
        self._config, self._client, self._standing, self._ha_address = config, client, standing, ha_address
        self._topics, self._found, self._ordered, self._grouped = topics, found, ordered, grouped
        self._servers = [NameServer(address) for address in name_servers]
        self._wants_members, self._asks_members, self._now_ns = members, False, now_ns
        self._nursery: trio.Nursery | None = None
        self._open = False
        self._told: Role | None = None

    # --- what is to be registered ------------------------------------------------------------------------------

    def role_changed(self, role: Role) -> None:
        told = attrs.evolve(role, master_address="")  # name servers know it; often it changed by their own word
        if role.listed and not (self._open and told == self._told):
            self._told = told
            self.open()

    def open(self) -> None:
        """Register this broker for clients from now on."""
        self._open = True
        self.changed()

    def changed(self) -> None:
        """Tell all name servers at once: topics, permission, role or id have changed."""
        if self._open:
            for server in self._servers:
                server.tell()

    @property
    def is_open(self) -> bool:
        """Return whether this broker has a role, and has not left."""
        return self._open

    @property
    def name_servers(self) -> tuple[NameServer, ...]:
        """Return the name servers that this broker registers with."""
        return tuple(self._servers)

    @property
    def registered(self) -> list[str]:
        """Name servers that have taken this broker's latest registration."""
        return [server.address for server in self._servers if server.taken]

    # --- tasks -----------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            self._look_after(self._servers)
            task_status.started()
            await trio.sleep_forever()

    def use(self, addresses: Sequence[str]) -> None:
        """Use these name servers from now on: new ones hear of this broker at once."""
        for server in [each for each in self._servers if each.address not in addresses]:
            self._servers.remove(server)
            server.scope.cancel()
        there = {server.address for server in self._servers}
        new = [NameServer(address, changed=self._open) for address in addresses if address not in there]
        self._servers += new
        self._look_after(new)

    def _look_after(self, servers: Sequence[NameServer]) -> None:
        if self._nursery is None:
            return
        for server in servers:
            self._nursery.start_soon(self._serve, server)
        if self._wants_members and servers and not self._asks_members:
            self._asks_members = True
            self._nursery.start_soon(self._ask_members)

    async def _serve(self, server: NameServer) -> None:
        with server.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._register, server)
                nursery.start_soon(self._beat, server)

    async def _register(self, server: NameServer) -> None:
        due = 0.0
        while True:
            if not self._open or (not server.changed and trio.current_time() < due):
                with trio.move_on_at(due if self._open else math.inf):
                    await server.bell.wait()
                await trio.lowlevel.checkpoint()  # more may change in this turn
                continue
            anyway, server.changed = server.changed or not server.taken or self._config.force_register, False
            try:
                if anyway or await self._differs(server):
                    server.taken = False
                    await self._register_once(server)
            except (RemotingError, BodyError) as error:
                server.report(f"{error}")
            else:
                server.taken = True
                server.report("")
            due = trio.current_time() + (self._config.register_name_server_period / 1e3 if server.taken else RETRY_S)

    async def _register_once(self, server: NameServer) -> None:
        config, standing = self._config, self._standing
        body = RegisterBrokerBody(self._topics()).encode(compressed=config.compressed_register)
        header = RegisterBrokerRequest(
            standing.broker_name, standing.address, standing.cluster_name, standing.role.broker_id, self._ha_address,
            config.broker_not_active_timeout_millis, enable_acting_master=config.acting,
            compressed=config.compressed_register, body_crc32=zlib.crc32(body) & 0x7FFFFFFF)
        answer = checked(await self._client.call(
            server.address, request(RequestCode.REGISTER_BROKER, header, body),
            timeout_ms=config.register_broker_timeout_mills), server.address)
        server.connection = self._client.connection(server.address)
        server.is_old = config.compatible_with_old_name_srv and is_old(answer)
        told = RegisterBrokerResponse.from_ext(answer.ext)
        if not self._standing.role.leads and told.master_addr and told.ha_server_addr:
            self._found(MasterAddress(told.master_addr, told.ha_server_addr))
        if answer.body:
            self._ordered(KVTable.from_json(answer.body).table)

    async def _differs(self, server: NameServer, timeout_ms: int | None = None) -> bool:
        """Ask by 322 whether the name server has another version; old ones take this for a sign of life, too."""
        standing = self._standing
        header = QueryDataVersionRequest(
            standing.broker_name, standing.address, standing.cluster_name, standing.role.broker_id)
        answer = checked(await self._client.call(
            server.address, request(RequestCode.QUERY_DATA_VERSION, header, self._topics().data_version.to_json()),
            timeout_ms=timeout_ms or self._config.register_broker_timeout_mills), server.address)
        return QueryDataVersionResponse.from_ext(answer.ext).changed

    async def _beat(self, server: NameServer) -> None:
        """Send a sign of life, or a registration over a connection on which this broker is not registered."""
        config = self._config
        while True:
            await trio.sleep(config.broker_heartbeat_interval / 1e3)
            if not (self._open and server.taken):
                continue
            try:
                with trio.fail_after(config.send_heartbeat_timeout_millis / 1e3):
                    await self._sign_of_life(server)
            except (RemotingError, trio.TooSlowError) as error:
                server.report(f"no sign of life sent: {error}")
            else:
                if self._client.connection(server.address) is not server.connection:
                    server.tell()

    async def _sign_of_life(self, server: NameServer) -> None:
        """Send one heartbeat; it is answered where slaves may act. Raises ``RemotingError``."""
        config, standing = self._config, self._standing
        beat = request(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequest(
            standing.cluster_name, standing.address, standing.broker_name, standing.role.broker_id,
            heartbeat_timeout_ms=config.broker_not_active_timeout_millis))
        if not config.acting:
            await self._client.send_oneway(server.address, beat)
            return
        left_ns, connection = self._now_ns(), server.connection
        if not server.is_old:
            answer = await self._client.call(server.address, beat, config.send_heartbeat_timeout_millis)
            server.is_old = (answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                             and config.compatible_with_old_name_srv)
            if not server.is_old:
                checked(answer, server.address)
        if server.is_old:
            await self._differs(server, config.send_heartbeat_timeout_millis)
        if server.connection is connection:
            server.beaten_ns = left_ns

    # --- the group ---------------------------------------------------------------------------------------------

    async def _ask_members(self) -> None:
        while True:
            for server in list(self._servers):
                if await self._members_of(server):
                    break
            await trio.sleep(self._config.sync_broker_member_group_period / 1e3)

    async def _members_of(self, server: NameServer) -> bool:
        try:
            members = await self._ask(server)
        except (RemotingError, BodyError) as error:
            logger.debug("%s does not tell the group's members: %s", server.address, error)
            return False
        if members != self.members:
            self.members = members
            self._grouped(members)
        return True

    async def ask_all(self) -> dict[int, str] | None:
        """Ask the name servers for the living members: addresses by broker id. None: no server answers."""
        found, answered = dict[int, str](), False
        for server in list(self._servers):
            try:
                found |= await self._ask(server)
            except (RemotingError, BodyError) as error:
                logger.debug("%s does not tell the group's members: %s", server.address, error)
            else:
                answered = True
        return found if answered else None

    async def _ask(self, server: NameServer) -> dict[int, str]:
        """Ask one name server, however old it is. Raises ``RemotingError``, ``BodyError``."""
        standing, compatible = self._standing, self._config.compatible_with_old_name_srv
        try:
            return await ask_members(
                self._client, server.address, standing.cluster_name, standing.broker_name, MEMBERS_TIMEOUT_MS)
        except ResponseError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED or not compatible:
                raise
        except RequestTimeout:
            if not compatible:
                raise
            answer = await self._client.call(
                server.address, members_by_route(standing.broker_name), MEMBERS_TIMEOUT_MS)
            if not is_old(answer):
                raise
            return members_in(answer, server.address, standing.broker_name)
        return await ask_members_by_route(
            self._client, server.address, standing.broker_name, MEMBERS_TIMEOUT_MS)

    async def queues_of(self, topic: str) -> list[MessageQueue] | None:
        """Queues of the topic that can be read, on all brokers, as a name server says; None: it says nothing."""
        route = await self.route_of(topic)
        return None if route is None else [
            MessageQueue(topic, queues.broker_name, number) for queues in route.queue_datas
            if queues.perm & READ for number in range(queues.read_queue_nums)]

    async def route_of(self, topic: str) -> TopicRouteData | None:
        """Return the topic's route from the first name server that knows it; None: none does."""
        for server in list(self._servers):
            try:
                answer = checked(await self._client.call(
                    server.address, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic)),
                    timeout_ms=MEMBERS_TIMEOUT_MS))
                return TopicRouteData.from_json(answer.body)
            except (RemotingError, BodyError) as error:
                logger.debug("%s tells no route of %s: %s", server.address, topic, error)
        return None

    async def leave(self) -> None:
        """Tell all name servers that this broker goes: they forget it at once. To be called after ``run``."""
        was_open, self._open = self._open, False
        if not was_open:
            return
        standing = self._standing
        header = UnregisterBrokerRequest(
            standing.broker_name, standing.address, standing.cluster_name, standing.role.broker_id)

        async def tell(address: str) -> None:
            try:
                checked(await self._client.call(
                    address, request(RequestCode.UNREGISTER_BROKER, header), timeout_ms=FAREWELL_TIMEOUT_MS))
            except RemotingError as error:
                logger.warning("name server not told of the end", extra={"address": address, "why": str(error)})

        async with trio.open_nursery() as nursery:
            for server in self._servers:
                nursery.start_soon(tell, server.address)


@attrs.define(eq=False)
class NameServer:
    """One name server: whether it has taken the latest registration, and over which connection."""

    address: str
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancels the tasks that look after it."""
    bell: Bell = attrs.field(factory=Bell)
    changed: bool = False
    """True: what it was told last is outdated."""
    taken: bool = False
    connection: Connection | None = None
    is_old: bool = False
    """True: it is of a RocketMQ before 5, and knows neither heartbeats nor groups; 105 and 322 serve instead."""
    beaten_ns: int | None = None
    """Time when the last heartbeat left that it answered; kept only where slaves may act."""
    _problem: str | None = None

    def tell(self) -> None:
        self.changed = True
        self.bell.ring()

    def report(self, problem: str) -> None:
        """Log a problem once, until it is another one; "": all is well."""
        if problem == self._problem:
            return
        if problem:
            logger.warning("not registered", extra={"name_server": self.address, "why": problem})
        elif self._problem is None or self._problem:
            logger.info("registered", extra={"name_server": self.address})
        self._problem = problem
