"""A network in memory: listeners by address, connections that can be reset, owners that can be silenced.

It knows streams, and nothing of what passes over them.
"""

from __future__ import annotations

from functools import partial

import attrs
import trio
from trio.abc import Listener
from trio.testing import MemoryReceiveStream, MemorySendStream, memory_stream_pair

from raft.handshake import Connector

Memory = trio.StapledStream[MemorySendStream, MemoryReceiveStream]


class MemoryListener(Listener[Memory]):
    """A listener that takes connections through ``put``."""

    def __init__(self) -> None:
        self.put, self._take = trio.open_memory_channel[Memory](1_000)

    async def accept(self) -> Memory:
        try:
            return await self._take.receive()
        except trio.EndOfChannel:
            raise trio.ClosedResourceError from None

    async def aclose(self) -> None:
        self.put.close()
        await trio.lowlevel.checkpoint()


@attrs.frozen
class _Socket:
    """Addresses of a connection's ends: all owners live on the loopback, except those in ``AWAY``."""

    owner: str

    def getpeername(self) -> tuple[str, int]:
        return AWAY.get(self.owner, "127.0.0.1"), 1

    def getsockname(self) -> tuple[str, int]:
        return "192.0.2.1", 1


AWAY = {"stranger": "192.0.2.7"}


@attrs.define(eq=False)
class MemoryNetwork:
    """Listeners by address, and every connection with its two ends' owners."""

    listeners: dict[str, MemoryListener] = attrs.field(factory=dict)
    links: list[tuple[str, str, Memory, Memory]] = attrs.field(factory=list)
    silent: set[str] = attrs.field(factory=set)
    """Owners that neither send nor receive, while their connections stay open."""
    cuts: set[frozenset[str]] = attrs.field(factory=set)
    """Pairs of owners between which nothing passes."""
    owners: dict[str, str] = attrs.field(factory=dict)
    """Address -> its owner; an address that is not here is an owner itself."""

    def cut(self, source: str, target: str) -> bool:
        return source in self.silent or target in self.silent or frozenset((source, target)) in self.cuts

    def connector(self, owner: str) -> Connector:
        return partial(self._connect, owner)

    async def _connect(self, owner: str, address: str) -> Memory:
        await trio.lowlevel.checkpoint()
        listener = self.listeners.get(address)
        if listener is None or self.cut(owner, address):
            raise ConnectionRefusedError(f"nobody listens at {address}")
        ours, theirs = memory_stream_pair()
        self.links.append((owner, address, ours, theirs))
        for end, other in ((ours, address), (theirs, owner)):
            end.socket = _Socket(other)  # type: ignore[attr-defined]
        self._tap(owner, address, ours)
        self._tap(address, owner, theirs)
        listener.put.send_nowait(theirs)
        return ours

    def _tap(self, source: str, target: str, stream: Memory) -> None:
        """Drop bytes while the way is cut."""
        pass_on = stream.send_stream.send_all

        async def send_all(data: bytes | bytearray | memoryview) -> None:
            if self.cut(source, target):
                await trio.lowlevel.checkpoint()
            else:
                await pass_on(data)

        stream.send_stream.send_all = send_all  # type: ignore[method-assign]

    async def drop(self, owner: str) -> None:
        """Reset all connections of this owner."""
        gone = [link for link in self.links if owner in link[:2]]
        self.links = [link for link in self.links if owner not in link[:2]]
        for _, _, ours, theirs in gone:
            await trio.aclose_forcefully(ours)
            await trio.aclose_forcefully(theirs)
