"""Services on virtual time for tests: an echo, and a counter on raft nodes with clients that count under faults."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import attrs
import trio

import raft
from raft.virtual import SMALL, VirtualHost, VirtualWorld, torture

PEERS = {name: f"{name}:7000" for name in ("n0", "n1", "n2")}
FAST = attrs.evolve(SMALL, election_timeout_ms=300, heartbeat_interval_ms=50)


class Counter:
    n = 0

    def apply(self, command: bytes) -> int:
        self.n += int(command)
        return self.n

    def snapshot(self) -> bytes:
        return b"%d" % self.n

    def restore(self, data: bytes) -> None:
        self.n = int(data)


async def echo(host: VirtualHost) -> None:
    """Says back what it hears, at port 7 of its host."""
    async def answer(stream: trio.abc.Stream) -> None:
        with suppress(trio.BrokenResourceError):
            while data := await stream.receive_some():
                await stream.send_all(data)

    listener = host.listen(f"{host.name}:7")
    host.ready()
    await trio.serve_listeners(answer, [listener])


async def talk(world: VirtualWorld, name: str, times: int, heard: list[str]) -> None:
    stream = await world.host(name).connect("server:7")
    for number in range(times):
        await stream.send_all(b"%d" % number)
        heard.append(f"{name} {(await stream.receive_some()).decode()}")
    await stream.aclose()


async def echoes(world: VirtualWorld) -> str:
    """Three clients of one echo: what they hear interleaves as the seed says."""
    await world.host("server").start(echo)
    heard: list[str] = []
    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "c"):
            nursery.start_soon(talk, world, name, 4, heard)
    return " ".join(heard)


async def count(host: VirtualHost) -> None:
    """A raft node, which a client may ask to add one."""
    async with raft.open_node(
        host.name, PEERS, "data", Counter(), bootstrap=True, **host.node_options(PEERS[host.name], FAST),
    ) as node:
        async def answer(stream: trio.abc.Stream) -> None:
            with suppress(trio.BrokenResourceError, raft.Outcome):
                if await stream.receive_some():
                    await stream.send_all(b"%d" % await node.propose(b"1", timeout_ms=1_000))

        listener = host.listen(f"{host.name}:80")
        host.ready(node)
        await trio.serve_listeners(answer, [listener])


async def add(world: VirtualWorld) -> int:
    """Ask one node after the other until one says a number."""
    while True:
        for name in PEERS:
            with trio.move_on_after(1.5), suppress(OSError, trio.BrokenResourceError):
                stream = await world.host("client").connect(f"{name}:80")
                async with stream:
                    await stream.send_all(b"+")
                    if answer := await stream.receive_some():
                        return int(answer)
        await trio.sleep(0.1)


async def counts(world: VirtualWorld, times: int = 8, seconds: float = 5.0) -> list[int]:
    """Adds ones under every fault; what was acknowledged rises, and all nodes have it at the end."""
    for name in PEERS:
        await world.host(name).start(count)
    seen = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(torture, world, hosts=PEERS, seconds=seconds, longest_s=2.0))
        for _ in range(times):
            seen.append(await add(world))
            await trio.sleep(0.3)
    assert sorted(set(seen)) == seen
    last = await add(world)
    while min(found := [world.host(name).value.state_machine.n for name in PEERS]) < last or len(set(found)) > 1:
        await trio.sleep(0.2)
    return seen
