"""Snapshot files beside the logs: group, index and term are in their names, so that no file is opened for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from analysis.source.finding import Home

FILES: Final = "*.snap"
SCHEMA: Final = ("cluster string, directory string, group_id bigint, `index` bigint, term bigint, bytes bigint, "
                 "taken_ms bigint, file string, content binary")
"""Of ``snapshots`` with content, in Spark's DDL."""
_NAME: Final = r"^(.*)/snapshots/([0-9]+)-([0-9]{20})-([0-9]+)\.snap$"


def snapshots(
    spark: SparkSession, paths: Sequence[str], known: Sequence[Home], *, content: bool = False,
) -> DataFrame:
    """One row per finished snapshot under ``paths``: cluster and ``directory`` of its node, group_id, index, term,
    bytes, taken_ms.

    ``known``: the nodes' directories. ``content``: also the bytes of the file.
    """
    found = spark.read.format("binaryFile").option("recursiveFileLookup", True).option(
        "pathGlobFilter", FILES).load(list(paths))

    def part(number: int) -> Column:
        return F.regexp_extract("path", _NAME, number)

    named = found.where(part(2) != "").select(
        bare(part(1)).alias("directory"), part(2).cast("bigint").alias("group_id"),
        part(3).cast("bigint").alias("index"), part(4).cast("bigint").alias("term"), F.col("length").alias("bytes"),
        F.unix_millis("modificationTime").alias("taken_ms"), F.col("path").alias("file"),
        *([F.col("content")] if content else []))
    owners = spark.createDataFrame([(home.cluster, home.root) for home in known], "cluster string, directory string")
    return named.join(owners.hint("broadcast"), "directory", "left").select("cluster", *named.columns)


def directory_of(file: Column) -> Column:
    """The node's directory, from the path of a segment in it."""
    return bare(F.regexp_extract(file, r"^(.*)/log/[^/]+$", 1))


def bare(path: Column) -> Column:
    """A path of the local file system without its scheme; others stay as they are."""
    return F.regexp_replace(path, "^file:/*", "/")
