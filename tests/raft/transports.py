"""Transports for tests: one that writes down what it is told, and a net of memory streams between several."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random

import attrs
import trio
from trio.abc import Stream
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from raft import frame
from raft.config import Config
from raft.hello import Hello, Lane
from raft.lives import NONE_MET, Met
from raft.messages import Append, PeerMessage, Vote
from raft.transport import Transport, TransportLimits

CONFIG = Config()
ADDRESSES = {f"n{i}": f"host{i}:{i + 1}" for i in range(4)}


def hello_of(node: str, **changes: object) -> Hello:
    made = Hello(
        cluster="c", node=node, incarnation=node.encode().ljust(16, b"."), lane=Lane.CONTROL, rules="strict",
        address=ADDRESSES.get(node, ""),
    )
    return attrs.evolve(made, **changes)  # type: ignore[arg-type]


class Node:
    """A transport that writes down what it is told."""

    def __init__(self, net: Net, node: str, *, seed: int = 0, limits: TransportLimits | None = None,
                 config: Config = CONFIG, **changes: object) -> None:
        self.got: list[tuple[str, PeerMessage]] = []
        self.batches: list[int] = []
        self.greeted: list[tuple[str, Hello]] = []
        self.met: dict[str, Met] = {}
        self.identified: list[tuple[str, bytes]] = []
        self.unreachable: list[str] = []
        self.clients: list[tuple[Hello, bytes]] = []
        self.transport = Transport(
            hello_of(node, **changes), config=config, rng=Random(f"{node}{seed}"), addresses=ADDRESSES,
            on_message=lambda peer, message: self.got.append((peer, message)),
            on_batch_end=lambda: self.batches.append(len(self.got)),
            on_greeted=lambda peer, hello: self.greeted.append((peer, hello)),
            met=lambda peer: self.met.get(peer, NONE_MET),
            on_identify=lambda peer, incarnation: self.identified.append((peer, incarnation)),
            on_unreachable=self.unreachable.append,
            on_client=self._serve_client, connect=net.connect, limits=limits,
        )

    async def _serve_client(
        self, stream: Stream, hello: Hello, received: bytes, hold: Callable[[int], None],
    ) -> None:
        self.clients.append((hello, received))
        while data := await stream.receive_some(100):
            if data.isdigit():
                hold(int(data))
            await stream.send_all(data.upper())

    def say(self, peer: str, *messages: PeerMessage) -> None:
        for message in messages:
            self.transport.send(peer, message)
        self.transport.flush()


class Net:
    """Memory streams by address. ``down`` addresses refuse; ``cut`` breaks what stands."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.nodes: dict[str, Node] = {}
        self.scopes: dict[str, trio.CancelScope] = {}
        self.dials: list[tuple[float, str]] = []
        self.down: set[str] = set()
        self.streams: list[tuple[Stream, Stream]] = []

    async def connect(self, address: str) -> Stream:
        self.dials.append((trio.current_time(), address))
        await trio.lowlevel.checkpoint()
        if address in self.down or address not in self.nodes:
            raise OSError(f"nobody at {address}")
        ours, theirs = memory_stream_pair()
        self.streams.append((ours, theirs))
        self.nursery.start_soon(self.nodes[address].transport.serve_stream, theirs)
        return ours

    async def start(self, node: str, *peers: str, at: str | None = None, **options: object) -> Node:
        made = Node(self, node, **options)  # type: ignore[arg-type]
        scope = self.scopes[node] = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await made.transport.run(task_status=task_status)  # type: ignore[arg-type]

        await self.nursery.start(run)
        self.nodes[at or ADDRESSES[node]] = made
        made.transport.set_peers(peers)
        return made

    def stop(self, node: str) -> None:
        self.scopes[node].cancel()
        del self.nodes[ADDRESSES[node]]

    async def cut(self) -> None:
        for pair in self.streams:
            for end in pair:
                await trio.aclose_forcefully(end)
        self.streams.clear()

    async def dial(self, node: str) -> Stream:
        """As a stranger."""
        return await self.connect(ADDRESSES[node])


@asynccontextmanager
async def network() -> AsyncGenerator[Net, None]:
    with trio.fail_after(1_000):  # of virtual time: what waits for ever fails at once
        async with trio.open_nursery() as nursery:
            yield Net(nursery)
            nursery.cancel_scope.cancel()


async def settle() -> None:
    """Everything that can happen without time passing has happened."""
    await wait_all_tasks_blocked(0.001)


def vote(term: int = 1) -> Vote:
    return Vote(1, term, 1, 0, 0)


def append(index: int, size: int = 10) -> Append:
    made = frame.build(kind=1, group=1, term=1, first=index, payloads=[bytes(size)], wall_ms=0, chain=0)
    return Append(1, 1, 1, index, index - 1, 1 if index > 1 else 0, 0, 0, [made])
