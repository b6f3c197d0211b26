"""Small logs that the driver reads itself: the same tables as through Spark's workers, and the way back to those."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis import small
from analysis.logs import Logs, open_logs
from analysis.views import commands
from tests.analysis.scene import plant, save, story, write_traces

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    plant(root)
    return root


def table(logs: Logs, view: str) -> tuple[list[tuple[str, str]], list[str]]:
    found = getattr(logs, view)
    return found.dtypes, sorted(map(repr, found.collect()))


def test_the_same_rows_as_the_workers_give(spark: SparkSession, tree: Path) -> None:
    here, there = (open_logs(spark, str(tree), in_driver=driver) for driver in (True, False))
    for view in ("frames", "events", "history"):
        assert table(here, view) == table(there, view), view
        assert table(here, view)[1]
    assert here.in_driver


def test_workers_read_what_is_too_much(
    spark: SparkSession, tree: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(small, "SEGMENT_BYTES_MAX", 100)
        assert not open_logs(spark, str(tree)).in_driver
    monkeypatch.setattr(small, "ROW_BYTES_MAX", 100)
    logs = open_logs(spark, str(tree))
    assert logs.in_driver
    assert logs.frames.count() > 0 and not logs.in_driver


def test_views_of_nothing_have_the_columns_of_those_with_rows(spark: SparkSession, tmp_path: Path) -> None:
    save(tmp_path / "bare", story())
    save(tmp_path / "traced", story())
    write_traces(tmp_path / "traced", story())
    (tmp_path / "traced" / "n0" / "snapshots").mkdir(exist_ok=True)
    (tmp_path / "traced" / "n0" / "snapshots" / f"1-{3:020d}-1.snap").write_bytes(b"x")
    bare, traced = (open_logs(spark, str(tmp_path / name)) for name in ("bare", "traced"))
    told = [(name, "struct" if name == "line" else kind) for name, kind in bare.trace.dtypes]
    assert told == [(name, "struct" if name == "line" else kind) for name, kind in traced.trace.dtypes]
    assert bare.trace.count() == 0 and traced.trace.count() > 0
    assert traced.snapshots.dtypes == bare.snapshots.dtypes
    assert bare.snapshots.count() == 0 and traced.snapshots.count() == 1
    assert bare.history.columns == [part.split("`")[1] for part in commands.SCHEMA.split(", ")]
