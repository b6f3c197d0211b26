"""The page made from a benchmark's figures: medians, spread, ratios, and what was not run."""

from __future__ import annotations

from typing import Any

from benchmarks.report import markdown


def figure(system: str, width: int, median: float) -> dict[str, Any]:
    def spread(value: float) -> dict[str, float]:
        return {"median": value, "low": value / 2, "high": value * 2, "runs": 5}

    return {"system": system, "case": "propose", "width": width, "size_bytes": 128,
            "per_second": spread(median), "p50_ms": spread(0.5), "p99_ms": spread(1.0)}


def results(**changes: Any) -> dict[str, Any]:
    about = {"command": "c", "commit": "abc", "python": "3.11", "system": "s", "cores": 2, "load_average_before": 0.1,
             "rounds": 5, "seconds": 1}
    return {"about": about, "notes": {}, "not_run": {}, "single": {}, "figures": []} | changes


def test_ratio_of_ours_to_each_with_what_was_asked_for() -> None:
    page = markdown(results(figures=[figure("floor", 64, 100_000), figure("ours", 64, 70_000)]))
    assert "| 64 × 128 | 100,000 (50,000–200,000)<br>p50 0.50 (0.25–1.00) ms |" in page
    assert "| 64 × 128 | 0.70 (≥ 0.65) |" in page


def test_single_callers_ratio_is_to_the_better_go_library() -> None:
    slow = figure("dragonboat", 1, 1_000) | {"p50_ms": {"median": 1.0, "low": 1.0, "high": 1.0, "runs": 5}}
    page = markdown(results(figures=[figure("ours", 1, 2_000), figure("hashicorp", 1, 2_000), slow]))
    assert "A single caller's p50: 1.00 × the better Go library's" in page


def test_what_was_not_run_is_said() -> None:
    page = markdown(results(not_run={"dragonboat": "Go is not installed here"}))
    assert "- dragonboat: not run: Go is not installed here." in page


def test_figures_that_are_no_rates() -> None:
    gap = {"n": 30, "p50_ms": 500.0, "p99_ms": 700.0, "max_ms": 701.0, "all_ms": []}
    assert "30 kills | p50 500.0 ms, p99 700.0 ms, most 701.0 ms" in markdown(results(single={"kill_to_commit": gap}))
