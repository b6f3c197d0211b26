"""Trace files of nodes (NDJSON, ``raft.tracefile``) as one table: a row per event, in the order of its file.

A line names its node and the number of its group, but no cluster: that is told by whose logs are there.

An event's time is its process's monotonic clock. The line ``Opened``, which a process writes first, ties that clock to
the wall clock; so the time of each line comes from the latest ``Opened`` before it in the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from itertools import takewhile
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from analysis.files.filesystem import Tree
from analysis.files.finding import Home, directories
from analysis.views.paths import bare

_PATTERN: Final = re.compile(r"[][{}*?\\]")
"""Characters that Spark takes for a pattern in a path."""
FILES: Final = "*.ndjson*"
"""Names of trace files: ``n0.ndjson``, its predecessor ``n0.ndjson.1``, and either of them packed."""
_FIELDS: Final = """
    event string, at_ns bigint, node string, `group` bigint, term bigint, seen bigint,
    version int, wall_ms bigint, process bigint, sample_every bigint,
    leader string, reason string, voted_for string, last_index bigint, leadership_seq bigint, grants array<string>,
    cause string, rounds bigint, election_ms bigint, round bigint, probe boolean, asked_term bigint, result string,
    accepted bigint, valid bigint, candidate string, first bigint, last bigint, entry_term bigint, kind string,
    mark bigint, index bigint, counted boolean, ticket bigint, lease boolean, voters array<string>,
    outgoing array<string>, learners array<string>, peer string, state string, target string, message string,
    count bigint
"""
_UNSAID: Final = ("version", "wall_ms")
"""Fields of ``Opened`` from which other columns are made."""
SCHEMA: Final = ", ".join([
    *("group_id bigint" if field.startswith("`group` ") else field
      for field in map(str.strip, _FIELDS.split(",")) if field.split()[0] not in _UNSAID),
    "file string", "line struct<file_block_start: bigint, col2: bigint>", "wall_time timestamp", "wall_us bigint",
    "cluster string"])
"""Columns of ``traces``, in Spark's DDL."""


def files_under(paths: Sequence[str]) -> list[str]:
    """Return paths of traces for Spark's own readers.

    They are files on this machine, each once, whatever links lead there; on other file systems, paths above traces.
    """
    found: dict[str, str] = {}
    for path in paths:
        tree = Tree.of(path)
        here = [f"{directory.full_path()}/{entry.name}" for directory, entries in directories(tree) for entry in entries
                if not entry.is_dir and fnmatch(entry.name, FILES)]
        if tree.is_file():
            here = [tree.full_path()]
        if here and not tree.is_local:
            found[path] = path
        elif tree.is_local:
            found |= {os.path.realpath(file): "file:" + _PATTERN.sub(r"\\\g<0>", file) for file in here}
    return sorted(found.values())


def file_of_line() -> Column:
    """Path of the file of a line that Spark reads; Spark writes some letters in it as ``%20``."""
    return F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))


def traces(spark: SparkSession, paths: Sequence[str], known: Sequence[Home]) -> DataFrame:
    """One row per event in ``paths``, which ``files_under`` gives.

    Columns: its fields, ``file``, ``line`` (rises within a file), ``wall_time``, ``wall_us`` and ``cluster``.

    ``group_id`` is the group's number. Lines that are no JSON have ``event`` null. ``known``: directories of nodes;
    where several clusters have a node of the line's name and none is nearest to the file, ``cluster`` is null.
    """
    lines = spark.read.option("recursiveFileLookup", True).option("pathGlobFilter", FILES).text(list(paths)).select(
        "value", file_of_line().alias("file"),
        F.struct(F.col("_metadata.file_block_start"), F.monotonically_increasing_id()).alias("line"))
    read = lines.select(F.from_json("value", _FIELDS).alias("told"), "file", "line").select("told.*", "file", "line")
    so_far = Window.partitionBy("file").orderBy("line")
    opened = F.col("event") == "Opened"
    placed = (
        read.withColumn(
            "_ahead", F.last(F.when(opened, F.col("wall_ms") * 1_000_000 - F.col("at_ns")), True).over(so_far))
        .withColumn("sample_every", F.last("sample_every", True).over(so_far))
        .withColumn("process", F.last("process", True).over(so_far))
    )
    wall_us = ((F.col("at_ns") + F.col("_ahead")) / 1_000).cast("bigint")
    timed = placed.withColumn("wall_time", F.timestamp_micros(wall_us)).withColumn("wall_us", wall_us).drop(
        "_ahead", *_UNSAID).withColumnRenamed("group", "group_id")
    clusters = {home.cluster for home in known}
    if len(clusters) < 2:
        return timed.withColumn("cluster", F.lit(next(iter(clusters), None)).cast("string"))
    writers = read.select(bare(F.col("file")).alias("file"), "node").where("node is not null").distinct().collect()
    told = [(row["file"], row["node"], cluster_of(row["file"], row["node"], known)) for row in writers]
    named = spark.createDataFrame(told, "_file string, node string, cluster string")
    owned = timed.withColumn("_file", bare(F.col("file"))).join(named.hint("broadcast"), ["_file", "node"], "left")
    return owned.select(*timed.columns, "cluster")


def cluster_of(file: str, node: str, known: Sequence[Home]) -> str | None:
    """Return the cluster of the node that wrote a trace file; None: no such node, or several are as near.

    Of several nodes with this name it is the one whose directory shares most of its path with the file.
    """
    if len(clusters := {home.cluster for home in known}) == 1:
        return clusters.pop()
    near: dict[str, int] = {}
    for home in known:
        if home.node == node:
            pairs = zip(file.split("/"), home.root.rstrip("/").split("/"), strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            near[home.cluster] = max(shared, near.get(home.cluster, 0))
    nearest = [cluster for cluster, shared in near.items() if shared == max(near.values())]
    return nearest[0] if len(nearest) == 1 else None
