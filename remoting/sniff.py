"""Tells a connection's protocol by its first bytes: remoting, TLS or another, and a PROXY header before any.

One port serves them all, so each is known by its first byte; a PROXY header (HAProxy, versions 1 and 2) by its
signature. Pure: knows bytes, nothing of streams or of what is spoken afterwards.
"""

from __future__ import annotations

import enum
import ipaddress
import struct
from typing import Final

import attrs

from remoting.address import join_address
from remoting.errors import FrameError

SNIFF_BYTES_MAX: Final = 4_096
"""No decision needs more; a longer PROXY header is refused."""
_V1: Final = b"PROXY "
_V1_BYTES_MAX: Final = 107
_V2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_V2_BYTES: Final = 16


class Spoken(enum.Enum):
    """Protocol that follows on the connection."""

    REMOTING = "remoting"
    """First byte 0x00 or 0x01: the length of a frame below 32 MiB."""
    TLS = "TLS"
    """First byte 0x16: a handshake record."""
    OTHER = "another protocol"
    """First byte 0x80 or above; never a frame's length, which is positive."""


@attrs.frozen
class Found:
    """``size`` bytes of PROXY header come first; ``source`` is the address in it, None where it gives none."""

    spoken: Spoken
    size: int = 0
    source: str | None = None


def sniff(data: bytes | bytearray, *, proxy: bool = False) -> Found | None:
    """Decide on ``data``, what was received so far; None: more is needed. ``proxy``: a PROXY header may come first.

    Raises ``FrameError`` for what nobody serves.
    """
    if not data:
        return None
    if proxy and data[0] in (_V1[0], _V2[0]):
        header = _proxy_header(data)
        if header is None:
            return None
        size, source = header
        if len(data) == size:
            return None
        return Found(_spoken(data[size]), size, source)
    return Found(_spoken(data[0]))


def _spoken(first: int) -> Spoken:
    if first <= 0x01:
        return Spoken.REMOTING
    if first == 0x16:
        return Spoken.TLS
    if first >= 0x80:
        return Spoken.OTHER
    raise FrameError(f"a connection that begins with byte 0x{first:02x}: neither a frame nor TLS")


def _proxy_header(data: bytes | bytearray) -> tuple[int, str | None] | None:
    for signature, parse in ((_V1, _version_1), (_V2, _version_2)):
        if data[: len(signature)] == signature:
            return parse(bytes(data[:SNIFF_BYTES_MAX]))
        if signature.startswith(data):
            return None
    raise FrameError(f"a connection that begins with {bytes(data[:12])!r}: neither a frame nor a PROXY header")


def _version_1(data: bytes) -> tuple[int, str | None] | None:
    end = data.find(b"\r\n", 0, _V1_BYTES_MAX)
    if end < 0:
        if len(data) >= _V1_BYTES_MAX:
            raise FrameError(f"a PROXY header without end within {_V1_BYTES_MAX} bytes")
        return None
    words = data[len(_V1):end].split(b" ")
    if words[0] == b"UNKNOWN":
        return end + 2, None
    try:
        family, source, _, port, _ = (word.decode("ascii") for word in words)
        if family not in ("TCP4", "TCP6") or not port.isdigit() or int(port) > 65535:
            raise ValueError
        return end + 2, join_address(str(ipaddress.ip_address(source)), int(port))
    except ValueError:
        raise FrameError(f"a PROXY header that makes no sense: {data[:end]!r}") from None


def _version_2(data: bytes) -> tuple[int, str | None] | None:
    if len(data) < _V2_BYTES:
        return None
    command, family, length = struct.unpack_from("!BBH", data, len(_V2))
    size = _V2_BYTES + length
    if command not in (0x20, 0x21):
        raise FrameError(f"a PROXY header of version and command 0x{command:02x}; 0x20 and 0x21 are known")
    if size >= SNIFF_BYTES_MAX:
        raise FrameError(f"a PROXY header of {size} bytes; at most {SNIFF_BYTES_MAX - 1} are taken")
    if len(data) < size:
        return None
    width = {0x11: 4, 0x21: 16}.get(family)
    if command == 0x20 or width is None:  # a health check of the proxy, or no TCP address
        return size, None
    if length < 2 * width + 4:
        raise FrameError(f"a PROXY header of {length} bytes of addresses; {2 * width + 4} were due")
    host = ipaddress.ip_address(data[_V2_BYTES : _V2_BYTES + width])
    (port,) = struct.unpack_from("!H", data, _V2_BYTES + 2 * width)
    return size, join_address(str(host), port)
