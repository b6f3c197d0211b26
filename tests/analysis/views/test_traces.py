"""Which trace files there are, and whose, where several clusters have nodes of one name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis.errors import NothingToRead
from analysis.files.finding import Home
from analysis.logs import open_logs
from analysis.views.traces import cluster_of, files_under
from tests.analysis.scene import save, story, write_traces

KNOWN = [Home("east", "n0", "/data/east/n0"), Home("west", "n0", "/data/west/n0"), Home("west", "n1", "/data/west/n1")]


@pytest.mark.parametrize(("file", "node", "cluster"), [
    ("/data/east/n0/trace.ndjson", "n0", "east"),
    ("/data/west/traces/n0.ndjson", "n0", "west"),
    ("/var/log/n1.ndjson", "n1", "west"),          # there is one n1 only
    ("/var/log/n0.ndjson", "n0", None),            # as near to one as to the other
    ("/data/eastern/n0.ndjson", "n0", None),
    ("/data/west/n9.ndjson", "n9", None),
])
def test_the_nearest_node_of_that_name(file: str, node: str, cluster: str | None) -> None:
    assert cluster_of(file, node, KNOWN) == cluster


def test_the_only_cluster_has_them_all() -> None:
    assert cluster_of("/var/log/n9.ndjson", "n9", KNOWN[:1]) == "east"


@pytest.mark.java
@pytest.mark.parametrize("name", ["with space, and comma", "100%25", "[a]{b}*?", "a+b#c"])
def test_directories_may_be_called_anything(spark: SparkSession, tmp_path: Path, name: str) -> None:
    for cluster in ("c", "d"):
        save(tmp_path / name / cluster, story(), cluster=cluster)
        write_traces(tmp_path / name / cluster / "traces", story())
    logs = open_logs(spark, str(tmp_path / name))
    assert {(row["cluster"], row["file"]) for row in logs.trace.where("node is not null").collect()} == {
        (cluster, f"file:{tmp_path}/{name}/{cluster}/traces/{node}.ndjson")
        for cluster in ("c", "d") for node in ("n0", "n1")}


def test_a_file_with_two_names_is_told_once(tmp_path: Path) -> None:
    write_traces(tmp_path / "42" / "traces", story())
    for name, target in (("latest", "42"), ("1-all", "."), ("2-all", ".")):
        (tmp_path / name).symlink_to(target)
    once = [f"file:{tmp_path}/42/traces/{node}.ndjson" for node in ("n0", "n1")]
    assert files_under([str(tmp_path)]) == files_under([str(tmp_path), f"{tmp_path}/42/traces/n1.ndjson"]) == once
    assert files_under([f"{tmp_path}/42/traces/n0.ndjson"]) == once[:1]


@pytest.mark.java
def test_a_directory_that_is_named_for_its_traces_has_some(spark: SparkSession, tmp_path: Path) -> None:
    save(tmp_path / "logs", story())
    for path in (tmp_path / "nope", tmp_path / "logs"):
        with pytest.raises(NothingToRead, match=r"no trace file"):
            open_logs(spark, str(tmp_path / "logs"), traces=str(path))
