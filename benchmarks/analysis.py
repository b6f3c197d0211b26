"""How fast Spark reads logs through the source ``raftlog``, beside the same entries as JSON lines and as Parquet.

    python -m benchmarks.analysis [--quick] [--entries 8000000] [--rounds 3] [--folder DIR] [--out results.json]

Two cores, a session that is up, every row of every column handed to Spark's ``noop`` sink. Logs: frames of 64 entries
of 128 bytes, frames of one such entry (a fourth as many entries), and a tenth of the first, to see whether cost grows
with the data. Also: what a narrow filter reads, and the peak memory of the Python workers. Knows raft's writer and the
source.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession

import analysis
from analysis.errors import JavaMissing
from analysis.source.metrics import collect
from benchmarks.measure import Summary
from benchmarks.processes import descendants
from raft.frame import build
from raft.messages import Write
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage

ENTRY_BYTES = 128
FRAME_ENTRIES = 64
GROUPS = 4
BLOCK_FRAMES = 4
FEW = "group,index,term,wall_ms"
SEGMENT_BYTES = 64 << 20


def write_log(root: Path, entries: int, per_frame: int) -> int:
    """A sound log of so many entries in four groups; bytes used of its segments."""
    rng = random.Random(entries)
    files = DirectoryFiles(root)
    files.lock()
    format_directory(files, "bench", "n0", rng.randbytes(16))
    storage = SegmentStorage(files, "bench", "n0", segment_bytes=SEGMENT_BYTES, rng=rng)
    storage.open()
    payloads = [rng.randbytes(ENTRY_BYTES) for _ in range(per_frame)]
    tails: dict[int, tuple[int, int]] = dict.fromkeys(range(1, GROUPS + 1), (0, 0))
    wall_ms, done, used, blocks = 1_700_000_000_000, 0, 0, 0
    while done < entries:
        writes = []
        for group in range(1, BLOCK_FRAMES + 1):
            last, chain = tails[group]
            frame = build(kind=1, group=group, term=1 + last // 500_000, first=last + 1, payloads=payloads,
                          wall_ms=wall_ms, chain=chain)
            tails[group] = frame.last, frame.mark
            writes.append(Write(0, group, frames=[frame]))
            done, used = done + per_frame, used + frame.size
        storage.write(writes)
        wall_ms, blocks = wall_ms + 1000, blocks + 1
        if not blocks % 256:
            storage.sync()
    storage.sync()
    storage.close()
    files.unlock()
    return used


def bytes_of(written: Path) -> int:
    """Of the files that Spark wrote there."""
    return sum(path.stat().st_size for path in written.glob("part-*"))


def cpu_s() -> float:
    """Processor time of this process and all below it, so far."""
    ticks = 0
    for pid in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def workers() -> Iterator[Path]:
    """Spark's Python workers, in /proc."""
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield Path(f"/proc/{pid}")


def forget_peaks() -> None:
    for worker in workers():
        with suppress(OSError):
            (worker / "clear_refs").write_text("5")


def workers_peak_mb() -> float:
    """The most memory that a worker has had since the peaks were forgotten."""
    peak = 0
    for worker in workers():
        with suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+)", (worker / "status").read_text())
            peak = max(peak, int(found[1]) if found else 0)
    return peak / 1024


@attrs.frozen
class Reading:
    """One case, over the rounds: entries and bytes of log per second of wall clock, and of processor time."""

    case: str
    entries: int
    mb: float
    entries_per_s: Summary
    mb_per_s: float
    cpu_us_per_entry: float
    workers_peak_mb: float


def measure(case: str, rows: Callable[[], DataFrame], entries: int, size: int, rounds: int) -> Reading:
    times, cpu = [], []
    forget_peaks()
    for _ in range(rounds):
        start, before = time.perf_counter(), cpu_s()
        rows().write.format("noop").mode("overwrite").save()
        times.append(time.perf_counter() - start)
        cpu.append(cpu_s() - before)
    summary = Summary.of([entries / each for each in times])
    found = Reading(case, entries, round(size / 1e6, 1), summary, round(size / 1e6 / min(times), 1),
                    round(min(cpu) / entries * 1e6, 3), round(workers_peak_mb(), 1))
    print(f"  {case:38} {summary.median / 1e6:7.2f} M entries/s  {found.mb_per_s:7.0f} MB/s at best  "
          f"{found.cpu_us_per_entry:6.2f} µs of CPU each  workers {found.workers_peak_mb:.0f} MB", flush=True)
    return found


def grown(readings: list[Reading]) -> dict[str, float]:
    """What ten times the entries cost: how many times the processor time, and the workers' memory."""
    by_case = {each.case: each for each in readings}
    whole, tenth = by_case["raftlog entries, 64 a frame"], by_case["raftlog entries, a tenth of them"]
    cpu = whole.cpu_us_per_entry * whole.entries / (tenth.cpu_us_per_entry * tenth.entries)
    found = {"cpu": round(cpu, 2), "workers_peak": round(whole.workers_peak_mb / tenth.workers_peak_mb, 2)}
    print(f"  ten times the entries: {found['cpu']} times the CPU, {found['workers_peak']} times the memory")
    return found


