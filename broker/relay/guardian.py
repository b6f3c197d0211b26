"""The guardian: holds a broker's listening sockets, so that its address answers while the broker is down.

It starts the broker as its child and gives it the sockets. While the child serves, the guardian only waits. When the
child dies, the guardian starts it again, and until it serves it passes clients on to the group's new master. The
controllers name that master; if none answers, the master says so itself. It does the same while the child is restarted
on request, and after an orderly stop in which the broker handed mastership over, for as long as clients may not have
heard of it. It cannot help when the machine is lost.

Requests that are not a client's are refused, and their connection is closed: they mean that very broker. Members of its
group and controllers would keep that connection, and the guardian would answer for a broker that is back.

It knows processes, sockets and the forwarder, and nothing of what the broker does.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, Protocol

import attrs
import trio

from broker.relay.finding import MasterFinder
from broker.relay.forwarding import Forwarder
from broker.relay.lingering import lingering
from broker.relay.lives import HANDED_OVER, STOPPED, Lives
from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.config import ServerConfig
from remoting.connection import Connection
from remoting.daemon.process import FAILED
from remoting.server import Server
from remoting.streams import TLSContext

logger = logging.getLogger("broker.guardian")

CONTAINED: Final = "MQBROKER_CONTAINED"
"""Environment of a broker in a container: it may outlive its parent, and has no guardian of its own."""
SOCKETS: Final = "MQBROKER_LISTEN_FDS"
"""Environment of the child: numbers of its listening sockets, the main one first, separated by commas."""
READY: Final = "MQBROKER_READY_FD"
"""Environment of the child: it writes a byte there when it serves; that pipe ends when the guardian does."""
LOOK_S: Final = 0.02
"""Pause between two questions while a master is wanted; once it is known, ``WATCH_S``."""
WATCH_S: Final = 0.5


class Child(Protocol):
    """The broker's process, which may be another's child."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None:
        """Exit code; None: it runs, or nobody could see how it ended."""

    def poll(self) -> int | None:
        """Return its exit code; None: it runs."""

    def send_signal(self, number: int, /) -> None: ...

    async def wait(self) -> int | None:
        """Wait until it has ended. Returns its exit code; None: nobody could see it."""


class Launch(Protocol):
    """Starts a broker's process, and knows what becomes of it when the starter leaves."""

    def __call__(self, ready: int, sockets: Sequence[int]) -> AbstractAsyncContextManager[Child]:
        """Start a broker that gets these file descriptors. See ``told``. Raises ``OSError``."""


def told(ready: int, sockets: Sequence[int]) -> dict[str, str]:
    """Return the environment of a child that has these file descriptors."""
    named = {SOCKETS: ",".join(map(str, sockets))} if sockets else {}
    return {**named, READY: str(ready)}


@attrs.frozen
class Leashed:
    """A child that ends when this process does, however that ends: it reads the end of its standard input."""

    command: Sequence[str]
    environment: Mapping[str, str]

    @asynccontextmanager
    async def __call__(self, ready: int, sockets: Sequence[int]) -> AsyncGenerator[Child]:
        child = await trio.lowlevel.open_process(
            list(self.command), pass_fds=[ready, *sockets], stdin=subprocess.PIPE,
            env={**self.environment, **told(ready, sockets)})
        try:
            yield child
        finally:
            with trio.CancelScope(shield=True):
                assert child.stdin is not None
                await child.stdin.aclose()
                await child.wait()


@attrs.frozen
class GuardianConfig:
    """``own_address`` is the broker's, under which controllers know it. Milliseconds as named."""

    own_address: str
    forward_ms: int = 60_000
    """Time for which the guardian goes on serving its clients after the broker is back."""
    stop_forward_ms: int = 35_000
    """Time for which clients are served after a stop that handed mastership over; 0: they are not."""
    linger_path: Path | None = None
    """File by which a guardian that lingers can be sent away, so that another broker may have the port."""


@attrs.frozen(kw_only=True)
class StandIn:
    """Answers clients while the broker is down. ``sockets`` listen already; they stay open until the end."""

    sockets: list[socket.socket]
    forwarder: Forwarder
    finder: MasterFinder
    reopen: Callable[[], Awaitable[list[socket.socket]]] | None = None
    """Opens the sockets anew once a broker has ended that ran before this process and held them. Raises ``OSError``."""
    server: ServerConfig | None = None
    tls: TLSContext | None = None


