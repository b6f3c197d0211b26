"""Clocks, chance and threads of the process, replaced while a program runs on virtual time.

Calls of ``time``, ``os.urandom``, ``os.getpid``, ``random`` and ``trio.to_thread`` get their results from the run; a
thread of the program's own, or a real socket, is refused in words. Knows no hosts and no scheduler. Not replaced are
``datetime.now``, a ``random.Random()`` without a seed, and names that a module took with ``from time import ...``.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, NoReturn

import trio
from trio.abc import HostnameResolver, SocketFactory

from raft.errors import UsageError

EPOCH_S: Final = 1_700_000_000
"""Time on the wall clock when a run begins."""


PROCESS: Final = 4_711
"""The process id that every program sees."""


@contextmanager
def replaced(now_ns: Callable[[], int], chance: Random) -> Iterator[None]:
    """Replace clocks, chance and threads of this process until the block ends."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _replacements(now_ns, chance)]
    state = random.getstate()
    random.seed(chance.getrandbits(64))
    try:
        for owner, name, value in _replacements(now_ns, chance):
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        random.setstate(state)


def _replacements(now_ns: Callable[[], int], chance: Random) -> list[tuple[Any, str, Any]]:
    """Return all replacements as (owner, name, new value)."""
    def wall_ns() -> int:
        return EPOCH_S * 1_000_000_000 + now_ns()

    def any_ns(which: int) -> int:
        return wall_ns() if which == time.CLOCK_REALTIME else now_ns()

    return [
        (time, "monotonic_ns", now_ns), (time, "monotonic", lambda: now_ns() / 1e9),
        (time, "perf_counter_ns", now_ns), (time, "perf_counter", lambda: now_ns() / 1e9),
        (time, "time_ns", wall_ns), (time, "time", lambda: wall_ns() / 1e9),
        (time, "clock_gettime_ns", any_ns), (time, "clock_gettime", lambda which: any_ns(which) / 1e9),
        (os, "getpid", lambda: PROCESS), (os, "urandom", chance.randbytes), (random, "_urandom", chance.randbytes),
        (trio.to_thread, "run_sync", _inline), (threading.Thread, "start", _refusing(threading.Thread.start)),
    ]


async def _inline(function: Callable[..., Any], *args: Any, **_: object) -> Any:
    """Call ``function`` at once, in place of ``trio.to_thread.run_sync``, which would begin a thread."""
    await trio.lowlevel.checkpoint()
    return function(*args)


def _refusing(begin: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    ours = threading.get_ident()

    def start(thread: threading.Thread) -> None:
        if threading.get_ident() == ours:
            raise UsageError(f"{thread.name} is a thread, whose order no seed decides: on virtual time use "
                             "trio.to_thread.run_sync, and raft with files=")
        begin(thread)

    return start


class NoSockets(SocketFactory, HostnameResolver):
    """Refuses real sockets and host names, for which ``trio`` would ask the system."""

    def socket(self, *_: object, **__: object) -> NoReturn:
        raise UsageError("a real socket has no place on virtual time: use host.connect and host.listen, and give them "
                         "to raft as connect= and listeners=")

    async def getaddrinfo(self, host: object, *_: object, **__: object) -> NoReturn:
        raise UsageError(f"{host!r} is looked up: on virtual time use host.connect and host.listen")

    async def getnameinfo(self, sockaddr: object, flags: int) -> NoReturn:
        raise UsageError(f"{sockaddr!r} is looked up: on virtual time use host.connect and host.listen")


def refuse_sockets() -> None:
    """Refuse real sockets in the current run of trio."""
    trio.socket.set_custom_socket_factory(NoSockets())
    trio.socket.set_custom_hostname_resolver(NoSockets())
