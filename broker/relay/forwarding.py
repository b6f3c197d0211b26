"""Carries clients' requests to another broker: one connection there for each client here, so that pushes find back.

A forwarder changes nothing: the answer is the master's own. A request of unknown outcome gets no answer: its client's
connection is closed, as if the master had died under it. While the master is not known, or does not know yet that it is
master, requests wait a moment. This module knows connections and codes; it is told which broker is master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import trio

from broker.relay.codes import FORWARDED, PUSHED
from broker.standing import REJECTED
from remoting.codes import ResponseCode
from remoting.command import ONEWAY, Command, kept_bytes, response
from remoting.config import ClientConfig
from remoting.connection import Connection
from remoting.endpoint import Endpoint, Handler
from remoting.errors import ConnectionClosed, NotEncodable, RemotingError
from remoting.streams import Connector, TLSContext, connect_tcp, dial

logger = logging.getLogger("broker.relay")

ANSWER_TIMEOUT_MS: Final = 60_000
"""Longest wait for the master's answer, longer than any pull is held; clients stop waiting long before."""
PATIENCE_MS: Final = 1_000
"""A request waits so long for a master to be known; clients count one that waits 3 s as lost."""
WAITING_MAX: Final = 1_000
"""Limit for requests of one client that wait."""
HELD_BYTES_MAX: Final = 128 << 20
"""Limit for bytes of requests, over all clients, that wait or have no answer yet; more are refused."""
SMALL_BYTES: Final = 16 << 10
"""A client with no request under way may have one of this size even then, so that a flood of others does not harm it.
"""
ONEWAY_BYTES_MAX: Final = 1 << 20
"""While more bytes are queued for the master, one-way requests are dropped."""
RETRY_S: Final = 0.01
_AGAIN: Final = "this broker answers for itself again"
PASSED_ON: Final = 4
"""Bit of ``Command.flag``: this request must not be passed on again. Java looks at the other two bits only.

Two brokers that soon change places again are both switched on until the next master has taken its role."""


@attrs.define(eq=False)
class _Upstream:
    """The connection to the master that serves one client."""

    client: Connection
    connection: Connection | None = None
    waiting: list[Command] = attrs.field(factory=list)
    """Requests that came before there was a connection, in their order."""
    held_bytes: int = 0


