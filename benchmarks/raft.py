"""The benchmark of the raft library: all systems side by side on this machine, in alternated rounds.

    python -m benchmarks.raft [--rounds 5] [--seconds 2] [--only floor,ours] [--parts proposals,own,failover,footprint]

Prints a table and writes ``benchmarks/results/raft.json`` and, from it, a page of Markdown. A figure is the median of
its rounds with their least and greatest. It asserts nothing: what falls short is printed beside what is wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs

from benchmarks import failover, footprint, own
from benchmarks.measure import Row, Summary
from benchmarks.report import markdown
from benchmarks.systems import HERE, Load, System, ThreeProcesses, every_system, run_once

PARTS = ("proposals", "own", "failover", "footprint")


@attrs.define
class Results:
    """Everything one run of the benchmark found. ``figures``: (system, case, width, size) to one value per round."""

    about: dict[str, Any]
    notes: dict[str, str] = attrs.Factory(dict)
    not_run: dict[str, str] = attrs.Factory(dict)
    figures: dict[tuple[str, str, int, int], list[Row]] = attrs.Factory(dict)
    single: dict[str, Any] = attrs.Factory(dict)
    """Results that are no rate: failover, memory, opening, importing."""

    def add(self, system: str, rows: list[Row]) -> None:
        for row in rows:
            self.figures.setdefault((system, row.case, row.width, row.size_bytes), []).append(row)
            print(f"  {system:18} {row.case:14} {row.width:6} x {row.size_bytes:5} B "
                  f"{row.per_second:12,.0f} /s   p50 {row.p50_ms:8.3f} ms   p99 {row.p99_ms:8.3f} ms", flush=True)

    def as_json(self) -> dict[str, Any]:
        return {
            "about": self.about, "notes": self.notes, "not_run": self.not_run, "single": self.single,
            "figures": [
                {
                    "system": system, "case": case, "width": width, "size_bytes": size,
                    "per_second": attrs.asdict(Summary.of(row.per_second for row in rows)),
                    "p50_ms": attrs.asdict(Summary.of(row.p50_ms for row in rows)),
                    "p99_ms": attrs.asdict(Summary.of(row.p99_ms for row in rows)),
                }
                for (system, case, width, size), rows in self.figures.items()
            ],
        }


def about(rounds: int, seconds: float) -> dict[str, Any]:
    """The machine and the settings, for whoever reads the figures later."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=HERE, check=False, capture_output=True, text=True)
    return {
        "command": "python -m " + " ".join(["benchmarks.raft", *sys.argv[1:]]),
        "commit": commit.stdout.strip(), "python": platform.python_version(), "system": platform.platform(),
        "cores": os.cpu_count(), "load_average_before": os.getloadavg()[0], "rounds": rounds, "seconds": seconds,
    }


def proposals(results: Results, systems: list[System], root: Path, rounds: int, seconds: float) -> None:
    """Single awaited proposals, every system in every round, the order turning from round to round."""
    loads = [Load((1, 64, 256, 1000), 128, seconds), Load((1000,), 1024, seconds)]
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        turn = number % len(systems)
        for system in systems[turn:] + systems[:turn]:
            for load in loads:
                results.add(system.name, run_once(system, root, load))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--only", default="", help="systems, by comma; default: all")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--entries", type=int, default=10_000_000, help="for the memory figure")
    parser.add_argument("--log-bytes", type=int, default=1_000_000_000, help="for the opening figure")
    parser.add_argument("--dir", type=Path, default=HERE.parent / ".bench", help="for data: on the disk to measure")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "raft.json")
    args = parser.parse_args()
    parts = set(args.parts.split(","))
    chosen = [system for system in every_system() if not args.only or system.name in args.only.split(",")]
    results = Results(about(args.rounds, args.seconds))
    systems = []
    for system in chosen:
        if reason := system.prepare():
            results.not_run[system.name] = reason
            print(f"{system.name}: not run: {reason}", flush=True)
        else:
            results.notes[system.name] = system.note
            systems.append(system)
    args.dir.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=args.dir))
    try:
        if "proposals" in parts:
            proposals(results, systems, root, args.rounds, args.seconds)
            for system in systems:
                if isinstance(system, ThreeProcesses) and system.complaints:
                    results.notes[system.name] += f"; lines of warnings in this run: {system.complaints:,}"
        if "own" in parts:
            for _ in range(args.rounds):
                results.add("ours", own.run(root, args.seconds))
        if "failover" in parts:
            results.single |= failover.run(root, args.kills)
        if "footprint" in parts:
            results.single |= footprint.run(root, args.entries, args.log_bytes)
    finally:
        shutil.rmtree(root, ignore_errors=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(results.as_json(), indent=1) + "\n", encoding="utf-8")
        page = markdown(results.as_json())
        args.out.with_suffix(".md").write_text(page, encoding="utf-8")
        print("\n" + page)


if __name__ == "__main__":
    main()
