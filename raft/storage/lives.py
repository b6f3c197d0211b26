"""The file ``lives``: a directory's own, and those of its peers that it met. Written whole, or not at all.

Layout: ``docs/reference/storage-format.md``. What a life is: ``raft.lives``.
"""

from __future__ import annotations

import logging
import struct
from typing import Final

from google_crc32c import value as crc32c

from raft.errors import MalformedMessage
from raft.lives import Lives
from raft.storage.interface import Files
from raft.storage.spares import FULL

logger = logging.getLogger("raft.storage")
NAME: Final = "lives"
_STAGED: Final = "lives.tmp"
_MAGIC: Final = b"QRl1"
_BYTES_MAX: Final = 1 << 20


def read_lives(files: Files) -> Lives:
    """What cannot be read says nothing: its lives are then told by the peers, and looked for as lost."""
    if NAME not in files.list(""):
        return Lives()
    file = files.open(NAME)
    try:
        data = file.pread(min(file.size(), _BYTES_MAX), 0)
    finally:
        file.close()
    try:
        if data[:4] != _MAGIC or len(data) < 8 or crc32c(data[8:]) != struct.unpack_from("<I", data, 4)[0]:
            raise MalformedMessage("its magic or CRC is wrong")
        return Lives.decode(data[8:])
    except MalformedMessage as error:
        logger.warning("the file %r is passed over: %s", NAME, error)
        return Lives()


def write_lives(files: Files, body: bytes) -> bool:
    """Make it durable. False: there is no room. Raises ``OSError``."""
    try:
        if _STAGED in files.list(""):
            files.remove(_STAGED)
        file = files.open(_STAGED, create=True)
        try:
            file.pwrite([_MAGIC + struct.pack("<I", crc32c(body)) + body], 0)
            file.sync()
        finally:
            file.close()
        files.rename(_STAGED, NAME)
        files.sync_dir("")
    except OSError as error:
        if error.errno not in FULL:
            raise
        return False
    return True


def begin_life(files: Files, chance: int) -> Lives:
    """One more life, durable before anybody hears of it; one that finds no room stays unsaid."""
    lives = read_lives(files)
    lives.begin(chance)
    if not write_lives(files, lives.encode()):
        lives.unsaid()
    return lives
