"""A fleet's logs, made by raft's own writer, and how long the report on them takes.

    python -m benchmarks.analysis_fleet [--quick] [--groups 200] [--entries 20000000] [--folder DIR] [--out FILE]

Three nodes hold the same groups. Groups are of unequal size, each changes its leader now and then, and every frame of a
group is on all three nodes, so ``--entries`` is counted once and read three times. Knows raft's writer and the report.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import cbor2

from analysis.cli import bar
from analysis.errors import JavaMissing
from analysis.logs import open_logs
from analysis.report import report
from analysis.session import QUIET, session
from raft.frame import Frame, build
from raft.messages import Write
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage

NODES = ("n0", "n1", "n2")
PER_FRAME = 64
ENTRY_BYTES = 16
TERM_FRAMES = 400
"""Frames between two elections of a group."""


class _Group:
    """The tip of one group's log."""

    def __init__(self, number: int) -> None:
        self.number, self.term, self.last, self.mark, self.frames = number, 0, 0, 0, 0

    def frame(self, payloads: list[bytes], wall_ms: int) -> Frame:
        kind = 1
        if self.frames % TERM_FRAMES == 0:
            leader, before = NODES[(self.number + self.term) % 3], NODES[(self.number + self.term - 1) % 3]
            self.term, kind = self.term + 1, 2
            payloads = [cbor2.dumps({
                "leader": leader, "cause": "no leader heard", "rounds": 2, "votes": [leader, before],
                "previous_leader": before if self.term > 1 else None, "election_ms": 150 + self.number})]
        made = build(kind=kind, group=self.number, term=self.term, first=self.last + 1, payloads=payloads,
                     wall_ms=wall_ms, chain=self.mark)
        self.last, self.mark, self.frames = made.last, made.mark, self.frames + 1
        return made


def write_fleet(root: Path, groups: int, entries: int) -> int:
    """Logs of three nodes; how many entries they hold, each counted once."""
    rng = random.Random(groups)
    storages = []
    for node in NODES:
        files = DirectoryFiles(root / node)
        files.lock()
        format_directory(files, "fleet", node, rng.randbytes(16))
        storages.append(SegmentStorage(files, "fleet", node, rng=rng))
        storages[-1].open()
    payloads = [rng.randbytes(ENTRY_BYTES) for _ in range(PER_FRAME)]
    tips = [_Group(number) for number in range(1, groups + 1)]
    weights = [1.0 / (1 + number % 20) for number in range(groups)]
    wall_ms, done = 1_700_000_000_000, 0
    while done < entries:
        frames = [tip.frame(payloads, wall_ms) for tip in rng.choices(tips, weights, k=groups // 2 or 1)]
        for storage in storages:
            storage.write([Write(0, frame.group, frames=[frame]) for frame in frames])
        done, wall_ms = done + sum(frame.count for frame in frames), wall_ms + 1_000
    for storage in storages:
        storage.sync()
        storage.close()
    return done


def run(folder: Path, groups: int, entries: int) -> dict[str, object]:
    """Write, report, and what either took."""
    began = time.perf_counter()
    written = write_fleet(folder / "fleet", groups, entries)
    wrote_s = time.perf_counter() - began
    spark = session("local[2]", spark_driver_memory="2g", spark_ui_enabled="false", spark_sql_shuffle_partitions="4",
                    spark_driver_host="127.0.0.1", **QUIET)
    began = time.perf_counter()
    logs = open_logs(spark, str(folder / "fleet"), in_driver=False)
    found = report(logs, folder / "fleet.html", title="A generated fleet", progress=bar(sys.stderr))
    report_s = time.perf_counter() - began
    counted = logs.ask("skew").agg({"entries": "sum", "rank": "max"}).collect()[0]
    figures = {
        "groups": counted["max(rank)"], "nodes": len(NODES), "entries": counted["sum(entries)"], "written": written,
        "write_s": round(wrote_s, 1), "report_s": round(report_s, 1),
        "findings": sorted({each.rule for each in found}), "page": str(folder / "fleet.html")}
    assert (figures["groups"], figures["entries"]) == (groups, written), figures
    return figures


def main() -> None:
    """Parse the command line and run."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the entries, in a quarter of the groups")
    parser.add_argument("--groups", type=int, help="default: 200")
    parser.add_argument("--entries", type=int, help="default: 20000000")
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary directory")
    parser.add_argument("--out", type=Path, help="also write the figures there, as JSON")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="quorate-fleet-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        figures = run(folder, options.groups or (50 if options.quick else 200),
                      options.entries or (2_000_000 if options.quick else 20_000_000))
    except JavaMissing as error:
        print(f"not run: {error}")
        return
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(figures, indent=2))
    if options.out is not None:
        options.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
