"""Streams as this package needs them: connecting, tuning, TLS on top, and what their errors mean.

Knows trio streams and addresses; nothing of frames or of who is at the other end.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from trio.abc import Stream

from remoting.address import join_address, split_address

Connector = Callable[[str], Awaitable[Stream]]
"""From ``host:port`` to an open stream; raises ``OSError``. A whole cluster can run on memory streams this way."""
TLSContext = Callable[[], ssl.SSLContext]
"""Asked for each connection, so that new certificates are used without a restart."""

STREAM_ERRORS: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Errors of a stream that the network ends, not the program."""
_NOTSENT_BYTES: Final = 1 << 20


async def connect_tcp(address: str) -> Stream:
    """An open TCP connection. Raises ``OSError``, also for an address that makes no sense: it may come from a peer."""
    try:
        return await trio.open_tcp_stream(*split_address(address))
    except ValueError as error:  # a host name that cannot be encoded is a ValueError too
        raise OSError(str(error)) from error


def tune(stream: Stream, unacknowledged_timeout_ms: int | None = None) -> None:
    """Take large writes in large pieces (Nagle's delay is off already) and, with a timeout, notice a lost machine.

    Servers give no timeout: a connection that breaks is a broker that is gone, and who is merely silent for a while
    must be judged by heartbeats alone.
    """
    if not isinstance(stream, trio.SocketStream):
        return
    options = [("TCP_NOTSENT_LOWAT", _NOTSENT_BYTES)]
    if unacknowledged_timeout_ms is not None:
        seconds = max(1, unacknowledged_timeout_ms // 4_000)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options += [
            ("TCP_KEEPIDLE", seconds), ("TCP_KEEPINTVL", seconds), ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", unacknowledged_timeout_ms),
        ]
    for name, value in options:
        if (option := getattr(socket, name, None)) is not None:
            with contextlib.suppress(OSError):
                stream.setsockopt(socket.IPPROTO_TCP, option, value)


async def start_tls(
    stream: Stream, context: ssl.SSLContext, *, server: bool, host: str | None = None
) -> trio.SSLStream[Stream]:
    """TLS on ``stream``, hands shaken; ``host`` is what a context that checks names expects. Raises a stream's error.

    Closes nothing on failure: that is for whoever opened ``stream``.
    """
    # Frames carry their lengths: an end without TLS's own goodbye does no harm.
    secure = trio.SSLStream(stream, context, server_hostname=host, server_side=server, https_compatible=True)
    await secure.do_handshake()
    return secure


async def dial(
    address: str, connector: Connector, tls: TLSContext | None, *, timeout_ms: float,
    unacknowledged_timeout_ms: int | None = None,
) -> tuple[Stream, str]:
    """An open stream to ``address``, tuned and, with ``tls``, under it; and the address of our own end.

    Raises ``OSError`` in words, whatever went wrong; nothing stays open then, nor when it is cancelled.
    """
    plain: Stream | None = None
    opened = False
    try:
        with trio.fail_after(timeout_ms / 1e3):
            plain = stream = await connector(address)
            tune(plain, unacknowledged_timeout_ms)
            if tls is not None:
                stream = await start_tls(plain, tls(), server=False, host=split_address(address)[0])
        opened = True
        return stream, ends(plain)[1]
    except trio.TooSlowError:
        raise OSError(f"no answer within {timeout_ms:g} ms") from None
    except (ValueError, *STREAM_ERRORS) as error:  # ssl raises errors of both kinds
        raise OSError(words(error)) from error
    finally:
        if plain is not None and not opened:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(plain)


def ends(stream: Stream) -> tuple[str, str]:
    """Addresses of a stream, the peer's and our own, below any layers; "?" where it has none."""
    below: object = stream
    while not isinstance(below, trio.SocketStream):
        below = getattr(below, "transport_stream", None)
        if below is None:
            return "?", "?"
    return _name(below.socket.getpeername), _name(below.socket.getsockname)


def _name(ask: Callable[[], object]) -> str:
    try:
        name = ask()
    except OSError:
        return "?"
    if not isinstance(name, tuple):
        return str(name) or "?"
    return join_address(*name[:2])


async def close_now(stream: Stream) -> None:
    """As ``trio.aclose_forcefully``, which cancels itself to that end: for a plain socket there is nothing to wait for.
    """
    if isinstance(stream, trio.SocketStream):
        stream.socket.close()
    else:
        await trio.aclose_forcefully(stream)


def words(error: BaseException) -> str:
    """Return the meaning of a stream's error; trio keeps the system's words in the cause."""
    text = str(error) or type(error).__name__
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):  # the group has one error for each address of a host
        return "; ".join(dict.fromkeys(map(words, cause.exceptions)))
    return f"{text}: {cause}" if cause and str(cause) not in text else text


class PrefixedStream(Stream):
    """A stream some of whose bytes were read already, to find out what is spoken on it."""

    def __init__(self, prefix: bytes | bytearray, stream: Stream) -> None:
        self._prefix = bytes(prefix)
        self.transport_stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._prefix:
            await trio.lowlevel.checkpoint()
            size = len(self._prefix) if max_bytes is None else max_bytes
            data, self._prefix = self._prefix[:size], self._prefix[size:]
            return data
        return await self.transport_stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.transport_stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.transport_stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.transport_stream.aclose()
