"""Whole brokers with a name server and controllers in one trio program, on memory streams, disks and virtual time.

A broker can be killed, loses unsynced writes then, and can be started again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random

import attrs
import trio

from broker.client import Client as BrokerClient
from broker.client import connect
from broker.config import BrokerConfig, from_properties
from broker.consumers.part import ClientsPart
from broker.groups import GroupTable
from broker.groups.part import GroupsPart
from broker.offsets import OffsetTable
from broker.offsets.part import OffsetsPart
from broker.part import PartClass
from broker.parts import PARTS, configuration
from broker.pulling.part import PullingPart
from broker.pulling.requests import Pulling
from broker.server import RunningBroker, World, serve_broker
from broker.siblings.sockets import Siblings
from broker.store.disk import Disk, InlineDisk
from broker.store.files import MemoryFiles as StoreFiles
from broker.topics import TopicTable
from broker.topics.part import TopicsPart
from controller.namesrv.config import NamesrvConfig
from controller.namesrv.server import RunningNamesrv, serve_namesrv
from harness.simulation.worlds.controllers import World as Controllers
from harness.simulation.worlds.controllers import world as controllers_of
from harness.simulation.worlds.sending import SendMessageRequest
from raft.virtual.network import MemoryListener, MemoryNetwork
from remoting.bodies.namesrv import TopicRouteData
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.daemon.files import MemoryFiles
from remoting.header import Header
from remoting.headers.namesrv import GetRouteInfoRequest
from remoting.headers.pulling import PullMessageRequest

NAMESRV = "10.0.9.9:9876"
NAMESRV_CONFIG = NamesrvConfig()
CLUSTER = "c"
CONTAINER_PORT = 1
"""In place of the socket of a broker in a container."""
EPOCH_MS = 1_700_000_000_000
SMALL = {
    "mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": str(20 * 64), "maxHashSlotNum": "64",
    "maxIndexNum": "256"}


def now_ns() -> int:
    return int(trio.current_time() * 1e9)


def wall_ms() -> int:
    return EPOCH_MS + int(trio.current_time() * 1e3)


async def inline(work: Callable[[], None]) -> None:
    await trio.lowlevel.checkpoint()
    work()


async def until(condition: Callable[[], object], *, within_s: float = 60) -> None:
    with trio.fail_after(within_s):
        while not condition():
            await trio.sleep(0.01)


@attrs.define(eq=False)
class Node:
    """One broker's machine, with the state that outlives its process."""

    cluster: Cluster
    host: str
    settings: dict[str, str]
    files: MemoryFiles = attrs.field(factory=MemoryFiles)
    store: StoreFiles = attrs.field(factory=StoreFiles)
    disk: Disk = attrs.field(factory=InlineDisk)
    parts: tuple[PartClass, ...] = PARTS
    running: RunningBroker | None = None
    ended: trio.Event = attrs.field(factory=trio.Event)
    starts: int = 0
    ahead_ms: int = 0
    """By which the clock on its wall is ahead."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def address(self) -> str:
        return f"{self.host}:10911"

    @property
    def config(self) -> BrokerConfig:
        return from_properties({
            **SMALL, "brokerClusterName": CLUSTER, "brokerName": "a", "brokerIP1": self.host, "namesrvAddr": NAMESRV,
            "storePathRootDir": "/store", **self.settings}, start=configuration(self.parts)())

    @property
    def broker(self) -> RunningBroker:
        assert self.running is not None, "it runs"
        return self.running

    @property
    def topics(self) -> TopicTable:
        return self.broker.parts[TopicsPart].table

    @property
    def groups(self) -> GroupTable:
        return self.broker.parts[GroupsPart].table

    @property
    def offsets(self) -> OffsetTable:
        return self.broker.parts[OffsetsPart].table

    @property
    def pulling(self) -> Pulling:
        return self.broker.parts[PullingPart].pulling

    @property
    def clients(self) -> ClientsPart:
        return self.broker.parts[ClientsPart]

    async def start(self) -> RunningBroker:
        network = self.cluster.network
        self.starts += 1
        listener = network.listeners[self.address] = MemoryListener()
        ha = network.listeners[f"{self.host}:10912"] = MemoryListener()
        world = World(
            self.files, self.store, now_ns=now_ns, wall_ms=lambda: wall_ms() + self.ahead_ms,
            connector=network.connector(self.address), rng=Random(f"{self.host} {self.starts}"), disk=self.disk,
            run_sync=inline, siblings=self._siblings())
        self._scope, self.ended = trio.CancelScope(), trio.Event()

        async def run(*, task_status: trio.TaskStatus[RunningBroker]) -> None:
            with self._scope:
                await serve_broker(
                    self.config, world, [listener], ha_listeners=[ha], config_path="/broker.conf",
                    parts=self.parts, task_status=task_status)
            self.ended.set()

        self.running = await self.cluster.nursery.start(run)
        return self.running

    def _siblings(self) -> Siblings | None:
        hosts, network, port = self.cluster.container, self.cluster.network, CONTAINER_PORT
        if self.host not in hosts:
            return None
        listener = network.listeners[f"{self.host}:{port}"] = MemoryListener()
        return Siblings(listener, lambda: [f"{host}:{port}" for host in hosts if host != self.host],
                        network.connector(self.address))

    async def stop(self) -> None:
        """Stop the broker in order, and wait for its end."""
        await self.broker.stop()
        await self.ended.wait()
        await self._gone()

    async def kill(self) -> None:
        """Kill the process and cut the power: unsynced writes are lost."""
        self._scope.cancel()
        await self._gone()
        await self.ended.wait()
        self.store.crash()

    async def _gone(self) -> None:
        self.running = None
        for address in (self.address, f"{self.host}:10912", f"{self.host}:{CONTAINER_PORT}"):
            self.cluster.network.listeners.pop(address, None)
            await self.cluster.network.drop(address)

    def shed(self) -> None:
        """Delete the files of the log that no part needs, whatever their age; parts put forward what they need."""
        journal = self.broker.journal
        journal.retention = attrs.evolve(journal.retention, file_reserved_time=0)
        journal.delete_old_files()

    @property
    def serves(self) -> bool:
        return self.running is not None and self.running.puts.serving


class Cluster:
    """A cluster of brokers. ``node`` adds a machine; requests go through ``client``."""

    def __init__(self, nursery: trio.Nursery, network: MemoryNetwork, client: Client,
                 namesrv_config: NamesrvConfig) -> None:
        self.namesrv_config = namesrv_config
        self.nursery, self.network, self.client = nursery, network, client
        self.nodes: list[Node] = []
        self.container: Sequence[str] = ()
        """Hosts of brokers that are siblings of one container, from their next start on."""
        self.controllers: Controllers | None = None
        self.namesrv: RunningNamesrv
        self._namesrv_scope = trio.CancelScope()

    async def start_namesrv(self) -> None:
        listener = self.network.listeners[NAMESRV] = MemoryListener()
        self._namesrv_scope = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[RunningNamesrv]) -> None:
            with self._namesrv_scope:
                await serve_namesrv(self.namesrv_config, clock=now_ns, files=MemoryFiles(), listeners=[listener],
                                    connector=self.network.connector(NAMESRV), task_status=task_status)

        self.namesrv = await self.nursery.start(run)

    async def kill_namesrv(self) -> None:
        self._namesrv_scope.cancel()
        self.network.listeners.pop(NAMESRV, None)
        await self.network.drop(NAMESRV)

    async def node(self, disk: Disk | None = None, parts: tuple[PartClass, ...] = PARTS, /, **settings: str) -> Node:
        node = Node(self, f"10.0.0.{len(self.nodes) + 1}", settings, parts=parts)
        if disk is not None:
            node.disk = disk
        self.nodes.append(node)
        await node.start()
        return node

    async def copy(self, node: Node, host: str) -> Node:
        """Start a copy of a node's disks on another machine."""
        other = Node(self, host, node.settings, files=MemoryFiles(dict(node.files.contents)))
        other.store.put_back(node.store.copied())
        self.nodes.append(other)
        await other.start()
        return other

    def connect(self, name: str = "client") -> AbstractAsyncContextManager[BrokerClient]:
        """Connect a client as users have it: producer, consumer and queries."""
        return connect([NAMESRV], producer_group="producers", client_id=name, host="10.0.7.7", random=Random(name),
                       connector=self.network.connector(f"{name}:1"))

    async def ask(self, address: str, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        return await self.client.call(address, request(code, header, body), timeout_ms=30_000)

    async def send(self, address: str, body: bytes, topic: str = "T", queue: int = 0, properties: str = "") -> Command:
        header = SendMessageRequest(
            producer_group="P", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue,
            born_timestamp=wall_ms(), properties=properties, reconsume_times=0, unit_mode=False, batch=False)
        return await self.ask(address, RequestCode.SEND_MESSAGE, header, body)

    async def fill_files(self, node: Node) -> None:
        """Send messages to another topic: two files of 64 KiB, and more."""
        for _ in range(70):
            assert (await self.send(node.address, b"y" * 2_000, "Other")).code == ResponseCode.SUCCESS

    async def pull(self, address: str, offset: int = 0, topic: str = "T", queue: int = 0) -> Command:
        header = PullMessageRequest(
            consumer_group="G", topic=topic, queue_id=queue, queue_offset=offset, max_msg_nums=32, sys_flag=4,
            commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0)
        return await self.ask(address, RequestCode.PULL_MESSAGE, header)

    async def route(self, topic: str) -> dict[int, str]:
        """Addresses of the topic's first group; {} for an unknown topic."""
        answer = await self.ask(NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        found = TopicRouteData.from_json(answer.body).broker_datas
        return dict(found[0].broker_addrs) if found else {}

    async def wait_route(self, topic: str, wanted: dict[int, str], *, within_s: float = 60) -> None:
        with trio.fail_after(within_s):
            while await self.route(topic) != wanted:
                await trio.sleep(0.01)


@asynccontextmanager
async def cluster(
    *, controllers: int = 0, reads: int | None = None, namesrv: NamesrvConfig = NAMESRV_CONFIG,
    network: MemoryNetwork | None = None,
) -> AsyncGenerator[Cluster, None]:
    """Run a cluster with a name server. For nodes under ``controllers``, n0 and on, use ``controlled()``.

    ``network`` may be that of a ``raft.virtual.VirtualWorld``, whose latencies come from the seed.
    """
    if controllers:
        async with controllers_of(controllers, reads=reads, network=network) as made, _with(
                made.nursery, made.network, namesrv) as found:
            found.controllers = made
            yield found
    else:
        async with trio.open_nursery() as nursery:
            async with _with(nursery, network or MemoryNetwork(), namesrv) as found:
                yield found
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _with(nursery: trio.Nursery, network: MemoryNetwork, namesrv: NamesrvConfig) -> AsyncGenerator[Cluster, None]:
    async with open_client(connector=network.connector("10.0.9.1:1")) as client:
        made = Cluster(nursery, network, client, namesrv)
        await made.start_namesrv()
        yield made


def controlled(count: int = 3) -> dict[str, str]:
    """Settings for a broker under so many controllers."""
    return {"enableControllerMode": "true", "controllerAddr": ";".join(f"n{number}:1" for number in range(count))}


async def three(made: Cluster, **settings: str) -> tuple[Node, Node, Node]:
    """Run a master and two slaves, all in sync, under three controllers."""
    nodes = [await made.node(**controlled(), **settings) for _ in range(3)]
    await until(lambda: any(node.serves for node in nodes))
    master = next(node for node in nodes if node.serves)
    await in_sync(master, 2)
    first, second = (node for node in nodes if node is not master)
    return master, first, second


async def in_sync(master: Node, slaves: int) -> None:
    """Wait until so many of its slaves are in sync."""
    await until(lambda: master.broker.roles.runtime_info().in_sync_slave_nums == slaves)


async def new_master(*nodes: Node) -> Node:
    """Wait for a master, and return its node."""
    await until(lambda: any(node.serves for node in nodes))
    return next(node for node in nodes if node.serves)
