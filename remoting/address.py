"""Addresses as RocketMQ writes them: ``host:port``, with an IPv6 host in brackets.

Pure text; resolving a host's name is the business of whoever connects.
"""

from __future__ import annotations


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` as a pair; raises ``ValueError``."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
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
