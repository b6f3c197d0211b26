"""Readers, scrub and maintenance beside a writer that rolls, truncates, purges and recycles, on a real directory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from raft.frame import Frame
from raft.messages import HardState, Write
from raft.storage.conformance import frames, snapshot_at
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage

ENTRIES = 1_500


class Crowd:
    """One storage, its log as it will be in the end, and threads that look at it all the time."""

    def __init__(self, storage: SegmentStorage, log: list[Frame]) -> None:
        self.storage, self.log = storage, log
        self.written = self.purged = 0
        self.wrong: list[object] = []
        self.counts: Counter[str] = Counter()
        self._done = threading.Event()
        self._threads = [self._start(step, seed) for seed, step in enumerate(
            (self._read, self._read, self._scrub, self._maintain))]

    def _start(self, step: Callable[[Random], None], seed: int) -> threading.Thread:
        def run() -> None:
            rng = Random(seed)
            try:
                while not self._done.is_set():
                    step(rng)
            except BaseException as error:  # noqa: BLE001 - a thread's failure is the test's
                self.wrong.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def finish(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(60)

    def _read(self, rng: Random) -> None:
        floor, top = self.purged, self.written
        index = rng.randint(max(1, floor - 50), max(1, top))
        found = self.storage.read(1, index, rng.choice([1, 3_000, 200_000]))
        if not found and self.purged < index <= top:
            self.wrong.append(f"entry {index} was not found; written {top}, purged {self.purged}")
        for offset, frame in enumerate(found):
            if frame.data != self.log[index - 1 + offset].data:
                self.wrong.append(f"entry {index + offset}")
        self.counts["read" if found else "purged"] += 1

    def _scrub(self, _rng: Random) -> None:
        for _ in self.storage.scrub(step_bytes=20_000):
            self.counts["scrub"] += 1

    def _maintain(self, _rng: Random) -> None:
        if self.storage.needs_maintenance:
            self.storage.maintain()
        meta = self.storage.newest_snapshot(1)
        if meta is not None:
            data = self.storage.read_snapshot(1, meta.index, 0, 100)
            if data not in (None, b"%d" % meta.index):
                self.wrong.append(data)
            self.counts["snapshot"] += 1

    def write(self, frame: Frame) -> None:
        """One entry; now and then the last ten once more, a sync, a snapshot and a purge."""
        storage, index = self.storage, frame.first
        storage.write([Write(index, 1, frames=[frame])])
        if index % 97 == 0:
            storage.write([Write(index, 1, truncate_from=index - 9)])
            storage.write([Write(index, 1, frames=self.log[index - 10 : index])])
        if index % 20 == 0:
            storage.sync()
        self.written = index - 97  # what no truncation takes away again
        if index % 300 == 0:
            self.purged = index - 150
            sink = storage.create_snapshot(1, snapshot_at(self.log[self.purged - 1]))
            sink.write(b"%d" % self.purged)
            sink.finish()
            storage.write([Write(index, 1, purge_to=self.purged)])
            storage.sync()


def test_everything_at_once(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    format_directory(files, "c", "n", bytes(16))
    storage = SegmentStorage(files, "c", "n", segment_bytes=64 << 10, rng=Random(1), background=True)
    storage.open()
    crowd = Crowd(storage, frames(ENTRIES, size=1_500))
    try:
        for frame in crowd.log:
            crowd.write(frame)
    finally:
        crowd.finish()
    assert crowd.wrong == []
    assert {"read", "scrub", "snapshot"} <= crowd.counts.keys()
    storage.maintain()
    assert len([name for name in files.list("log") if name.endswith(".seg")]) < 12, "nothing was recycled"
    storage.close()
    storage = SegmentStorage(files, "c", "n", segment_bytes=64 << 10, rng=Random(2))
    found = storage.open()[1]
    assert found.last_index == ENTRIES
    assert found.purged_index > 1_000
    storage.close()


class _Meeting(DirectoryFiles):
    """While the first purged segment is renamed, somebody else calls ``meet``."""

    meet: Callable[[], object] | None = None
    thread: threading.Thread | None = None

    def rename(self, old: str, new: str) -> None:
        if old.endswith(".seg") and self.meet is not None and self.thread is None:
            self.thread = threading.Thread(target=self.meet)
            self.thread.start()
            self.thread.join(0.3)  # it either waits for this thread, or does harm now
        super().rename(old, new)


def test_two_threads_that_recycle_at_once_do_not_take_each_others_segment_for_a_broken_disk(tmp_path: Path) -> None:
    files = _Meeting(tmp_path)
    format_directory(files, "c", "n", bytes(16))
    storage = SegmentStorage(files, "c", "n", segment_bytes=64 << 10, rng=Random(1), background=True)
    storage.open()
    log = frames(200, size=1_500)
    for frame in log:
        storage.write([Write(frame.first, 1, frames=[frame])])
    sink = storage.create_snapshot(1, snapshot_at(log[149]))
    sink.write(b"150")
    sink.finish()
    storage.write([Write(201, 1, purge_to=150)])
    storage.sync()
    assert len(storage._retired) > 1
    files.meet = storage.has_room
    assert storage.maintain()
    assert files.thread is not None
    files.thread.join(60)
    assert not storage._retired
    storage.write([Write(202, 1, hard_state=HardState(9, None))])
    storage.sync()
    storage.close()
