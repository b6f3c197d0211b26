"""How each group of a directory began: its name and the membership it was bootstrapped with, written once.

Everything later is in the log. The file is what tells a group that has not started yet from one whose log is lost, and
what a node reads its first membership from until a later one is in the log. Works on ``Files``; knows no log.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

import attrs
import cbor2
from google_crc32c import value as crc32c

from raft.errors import DamagedLog, MalformedMessage, UsageError
from raft.membership import Membership
from raft.storage.interface import Files

DEFAULT_GROUP: Final = "default"
NAME_BYTES_MAX: Final = 255
_MAGIC: Final = b"QRg1"


@attrs.frozen
class Origin:
    """``membership`` is empty for a node that joined an existing group."""

    name: str
    membership: Membership


def group_number(name: str) -> int:
    """The id that frames and messages carry: 1 for ``DEFAULT_GROUP``, else 64 bits of the name's SHA-256."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # of a command line that was not UTF-8
        size = 0
    if not 0 < size <= NAME_BYTES_MAX:
        raise UsageError(f"a group's name is 1 to {NAME_BYTES_MAX} bytes of UTF-8, not {name!r}")
    if name == DEFAULT_GROUP:
        return 1
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") & ((1 << 63) - 1)
    return max(number, 2)


def _path(number: int) -> str:
    return f"group-{number:016x}"


def read_origin(files: Files, number: int) -> Origin | None:
    """None if the group never started in this directory. Raises ``DamagedLog``."""
    path = _path(number)
    if path not in files.list(""):
        return None
    file = files.open(path)
    try:
        data = file.pread(min(file.size(), 1 << 20), 0)
    finally:
        file.close()
    if data[:4] != _MAGIC or len(data) < 8 or crc32c(data[8:]) != struct.unpack_from("<I", data, 4)[0]:
        raise DamagedLog(path, 0, "its magic or CRC is wrong; this cannot come from a crash")
    try:
        name, membership = cbor2.loads(data[8:])
        return Origin(str(name), Membership.decode(membership))
    except (ValueError, TypeError, cbor2.CBORError, MalformedMessage) as error:
        raise DamagedLog(path, 8, f"not how a group began: {error}") from error


def write_origin(files: Files, number: int, origin: Origin) -> None:
    """Make it durable, whole or not at all. The directory is this node's and locked."""
    path, staged = _path(number), f"{_path(number)}.tmp"
    if staged in files.list(""):
        files.remove(staged)
    body = cbor2.dumps([origin.name, origin.membership.encode()])
    file = files.open(staged, create=True)
    try:
        file.pwrite([_MAGIC + struct.pack("<I", crc32c(body)) + body], 0)
        file.sync()
    finally:
        file.close()
    files.rename(staged, path)
    files.sync_dir("")