def narrow(spark: SparkSession, root: Path, folder: Path, where: str) -> dict[str, object]:
    """What a filter reads of the whole."""
    metrics = folder / f"metrics-{where.partition(' ')[0]}"
    found = spark.read.format("raftlog").option("metrics", str(metrics)).load(str(root)).where(where)
    start = time.perf_counter()
    rows = found.count()
    read = collect(str(metrics))
    whole = sum(path.stat().st_size for path in root.glob("log/0*.seg"))
    out: dict[str, object] = {
        "where": where, "rows": rows, "seconds": round(time.perf_counter() - start, 2), "segments": read["segments"],
        "segments_in_all": len(list(root.glob("log/0*.seg"))), "bytes_read": read["bytes_read"],
        "planned_bytes": read["planned_bytes"], "bytes_in_all": whole}
    print(f"  {where}: {rows} rows from {out['segments']} of {out['segments_in_all']} segments, "
          f"{read['bytes_read'] / 1e6:.0f} of {whole / 1e6:.0f} MB read", flush=True)
    return out


def run(folder: Path, entries: int, rounds: int) -> dict[str, object]:
    print(f"writing logs of {entries:,} entries into {folder}", flush=True)
    sizes = {
        "many": write_log(folder / "many", entries, FRAME_ENTRIES),
        "tenth": write_log(folder / "tenth", entries // 10, FRAME_ENTRIES),
        "single": write_log(folder / "single", entries // 4, 1),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = analysis.session("local[2]", spark_driver_memory="1g", spark_ui_enabled="false",
                                 spark_ui_showConsoleProgress="false", spark_sql_session_timeZone="UTC")
    spark.sparkContext.setLogLevel("ERROR")

    def log(name: str, form: str, payload: str = "none", columns: str = "") -> Callable[[], DataFrame]:
        return lambda: spark.read.format("raftlog").option("format", form).option("payload", payload).option(
            "columns", columns).load(str(folder / name))

    log("tenth", "entries")().count()  # workers, classes and code are warm now
    readings = [
        measure("raftlog entries, 64 a frame", log("many", "entries"), entries, sizes["many"], rounds),
        measure("raftlog entries with payloads", log("many", "entries", "full"), entries, sizes["many"], rounds),
        measure(f"raftlog entries, {FEW}", log("many", "entries", columns=FEW), entries, sizes["many"], rounds),
        measure("raftlog frames, 64 a frame", log("many", "frames"), entries, sizes["many"], rounds),
        measure("raftlog entries, a tenth of them", log("tenth", "entries"), entries // 10, sizes["tenth"], rounds),
        measure("raftlog entries, 1 a frame", log("single", "entries"), entries // 4, sizes["single"], rounds),
        measure("raftlog frames, 1 a frame", log("single", "frames"), entries // 4, sizes["single"], rounds),
    ]
    plain, few = log("tenth", "entries", "full")(), entries // 10
    schema = plain.schema
    lines, parquet = folder / "lines", folder / "parquet"
    plain.write.json(str(lines))  # payloads in base64
    plain.write.parquet(str(parquet))
    readings += [
        measure("raftlog with payloads, a tenth", log("tenth", "entries", "full"), few, sizes["tenth"], rounds),
        measure("JSON lines, a tenth", lambda: spark.read.schema(schema).json(str(lines)), few, bytes_of(lines),
                rounds),
        measure("Parquet, a tenth", lambda: spark.read.parquet(str(parquet)), few, bytes_of(parquet), rounds),
    ]
    growth = grown(readings)
    filters = [narrow(spark, folder / "many", folder, where) for where in (
        f"index between {entries // 8} and {entries // 8 + 100}", "wall_ms between 1700000600000 and 1700000601000")]
    spark.stop()
    return {"entries": entries, "rounds": rounds, "readings": [attrs.asdict(each) for each in readings],
            "ten_times_the_entries": growth, "filters": filters}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="an eighth of the entries, twice: a few minutes at most")
    parser.add_argument("--entries", type=int, help="default: 8000000")
    parser.add_argument("--rounds", type=int, help="default: 3")
    parser.add_argument("--folder", type=Path, default=None, help="where to write the logs (a temporary directory)")
    parser.add_argument("--out", type=Path, default=None, help="also write the figures there, as JSON")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-analysis-", dir=args.folder))
    try:
        found = run(folder, args.entries or (1_000_000 if args.quick else 8_000_000),
                    args.rounds or (2 if args.quick else 3))
    except JavaMissing as error:
        print(f"not run: {error}")
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
