"""Holds connections to a port and says nothing on them, until standard input ends. It knows sockets alone.

    python -P -m harness.nemesis.crowd HOST:PORT COUNT

A process of its own, as it must not wait for anybody else's turn. Whom the other side sends away comes again at once;
who finds the port closed comes again after a pause.
"""

from __future__ import annotations

import resource
import selectors
import socket
import sys
import time
from typing import Final

from harness.nemesis.errors import NotHere

PAUSE_S: Final = 0.05
"""Before those who found the port closed come again."""
FILES: Final = 32
"""Most files that a process opens besides its connections."""


def limit(count: int) -> int:
    """Return how many files a process opens that holds so many connections. Raises ``NotHere`` where none may."""
    needed, most = count + FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and needed > most:
        raise NotHere(f"a process may open {most} files here, and {count} connections need {needed}")
    return needed


def main() -> None:
    """Hold so many connections until the end of standard input."""
    host, _, port = sys.argv[1].rpartition(":")
    wanted, held = int(sys.argv[2]), 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != soft < limit(wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit(wanted), hard))
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        while held < wanted:
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex((host, int(port)))
            selector.register(one, selectors.EVENT_READ)
            held += 1
        refused = False
        for key, _events in selector.select():
            if key.fileobj is sys.stdin:
                return
            assert isinstance(key.fileobj, socket.socket)
            try:
                if key.fileobj.recv(1 << 16):
                    continue
            except OSError as error:
                refused |= not isinstance(error, ConnectionResetError)
            selector.unregister(key.fileobj)
            key.fileobj.close()
            held -= 1
        if refused:
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
