"""A network with latencies, in which bytes wait while a way is cut, and are lost when their host loses power.

Streams behave as TCP's do: nothing is lost from the middle, and a process that dies resets its connections. Latencies
are decisions on the tape. Knows streams and names of hosts; nothing of what passes over them.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs
import trio
from trio.testing import MemoryReceiveStream, MemorySendStream, memory_stream_pair

from raft.sim.tape import Stream, Tape
from raft.virtual.network import Memory, MemoryNetwork

CONNECT_S: Final = 20.0
"""Time that a connect waits if the way is cut."""
Sent = Callable[[str, str, bytes], None]
"""Called with source, target and bytes of each send."""


@attrs.define
class Latency:
    """Bounds of the latency in microseconds, drawn for each send. The boring one is the least."""

    least_us: int = 200
    most_us: int = 5_000


class Way:
    """One direction of a connection."""

    def __init__(self, network: VirtualNetwork, source: str, target: str,
                 sender: MemorySendStream, receiver: MemoryReceiveStream) -> None:
        self.source, self.target = source, target
        self.scope = trio.CancelScope()
        self.broken = False
        """True once the other end reset the connection: sending fails."""
        self.swallows = False
        """True once the other end vanished without a reset: sent bytes are lost."""
        self._network, self._sender, self._receiver = network, sender, receiver
        self._chance = network.chance(source, target)
        self._queue: deque[tuple[float, bytes | None]] = deque()
        """Bytes in flight as (arrival time, bytes); None: the end of the stream."""
        self._last = 0.0
        self._bell = trio.Event()
        sender.send_all_hook, sender.close_hook = self._sent, self.end

    async def _sent(self) -> None:
        data = bytes(self._sender.get_data_nowait())
        if self.broken:
            raise trio.BrokenResourceError(f"{self.target} reset the connection")
        if self.source in self._network.silent:
            return  # a dying host sends nothing
        self._network.sent(self.source, self.target, data)
        self._put(data)

    def end(self) -> None:
        """Let the other end read the end of the stream after all bytes in flight."""
        if self.swallows:
            self._queue.clear()
            self.swallows = False
        self._put(None)

    def _put(self, data: bytes | None) -> None:
        latency = self._network.latency
        took_us = self._chance.between(latency.least_us, latency.most_us)
        self._last = max(self._last, trio.current_time() + took_us / 1e6)
        self._queue.append((self._last, data))
        self._bell.set()

    async def run(self) -> None:
        """Deliver sent bytes until the end of the stream."""
        with self.scope:
            while True:
                while not self._queue:
                    self._bell = trio.Event()
                    await self._bell.wait()
                due, data = self._queue[0]
                await trio.sleep_until(due)
                await self._network.passable(self.source, self.target)
                self._queue.popleft()
                if self.swallows:
                    continue
                if data is None:
                    self._receiver.put_eof()
                    return
                try:
                    self._receiver.put_data(data)
                except trio.ClosedResourceError:
                    self.broken = True
                    return


class VirtualNetwork(MemoryNetwork):
    """The network of hosts. ``silent`` are hosts without power, ``cuts`` and ``blocked`` ways that are cut."""

    def __init__(self, nursery: trio.Nursery, tape: Tape, sent: Sent, latency: Latency | None = None) -> None:
        super().__init__()
        self.latency = latency or Latency()
        self.blocked: set[tuple[str, str]] = set()
        """One-way cuts as (source, target)."""
        self.sent = sent
        self._nursery, self._tape = nursery, tape
        self._ways: list[Way] = []
        self._changed = trio.Event()

    def cut(self, source: str, target: str) -> bool:
        return (source, target) in self.blocked or super().cut(source, target)

    def changed(self) -> None:
        """Wake waiting bytes after cuts changed."""
        self._changed.set()
        self._changed = trio.Event()

    async def passable(self, source: str, target: str) -> None:
        """Wait until bytes pass this way."""
        while self.cut(source, target):
            await self._changed.wait()

    def chance(self, source: str, target: str) -> Stream:
        """Return the stream of decisions about this way's latencies."""
        return self._tape.stream(f"way {source} {target}")

    async def _connect(self, owner: str, address: str) -> Memory:
        target = self.owners.get(address, address)
        with trio.move_on_after(CONNECT_S) as timer:
            await trio.sleep(self.chance(owner, target).between(self.latency.least_us, self.latency.most_us) / 1e6)
            await self.passable(owner, target)
            await self.passable(target, owner)
        if timer.cancelled_caught:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), address)
        listener = self.listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens", address)
        ours, theirs = memory_stream_pair()
        there = Way(self, owner, target, ours.send_stream, theirs.receive_stream)
        back = Way(self, target, owner, theirs.send_stream, ours.receive_stream)
        for way in (there, back):
            self._ways.append(way)
            self._nursery.start_soon(self._run, way)
        listener.put.send_nowait(theirs)
        return ours

    async def _run(self, way: Way) -> None:
        try:
            await way.run()
        finally:
            self._ways.remove(way)

    async def drop(self, owner: str) -> None:
        self.reset(owner)
        await trio.lowlevel.checkpoint()

    def reset(self, owner: str) -> None:
        """Reset all connections of a host whose process is gone, as its system does."""
        for way in list(self._ways):
            if way.source == owner:
                way.end()
            elif way.target == owner:
                way.broken = True
                way.scope.cancel()

    def vanish(self, owner: str) -> None:
        """Cut a host off without a reset: all bytes in flight to or from it are lost."""
        for way in self._ways:
            if owner in (way.source, way.target):
                way.swallows = True
