"""Reading the directory of a writer at work: segments roll, are purged and recycled under the reader's eyes."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from analysis.files.filesystem import Tree
from analysis.files.finding import find_logs
from analysis.parsing.rows import Wanted
from analysis.source.options import parse_options
from analysis.source.planning import open_log, plan
from analysis.source.reading import Reader
from analysis.source.stream import RaftLogStream
from raft.frame import build
from raft.membership import Membership
from raft.messages import SnapshotMeta, Write
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.recovery import segment_path
from raft.storage.segment import SegmentStorage

SEGMENT_BYTES = 48 << 10


class Writer:
    """Writes, truncates now and then, takes snapshots and purges, until it has done ``steps``."""

    def __init__(self, root: Path, seed: int, steps: int, *, purges: bool) -> None:
        self.rng, self.steps, self.purges = random.Random(seed), steps, purges
        self.files = DirectoryFiles(root)
        self.files.lock()
        format_directory(self.files, "c", "n0", self.rng.randbytes(16))
        self.storage = SegmentStorage(self.files, "c", "n0", segment_bytes=SEGMENT_BYTES, rng=self.rng)
        self.storage.open()
        self.tail = [(0, 0, 0)]
        self.step()

    def step(self) -> None:
        last, _, chain = self.tail[-1]
        if len(self.tail) > 3 and self.rng.random() < 0.05:
            self.tail.pop()
            kept = self.tail[-1]
            self.storage.write([Write(0, 1, truncate_from=kept[0] + 1)])
            last, _, chain = kept
        term = len(self.tail) // 40 + 1
        payloads = [self.rng.randbytes(self.rng.choice((10, 100, 700))) for _ in range(self.rng.choice((1, 3)))]
        frame = build(kind=1, group=1, term=max(term, self.tail[-1][1]), first=last + 1, payloads=payloads, wall_ms=1,
                      chain=chain)
        self.storage.write([Write(0, 1, frames=[frame])])
        self.storage.sync()
        self.tail.append((frame.last, frame.term, frame.mark))
        if self.purges and len(self.tail) % 60 == 0:
            index, of, mark = self.tail[-30]
            sink = self.storage.create_snapshot(1, SnapshotMeta(index, of, mark, Membership(("n0",)), 0, 0, 0, 1))
            sink.write(b"state")
            sink.finish()
            self.storage.write([Write(0, 1, purge_to=index)])
            self.storage.sync()

    def run(self) -> None:
        for _ in range(self.steps):
            self.step()

    def close(self) -> None:
        self.storage.close()
        self.files.unlock()


@pytest.mark.parametrize("seed", range(2))
def test_no_damage_and_no_gap_while_a_writer_is_at_work(tmp_path: Path, seed: int) -> None:
    writer = Writer(tmp_path, seed, 1500, purges=True)
    thread = threading.Thread(target=writer.run)
    thread.start()
    more, segments = True, [0]
    while more:
        more = thread.is_alive()
        found = find_logs([str(tmp_path)])[0]
        rows = [row for work in plan(open_log(found), found.tree, Wanted("frames"), clock_slack_ms=0, prune=True,
                                     partition_bytes=1)
                for batch in Reader(Tree.of(work.log.root), Wanted("frames")).read(work) for row in batch.to_pylist()]
        assert [row for row in rows if row["damage"]] == []
        segments = sorted({row["segment"] for row in rows})
        if not segments:
            continue  # on a busy machine all that was planned may be purged by now
        gone = set(range(segments[0], segments[-1] + 1)) - set(segments)
        assert not any((tmp_path / segment_path(each)).exists() for each in gone)  # purged between two reads
        writes = [row["write"] for row in rows]
        assert writes == sorted(writes)
    thread.join()
    writer.close()
    assert segments[0] > 1


def test_a_stream_beside_a_writer_gives_each_frame_once(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 7, 900, purges=False)
    thread = threading.Thread(target=writer.run)
    thread.start()
    source = RaftLogStream(parse_options({"path": str(tmp_path), "format": "frames", "max_mb_per_batch": "1"}))
    at, rows, more = source.initialOffset(), [], True
    while more:
        more = thread.is_alive()
        end = source.latestOffset(at, ReadAllAvailable())
        rows += [row for part in source.partitions(at, end) for batch in source.read(part) for row in batch.to_pylist()]
        at = end
    thread.join()
    writer.close()
    assert [row for row in rows if row["damage"]] == []
    found = find_logs([str(tmp_path)])[0]
    whole = [row for work in plan(open_log(found), found.tree, Wanted("frames"), clock_slack_ms=0, prune=True,
                                  partition_bytes=1 << 30)
             for batch in Reader(found.tree, Wanted("frames")).read(work) for row in batch.to_pylist()]
    assert [(row["write"], row["index"], row["mark"]) for row in rows] == [
        (row["write"], row["index"], row["mark"]) for row in whole]
    assert any(row["truncated"] for row in whole)
