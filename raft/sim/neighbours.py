"""A second group on a node's segment log, which writes a few entries once and is quiet afterwards.

A quiet group must not keep segments from removal and must recover all its entries at every start. Damage in its entries
must not stop other groups. Knows storages and writes; no replicas and no time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from raft.errors import DamagedLog
from raft.frame import Frame, Kind, build
from raft.messages import HardState, Write
from raft.storage.audit import records
from raft.storage.blocks import BLOCK_BYTES
from raft.storage.interface import Files, Storage

if TYPE_CHECKING:
    from raft.sim.node import Life

SEGMENT_BYTES: Final = 1 << 15
"""Short segments, so that a run of some seconds fills many."""
NEIGHBOUR: Final = 2
_HEAD_BYTES: Final = 80
"""Size of one group's term, vote and boundary."""
_ENTRIES: Final = 3
_LOCALS_BYTES: Final = 256
"""Largest size of a write without its frames."""


class SharedLog:
    """The segment log of one life, shared with a quiet group since the first life of the disk."""

    def __init__(self, life: Life, last: int) -> None:
        """``last`` is the last entry that the life's own group recovered."""
        self._life, self._noted = life, False
        node, storage = life.node, life.storage
        if not node.neighbour:
            node.neighbour = move_in(storage)
        elif (found := comes_back(storage)) is not None or not node.damaged:
            life.checker.neighbour_came_back(life.name, found, node.neighbour)
        self._tail = Tail(storage.log_bytes, last, SEGMENT_BYTES // 8)

    def wrote(self, writes: Iterable[Write]) -> None:
        """Count these writes of the life's own group."""
        self._tail.wrote(writes)

    def look(self) -> None:
        """Let the checker compare the log's size with its bound."""
        life = self._life
        if not life.node.damaged and not life.broken:
            live = 2 * _HEAD_BYTES + sum(map(len, life.node.neighbour))
            life.checker.shares(life.storage.log_bytes, SEGMENT_BYTES, self._tail.size, live)

    def note_damage(self) -> None:
        """Count damage found in the quiet group's entries; raise it unless it was done on purpose."""
        life = self._life
        damage = life.storage.damaged.get(NEIGHBOUR)
        if damage is not None and not life.node.damaged:
            raise damage
        if damage is not None and not self._noted:
            self._noted = True
            life.cluster.counts["neighbour damaged"] += 1


def move_in(storage: Storage) -> list[bytes]:
    """Write and sync the quiet group's entries. Return their bytes."""
    frames: list[Frame] = []
    for index in range(1, _ENTRIES + 1):
        frames.append(build(kind=Kind.COMMANDS, group=NEIGHBOUR, term=1, first=index, payloads=[bytes([index]) * 100],
                            wall_ms=0, chain=frames[-1].mark if frames else 0))
    storage.write([Write(0, NEIGHBOUR, hard_state=HardState(1, "n0"), frames=frames)])
    storage.sync()
    return [frame.data for frame in frames]


def comes_back(storage: Storage) -> list[bytes] | None:
    """Return the quiet group's entries as a life recovers them; None if the storage found damage."""
    out: list[bytes] = []
    try:
        while frames := storage.read(NEIGHBOUR, len(out) + 1, 1 << 20):
            out += [frame.data for frame in frames]
    except DamagedLog:
        return None
    return out


def place_of(files: Files) -> tuple[str, int, int] | None:
    """Return file, offset and size of the quiet group's newest entry; None if it is in the last block, which may be
    torn."""
    found, write, last = None, 0, 0
    for record in records(files):
        last = record.write
        if record.group == NEIGHBOUR and record.frame is not None:
            found, write = (record.path, record.offset, record.frame.size), record.write
    return found if write < last else None


class Tail:
    """Bound of a busy group's log: the bytes written since its oldest entry that no snapshot covers.

    A purge takes effect after ``lag`` more bytes, since upkeep removes segments a little later.
    """

    def __init__(self, log_bytes: int, last: int, lag: int) -> None:
        self._written, self._lag = log_bytes, lag
        self._spots: deque[tuple[int, int]] = deque([(last, 0)])
        """(last entry of a write, bytes written before it), oldest first; the first one is the log at the start."""
        self._purges: deque[tuple[int, int]] = deque()
        """(entry up to which the log was purged, bytes written by then)"""

    @property
    def size(self) -> int:
        """Return the present bound in bytes."""
        while self._purges and self._purges[0][1] + self._lag <= self._written:
            index, _ = self._purges.popleft()
            while self._spots and self._spots[0][0] <= index:
                self._spots.popleft()
        return self._written - self._spots[0][1] if self._spots else 0

    def wrote(self, writes: Iterable[Write]) -> None:
        """Count writes that went into the log."""
        for write in writes:
            if write.frames:
                self._spots.append((write.frames[-1].last, self._written))
            self._written += BLOCK_BYTES + _LOCALS_BYTES + sum(len(frame.data) for frame in write.frames)
            if write.purge_to:
                self._purges.append((write.purge_to, self._written))
