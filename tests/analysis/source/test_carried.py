"""What a storage carries forward, or removes, is no news: batches have each entry once, streams do not repeat it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from analysis.schemas import Format
from analysis.source.reading import Reader
from analysis.source.stream import RaftLogStream
from raft.frame import Frame, Kind, build
from raft.membership import Membership
from raft.messages import HardState, SnapshotMeta, Write
from raft.storage.audit import audit, records
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage
from tests.analysis.source.test_planning import planned
from tests.analysis.source.test_stream import step, stream

QUIET, BUSY, REMOVED = 2, 1, 3


class Disk:
    """A real directory with a busy group and two quiet ones, which say a no-op and two commands each."""

    def __init__(self, root: Path) -> None:
        self.files, self.ends = DirectoryFiles(root), dict[int, Frame]()
        format_directory(self.files, "c", "n", bytes(16))
        self.storage = SegmentStorage(self.files, "c", "n", segment_bytes=32 << 10, rng=Random(1))
        self.storage.open()
        for group in (QUIET, REMOVED):
            self.storage.write([Write(1, group, hard_state=HardState(1, "n"))])
            for kind in (Kind.NOOP, Kind.COMMANDS, Kind.COMMANDS):
                self.put(group, 100, kind)

    def put(self, group: int, size: int, kind: Kind = Kind.COMMANDS) -> None:
        before = self.ends.get(group)
        first, chain = (before.last + 1, before.mark) if before is not None else (1, 0)
        frame = self.ends[group] = build(kind=kind, group=group, term=1, first=first, payloads=[bytes(size)],
                                         wall_ms=first, chain=chain)
        self.storage.write([Write(first, group, frames=[frame])])
        self.storage.sync()

    def busy(self, entries: int) -> None:
        for _ in range(entries):
            self.put(BUSY, 1_000)
        self.compact()

    def compact(self) -> None:
        """A snapshot of all that the busy group has."""
        end = self.ends[BUSY]
        self.storage.create_snapshot(BUSY, SnapshotMeta(
            end.last, end.term, end.mark, Membership(voters=("n",)), 0)).finish()
        self.storage.write([Write(end.last, BUSY, purge_to=end.last)])
        self.storage.sync()


def rows(root: Path, form: Format) -> list[dict[str, Any]]:
    return [row for tree, wanted, part in planned(root, form=form, prune=False)
            for batch in Reader(tree, wanted).read(part) for row in batch.to_pylist()]


def test_each_entry_stands_in_the_log_once(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for _ in range(12):
        disk.busy(16)
        found = rows(tmp_path, "frames")
        assert not [row for row in found if row["damage"]]
        standing = [row["index"] for row in found if row["group_id"] == QUIET and not row["truncated"]]
        assert standing == [1, 2, 3]
    events = rows(tmp_path, "events")
    assert any(record.upkeep for record in records(disk.files)) and not audit(disk.files).problems
    kinds = [row["kind"] for row in events if row["group_id"] == QUIET]
    assert "carried" in kinds and "truncate" not in kinds
    assert [row["truncated"] for row in events if row["kind"] == "noop" and row["group_id"] == QUIET][-1:] == [False]


def test_a_stream_tells_each_entry_once(tmp_path: Path) -> None:
    disk, at = Disk(tmp_path), dict[str, Any]()
    source: RaftLogStream = stream(tmp_path)
    at, seen = step(source, source.initialOffset())
    for _ in range(48):
        for _ in range(4):
            disk.put(BUSY, 1_000)
        at, more = step(source, at)
        seen += more
        disk.compact()
    assert [row["reason"] for row in seen if row["damage"]] == []
    assert [row["index"] for row in seen if row["group_id"] == QUIET] == [1, 2, 3]
    assert [row["index"] for row in seen if row["group_id"] == BUSY] == list(range(1, 48 * 4 + 1))


def test_a_removed_group_is_told_as_one(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.storage.write([Write(9, REMOVED, forget=True)])
    disk.storage.sync()
    kinds = [row["kind"] for row in rows(tmp_path, "events") if row["group_id"] == REMOVED]
    assert kinds[-1] == "removed" and "truncate" not in kinds
    assert all(row["truncated"] for row in rows(tmp_path, "frames") if row["group_id"] == REMOVED)
    for _ in range(8):
        disk.busy(16)
    found = rows(tmp_path, "frames")
    assert not [row for row in found if row["damage"] or row["group_id"] == REMOVED]
    said = [record.words for record in records(disk.files) if record.upkeep and record.frame is None]
    assert said and all(words.startswith("carried forward: ") for words in said)
