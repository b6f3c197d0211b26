"""A node as clients see it, without Raft behind it, and a network of memory streams to reach it by."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import trio
from trio.abc import Stream
from trio.testing import memory_stream_pair

from raft.clientserver import RunBlocking, serve_client
from raft.clientwire import request_bytes_max
from raft.config import Config, Read
from raft.errors import Busy, Faulted, RaftError
from raft.handshake import read_greeting
from raft.hello import Hello, HelloRefusal, Lane, Refused, check_hello, encode_greeting
from raft.membership import Membership
from raft.messages import Role, SnapshotMeta
from raft.status import Status
from tests.raft.statuses import make_status


class Adder:
    """Adds up; a query gives the sum."""

    def __init__(self) -> None:
        self.sum = 0

    def apply(self, command: bytes) -> object:
        self.sum += int(command)
        return self.sum

    def query(self, data: bytes) -> object:
        if data == b"bad":
            raise ValueError("no such thing")
        return self.sum


@attrs.define(eq=False)
class Ticket:
    node: FakeNode
    command: bytes

    async def wait(self) -> object:
        return await self.node.propose(self.command)


@attrs.define(eq=False)
class FakeNode:
    """Applies at once, unless ``refusal`` is set or ``gate`` is shut. ``seen`` notes what reached it."""

    node_id: str = "n0"
    is_leader: bool = True
    config: Config = Config()
    state_machine: object = attrs.Factory(Adder)
    refusal: RaftError | None = None
    busy: bool = False
    gate: trio.Event | None = None
    seen: list[tuple[object, ...]] = attrs.Factory(list)
    waiting: int = 0
    most_waiting: int = 0

    async def _pass(self) -> None:
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            await trio.lowlevel.checkpoint()
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.waiting -= 1
        if self.refusal is not None:
            raise self.refusal

    async def propose(self, command: bytes, timeout_ms: int | None = None) -> object:
        await self._pass()
        self.seen.append(("propose", command, timeout_ms))
        return self.state_machine.apply(command)  # type: ignore[attr-defined]  # every machine here has it

    def propose_nowait(self, command: bytes) -> Ticket:
        if self.busy:
            raise Busy("full")
        return Ticket(self, command)

    async def propose_many(self, commands: Sequence[bytes], timeout_ms: int | None = None) -> list[object]:
        return [await self.propose(command, timeout_ms) for command in commands]

    async def read_barrier(self, level: Read = Read.INDEX, *, timeout_ms: int | None = None) -> None:
        await self._pass()
        self.seen.append(("barrier", level))

    async def ask_machine(
        self, ask: Callable[[bytes], object], data: bytes, *, run_blocking: RunBlocking, timeout_ms: int | None = None,
    ) -> object:
        if getattr(self.state_machine, "threaded", False):
            return await run_blocking(ask, data)
        return ask(data)

    def status(self) -> Status:
        role = Role.LEADER if self.is_leader else Role.FOLLOWER
        return make_status(node_id=self.node_id, role=role)

    async def transfer_leadership(self, target: str | None = None) -> None:
        await self._pass()
        self.seen.append(("transfer", target))

    async def reconfigure(
        self, voters: Mapping[str, str], learners: Mapping[str, str] | None = None, *,
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        await self._pass()
        self.seen.append(("reconfigure", voters, learners, priorities))

    async def accept_loss(self) -> bool:
        await self._pass()
        return True

    async def take_snapshot(self) -> SnapshotMeta:
        await self._pass()
        return SnapshotMeta(77, 1, 0, Membership(), 0)


@attrs.define(eq=False)
class Network:
    """Addresses lead to nodes; ``None`` means that nobody listens there. ``dial`` goes into ``raft.connect``."""

    nursery: trio.Nursery
    nodes: dict[str, FakeNode | None]
    foreign: set[str] = attrs.Factory(set)
    """Addresses whose nodes belong to cluster ``another``."""
    dialled: list[str] = attrs.Factory(list)
    streams: dict[str, list[Stream]] = attrs.Factory(dict)
    serve: Callable[[FakeNode, Stream, Hello, bytes], Awaitable[None]] | None = None

    async def dial(self, address: str) -> Stream:
        await trio.lowlevel.checkpoint()
        self.dialled.append(address)
        node = self.nodes.get(address)
        if node is None:
            raise OSError(f"nobody listens at {address}")
        near, far = memory_stream_pair()
        self.streams.setdefault(address, []).append(far)
        self.nursery.start_soon(self._accept, node, far, "another" if address in self.foreign else "default")
        return near

    async def _accept(self, node: FakeNode, stream: Stream, cluster: str) -> None:
        received = bytearray()
        own = Hello(cluster=cluster, node=node.node_id, incarnation=bytes(16), lane=Lane.CLIENT,
                    request_bytes_max=request_bytes_max(node.config))
        try:
            hello = await read_greeting(stream, received)
            assert isinstance(hello, Hello)
            try:
                check_hello(own, hello)
            except Refused as refused:
                await stream.send_all(encode_greeting(HelloRefusal(refused.kind, refused.reason)))
                return
            await stream.send_all(encode_greeting(own))
            if self.serve is not None:
                await self.serve(node, stream, hello, bytes(received))
            else:
                await serve_client({1: node}, node.config, stream, hello, bytes(received))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def cut(self, address: str) -> None:
        """Break every connection to this address."""
        for stream in self.streams.pop(address, []):
            await trio.aclose_forcefully(stream)


def faulted(node: FakeNode) -> None:
    """As a node is after its state machine raised."""
    node.refusal, node.is_leader = Faulted("the state machine raised: ValueError"), False
