"""Whole controllers in one trio program on virtual time, on memory streams and simulated disks.

With simple brokers, which register, send heartbeats and take part in elections. For tests of the servers; the cores
have tests of their own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from random import Random

import attrs
import trio

from controller.config import from_properties
from controller.metadata import codec
from controller.server import RunningController, serve_controller
from raft.errors import RaftError
from raft.sim.disk import SimulatedCrash, VirtualDisk
from raft.virtual.network import MemoryListener, MemoryNetwork
from remoting.bodies.controller import SyncStateSet
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.config import ClientConfig, ServerConfig
from remoting.connection import Connection
from remoting.daemon.files import MemoryFiles
from remoting.header import Header
from remoting.headers.controller import (
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    BrokerHeartbeatRequest,
    ElectMasterRequest,
    ElectMasterResponse,
    GetNextBrokerIdRequest,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
    NotifyBrokerRoleChangedRequest,
    RegisterBrokerToControllerRequest,
)
from remoting.server import Server

CLUSTER = "c"


class World:
    """Controllers n0, n1, … at ``n0:1``, …, and brokers at addresses of their own."""

    def __init__(
        self, nursery: trio.Nursery, count: int, properties: Mapping[str, str],
        network: MemoryNetwork | None = None,
    ) -> None:
        self.nursery, self.network = nursery, network or MemoryNetwork()
        self.names = [f"n{number}" for number in range(count)]
        self.properties = dict(properties)
        self.disks: dict[str, VirtualDisk] = {}
        self.running: dict[str, RunningController] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self.starts: list[str] = []
        self.reads: dict[str, int] = {}
        """The newest format that a controller of this name reads."""
        self.failed: dict[str, BaseExceptionGroup[RaftError]] = {}
        """Controllers that stopped by themselves."""
        self.brokers: list[SimpleBroker] = []
        self.client: Client | None = None

    # --- controllers -----------------------------------------------------------------------------------------

    def config_of(self, name: str) -> dict[str, str]:
        peers = ";".join(f"{each}-{each}:1" for each in dict.fromkeys((*self.names, name)))
        return {"controllerDLegerGroup": "g", "controllerDLegerPeers": peers, "controllerDLegerSelfId": name,
                "segmentBytes": str(1 << 20), **self.properties}

    async def start(self, name: str, **more: str) -> RunningController:
        disk = self.disks.setdefault(name, VirtualDisk(name=name))
        self.starts.append(name)
        listener = self.network.listeners[f"{name}:1"] = MemoryListener()
        config = from_properties({**self.config_of(name), **more})
        files = MemoryFiles()

        async def run(*, task_status: trio.TaskStatus[RunningController]) -> None:
            with trio.CancelScope() as self._scopes[name]:
                try:
                    await serve_controller(
                        config, files=files, listeners=[listener], connector=self.network.connector(f"{name}:1"),
                        raft_files=disk, rng=Random(f"{name} {len(self.starts)}"), wall_ms=lambda: 0,
                        reads=self.reads.get(name, codec.FORMAT), task_status=task_status)
                except* SimulatedCrash:
                    if name in self._scopes:  # a node that is missing was killed, and its disk with it
                        raise
                except* RaftError as failed:
                    if name not in self.running:
                        raise
                    self.failed[name] = failed
                    await self._gone(name)
                    self.disks[name].restart()

        self.running[name] = await self.nursery.start(run)
        return self.running[name]

    async def start_all(self, late: int = 0) -> None:
        """Start all controllers but the last ``late`` ones."""
        async with trio.open_nursery() as nursery:
            for name in self.names[:len(self.names) - late]:
                nursery.start_soon(self.start, name)

    async def kill(self, name: str) -> None:
        """Kill the process; unsynced writes are lost."""
        self._scopes.pop(name).cancel()
        await self._gone(name)
        await trio.testing.wait_all_tasks_blocked()
        self.disks[name].restart()

    async def _gone(self, name: str) -> None:
        self.network.listeners.pop(f"{name}:1", None)
        self.disks[name].crash()
        del self.running[name]
        await self.network.drop(f"{name}:1")

    def wipe(self, name: str) -> None:
        del self.disks[name]

    async def active(self) -> str:
        """Wait for an active controller, and return its name."""
        while True:
            for name, controller in self.running.items():
                if controller.core.active.active and f"{name}:1" not in self.network.silent:
                    return name
            await trio.sleep(0.005)

    # --- asking ----------------------------------------------------------------------------------------------

    async def ask(self, name: str, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        assert self.client is not None
        return await self.client.call(f"{name}:1", request(code, header, body))

    async def ask_active(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        return await self.ask(await self.active(), code, header, body)

    async def master_of(self, group: str) -> GetReplicaInfoResponse:
        answer = await self.ask_active(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(group))
        assert answer.code == ResponseCode.SUCCESS, answer
        return GetReplicaInfoResponse.from_ext(answer.ext)

    async def wait_master(self, group: str, broker_id: int | None) -> GetReplicaInfoResponse:
        while (info := await self.master_of(group)).master_broker_id != broker_id:
            await trio.sleep(0.005)
        return info

    # --- brokers ---------------------------------------------------------------------------------------------

    async def broker(self, group: str, number: int, **announced: object) -> SimpleBroker:
        broker = SimpleBroker(self, group, f"{group}-{number}:1", announced)
        self.brokers.append(broker)
        await self.nursery.start(broker.run)
        return broker


@attrs.define(eq=False)
class SimpleBroker:
    """A broker that registers, sends a heartbeat every second and remembers notifications. ``elect`` elects it."""

    world: World
    group: str
    address: str
    announced: dict[str, object]
    broker_id: int = 0
    told: list[NotifyBrokerRoleChangedRequest] = attrs.field(factory=list)
    deaf: bool = False
    """Leaves notifications unanswered."""
    renewed: list[bool] = attrs.field(factory=list)
    """For each answered heartbeat, whether it renewed the lease."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _client: Client | None = None

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        network = self.world.network
        server = Server({RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._notified}, config=ServerConfig())
        listener = network.listeners[self.address] = MemoryListener()
        with self._scope:
            async with (open_client(ClientConfig(), connector=network.connector(self.address)) as self._client,
                        trio.open_nursery() as nursery):
                nursery.start_soon(server.run, [listener])
                if not self.broker_id:
                    await self._register()
                await self.beat()
                task_status.started()
                while True:
                    await trio.sleep(1)
                    await self.beat()

    def _notified(self, _: Connection, command: Command) -> Command | None:
        if self.deaf:
            return None
        self.told.append(NotifyBrokerRoleChangedRequest.from_ext(command.ext))
        return response(command)

    async def call(self, code: int, header: Header, body: bytes = b"") -> Command:
        assert self._client is not None
        return await self._client.call(f"{await self.world.active()}:1", request(code, header, body))

    async def _register(self) -> None:
        answer = await self.call(
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, GetNextBrokerIdRequest(CLUSTER, self.group))
        self.broker_id = int(answer.ext["nextBrokerId"])
        answer = await self.call(RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequest(
            CLUSTER, self.group, self.broker_id, f"{self.address};1"))
        assert answer.code == ResponseCode.SUCCESS, answer
        await self.register()

    async def register(self) -> Command:
        life = self.announced.get("broker_life")
        assert life is None or isinstance(life, int)
        return await self.call(RequestCode.CONTROLLER_REGISTER_BROKER, RegisterBrokerToControllerRequest(
            CLUSTER, self.group, self.broker_id, self.address, broker_life=life))

    async def beat(self) -> None:
        header = BrokerHeartbeatRequest(
            CLUSTER, self.address, self.group, self.broker_id, 1, 0, 0, **self.announced)  # type: ignore[arg-type]
        answers = []

        async def one(name: str) -> None:
            assert self._client is not None
            with trio.move_on_after(0.9):
                try:
                    answers.append(await self._client.call(f"{name}:1", request(RequestCode.BROKER_HEARTBEAT, header)))
                except Exception:  # noqa: BLE001  a controller that is down misses a beat
                    return

        async with trio.open_nursery() as nursery:
            for name in list(self.world.running):
                nursery.start_soon(one, name)
        self.renewed.append(any(answer.ext.get("masterLeaseRenewed") == "true" for answer in answers))

    async def elect(self) -> tuple[int, ElectMasterResponse]:
        answer = await self.call(
            RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequest(CLUSTER, self.group, self.broker_id))
        return answer.code, ElectMasterResponse.from_ext(answer.ext)

    async def alter(self, members: set[int], master_epoch: int, epoch: int) -> Command:
        return await self.call(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            AlterSyncStateSetRequest(self.group, self.broker_id, master_epoch),
            SyncStateSet(frozenset(members), epoch).to_json())

    async def kill(self) -> None:
        self.world.network.listeners.pop(self.address, None)
        self._scope.cancel()
        await self.world.network.drop(self.address)

    def fall_silent(self) -> None:
        """Silence it, as SIGSTOP does: connections stay, and nothing passes."""
        self.world.network.silent.add(self.address)

    async def come_back(self) -> None:
        self._scope = trio.CancelScope()
        await self.world.nursery.start(self.run)


@asynccontextmanager
async def world(
    count: int = 3, late: int = 0, reads: int | None = None, network: MemoryNetwork | None = None, **properties: str,
) -> AsyncGenerator[World, None]:
    """Run controllers, one of them active. ``reads``: the newest format that they read; ``network``: None: a new one.
    """
    async with trio.open_nursery() as nursery:
        made = World(nursery, count, properties, network)
        made.reads = dict.fromkeys(made.names, reads or codec.FORMAT)
        async with open_client(ClientConfig(), connector=made.network.connector("client")) as made.client:
            await made.start_all(late)
            await made.active()
            yield made
        nursery.cancel_scope.cancel()


async def group_of(made: World, name: str, size: int, **announced: object) -> list[SimpleBroker]:
    """Run a group whose first broker is master and whose SyncStateSet has all brokers."""
    brokers = [await made.broker(name, number, **announced) for number in range(1, size + 1)]
    code, elected = await brokers[0].elect()
    assert code == ResponseCode.SUCCESS and elected.master_epoch is not None
    answer = await brokers[0].alter({broker.broker_id for broker in brokers}, elected.master_epoch, 1)
    assert answer.code == ResponseCode.SUCCESS, answer
    return brokers
