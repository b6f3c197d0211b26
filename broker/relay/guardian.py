"""The guardian: holds a broker's listening sockets, so that its address answers while the broker is down.

It starts the broker as its child and gives it the sockets. While the child serves, the guardian only waits. When the
child dies, clients that connect are served by the group's new master, whom the controllers name, or who says so itself
where no controller answers, until the child, which is started again, says that it serves. Requests that are no client's
are refused: they mean that very broker. The same after an orderly stop in which the broker handed mastership over, for
as long as clients may not have heard of it; and while the child is restarted on request. Losing the machine is beyond
it.

It knows processes, sockets and the forwarder; what the broker does is the child's business.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import attrs
import trio

from broker.relay.finding import MasterFinder
from broker.relay.forwarding import Forwarder
from broker.relay.lingering import lingering
from remoting.config import ServerConfig
from remoting.daemon.notify import SOCKET
from remoting.server import Server
from remoting.streams import TLSContext

logger = logging.getLogger("broker.guardian")

SOCKETS: Final = "MQBROKER_LISTEN_FDS"
"""Environment of the child: numbers of its listening sockets, the main one first, separated by commas."""
READY: Final = "MQBROKER_READY_FD"
"""Environment of the child: it writes a byte there when it serves, and the end of that pipe is the guardian's end."""
HANDED_OVER: Final = 64
"""Exit code of the child that stopped in order, and after which another broker is master; outwards it is 0."""
ORDERLY: Final = frozenset({0, 2, HANDED_OVER})
"""Exit codes after which the child is not started again: told to stop, or its configuration is wrong."""
LOOK_S: Final = 0.02
"""Between two questions while a master is wanted; later every ``WATCH_S``."""
WATCH_S: Final = 0.5


@attrs.frozen
class GuardianConfig:
    """``own_address`` is the broker's, under which controllers know it. Milliseconds as named."""

    own_address: str
    forward_ms: int = 60_000
    """How long a client that came through the guardian is served by it after the child is back."""
    stop_forward_ms: int = 35_000
    """How long clients are served after a stop that handed mastership over; 0: not at all."""
    linger_path: Path | None = None
    """A file that tells of it while that lasts, so that another broker may have the port: see ``send_away``."""
    restart_ms: int = 500
    restart_ms_max: int = 30_000
    stable_ms: int = 30_000
    """A child that lived so long is started again after ``restart_ms``, another one after twice the last pause."""


