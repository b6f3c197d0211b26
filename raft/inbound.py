"""One connection that another node or a client opened to this one, words for it, and how many there may be.

Knows streams, hellos and the process's limit of open files; decides nothing about who is let in.
"""

from __future__ import annotations

import logging
import resource
from typing import Any, Final

import attrs
import trio
from trio.abc import Stream

from raft.errors import UsageError
from raft.handshake import STREAM_ERRORS
from raft.hello import Hello, Lane, Ping, encode_greeting

logger = logging.getLogger("raft.transport")

DESCRIPTORS_KEPT: Final = 192
"""File descriptors that accepted connections leave to the rest of a process: 64 for connections that are heard without
a place, others for the log, snapshots, peers and the program."""


def places(connections_max: int) -> int:
    """Return how many connections may be accepted at one time, which is fewer than asked for if descriptors are few.

    Raises ``UsageError`` if there are none for connections.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY or connections_max <= descriptors - DESCRIPTORS_KEPT:
        return connections_max
    if descriptors <= DESCRIPTORS_KEPT:
        raise UsageError(f"this process may have {descriptors} open files, and a node that listens needs more than "
                         f"{DESCRIPTORS_KEPT}: raise its limit (ulimit -n)")
    fewer = descriptors - DESCRIPTORS_KEPT
    logger.warning("connections_max=%d is lowered to %d: this process may have %d open files (ulimit -n), and %d of "
                   "them are kept for other things", connections_max, fewer, descriptors, DESCRIPTORS_KEPT)
    return fewer


@attrs.define(eq=False)
class Inbound:
    """A connection that was accepted."""

    stream: Stream
    hello: Hello | None = None
    unfinished_bytes: int = 0
    """Bytes of a message whose rest has not come."""
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    pinging: bool = False


def is_client(connection: Inbound) -> bool:
    """Return whether a client has greeted on this connection."""
    return connection.hello is not None and connection.hello.lane is Lane.CLIENT


async def ping(connection: Inbound) -> None:
    """Send a ping over a quiet connection, so that its own task notices if the other end is gone."""
    try:
        await connection.stream.send_all(encode_greeting(Ping()))
    except trio.BusyResourceError:
        pass  # its own task is sending at this moment, and so notices
    except STREAM_ERRORS:
        connection.scope.cancel()
    finally:
        connection.pinging = False


def whence(connection: Inbound) -> str:
    """Return who is at the other end: its id, or its address if it said no id."""
    if connection.hello is not None and connection.hello.node:
        return connection.hello.node
    stream: Any = connection.stream
    while not isinstance(stream, trio.SocketStream):
        stream = getattr(stream, "transport_stream", None) or getattr(stream, "_stream", None)
        if stream is None:
            return "a stream"
    try:
        return ":".join(map(str, stream.socket.getpeername()[:2]))
    except OSError:
        return "a closed socket"


def words(error: Exception) -> str:
    """Return words for a stream's error; trio keeps the system's own words in the cause."""
    text = str(error) or type(error).__name__
    cause = error.__cause__
    return f"{text}: {cause}" if cause and str(cause) not in text else text
