"""The HA port of a master, for either protocol: accepts slaves, reads what they say, writes what the core decides.

What the log grew by is written where that is told, as far as the socket takes it: to wake a task for each slave would
cost more than the writing. Each connection has a task that reads, and one that writes all the rest: what the socket did
not take, a copy that catches up, what its core has to say in its own time. A broker that is no master yet lets
connections wait for a while: a slave may have heard of the new master before the master itself has. When there are too
many, ``broker.ha.places`` says whose end.
Sources: ``DefaultHAConnection``, ``AutoSwitchHAConnection`` and ``HAService.AcceptSocketService`` of RocketMQ.
It knows streams and bytes, and neither roles nor what a frame means.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import attrs
import trio
from trio.abc import Listener, Stream

from broker.ha.config import NS_PER_MS, HaConfig
from broker.ha.master import Close, Idle, LogView
from broker.ha.places import Place, Standing, superfluous
from broker.ha.wire import HaFrameError
from broker.journal import Journal
from broker.store.errors import StoreError
from remoting.errors import DamagedRecord
from remoting.streams import STREAM_ERRORS, ends, tune, words
from remoting.wakeup import Bell

logger = logging.getLogger("broker")

NS_PER_S: Final = 1_000_000_000
_READ_BYTES: Final = 64 << 10
"""Some thousand acknowledgements."""
_FIRST_BYTES: Final = 1 << 10
"""Kept of who speaks before this broker is master: more than any slave says before it is answered."""
_ACCEPT_PAUSE_S: Final = 0.1
_JOIN_BYTES: Final = 64 << 10
"""Up to this size one copy costs less than a second system call."""


@attrs.frozen
class Frame:
    """Write ``data``, then ``size`` bytes of the log from ``offset``."""

    data: bytes
    offset: int = -1
    """-1: it is no part of the log's stream."""
    size: int = 0


class Side(Protocol):
    """The master's core of one protocol, by connection numbers; ``HaFrameError`` from ``heard`` ends a connection."""

    def opened(self, link: int, host: str, now_ns: int) -> None: ...

    def heard(self, link: int, data: bytes, now_ns: int) -> list[Close]: ...

    def closed(self, link: int) -> None: ...

    def tick(self, now_ns: int) -> list[Close]: ...

    def standing(self, link: int) -> Standing: ...

    def next_frame(self, link: int, log: LogView, now_ns: int) -> Frame | Idle | Close: ...


