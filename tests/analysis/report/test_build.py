"""A table of a page shows the same of an answer that is too long to be held whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis.logs import open_logs
from analysis.questions import QUESTIONS
from analysis.report import build
from tests.analysis.scene import save, story

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_long_answers_have_the_rows_and_the_totals_of_short_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    save(tmp_path, story())
    monkeypatch.setattr(build, "ROWS_SHOWN", 1)
    shown = []
    for rows_held in (5_000, 0):
        monkeypatch.setattr("analysis.logs.ANSWER_ROWS_MAX", rows_held)
        logs = open_logs(spark, str(tmp_path))
        logs.keep()
        shown.append([build._table(logs, QUESTIONS[name]) for name in ("leadership", "sync_state_sets")])
        logs.release()
    short, long = shown
    assert short == long
    assert any(table.total > len(table.rows) == 1 for table in short)
