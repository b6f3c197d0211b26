"""Amount and sizes of what was written, and the groups that wrote most of it. All from the log."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from analysis.questions.leadership import GROUP, distinct

HOT_FACTOR: Final = 3.0
"""A group is hot from so many times its fair share of all entries on."""
_COMMANDS: Final = "damage is null and not truncated and kind = 'commands'"


def throughput(frames: DataFrame, bucket_ms: int) -> DataFrame:
    """Per group and ``bucket_ms`` of the leaders' clocks: each entry of the log counted once, not once per replica."""
    bucket = (F.floor(F.col("wall_ms") / bucket_ms) * bucket_ms).cast("bigint")
    return distinct(frames).where("wall_ms is not null").groupBy(*GROUP, bucket.alias("bucket_ms")).agg(
        F.count("*").alias("frames"), F.sum("count").alias("entries"), F.sum("payload_bytes").alias("payload_bytes"),
        (F.sum("count") * 1_000 / bucket_ms).alias("entries_per_s"),
        (F.sum("payload_bytes") * 1_000 / bucket_ms).alias("payload_bytes_per_s"))


def skew(frames: DataFrame) -> DataFrame:
    """One row per group, the busiest first: its share of all entries, and whether it is hot."""
    per_group = distinct(frames).groupBy(*GROUP).agg(
        F.sum("count").alias("entries"), F.sum("payload_bytes").alias("payload_bytes"), F.count("*").alias("frames"))
    everything = Window.partitionBy()
    ranked = Window.orderBy(F.desc("entries"), *GROUP)
    share = F.col("entries") / F.sum("entries").over(everything)
    groups = F.count("*").over(everything)
    return per_group.select(
        F.row_number().over(ranked).alias("rank"), *GROUP, "entries", "payload_bytes", share.alias("share"),
        (F.sum("entries").over(ranked) / F.sum("entries").over(everything)).alias("cumulative_share"),
        (F.col("entries") / F.col("frames")).alias("entries_per_frame"),
        (F.col("payload_bytes") / F.col("entries")).alias("mean_entry_bytes"),
        ((groups > 1) & (share * groups >= HOT_FACTOR)).alias("hot"))


def entry_sizes(frames: DataFrame, entries: DataFrame) -> DataFrame:
    """One row per group: percentiles of payloads in bytes.

    Only entries of the replica that holds most are read.
    """
    held = frames.where(_COMMANDS).groupBy(*GROUP, "node").agg(F.sum("count").alias("_held"))
    fullest = held.withColumn("_place", F.row_number().over(
        Window.partitionBy(*GROUP).orderBy(F.desc("_held"), "node"))).where("_place = 1").select(*GROUP, "node")
    chosen = fullest.collect()
    mine = entries.where(_COMMANDS).where(F.col("node").isin(sorted({row["node"] for row in chosen}))).join(
        entries.sparkSession.createDataFrame(chosen, fullest.schema).hint("broadcast"), [*GROUP, "node"], "left_semi")
    return mine.groupBy(*GROUP).agg(
        F.count("*").alias("entries"), F.percentile_approx("payload_bytes", 0.5).alias("p50_bytes"),
        F.percentile_approx("payload_bytes", 0.9).alias("p90_bytes"),
        F.percentile_approx("payload_bytes", 0.99).alias("p99_bytes"), F.max("payload_bytes").alias("max_bytes"),
        F.avg("payload_bytes").alias("mean_bytes"))
