"""Limits and timeouts of servers and clients, validated, with the relations between them.

Milliseconds and bytes, as names say. Knows numbers only: no file, no socket, no key of a configuration file.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

FRAME_BYTES_MOST: Final = (2 << 24) - 1
"""Beyond it a frame's first byte would be neither 0x00 nor 0x01, which is how a shared port knows remoting."""


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
    """What servers and clients have in common. Raises ``ValueError`` naming the field, its value and the rule."""

    frame_bytes_max: int = _limit(16 << 20)
    """Of a frame with its length field, either way."""
    receive_bytes_max: int = _limit(256 << 20)
    """Unfinished frames over all connections; beyond it, who has more than an equal share is closed."""
    outgoing_bytes_max: int = _limit(64 << 20)
    """Queued on one connection; one whose other end reads too slowly for that is closed."""
    requests_in_flight_max: int = _limit(16_384)
    """Received requests that wait for their answer, over all connections; beyond it those that need a task are answered
    SYSTEM_BUSY, while what is answered at once still is."""
    call_timeout_ms: int = _limit(3_000)
    """From a call to its answer, connecting included, unless the call says otherwise."""
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
    """Waiting over all connections that do not take what is written to them. From half of it on nothing is read from
    whoever has more than an equal share of that half, and who takes nothing for ``outgoing_stall_ms`` is closed; beyond
    all of it whoever has taken nothing for longest, or has most waiting where that is a moment, is closed at once."""
    outgoing_stall_ms: int = _limit(5_000)
    tls_mode: TLSMode = attrs.field(default=TLSMode.PERMISSIVE, validator=attrs.validators.instance_of(TLSMode))
    handshake_timeout_ms: int = _limit(10_000)
    """For TLS."""
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
