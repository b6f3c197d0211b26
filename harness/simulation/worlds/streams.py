"""A network in memory for tests of servers and clients, with helpers for their commands.

It knows the remoting layer alone, not the requests of brokers and controllers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import trio
from trio.testing import MemoryReceiveStream, MemorySendStream, memory_stream_pair

from remoting.client import Client, open_client
from remoting.codes import ResponseCode
from remoting.command import ONEWAY, Command, response
from remoting.config import ClientConfig
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.frame import FrameReader, encode
from remoting.server import Server

MemoryStream = trio.StapledStream[MemorySendStream, MemoryReceiveStream]

ECHO, RAISES, SLOW, LATER, NEVER = 1, 2, 3, 4, 5


def echo(_: Connection, request: Command) -> Command:
    return response(request, body=request.body)


def ask(code: int = ECHO, body: bytes = b"", *, oneway: bool = False) -> Command:
    return Command(code, flag=ONEWAY if oneway else 0, body=body)


def body_of(answer: Command) -> bytes:
    assert answer.code == ResponseCode.SUCCESS, answer
    return answer.body


class Net:
    """Servers by address; every connection is a pair of memory streams."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.servers: dict[str, Server] = {}
        self.dialled: list[str] = []
        self.streams: list[MemoryStream] = []
        """The dialling ends of all connections."""

    async def serve(self, address: str, server: Server) -> Server:
        await self.nursery.start(server.run)
        self.servers[address] = server
        return server

    async def connect(self, address: str) -> MemoryStream:
        self.dialled.append(address)
        await trio.lowlevel.checkpoint()
        if address not in self.servers:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        ours, theirs = memory_stream_pair()
        self.streams.append(ours)
        peer = f"client:{len(self.streams)}"
        self.nursery.start_soon(lambda: self.servers[address].serve_stream(theirs, peer=peer))
        return ours


@asynccontextmanager
async def net() -> AsyncGenerator[Net, None]:
    async with trio.open_nursery() as nursery:
        yield Net(nursery)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def client_and_server(
    handlers: dict[int, Handler] | None = None, *, server: Server | None = None, config: ClientConfig | None = None,
    client_handlers: dict[int, Handler] | None = None, on_close: Callable[[Connection, str], None] | None = None,
) -> AsyncGenerator[tuple[Client, Server, Net], None]:
    """Run a client and a server, the server at address ``s:1``."""
    async with net() as made:
        server = await made.serve("s:1", server or Server(handlers if handlers is not None else {ECHO: echo}))
        async with open_client(
            config, connector=made.connect, handlers=client_handlers, on_close=on_close,
        ) as client:
            yield client, server, made


class Wire:
    """The bare end of a connection, for commands that no client sends, and the frames that come back."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._reader = FrameReader()
        self._found: list[Command] = []

    async def send(self, *commands: Command) -> None:
        await self.stream.send_all(b"".join(map(encode, commands)))

    async def receive(self) -> Command | None:
        """The next frame; None at the end of the connection, however it ended."""
        while not self._found:
            try:
                data = await self.stream.receive_some(1 << 16)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._found += self._reader.feed(bytes(data))
        return self._found.pop(0)

    async def ask(self, command: Command) -> Command | None:
        await self.send(command)
        return await self.receive()


@asynccontextmanager
async def wire_to(server: Server) -> AsyncGenerator[Wire, None]:
    """Run ``server``, and open a bare connection to it."""
    async with net() as made:
        await made.serve("s:1", server)
        yield Wire(await made.connect("s:1"))
