"""``spark.read.format("raftlog")`` on hand-made directories: rows, pushdown, damage, words for bad input."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from analysis.errors import JavaMissing
from analysis.schemas import COLUMNS, FORMATS, Format
from analysis.session import check_java, session
from analysis.source.metrics import collect
from tests.analysis.by_hand import SEGMENT_BYTES, Log, frames, mark_of, save_identity, segment_file, span, state

pytestmark = [pytest.mark.java, pytest.mark.slow]

SEGMENTS = 8
PER_SEGMENT = 6
HOUR_4 = "timestamp '1970-01-01 04:00:00Z'"


def long_log() -> Log:
    """Eight segments of six entries each; segment n holds term n, built in the n-th hour."""
    log, mark, term = Log(), 0, 0
    for number in range(SEGMENTS):
        index = number * PER_SEGMENT
        log.begin(*([state(1, index, term, mark)] if number else []))
        term = number + 1
        made = frames(index + 1, [1, PER_SEGMENT - 1], term=term, chain=mark, wall_ms=term * 3_600_000)
        at = log.block(*made) + 64
        mark = mark_of(made[-1])
        if term < SEGMENTS:
            log.footer(span(1, index + 1, (index + PER_SEGMENT, term, mark), at, term=term))
    log.block()
    return log


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for node in ("n0", "n1", "n2"):
        long_log().save(tmp_path / "fleet" / node, node=node)
    return tmp_path / "fleet"


def load(spark: SparkSession, path: Path, form: Format = "entries", **options: object) -> DataFrame:
    reader = spark.read.format("raftlog").option("format", form)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


def test_every_format_has_the_columns_it_says(spark: SparkSession, fleet: Path) -> None:
    for form in FORMATS:
        found = load(spark, fleet, form)
        assert [(field.name, field.dataType.simpleString()) for field in found.schema] == [
            (column.name, column.type) for column in COLUMNS[form]]


def test_only_the_columns_that_are_wanted(spark: SparkSession, fleet: Path) -> None:
    whole = spark.read.format("raftlog").load(str(fleet))
    few = spark.read.format("raftlog").option("columns", "index, term,index").load(str(fleet))
    assert few.columns == ["index", "term"]
    assert sorted(map(tuple, few.collect())) == sorted(map(tuple, whole.select("index", "term").collect()))


def test_entries_of_three_nodes(spark: SparkSession, fleet: Path) -> None:
    found = load(spark, fleet, payload="full")
    assert sorted((row["node"], row["index"], bytes(row["payload"])) for row in found.collect()) == sorted(
        (node, index, f"entry {index}".encode())
        for node in ("n0", "n1", "n2") for index in range(1, SEGMENTS * PER_SEGMENT + 1))
    assert load(spark, fleet, "frames").groupBy("node").sum("count").collect()[0][1] == SEGMENTS * PER_SEGMENT
    assert load(spark, fleet, "events").where("kind = 'opened'").count() == 3


def test_a_list_of_paths(spark: SparkSession, fleet: Path) -> None:
    both = spark.read.format("raftlog").load([str(fleet / "n0"), str(fleet / "n2")])
    assert {row["node"] for row in both.select("node").distinct().collect()} == {"n0", "n2"}


@pytest.mark.parametrize("where", [
    "index between 20 and 22", "term = 4", "node = 'n1' and index = 20", "term in (4, 5) and index < 25",
    f"wall_ms >= {4 * 3_600_000} and wall_ms < {5 * 3_600_000}",
    f"wall_time >= {HOUR_4} and wall_time < {HOUR_4} + interval 1 hour",
])
def test_a_narrow_filter_reads_only_the_segments_that_hold_it(
    spark: SparkSession, fleet: Path, tmp_path: Path, where: str,
) -> None:
    everything = load(spark, fleet).cache()
    expected = sorted(map(tuple, everything.where(where).select("node", "index", "term").collect()))
    everything.unpersist()
    assert expected
    metrics = tmp_path / "metrics"
    found = load(spark, fleet, metrics=metrics, partition_mb=1, clock_slack_ms=0).where(where)
    assert sorted(map(tuple, found.select("node", "index", "term").collect())) == expected
    read = collect(str(metrics))
    nodes = 1 if "node" in where else 3
    assert read["segments"] <= 3 * nodes  # what matches, a neighbour by time, and the open one
    assert read["bytes_read"] <= 3.1 * nodes * SEGMENT_BYTES
    assert read["planned_bytes"] < 1.2 * 3 * SEGMENT_BYTES  # heads, footers, and the open one for what it has cut off


def test_bounds_by_option_are_the_same(spark: SparkSession, fleet: Path, tmp_path: Path) -> None:
    found = load(spark, fleet, nodes="n1,n2", min_index=20, max_index=21, metrics=tmp_path / "metrics")
    assert sorted(map(tuple, found.select("node", "index").collect())) == [
        ("n1", 20), ("n1", 21), ("n2", 20), ("n2", 21)]
    assert collect(str(tmp_path / "metrics"))["segments"] == 4


def test_planted_damage_gives_exactly_these_rows(spark: SparkSession, fleet: Path) -> None:
    for form in FORMATS:
        assert load(spark, fleet, form).where("damage is not null").count() == 0
    log = long_log()
    flipped, missing, cut = (segment_file(fleet / "n0", 3), segment_file(fleet / "n1", 5),
                             segment_file(fleet / "n2", SEGMENTS))
    at = dict(log.starts)[3] + 64
    data = bytearray(flipped.read_bytes())
    data[at + 66] ^= 1
    flipped.write_bytes(data)
    missing.unlink()
    end = [offset for segment, offset in log.starts if segment == SEGMENTS][1]
    cut.write_bytes(cut.read_bytes()[: end + 90])
    expected = [("n0", str(flipped), at, "crc"), ("n1", str(missing), 0, "missing"), ("n2", str(cut), end, "cut")]
    for form in FORMATS:
        rows = load(spark, fleet, form).where("damage is not null").collect()
        assert sorted((row["node"], row["file"], row["offset"], row["damage"]) for row in rows) == expected
        assert all(row["reason"] for row in rows)
    counts = {row[0]: row[1] for row in load(spark, fleet).where("damage is null").groupBy("node").count().collect()}
    whole = SEGMENTS * PER_SEGMENT
    assert counts == {"n0": whole - 1, "n1": whole - PER_SEGMENT, "n2": whole - PER_SEGMENT}


def test_bad_input_says_one_clear_sentence(spark: SparkSession, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "data.csv").write_text("1,2\n")
    for path, words in ((empty, "is empty"), (foreign, "no Raft log"), (tmp_path / "none", "no such directory")):
        with pytest.raises(PySparkException, match=words):
            load(spark, path).count()
    with pytest.raises(PySparkException, match="unknown option 'colour'"):
        load(spark, empty, colour="red")
    with pytest.raises(PySparkException, match="entries has no column 'colour'"):
        load(spark, empty, columns="index,colour")


def test_mixed_versions_are_damage_of_their_node(spark: SparkSession, fleet: Path) -> None:
    save_identity(fleet / "n1", node="n1", form=9)
    rows = load(spark, fleet).where("damage is not null").collect()
    assert [(row["file"], row["damage"]) for row in rows] == [(str(fleet / "n1" / "identity"), "version")]
    assert "format 9" in rows[0]["reason"]
    assert load(spark, fleet).where("damage is null").select("node").distinct().count() == 2


def test_workers_run_the_interpreter_that_registered(spark: SparkSession, fleet: Path) -> None:
    """Not the ``python3`` of Spark's PATH, which cannot run this."""
    assert spark.sparkContext.pythonExec == sys.executable
    assert load(spark, fleet).where("index = 20").count() == 3


def test_without_java_a_clear_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissing, match=r"no `java` is on PATH.*apt-get install"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="no bin/java"):
        check_java()
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_302\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(JavaMissing, match="is Java 8"):
        check_java()


def test_a_new_session_shows_times_in_utc(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Mock()
    builder.appName.return_value = builder.config.return_value = builder.master.return_value = builder
    builder.getOrCreate.return_value = spark
    monkeypatch.setattr(sys.modules["analysis.session"], "SparkSession", Mock(
        builder=builder, getActiveSession=Mock(return_value=None)))
    assert session("local[1]") is spark
    assert call("spark.sql.session.timeZone", "UTC") in builder.config.call_args_list
