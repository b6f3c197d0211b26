"""The promises of a storage, and the ten file operations that the shipped storage is built on.

The promises, checked by ``raft.storage.conformance`` for any implementation:

1. Writes take effect in order. When ``sync`` returns, every write handed over before it is durable.
2. After a crash, ``open`` gives back the effect of a prefix of the writes that includes every synced one.
3. A failed write or sync raises ``WriteFailed`` and is final. ``DiskFull`` is not: nothing of that call was kept.
4. ``read`` gives whole frames, from the one that holds ``first``; it may return fewer bytes than asked, never an
   entry beyond the last written one. It may run in another thread than ``write`` and ``sync``.
5. ``purge_to`` never takes entries beyond the newest finished snapshot.
6. A hard state can be written even when ``DiskFull`` is raised for frames.
7. A snapshot becomes visible whole, or not at all.
8. Damage that a crash cannot explain is reported as ``DamagedLog``, never cut off silently. A storage that meets it in
   one group's entries, on an errand of its own, writes nothing more of that group and names it in ``damaged``.
9. A write with ``forget`` empties a group's log for good, but for term and vote.
10. A ``lapse`` that was synced is given back by every ``open`` until a write brings another; of one that is over
    (index 0), still what the group was told of (``Lapse.told``).

What a storage may be able to do besides (its capabilities) stands in the same protocol, with what holds for one that is
not: a class that inherits ``Storage`` has these as they are, and overrides what it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from raft.errors import DamagedLog
from raft.frame import Frame
from raft.messages import Recovered, SnapshotMeta, Write


class SnapshotSink(Protocol):
    """A snapshot being written. Not visible before ``finish``."""

    @property
    def offset(self) -> int:
        """Number of bytes that are staged so far."""

    def write(self, data: bytes) -> None:
        """Append to the staged bytes."""

    def finish(self) -> SnapshotMeta:
        """Make it durable and visible; returns its meta with size and crc. For a received one, both must match."""

    def abort(self) -> None:
        """Drop what is staged. Idempotent."""


class Storage(Protocol):
    """Log, term and vote, and snapshots of the groups of one process. Blocking; one writer at a time."""

    def open(self) -> dict[int, Recovered]:
        """Recover every group that was written to. Raises ``DamagedLog``, ``WrongDirectory``."""

    def write(self, writes: Sequence[Write]) -> None:
        """Hand over writes as one group commit; not durable before ``sync``."""

    def sync(self) -> None:
        """Make everything handed over durable."""

    def read(self, group: int, first: int, max_bytes: int) -> list[Frame]:
        """Whole frames from the one that holds ``first``: at least one, then while they fit. [] if purged or beyond."""

    def create_snapshot(self, group: int, meta: SnapshotMeta) -> SnapshotSink:
        """Begin this node's own snapshot; size and crc of ``meta`` are ignored and computed."""

    def receive_snapshot(self, group: int, meta: SnapshotMeta) -> SnapshotSink:
        """Begin, or resume (``offset`` > 0), staging a snapshot from the leader."""

    def newest_snapshot(self, group: int) -> SnapshotMeta | None:
        """Meta of the newest finished snapshot."""

    def read_snapshot(self, group: int, index: int, offset: int, max_bytes: int) -> bytes | None:
        """A piece of a finished snapshot; None if that snapshot is gone; b"" at its end."""

    def drop_snapshots(self, group: int) -> None:
        """Destroy those of a removed group, also what is staged; only after its ``Write.forget`` is durable."""

    def recovered(self, group: int) -> Recovered:
        """A group as ``open`` would give it back now, empty if it was never written to; no write of it is under way."""

    def close(self) -> None:
        """Sync what was written, unless that failed, and release files. Idempotent."""

    # --- capabilities: overridden by a storage that has them

    @property
    def kind(self) -> str:
        """Name of this kind of storage. The directory notes it, so that no other kind opens it; it must never
        change."""
        return type(self).__name__

    def only_appends(self, size: int) -> bool:
        """Return whether writing and syncing a frame of ``size`` bytes now is a mere append, as quick as the disk. If
        appends are usually quick, the event loop does it itself. Cheap; called where ``write`` is."""
        return False

    @property
    def needs_maintenance(self) -> bool:
        """Return whether ``maintain`` has something to do. Cheap; called after each sync."""
        return False

    def maintain(self) -> bool:
        """Do what need not be done by the writer, in a thread beside it. False: there was no room for that."""
        return True

    def has_room(self) -> bool:
        """Return whether frames may be written again after ``DiskFull``. May try, and block; from any thread."""
        return True

    def scrub(self, *, step_bytes: int = 1 << 20) -> Iterator[str]:
        """Check what was written long ago, ``step_bytes`` between yields of what is at hand; once in each life, from a
        thread of its own. Raises ``DamagedLog``."""
        return iter(())

    @property
    def log_bytes(self) -> int:
        """Length of the log of all groups; 0: it needs no bound, for what is purged is gone at once."""
        return 0

    @property
    def too_large(self) -> Mapping[int, int]:
        """Groups that alone keep a shared log long, with the bytes that each needs at least: they are to take a
        snapshot."""
        return {}

    @property
    def damaged(self) -> Mapping[int, DamagedLog]:
        """Groups whose entries were found damaged on the way of a write or of upkeep. ``write`` leaves theirs out, and
        whoever calls it tells nobody that these are durable; all other groups go on."""
        return {}


class EarlyAck(Protocol):
    """A message to a peer that may leave the moment a write is durable, without the event loop."""

    sent: bool
    """True once the acknowledgement has left; settled before the write is reported."""

    def send(self) -> bool:
        """Called in the writer's thread: send it, never block, never raise. False: it did not leave."""


class File(Protocol):
    """A file that is open, to read and write."""

    def pread(self, size: int, offset: int) -> bytes: ...
    def pwrite(self, buffers: Sequence[bytes], offset: int) -> None:
        """Write all buffers, one after the other; raises OSError if not all of it was written."""
    def sync(self) -> None:
        """Data and size reach the disk (fdatasync; F_FULLFSYNC on macOS)."""
    def size(self) -> int: ...
    def allocate(self, size: int) -> None:
        """Grow to ``size`` with room on the disk behind it; reads as zeros. Raises OSError ENOSPC without it."""
    def truncate(self, size: int) -> None:
        """Cut off what is behind ``size``."""
    def close(self) -> None: ...


class Files(Protocol):
    """A flat directory tree. Paths are relative, with ``/``. Errors are ``OSError`` as the system raises them."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; ``create`` makes it (and fails if it exists)."""
    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; [] if there is no such directory."""
    def rename(self, old: str, new: str) -> None:
        """Replace ``new`` if there is one. Files that are open stay so, under the new name."""
    def remove(self, path: str) -> None: ...
    def make_dir(self, path: str) -> None:
        """Create a directory if missing."""
    def sync_dir(self, path: str) -> None:
        """Names in this directory reach the disk."""
    def lock(self) -> None:
        """Hold the root against other processes; raises ``WrongDirectory`` if another holds it. Idempotent."""
    def unlock(self) -> None:
        """Let go of the root. Idempotent."""
    def free_bytes(self) -> int:
        """Room left on the disk."""
