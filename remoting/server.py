"""The server: accepts connections, finds out what is spoken on each, and stops in order.

One port serves remoting, plain and under TLS, and hands connections in another protocol to whoever speaks it. Knows
sockets and first bytes; what requests mean is the handlers' business, and frames are the connections'.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import trio
from trio.abc import Listener, Stream

from remoting.backlog import Backlog
from remoting.config import ServerConfig, TLSMode
from remoting.connection import Connection
from remoting.endpoint import Counters, Endpoint, Handler, OnAnswer, Refuse
from remoting.errors import FrameError
from remoting.late import Late
from remoting.sniff import SNIFF_BYTES_MAX, Spoken, sniff
from remoting.streams import STREAM_ERRORS, PrefixedStream, TLSContext, close_now, ends, start_tls, tune, words

logger = logging.getLogger("remoting")

Fallback = Callable[[Stream, bytes], Awaitable[None]]
"""Serves a connection in another protocol, whose first bytes were read already; the stream is closed afterwards."""

FALLBACK_ALPN: Final = "quorate-raft/1"
"""A TLS connection that agreed on it goes to the fallback unread."""
_ACCEPT_PAUSE_S: Final = 0.1
"""After an error: out of file descriptors, mostly. Connections wait in the listener's backlog."""
_SILENT_S: Final = 1.0
"""Where all places are taken, a connection that has said nothing for so long gives its place to the next one."""
_QUIET_S: Final = 0.1
"""A stopping server closes a connection over which nothing passed for so long."""


