"""The identity of a directory: cluster, node and incarnation, written once when the directory is formatted.

A small file, ``identity``: magic "QRi1", u32 CRC-32C of the rest, CBOR map. Knows the root of the directory;
nothing of what is in the log.
"""

from __future__ import annotations

from typing import Final

import attrs
import cbor2

from raft.errors import MalformedMessage, UsageError, WrongDirectory
from raft.storage.interface import Files
from raft.storage.smallfile import read_small, staged, write_small

FORMAT: Final = 1
NAME: Final = "identity"
LOCK_NAME: Final = "lock"
_MAGIC: Final = b"QRi1"
_OURS: Final = frozenset({NAME, staged(NAME), LOCK_NAME})


@attrs.frozen
class Identity:
    """``incarnation`` is random: a node that comes back with an empty directory comes back as another one."""

    cluster: str
    node_id: str
    incarnation: bytes

    @property
    def owner(self) -> int:
        """The first 8 bytes of the incarnation, as a number: every block carries it."""
        return int.from_bytes(self.incarnation[:8], "little")


def read_identity(files: Files) -> Identity | None:
    """None if the directory is not formatted. Raises ``WrongDirectory`` if it is, but not as this build knows it."""
    try:
        body = read_small(files, NAME, _MAGIC)
    except MalformedMessage as error:
        raise WrongDirectory(f"the file {NAME!r} is damaged: {error}; this cannot come from a crash") from error
    if body is None:
        return None
    try:
        fields = cbor2.loads(body)
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
    write_small(files, NAME, _MAGIC, body)
    identity = Identity(cluster, node_id, incarnation)
    assert read_identity(files) == identity, "the directory is this node's"
    return identity


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
