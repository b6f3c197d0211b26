"""The rows of the broker's benchmark, and from their rounds to a table of Markdown. Pure: runs and measures nothing.

    python -m benchmarks.broker_figures benchmarks/results/broker.json     # prints the table again
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import attrs

from benchmarks.broker_popping import rows as popping_rows
from benchmarks.broker_waiting import rows as waiting_rows
from benchmarks.measure import quantile

Rounds = Sequence[Mapping[str, Any]]


@attrs.frozen
class Row:
    """One load of the Java producer."""

    name: str
    about: str
    mode: str
    """``all``: every replica in the SyncStateSet acknowledges; ``none``: none has to."""
    threads: int
    batch: int
    body_bytes: int
    aim: float | None = None
    """Least ratio of ours to Java's."""


ROWS: Final = {row.name: row for row in (
    Row("all-1", "send 128 B, ack by all, 1 thread", "all", 1, 1, 128, 1.0),
    Row("all-32", "send 128 B, ack by all, 32 threads", "all", 32, 1, 128, 0.5),
    Row("all-batch", "batches of 32 x 128 B, ack by all, 8 threads", "all", 8, 32, 128, 0.5),
    Row("all-1k", "send 1 KiB, ack by all, 32 threads", "all", 32, 1, 1_024),
    Row("none-1", "send 128 B, no replica's ack, 1 thread", "none", 1, 1, 128, 0.5),
    Row("none-32", "send 128 B, no replica's ack, 32 threads", "none", 32, 1, 128, 0.5),
    Row("none-batch", "batches of 32 x 128 B, no replica's ack, 8 threads", "none", 8, 32, 128),
    Row("none-1k", "send 1 KiB, no replica's ack, 32 threads", "none", 32, 1, 1_024),
)}
GAPS: Final = {
    "kill, all": ("master killed with -9, ack by all", "p99 ≤ 300 ms"),
    "kill, none": ("master killed with -9, default mode", "p99 ≤ 300 ms"),
    "switch, all": ("master stopped in order, ack by all", ""),
}
CATCH_UPS: Final = {"catch-up": 1_024, "catch-up, small": 128}
"""Bytes of the bodies that an empty replica copies."""


def longest_gap(acks: Sequence[float], since: float) -> float:
    """The longest time between two acknowledgements, of those at or after ``since`` and the last one before it."""
    lately = acks[max(0, bisect_left(acks, since) - 1):]
    return max((after - before for before, after in pairwise(lately)), default=0.0)


def middle(rounds: Rounds, key: str) -> float:
    return float(median(one[key] for one in rounds))


def page(results: Mapping[str, Any]) -> Iterator[str]:
    """The tables."""
    rounds: Mapping[str, Mapping[str, Rounds]] = results["rounds"]
    yield from _sends(rounds)
    yield from _others(rounds)
    yield from _gaps(rounds)


def _sends(rounds: Mapping[str, Mapping[str, Rounds]]) -> Iterator[str]:
    if not any(name in rounds for name in ROWS):
        return
    yield "| the same Java producer on both | ours, messages/s | Java | ratio (aim) | p50, p99 ours | p50, p99 Java "\
          "| CPU of the three brokers for each message, ours and Java |"
    yield "|---|---|---|---|---|---|---|"
    for name, row in ROWS.items():
        if name in rounds:
            found = rounds[name]
            aim = f" (≥ {row.aim:g})" if row.aim else ""
            cells = (row.about, _rate(found, "ours"), _rate(found, "java"), _ratio(found, "per_second") + aim,
                     _latency(found, "ours"), _latency(found, "java"), _each(found, "cpu_us", " µs"))
            yield f"| {' | '.join(cells)} |"
    yield ""


def _others(rounds: Mapping[str, Mapping[str, Rounds]]) -> Iterator[str]:
    rows = [
        ("consume", "per_second", "consuming 128 B, Java push consumer with its defaults, messages/s"),
        ("consume", "cpu_us", "the same, CPU of the brokers for each message, µs"),
        ("catch-up", "mb_per_second", "an empty replica copies bodies of 1 KiB, MB/s of the log (ratio ≥ 1)"),
        ("catch-up", "level_s", "the same, from the last byte until its consume queues are level, s (≤ 2)"),
        ("catch-up", "cpu_ms_per_mb", "the same, CPU of all brokers, ms for each MB"),
        ("catch-up, small", "mb_per_second", "an empty replica copies bodies of 128 B, MB/s of the log"),
        ("catch-up, small", "level_s", "the same, from the last byte until its consume queues are level, s"),
        ("catch-up, small", "cpu_ms_per_mb", "the same, CPU of all brokers, ms for each MB"),
        ("memory", "mb_per_million", "growth of the master's memory for a million messages of 128 B, MB"),
        ("memory", "resident_mb", "the master's memory after them, without mapped files, MB"),
    ]
    rows = [row for row in rows if row[0] in rounds] + waiting_rows(rounds) + popping_rows(rounds)
    if not rows:
        return
    yield "| | ours | Java | ratio |"
    yield "|---|---|---|---|"
    for name, key, about in rows:
        found = rounds[name]
        yield f"| {about} | {_value(found, 'ours', key)} | {_value(found, 'java', key)} | {_ratio(found, key)} |"
    yield ""


def _gaps(rounds: Mapping[str, Mapping[str, Rounds]]) -> Iterator[str]:
    if not any(name in rounds for name in GAPS):
        return
    yield "| longest time without an acknowledgement, our client on our cluster | times | p50 | p99 | most | aim |"
    yield "|---|---|---|---|---|---|"
    for name, (about, aim) in GAPS.items():
        if name in rounds:
            gaps = sorted(one["gap_ms"] for one in rounds[name]["ours"])
            cells = " | ".join(f"{quantile(gaps, share):,.0f} ms" for share in (0.5, 0.99, 1.0))
            yield f"| {about} | {len(gaps)} | {cells} | {aim} |"
    yield ""


def _rate(found: Mapping[str, Rounds], system: str) -> str:
    if system not in found:
        return "not run"
    rates = [one["per_second"] for one in found[system]]
    failed = sum(one["failed"] for one in found[system])
    spread = f"{median(rates):,.0f} ({min(rates):,.0f}–{max(rates):,.0f})"
    return f"{spread}, {failed} failed" if failed else spread


def _latency(found: Mapping[str, Rounds], system: str) -> str:
    if system not in found:
        return ""
    return ", ".join(f"{middle(found[system], key) / 1e3:.2f}" for key in ("p50_us", "p99_us")) + " ms"


def _value(found: Mapping[str, Rounds], system: str, key: str) -> str:
    return f"{middle(found[system], key):,.4g}" if _has(found, system, key) else "not run"


def _each(found: Mapping[str, Rounds], key: str, unit: str) -> str:
    return ", ".join(f"{middle(found[system], key):.0f}{unit}" for system in ("ours", "java") if system in found)


def _has(found: Mapping[str, Rounds], system: str, key: str) -> bool:
    return system in found and all(one[key] is not None for one in found[system])


def _ratio(found: Mapping[str, Rounds], key: str) -> str:
    if not _has(found, "java", key) or not _has(found, "ours", key) or not middle(found["java"], key):
        return ""
    return f"{middle(found['ours'], key) / middle(found['java'], key):.2f}"


def main() -> int:
    print("\n".join(page(json.loads(Path(sys.argv[1]).read_text()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