@attrs.define(eq=False)
class Link:
    """One accepted connection."""

    number: int
    stream: Stream
    peer: str
    accepted_ns: int
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    bell: Bell = attrs.field(factory=Bell)
    fd: int = -1
    """Of its socket, if it has one."""
    idle: bool = False
    """Its writer waits for the bell, and has nothing left to write."""
    rest: bytes = b""
    """Of a frame that the socket did not take whole."""
    side: Side | None = None
    """None before this broker is master, and when it is no longer."""
    spoke: bool = False
    ready: trio.Event = attrs.field(factory=trio.Event)
    began: bool = False
    """The log is being sent: acknowledgements have nothing to tell its writer any more."""
    reason: str = ""
    next: int = 0
    """Offset behind what was sent."""
    rate: int = 0
    """Bytes in the last second or so."""
    _sent_bytes: int = 0
    _counted: tuple[int, int] = (0, 0)

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0]

    @property
    def place(self) -> Place:
        standing = Standing.SILENT if self.side is None else self.side.standing(self.number)
        return Place(self.number, self.host, max(standing, Standing.SPOKE) if self.spoke else standing)

    def close(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.scope.cancel()

    def sent(self, offset: int, size: int) -> None:
        self._sent_bytes += size
        if offset >= 0:
            self.began, self.next = True, offset + size

    def count(self, now_ns: int) -> None:
        """Call it now and then."""
        since_ns, before = self._counted
        if now_ns - since_ns >= NS_PER_S:
            self.rate = (self._sent_bytes - before) * NS_PER_S // (now_ns - since_ns)
            self._counted = now_ns, self._sent_bytes


class HaPort:
    """``run`` accepts until it is cancelled; ``serve`` and ``drop`` say whose core judges what comes.

    ``advanced`` is called when somebody acknowledged or was lost; ``changed`` when a slave came or went.
    """

    def __init__(self, journal: Journal, config: HaConfig, *, advanced: Callable[[], None],
                 changed: Callable[[], None]) -> None:
        self.links: dict[int, Link] = {}
        self._journal, self._config = journal, config
        self._advanced, self._changed = advanced, changed
        self._side: Side | None = None
        self._number = 0

    # --- roles -----------------------------------------------------------------------------------------------

    def serve(self, side: Side) -> None:
        """This broker is master: whoever waits is served."""
        self._side = side
        for link in self.links.values():
            if link.side is None and not link.reason:
                self._open(link, side)

    def drop(self, reason: str) -> None:
        """It is master no longer. What a slave says from now on is heard by nobody."""
        self._side = None
        self._close([Close(link.number, reason) for link in self.links.values() if link.side is not None])

    def wake(self) -> None:
        """There may be something to send."""
        for link in self.links.values():
            if not (link.idle and link.fd >= 0 and self._push(link)):
                link.bell.ring()

    def tick(self, now_ns: int) -> None:
        """Time passed: call it some times in a second."""
        if self._side is not None:
            self._close(self._side.tick(now_ns))
        config = self._config
        for link in self.links.values():
            link.count(now_ns)
            if link.side is None:
                limit_ms = config.role_wait_ms if link.spoke else config.handshake_timeout_ms
                if now_ns - link.accepted_ns >= limit_ms * NS_PER_MS:
                    link.close("this broker is not the master" if link.spoke else f"no handshake in {limit_ms} ms")
            link.bell.ring()

    # --- connections -----------------------------------------------------------------------------------------

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
        """One connection to its end. Raises nothing that the other end could cause."""
        peer = ends(stream)[0]
        tune(stream)
        self._number += 1
        link = self.links[self._number] = Link(self._number, stream, peer, self._journal.now_ns())
        link.fd = stream.socket.fileno() if isinstance(stream, trio.SocketStream) else -1
        if self._side is not None:
            self._open(link, self._side)
        self._make_room()
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
            logger.log(logging.WARNING if link.began else logging.INFO,  # INFO: a port probe, mostly
                       "connection of the replica at %s ended: %s", peer, link.reason or "this end is shutting down")
            await trio.aclose_forcefully(stream)

    def _make_room(self) -> None:
        """Somebody came."""
        if len(self.links) > self._config.connections_max:
            there = (link.place for link in self.links.values() if not link.reason)
            self._close([Close(number, "others need its place")
                         for number in superfluous(there, self._config.connections_max)])

    async def _read(self, link: Link) -> None:
        data = await _receive(link, _FIRST_BYTES)
        link.spoke = bool(data)
        if data:
            await link.ready.wait()
        while data:
            if link.side is None:
                return
            self._close(link.side.heard(link.number, data, self._journal.now_ns()))
            if not link.began:
                link.bell.ring()
            self._advanced()
            data = await _receive(link, _READ_BYTES)

    async def _write(self, link: Link) -> None:
        await link.ready.wait()
        while link.side is not None:
            if link.rest:
                rest, link.rest = link.rest, b""
                await link.stream.send_all(rest)
                continue  # the role may have ended meanwhile
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

    def _push(self, link: Link) -> bool:
        """Write one frame, if there is one. False: the writer is to go on."""
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
        except Exception as error:  # whoever made the log grow has no part in it
            if not isinstance(error, StoreError):
                logger.exception("replica at %s", link.peer)
            link.close(str(error))
        return not link.rest and link.next >= self._journal.end

    def _next(self, link: Link) -> Frame | Idle | Close:
        journal = self._journal
        file_bytes = journal.store.log.file_bytes
        assert link.side is not None, "nobody writes to a connection that is over"
        view = LogView(journal.begin, journal.end, max(journal.begin, journal.end - journal.end % file_bytes),
                       file_bytes)
        return link.side.next_frame(link.number, view, journal.now_ns())

    def _body(self, frame: Frame) -> bytes:
        body = self._journal.read(frame.offset, frame.size) if frame.size else b""
        assert len(body) == frame.size, "a frame lies within one file and below the end"
        return body

    def _open(self, link: Link, side: Side) -> None:
        link.side = side
        side.opened(link.number, link.host, self._journal.now_ns())
        link.ready.set()
        self._changed()

    def _close(self, closes: Iterable[Close]) -> None:
        for close in closes:
            link = self.links.get(close.connection)
            if link is not None:
                link.close(close.reason)
                self._closed(link)

    def _closed(self, link: Link) -> None:
        side, link.side = link.side, None
        if side is not None:
            side.closed(link.number)
            self._changed()
            self._advanced()


async def _receive(link: Link, bytes_max: int) -> bytes:
    """b"" at the end."""
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
