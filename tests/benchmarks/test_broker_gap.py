"""Gaps are read off a producer's reports: around the failover alone, and between sends that succeeded."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.broker_gap import child_of, error, longest_pause_ms, summary


def sends(*ends_ms: tuple[int, bool]) -> list[dict[str, object]]:
    return [{"ended_us": at * 1000, "ok": good} for at, good in ends_ms]


def test_the_pause_ends_within_the_time_looked_at() -> None:
    sent = sends((0, True), (900, True), (905, False), (960, False), (1_100, True), (1_105, True))
    assert longest_pause_ms(sent, 903_000, 2_000_000) == 200
    assert longest_pause_ms(sent, 0, 903_000) == 900
    assert longest_pause_ms(sent, 2_000_000, 3_000_000) == 0


def test_the_innermost_words_count_without_their_numbers() -> None:
    assert error({"error": "Send [3] times", "cause": "CODE: 14 DESC: no\nmore"}) == "CODE: 0 DESC: no"
    assert error({"error": "Send [3] times"}) == "Send [0] times"
    assert error({"status": "FLUSH_SLAVE_TIMEOUT"}) == "FLUSH_SLAVE_TIMEOUT"


def test_the_summary_leaves_out_what_went_wrong() -> None:
    found = [{"how": "killed", "gap_ms": float(gap)} for gap in (30, 10, 20)] + [{"how": "switched", "error": "no"}]
    assert summary(found) == {"summary": {"killed": {"n": 3, "p50_ms": 20.0, "max_ms": 30.0}}}


def test_the_child_of_a_process() -> None:
    child = "subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE)"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; child = {child}; print(child.pid, flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    started = int(parent.stdout.readline())
    assert child_of(parent.pid) == started
    parent.communicate("\n")
