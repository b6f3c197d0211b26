"""A broker's sending part on a real store in memory, behind a real server on memory streams, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import attrs
import trio

from benchmarks.alone import Alone
from broker.ha.acks import QuorumConfig
from broker.journal import Journal
from broker.puts import Puts
from broker.schedule.delivery import DelayedDelivery, ScheduleConfig
from broker.schedule.levels import DelayLevels
from broker.sending.config import SendingConfig
from broker.sending.sendback import SendBack
from broker.sending.sending import Sending
from broker.store.disk import InlineDisk
from broker.store.files import MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from broker.store.tables import DelayOffsets, SubscriptionGroup, Topics, load
from broker.tablefile import TableFile
from broker.topics import TopicsConfig, TopicTable
from broker.topics.admin import TopicAdmin
from broker.transactions.conversion import Conversion
from harness.simulation.worlds.sending import SendMessageRequest
from harness.simulation.worlds.streams import client_and_server
from remoting.client import Client
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.headers.sending import SendMessageRequestV2
from remoting.record import Record, decode_properties, encode_properties, packed_host

STORE_HOST = packed_host("10.0.0.1", 10911)
SMALL = StoreConfig(log_file_bytes=1 << 20, queue_file_bytes=20 * 64, index_slots=11, index_entries=64)
EPOCH_MS = 1_700_000_000_000
UNIQ = "7F0000010B2C18B4AAC2355A1D8C0001"


async def inline(work: Callable[[], None]) -> None:
    await trio.lowlevel.checkpoint()
    work()


@attrs.define
class Groups:
    """Consumer groups, and those that hold locks."""

    known: dict[str, SubscriptionGroup] = attrs.field(factory=dict)
    locked: set[str] = attrs.field(factory=set)

    def find(self, name: str) -> SubscriptionGroup | None:
        return self.known.get(name)

    def held_by_group(self, group: str) -> bool:
        return group in self.locked


class World:
    """``open`` starts what is there; ``skew_ms`` moves the wall clock."""

    def __init__(self, files: MemoryFiles | None = None, config: SendingConfig | None = None,
                 topics: TopicsConfig | None = None, quorum: QuorumConfig | None = None,
                 schedule: ScheduleConfig | None = None) -> None:
        self.files = files or MemoryFiles()
        self.skew_ms = 0
        self.store = MessageStore(self.files, SMALL)
        self.journal = Journal(self.store, disk=InlineDisk(), wall_ms=self.wall_ms)
        self.journal.open()
        self.puts = Puts(self.journal, quorum or QuorumConfig())
        self.topics = TopicTable(topics or TopicsConfig(), self.wall_ms, load(self.files, Topics))
        self.topics_file = TableFile(self.files, self.topics.snapshot, inline)
        self.admin = TopicAdmin(self.topics, self.topics_file.saved)
        self.topics.on_change.join("file", self.topics_file.changed)
        self.topics.on_delete.join("queues", lambda name: self.journal.delete_topics([name.encode()]))
        self.groups = Groups()
        self.slave = False
        delays, self.halves = DelayLevels().rule, Conversion()
        self.sending = Sending(
            config or SendingConfig(), self.topics, self.topics_file, self.groups, self.groups, self.puts, STORE_HOST,
            Random(1), lambda: not self.slave, of_parts=[self.halves.rule, delays])
        self.sendback = SendBack(self.sending, self.topics, self.topics_file, self.groups, self.puts,
                                 self.journal.log.record, STORE_HOST, Random(2), of_parts=[self.halves.rule, delays])
        self.delayed = DelayedDelivery(
            schedule or ScheduleConfig(), self.journal, self.puts, load(self.files, DelayOffsets),
            wall_ms=self.wall_ms)
        self.delayed_file = TableFile(self.files, self.delayed.kept, inline)
        self.delayed.on_change = self.delayed_file.changed
        self.journal.ticks.join("parts", self.delayed.tick)
        self.alone: Alone | None = None
        self.client: Client

    def wall_ms(self) -> int:
        return EPOCH_MS + self.skew_ms + int(trio.current_time() * 1e3)

    def handlers(self) -> dict[int, Any]:
        return {**self.sending.handlers(), **self.sendback.handlers(), **self.delayed.handlers(),
                **self.admin.handlers()}

    def serve(self) -> None:
        """Become master."""
        self.delayed.start()
        self.alone = self.alone or Alone(self.journal)
        self.puts.serve(self.alone)

    async def ask(self, command: Command, **changes: Any) -> Command:
        for name, value in changes.items():
            setattr(command, name, value)
        return await self.client.call("s:1", command)

    # --- what is stored --------------------------------------------------------------------------------------

    async def records(self) -> list[Record]:
        """All of the log, in its order."""
        await trio.sleep(0.001)
        log = self.journal.log
        return [log.record(found[0]) for found in log.scan(log.min_offset)]

    async def last(self) -> tuple[str, int, dict[str, str]]:
        """Topic, queue and properties of the last message."""
        record = (await self.records())[-1]
        return record.message.topic.decode(), record.message.queue_id, decode_properties(record.message.properties)


@asynccontextmanager
async def running(world: World | None = None, **options: Any) -> AsyncGenerator[World, None]:
    """A master that serves; at the end the process dies: what is not synced may be lost by ``files.crash``."""
    world = world or World(**options)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.journal.run)
        await nursery.start(world.topics_file.run)
        await nursery.start(world.delayed_file.run)
        world.serve()
        async with client_and_server(world.handlers()) as (client, _, _):
            world.client = client
            yield world
        nursery.cancel_scope.cancel()


def send(topic: str = "Orders", body: bytes = b"hello", code: int = RequestCode.SEND_MESSAGE_V2,
         properties: dict[str, str] | None = None, version: int | None = None, **fields: Any) -> Command:
    """A send as Java's producer makes it."""
    made = {
        "topic": topic, "queue_id": 1, "producer_group": "p", "default_topic": "TBW102", "born_timestamp": 7,
        "properties": encode_properties({"UNIQ_KEY": UNIQ} if properties is None else properties).decode(), **fields}
    header = SendMessageRequest(**made) if code == RequestCode.SEND_MESSAGE else SendMessageRequestV2(**made)
    command = request(code, header, body)
    if version is not None:
        command.version = version
    return command
