"""A disk in trouble is tried: room for what the log takes at a time, and a byte that is written and synced."""

from __future__ import annotations

from typing import Final

from broker.store.files import Files, keep_spare

PATH: Final = "trial"
ROOM_BYTES: Final = 16 << 20
"""Bytes that a trial takes: as much as a log takes ahead at a time."""


def try_disk(files: Files, room: int) -> None:
    """Try each disk that is written to; on any thread. Raises ``OSError``.

    It leaves nothing but the spare, if that was given up."""
    for disk in files.disks():
        _try(disk, room)
    keep_spare(files)


def _try(files: Files, room: int) -> None:
    assert room > 0, "the system refuses to reserve nothing"
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
