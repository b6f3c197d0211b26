"""Reserves TCP ports of the loopback interface for one process across its restarts.

A port that is only looked up can be taken before a restart, by any outgoing connection. So a socket keeps it bound, not
listening, and allows others to bind it (``SO_REUSEADDR``, which the servers of RocketMQ and trio set as well); the
kernel then never assigns it as an ephemeral port.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from random import choice
from typing import Final

TRIES: Final = 200
_QUIET: Final = range(10_000, 32_000)
"""Ports that Linux gives to no outgoing connection, unless it is told to: of those that it gives, thousands stay taken
for a minute behind connections that ended, and hardly a neighbourhood is free."""


def _bind(port: int) -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
    except BaseException:
        held.close()
        raise
    return held


@contextmanager
def reserved(*neighbours: int) -> Iterator[int]:
    """Reserve a port while the context is open, with those at the given distances; without any, an ephemeral one.

    Raises:
        OSError: no such neighbourhood was free in ``TRIES`` tries.
    """
    for _ in range(TRIES):
        held = []
        try:
            held.append(_bind_fresh(choice(_QUIET)) if neighbours else _bind(0))
            port: int = held[0].getsockname()[1]
            for distance in neighbours:
                held.append(_bind_fresh(port + distance))
        except (OSError, OverflowError):
            for one in held:
                one.close()
            continue
        try:
            yield port
        finally:
            for one in held:
                one.close()
        return
    raise OSError(f"no free port with free neighbours at {neighbours} found in {TRIES} tries")


def _bind_fresh(port: int) -> socket.socket:
    """Bind a free port: try without ``SO_REUSEADDR`` first, which fails beside another reservation."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.bind(("127.0.0.1", port))
    return _bind(port)