class Guardian:
    """``command`` starts the broker. ``sockets`` listen already; they stay open until the end."""

    def __init__(
        self, config: GuardianConfig, command: Sequence[str], sockets: Sequence[socket.socket], forwarder: Forwarder,
        finder: MasterFinder, environment: Mapping[str, str] | None = None, *, server: ServerConfig | None = None,
        tls: TLSContext | None = None, serves: Callable[[], None] = lambda: None,
    ) -> None:
        """``serves`` is called once, when the broker serves for the first time."""
        self.config, self.forwarder = config, forwarder
        self.child: trio.Process | None = None
        self.starts = 0
        self._command, self._sockets = list(command), list(sockets)
        self._finder, self._server, self._tls = finder, server, tls
        self._serves = serves
        self._environment = dict(os.environ if environment is None else environment)
        self._environment.pop(SOCKET, None)  # the service is this process
        self._stopping = trio.Event()
        self._at_once = trio.Event()
        """Set when nobody is to be served any longer."""
        self._restarting = False
        self._down = trio.Event()
        """Set while a broker that once ran does not serve; a new one each time it serves."""
        self._standing_in = trio.CancelScope()
        self._served = False
        """Whether the broker ever did; one that cannot even begin is for whoever started it to look after."""

    # --- life ------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> int:
        """Keep the broker running until it ends in order; its exit code. Started when the broker serves."""
        pause_ms = self.config.restart_ms
        async with trio.open_nursery() as nursery:
            server = Server(self.forwarder.handlers(), config=self._server, tls=self._tls,
                            on_close=lambda connection, _: self.forwarder.closed(connection))
            await nursery.start(self.forwarder.run)
            await nursery.start(server.run)
            nursery.start_soon(self._stand_in_while_down, server, nursery)
            nursery.start_soon(self._follow_master)
            while True:
                began = trio.current_time()
                code = await self._live(nursery, task_status)
                lived_ms = (trio.current_time() - began) * 1e3
                over = code in ORDERLY or not self._served
                if self._restarting and not self._stopping.is_set():
                    self._restarting = False
                    self._down.set()
                    continue
                if not self._stopping.is_set() and not over:
                    pause_ms = (self.config.restart_ms if lived_ms >= self.config.stable_ms
                                else min(pause_ms * 2, self.config.restart_ms_max))
                    logger.error("the broker's process ended; its address is answered by the master meanwhile",
                                 extra={"exit_code": code, "starts_again_in_ms": pause_ms})
                    self._down.set()
                    with trio.move_on_after(pause_ms / 1e3):
                        await self._stopping.wait()
                if self._stopping.is_set() or over:
                    if code == HANDED_OVER:
                        code = 0
                        await self._linger()
                    nursery.cancel_scope.cancel()
                    return code

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Hand a signal on to the broker, which then ends in order. The second one, or another than SIGTERM, says that
        nobody is to be served after that."""
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
        if not config.stop_forward_ms or self._at_once.is_set():
            return
        logger.warning("the broker has stopped; its clients are served by the new master for a while",
                       extra={"for_ms": config.stop_forward_ms, "sooner": "by another SIGTERM"})
        self._down.set()
        with trio.move_on_after(config.stop_forward_ms / 1e3):
            with nullcontext() if config.linger_path is None else lingering(config.linger_path):
                await self._at_once.wait()

    async def _live(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> int:
        """One process of the broker, from its start to its end."""
        mine, its = os.pipe()
        try:
            child = self.child = await trio.lowlevel.open_process(
                self._command, pass_fds=[its, *(each.fileno() for each in self._sockets)],
                stdin=subprocess.PIPE,  # its leash: it ends when this process does, however that ends
                env={**self._environment, READY: str(its),
                     SOCKETS: ",".join(str(each.fileno()) for each in self._sockets)})
        except BaseException:
            os.close(mine)
            raise
        finally:
            os.close(its)
        self.starts += 1
        if self._stopping.is_set():  # while it was being started
            self._signal(signal.SIGTERM)
        nursery.start_soon(self._hand_back_when_ready, trio.lowlevel.FdStream(mine), child, task_status)
        try:
            return await child.wait()
        finally:
            with trio.CancelScope(shield=True):
                assert child.stdin is not None
                await child.stdin.aclose()
                await child.wait()

    async def _hand_back_when_ready(
        self, ready: trio.lowlevel.FdStream, child: trio.Process, task_status: trio.TaskStatus[None],
    ) -> None:
        async with ready:
            if not await ready.receive_some(1):
                return  # it ended before it served
        logger.info("the broker serves", extra={"broker_process": child.pid})
        self._served = True
        if self._down.is_set():
            self._down = trio.Event()
        self._standing_in.cancel()
        if self.starts == 1:
            task_status.started()
            self._serves()

    # --- while the child is down -----------------------------------------------------------------------------

    async def _stand_in_while_down(self, server: Server, nursery: trio.Nursery) -> None:
        """Accept, and forward to the master, until the child serves; then see those who came to an end."""
        while True:
            await self._down.wait()
            self.forwarder.begin()
            with trio.CancelScope() as self._standing_in:
                async with trio.open_nursery() as accepting:
                    for each in self._sockets:
                        accepting.start_soon(self._accept, each, server, nursery)
            until = trio.current_time() + self.config.forward_ms / 1e3
            while not self._down.is_set() and self.forwarder.on:
                await trio.sleep(WATCH_S)
                if not server.connections or trio.current_time() >= until:
                    self.forwarder.end()

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

    async def _follow_master(self) -> None:
        """Ask until there is another master than the one that died, and go on asking."""
        while True:
            await self._down.wait()
            while self.forwarder.on:
                found = await self._finder.find()
                if found is not None and found.address != self.config.own_address:
                    self.forwarder.follow(found.address)
                elif found is not None and not self._down.is_set():
                    self.forwarder.end()  # the broker is back, and master
                await trio.sleep(LOOK_S if self.forwarder.target is None else WATCH_S)
            await trio.sleep(LOOK_S)


def inherited_sockets() -> list[socket.socket]:
    """The child's side: the sockets that a guardian gave it; none without a guardian."""
    return [socket.socket(fileno=int(number)) for number in os.environ.get(SOCKETS, "").split(",") if number]


def tell_ready() -> None:
    """The child's side: it serves."""
    number = os.environ.get(READY)
    if number:
        os.write(int(number), b"1")
        os.close(int(number))


