"""Who led when, and for how long: from the no-op frame that opens each leadership and the frames written under it."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

GROUP = ("cluster", "group")


def distinct(frames: DataFrame) -> DataFrame:
    """Every frame of each group's log once, whichever replicas hold it; what was truncated everywhere is left out."""
    return frames.where("damage is null and not truncated").dropDuplicates([*GROUP, "index", "mark"])


def timeline(elections: DataFrame, frames: DataFrame) -> DataFrame:
    """One row per leadership. It ends where the next of its group begins, the last one with the group's last frame."""
    written = distinct(frames).groupBy(*GROUP, "term").agg(
        F.sum("count").alias("entries"), F.sum("payload_bytes").alias("payload_bytes"),
        F.max("wall_ms").alias("last_write_ms"))
    ends = frames.where("damage is null").groupBy(*GROUP).agg(F.max("wall_ms").alias("_end"))
    of_group = Window.partitionBy(*GROUP).orderBy("term", "index")
    led = elections.join(written, [*GROUP, "term"], "left").join(ends, [*GROUP], "left")
    until = F.coalesce(F.lead("wall_ms").over(of_group), "_end")
    return led.select(
        *GROUP, "term", "leader", F.col("wall_ms").alias("began_ms"), until.alias("until_ms"),
        F.when(F.col("wall_ms").isNotNull(), F.greatest(until - F.col("wall_ms"), F.lit(0))).alias("tenure_ms"),
        "last_write_ms",
        F.coalesce("entries", F.lit(0)).alias("entries"), F.coalesce("payload_bytes", F.lit(0)).alias("payload_bytes"),
        "cause", "previous_leader", "election_ms", "held_by")


def tenure(timeline: DataFrame) -> DataFrame:
    """One row per group and leader: how often and how long it led, and its share of the group's time."""
    total = Window.partitionBy(*GROUP)
    return timeline.groupBy(*GROUP, "leader").agg(
        F.count("*").alias("leaderships"), F.sum("tenure_ms").alias("led_ms"), F.max("tenure_ms").alias("longest_ms"),
        F.expr("percentile(tenure_ms, 0.5)").alias("median_ms"), F.sum("entries").alias("entries"),
    ).withColumn("share", F.try_divide("led_ms", F.sum("led_ms").over(total)))


def churn(timeline: DataFrame) -> DataFrame:
    """One row per group: how often it changed its leader, and how long leaders stayed."""
    return timeline.groupBy(*GROUP).agg(
        F.count("*").alias("leaderships"), F.count_distinct("leader").alias("leaders"),
        F.avg("tenure_ms").alias("mean_tenure_ms"), F.min("tenure_ms").alias("shortest_ms"),
        F.max("tenure_ms").alias("longest_ms"))
