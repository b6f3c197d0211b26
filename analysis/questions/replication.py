"""Lag of each replica, and how much its snapshots let it forget. It knows DataFrames, and no file."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analysis.questions.leadership import GROUP, NOT_RECORDED, TRACE
from analysis.views.paths import directory_of

_LED = "event = 'CommitAdvanced' and counted"


def _ends(frames: DataFrame) -> DataFrame:
    return frames.where("damage is null and not truncated").groupBy(*GROUP, "group_id", "node").agg(
        F.min("index").alias("first_index"), F.max("last_index").alias("last_index"),
        F.max("wall_ms").alias("last_write_ms"), F.sum("frame_bytes").alias("log_bytes"),
        F.first(directory_of(F.col("file"))).alias("directory"))


def lag(frames: DataFrame, trace: DataFrame) -> DataFrame:
    """One row per group and node: how far its log ends behind the group's longest, and how late it adds frames.

    The delay after its leader comes from traces that hold both (one in ``sample_every`` on each node, so best with 1).
    """
    ends = _ends(frames)
    tip = ends.groupBy(*GROUP).agg(F.max("last_index").alias("_tip"), F.max("last_write_ms").alias("_tip_ms"))
    led = trace.where(_LED).select("cluster", "node", "group_id", "term").distinct()
    added = trace.where("event = 'Appended'")
    by_leader = added.where("entry_term = term").join(
        led, ["cluster", "node", "group_id", "term"], "left_semi").select(
        "cluster", "group_id", "last", "mark", F.col("node").alias("_leader"), F.col("wall_us").alias("_led_us"))
    delays = added.join(by_leader, ["cluster", "group_id", "last", "mark"]).where("node != _leader").groupBy(
        "cluster", "group_id", "node").agg(
        F.count("*").alias("measured"),
        *((F.percentile_approx(F.col("wall_us") - F.col("_led_us"), share, 10_000) / 1_000).alias(name)
          for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99))),
        (F.max(F.col("wall_us") - F.col("_led_us")) / 1_000).alias("max_ms"))
    return ends.join(tip, [*GROUP]).join(delays, ["cluster", "group_id", "node"], "left").select(
        *GROUP, "node", "last_index", (F.col("_tip") - F.col("last_index")).alias("behind_entries"),
        (F.col("_tip_ms") - F.col("last_write_ms")).alias("behind_ms"),
        F.coalesce("measured", F.lit(0)).alias("measured"), "p50_ms", "p99_ms", "max_ms",
        F.when(F.col("measured") > 0, TRACE).otherwise(NOT_RECORDED).alias("source"))


def compaction(frames: DataFrame, events: DataFrame, snapshots: DataFrame) -> DataFrame:
    """One row per group and node: what its log holds, its snapshots, and how often one was installed from a leader."""
    taken = snapshots.groupBy("directory", "group_id").agg(
        F.count("*").alias("snapshots"), F.max("index").alias("snapshot_index"),
        F.max_by("bytes", "index").alias("snapshot_bytes"), F.max("taken_ms").alias("snapshot_taken_ms"))
    installed = events.where("kind = 'install'").groupBy(*GROUP, "node").agg(F.count("*").alias("installs"))
    kept = _ends(frames).join(taken, ["directory", "group_id"], "left").join(installed, [*GROUP, "node"], "left")
    return kept.select(
        *GROUP, "node", "first_index", "last_index", "log_bytes", F.coalesce("snapshots", F.lit(0)).alias("snapshots"),
        "snapshot_index", "snapshot_bytes", "snapshot_taken_ms",
        (F.col("last_index") - F.coalesce("snapshot_index", F.lit(0))).alias("entries_since_snapshot"),
        F.coalesce("installs", F.lit(0)).alias("installs"))
