"""A broker for consumers, on memory streams, a disk in memory and virtual time, and what its clients say."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from broker.consumers import ClientsConfig, Consumers, Locks, Producers
from broker.consumers.heartbeats import Heartbeats
from broker.filters.table import FilterKeys, Filters
from broker.groups import GroupsConfig, GroupTable
from broker.journal import Journal
from broker.offsets import OffsetsConfig, OffsetTable
from broker.pulling.checks import PullConfig
from broker.pulling.reading import ReadConfig
from broker.pulling.requests import Pulling
from broker.query.listings import Listings
from broker.standing import Standing
from broker.store.disk import InlineDisk
from broker.store.files import MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from broker.topics import TopicsConfig, TopicTable
from harness.simulation.worlds.streams import Net, Wire, net
from remoting.bodies.consumers import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode
from remoting.command import RESPONSE, Command
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.pulling import PullMessageRequest
from remoting.record import Message, encode_properties
from remoting.server import Server

SMALL = StoreConfig(log_file_bytes=1 << 16, queue_file_bytes=20 * 64, index_slots=11, index_entries=1_000)


@attrs.define(eq=False)
class World:
    """The parts, and a wire to them. Topic ``t`` has four queues."""

    net: Net
    store: MessageStore
    journal: Journal
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    consumers: Consumers
    producers: Producers
    locks: Locks
    filters: Filters
    standing: Standing
    pulling: Pulling
    heartbeats: Heartbeats
    server: Server
    wire: Wire
    handlers: dict[int, Handler]
    """By code; more may be put in."""
    pushed: list[tuple[Wire, Command]] = attrs.field(factory=list)
    """What came to a client unasked while it waited for an answer."""

    async def dial(self) -> Wire:
        """Another client's connection."""
        return Wire(await self.net.connect("s:1"))

    async def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", *,
                  wire: Wire | None = None, version: int = 513, language: int = 0) -> Command:
        wire = wire or self.wire
        await wire.send(Command(code, opaque=1, ext=dict(ext or {}), body=body, version=version, language=language))
        while True:
            answer = await wire.receive()
            assert answer is not None, "closed"
            if answer.flag & RESPONSE:
                return answer
            self.pushed.append((wire, answer))

    async def put(self, *tags: str, topic: str = "t", queue_id: int = 0) -> None:
        """A message for each, all in one turn; they are visible when this returns."""
        self.journal.append([
            Message(topic.encode(), f"{tag} {number}".encode(), queue_id,
                    encode_properties({"TAGS": tag, "KEYS": f"key{number}"} if tag else {}))
            for number, tag in enumerate(tags)])
        await trio.testing.wait_all_tasks_blocked()
        self.journal.confirm(self.journal.end)
        await trio.testing.wait_all_tasks_blocked()

    async def put_with(self, *properties: dict[str, str], topic: str = "t", queue_id: int = 0,
                       body: bytes = b"x") -> None:
        """A message with each of these, as ``put`` does."""
        self.journal.append([Message(topic.encode(), body, queue_id, encode_properties(each)) for each in properties])
        await trio.testing.wait_all_tasks_blocked()
        self.journal.confirm(self.journal.end)
        await trio.testing.wait_all_tasks_blocked()

    async def heartbeat(self, group: str, *topics: str, client: str = "c1", wire: Wire | None = None,
                        fingerprint: int = 0, without: bool = False, expression: str = "*", version: int = 1,
                        **changes: Any) -> Command:
        data = ConsumerData(group, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", [
            SubscriptionData(topic, expression, sub_version=version) for topic in topics])
        data = attrs.evolve(data, **changes)
        beat = HeartbeatData(client, [ProducerData(f"p-{group}")], [data], fingerprint, without)
        return await self.ask(RequestCode.HEART_BEAT, body=beat.to_json(), wire=wire)


def pull(offset: int, *, group: str = "g", topic: str = "t", queue_id: int = 0, **changes: Any) -> dict[str, str]:
    """Ext fields of a pull."""
    return PullMessageRequest(group, topic, queue_id, offset, **changes).to_ext()


@asynccontextmanager
async def running(
    *, pulls: PullConfig | None = None, reads: ReadConfig | None = None,
    clients: ClientsConfig | None = None, groups: GroupsConfig | None = None, offsets: OffsetsConfig | None = None,
    memory: int = 1 << 62, filters: FilterKeys | None = None,
) -> AsyncGenerator[World, None]:
    """Serves pulls and heartbeats."""
    def now_ns() -> int:
        return int(trio.current_time() * 1e9)

    def now_ms() -> int:
        return now_ns() // 1_000_000

    store = MessageStore(MemoryFiles(), SMALL)
    journal = Journal(store, disk=InlineDisk(), now_ns=now_ns, wall_ms=now_ms)
    journal.open()
    topics = TopicTable(TopicsConfig(broker_cluster_name="c", broker_name="b"), now_ms)
    topics.update([TopicConfig("t", 4, 4)])
    group_table = GroupTable(groups or GroupsConfig(), now_ms)
    offset_table = OffsetTable(offsets or OffsetsConfig(), now_ms)
    consumers, producers = Consumers(clients or ClientsConfig()), Producers(clients or ClientsConfig())
    locks, standing = Locks(now_ns), Standing("c", "b", "10.0.0.1:10911")
    filter_table = Filters(filters or FilterKeys(), now_ms)
    heartbeats = Heartbeats(consumers, producers, locks, groups=group_table, topics=topics, filters=filter_table,
                            standing=standing, now_ns=now_ns)
    pulling = Pulling(pulls or PullConfig(), reads or ReadConfig(), journal=journal, topics=topics, groups=group_table,
                      offsets=offset_table, consumers=consumers, filters=filter_table, standing=standing,
                      now_ns=now_ns, memory=memory)
    journal.veil.lifted = pulling.all_seen
    listings = Listings(consumers, producers, offset_table, standing, now_ns=now_ns,
                        wall_ms=lambda: 1_000_000 + now_ms())
    served = {**pulling.handlers(), **heartbeats.handlers(), **listings.handlers()}

    def handle(connection: Connection, command: Command) -> Any:
        return served[command.code](connection, command)

    async with net() as made:
        for part in (journal, pulling, heartbeats):
            await made.nursery.start(part.run)
        server = await made.serve(
            "s:1", Server(dict.fromkeys(map(int, RequestCode), handle), on_close=heartbeats.closed))
        yield World(made, store, journal, topics, group_table, offset_table, consumers, producers, locks,
                    filter_table, standing, pulling, heartbeats, server, Wire(await made.connect("s:1")), served)
