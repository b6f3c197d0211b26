"""Greets over trio streams, at both ends, after the TCP and TLS steps. The shell around ``hello``.

Used by nodes and by clients. Knows streams and addresses; nothing of peer messages or of who should be connected.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from trio.abc import Stream

from raft.access import LOCAL, Caller
from raft.errors import ConfigError, MalformedMessage
from raft.hello import (
    GREETING_BYTES_MAX,
    Greeting,
    Hello,
    HelloRefusal,
    Refused,
    check_hello,
    decode_greeting,
    encode_greeting,
)
from raft.tls import certificate_names

Connector = Callable[[str], Awaitable[Stream]]
"""Opens a stream to ``host:port``; raises ``OSError``. Tests connect memory streams this way."""

STREAM_ERRORS: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Errors of a stream that the other end or the network broke, not this program."""
TLS_RECORD: Final = 0x16
"""First byte of a TLS handshake."""
_REFUSAL_SECONDS: Final = 1.0
_REFUSAL_DRAIN_BYTES: Final = 64 << 10
_NOTSENT_BYTES: Final = 1 << 20


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[v6]:port`` into a pair. Raises ``ConfigError``."""
    try:
        host, colon, port = str.rpartition(address, ":")
    except TypeError:
        raise ConfigError("address", address, "must be host:port, as text") from None
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigError("address", address, "must be host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 host in brackets, as ``split_address`` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect_tcp(address: str) -> Stream:
    """Open a TCP connection and tune it. Raises ``OSError``, also for an address that makes no sense.

    Addresses also come from memberships and hellos: a bad one must do no more harm than one where nobody listens.
    """
    try:
        stream = await trio.open_tcp_stream(*split_address(address))
    except (ConfigError, ValueError) as error:  # a host name that cannot be encoded is a UnicodeError
        raise OSError(f"{address!r} is no address: {error}") from error
    tune_socket(stream)
    return stream


def tune_socket(stream: Stream) -> None:
    """Set the socket's options: a peer that vanished is noticed in about five seconds, and large writes go in large
    pieces."""
    if not isinstance(stream, trio.SocketStream):
        return
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 5_000),
        ("TCP_NOTSENT_LOWAT", _NOTSENT_BYTES),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                stream.setsockopt(socket.IPPROTO_TCP, option, value)


class PrefixedStream(Stream):
    """A stream whose first bytes were read already, to find out which protocol it carries."""

    def __init__(self, prefix: bytes | bytearray, stream: Stream) -> None:
        self._prefix = bytes(prefix)
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._prefix:
            await trio.lowlevel.checkpoint()
            size = len(self._prefix) if max_bytes is None else max_bytes
            data, self._prefix = self._prefix[:size], self._prefix[size:]
            return data
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def start_tls(stream: Stream, context: ssl.SSLContext, *, server: bool) -> trio.SSLStream[Stream]:
    """Start TLS on ``stream``, handshake included. Raises ``trio.BrokenResourceError``."""
    # Frames carry their lengths and CRCs, so a connection that is cut without TLS's close message does no harm.
    secure = trio.SSLStream(stream, context, server_side=server, https_compatible=True)
    await secure.do_handshake()
    return secure


def caller_of(stream: Stream) -> Caller:
    """Return who is at the other end of a stream: the peer of the lowest socket, and the names in its certificate."""
    below: object = stream
    names: frozenset[str] = frozenset()
    while (sock := getattr(below, "socket", None)) is None:
        if isinstance(below, trio.SSLStream):
            with contextlib.suppress(ValueError):  # before the TLS handshake it has shown no certificate
                names = frozenset(certificate_names(below.getpeercert()))
        below = getattr(below, "transport_stream", None) or getattr(below, "_stream", None)
        if below is None:
            return Caller("", names)
    if getattr(sock, "family", None) == getattr(socket, "AF_UNIX", -1):
        return Caller(LOCAL, names)
    try:
        theirs, ours = str(sock.getpeername()[0]), str(sock.getsockname()[0])
    except OSError:
        return Caller("", names)
    return Caller(LOCAL if theirs == ours else theirs, names)


async def read_greeting(stream: Stream, received: bytearray) -> Greeting:
    """Read the next greeting. ``received`` holds bytes that were read before; afterwards, those beyond the greeting.

    Raises ``MalformedMessage``, or ``trio.BrokenResourceError`` at the end of the stream.
    """
    while (found := decode_greeting(received)) is None:
        data = await stream.receive_some(GREETING_BYTES_MAX)
        if not data:
            raise trio.BrokenResourceError("closed by the other end before a greeting")
        received += data
    greeting, size = found
    del received[:size]
    return greeting


async def greet(stream: Stream, own: Hello, received: bytearray) -> Hello:
    """Greet as the dialler: send ``own`` and return the checked answer. Bytes beyond it are left in ``received``.

    Raises ``Refused`` by either end (the other is told), ``MalformedMessage``, or a stream's error.
    """
    await stream.send_all(encode_greeting(own))
    answer = await read_greeting(stream, received)
    if isinstance(answer, HelloRefusal):
        raise Refused(answer.kind, answer.reason)
    if not isinstance(answer, Hello):
        raise MalformedMessage("a hello was due")
    try:
        check_hello(own, answer)
    except Refused as refused:
        await refuse(stream, refused)
        raise
    return answer


async def refuse(stream: Stream, refused: Refused) -> None:
    """Tell the other end why, and give it a moment to read that. Never raises a stream's error."""
    with trio.move_on_after(_REFUSAL_SECONDS), contextlib.suppress(*STREAM_ERRORS):
        await stream.send_all(encode_greeting(HelloRefusal(refused.kind, refused.reason)))
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        # Closing with unread bytes would reset the connection, and the refusal would be lost.
        drained = 0
        while drained < _REFUSAL_DRAIN_BYTES and (data := await stream.receive_some(GREETING_BYTES_MAX)):
            drained += len(data)
