"""The fleet: every broker's connections in one remoting client, one listener for all, one timer for all heartbeats.

Each broker has connections of its own, so that the end of one is the end of that broker: the client knows them by
``controller#broker``. What controllers send comes in at one listener on the loopback interface, which answers for every
address in 127.64.0.0/10 (Linux); the address that was dialled tells who is meant.

A broker does things of itself in a short-lived task: to get an id, to register, to ask for an election, to report its
SyncStateSet, to announce itself to name servers. Each task asks what is lacking until nothing is.
"""

from __future__ import annotations

import math
import resource
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import attrs
import trio
from trio.abc import Stream

from harness.fleet.broker import BrokerGroup, SimulatedBroker, View
from harness.fleet.witness import Witness
from remoting.bodies.controller import SyncStateSet
from remoting.bodies.namesrv import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from remoting.client import Client, checked, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.config import ClientConfig, ServerConfig
from remoting.connection import Connection
from remoting.deadlines import Deadlines
from remoting.errors import RemotingError, ResponseError
from remoting.header import Header
from remoting.headers.controller import (
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    BrokerHeartbeatRequest,
    ElectMasterRequest,
    ElectMasterResponse,
    GetMetadataResponse,
    GetNextBrokerIdRequest,
    GetNextBrokerIdResponse,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
    NotifyBrokerRoleChangedRequest,
    RegisterBrokerToControllerRequest,
    RegisterBrokerToControllerResponse,
)
from remoting.headers.namesrv import RegisterBrokerRequest
from remoting.server import Server
from remoting.streams import connect_tcp

SLOTS: Final = 20
"""A heartbeat interval has so many moments at which a share of the brokers beats."""
RETRY_S: Final = 0.2
FIND_S: Final = 0.02
DOWN_S: Final = 0.5
"""A server that refused a connection is left alone by all for so long."""

Roles = (ElectMasterResponse | RegisterBrokerToControllerResponse | GetReplicaInfoResponse
         | NotifyBrokerRoleChangedRequest)


@attrs.frozen(kw_only=True)
class FleetConfig:
    """Times are those of Java brokers, where they have them, but for ``shrink_ms`` (15 s there)."""

    cluster: str = "DefaultCluster"
    groups: int = 20
    replicas: int = 3
    name: str = "group"
    """Groups are called ``name-0`` and on."""
    heartbeat_ms: int = 1_000
    heartbeat_timeout_ms: int = 10_000
    poll_ms: int = 5_000
    """Each broker asks what its role is (1004); 0: never."""
    catch_up_ms: int = 300
    """Time from following a master to being in sync with it."""
    shrink_ms: int = 2_000
    """A replica that left its master stays in the SyncStateSet for so long."""
    announce_ms: int = 30_000
    """Interval of registrations with a name server, if nothing changes."""
    min_in_sync_replicas: int | None = None
    """The minimum that masters announce; Java's announce nothing."""
    calls_at_once: int = 128
    call_timeout_ms: int = 3_000


@attrs.define(eq=False)
class _Timer:
    """One entry of ``Deadlines``, which may be called off."""

    then: Callable[[], None]
    waiting: bool = True

    def expire(self, _: float) -> None:
        self.waiting = False
        self.then()


@asynccontextmanager
async def open_fleet(
    controllers: Sequence[str], namesrvs: Sequence[str] = (), config: FleetConfig | None = None, *,
    on_role: Callable[[SimulatedBroker], None] | None = None, witness: Witness | None = None,
) -> AsyncIterator[Fleet]:
    """A fleet whose brokers are not started yet. ``on_role`` is called when a broker follows another master or epoch.

    What controllers must never answer stands in ``witness.violations`` when they did.
    """
    _allow_many_files()
    config = config or FleetConfig()
    listener = _listen_on_loopback()
    fleet = Fleet(config, controllers, namesrvs, listener.socket.getsockname()[1], on_role, witness or Witness())
    server = Server({RequestCode.NOTIFY_BROKER_ROLE_CHANGED: fleet._notified}, on_open=fleet._opened,
                    on_close=fleet._inbound_closed, config=ServerConfig(connections_max=1 << 20))
    limits = ClientConfig(call_timeout_ms=config.call_timeout_ms)
    async with (open_client(limits, connector=_connect, on_close=fleet._closed) as client,
                trio.open_nursery() as nursery):
        fleet._client, fleet._nursery = client, nursery
        await nursery.start(server.run, [listener])
        for task in (fleet._deadlines.run, fleet._beat_all, fleet._find_active):
            nursery.start_soon(task)
        yield fleet
        nursery.cancel_scope.cancel()


