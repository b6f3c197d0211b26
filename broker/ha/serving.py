"""The streams of a master's HA port: accepts slaves, reads what they say, writes what ``broker.ha.port`` gives.

New bytes of the log are written in the turn in which the log grew, as far as the socket takes them: to wake a task for
each slave would cost more. Each connection has a task that reads, and one that writes the rest: what the socket did not
take, a copy that catches up, and what its core has to say at other times.
It knows streams and bytes, and neither roles nor what a frame means.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Final

import attrs
import trio
from trio.abc import Listener, Stream

from broker.ha.master import Close, Idle
from broker.ha.port import Frame, Link, Port
from broker.ha.wire import HaFrameError
from broker.store.errors import StoreError
from remoting.errors import DamagedRecord
from remoting.streams import STREAM_ERRORS, ends, tune, words
from remoting.wakeup import Bell

logger = logging.getLogger("broker")

_READ_BYTES: Final = 64 << 10
"""Bytes read at one time: some thousand acknowledgements."""
_FIRST_BYTES: Final = 1 << 10
"""Bytes kept of a slave that speaks before this broker is master: more than a slave says before it is answered."""
_ACCEPT_PAUSE_S: Final = 0.1
_JOIN_BYTES: Final = 64 << 10
"""Largest size that is copied: one copy up to it costs less than a second system call."""


@attrs.define(eq=False)
class StreamLink(Link):
    """One accepted connection, with a task that reads and one that writes."""

    stream: Stream = attrs.field(kw_only=True)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    bell: Bell = attrs.field(factory=Bell)
    fd: int = -1
    """The stream's socket, if it has one."""
    idle: bool = False
    """The writer waits for the bell, and has nothing left to write."""
    rest: bytes = b""
    """The rest of a frame that the socket did not take whole."""
    ready: trio.Event = attrs.field(factory=trio.Event)

    def ring(self) -> None:
        self.bell.ring()

    def opened(self) -> None:
        self.ready.set()

    def end(self) -> None:
        self.scope.cancel()


class HaPort(Port[StreamLink]):
    """The HA port with its sockets; ``run`` accepts until it is cancelled."""

    def wake(self) -> None:
        for link in self.links.values():
            if not (link.idle and link.fd >= 0 and self._push(link)):
                link.bell.ring()

    async def run(self, listeners: Sequence[Listener[Stream]], *,
                  task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve until cancelled; closes the listeners."""
        try:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener, nursery)
                task_status.started()
                await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                for listener in listeners:
                    await trio.aclose_forcefully(listener)

    async def _accept(self, listener: Listener[Stream], nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:
                logger.error("cannot accept replicas, next attempt in %g s: %s", _ACCEPT_PAUSE_S, error)
                await trio.sleep(_ACCEPT_PAUSE_S)
            else:
                nursery.start_soon(self.serve_stream, stream)

    async def serve_stream(self, stream: Stream) -> None:
        """Serve one connection to its end. Raises nothing that the other end could cause."""
        peer = ends(stream)[0]
        tune(stream)
        link = StreamLink(self._new_number(), peer, self._journal.now_ns(), stream=stream)
        link.fd = stream.socket.fileno() if isinstance(stream, trio.SocketStream) else -1
        self._came(link)
        try:
            with link.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, link)
                    await self._read(link)
                    link.close("closed by the other end")
        except* STREAM_ERRORS as errors:
            link.reason = link.reason or words(errors.exceptions[0])
        except* (HaFrameError, StoreError, DamagedRecord) as errors:
            link.reason = str(errors.exceptions[0])
        except* Exception:  # a defect of ours costs one connection, no more
            logger.exception("replica at %s", peer)
        finally:
            del self.links[link.number]
            self._closed(link)
            meant = not link.began or not link.reason  # it is a port probe, mostly, or this end stops
            logger.log(logging.INFO if meant else logging.WARNING,
                       "connection of the replica at %s ended: %s", peer, link.reason or "this end is shutting down")
            await trio.aclose_forcefully(stream)

    async def _read(self, link: StreamLink) -> None:
        data = await _receive(link, _FIRST_BYTES)
        link.spoke = bool(data)
        if data:
            await link.ready.wait()
        while data:
            if link.side is None:
                return
            self._heard(link, data)
            data = await _receive(link, _READ_BYTES)

    async def _write(self, link: StreamLink) -> None:
        await link.ready.wait()
        while link.side is not None:
            if link.rest:
                rest, link.rest = link.rest, b""
                await link.stream.send_all(rest)
                continue  # the role may have ended during the send
            todo = self._next(link)
            match todo:
                case Idle():
                    link.idle = True
                    await link.bell.wait()
                    link.idle = False
                case Close():
                    self._close([todo])
                case Frame(data, offset, size):
                    await _send(link.stream, data, self._body(todo))
                    link.sent(offset, size)

    def _push(self, link: StreamLink) -> bool:
        """Write one frame, if there is one. False: the writer's task must go on with it."""
        if link.side is None or link.rest:
            return False
        try:
            todo = self._next(link)
            if type(todo) is not Frame:
                return type(todo) is Idle
            data = todo.data + self._body(todo)
            link.sent(todo.offset, todo.size)
            link.rest = data  # until it is known how much of it went
            link.rest = data[os.write(link.fd, data):]
        except BlockingIOError:
            return False
        except OSError as error:
            link.close(words(error))
        except Exception as error:  # it must not reach the caller that made the log grow
            if not isinstance(error, StoreError):
                logger.exception("replica at %s", link.peer)
            link.close(str(error))
        return not link.rest and link.next >= self._journal.end


async def _receive(link: StreamLink, bytes_max: int) -> bytes:
    """Bytes from the stream; b"" at its end."""
    if link.fd < 0:
        return bytes(await link.stream.receive_some(bytes_max))
    while True:
        await trio.lowlevel.wait_readable(link.fd)
        try:
            return os.read(link.fd, bytes_max)
        except BlockingIOError:
            continue


async def _send(stream: Stream, data: bytes, body: bytes) -> None:
    if len(body) <= _JOIN_BYTES or not isinstance(stream, trio.SocketStream):
        await stream.send_all(data + body)
        return
    sent = await stream.socket.sendmsg([data, body])
    if sent < len(data):
        await stream.send_all(data[sent:])
        sent = len(data)
    await stream.send_all(memoryview(body)[sent - len(data):])
