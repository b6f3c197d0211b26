"""Readers, scrub and maintenance beside a writer that rolls, truncates, purges and recycles, on a real directory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

from raft.frame import Frame
from raft.messages import Write
from raft.storage.conformance import frames, snapshot_at
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage

ENTRIES = 1_500


def test_everything_at_once(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    format_directory(files, "c", "n", bytes(16))
    storage = SegmentStorage(files, "c", "n", segment_bytes=64 << 10, rng=Random(1), background=True)
    storage.open()
    log = frames(ENTRIES, size=1_500)
    wrong: list[object] = []
    done = threading.Event()
    written = purged = 0
    counts = {"read": 0, "purged": 0, "scrub": 0, "snapshot": 0}

    def guarded(step: Callable[[Random], None], seed: int) -> threading.Thread:
        def run() -> None:
            rng = Random(seed)
            try:
                while not done.is_set():
                    step(rng)
            except BaseException as error:  # noqa: BLE001 - a thread's failure is the test's
                wrong.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def read(rng: Random) -> None:
        floor, top = purged, written
        index = rng.randint(max(1, floor - 50), max(1, top))
        found: list[Frame] = storage.read(1, index, rng.choice([1, 3_000, 200_000]))
        if not found:
            counts["purged"] += 1
            if index > purged and index <= top:
                wrong.append(f"entry {index} was not found; written {top}, purged {purged}")
        for offset, frame in enumerate(found):
            if frame.data != log[index - 1 + offset].data:
                wrong.append(f"entry {index + offset}")
        counts["read"] += 1

    def scrub(_rng: Random) -> None:
        for _ in storage.scrub(step_bytes=20_000):
            counts["scrub"] += 1

    def maintain(_rng: Random) -> None:
        if storage.needs_maintenance:
            storage.maintain()
        meta = storage.newest_snapshot(1)
        if meta is not None:
            data = storage.read_snapshot(1, meta.index, 0, 100)
            if data not in (None, b"%d" % meta.index):
                wrong.append(data)
            counts["snapshot"] += 1

    threads = [guarded(read, 1), guarded(read, 2), guarded(scrub, 3), guarded(maintain, 4)]
    for frame in log:
        storage.write([Write(frame.first, 1, frames=[frame])])
        if frame.first % 97 == 0:  # cut the last ten and write them again
            storage.write([Write(frame.first, 1, truncate_from=frame.first - 9)])
            storage.write([Write(frame.first, 1, frames=log[frame.first - 10 : frame.first])])
        if frame.first % 20 == 0:
            storage.sync()
        written = frame.first - 97  # what no truncation of this test takes away again
        if frame.first % 300 == 0:
            storage.sync()
            purged = frame.first - 150
            sink = storage.create_snapshot(1, snapshot_at(log[purged - 1]))
            sink.write(b"%d" % purged)
            sink.finish()
            storage.write([Write(frame.first, 1, purge_to=purged)])
            storage.sync()
    done.set()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert counts["read"] > 20
    assert counts["scrub"]
    assert counts["snapshot"]
    storage.maintain()
    assert len([name for name in files.list("log") if name.endswith(".seg")]) < 12, "nothing was recycled"
    storage.close()
    storage = SegmentStorage(files, "c", "n", segment_bytes=64 << 10, rng=Random(2))
    found = storage.open()[1]
    assert found.last_index == ENTRIES
    assert found.purged_index > 1_000
    storage.close()
