"""Whose directory this is: cluster, node and incarnation, written once when the directory is formatted.

A small file, ``identity``: magic "QRi1", u32 CRC-32C of the rest, CBOR map. Knows the root of the directory;
nothing of what is in the log.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs
import cbor2
from google_crc32c import value as crc32c

from raft.errors import UsageError, WrongDirectory
from raft.storage.interface import Files

FORMAT: Final = 1
NAME: Final = "identity"
LOCK_NAME: Final = "lock"
_MAGIC: Final = b"QRi1"
_STAGED: Final = "identity.tmp"
_OURS: Final = frozenset({NAME, _STAGED, LOCK_NAME})


@attrs.frozen
class Identity:
    """``incarnation`` is random: a node that comes back with an empty directory comes back as another one."""

    cluster: str
    node_id: str
    incarnation: bytes

    @property
    def owner(self) -> int:
        """What blocks carry of it."""
        return int.from_bytes(self.incarnation[:8], "little")


def read_identity(files: Files) -> Identity | None:
    """None if the directory is not formatted. Raises ``WrongDirectory`` if it is, but not as this build knows it."""
    names = files.list("")
    if NAME not in names:
        return None
    file = files.open(NAME)
    try:
        data = file.pread(min(file.size(), 64 << 10), 0)
    finally:
        file.close()
    if data[:4] != _MAGIC or len(data) < 8 or crc32c(data[8:]) != struct.unpack_from("<I", data, 4)[0]:
        raise WrongDirectory(f"the file {NAME!r} is damaged: its magic or CRC is wrong; this cannot come from a crash")
    try:
        fields = cbor2.loads(data[8:])
        if fields["format"] != FORMAT:
            raise WrongDirectory(f"the directory has format {fields['format']}, this build reads format {FORMAT}")
        found = Identity(fields["cluster"], fields["node"], fields["incarnation"])
    except (ValueError, TypeError, LookupError, cbor2.CBORError, RecursionError) as error:
        raise WrongDirectory(f"the file {NAME!r} is not how a directory is marked: {error}") from error
    if type(found.cluster) is not str or type(found.node_id) is not str or type(found.incarnation) is not bytes or (
            len(found.incarnation) != 16):
        raise WrongDirectory(f"the file {NAME!r} names no cluster, node or incarnation")
    return found


def format_directory(files: Files, cluster: str, node_id: str, incarnation: bytes) -> Identity:
    """Make an empty directory this node's. ``incarnation`` is 16 random bytes. Raises ``WrongDirectory``."""
    if len(incarnation) != 16 or not cluster or not node_id:
        raise UsageError("format needs a cluster, a node id and 16 random bytes")
    files.lock()
    found = read_identity(files)
    if found is not None:
        raise WrongDirectory(
            f"the directory is formatted already, for node {found.node_id!r} of cluster {found.cluster!r}")
    if foreign := [name for name in files.list("") if name not in _OURS]:
        raise WrongDirectory(f"the directory is neither empty nor formatted; it holds {', '.join(foreign[:3])}")
    body = cbor2.dumps({"format": FORMAT, "cluster": cluster, "node": node_id, "incarnation": incarnation})
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
    return Identity(cluster, node_id, incarnation)


def check_identity(files: Files, cluster: str, node_id: str) -> Identity:
    """Refuse a directory of another node or cluster, in words."""
    found = read_identity(files)
    if found is None:
        raise WrongDirectory("the directory is not formatted")
    if found.cluster != cluster:
        raise WrongDirectory(f"the directory belongs to cluster {found.cluster!r}, not {cluster!r}")
    if found.node_id != node_id:
        raise WrongDirectory(f"the directory belongs to node {found.node_id!r}, not {node_id!r}")
    return found
