"""Findings that no single planted byte makes: each from the few rows that show it, beside rows that are sound."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from analysis.questions.audit import KINDS, audit
from analysis.questions.masters import broker_ids, master_changes
from analysis.report.findings import AUDIT_ACTIONS
from analysis.schemas import COLUMNS, DAMAGE, Format, spark_schema
from analysis.views.commands import SCHEMA

pytestmark = pytest.mark.java

TRACE = ("cluster string, file string, line int, event string, node string, group_id bigint, term bigint, "
         "index bigint, first bigint, counted boolean")


def table(spark: SparkSession, form: Format, *rows: dict[str, Any]) -> DataFrame:
    common = {"cluster": "c", "group": "g", "group_id": 1, "segment": 1, "truncated": False}
    names = [column.name for column in COLUMNS[form]]
    full = [tuple({**common, **row}.get(name) for name in names) for row in rows]
    return spark.createDataFrame(full, spark_schema(form))


def frame(node: str, index: int, mark: int, *, term: int = 1, last: int | None = None) -> dict[str, Any]:
    return {"node": node, "kind": "commands", "term": term, "index": index, "last_index": last or index, "mark": mark,
            "count": 1, "file": f"{node}.seg", "offset": 100 * index}


def trace(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame([("c", *row) for row in rows], TRACE)


def found(frames: DataFrame, events: DataFrame, told: DataFrame) -> list[tuple[str, str, int | None, str]]:
    return sorted((row["finding"], row["node"], row["index"], row["source"])
                  for row in audit(frames, events, told).collect())


def test_every_code_of_damage_and_every_finding_has_words_and_an_action() -> None:
    assert set(DAMAGE) <= set(KINDS)
    assert set(AUDIT_ACTIONS) == set(KINDS)


def test_what_frames_show(spark: SparkSession) -> None:
    frames = table(
        spark, "frames",
        *[frame(node, index, index) for node in ("n0", "n1", "n2") for index in (1, 2)],
        frame("n0", 5, 5),                                   # 3 and 4 are not there
        frame("n1", 3, 33, term=3), frame("n1", 4, 44, term=2),  # a term falls
        frame("n2", 3, 333, term=1))                         # n2's differs from n1's: an older leader's
    quiet = table(spark, "events")
    assert found(frames, quiet, trace(spark)) == [
        ("gap", "n0", 5, "log"), ("stale_suffix", "n2", 3, "log"), ("term_regression", "n1", 4, "log")]
    knew = trace(spark, ("t", 1, "CommitAdvanced", "n2", 1, 1, 3, None, False))
    assert ("committed_divergence", "n2", 3, "trace") in found(frames, quiet, knew)


def test_a_hole_that_damage_explains_is_told_once(spark: SparkSession) -> None:
    hurt = {"node": "n0", "group": None, "kind": "damage", "damage": "crc", "reason": "bits", "file": "n0.seg",
            "offset": 250}
    frames = table(spark, "frames", frame("n0", 1, 1), frame("n0", 5, 5), hurt)
    assert [name for name, *_ in found(frames, table(spark, "events"), trace(spark))] == ["crc"]


def test_what_events_show(spark: SparkSession) -> None:
    def event(kind: str, node: str, write: int, **fields: Any) -> dict[str, Any]:
        return {"kind": kind, "node": node, "write": write, "file": f"{node}.seg", "offset": write, **fields}

    events = table(
        spark, "events",
        event("noop", "n0", 1, term=1, index=1, mark=1), event("noop", "n1", 1, term=1, index=1, mark=1),
        event("noop", "n1", 9, term=1, index=7, mark=9),                               # another leadership of term 1
        event("hard_state", "n0", 2, term=2, voted_for="n1"), event("state", "n0", 3, term=2, voted_for="n1"),
        event("hard_state", "n0", 4, term=2, voted_for="n2"),                          # voted twice
        event("install", "n2", 1, term=1, index=50), event("truncate", "n2", 2, term=1, index=40),
        event("truncate", "n1", 10, term=1, index=6))
    told = trace(
        spark,
        ("t0", 1, "CommitAdvanced", "n0", 1, 1, 8, None, True), ("t0", 2, "Truncated", "n0", 1, 1, None, 8, None),
        ("t1", 1, "CommitAdvanced", "n1", 1, 1, 6, None, False), ("t1", 2, "Truncated", "n1", 1, 1, None, 7, None))
    assert found(table(spark, "frames"), events, told) == [
        ("truncated_committed", "n0", 8, "trace"), ("truncated_committed", "n2", 40, "log"),
        ("two_leaders", "n1", 7, "log"), ("two_votes", "n0", None, "log")]


def test_ids_bound_twice_and_unclean_elections(spark: SparkSession) -> None:
    def row(index: int, what: str, **fields: Any) -> dict[str, Any]:
        return {"cluster": "c", "group": "g", "index": index, "wall_ms": index, "node": "n0", "file": "f",
                "offset": index, "what": what, "is_change": True, "broker_cluster": "b", "broker_name": "b0", **fields}

    made = [row(1, "BrokerAdded", broker_id=1, check_code="h1:1;1"),
            row(2, "BrokerAdded", broker_id=2, check_code="h2:1;2"),
            row(3, "BrokerAdded", broker_id=1, check_code="h3:1;3"),
            row(4, "MasterChanged", master=2, previous=1, master_epoch=2, clean=False)]
    names = [part.split("`")[1] for part in SCHEMA.split(", ")]
    history = spark.createDataFrame([tuple(each.get(name) for name in names) for each in made], SCHEMA)
    (twice,) = broker_ids(history).collect()
    assert (twice["finding"], twice["broker_id"], twice["index"]) == ("bound_twice", 1, 3)
    assert twice["detail"] == "was bound to h1:1;1, and is given to h3:1;3"
    (change,) = master_changes(history).collect()
    assert (change["master"], change["clean"]) == (2, False)