class Guardian:
    """``launch`` starts the broker. Without ``stand_in`` nobody answers while it is down: its ports are its own."""

    def __init__(
        self, config: GuardianConfig, launch: Launch, stand_in: StandIn | None, *, lives: Lives | None = None,
        running: AbstractAsyncContextManager[Child] | None = None, serves: Callable[[], None] = lambda: None,
    ) -> None:
        """``running``: the broker's process, if it serves and began before this process. ``serves`` is called once,
        when the broker serves for the first time."""
        self.config, self.lives = config, lives or Lives()
        self.child: Child | None = None
        self.starts = 0
        self.ended = trio.Event()
        """Set when the broker's process has ended and is not started again; its clients may still be served."""
        self._launch, self._running, self._stand_in = launch, running, stand_in
        self._serves = serves
        self._stopping = trio.Event()
        self._at_once = trio.Event()
        """Set when no client is to be served any longer."""
        self._restarting = False
        self._down = trio.Event()
        """Set while a broker that once ran does not serve; a new one each time it serves."""
        self._standing_in = trio.CancelScope()
        self._served = False
        """True: the broker has served. One that cannot even begin is left to the program that started it."""

    # --- life ------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> int | None:
        """Keep the broker running until it ends in order. Returns its exit code; None: nobody could see it.

        ``started`` is called when the broker serves."""
        async with trio.open_nursery() as nursery:
            if self._stand_in is not None:
                await self._prepare(self._stand_in, nursery)
            while True:
                began = trio.current_time()
                code = await self._live(nursery, task_status)
                lived_ms = (trio.current_time() - began) * 1e3
                await self._reopen()
                if self._restarting and not self._stopping.is_set():
                    self._restarting = False
                    self._down.set()
                    continue
                pause_ms = None
                if not self._stopping.is_set():
                    pause_ms = self.lives.ended(code, lived_ms, served=self._served)
                if pause_ms is not None:
                    meanwhile = "" if self._stand_in is None else "; its address is answered by the master meanwhile"
                    logger.error("the broker's process ended%s", meanwhile, extra={
                        "broker": self.config.own_address, "exit_code": code, "starts_again_in_ms": pause_ms})
                    self._down.set()
                    with trio.move_on_after(pause_ms / 1e3):
                        await self._stopping.wait()
                if self._stopping.is_set() or pause_ms is None:
                    self.ended.set()
                    if code == HANDED_OVER:
                        code = STOPPED
                        await self._linger()
                    nursery.cancel_scope.cancel()
                    return code

    @property
    def serves(self) -> bool:
        """Return whether the broker itself serves, and not the guardian in its place."""
        return self._served and not self._down.is_set() and not self.ended.is_set()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Hand a signal on to the broker, which then ends in order.

        After a second signal, or another one than SIGTERM, no client is served any more."""
        if self._stopping.is_set() or number != signal.SIGTERM:
            self._at_once.set()
        self._stopping.set()
        self._signal(number)

    def restart(self) -> None:
        """End the broker in order and start it again, at once; its clients are served all the time."""
        if not self._stopping.is_set() and self._served and not self._down.is_set():
            self._restarting = True
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)

    async def _linger(self) -> None:
        """Serve the clients of a broker that will not come back, until they must have heard of its successor."""
        config = self.config
        if self._stand_in is None or not config.stop_forward_ms or self._at_once.is_set():
            return
        logger.warning("the broker has stopped; its clients are served by the new master for a while",
                       extra={"for_ms": config.stop_forward_ms, "sooner": "by another SIGTERM"})
        self._down.set()
        with trio.move_on_after(config.stop_forward_ms / 1e3):
            with nullcontext() if config.linger_path is None else lingering(config.linger_path):
                await self._at_once.wait()

    async def _live(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> int | None:
        """Run one process of the broker to its end. Returns its exit code, if anybody could see it."""
        running, self._running = self._running, None
        async with AsyncExitStack() as stack:
            if running is not None:
                self.child = await stack.enter_async_context(running)
                self._now_serves(self.child, task_status)
                return await self.child.wait()
            mine, its = os.pipe()
            ready = trio.lowlevel.FdStream(mine)
            self.starts += 1
            try:
                self.child = await stack.enter_async_context(
                    self._launch(its, [each.fileno() for each in self._sockets]))
            except BaseException as error:
                await trio.aclose_forcefully(ready)
                if not isinstance(error, OSError) or not (self._served or self.lives.tries):
                    raise
                logger.error("the broker's process could not be started: %s", error)
                return FAILED
            finally:
                os.close(its)
            if self._stopping.is_set():  # the order came while it was being started
                self._signal(signal.SIGTERM)
            nursery.start_soon(self._hand_back_when_ready, ready, self.child, task_status)
            return await self.child.wait()

    async def _hand_back_when_ready(
        self, ready: trio.lowlevel.FdStream, child: Child, task_status: trio.TaskStatus[None],
    ) -> None:
        async with ready:
            if not await ready.receive_some(1):
                return  # it ended before it served
        self._now_serves(child, task_status)

    def _now_serves(self, child: Child, task_status: trio.TaskStatus[None]) -> None:
        logger.info("the broker serves", extra={"broker": self.config.own_address, "broker_process": child.pid})
        first, self._served = not self._served, True
        if self._down.is_set():
            self._down = trio.Event()
        self._standing_in.cancel()
        if first:
            task_status.started()
            self._serves()

    # --- while the child is down -----------------------------------------------------------------------------

    async def _prepare(self, by: StandIn, nursery: trio.Nursery) -> None:
        def means_the_broker(connection: Connection, command: Command) -> None:
            connection.reply(command, response(
                command, ResponseCode.SERVICE_NOT_AVAILABLE,
                remark=f"the broker at {self.config.own_address} is down; its guardian serves clients only"))
            if not by.forwarder.serves(connection):
                connection.close("it means the broker, which is down")

        server = Server(by.forwarder.handlers(), config=by.server, tls=by.tls, otherwise=means_the_broker,
                        on_close=lambda connection, _: by.forwarder.closed(connection))
        await nursery.start(by.forwarder.run)
        await nursery.start(server.run)
        nursery.start_soon(self._stand_in_while_down, by, server, nursery)
        nursery.start_soon(self._follow_master, by)

    @property
    def _sockets(self) -> Sequence[socket.socket]:
        return () if self._stand_in is None else self._stand_in.sockets

    async def _reopen(self) -> None:
        """Open sockets anew: a broker that another process started took its own along."""
        by = self._stand_in
        if by is None or by.reopen is None or by.sockets or self._stopping.is_set():
            return
        try:
            by.sockets.extend(await by.reopen())
        except OSError as error:
            logger.error("nobody answers at the broker's address until it is back: %s", error)

    async def _stand_in_while_down(self, by: StandIn, server: Server, nursery: trio.Nursery) -> None:
        """Forward clients to the master until the child serves, then for a while those that are still connected."""
        while True:
            await self._down.wait()
            by.forwarder.begin()
            with trio.CancelScope() as self._standing_in:
                async with trio.open_nursery() as accepting:
                    for each in by.sockets:
                        accepting.start_soon(self._accept, each, server, nursery)
                    accepting.start_soon(trio.sleep_forever)
            for connection in [each for each in server.connections if not by.forwarder.serves(each)]:
                connection.close("the broker is back")
            until = trio.current_time() + self.config.forward_ms / 1e3
            while not self._down.is_set() and by.forwarder.on:
                await trio.sleep(WATCH_S)
                if not server.connections or trio.current_time() >= until:
                    by.forwarder.end()

    async def _accept(self, listening: socket.socket, server: Server, nursery: trio.Nursery) -> None:
        async with trio.SocketListener(trio.socket.from_stdlib_socket(listening.dup())) as listener:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    logger.error("cannot accept connections: %s", error)
                    await trio.sleep(0.1)
                else:
                    nursery.start_soon(server.serve_stream, stream)

    async def _follow_master(self, by: StandIn) -> None:
        """Ask until there is another master than the one that died, and go on asking."""
        while True:
            await self._down.wait()
            while by.forwarder.on:
                found = await by.finder.find()
                if found is not None and found.address != self.config.own_address:
                    by.forwarder.follow(found.address)
                elif found is not None and not self._down.is_set():
                    by.forwarder.end()  # the broker is back, and master
                await trio.sleep(LOOK_S if by.forwarder.target is None else WATCH_S)
            await trio.sleep(LOOK_S)


def inherited_sockets() -> list[socket.socket]:
    """The child's side: the sockets that a guardian gave it; none without a guardian."""
    return [socket.socket(fileno=int(number)) for number in os.environ.get(SOCKETS, "").split(",") if number]


def tell_ready() -> None:
    """The child's side: tell the guardian that it serves."""
    number = os.environ.get(READY)
    if number:
        with suppress(BrokenPipeError):  # a container's broker may outlive the process that waited for this
            os.write(int(number), b"1")
        os.close(int(number))


