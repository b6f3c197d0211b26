"""Times from a leader's writing of entries to its knowing them committed, from its trace.

The log has no commit times. A trace keeps one in ``sample_every`` of the two events: with 1 the figures are exact; with
more, a sampled commit may come later than the one that counted, so they are upper bounds.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from analysis.questions.leadership import GROUP, NOT_RECORDED, TRACE

_PLACE = ("cluster", "node", "group_id", "process", "file")
_LED = ("cluster", "node", "group_id", "term")


def samples(trace: DataFrame) -> DataFrame:
    """One row per traced frame of a leader that it later knew committed: index, when (wall_us) and commit_us."""
    commits = trace.where("event = 'CommitAdvanced' and counted").select(
        *_PLACE, "term", F.col("index").alias("_at"), F.lit(1).alias("_is_commit"), F.col("at_ns").alias("_commit_ns"),
        F.lit(None).cast("bigint").alias("_write_ns"), "wall_us", "sample_every")
    led = commits.select(*_LED).distinct()
    writes = trace.where("event = 'Appended' and entry_term = term").join(
        led, [*_LED], "left_semi")
    both = commits.unionByName(writes.select(
        *_PLACE, "term", F.col("last").alias("_at"), F.lit(0).alias("_is_commit"),
        F.lit(None).cast("bigint").alias("_commit_ns"), F.col("at_ns").alias("_write_ns"), "wall_us", "sample_every"))
    downwards = Window.partitionBy(*_PLACE, "term").orderBy(F.desc("_at"), F.desc("_is_commit"), F.desc("_commit_ns"))
    # Commits rise with time: from high to low indexes, the last one seen is the first that covers the entry.
    return both.withColumn("_done", F.last("_commit_ns", ignorenulls=True).over(downwards)).where(
        "_is_commit = 0 and _done is not null and _done >= _write_ns").select(
        *_LED, F.col("_at").alias("index"), "wall_us", "sample_every",
        ((F.col("_done") - F.col("_write_ns")) / 1_000).alias("commit_us"))


def numbered(frames: DataFrame) -> DataFrame:
    """(cluster, group, group_id) of every group that has a log: traces know numbers only."""
    return frames.where("damage is null").select(*GROUP, "group_id").distinct()


def commit_latency(frames: DataFrame, trace: DataFrame) -> DataFrame:
    """One row per group: percentiles in ms over traced frames. ``exact`` is false where the trace was sampled."""
    measured = samples(trace).groupBy("cluster", "group_id").agg(
        F.count("*").alias("measured"),
        *((F.percentile_approx("commit_us", share, 10_000) / 1_000).alias(name) for name, share in (
            ("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99))),
        (F.max("commit_us") / 1_000).alias("max_ms"), F.max("sample_every").alias("sample_every"))
    return numbered(frames).join(measured, ["cluster", "group_id"], "left").select(
        *GROUP, F.coalesce("measured", F.lit(0)).alias("measured"), "p50_ms", "p90_ms", "p99_ms", "max_ms",
        (F.col("sample_every") == 1).alias("exact"),
        F.when(F.col("measured") > 0, TRACE).otherwise(NOT_RECORDED).alias("source"))


def over_time(frames: DataFrame, trace: DataFrame, bucket_ms: int) -> DataFrame:
    """Median and 99th percentile per group and ``bucket_ms`` of the wall clock."""
    bucket = (F.floor(F.col("wall_us") / (bucket_ms * 1_000)) * bucket_ms).cast("bigint")
    measured = samples(trace).groupBy("cluster", "group_id", bucket.alias("bucket_ms")).agg(
        F.count("*").alias("measured"), (F.percentile_approx("commit_us", 0.5) / 1_000).alias("p50_ms"),
        (F.percentile_approx("commit_us", 0.99) / 1_000).alias("p99_ms"))
    return numbered(frames).join(measured, ["cluster", "group_id"]).drop("group_id")
