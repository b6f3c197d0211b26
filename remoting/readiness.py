"""One task that reads for all sockets of an endpoint, where the system has epoll.

Waking a task for each readable socket costs more than most requests; this wakes one for all that are readable, and
knows file descriptors and functions, nothing of what is read.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable
from typing import Final

from trio.lowlevel import wait_readable

_AT_ONCE: Final = 64
"""Sockets that are read before others have their turn of the loop."""


class Readiness:
    """A function to call for each file descriptor, whenever that can be read, for as long as ``run`` runs.

    A function may add and remove any descriptor; none may raise. Remove a descriptor before it is closed.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._reads: dict[int, Callable[[], None]] = {}

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
        """Call them, until cancelled."""
        epoll, reads = self._epoll, self._reads
        try:
            while True:
                await wait_readable(epoll.fileno())
                for fd, _ in epoll.poll(0, _AT_ONCE):
                    read = reads.get(fd)
                    if read is not None:  # one before it in the list may have removed it
                        read()
        finally:
            reads.clear()
            epoll.close()


def readiness() -> Readiness | None:
    """None where the system has no epoll: then each socket is for a task of its own to wait for."""
    return Readiness() if sys.platform == "linux" else None
