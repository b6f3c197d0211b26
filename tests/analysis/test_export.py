"""``raftlog export``: what is written is what was read, by group and day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analysis.export import export, main
from raft import raftlog
from tests.analysis.by_hand import Log, frames, mark_of

pytestmark = [pytest.mark.java, pytest.mark.slow]
DAY_MS = 86_400_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def two_days(root: Path) -> Log:
    log = Log()
    log.begin()
    first = frames(1, [2], wall_ms=20_000 * DAY_MS)
    log.block(*first, *frames(1, [1], group=2, wall_ms=20_000 * DAY_MS))
    log.block(*frames(3, [3], wall_ms=20_001 * DAY_MS, chain=mark_of(first[0])))
    log.block()
    log.save(root)
    return log


def test_parquet_by_group_and_day(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_days(tmp_path / "n0")
    out = tmp_path / "out"
    done = export(spark, [str(tmp_path / "n0")], str(out))
    assert (done.rows, done.damage) == (6, ())
    assert sorted(str(path.parent.relative_to(out)) for path in out.rglob("*.parquet")) == [
        "group=1/day=2024-10-04", "group=1/day=2024-10-05", "group=2/day=2024-10-04"]
    table = pq.read_table(out).select(["group", "index", "payload"]).to_pylist()
    assert sorted((str(row["group"]), row["index"], row["payload"]) for row in table) == [
        *(("1", index, f"entry {index}".encode()) for index in range(1, 6)), ("2", 1, b"entry 1")]
    found = pq.read_table(out).select(["wall_ms", "wall_time"]).to_pylist()
    assert found and all(
        row["wall_time"].replace(tzinfo=UTC) == EPOCH + timedelta(milliseconds=row["wall_ms"]) for row in found)
    assert main([str(tmp_path / "n0"), "--out", str(out)]) == 1
    assert "is there already" in capsys.readouterr().err


def test_the_command(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = two_days(tmp_path / "n0")
    path = tmp_path / "n0" / "log" / f"{1:020d}.seg"
    data = bytearray(path.read_bytes())
    data[log.starts[1][1] + 64 + 70] ^= 1
    path.write_bytes(data)
    out = str(tmp_path / "out")
    narrowed = ["--option", "groups=1", "--payload", "none"]
    assert raftlog.main(["export", str(tmp_path / "n0"), "--out", out, *narrowed]) == 1
    said = capsys.readouterr()
    assert "4 rows in" in said.out
    assert f"DAMAGED {path} at byte {log.starts[1][1] + 64}" in said.err
    assert main([str(tmp_path / "nothing"), "--out", str(tmp_path / "out2")]) == 1
    assert capsys.readouterr().err == f"raftlog export: {tmp_path}/nothing: there is no such directory\n"
