"""Holds what connections of one server or client share: handlers, deadlines, counters, the task that writes.

A request is handled where it was read, in the same turn of the loop: a task of its own would cost more than the
request. Knows what frames mean to the protocol (requests, answers, oneways), nothing of listening or dialling.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import attrs
import trio

from remoting.backlog import Backlog
from remoting.codes import GO_AWAY_VERSION, ResponseCode
from remoting.command import ONEWAY, Command, Encoding, response
from remoting.config import ConnectionLimits
from remoting.connection import Connection
from remoting.deadlines import Deadlines
from remoting.errors import BodyError, HeaderError
from remoting.late import Late
from remoting.readiness import Readiness, readiness
from remoting.wakeup import Bell

logger = logging.getLogger("remoting")

Refuse = Callable[[Connection, Command], None]
"""Refuses a request: replies to it, and may close the connection."""
Handler = Callable[[Connection, Command], Command | Coroutine[Any, Any, Command | None] | None]
"""Answers a request. It must not block: the loop waits for it.

- A ``Command`` is sent at once.
- ``None``: ``Connection.reply`` was called, or will be (until then the request is under way), or it is oneway.
- A coroutine runs in a task of its own, and is not cancelled when the connection closes.

An exception is answered with SYSTEM_ERROR and its text. An answer to a oneway request is dropped."""
_LOOK_S: Final = 0.25
"""Time between two looks at stalled connections."""
OnAnswer = Callable[[int, int, float], None]
"""Request code, response code, seconds from reading the one to queueing the other."""


@attrs.define(eq=False)
class Counters:
    """Counts since the start. They only rise."""

    accepted: int = 0
    refused: int = 0
    """Closed when they were accepted, for ``connections_max``."""
    accept_errors: int = 0
    handed_over: int = 0
    """Connections in another protocol, given to the fallback."""
    unknown_protocol: int = 0
    """Closed for their first bytes, or for plain bytes where TLS is enforced."""
    tls_failures: int = 0
    dialled: int = 0
    dials_failed: int = 0
    opened: int = 0
    """Connections that speak remoting."""
    closed: int = 0
    bad_frames: int = 0
    """Connections closed for bytes that are no frame."""
    slow_readers: int = 0
    """Connections closed for ``outgoing_bytes_max``."""
    stalled: int = 0
    """Connections closed for ``outgoing_bytes_budget``."""
    idle: int = 0
    """Connections closed for ``idle_timeout_ms``."""
    crowded_out: int = 0
    """Connections closed for ``receive_bytes_max``."""
    bytes_received: int = 0
    bytes_sent: int = 0
    requests: dict[int, int] = attrs.field(factory=dict)
    """Requests with a handler, by code."""
    unsupported: int = 0
    """Requests without a handler."""
    rejected: int = 0
    """Requests whose header or body could not be read."""
    failed: int = 0
    """Requests whose handler raised anything else."""
    busy: int = 0
    """Requests beyond ``requests_in_flight_max``."""
    overdue: int = 0
    """Requests that waited too long to be carried out."""
    went_away: int = 0
    """Requests answered GO_AWAY."""
    timeouts: int = 0
    """Calls that got no answer in time."""
    late_answers: int = 0
    """Answers that came when no caller waited any more."""


class Endpoint:
    """One side of any number of connections. ``run`` must be running for as long as there are any."""

    def __init__(
        self, handlers: Mapping[int, Handler], limits: ConnectionLimits, *, backlog: Backlog[Connection] | None = None,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection, str], None] | None = None,
        on_answer: OnAnswer | None = None, late: Late | None = None, otherwise: Refuse | None = None,
    ) -> None:
        """``otherwise`` refuses requests of all other codes than those of ``handlers``, in its own words."""
        self.limits = limits
        self._late = late or Late()
        self.backlog: Backlog[Connection] = backlog if backlog is not None else Backlog(
            sys.maxsize, sys.maxsize, math.inf)
        self.counters = Counters(requests=dict.fromkeys(handlers, 0))
        self.deadlines = Deadlines()
        self.readiness: Readiness | None = None
        self.now = trio.current_time
        self.connections: set[Connection] = set()
        self.going_away = False
        self.in_flight = 0
        """Requests that wait for their answer."""
        self.unfinished_bytes = 0
        """Bytes of unfinished frames over all connections."""
        self.on_answer = on_answer
        self._handlers, self._otherwise = dict(handlers), otherwise
        self._on_open, self._on_close = on_open, on_close
        self._seen: set[tuple[int, type[Exception]]] = set()
        """Failures that were logged with their traceback."""
        self._unwritten: list[Connection] = []
        self._bell, self._crowded = Bell(), Bell()
        self.relieved = trio.lowlevel.ParkingLot()
        """Tasks that wait here while the backlog is full."""
        self._nursery: trio.Nursery | None = None
        self._over = False

    # --- running ---------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the connections, until cancelled; then none is left."""
        assert self._nursery is None, "an endpoint runs once"
        self.now = trio.lowlevel.current_clock().current_time  # direct access: every call asks for the time
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self.deadlines.run, name="deadlines")
                self.readiness = readiness()
                if self.readiness is not None:
                    self._nursery.start_soon(self.readiness.run, name="reader")
                self._nursery.start_soon(self._write, name="writer")
                self._nursery.start_soon(self._relieve, name="backlog")
                task_status.started()
        finally:
            self._over = True
            for connection in list(self.connections):
                connection.close("this end is shutting down")

    @property
    def running(self) -> bool:
        """The endpoint can serve connections."""
        return self._nursery is not None and not self._over and not self._nursery.cancel_scope.cancel_called

    def start_soon(self, task: Callable[..., Coroutine[Any, Any, object]], *args: object, name: str) -> None:
        assert self._nursery is not None, "the endpoint runs"
        self._nursery.start_soon(task, *args, name=name)

    async def _write(self) -> None:
        """Everything queued in one turn of the loop leaves in one system call per connection, in the next turn."""
        while True:
            await self._bell.wait()
            connections, self._unwritten = self._unwritten, []
            for connection in connections:
                connection.flush()

    async def _relieve(self) -> None:
        """While the budget is short, close who does not read."""
        backlog = self.backlog
        while True:
            await self._crowded.wait()
            while backlog.short:
                while (connection := backlog.must_go(self.now())) is not None:
                    self.counters.stalled += 1
                    logger.warning("connection with %s closed: it does not read; %d bytes wait for it, %d for all",
                                   connection.peer, connection.queued_bytes, backlog.bytes)
                    connection.close("it does not read")
                for _ in range(2):  # let its tasks end and free what they hold
                    await trio.lowlevel.checkpoint()
                self.relieved.unpark_all()
                with trio.move_on_after(_LOOK_S):
                    await self._crowded.wait()

    def fell_behind(self, size: int) -> None:
        """So many bytes more wait to be written to those that are behind."""
        self.backlog.bytes += size
        if self.backlog.short:
            self._crowded.ring()

    def write_soon(self, connection: Connection) -> None:
        self._unwritten.append(connection)
        self._bell.ring()

    # --- connections -----------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self.counters.opened += 1
        self.connections.add(connection)
        self.deadlines.set(connection.active_at + self.limits.idle_timeout_ms / 1e3, connection)
        if self._on_open is not None:
            try:
                self._on_open(connection)
            except Exception:  # a defect of the hook must not end the server
                logger.exception("on_open of %s", connection.peer)

    def closed(self, connection: Connection, reason: str) -> None:
        self.counters.closed += 1
        self.connections.discard(connection)
        logger.debug("connection with %s closed: %s", connection.peer, reason)
        if self._on_close is not None:
            try:
                self._on_close(connection, reason)
            except Exception:  # as above
                logger.exception("on_close of %s", connection.peer)

    # --- requests --------------------------------------------------------------------------------------------

    def _cut(self, command: Command) -> str:
        """Return a hint at the code that a binary header of 16 bits may have cut."""
        whole = [code for code in self._handlers if (code ^ command.code) & 0xFFFF == 0]
        if command.encoding is not Encoding.ROCKETMQ or not whole:
            return ""
        return f"; if {whole[0]} is meant: a binary header cuts it off, send it with a JSON header"

    def dispatch(self, connection: Connection, command: Command) -> None:
        """Handle one request. Never raises what a request or a handler could cause."""
        handler = self._handlers.get(command.code)
        if handler is None:
            self.counters.unsupported += 1
            if self._otherwise is not None:
                self._otherwise(connection, command)
                return
            connection.reply(command, response(
                command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f" request type {command.code} not supported{self._cut(command)}",
            ))
            return
        if self.going_away and command.version > GO_AWAY_VERSION and not command.flag & ONEWAY:
            self.counters.went_away += 1
            connection.reply(command, response(command, ResponseCode.GO_AWAY, remark="this server is shutting down"))
            return
        self.counters.requests[command.code] += 1
        connection.replied_to = None
        if connection.waited_s >= self._late.after_s:
            instead = self._late.answer(command, connection.came_at, connection.waited_s, self.in_flight)
            if instead is not None:
                self.counters.overdue += 1
                connection.reply(command, instead)
                return
        try:
            answer = handler(connection, command)
        except Exception as error:  # noqa: BLE001  # answer every defect of a handler
            answer = self._failure(connection, command, error)
        if type(answer) is Command:
            connection.reply(command, answer)
        elif answer is None:
            if not command.flag & ONEWAY and connection.replied_to != command.opaque:
                connection.owe(command)
        else:
            self._start(connection, command, answer)

    def _start(self, connection: Connection, command: Command, work: object) -> None:
        if not isinstance(work, Coroutine):
            error = TypeError(f"the handler returned a {type(work).__name__}")
            connection.reply(command, self._failure(connection, command, error))
        elif self.in_flight >= self.limits.requests_in_flight_max:
            work.close()
            self.counters.busy += 1
            connection.reply(command, response(
                command, ResponseCode.SYSTEM_BUSY,
                remark=f"{self.in_flight} requests are under way already; try again later",
            ))
        else:
            self.in_flight += 1
            connection.working += 1
            name = f"request {command.code}"
            self.start_soon(self._finish, connection, command, work, connection.active_at, name=name)

    async def _finish(
        self, connection: Connection, command: Command, work: Coroutine[Any, Any, Command | None], started: float
    ) -> None:
        try:
            answer = await work
        except Exception as error:  # noqa: BLE001  # as in dispatch
            answer = self._failure(connection, command, error)
        finally:
            self.in_flight -= 1
            connection.working -= 1
        if answer is not None:
            connection.reply(command, answer, started)

    def _failure(self, connection: Connection, command: Command, error: Exception) -> Command:
        if isinstance(error, HeaderError | BodyError):
            self.counters.rejected += 1
            logger.info("request %d of %s: %s", command.code, connection.peer, error)
            return response(command, ResponseCode.SYSTEM_ERROR, remark=str(error))
        self.counters.failed += 1
        seen = (command.code, type(error)) in self._seen
        self._seen.add((command.code, type(error)))  # a peer may repeat a failure quickly: log one traceback of each
        logger.error(
            "request %d of %s failed: %s: %s", command.code, connection.peer, type(error).__name__, error,
            exc_info=None if seen else error,
        )
        return response(command, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
