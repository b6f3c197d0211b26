"""The directory of a container's sockets: one for each of its brokers, and no other user may connect.

The supervisor makes the directory with mode 0700. Who connects is asked of the system as well (``SO_PEERCRED``). A
socket is bound and dialled by way of the directory's descriptor, as the path of a socket has 107 bytes at most. A
broker that was killed leaves its socket behind: nobody answers there until the broker is started again. Linux only.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import stat
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs
import trio
from trio.abc import Listener, Stream

from remoting.streams import Connector

logger = logging.getLogger("broker.siblings")

SIBLINGS: Final = "MQBROKER_SIBLINGS"
"""Environment of a broker in a container: the directory."""
_MODE: Final = 0o700
_BACKLOG: Final = 64
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group of the other end."""


@attrs.frozen
class Siblings:
    """A broker's way to the others of its container."""

    listener: Listener[Stream]
    """The others connect there."""
    names: Callable[[], Sequence[str]]
    """Names of the others' sockets. Raises ``OSError``."""
    connector: Connector
    """From such a name to a stream."""


def make_directory(path: Path) -> None:
    """Make the directory, or take other users' rights to it away. Raises ``OSError``."""
    path.mkdir(mode=_MODE, exist_ok=True)
    path.chmod(_MODE)


def socket_name(broker: str) -> str:
    """Name of the broker's socket; short, however long the broker's own is."""
    return hashlib.sha256(broker.encode(errors="surrogateescape")).hexdigest()[:32]


class OwnUser(trio.abc.Listener[Stream]):
    """Accepts connections of this process's own user; others are closed unread."""

    def __init__(self, listener: trio.SocketListener, remove: Callable[[], None]) -> None:
        """``remove`` is called when the listener closes."""
        self._listener, self._remove = listener, remove

    async def accept(self) -> Stream:
        while True:
            stream = await self._listener.accept()
            user = user_of(stream)
            if user == os.geteuid():
                return stream
            logger.warning("another user connected to the socket of this broker, and was refused", extra={"user": user})
            await trio.aclose_forcefully(stream)

    async def aclose(self) -> None:
        self._remove()
        await self._listener.aclose()


def user_of(stream: trio.SocketStream) -> int:
    """User id of the process at the other end, as it was when that connected."""
    raw = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    assert isinstance(raw, bytes)
    return int(_CREDENTIALS.unpack(raw)[1])


def open_siblings(directory: Path, broker: str) -> Siblings:
    """Open the socket of ``broker`` in the directory, which must be private. Raises ``OSError``. The directory stays
    open as long as the process."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    own = socket_name(broker)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != _MODE:
            raise PermissionError(f"{directory} must be this user's own, with mode {_MODE:04o}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(own, dir_fd=handle)
        sock.bind(_path(handle, own))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        os.close(handle)
        raise

    def remove() -> None:
        with contextlib.suppress(OSError):
            os.unlink(own, dir_fd=handle)

    async def connect(name: str) -> Stream:
        return await trio.open_unix_socket(_path(handle, name))

    def names() -> list[str]:
        return [name for name in os.listdir(handle) if name != own]

    return Siblings(OwnUser(trio.SocketListener(trio.socket.from_stdlib_socket(sock)), remove), names, connect)


def _path(directory: int, name: str) -> str:
    return f"/proc/self/fd/{directory}/{name}"
