"""A page shows the same of answers that are too long to be held whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis.logs import open_logs
from analysis.report import build
from tests.analysis.scene import save, story

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_long_answers_have_the_rows_and_the_totals_of_short_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    save(tmp_path / "logs", story())
    monkeypatch.setattr(build, "ROWS_SHOWN", 2)
    pages = []
    for rows_held in (5_000, 0):
        monkeypatch.setattr("analysis.logs.ANSWER_ROWS_MAX", rows_held)
        logs = open_logs(spark, str(tmp_path / "logs"))
        build.make(logs, tmp_path / "report.html", now=datetime(2026, 1, 1, tzinfo=UTC))
        pages.append((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
