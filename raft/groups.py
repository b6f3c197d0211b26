"""Files that tell how each group of a directory began: its name and first membership, written once.

Everything later is in the log. Such a file distinguishes a group that has not started yet from one whose log is lost.
A node reads its first membership from it, until a later one is in the log. Works on ``Files``; knows no log.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import attrs
import cbor2

from raft.errors import DamagedLog, MalformedMessage, UsageError
from raft.membership import Membership
from raft.storage.interface import Files
from raft.storage.smallfile import read_small, write_small

DEFAULT_GROUP: Final = "default"
NAME_BYTES_MAX: Final = 255
REMOVED: Final = "removed"
"""Third value in the file of a removed group. Older builds refuse the file because of it: else they would begin the
group anew, without its votes."""
_MAGIC: Final = b"QRg1"
_NAME: Final = re.compile("group-([0-9a-f]{16})")


@attrs.frozen
class Origin:
    """The origin of one group. ``membership`` is empty for a node that joined an existing group."""

    name: str
    membership: Membership
    removed: bool = False
    """True for a removed group: only its name and its vote are left, and it does not begin here again."""


def group_number(name: str) -> int:
    """Return the number that frames and messages carry: 1 for ``DEFAULT_GROUP``, else 64 bits of the name's
    SHA-256."""
    try:
        size = len(str.encode(name))
    except (UnicodeEncodeError, TypeError):  # a command line that is not UTF-8; no text
        size = 0
    if not 0 < size <= NAME_BYTES_MAX:
        raise UsageError(f"a group's name is 1 to {NAME_BYTES_MAX} bytes of UTF-8, not {name!r}")
    if name == DEFAULT_GROUP:
        return 1
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") & ((1 << 63) - 1)
    return max(number, 2)


def _path(number: int) -> str:
    return f"group-{number:016x}"


def removed_groups(files: Files) -> list[int]:
    """Return the numbers of groups that were removed from this directory. Raises ``DamagedLog``."""
    numbers = [int(match[1], 16) for name in files.list("") if (match := _NAME.fullmatch(name))]
    return [number for number in numbers if (origin := read_origin(files, number)) is not None and origin.removed]


def read_origin(files: Files, number: int) -> Origin | None:
    """Read how the group began; None if it never started in this directory. Raises ``DamagedLog``."""
    path = _path(number)
    try:
        body = read_small(files, path, _MAGIC)
    except MalformedMessage as error:
        raise DamagedLog(path, 0, f"{error}; this cannot come from a crash") from error
    if body is None:
        return None
    try:
        name, membership, *more = cbor2.loads(body)
        if more not in ([], [REMOVED]):
            raise ValueError(f"what is {more}?")
        return Origin(str(name), Membership.decode(membership), bool(more))
    except (ValueError, TypeError, cbor2.CBORError, MalformedMessage) as error:
        raise DamagedLog(path, 8, f"not how a group began: {error}") from error


def write_origin(files: Files, number: int, origin: Origin) -> None:
    """Write down how the group began, durably, whole or not at all. The directory is this node's and locked."""
    assert number == group_number(origin.name), "the file is that group's"
    body = cbor2.dumps([origin.name, origin.membership.encode(), *([REMOVED] if origin.removed else [])])
    write_small(files, _path(number), _MAGIC, body)
