"""Word to systemd of how a service of ``Type=notify`` is. It knows the datagram of sd_notify(3), not what is served."""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

SOCKET: Final = "NOTIFY_SOCKET"
"""Variable that names systemd's socket. Children do not get it: systemd would not believe them."""
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

logger = logging.getLogger("daemon")


def notify(state: str) -> None:
    """Tell systemd a state, where systemd has asked for it."""
    address = os.environ.get(SOCKET, "")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(state.encode(), address)
    except OSError as error:
        logger.warning("systemd was not told", extra={"state": state, "socket": os.environ[SOCKET], "error": error})
