"""Forwarders pass bytes on, know who connected, and lose one way or both while a link is cut."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from harness.nemesis.forwarding import Forwarders, forwarders
from harness.nemesis.network import CLIENTS


async def _echo(stream: trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data)


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Forwarders, int]]:
    """A server ``n1`` behind its forwarder, and a port where that listens."""
    async with forwarders(["n0", "n1"]) as network, trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host=network.bind("n1"))
        port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, _echo, [listener])
        await network.open("n1", [port])
        with trio.fail_after(30):
            yield network, port
        nursery.cancel_scope.cancel()


async def silent(stream: trio.SocketStream) -> bool:
    with trio.move_on_after(0.05):
        await stream.receive_some()
        return False
    return True


async def test_bytes_pass_and_wait_while_the_link_is_cut() -> None:
    async with echoing() as (network, port), await trio.open_tcp_stream(network.address("n1"), port) as stream:
        await stream.send_all(b"one")
        assert await stream.receive_some() == b"one"
        for cut in ((CLIENTS, "n1"), ("n1", CLIENTS)):
            await network.cut(*cut)
            await stream.send_all(b"two")
            assert await silent(stream)
            await network.heal()
            assert await stream.receive_some() == b"two"


async def test_a_cut_between_others_concerns_nobody_else() -> None:
    async with echoing() as (network, port), await trio.open_tcp_stream(network.address("n1"), port) as stream:
        await network.cut("n0", "n1")
        await stream.send_all(b"one")
        assert await stream.receive_some() == b"one"


async def test_who_connects_is_known_by_its_process() -> None:
    async with echoing() as (network, port):
        network.pid_of = lambda name: os.getpid() if name == "n0" else 0
        await network.cut("n0", "n1")
        async with await trio.open_tcp_stream(network.address("n1"), port) as stream:
            await stream.send_all(b"one")
            assert await silent(stream)
            await network.heal()
            assert await stream.receive_some() == b"one"
