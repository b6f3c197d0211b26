"""Addresses as RocketMQ writes them: ``host:port``, with an IPv6 host in brackets.

Pure text; resolving a host's name is the business of whoever connects.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

_HOST: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` as a pair; raises ``ValueError``."""
    host, colon, port = address.rpartition(":")
    if (not colon or not host or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535
            or host.startswith("[") != host.endswith("]")):
        raise ValueError(f"{address!r} is no address: host:port is, or [host]:port for IPv6")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """The inverse of ``split_address``. An IPv4 host that came through an IPv6 socket is written as IPv4."""
    if ":" in host:
        if host.startswith("::ffff:") and "." in host:
            return f"{host[7:]}:{port}"
        return f"[{host}]:{port}"
    return f"{host}:{port}"


def is_host(text: str) -> bool:
    """Return whether the text is an IP address, or could be the name of a host."""
    return is_ip(text) or (
        len(text) <= 253 and bool(_HOST.fullmatch(text)) and not text.replace(".", "").isdigit())


def is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether the host is the machine itself. Names are not resolved, but ``localhost`` counts."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def called_from(address: str, met_at: str) -> str:
    """``address``, for somebody who reached this machine at ``met_at``.

    On the loopback it means this machine, which elsewhere goes by the name at which it was met.
    """
    host, port = split_address(address)
    if not is_loopback(host):
        return address
    try:
        here, _ = split_address(met_at)
        return address if is_loopback(here) or ip_address(here).is_unspecified else join_address(here, port)
    except ValueError:  # streams without a socket have no addresses
        return address