class Fleet:
    """Made by ``open_fleet``. All that is public but ``start`` and the waits happens in the turn it is called in."""

    _client: Client
    _nursery: trio.Nursery

    def __init__(
        self, config: FleetConfig, controllers: Sequence[str], namesrvs: Sequence[str], port: int,
        on_role: Callable[[SimulatedBroker], None] | None, witness: Witness,
    ) -> None:
        self.config, self.controllers, self.namesrvs = config, list(controllers), list(namesrvs)
        self.witness = witness
        self.active: str | None = None
        """Address of the active controller, as far as is known."""
        self.refusals: Counter[int] = Counter()
        """Answers other than success, by code."""
        self.beats = 0
        """Heartbeats sent."""
        self.groups = [
            BrokerGroup(config.cluster, f"{config.name}-{number}") for number in range(config.groups)]
        self.brokers: list[SimulatedBroker] = []
        for group in self.groups:
            for number in range(config.replicas):
                broker = SimulatedBroker(group, number, f"{_loopback(len(self.brokers) + 1)}:{port}")
                group.brokers.append(broker)
                self.brokers.append(broker)
        self._by_address = {broker.address: broker for broker in self.brokers}
        self._inbound: dict[str, set[Connection]] = {}
        self._on_role = on_role
        self._deadlines = Deadlines()
        self._attending: set[SimulatedBroker] = set()
        self._dialling: set[str] = set()
        self._down_until: dict[str, float] = {}
        self._limiter = trio.CapacityLimiter(config.calls_at_once)
        self._news = trio.Event()
        self._lost = trio.Event()
        self._lost.set()

    # --- orders ----------------------------------------------------------------------------------------------

    async def start(self, brokers: Iterable[SimulatedBroker] | None = None) -> None:
        """Start them (all), and wait until each of their groups has a master with all living replicas in sync."""
        chosen = list(self.brokers if brokers is None else brokers)
        for broker in chosen:
            self.restart(broker)
        await self.settled({broker.group for broker in chosen})

    def restart(self, broker: SimulatedBroker) -> None:
        """Start one; it knows what was on its disk."""
        if not broker.running:
            broker.running, broker.silent = True, False
            broker.lives += 1
            for server in (*self.controllers, *self.namesrvs):
                self._dial_soon(server, broker)
            self._attend_soon(broker)

    def kill(self, *brokers: SimulatedBroker) -> None:
        """Kill brokers: their connections close in this turn, as when a machine's processes are killed."""
        now = trio.current_time()
        for broker in brokers:
            if not broker.running:
                continue
            broker.die()
            if broker.broker_id is not None:
                broker.group.missing_since[broker.broker_id] = now
            for server in (*self.controllers, *self.namesrvs):
                connection = self._client.connection(_key(server, broker))
                if connection is not None:
                    connection.close("this broker was killed")
            for connection in list(self._inbound.get(broker.address, ())):
                connection.close("this broker was killed")
            self._after(self.config.shrink_ms, self._replica_is_long_gone, broker.group)

    def silence(self, *brokers: SimulatedBroker) -> None:
        """Silence brokers until they are killed: they hold their connections, as stopped processes do."""
        for broker in brokers:
            broker.silent = True

    async def ask_active(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """The active controller's successful answer, over a connection of the fleet's own. Raises ``RemotingError``."""
        return await self._ask(None, code, header, body)

    # --- waiting ---------------------------------------------------------------------------------------------

    async def settled(self, groups: Collection[BrokerGroup] | None = None) -> None:
        """Wait until each of these groups (default: all) has a master with all living replicas in sync."""
        for group in list(self.groups if groups is None else groups):
            while not group.settled():
                await self._news.wait()

    async def wait_master(self, group: BrokerGroup, above_epoch: int) -> SimulatedBroker:
        """Wait until a living broker knows that it is master in a higher epoch."""
        while True:
            master = group.master
            if master is not None and master.view.master_epoch > above_epoch:
                return master
            await self._news.wait()

    async def wait_active(self) -> str:
        """Address of the active controller, once there is one."""
        while self.active is None:
            await self._news.wait()
        return self.active

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    # --- what a broker does of itself ------------------------------------------------------------------------

    def _attend_soon(self, broker: SimulatedBroker) -> None:
        if broker not in self._attending and broker.running and not broker.silent:
            self._attending.add(broker)
            self._nursery.start_soon(self._attend, broker)

    async def _attend(self, broker: SimulatedBroker) -> None:
        """Do what is lacking until nothing is."""
        try:
            while broker.running and not broker.silent:
                try:
                    if not await self._do_next(broker):
                        break
                except RemotingError as error:
                    if isinstance(error, ResponseError):
                        self.refusals[error.code] += 1
                    await trio.sleep(RETRY_S)
        finally:
            self._attending.discard(broker)

    async def _do_next(self, broker: SimulatedBroker) -> bool:
        """Do a broker's next step. False: nothing is lacking."""
        group, view = broker.group, broker.view
        if broker.broker_id is None:
            await self._apply_for_id(broker)
        elif not broker.registered:
            await self._client.connect(_key(await self.wait_active(), broker))
            self._beat(broker)  # controllers choose only brokers that they hear
            await self._register(broker)
        elif view.master is None:
            await self._elect(broker)
        elif broker.is_master and (wanted := group.wanted_in_sync(
                broker, trio.current_time(), self.config.shrink_ms / 1e3)) != view.in_sync:
            await self._report(broker, wanted)
        elif self.namesrvs and broker.announced != (view.master_epoch, view.master):
            await self._announce(broker)
        else:
            return False
        return True

    async def _apply_for_id(self, broker: SimulatedBroker) -> None:
        group = broker.group
        answer = await self._ask(broker, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
                                 GetNextBrokerIdRequest(group.cluster, group.name))
        offered = GetNextBrokerIdResponse.from_ext(answer.ext).next_broker_id
        assert offered is not None
        broker.check_code = f"{broker.address};{time.time_ns() // 1_000_000}"
        while True:
            try:
                await self._ask(broker, RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest(
                    group.cluster, group.name, offered, broker.check_code))
            except ResponseError as error:
                if error.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                    return  # another broker took the id: begin again
                if error.code != ResponseCode.CONTROLLER_NOT_LEADER:
                    raise
            except RemotingError:  # the id may be bound: the same code gets the same answer
                await trio.sleep(RETRY_S)
            else:
                self.witness.given(broker, offered)
                broker.broker_id = offered
                return

    async def _register(self, broker: SimulatedBroker) -> None:
        group = broker.group
        assert broker.broker_id is not None
        asked = self.witness.asked(group.name)
        answer = await self._ask(broker, RequestCode.CONTROLLER_REGISTER_BROKER, RegisterBrokerToControllerRequest(
            group.cluster, group.name, broker.broker_id, broker.address, _millis()))
        broker.registered = broker.running
        header = RegisterBrokerToControllerResponse.from_ext(answer.ext)
        if header.master_broker_id is not None:
            self._learn_answer(broker, asked, header, answer.body)

    async def _elect(self, broker: SimulatedBroker) -> None:
        group = broker.group
        asked = self.witness.asked(group.name)
        header = ElectMasterRequest(group.cluster, group.name, broker.broker_id, invoke_time=_millis())
        answer = await self._ask(broker, RequestCode.CONTROLLER_ELECT_MASTER, header,
                                 also=ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        self._learn_answer(broker, asked, ElectMasterResponse.from_ext(answer.ext), answer.body)

    async def _report(self, broker: SimulatedBroker, wanted: frozenset[int]) -> None:
        view, life = broker.view, broker.lives
        assert broker.broker_id is not None
        header = AlterSyncStateSetRequest(broker.group.name, broker.broker_id, view.master_epoch, _millis())
        try:
            answer = await self._ask(broker, RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header,
                                     SyncStateSet(wanted, view.in_sync_epoch).to_json())
        except RemotingError:
            await self._poll(broker)  # it may be deposed, or its report accepted: learn which
            raise
        accepted = SyncStateSet.from_json(answer.body)
        if broker.lives == life:
            self._learn(broker, attrs.evolve(
                view, in_sync=accepted.sync_state_set, in_sync_epoch=accepted.sync_state_set_epoch))

    async def _poll(self, broker: SimulatedBroker) -> None:
        """Ask for the role, as Java brokers do every 5 s."""
        asked = self.witness.asked(broker.group.name)
        answer = await self._ask(broker, RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(
            broker.group.name))
        self._learn_answer(broker, asked, GetReplicaInfoResponse.from_ext(answer.ext), answer.body)

    async def _announce(self, broker: SimulatedBroker) -> None:
        """Register with all name servers; one that cannot be reached hears of it the next time."""
        group, view = broker.group, broker.view
        assert broker.broker_id is not None
        version = DataVersion(view.master_epoch, _millis(), 1)
        topics = {name: TopicConfig(name, 4, 4) for name in (group.name, f"{group.name}-orders")}
        body = RegisterBrokerBody(TopicConfigSerializeWrapper(topics, version)).to_json()
        header = RegisterBrokerRequest(
            group.name, broker.address, group.cluster, 0 if broker.is_master else broker.broker_id, broker.address)
        broker.announced = (view.master_epoch, view.master or 0)
        for server in self.namesrvs:
            with suppress(RemotingError):
                answer = await self._client.call(
                    _key(server, broker), request(RequestCode.REGISTER_BROKER, header, body))
                if answer.code != ResponseCode.SUCCESS:
                    self.refusals[answer.code] += 1

    # --- asking the active controller ------------------------------------------------------------------------

    async def _ask(
        self, broker: SimulatedBroker | None, code: int, header: Header | None, body: bytes = b"",
        also: int = ResponseCode.SUCCESS,
    ) -> Command:
        """A successful answer, or one with the code ``also``. Raises ``RemotingError``."""
        async with self._limiter:
            address = await self.wait_active()
            try:
                answer = await self._client.call(_key(address, broker), request(code, header, body))
            except RemotingError:
                self._lose(address)
                raise
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._lose(address)
        return answer if answer.code == also else checked(answer, address)

    def _lose(self, address: str) -> None:
        """Forget a controller that no longer seems to be active."""
        if self.active == address:
            self.active = None
            self._lost.set()

    async def _find_active(self) -> None:
        """Ask them all, again and again, until one says that it is the active one."""
        while True:
            await self._lost.wait()
            async with trio.open_nursery() as nursery:
                for address in self.controllers:
                    nursery.start_soon(self._ask_whether_active, address, nursery.cancel_scope)
            if self.active is None:
                await trio.sleep(FIND_S)
            else:
                self._lost = trio.Event()
                self._tell()

    async def _ask_whether_active(self, address: str, scope: trio.CancelScope) -> None:
        with suppress(RemotingError):
            answer = await self._client.call(
                _key(address, None), request(RequestCode.CONTROLLER_GET_METADATA_INFO), timeout_ms=300)
            if GetMetadataResponse.from_ext(answer.ext).is_leader:
                self.active = address
                scope.cancel()

    # --- what brokers are told -------------------------------------------------------------------------------

    def _learn_answer(self, broker: SimulatedBroker, asked: int, header: Roles, body: bytes) -> None:
        view = _view(header, body)
        self.witness.answered(broker.group.name, view, asked)
        self._learn(broker, view)

    def _learn(self, broker: SimulatedBroker, view: View) -> None:
        if not broker.running:
            return
        known = broker.view
        switched = broker.learn(view)
        if broker.view is known:
            return
        if switched and view.master is not None and not broker.is_master:
            self._after(self.config.catch_up_ms, self._caught_up, broker, broker.lives, view.master_epoch)
        self._attend_soon(broker)
        if switched and self._on_role is not None:
            self._on_role(broker)
        self._tell()

    def _caught_up(self, broker: SimulatedBroker, life: int, epoch: int) -> None:
        group = broker.group
        if broker.lives != life or not broker.running or broker.silent or broker.view.master_epoch != epoch:
            return
        assert broker.broker_id is not None
        group.following[broker.broker_id] = epoch
        group.missing_since.pop(broker.broker_id, None)
        master = group.broker(broker.view.master)
        if master is not None:
            broker.max_offset = master.max_offset
            self._attend_soon(master)

    def _replica_is_long_gone(self, group: BrokerGroup) -> None:
        master = group.master
        if master is not None:
            self._attend_soon(master)

    def _notified(self, connection: Connection, command: Command) -> Command | None:
        """Takes a 1008: the broker's group has another master."""
        broker = self._by_address[connection.local]
        if broker.silent:
            return None
        broker.notified += 1
        view = _view(NotifyBrokerRoleChangedRequest.from_ext(command.ext), command.body)
        self.witness.told(broker.group.name, view)
        self._learn(broker, view)
        return response(command)

    # --- heartbeats ------------------------------------------------------------------------------------------

    async def _beat_all(self) -> None:
        """Beat for each broker once per interval, for a share of them at each of ``SLOTS`` moments."""
        period = self.config.heartbeat_ms / 1e3
        polls = max(self.config.poll_ms // self.config.heartbeat_ms, 1) if self.config.poll_ms else 0
        announces = max(self.config.announce_ms // self.config.heartbeat_ms, 1)
        moment, due = 0, trio.current_time()
        while True:
            rounds, slot = divmod(moment, SLOTS)
            for place in range(slot, len(self.brokers), SLOTS):
                broker = self.brokers[place]
                if broker.registered and not broker.silent:
                    self._beat(broker)
                    if polls and (rounds + place) % polls == 0:
                        self._poll_nowait(broker)
                    if (rounds + place) % announces == 0:
                        broker.announced = None
                        self._attend_soon(broker)
            moment += 1
            due = max(due + period / SLOTS, trio.current_time() - period)
            await trio.sleep_until(due)

    def _beat(self, broker: SimulatedBroker) -> None:
        if broker.is_master:
            broker.max_offset += 1_024
        command = self._heartbeat(broker)
        for server in self.controllers:
            connection = self._client.connection(_key(server, broker))
            if connection is None:
                self._dial_soon(server, broker)
            else:
                with suppress(RemotingError):
                    connection.send(command)
                    self.beats += 1

    def _heartbeat(self, broker: SimulatedBroker) -> Command:
        group, config = broker.group, self.config
        return request(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequest(
            group.cluster, broker.address, group.name, broker.broker_id, broker.view.master_epoch, broker.max_offset,
            broker.max_offset, config.heartbeat_timeout_ms, min_in_sync_replicas=config.min_in_sync_replicas,
        ), oneway=True)

    def _poll_nowait(self, broker: SimulatedBroker) -> None:
        connection = self._client.connection(_key(self.active, broker)) if self.active is not None else None
        if connection is None:
            return
        asked = self.witness.asked(broker.group.name)

        def answered(result: Command | RemotingError) -> None:
            if isinstance(result, Command) and result.code == ResponseCode.SUCCESS:
                self._learn_answer(broker, asked, GetReplicaInfoResponse.from_ext(result.ext), result.body)

        with suppress(RemotingError):
            connection.call_nowait(request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(
                broker.group.name)), answered)

    # --- connections -----------------------------------------------------------------------------------------

    def _dial_soon(self, server: str, broker: SimulatedBroker) -> None:
        key = _key(server, broker)
        if key not in self._dialling and self._down_until.get(server, -math.inf) <= trio.current_time():
            self._dialling.add(key)
            self._nursery.start_soon(self._dial, server, broker)

    async def _dial(self, server: str, broker: SimulatedBroker) -> None:
        key = _key(server, broker)
        try:
            connection = await self._client.connect(key)
        except RemotingError:
            self._down_until[server] = trio.current_time() + DOWN_S
        else:
            if not broker.running:
                connection.close("this broker was killed")
            elif broker.registered and not broker.silent and server in self.controllers:
                with suppress(RemotingError):
                    connection.send(self._heartbeat(broker))
        finally:
            self._dialling.discard(key)

    def _closed(self, connection: Connection, _: str) -> None:
        server, _, broker = connection.peer.partition("#")
        if not broker:
            self._lose(server)

    def _opened(self, connection: Connection) -> None:
        broker = self._by_address.get(connection.local)
        if broker is None or not broker.running:
            connection.close("nobody runs at this address")
        else:
            self._inbound.setdefault(connection.local, set()).add(connection)

    def _inbound_closed(self, connection: Connection, _: str) -> None:
        self._inbound.get(connection.local, set()).discard(connection)

    def _after(self, wait_ms: float, then: Callable[..., None], *arguments: object) -> None:
        self._deadlines.set(trio.current_time() + wait_ms / 1e3, _Timer(lambda: then(*arguments)))


def _view(header: Roles, body: bytes) -> View:
    members = SyncStateSet.from_json(body) if body else SyncStateSet(frozenset())
    return View(header.master_broker_id, header.master_epoch or 0, members.sync_state_set, getattr(
        header, "sync_state_set_epoch", None) or members.sync_state_set_epoch)


def _key(server: str, broker: SimulatedBroker | None) -> str:
    """Return the client's name for a connection."""
    return f"{server}#{broker.address}" if broker is not None else server


async def _connect(key: str) -> Stream:
    return await connect_tcp(key.partition("#")[0])


def _millis() -> int:
    return time.time_ns() // 1_000_000


def _loopback(number: int) -> str:
    return f"127.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _listen_on_loopback() -> trio.SocketListener:
    """A listener for every address of the loopback interface, and of no other."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    sock.bind(("0.0.0.0", 0))
    sock.listen(4_096)
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def _allow_many_files() -> None:
    """Raise this process's limit of open files: five sockets per broker and more. Children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
