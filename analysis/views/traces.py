"""Trace files of nodes (NDJSON, ``raft.tracefile``) as one table: a row per event, in the order of its file.

An event's time is its process's monotonic clock. The line ``Opened``, which a process writes first, ties that clock to
the wall clock; so the time of each line comes from the latest ``Opened`` before it in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

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
"""Of ``Opened``: what other columns are made of."""
SCHEMA: Final = ", ".join([
    *("group_id bigint" if field.startswith("`group` ") else field
      for field in map(str.strip, _FIELDS.split(",")) if field.split()[0] not in _UNSAID),
    "file string", "line struct<file_block_start: bigint, col2: bigint>", "wall_us bigint"])
"""Of ``traces``, in Spark's DDL."""


def traces(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Every event under ``paths``: its fields, ``file``, ``line`` (rises within a file) and ``wall_us``.

    ``group_id`` is the group's number. Lines that are no JSON have ``event`` null.
    """
    lines = spark.read.option("recursiveFileLookup", True).option("pathGlobFilter", FILES).text(list(paths)).select(
        "value", F.col("_metadata.file_path").alias("file"),
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
    return placed.withColumn("wall_us", ((F.col("at_ns") + F.col("_ahead")) / 1_000).cast("bigint")).drop(
        "_ahead", *_UNSAID).withColumnRenamed("group", "group_id")
