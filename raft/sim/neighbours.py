"""A second group on a node's segment log: it says a little once, and is quiet ever after.

What groups share is the log. A quiet one must not keep it, must come back in every life with all it said, and damage in
its entries must stop nobody else. Knows storages and writes; no replicas and no time.
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
"""Short, so that a run of some seconds fills many."""
NEIGHBOUR: Final = 2
_HEAD_BYTES: Final = 80
"""Of term, vote and boundary of one group."""
_ENTRIES: Final = 3
_LOCALS_BYTES: Final = 256
"""Of a write without its frames, at most."""


class SharedLog:
    """One life's log, beside a quiet group that moves in with the first life of a disk."""

    def __init__(self, life: Life, last: int) -> None:
        """``last``: the last entry that the life's own group found."""
        self._life, self._noted = life, False
        node, storage = life.node, life.storage
        if not node.neighbour:
            node.neighbour = move_in(storage)
        elif (found := comes_back(storage)) is not None or not node.damaged:
            life.checker.neighbour_came_back(life.name, found, node.neighbour)
        self._tail = Tail(storage.log_bytes, last, SEGMENT_BYTES // 8)

    def wrote(self, writes: Iterable[Write]) -> None:
        """The life's own group did."""
        self._tail.wrote(writes)

    def look(self) -> None:
        """Have the checker see how long the log is."""
        life = self._life
        if not life.node.damaged and not life.broken:
            live = 2 * _HEAD_BYTES + sum(map(len, life.node.neighbour))
            life.checker.shares(life.storage.log_bytes, SEGMENT_BYTES, self._tail.size, live)

    def note_damage(self) -> None:
        """Damage that was met in what the quiet group has stops nobody. Raises it where none was done."""
        life = self._life
        damage = life.storage.damaged.get(NEIGHBOUR)
        if damage is not None and not life.node.damaged:
            raise damage
        if damage is not None and not self._noted:
            self._noted = True
            life.cluster.counts["neighbour damaged"] += 1


def move_in(storage: Storage) -> list[bytes]:
    """Write down what the quiet group has to say, durable; returns that."""
    frames: list[Frame] = []
    for index in range(1, _ENTRIES + 1):
        frames.append(build(kind=Kind.COMMANDS, group=NEIGHBOUR, term=1, first=index, payloads=[bytes([index]) * 100],
                            wall_ms=0, chain=frames[-1].mark if frames else 0))
    storage.write([Write(0, NEIGHBOUR, hard_state=HardState(1, "n0"), frames=frames)])
    storage.sync()
    return [frame.data for frame in frames]


def comes_back(storage: Storage) -> list[bytes] | None:
    """What a life finds of it; None: it was damaged, and the storage noticed."""
    out: list[bytes] = []
    try:
        while frames := storage.read(NEIGHBOUR, len(out) + 1, 1 << 20):
            out += [frame.data for frame in frames]
    except DamagedLog:
        return None
    return out


def place_of(files: Files) -> tuple[str, int, int] | None:
    """File, offset and size of the newest copy of its last entry; not in the last block, which alone may be torn."""
    found, write, last = None, 0, 0
    for record in records(files):
        last = record.write
        if record.group == NEIGHBOUR and record.frame is not None:
            found, write = (record.path, record.offset, record.frame.size), record.write
    return found if write < last else None


class Tail:
    """How much of a log its busy group keeps, at most: what was written since its oldest entry that no snapshot holds.

    ``lag``: so many bytes are written before a snapshot is held to have let go; upkeep has its turn meanwhile.
    """

    def __init__(self, log_bytes: int, last: int, lag: int) -> None:
        self._written, self._lag = log_bytes, lag
        self._spots: deque[tuple[int, int]] = deque([(last, 0)])
        """(last entry of a write, bytes written before it), the oldest first; the first one is all of before."""
        self._purges: deque[tuple[int, int]] = deque()
        """(entry, bytes written when the log was told to let go of all up to it)"""

    @property
    def size(self) -> int:
        """So many bytes at this moment."""
        while self._purges and self._purges[0][1] + self._lag <= self._written:
            index, _ = self._purges.popleft()
            while self._spots and self._spots[0][0] <= index:
                self._spots.popleft()
        return self._written - self._spots[0][1] if self._spots else 0

    def wrote(self, writes: Iterable[Write]) -> None:
        """These went into the log."""
        for write in writes:
            if write.frames:
                self._spots.append((write.frames[-1].last, self._written))
            self._written += BLOCK_BYTES + _LOCALS_BYTES + sum(len(frame.data) for frame in write.frames)
            if write.purge_to:
                self._purges.append((write.purge_to, self._written))
