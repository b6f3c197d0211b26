"""One task that reads for all sockets of an endpoint, where the system has epoll.

Waking a task for each readable socket costs more than most requests; this wakes one for all that are readable, and
knows file descriptors and functions, nothing of what is read.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
from collections.abc import Callable
from typing import Final

from trio.lowlevel import current_clock, wait_readable
from trio.socket import SocketType

_AT_ONCE: Final = 64
"""Sockets that are read before others have their turn of the loop."""
_PAUSE_S: Final = 0.05
"""Time between two looks at the sockets. After a longer one the system says how old the readable bytes are."""
_LAST_RECEIVED: Final = struct.Struct("@52xI")
"""``tcpi_last_data_recv`` of Linux's ``struct tcp_info``: ms since the last bytes came."""


class Readiness:
    """A function to call for each file descriptor, whenever that can be read, for as long as ``run`` runs.

    A function may add and remove any descriptor; none may raise. Remove a descriptor before it is closed.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._reads: dict[int, Callable[[], None]] = {}
        self._looked_at = 0.0
        self._paused = False
        """Nobody looked for a while: the loop had other work, or nothing to do."""

    def came_at(self, sock: SocketType) -> float:
        """When all that can be read there had come, at the latest; seconds of the loop's clock. For who is called."""
        return self._looked_at - silent_s(sock) if self._paused else self._looked_at

    def add(self, fd: int, read: Callable[[], None]) -> None:
        """Nothing is done when ``run`` is over."""
        if not self._epoll.closed:
            self._epoll.register(fd, select.EPOLLIN)
            self._reads[fd] = read

    def remove(self, fd: int) -> None:
        """Nothing is done if it is not there."""
        if self._reads.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    async def run(self) -> None:
        """Call the functions of descriptors that can be read, until cancelled."""
        epoll, reads, now = self._epoll, self._reads, current_clock().current_time
        try:
            while True:
                await wait_readable(epoll.fileno())
                ready, looked_at = epoll.poll(0, _AT_ONCE), now()
                self._paused, self._looked_at = looked_at - self._looked_at > _PAUSE_S, looked_at
                for fd, _ in ready:
                    read = reads.get(fd)
                    if read is not None:  # an earlier reader may have removed this one
                        read()
        finally:
            reads.clear()
            epoll.close()


def readiness() -> Readiness | None:
    """None where the system has no epoll: then each socket is for a task of its own to wait for."""
    return Readiness() if sys.platform == "linux" else None


def silent_s(sock: SocketType) -> float:
    """Seconds since the last bytes came; 0 where the system does not say, as of sockets that are not TCP's."""
    try:
        (silent_ms,) = _LAST_RECEIVED.unpack(
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_RECEIVED.size))
    except (OSError, struct.error):
        return 0.0
    return float(silent_ms) / 1e3