class Server:
    """Serves ``handlers``, by request code, on any number of listeners.

    ``on_open(connection)`` and ``on_close(connection, reason)`` are called in the turn in which it happens, for
    connections that speak remoting. ``on_answer`` is told how long each answer took; ``late`` answers what waited.
    ``otherwise`` refuses requests of all other codes, in its own words.
    """

    def __init__(
        self, handlers: Mapping[int, Handler], *, config: ServerConfig | None = None,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection, str], None] | None = None,
        on_answer: OnAnswer | None = None, late: Late | None = None, tls: TLSContext | None = None,
        fallback: Fallback | None = None, otherwise: Refuse | None = None,
    ) -> None:
        """Raises ``ValueError`` when TLS is to be enforced and ``tls`` is missing."""
        config = config or ServerConfig()
        if config.tls_mode is TLSMode.ENFORCING and tls is None:
            raise ValueError("tls_mode = enforcing: needs a certificate")
        self.config = config
        self._accepted = 0
        self._endpoint = Endpoint(
            handlers, config, backlog=Backlog(
                config.outgoing_bytes_pause, config.outgoing_bytes_budget, config.outgoing_stall_ms / 1e3),
            on_open=on_open, on_close=on_close, on_answer=on_answer, late=late, otherwise=otherwise,
        )
        self._tls = tls if config.tls_mode is not TLSMode.DISABLED else None
        self._fallback = fallback
        self._streams: set[trio.CancelScope] = set()
        self._silent: dict[trio.CancelScope, float] = {}
        """Connections on which nothing was said that tells a protocol, and since when; the oldest comes first."""
        self._accepting: trio.Nursery | None = None
        self._scope: trio.CancelScope | None = None

    @property
    def connections(self) -> frozenset[Connection]:
        """Those that are open and speak remoting."""
        return frozenset(self._endpoint.connections)

    @property
    def counters(self) -> Counters:
        return self._endpoint.counters

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answer."""
        return self._endpoint.in_flight

    # --- running ---------------------------------------------------------------------------------------------

    async def run(
        self, listeners: Sequence[Listener[Stream]] = (), *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept and serve until cancelled or stopped; closes the listeners. Runs once.

        Without listeners connections come through ``serve_stream`` alone.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                await nursery.start(self._endpoint.run)
                try:
                    async with trio.open_nursery() as self._accepting:
                        for listener in listeners:
                            self._accepting.start_soon(self._accept, listener)
                        task_status.started()
                finally:
                    with trio.CancelScope(shield=True):  # a cancelled close would leave the other listeners open
                        for listener in listeners:
                            await trio.aclose_forcefully(listener)
        finally:
            for scope in self._streams:
                scope.cancel()

    async def stop(self, grace_ms: float) -> None:
        """Stop accepting, let the requests under way be answered, close, and end ``run``; at most ``grace_ms``.

        Meanwhile clients that understand it are told to go away; the others are served. A connection closes when it
        owes nothing and has been quiet for a moment.
        """
        if self._scope is None:
            return
        self._endpoint.going_away = True
        if self._accepting is not None:
            self._accepting.cancel_scope.cancel()
        with trio.move_on_after(grace_ms / 1e3):
            while self._endpoint.connections:
                quiet_since = trio.current_time() - _QUIET_S
                for connection in self.connections:
                    if not connection.busy and connection.active_at <= quiet_since:
                        connection.close("the server is shutting down")
                await trio.sleep(_QUIET_S / 5)
        self._scope.cancel()

    async def _accept(self, listener: Listener[Stream]) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:
                self.counters.accept_errors += 1
                logger.error("cannot accept connections, next attempt in %g s: %s", _ACCEPT_PAUSE_S, error)
                await trio.sleep(_ACCEPT_PAUSE_S)
            else:
                self._endpoint.start_soon(self.serve_stream, stream, name="connection")

    # --- one connection --------------------------------------------------------------------------------------

    async def serve_stream(self, stream: Stream, prefix: bytes = b"", *, peer: str = "") -> None:
        """Serve one accepted connection to its end, and close it. ``run`` must be running.

        ``prefix`` was read from it already; ``peer`` is the address of its other end, where the stream cannot tell.
        Raises nothing that the other end could cause.
        """
        if self._scope is None:
            raise RuntimeError("serve_stream needs a server that runs")
        if not self._endpoint.running:  # the endpoint has ended
            await trio.aclose_forcefully(stream)
            return
        if len(self._streams) >= self.config.connections_max and not self._made_room():
            self.counters.refused += 1
            await trio.aclose_forcefully(stream)
            return
        self.counters.accepted += 1
        scope = trio.CancelScope()
        self._streams.add(scope)
        self._silent[scope] = trio.current_time()
        try:
            with scope:
                tune(stream)
                theirs, ours = ends(stream)
                await self._serve(stream, prefix, peer or theirs, ours, scope)
        except FrameError as error:
            self.counters.unknown_protocol += 1
            logger.warning("connection from %s closed: %s", peer or ends(stream)[0], error)
        except STREAM_ERRORS as error:
            logger.debug("connection from %s broke: %s", peer or ends(stream)[0], words(error))
        except Exception:  # a defect must cost only this connection
            logger.exception("connection from %s", peer or ends(stream)[0])
        finally:
            self._streams.discard(scope)
            self._silent.pop(scope, None)
            await close_now(stream)

    def _made_room(self) -> bool:
        """End the connection that was silent for longest, if that was long: anybody may open many and say nothing."""
        oldest = next(iter(self._silent), None)
        if oldest is None or trio.current_time() < self._silent[oldest] + _SILENT_S:
            return False
        del self._silent[oldest]
        self._streams.discard(oldest)
        oldest.cancel()
        self.counters.idle += 1
        return True

    async def _serve(self, stream: Stream, received: bytes, peer: str, local: str, scope: trio.CancelScope) -> None:
        self._accepted += 1
        number = self._accepted
        spoken, received, source = await self._listen(stream, received, proxy=self.config.proxy_protocol)
        peer = source or peer
        if spoken is Spoken.TLS:
            secure = await self._shake_hands(PrefixedStream(received, stream), peer)
            if secure is None:
                return
            stream, received = secure, b""
            if secure.selected_alpn_protocol() == FALLBACK_ALPN:
                spoken = Spoken.OTHER
            else:
                spoken, received, _ = await self._listen(stream, b"")
        elif spoken is not None and self.config.tls_mode is TLSMode.ENFORCING:
            raise FrameError("it is not under TLS, which is enforced")
        self._silent.pop(scope, None)
        if spoken is Spoken.REMOTING:
            await Connection(self._endpoint, stream, peer, local, number).run(received)
        elif spoken is Spoken.OTHER:
            if self._fallback is None:
                raise FrameError("it speaks another protocol, which this server does not serve")
            self.counters.handed_over += 1
            await self._fallback(stream, received)
        elif spoken is Spoken.TLS:
            raise FrameError("it begins TLS within TLS")

    async def _listen(
        self, stream: Stream, received: bytes, *, proxy: bool = False
    ) -> tuple[Spoken | None, bytes, str | None]:
        """Return the protocol, bytes read behind a PROXY header, and its address; no protocol: it closed or idles."""
        with trio.move_on_after(self.config.idle_timeout_ms / 1e3):
            while (found := sniff(received, proxy=proxy)) is None:
                data = await stream.receive_some(SNIFF_BYTES_MAX)
                if not data:
                    return None, b"", None
                received += data
            return found.spoken, received[found.size:], found.source
        self.counters.idle += 1
        return None, b"", None

    async def _shake_hands(self, stream: Stream, peer: str) -> trio.SSLStream[Stream] | None:
        if self._tls is None:
            raise FrameError("it begins with a TLS handshake; TLS is not configured")
        try:
            with trio.fail_after(self.config.handshake_timeout_ms / 1e3):
                return await start_tls(stream, self._tls(), server=True)
        except trio.TooSlowError:
            reason = f"not done within {self.config.handshake_timeout_ms} ms"
        except (ssl.SSLError, *STREAM_ERRORS) as error:
            reason = words(error)
        self.counters.tls_failures += 1
        logger.warning("TLS handshake with %s failed: %s", peer, reason)
        return None
