"""The file ``lives``: a directory's own, and those of its peers that it met. Written whole, or not at all.

Layout: ``docs/reference/storage-format.md``. What a life is: ``raft.lives``.
"""

from __future__ import annotations

import logging
from typing import Final

from raft.errors import MalformedMessage
from raft.lives import Lives
from raft.storage.interface import Files
from raft.storage.smallfile import read_small, write_small
from raft.storage.trouble import FULL

logger = logging.getLogger("raft.storage")
NAME: Final = "lives"
_MAGIC: Final = b"QRl1"


def read_lives(files: Files) -> Lives:
    """Read the lives of a directory. A damaged file counts as empty: peers then tell which lives they met, and what
    those acknowledged counts as lost."""
    try:
        body = read_small(files, NAME, _MAGIC)
        return Lives() if body is None else Lives.decode(body)
    except MalformedMessage as error:
        logger.warning("the file %r is passed over: %s", NAME, error)
        return Lives()


def write_lives(files: Files, body: bytes) -> bool:
    """Make it durable. False: there is no room. Raises ``OSError``."""
    try:
        write_small(files, NAME, _MAGIC, body)
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
