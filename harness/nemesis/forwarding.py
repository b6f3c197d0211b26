"""Hosts without namespaces: each server is found at a forwarder's address, which passes bytes on unless a link is cut.

A server listens at 127.78.0.N and is announced at 127.77.0.N. Who connected is known by the process that owns the
other end, as ``/proc`` shows it. While a link is cut the bytes of that way stay where they are, and so do new
connections: nobody is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import attrs
import trio

from harness.nemesis.errors import NotHere
from harness.nemesis.network import CLIENTS, Way
from harness.nemesis.shaping import Shape

_ANNOUNCED: Final = "127.77.0."
_BOUND: Final = "127.78.0."
_CHUNK: Final = 1 << 16


@attrs.define
class Forwarders:
    """A network of forwarders. ``pid_of`` tells which process is a server now."""

    names: Sequence[str]
    nursery: trio.Nursery
    pid_of: Callable[[str], int] = lambda name: 0
    _cut: Counter[Way] = attrs.field(factory=Counter, init=False)
    _healed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def address(self, name: str) -> str:
        return "127.0.0.1" if name == CLIENTS else f"{_ANNOUNCED}{11 + self.names.index(name)}"

    def bind(self, name: str) -> str:
        return "127.0.0.1" if name == CLIENTS else f"{_BOUND}{11 + self.names.index(name)}"

    def prefix(self, name: str) -> Sequence[str]:
        return ()

    async def cut(self, source: str, target: str) -> None:
        await trio.lowlevel.checkpoint()
        self._cut[source, target] += 1

    async def mend(self, source: str, target: str) -> None:
        await trio.lowlevel.checkpoint()
        self._cut[source, target] = max(self._cut[source, target] - 1, 0)
        self._look_again()

    async def shape(self, source: str, target: str, shape: Shape) -> None:
        await trio.lowlevel.checkpoint()
        raise NotHere("forwarders pass on bytes, not packets: links are shaped in network namespaces alone")

    async def unshape(self, source: str, target: str, shape: Shape) -> None:
        await trio.lowlevel.checkpoint()

    async def heal(self) -> None:
        await trio.lowlevel.checkpoint()
        self._cut.clear()
        self._look_again()

    def _look_again(self) -> None:
        self._healed.set()
        self._healed = trio.Event()

    async def open(self, name: str, ports: Iterable[int]) -> None:
        """Pass on what comes to these ports of a server."""
        for port in ports:
            [listener] = await trio.open_tcp_listeners(port, host=self.address(name))
            self.nursery.start_soon(self._serve, listener, name, port)

    async def _serve(self, listener: trio.SocketListener, name: str, port: int) -> None:
        async def passed_on(near: trio.SocketStream) -> None:
            source = self._owner(near.socket.getpeername()[1])
            with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                async with near:
                    await self._uncut((source, name))
                    await self._uncut((name, source))
                    async with await trio.open_tcp_stream(self.bind(name), port) as far, trio.open_nursery() as both:
                        both.start_soon(self._pass, near, far, (source, name), both.cancel_scope)
                        both.start_soon(self._pass, far, near, (name, source), both.cancel_scope)

        await trio.serve_listeners(passed_on, [listener])

    async def _pass(self, near: trio.SocketStream, far: trio.SocketStream, way: Way,
                    ended: trio.CancelScope) -> None:
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            while found := await near.receive_some(_CHUNK):
                await self._uncut(way)
                await far.send_all(found)
        await self._uncut(way)  # a cut way hides the end of the connection, too
        ended.cancel()

    async def _uncut(self, way: Way) -> None:
        while self._cut[way]:
            await self._healed.wait()

    def _owner(self, port: int) -> str:
        """The server whose process connected from that port, else the clients."""
        inode = _inode(port)
        for name in self.names:
            with suppress(OSError):  # the process or its file has just gone
                if inode and any(str(each.readlink()) == f"socket:[{inode}]" for each in _open(self.pid_of(name))):
                    return name
        return CLIENTS


def _inode(port: int) -> str:
    """Return the inode of the socket that is bound to a local port, and connected."""
    with suppress(OSError):
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port and fields[3] == "01":
                return fields[9]
    return ""


def _open(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/fd").iterdir())


@asynccontextmanager
async def forwarders(names: Sequence[str]) -> AsyncIterator[Forwarders]:
    """Forwarders of all servers; ``open`` adds the ports of each."""
    async with trio.open_nursery() as nursery:
        yield Forwarders(names, nursery)
        nursery.cancel_scope.cancel()
