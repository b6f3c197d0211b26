"""A TCP relay that passes bytes on unchanged and records every RocketMQ frame, with its time.

One line of JSON for each frame: ``time_ms`` (wall clock), ``link`` (the name given to the relay), ``connection``
(counted from 1), ``direction`` (``to_server`` or ``to_client``: from the one that dialled, or to it) and ``frame``, the
hex of the whole frame with its length prefix. It splits by length and looks into no frame.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final, Literal

import trio
from attrs import define, field, frozen

FRAME_BYTES_MAX: Final = 16 << 20

Direction = Literal["to_server", "to_client"]


@frozen
class Recorded:
    """One recorded frame and its connection."""

    time_ms: int
    link: str
    connection: int
    direction: Direction
    frame: bytes

    def line(self) -> str:
        return json.dumps({
            "time_ms": self.time_ms, "link": self.link, "connection": self.connection, "direction": self.direction,
            "frame": self.frame.hex(),
        }) + "\n"

    @classmethod
    def parse(cls, line: str) -> Recorded:
        """Raises ``ValueError`` or ``KeyError`` for a line that ``line`` did not make."""
        read = json.loads(line)
        return cls(read["time_ms"], read["link"], read["connection"], read["direction"], bytes.fromhex(read["frame"]))


@define
class Splitter:
    """Splits a byte stream into frames by their length prefix.

    After a length that no RocketMQ peer accepts, all further bytes are dropped.
    """

    _buffer: bytearray = field(factory=bytearray, init=False)
    _lost: bool = field(default=False, init=False)

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """Take bytes; returns the frames that are complete now."""
        self._buffer += data
        frames: list[bytes] = []
        while not self._lost and len(self._buffer) >= 4:
            size = 4 + int.from_bytes(self._buffer[:4], "big", signed=True)
            if not 8 <= size <= FRAME_BYTES_MAX:
                self._lost = True
                break
            if len(self._buffer) < size:
                break
            frames.append(bytes(self._buffer[:size]))
            del self._buffer[:size]
        if self._lost:
            self._buffer.clear()
        return frames


@define
class Recorder:
    """Runs any number of relays; ``keep`` gets each frame before it is passed on."""

    _keep: Callable[[Recorded], None]
    _clock: Callable[[], float] = time.time
    _connections: int = field(default=0, init=False)

    async def relay(self, nursery: trio.Nursery, link: str, listen: tuple[str, int], to: tuple[str, int]) -> int:
        """Listen at ``listen`` and pass each connection on to ``to``; returns the port, for a ``listen`` of port 0."""
        async def serve(client: trio.SocketStream) -> None:
            await self._serve(link, client, to)

        listeners = await trio.open_tcp_listeners(listen[1], host=listen[0])
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        port: int = listeners[0].socket.getsockname()[1]
        return port

    async def _serve(self, link: str, client: trio.SocketStream, to: tuple[str, int]) -> None:
        self._connections += 1
        number = self._connections
        async with client:
            try:
                server = await trio.open_tcp_stream(*to)
            except OSError:
                return  # the client's connection closes, as it would without a server
            async with server, trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, link, number, "to_server", client, server, nursery.cancel_scope)
                nursery.start_soon(self._pass_on, link, number, "to_client", server, client, nursery.cancel_scope)

    async def _pass_on(
        self, link: str, connection: int, direction: Direction, source: trio.SocketStream,
        target: trio.SocketStream, both: trio.CancelScope,
    ) -> None:
        splitter = Splitter()
        try:
            async for data in source:
                for frame in splitter.feed(data):
                    self._keep(Recorded(int(self._clock() * 1_000), link, connection, direction, frame))
                await target.send_all(data)
            await target.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            both.cancel()  # a reset on one side ends the other side, too
