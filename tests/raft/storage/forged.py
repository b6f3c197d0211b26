"""Segments written by hand: good blocks that say what no storage would write. And a disk that tells what stays open."""

from __future__ import annotations

from typing import Any

from raft.frame import Frame
from raft.messages import HardState
from raft.sim.disk import VirtualDisk, VirtualFile, seeded
from raft.storage.blocks import (
    ORIGIN,
    GroupState,
    LocalKind,
    Position,
    check_block,
    encode_block,
    encode_local,
    encode_state,
)
from raft.storage.recovery import segment_path

OWNER = int.from_bytes(b"incarnation-0001"[:8], "little")
SEGMENT_BYTES = 32 << 10
Record = tuple[bytes, int]
"""The bytes of a record, and its mark."""


class CountingDisk(VirtualDisk):
    """Knows each file that was ever opened."""

    def __init__(self) -> None:
        super().__init__(seeded(1))
        self.opened: list[VirtualFile] = []

    def open(self, path: str, *, create: bool = False) -> VirtualFile:
        self.opened.append(super().open(path, create=create))
        return self.opened[-1]

    @property
    def left_open(self) -> bool:
        return any(not file._closed for file in self.opened)


def state(group: int = 1, last: Position = ORIGIN) -> Record:
    return encode_local(LocalKind.STATE, group, encode_state(GroupState(HardState(1), last)))


def framed(*frames: Frame) -> list[Record]:
    return [(frame.data, frame.mark) for frame in frames]


class Forged:
    """A log whose blocks follow each other, whatever they say."""

    def __init__(self, disk: VirtualDisk) -> None:
        self.disk, self.segment, self.sequence, self.chain, self.at = disk, 0, 0, 0, 0

    def block(self, *records: Record, **changes: Any) -> int:
        """Write the next block, but for ``changes`` to its header; returns its offset."""
        self.sequence += 1
        data = b"".join(part for part, _ in records)
        header, crc = encode_block(**{
            "first": not self.at, "owner": OWNER, "segment": self.segment, "sequence": self.sequence, "synced": 0,
            "life": 1, "length": len(data), "marks": [mark for _, mark in records], "chain": self.chain, **changes})
        file, offset = self.disk.open(segment_path(self.segment)), self.at
        file.pwrite([header, data], offset)
        file.close()
        self.chain, self.at = crc, offset + len(header) + len(data)
        assert not isinstance(check_block(header, 0), str)
        return offset

    def begin(self, *records: Record, **changes: Any) -> None:
        """Begin the next segment, by a first block of these records."""
        self.segment, self.at = self.segment + 1, 0
        file = self.disk.open(segment_path(self.segment), create=True)
        file.allocate(SEGMENT_BYTES)
        file.close()
        self.block(*records, **changes)


def forged(*first: Record, **changes: Any) -> Forged:
    """A log of one segment with this first block."""
    log = Forged(CountingDisk())
    log.disk.make_dir("log")
    log.begin(*first, **changes)
    return log
