"""Leaderships and their times: from the no-op frame that opens each, and the frames written under it.

A term whose no-op is not there has a leadership all the same, since only a leader writes frames: its log was purged, or
is read from a later time on. Only traces may tell its leader.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

GROUP = ("cluster", "group")
LOG, TRACE, BEFORE, NOT_RECORDED = "log", "trace", "before the log", "not recorded"
"""Sources of a figure; a leader may also have been elected before the log begins."""
WHOLE_FROM: Final = "if(group_id is null, 0, 1)"
"""SQL: index of a whole log's first entry; Java's have no number of a group and begin with 0."""


def distinct(frames: DataFrame) -> DataFrame:
    """Every frame of each group's log once, whichever replicas hold it; what was truncated everywhere is left out."""
    return frames.where("damage is null and not truncated").dropDuplicates([*GROUP, "index", "term", "mark"])


def timeline(elections: DataFrame, frames: DataFrame, trace: DataFrame) -> DataFrame:
    """One row per leadership: per no-op, and per term with frames but without a no-op.

    It ends where the next of its group begins or is first seen; the last one ends with the group's last frame.
    """
    written = distinct(frames).groupBy(*GROUP, "term").agg(
        F.first("group_id").alias("_number"), F.min("index").alias("first_index"),
        F.max("last_index").alias("last_index"), F.sum("count").alias("entries"),
        F.sum("payload_bytes").alias("payload_bytes"), F.min("wall_ms").alias("first_write_ms"),
        F.max("wall_ms").alias("last_write_ms"))
    ends = frames.where("damage is null").groupBy(*GROUP).agg(F.max("wall_ms").alias("_end"))
    of_group = Window.partitionBy(*GROUP).orderBy("term", "index")
    led = elections.join(written, [*GROUP, "term"], "full").withColumn(
        "group_id", F.coalesce("group_id", "_number")).join(
        _cut(frames), [*GROUP, "term"], "left").join(
        _traced(trace), ["cluster", "group_id", "term"], "left").join(ends, [*GROUP], "left")
    until = F.coalesce(F.lead(F.coalesce("wall_ms", "first_write_ms")).over(of_group), "_end")
    return led.select(
        *GROUP, "term", F.coalesce("leader", "_traced").alias("leader"),
        F.when(F.col("leader").isNotNull(), LOG).when(F.col("_traced").isNotNull(), TRACE).when(
            F.col("index").isNull() & F.col("_cut"), BEFORE).otherwise(NOT_RECORDED).alias("leader_source"),
        F.col("wall_ms").alias("began_ms"), until.alias("until_ms"),
        F.when(F.col("wall_ms").isNotNull(), F.greatest(until - F.col("wall_ms"), F.lit(0))).alias("tenure_ms"),
        "first_index", "last_index", "first_write_ms", "last_write_ms",
        F.coalesce("entries", F.lit(0)).alias("entries"), F.coalesce("payload_bytes", F.lit(0)).alias("payload_bytes"),
        "cause", "previous_leader", "election_ms", "held_by")


def _cut(frames: DataFrame) -> DataFrame:
    """Terms in the middle of which some node's log begins."""
    first = frames.where("damage is null and not truncated").groupBy(*GROUP, "node").agg(
        F.min_by("term", "index").alias("term"), F.min("index").alias("_first"), F.first("group_id").alias("group_id"))
    return first.where(f"_first > {WHOLE_FROM}").select(*GROUP, "term").distinct().withColumn("_cut", F.lit(True))


def _traced(trace: DataFrame) -> DataFrame:
    """Leaders of terms by their own traces: elected, or counting replicas. None where two nodes say so."""
    claims = trace.where("event = 'BecameLeader' or (event = 'CommitAdvanced' and counted)")
    return claims.groupBy("cluster", "group_id", "term").agg(
        F.min("node").alias("_traced"), F.max("node").alias("_other")).where("_traced = _other").drop("_other")


def tenure(timeline: DataFrame) -> DataFrame:
    """One row per group and leader: how often and how long it led, and its share of the group's time.

    A leadership from before the log counts from where it is first seen; its whole length is not known.
    """
    total = Window.partitionBy(*GROUP)
    shown = F.greatest(F.col("until_ms") - F.coalesce("began_ms", "first_write_ms"), F.lit(0))
    return timeline.groupBy(*GROUP, "leader").agg(
        F.count("*").alias("leaderships"), F.sum(shown).alias("led_ms"), F.max("tenure_ms").alias("longest_ms"),
        F.expr("percentile(tenure_ms, 0.5)").alias("median_ms"), F.sum("entries").alias("entries"),
    ).withColumn("share", F.try_divide("led_ms", F.sum("led_ms").over(total)))


def churn(timeline: DataFrame) -> DataFrame:
    """One row per group: how often it changed its leader, and how long leaders stayed."""
    return timeline.groupBy(*GROUP).agg(
        F.count("*").alias("leaderships"), F.count_distinct("leader").alias("leaders"),
        F.avg("tenure_ms").alias("mean_tenure_ms"), F.min("tenure_ms").alias("shortest_ms"),
        F.max("tenure_ms").alias("longest_ms"))
