"""A network with distances: bytes take their time, wait while a way is cut, and are lost with the host's power.

Streams behave as TCP's do: nothing is lost from the middle, and who dies resets what he had. Latencies are decisions on
the tape. Knows streams and names of hosts; nothing of what passes over them.
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
"""How long somebody waits who connects over a way that is cut."""
Sent = Callable[[str, str, bytes], None]
"""Told from whom, to whom and what."""


@attrs.define
class Latency:
    """How long bytes take, in microseconds: drawn for each piece that is sent. The boring one is the least."""

    least_us: int = 200
    most_us: int = 5_000


class Way:
    """One direction of a connection."""

    def __init__(self, network: VirtualNetwork, source: str, target: str,
                 sender: MemorySendStream, receiver: MemoryReceiveStream) -> None:
        self.source, self.target = source, target
        self.scope = trio.CancelScope()
        self.broken = False
        """The other end is gone and said so: sending fails."""
        self.swallows = False
        """The other end is gone and said nothing: what is sent is lost."""
        self._network, self._sender, self._receiver = network, sender, receiver
        self._chance = network.chance(source, target)
        self._queue: deque[tuple[float, bytes | None]] = deque()
        """When it arrives, and what; None: the end."""
        self._last = 0.0
        self._bell = trio.Event()
        sender.send_all_hook, sender.close_hook = self._sent, self.end

    async def _sent(self) -> None:
        data = bytes(self._sender.get_data_nowait())
        if self.broken:
            raise trio.BrokenResourceError(f"{self.target} reset the connection")
        if self.source in self._network.silent:
            return  # it is dying, and nothing leaves it any more
        self._network.sent(self.source, self.target, data)
        self._put(data)

    def end(self) -> None:
        """Let the other end read an end behind all that is under way."""
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
        """Deliver what is sent, until the end."""
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
    """What hosts are connected by. ``silent`` are hosts without power, ``cuts`` and ``blocked`` ways that are cut."""

    def __init__(self, nursery: trio.Nursery, tape: Tape, sent: Sent, latency: Latency | None = None) -> None:
        super().__init__()
        self.latency = latency or Latency()
        self.blocked: set[tuple[str, str]] = set()
        """One-way cuts: from, to."""
        self.sent = sent
        self._nursery, self._tape = nursery, tape
        self._lanes: list[Way] = []
        self._changed = trio.Event()

    def cut(self, source: str, target: str) -> bool:
        return (source, target) in self.blocked or super().cut(source, target)

    def changed(self) -> None:
        """Tell bytes that wait of other cuts."""
        self._changed.set()
        self._changed = trio.Event()

    async def passable(self, source: str, target: str) -> None:
        """Wait until bytes pass this way."""
        while self.cut(source, target):
            await self._changed.wait()

    def chance(self, source: str, target: str) -> Stream:
        """Decides how long bytes take."""
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
        for lane in (there, back):
            self._lanes.append(lane)
            self._nursery.start_soon(self._run, lane)
        listener.put.send_nowait(theirs)
        return ours

    async def _run(self, lane: Way) -> None:
        try:
            await lane.run()
        finally:
            self._lanes.remove(lane)

    async def drop(self, owner: str) -> None:
        self.reset(owner)
        await trio.lowlevel.checkpoint()

    def reset(self, owner: str) -> None:
        """A process of this host is gone, and its system says so to all it was connected with."""
        for lane in list(self._lanes):
            if lane.source == owner:
                lane.end()
            elif lane.target == owner:
                lane.broken = True
                lane.scope.cancel()

    def vanish(self, owner: str) -> None:
        """A host is gone, and nobody is told; what was on its way to it or from it is lost."""
        for lane in self._lanes:
            if owner in (lane.source, lane.target):
                lane.swallows = True
