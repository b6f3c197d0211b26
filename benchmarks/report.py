"""From the figures of one benchmark run to a page of Markdown. Pure text: runs nothing and measures nothing.

    python -m benchmarks.report benchmarks/results/raft.json     # prints the page again
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

CASES = {
    "propose": "proposals awaited one by one", "propose_many": "entries by propose_many, four callers of 1,000",
    "read_leader": "read index on the leader", "read_follower": "read index on a follower",
    "read_lease": "lease reads on the leader",
}

WANTED = {
    ("floor", 64): 0.65, ("floor", 256): 0.65, ("floor", 1000): 0.65,
    ("hashicorp", 64): 1.0, ("hashicorp", 256): 1.0, ("hashicorp", 1000): 1.0,
    ("dragonboat", 64): 1.0, ("dragonboat", 256): 1.0, ("dragonboat", 1000): 1.0,
    ("pysyncobj-batch", 64): 4.0, ("pysyncobj-batch", 256): 4.0, ("pysyncobj-batch", 1000): 4.0,
}
"""Least ratio of ours to each at a width, where one was asked for."""

Figures = dict[tuple[str, str, int, int], dict[str, Any]]


def _spread(summary: dict[str, float], digits: int = 0) -> str:
    median = f"{summary['median']:,.{digits}f}"
    return median if summary["runs"] == 1 else f"{median} ({summary['low']:,.{digits}f}–{summary['high']:,.{digits}f})"


def _by_key(results: dict[str, Any]) -> Figures:
    return {(f["system"], f["case"], f["width"], f["size_bytes"]): f for f in results["figures"]}


def _rates(figures: Figures, systems: list[str]) -> list[str]:
    points = sorted({key[1:] for key in figures if key[1] == "propose"}, key=lambda key: (key[2], key[1]))
    lines = ["| in flight × bytes | " + " | ".join(systems) + " |", "|---" * (len(systems) + 1) + "|"]
    for point in points:
        cells = []
        for system in systems:
            found = figures.get((system, *point))
            cells.append(
                f"{_spread(found['per_second'])}<br>p50 {_spread(found['p50_ms'], 2)} ms" if found else "–"
            )
        lines.append(f"| {point[1]:,} × {point[2]:,} | " + " | ".join(cells) + " |")
    return lines


def _ratios(figures: Figures, systems: list[str]) -> list[str]:
    others = [system for system in systems if system != "ours"]
    points = sorted({key[1:] for key in figures if key[:2] == ("ours", "propose")}, key=lambda key: (key[2], key[1]))
    if not points or not others:
        return []
    lines = ["", "Ours divided by each (medians of one run; in brackets what was asked for):", "",
             "| in flight × bytes | " + " | ".join(others) + " |", "|---" * (len(others) + 1) + "|"]
    for point in points:
        own = figures["ours", *point]["per_second"]["median"]
        cells = []
        for system in others:
            found = figures.get((system, *point))
            least = WANTED.get((system, point[1])) if point[2] == 128 else 0.65 if system == "floor" else None
            wanted = f" (≥ {least})" if least and found else ""
            cells.append(f"{own / found['per_second']['median']:.2f}{wanted}" if found else "–")
        lines.append(f"| {point[1]:,} × {point[2]:,} | " + " | ".join(cells) + " |")
    return lines


def _single_caller(figures: Figures) -> list[str]:
    peers = [figures.get((system, "propose", 1, 128)) for system in ("hashicorp", "dragonboat")]
    go = [found["p50_ms"]["median"] for found in peers if found]
    own = figures.get(("ours", "propose", 1, 128))
    if not go or own is None:
        return []
    ratio = own["p50_ms"]["median"] / min(go)
    return ["", f"A single caller's p50: {ratio:.2f} × the better Go library's (≤ 1.2)."]


def _others(figures: Figures) -> list[str]:
    lines = ["", "| what | in flight | per second |", "|---|---|---|"]
    for (system, case, width, size), found in sorted(figures.items()):
        if case != "propose":
            what = f"{system}: {CASES[case]}" + (f", {size} B" if size else "")
            lines.append(f"| {what} | {width:,} | {_spread(found['per_second'])} |")
    return lines if len(lines) > 3 else []


def _single(single: dict[str, Any]) -> list[str]:
    lines = ["", "| what | found | asked for |", "|---|---|---|"]
    if gap := single.get("kill_to_commit"):
        lines.append(
            f"| leader kill -9 to next commit, {gap['n']} kills | p50 {gap['p50_ms']} ms, p99 {gap['p99_ms']} ms, "
            f"most {gap['max_ms']} ms | p99 ≤ 2 election timeouts (800 ms) and ≤ 1 s |"
        )
    if gap := single.get("transfer_gap"):
        lines.append(
            f"| without service around a transfer, {gap['n']} transfers | p50 {gap['p50_ms']} ms, "
            f"most {gap['max_ms']} ms | ≤ 100 ms |"
        )
    for name, how in (("memory_singly", "singly"), ("memory_many", "by propose_many")):
        if memory := single.get(name):
            lines.append(
                f"| memory for {memory['entries']:,} entries of 16 B written {how} | leader {memory['leader_mb']} MB, "
                f"most {memory['most_mb']} MB | ≤ 150 MB for 10 million |"
            )
    if opening := single.get("opening"):
        lines.append(
            f"| opening {opening['log_bytes']:,} bytes of single-entry frames ({opening['entries']:,}) | "
            f"{opening['seconds']} s | ≤ 3 s for 1 GB |"
        )
    if importing := single.get("import_raft"):
        lines.append(f"| `import raft` | {importing['median_ms']} ms | ≤ 100 ms |")
    return lines if len(lines) > 3 else []


def markdown(results: dict[str, Any]) -> str:
    """The whole page."""
    about = results["about"]
    figures = _by_key(results)
    systems = list(dict.fromkeys([*results["notes"], *(key[0] for key in figures)]))
    lines = [
        f"`{about['command']}` at {about['commit'] or 'no commit'}: Python {about['python']}, {about['system']}, "
        f"{about['cores']} cores, load average before {about['load_average_before']:.1f}. "
        f"Median of {about['rounds']} alternated rounds of {about['seconds']} s, least and greatest in brackets; "
        "three processes on one machine; per second.", "",
    ]
    if any(key[1] == "propose" for key in figures):
        lines += _rates(figures, [s for s in systems if any(key[:2] == (s, "propose") for key in figures)])
        lines += _ratios(figures, [s for s in systems if any(key[:2] == (s, "propose") for key in figures)])
        lines += _single_caller(figures)
    lines += _others(figures) + _single(results["single"])
    lines += ["", *(f"- {name}: {note}." for name, note in results["notes"].items())]
    lines += [f"- {name}: not run: {reason}." for name, reason in results["not_run"].items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    print(markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
