"""A guardian that stays for a while after its broker was stopped, and gives way to a broker that wants the port.

It holds the lock of a file in the store's directory, which ends with the process; the file says which process it is. A
guardian whose broker runs holds no such lock, so none is sent away by mistake.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def lingering(path: Path) -> Iterator[None]:
    """Say that this process may be sent away. It stays even if the directory cannot be written to."""
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError:
        yield
        return
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(number, 0)
            os.pwrite(number, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(number)


def send_away(path: Path) -> bool:
    """Tell the process that holds the lock to end. Returns whether there was one."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(ValueError, OSError):
            os.kill(int(os.pread(number, 20, 0)), signal.SIGTERM)
            return True
    finally:
        os.close(number)
    return False
