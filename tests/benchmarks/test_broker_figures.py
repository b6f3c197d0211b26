"""From rounds to tables, and what counts as a gap."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.broker import parser
from benchmarks.broker_figures import GAPS, ROWS, longest_gap, page


def rate(per_second: float, failed: int = 0) -> dict[str, Any]:
    return {"per_second": per_second, "p50_us": 1_000, "p99_us": 2_500, "failed": failed, "cpu_us": 12}


def test_a_ratio_is_that_of_the_medians_with_its_aim_and_spread() -> None:
    rounds = {"all-1": {"ours": [rate(900), rate(1_100), rate(1_000)], "java": [rate(500), rate(400), rate(700)]}}
    row = next(line for line in page({"rounds": rounds}) if line.startswith(f"| {ROWS['all-1'].about}"))
    assert "1,000 (900–1,100)" in row
    assert "| 2.00 (≥ 1) |" in row
    assert "1.00, 2.50 ms" in row


def test_failed_sends_are_told() -> None:
    assert any("7 failed" in line for line in page({"rounds": {"all-32": {"ours": [rate(1, 3), rate(1, 4)]}}}))


def test_a_run_without_java_says_so_and_has_no_ratio() -> None:
    lines = list(page({"rounds": {"none-1": {"ours": [rate(10)]}, "memory": {
        "ours": [{"mb_per_million": 3.0, "resident_mb": 80.0}]}}}))
    assert sum("not run" in line for line in lines) == 3
    assert not any("2.00" in line for line in lines)


@pytest.mark.parametrize("name", GAPS)
def test_gaps_are_told_by_their_middle_and_their_worst(name: str) -> None:
    rounds = {name: {"ours": [{"gap_ms": float(gap)} for gap in range(1, 101)]}}
    assert any(" 100 | 51 ms | 100 ms | 100 ms " in line for line in page({"rounds": rounds}))


def test_what_waits_has_its_rows_and_says_what_did_not_happen() -> None:
    rounds = {"due, 1000": {
        "ours": [{"p50_ms": 500.0, "p99_ms": 1_100.0}], "java": [{"p50_ms": 400.0, "p99_ms": 1_000.0}]},
        "first": {"ours": [{"timer_ms": 300.0, "check_ms": None}], "java": [{"timer_ms": 600.0, "check_ms": 7_000.0}]}}
    lines = list(page({"rounds": rounds}))
    (late,) = [line for line in lines if "at 1,000 a second: lateness, p99" in line]
    assert late.endswith("| 1,100 | 1,000 | 1.10 |")
    (check,) = [line for line in lines if "first check" in line]
    assert check.endswith("| not run | 7,000 |  |")


def test_nothing_measured_makes_no_table() -> None:
    assert list(page({"rounds": {}})) == []


def test_the_gap_reaches_back_to_the_last_acknowledgement_before() -> None:
    acks = [0.0, 5.0, 5.1, 5.2, 7.2, 7.3]
    assert longest_gap(acks, 5.25) == pytest.approx(2.0)
    assert longest_gap(acks, 7.25) == pytest.approx(0.1)
    assert longest_gap(acks, 0.0) == pytest.approx(5.0)
    assert longest_gap([], 0.0) == 0.0


def test_every_part_is_measured_unless_told_otherwise() -> None:
    assert parser().parse_args([]).parts == [
        "send", "consume", "memory", "due", "burst", "transactions", "first", "idle", "popping", "filtered",
        "asked", "first-pop", "unacked", "catch-up", "kill", "switch"]
