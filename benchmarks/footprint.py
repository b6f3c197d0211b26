"""What the library takes besides time on the hot path: memory per entry, opening a large log, importing.

Memory is the growth of resident bytes of each of three processes, with the default configuration. Opening is a fresh
process that recovers a log of single-entry frames, the worst case, with warm page cache. Knows raft's storage.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import trio

from benchmarks.cluster import open_cluster
from raft.config import Config
from raft.frame import Frame, Kind, build
from raft.messages import HardState, Write
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage

CLUSTER, NODE = "bench", "n0"
PAYLOAD = bytes(128)
WARM_ENTRIES = 100_000
IMPORTS = 11

OPEN = f"""
import json, sys, time
from pathlib import Path
from raft.storage.directory import DirectoryFiles
from raft.storage.segment import SegmentStorage
storage = SegmentStorage(DirectoryFiles(Path(sys.argv[1])), {CLUSTER!r}, {NODE!r})
start = time.perf_counter()
recovered = storage.open()
print(json.dumps({{"seconds": time.perf_counter() - start, "last_index": recovered[1].last_index}}))
"""


async def _memory(root: Path, entries: int, singly: bool) -> dict[str, Any]:
    async with open_cluster(root) as cluster:
        leader = await cluster.leader()
        nodes = list(cluster.nodes.values())

        async def fill(count: int) -> float:
            seconds: float = (await leader.ask("fill", entries=count, size_bytes=16, singly=singly))["seconds"]
            await cluster.caught_up()
            return seconds

        async def resident() -> dict[str, int]:
            return {node.name: (await node.ask("memory"))["bytes"] for node in nodes}

        await fill(min(WARM_ENTRIES, entries))
        before = await resident()
        seconds = await fill(entries)
        after = await resident()
        return {
            "entries": entries, "seconds": round(seconds, 1),
            "leader_mb": round((after[leader.name] - before[leader.name]) / 1e6, 1),
            "most_mb": round(max(after[name] - before[name] for name in after) / 1e6, 1),
        }


def _write_log(directory: Path, log_bytes: int) -> int:
    """Fill a directory with frames of one entry each; returns how many."""
    files = DirectoryFiles(directory)
    format_directory(files, CLUSTER, NODE, bytes(16))
    storage = SegmentStorage(files, CLUSTER, NODE, segment_bytes=Config().segment_bytes)
    storage.open()
    storage.write([Write(token=1, group=1, hard_state=HardState(term=1, voted_for=NODE))])
    written, index, chain = 0, 0, 0
    while written < log_bytes:
        frames: list[Frame] = []
        for _ in range(2_000):
            index += 1
            frame = build(kind=Kind.COMMANDS, group=1, term=1, first=index, payloads=[PAYLOAD], wall_ms=0, chain=chain)
            chain = frame.mark
            written += frame.size
            frames.append(frame)
        storage.write([Write(token=1 + index, group=1, frames=frames)])
        storage.sync()
    storage.close()
    return index


def _opening(root: Path, log_bytes: int) -> dict[str, Any]:
    count = _write_log(root, log_bytes)
    runs = []
    for _ in range(3):
        command = [sys.executable, "-c", OPEN, str(root)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        assert found["last_index"] == count, found
        runs.append(found["seconds"])
    return {"log_bytes": log_bytes, "entries": count, "seconds": round(statistics.median(runs), 2),
            "all_seconds": [round(run, 2) for run in runs]}


def _importing() -> dict[str, Any]:
    code = "import time; start = time.perf_counter(); import raft; print(time.perf_counter() - start)"
    runs = [
        1e3 * float(subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout)
        for _ in range(IMPORTS)
    ]
    return {"median_ms": round(statistics.median(runs), 1), "max_ms": round(max(runs), 1)}


def run(directory: Path, entries: int, log_bytes: int) -> dict[str, Any]:
    """All figures, by name."""
    found: dict[str, Any] = {"import_raft": _importing()}
    print(f"  import raft: {found['import_raft']}", flush=True)
    for name, singly in (("memory_many", False), ("memory_singly", True)):
        root = directory / name
        root.mkdir(parents=True)
        try:
            found[name] = trio.run(_memory, root, entries, singly)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        print(f"  {name}: {found[name]}", flush=True)
    root = directory / "opening"
    root.mkdir(parents=True)
    start = time.perf_counter()
    try:
        found["opening"] = _opening(root, log_bytes)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"  opening: {found['opening']} (prepared in {time.perf_counter() - start:.0f} s)", flush=True)
    return found
