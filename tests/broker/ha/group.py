"""Brokers in one process, their HA ports joined by a network in memory that delays, cuts into pieces, and fails."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest

import attrs
import trio
from trio.abc import Listener, Stream
from trio.testing import memory_stream_pair

from broker.ha.acks import QuorumConfig
from broker.ha.autoswitch import AutoSwitch
from broker.ha.config import HaConfig
from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochList
from broker.ha.insync import InSync
from broker.ha.mark import ConfirmMark
from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.journal import FlushDiskType, Journal, JournalConfig
from broker.puts import PutResult, Puts
from broker.store.disk import InlineDisk
from broker.store.files import MemoryFiles
from broker.store.log import Log
from broker.store.store import MessageStore, StoreConfig
from remoting.record import Message

SMALL = StoreConfig(log_file_bytes=1 << 14, queue_file_bytes=20 * 64, index=False)
ALL_ACK = HaConfig(all_ack_in_sync_state_set=True, transfer_batch_bytes=700, catch_up_batch_bytes=3_000)


def in_sync(accepted: set[int], end: int = 0, confirm: int = 0, **more: object) -> InSync:
    """Of broker 1, a master since time 0 whose log ends at ``end``; ``more``: keys of its configuration."""
    config = attrs.evolve(ALL_ACK, **more)  # type: ignore[arg-type]
    return InSync(1, config, frozenset(accepted), 1, 0, confirm, end, end, 0)


class MemoryListener(Listener[Stream]):
    """Of an HA port. What is dialled waits here to be accepted."""

    def __init__(self) -> None:
        self.dial, self._dialled = trio.open_memory_channel[Stream](100)

    async def accept(self) -> Stream:
        return await self._dialled.receive()

    async def aclose(self) -> None:
        self.dial.close()


class Net:
    """HA ports by address. Bytes pass through relays, so a link can be cut, or hang without anybody knowing."""

    def __init__(self, nursery: trio.Nursery, rng: random.Random | None = None) -> None:
        self.nursery, self.rng = nursery, rng
        self.ports: dict[str, MemoryListener] = {}
        self.links: list[Relay] = []
        self.dialled: list[str] = []
        self.delay_s = 0.0

    def listen(self, address: str) -> MemoryListener:
        listener = self.ports[address] = MemoryListener()
        return listener

    async def connect(self, address: str) -> Stream:
        self.dialled.append(address)
        await trio.sleep(self.delay_s)
        if address not in self.ports:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        (ours, near), (far, theirs) = memory_stream_pair(), memory_stream_pair()
        relay = Relay(self, near, far)
        self.links.append(relay)
        self.nursery.start_soon(relay.run)
        self.ports[address].dial.send_nowait(theirs)
        return ours

    def cut(self) -> None:
        """Every connection."""
        for link in self.links:
            link.scope.cancel()
        self.links.clear()


@attrs.define(eq=False)
class Relay:
    net: Net
    near: Stream
    far: Stream
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    hangs: bool = False

    async def run(self) -> None:
        try:
            with self.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, self.near, self.far)
                    nursery.start_soon(self._pump, self.far, self.near)
        finally:
            for stream in (self.near, self.far):
                await trio.aclose_forcefully(stream)

    async def _pump(self, source: Stream, target: Stream) -> None:
        rng = self.net.rng
        try:
            while data := await source.receive_some(1 << 16 if rng is None else rng.choice((7, 100, 5_000, 1 << 16))):
                if rng is not None and rng.random() < 0.2:
                    await trio.sleep(rng.random() * 0.05)
                while self.hangs:
                    await trio.sleep(1)
                await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.scope.cancel()


@attrs.define(eq=False)
class Broker:
    """One process and its disk. ``start`` it, ``stop`` it, and ``start`` it again over the same files."""

    net: Net
    id: int
    config: HaConfig = ALL_ACK
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    files: MemoryFiles = attrs.field(factory=MemoryFiles)
    store: MessageStore = attrs.field(init=False)
    journal: Journal = attrs.field(init=False)
    switch: AutoSwitch = attrs.field(init=False)
    puts: Puts = attrs.field(init=False)
    boot: str = "first"
    """Of its machine."""
    own_log: Log | None = None
    """None: a commit log among its files."""
    changes: int = 0
    _scope: trio.CancelScope | None = None
    _ended: trio.Event = attrs.field(factory=trio.Event)

    @property
    def address(self) -> str:
        return f"b{self.id}:10912"

    @property
    def running(self) -> bool:
        return self._scope is not None

    def open(self) -> None:
        self.store = MessageStore(self.files, SMALL, log=self.own_log, boot=self.boot,
                                  synced=self.flush is FlushDiskType.SYNC_FLUSH)
        self.journal = Journal(self.store, JournalConfig(flush_disk_type=self.flush), disk=InlineDisk())
        self.journal.open()
        self.switch = AutoSwitch(
            self.journal, EpochFile(self.files, boot=self.boot), self.config, ha_address=self.address,
            connector=self.net.connect, mark=ConfirmMark(self.files))
        self.switch.broker_id = self.id
        self.puts = Puts(self.journal, QuorumConfig(
            all_ack_in_sync_state_set=self.config.all_ack_in_sync_state_set))
        self.switch.advanced = self.puts.advanced
        self.switch.changed = self._changed

    async def start(self) -> None:
        self.open()
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        started = trio.Event()
        self.net.nursery.start_soon(self._run, self._scope, self._ended, started)
        await started.wait()

    async def _run(self, scope: trio.CancelScope, ended: trio.Event, started: trio.Event) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.journal.run)
                await nursery.start(self.switch.run, [self.net.listen(self.address)])
                started.set()
        ended.set()

    async def stop(self) -> None:
        """As by kill -9: what the system has stays."""
        if self._scope is not None:
            self.net.ports.pop(self.address, None)
            self._scope.cancel()
            self._scope = None
            await self._ended.wait()

    def _changed(self) -> None:
        self.changes += 1

    async def lead(self, epoch: int, members: set[int] | None = None, set_epoch: int | None = None) -> InSync:
        held = await self.switch.become_master(BecomeMaster(
            epoch, frozenset(members or {self.id}), epoch if set_epoch is None else set_epoch))
        self.puts.serve(self.switch)
        return held

    async def follow(self, master: Broker, epoch: int, *, known: bool = True) -> None:
        self.puts.fence("it is a slave")
        await self.switch.become_slave(BecomeSlave(epoch, master.id, f"b{master.id}:10911"),
                                       master.address if known else None)

    def put(self, body: bytes, queue: int = 0) -> list[PutResult]:
        results: list[PutResult] = []
        self.puts.put([Message(b"T", body, queue)], results.append)
        return results

    @property
    def log(self) -> bytes:
        return log_of(self.journal)

    @property
    def written_epochs(self) -> EpochList:
        """On its disk."""
        return EpochFile(self.files).read().epochs

    def visible(self, queue: int = 0) -> int:
        return self.journal.messages.max_offset(b"T", queue)


def log_of(journal: Journal) -> bytes:
    """All of it."""
    at, parts = journal.begin, []
    while part := journal.read(at, 1 << 20):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


@asynccontextmanager
async def group(count: int, *, rng: random.Random | None = None, config: HaConfig = ALL_ACK,
                flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
                logs: Sequence[Log | None] = ()) -> AsyncGenerator[tuple[Net, list[Broker]], None]:
    """Brokers 1 and on, started, in no role."""
    async with trio.open_nursery() as nursery:
        net = Net(nursery, rng)
        brokers = [Broker(net, number, config, flush) for number in range(1, count + 1)]
        for broker, log in zip_longest(brokers, logs):
            broker.own_log = log
            await broker.start()
        yield net, brokers
        nursery.cancel_scope.cancel()
