"""A disk in trouble is tried: room for what the log takes at a time, and a byte that is written and synced."""

from __future__ import annotations

import errno
from typing import Final

from broker.store.files import Files

PATH: Final = "diskTrial"
ROOM_BYTES: Final = 16 << 20
"""As much as a log takes ahead at a time."""
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Of ``OSError``: the disk, or what this user may take of it, has no room."""


def no_room(error: OSError) -> bool:
    """Whether that is why it was refused."""
    return error.errno in FULL


def try_disk(files: Files, room: int) -> None:
    """On any thread. Leaves nothing behind but what a crash or a broken disk leaves. Raises ``OSError``."""
    try:
        file = files.open(PATH, create=True)
        try:
            file.resize(0)
            file.reserve(0, room)
            file.pwrite(b"\0", 0)
            file.sync()
        finally:
            file.close()
    finally:
        files.remove(PATH)
