"""Limits and timeouts of servers and clients, validated, with the relations between them.

Milliseconds and bytes, as names say. Knows numbers only: no file, no socket, no key of a configuration file.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

FRAME_BYTES_MOST: Final = (2 << 24) - 1
"""The first byte of a longer frame would be neither 0x00 nor 0x01, by which a shared port knows remoting."""


class TLSMode(enum.Enum):
    """Which connections a server takes. Values are those of RocketMQ's ``tls.server.mode``."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    """TLS and plain on one port; without certificates the same as disabled."""
    ENFORCING = "enforcing"


def _positive(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value <= 0:
        raise ValueError(f"{attribute.name} = {value!r}: must be a whole number above 0")


def _limit(default: int) -> int:
    made: int = attrs.field(default=default, validator=_positive)
    return made


@attrs.frozen(kw_only=True)
class ConnectionLimits:
    """Limits of servers and clients. Raises ``ValueError`` naming the field, its value and the rule."""

    frame_bytes_max: int = _limit(16 << 20)
    """Bytes of a frame with its length field, in either direction."""
    receive_bytes_max: int = _limit(256 << 20)
    """Bytes of unfinished frames over all connections; beyond it connections with more than an equal share close."""
    outgoing_bytes_max: int = _limit(64 << 20)
    """Bytes queued on one connection; it is closed when its other end reads too slowly for that."""
    requests_in_flight_max: int = _limit(16_384)
    """Received requests that wait for their answer, over all connections.

    Beyond it a request that needs a task is answered SYSTEM_BUSY. A request that needs none is still answered.
    """
    call_timeout_ms: int = _limit(3_000)
    """Time from a call to its answer, connecting included, unless the call says otherwise."""
    idle_timeout_ms: int = _limit(120_000)
    """A connection over which nothing was read or written for so long is closed."""

    def __attrs_post_init__(self) -> None:
        frame = self.frame_bytes_max
        if frame > FRAME_BYTES_MOST:
            raise ValueError(f"frame_bytes_max = {frame}: must be at most {FRAME_BYTES_MOST}")
        for name in ("receive_bytes_max", "outgoing_bytes_max"):
            if getattr(self, name) < frame:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least frame_bytes_max = {frame}")


@attrs.frozen(kw_only=True)
class ServerConfig(ConnectionLimits):
    """``call_timeout_ms`` is of requests that the server sends to its clients."""

    connections_max: int = _limit(16_384)
    """Accepted at one time; beyond it connections are closed at once."""
    outgoing_bytes_pause: int = _limit(1 << 20)
    """While more is queued on a connection, nothing is read from it."""
    outgoing_bytes_budget: int = _limit(256 << 20)
    """Bytes that wait on all connections whose other ends do not read.

    From half of it on, nothing is read from a connection with more than an equal share of that half, and a connection
    that takes nothing for ``outgoing_stall_ms`` is closed. Beyond all of it, the connection that has taken nothing for
    longest is closed at once; where that is a moment, the one with most waiting.
    """
    outgoing_stall_ms: int = _limit(5_000)
    tls_mode: TLSMode = attrs.field(default=TLSMode.PERMISSIVE, validator=attrs.validators.instance_of(TLSMode))
    handshake_timeout_ms: int = _limit(10_000)
    """Time that a TLS handshake may take."""
    proxy_protocol: bool = True
    """Take the peer's address from a PROXY header (HAProxy, versions 1 and 2) where a connection begins with one."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.outgoing_bytes_budget < 2 * self.frame_bytes_max:
            raise ValueError(f"outgoing_bytes_budget = {self.outgoing_bytes_budget}: must be at least twice "
                             f"frame_bytes_max = {self.frame_bytes_max}")


@attrs.frozen(kw_only=True)
class ClientConfig(ConnectionLimits):
    """Limits of a client's connections; those of ``ConnectionLimits`` besides."""

    connect_timeout_ms: int = _limit(3_000)
    """TLS included."""
    unacknowledged_timeout_ms: int = _limit(10_000)
    """A TCP connection is given up when the other machine acknowledged nothing for so long, where the system can."""