class Forwarder:
    """Forwards requests: wrap handlers with it, tell it of closed clients, and ``run`` it. It begins switched off."""

    def __init__(
        self, *, connector: Connector = connect_tcp, tls: TLSContext | None = None, config: ClientConfig | None = None,
        patience_ms: int = PATIENCE_MS, codes: frozenset[int] = FORWARDED,
    ) -> None:
        """``codes``: requests that go on."""
        self.target: str | None = None
        """Address that requests are forwarded to; None: it is not known yet."""
        self.forwarded = 0
        """Requests that went on."""
        self.held_bytes = 0
        """Bytes of requests that nobody has answered yet."""
        self._on = False
        self._passes = codes
        """Requests that go on now."""
        self._config = config or ClientConfig()
        self._connector, self._tls, self._patience_ms, self._codes = connector, tls, patience_ms, codes
        self._endpoint = Endpoint(dict.fromkeys(PUSHED, self._push), self._config, on_close=self._lost)
        self._upstreams: dict[Connection, _Upstream] = {}
        self._known = trio.Event()

    # --- switching -------------------------------------------------------------------------------------------

    @property
    def on(self) -> bool:
        """Return whether requests are forwarded. Even then ``target`` may be unknown."""
        return self._on

    @property
    def passes_all(self) -> bool:
        """Return whether all requests of clients are forwarded, and not only some codes."""
        return self._on and self._passes == self._codes

    def begin(self, target: str | None = None, *, codes: frozenset[int] | None = None) -> None:
        """Send requests to ``target`` from now on, or let them wait for one. ``codes``: only some of them."""
        self._on, self._passes = True, self._codes if codes is None else codes & self._codes
        self.follow(target)

    def follow(self, target: str | None) -> None:
        """Follow the master to ``target``; clients that were connected to another one connect again."""
        former, self.target = self.target, target
        if target is not None:
            self._known.set()
        elif self._known.is_set():  # an event that is not set stays: requests wait for it
            self._known = trio.Event()
        if former not in (None, target):
            self._drop("another broker is master now")

    def end(self) -> None:
        """Stop forwarding: requests are handled here again."""
        self._on, self.target, self._known = False, None, trio.Event()
        self._drop(_AGAIN)

    def serves(self, client: Connection) -> bool:
        """Return whether requests of this connection go on, or have since this was switched on."""
        return client in self._upstreams

    def closed(self, client: Connection) -> None:
        """A client's connection to this broker ended."""
        upstream = self._upstreams.pop(client, None)
        if upstream is not None:
            self._forget(upstream)
            if upstream.connection is not None:
                upstream.connection.close("its client is gone")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the connections, until cancelled."""
        await self._endpoint.run(task_status=task_status)

    # --- handling --------------------------------------------------------------------------------------------

    def handlers(self, local: Mapping[int, Handler] | None = None) -> dict[int, Handler]:
        """Wrap ``local`` handlers: clients' codes are passed on while this is on. Without ``local`` all codes are."""
        if local is None:
            return dict.fromkeys(self._codes, self._forward)
        return {code: self._wrap(code, handler) if code in self._codes else handler for code, handler in local.items()}

    def _wrap(self, code: int, local: Handler) -> Handler:
        def handle(client: Connection, command: Command) -> Any:
            if self._on and code in self._passes:
                return self._forward(client, command)
            return local(client, command)

        return handle

    def _forward(self, client: Connection, command: Command) -> Command | None:
        if command.flag & PASSED_ON:
            return response(command, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        if not self._on:  # whoever serves again is found by another connection
            client.reply(command, _refusal(command))
            client.close(_AGAIN)
            return None
        upstream = self._upstreams.get(client)
        if upstream is None:
            upstream = self._upstreams[client] = _Upstream(client)
            self._endpoint.start_soon(self._serve, upstream, name=f"forwarding for {client.peer}")
        size = kept_bytes(command)
        if len(upstream.waiting) >= WAITING_MAX or (
                self.held_bytes + size > HELD_BYTES_MAX and (upstream.held_bytes or size > SMALL_BYTES)):
            return response(command, ResponseCode.SYSTEM_BUSY, remark=(
                "this broker passes requests on to the master, and too many wait for its answers"))
        self._hold(upstream, size)
        if upstream.connection is not None:
            self._send(upstream, upstream.connection, command)
        else:
            upstream.waiting.append(command)
        return None

    def _hold(self, upstream: _Upstream, size: int) -> None:
        upstream.held_bytes += size
        self.held_bytes += size

    def _forget(self, upstream: _Upstream) -> None:
        """Give up requests that wait: they will never be sent."""
        waiting, upstream.waiting = upstream.waiting, []
        self._hold(upstream, -sum(map(kept_bytes, waiting)))

    def _send(self, upstream: _Upstream, connection: Connection, command: Command, until: float | None = None) -> None:
        """Send a request that is held; it counts as held until it is answered. ``until``: send it again until then."""
        copy = attrs.evolve(command, flag=command.flag | PASSED_ON, ext=dict(command.ext))
        size, client = kept_bytes(command), upstream.client
        told = _answer(client, command)
        if until is None:
            until = trio.current_time() + self._patience_ms / 1e3
            self.forwarded += 1

        def answered(result: Command | RemotingError) -> None:
            if _of_slave(result) and trio.current_time() < until:  # it was elected, and is about to take the role
                self._endpoint.start_soon(self._again, upstream, connection, command, until, name="forwarding again")
                return
            self._hold(upstream, -size)
            told(result)

        try:
            if not command.flag & ONEWAY:
                connection.call_nowait(copy, answered, ANSWER_TIMEOUT_MS)
                return
            if connection.queued_bytes <= ONEWAY_BYTES_MAX:
                connection.send(copy)
        except NotEncodable as error:
            client.reply(command, response(command, ResponseCode.SYSTEM_ERROR, remark=str(error)))
        except ConnectionClosed:
            client.close("the master's connection closed under a request")
        self._hold(upstream, -size)

    async def _again(self, upstream: _Upstream, connection: Connection, command: Command, until: float) -> None:
        await trio.sleep(RETRY_S)
        self._send(upstream, connection, command, until)

    def _push(self, upstream: Connection, command: Command) -> Command | None:
        """Pass a request of the master on to the client."""
        client = upstream.identity
        if not isinstance(client, Connection) or client.closed:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="the client is gone")
        copy = attrs.evolve(command, ext=dict(command.ext))
        try:
            if command.flag & ONEWAY:
                client.send(copy)
            else:
                client.call_nowait(copy, _answer(upstream, command), ANSWER_TIMEOUT_MS)
        except RemotingError as error:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=str(error))
        return None

    # --- connections -----------------------------------------------------------------------------------------

    async def _serve(self, upstream: _Upstream) -> None:
        """Connect to the master once it is known, and serve the connection to its end."""
        client = upstream.client
        with trio.move_on_after(self._patience_ms / 1e3):
            while upstream.connection is None:
                await self._known.wait()
                if self._upstreams.get(client) is not upstream:
                    return  # the client is gone, or this was switched off
                await self._dial(upstream)
        if upstream.connection is None:
            if self._upstreams.get(client) is upstream:
                del self._upstreams[client]
            for command in upstream.waiting:  # none of these was sent
                client.reply(command, _refusal(command))
            self._forget(upstream)
            return
        waiting, upstream.waiting = upstream.waiting, []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(upstream.connection.run)
            for command in waiting:
                self._send(upstream, upstream.connection, command)

    async def _dial(self, upstream: _Upstream) -> None:
        """Try once to connect to the master."""
        assert self.target is not None, "known"
        address = self.target
        try:
            stream, own = await dial(
                address, self._connector, self._tls, timeout_ms=self._config.connect_timeout_ms,
                unacknowledged_timeout_ms=self._config.unacknowledged_timeout_ms)
        except OSError as error:
            logger.info("cannot forward to %s: %s", address, error)
            await trio.sleep(RETRY_S)
            return
        if address == self.target and self._upstreams.get(upstream.client) is upstream:
            connection = upstream.connection = Connection(self._endpoint, stream, address, own)
            connection.identity = upstream.client
        else:  # the master is another one now, or the client is gone
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    def _lost(self, connection: Connection, reason: str) -> None:
        """Close the client's connection, since the one to the master is gone: clients know that sign."""
        client = connection.identity
        upstream = self._upstreams.get(client) if isinstance(client, Connection) else None
        if upstream is not None and upstream.connection is connection:
            del self._upstreams[upstream.client]
            upstream.client.close(f"the master's connection closed: {reason}")

    def _drop(self, reason: str) -> None:
        """Close clients' connections, so that they connect again and make themselves known to the other master."""
        upstreams, self._upstreams = self._upstreams, {}
        for upstream in upstreams.values():
            self._forget(upstream)
            upstream.client.close(reason)
            if upstream.connection is not None:
                upstream.connection.close(reason)


def _refusal(command: Command) -> Command:
    return response(command, ResponseCode.SERVICE_NOT_AVAILABLE,
                    remark="this broker is not the master, and the master cannot be reached")


def _of_slave(result: Command | RemotingError) -> bool:
    """Return whether a slave refused: then nothing was done."""
    return isinstance(result, Command) and result.code == ResponseCode.SYSTEM_BUSY and result.remark == REJECTED


def _answer(to: Connection, command: Command) -> Callable[[Command | RemotingError], None]:
    def tell(result: Command | RemotingError) -> None:
        if isinstance(result, Command):
            to.reply(command, result)
        else:
            to.close(f"the outcome of a forwarded request is not known: {result}")

    return tell
