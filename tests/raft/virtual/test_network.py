"""The network in memory: who is reached, who falls silent, whose connections are reset."""

from __future__ import annotations

import pytest
import trio

from raft.virtual.network import MemoryListener, MemoryNetwork


async def test_bytes_go_to_whoever_listens_there() -> None:
    network = MemoryNetwork()
    listener = network.listeners["b:1"] = MemoryListener()
    ours = await network.connector("a:1")("b:1")
    theirs = await listener.accept()
    await ours.send_all(b"ping")
    assert await theirs.receive_some() == b"ping"
    with pytest.raises(ConnectionRefusedError, match="nobody listens at c:1"):
        await network.connector("a:1")("c:1")


async def test_nothing_passes_from_or_to_the_silent_and_connections_stay(autojump_clock: trio.abc.Clock) -> None:
    network = MemoryNetwork()
    listener = network.listeners["b:1"] = MemoryListener()
    ours = await network.connector("a:1")("b:1")
    theirs = await listener.accept()
    network.silent.add("b:1")
    await ours.send_all(b"lost")
    await theirs.send_all(b"lost, too")
    with trio.move_on_after(60) as waited:
        await theirs.receive_some()
    assert waited.cancelled_caught
    with pytest.raises(ConnectionRefusedError):
        await network.connector("a:1")("b:1")
    network.silent.clear()
    await ours.send_all(b"heard")
    assert await theirs.receive_some() == b"heard"


async def test_a_dropped_owner_has_no_connection_left() -> None:
    network = MemoryNetwork()
    for name in ("b:1", "c:1"):
        network.listeners[name] = MemoryListener()
    dropped = await network.connector("a:1")("b:1")
    kept = await network.connector("a:1")("c:1")
    theirs = await network.listeners["c:1"].accept()
    await network.drop("b:1")
    with pytest.raises(trio.ClosedResourceError):
        await dropped.send_all(b"x")
    await kept.send_all(b"x")
    assert await theirs.receive_some() == b"x"
