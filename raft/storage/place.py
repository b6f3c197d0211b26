"""Chooses the storage that keeps a directory's log, tells it its place, and notes its kind: no other kind may open it.

Another storage than the segment log is noted in a small file, ``storage``, before it is opened for the first time, and
again after. Opened as another kind, a directory would look empty, and its node would vote again where it has voted.
Magic "QRk1", u32 CRC-32C of the rest, CBOR of the kind and whether it has been opened. Knows the root of the directory.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

import attrs
import cbor2

from raft.config import Config
from raft.errors import MalformedMessage, WrongDirectory
from raft.storage.identity import Identity
from raft.storage.interface import Files, Storage
from raft.storage.smallfile import read_small, write_small

NAME: Final = "storage"
SEGMENTS: Final = "segments"
"""The kind that is not noted: directories of before have none."""
_LOG: Final = "log"
"""The segment log's own directory."""
_LIVES: Final = "lives"
"""File that the first life of a directory leaves, once its storage is open."""
_MAGIC: Final = b"QRk1"


@attrs.frozen
class Place:
    """The place where a storage keeps its log, and the owner of that log."""

    directory: str
    """The node's own, as it was given to ``open_host``. Other nodes' storages never share it."""
    files: Files
    """File operations on the same directory."""
    identity: Identity
    opened_before: bool
    """A storage of this kind was opened here before: one that finds nothing of its own has lost the log, term and
    votes, and must raise ``DamagedLog``."""
    config: Config
    rng: Random
    inline: bool
    """No threads are used: what would be done beside the writer is done in ``sync``."""


MakeStorage: TypeAlias = Callable[[Place], Storage]


def read_kind(files: Files) -> tuple[str, bool] | None:
    """(kind, whether it has been opened); None if none is noted. Raises ``WrongDirectory``."""
    try:
        body = read_small(files, NAME, _MAGIC)
    except MalformedMessage as error:
        raise WrongDirectory(f"the file {NAME!r} is damaged: {error}; this cannot come from a crash") from error
    if body is None:
        return None
    kind, opened = cbor2.loads(body)
    return str(kind), bool(opened)


def note_kind(files: Files, kind: str, *, opened: bool) -> None:
    """Make it durable, whole or not at all. The directory is this node's and locked."""
    write_small(files, NAME, _MAGIC, cbor2.dumps([kind, opened]))


def was_opened(files: Files) -> bool:
    """Return whether a storage was ever opened here to the end."""
    noted = read_kind(files)
    return noted[1] if noted is not None else _LIVES in files.list("")


def check_kind(files: Files, kind: str) -> None:
    """Raise ``WrongDirectory`` if a storage of another kind was opened here."""
    noted = read_kind(files)
    if noted is not None and noted[0] != kind:
        raise WrongDirectory(f"the log of this directory is kept by a storage of kind {noted[0]!r}, not {kind!r}")
    if noted is None and kind != SEGMENTS and files.list(_LOG):
        raise WrongDirectory(f"the log of this directory is a segment log, not of kind {kind!r}")
