"""The floor runs and prints rows that the report can read; no figure is asserted."""

from __future__ import annotations

from pathlib import Path

from benchmarks.systems import Floor, Load, run_once


def test_floor_answers_every_width(tmp_path: Path) -> None:
    rows = run_once(Floor(), tmp_path, Load((1, 8), 128, 0.2))
    assert [(row.case, row.width, row.size_bytes) for row in rows] == [("propose", 1, 128), ("propose", 8, 128)]
    assert all(row.per_second > 0 and row.p50_ms <= row.p99_ms for row in rows)
    assert list(tmp_path.iterdir()) == []
