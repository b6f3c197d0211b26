"""A small file that is written whole, or not at all: magic, u32 CRC-32C of the rest, the rest.

It is staged under another name, synced and renamed, in a directory that is this node's and locked. Knows no content.
"""

from __future__ import annotations

import struct
from typing import Final

from google_crc32c import value as crc32c

from raft.errors import MalformedMessage
from raft.storage.interface import Files

_HEAD_BYTES: Final = 8
BYTES_MAX: Final = 1 << 20
"""Largest small file that is read: whatever else stands there under its name fills no memory."""


def staged(name: str) -> str:
    """Return the name of the file until it is whole."""
    return f"{name}.tmp"


def _head(magic: bytes, body: bytes) -> bytes:
    return magic + struct.pack("<I", crc32c(body))


def read_small(files: Files, name: str, magic: bytes) -> bytes | None:
    """Return the bytes after the CRC; None if there is no such file. Raises ``MalformedMessage``."""
    if name not in files.list(""):
        return None
    file = files.open(name)
    try:
        data = file.pread(min(file.size(), BYTES_MAX), 0)
    finally:
        file.close()
    body = data[_HEAD_BYTES:]
    if data[:_HEAD_BYTES] != _head(magic, body):
        raise MalformedMessage("its magic or CRC is wrong")
    return body


def write_small(files: Files, name: str, magic: bytes, body: bytes) -> None:
    """Make it durable. Raises ``OSError``; then the one before is still there."""
    if staged(name) in files.list(""):
        files.remove(staged(name))
    file = files.open(staged(name), create=True)
    try:
        file.pwrite([_head(magic, body) + body], 0)
        assert file.size() == _HEAD_BYTES + len(body), "it is whole before it has its name"
        file.sync()
    finally:
        file.close()
    files.rename(staged(name), name)
    files.sync_dir("")
