"""Nodes in one trio program without sockets or files: memory storage behind a disk task, links that can be cut.

For tests of ``raft.node`` alone, on a virtual clock. The host, the transport and the real disk have tests of their own.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random, SystemRandom
from typing import Any

import attrs
import trio

from raft.config import Config
from raft.driver import Driver
from raft.errors import StorageError
from raft.host import monotonic_ns, run_inline
from raft.membership import Member, Membership
from raft.messages import PeerMessage, Recovered, Write
from raft.node import Node
from raft.replica import LIFE_BITS, Replica
from raft.rules import make_rules
from raft.statemachine import AnyMachine
from raft.status import Refusal
from raft.storage.interface import EarlyAck
from raft.storage.memory import MemoryStorage
from raft.surroundings import System
from raft.wakeup import Bell

ONE = {"n0": "h:1"}
THREE = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}


class Counter:
    """The smallest useful machine: adds up the last nine digits of its commands."""

    def __init__(self) -> None:
        self.n = 0
        self.log: list[bytes] = []

    def apply(self, command: bytes) -> int:
        self.n += int(command[-9:])
        self.log.append(command)
        return self.n

    def snapshot(self) -> bytes:
        return str(self.n).encode()

    def restore(self, data: bytes) -> None:
        self.n = int(data)


@attrs.define(eq=False, slots=False)
class DiskTask:
    """Writes and syncs in a task of its own, so that durability comes later than the write, as on a real disk."""

    storage: MemoryStorage
    driver: Driver | None = None
    stalled: bool = False
    fault: StorageError | None = None
    bell: Bell = attrs.Factory(Bell)
    queue: list[Write] = attrs.Factory(list)
    early_acks: bool = False

    def submit(self, write: Write) -> None:
        self.queue.append(write)
        self.bell.ring()

    def submit_with_ack(self, write: Write, ack: tuple[str, PeerMessage] | None) -> EarlyAck | None:
        raise NotImplementedError

    def write_inline(self, write: Write) -> bool | None:
        return None

    def report_now(self, wanted: bool) -> None: ...

    async def run(self) -> None:
        assert self.driver is not None
        while True:
            await self.bell.wait()
            if self.stalled or not self.queue:
                continue
            writes, self.queue = self.queue, []
            if self.fault is not None:
                fault, self.fault = self.fault, None
                self.driver.write_failed(fault)
                continue
            self.storage.write(writes)
            self.storage.sync()
            self.driver.durable(writes[-1].token)


@attrs.define(eq=False, slots=False)
class OtherNodes:
    """The other nodes, as one node of a ``Nodes`` sees them."""

    net: Nodes
    name: str
    send: Callable[[str, PeerMessage], object]

    def flush(self, most: int | None) -> None: ...
    def early_ack_sent(self, peer: str, ack: Any) -> None: ...
    def connected(self, peer: str) -> bool:
        return (peer, self.name) not in self.net.cut

    def refusals(self) -> Sequence[Refusal]:
        return []

    def learn(self, addresses: Mapping[str, str]) -> None: ...
    def members_changed(self, membership: Membership) -> None: ...


class Nodes:
    """A group of nodes. ``cut`` holds pairs (from, to) over which nothing passes."""

    def __init__(self, nursery: trio.Nursery, config: Config | None = None) -> None:
        self.nursery, self.config = nursery, config or Config()
        self.nodes: dict[str, Node] = {}
        self.disks: dict[str, DiskTask] = {}
        self.scopes: dict[str, trio.CancelScope] = {}
        self.cut: set[tuple[str, str]] = set()
        self.record = False
        self.sent: list[tuple[str, str, PeerMessage]] = []
        """Messages as (from, to, message), while ``record`` is set."""
        self._queue: list[tuple[str, str, PeerMessage]] = []
        self._bell = Bell()
        nursery.start_soon(self._deliver)

    async def _deliver(self) -> None:
        while True:
            await self._bell.wait()
            queue, self._queue = self._queue, []
            touched = []
            for source, target, message in queue:
                node = self.nodes.get(target)
                if node is not None and (source, target) not in self.cut:
                    node._driver.receive(source, message)
                    touched.append(node)
            for node in dict.fromkeys(touched):
                node._driver.pump()

    def isolate(self, name: str) -> None:
        self.cut |= {pair for other in self.nodes for pair in ((name, other), (other, name))}

    def heal(self) -> None:
        self.cut.clear()

    async def start(
        self, name: str, voters: Mapping[str, str], machine: AnyMachine, storage: MemoryStorage | None = None,
        config: Config | None = None,
    ) -> Node:
        config = config or self.config
        storage = storage or MemoryStorage()
        disk = DiskTask(storage)
        recovered = storage.open().get(1)
        replica = Replica(
            group=1, node_id=name, config=config, rules=make_rules(config), rng=Random(name), now=monotonic_ns(),
            recovered=recovered or Recovered(), life=SystemRandom().getrandbits(LIFE_BITS),
            incarnation=name.encode().ljust(16, b"."),
            membership=Membership(voters=tuple(voters), members={v: Member(a) for v, a in voters.items()}))

        def send(peer: str, message: PeerMessage) -> None:
            if self.record:
                self.sent.append((name, peer, message))
            self._queue.append((name, peer, message))
            self._bell.ring()

        driver = Driver(name="default", cluster="test", replica=replica, state_machine=machine, config=config,
                        disk=disk, peers=OtherNodes(self, name, send),
                        system=System(monotonic_ns, lambda: time.time_ns() // 1_000_000, run_inline))
        disk.driver = driver
        self.disks[name] = disk
        await self.nursery.start(self._run, name, driver, disk)
        return self.nodes[name]

    async def _run(
        self, name: str, driver: Driver, disk: DiskTask, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with trio.open_nursery() as nursery:
            self.scopes[name] = nursery.cancel_scope
            nursery.start_soon(disk.run)
            self.nodes[name] = Node(driver, driver.applier.machine.encode)
            await driver.restore()
            driver.start(nursery)
            task_status.started()
        del self.nodes[name]

    def kill(self, name: str) -> MemoryStorage:
        """Stop a node at once, as a crash would: unsynced writes are lost."""
        node = self.nodes.pop(name)
        node._driver.close()
        self.scopes[name].cancel()
        self.nodes[name] = node  # the node's task removes it
        storage = self.disks[name].storage
        storage.crash()
        return storage

    async def leader(self) -> Node:
        """The node that leads, once all nodes that can hear it agree."""
        while True:
            leaders = [node for node in self.nodes.values() if node.is_leader]
            if len(leaders) == 1:
                return leaders[0]
            await trio.sleep(0.01)


@asynccontextmanager
async def network(config: Config | None = None) -> AsyncIterator[Nodes]:
    async with trio.open_nursery() as nursery:
        yield Nodes(nursery, config)
        nursery.cancel_scope.cancel()


async def three(net: Nodes, machine: Callable[[], AnyMachine] = Counter) -> Node:
    for name in THREE:
        await net.start(name, THREE, machine())
    return await net.leader()


async def one(net: Nodes, machine: AnyMachine | None = None, **kwargs: Any) -> Node:
    await net.start("n0", ONE, machine or Counter(), **kwargs)
    return await net.leader()


def machine_of(node: Node) -> Counter:
    assert isinstance(node.state_machine, Counter)
    return node.state_machine
