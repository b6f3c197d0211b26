"""Costs of elections: rounds, duration and cause from the log; split votes from traces, where there are any."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from analysis.questions.leadership import GROUP, NOT_RECORDED, TRACE, WHOLE_FROM


def cost(elections: DataFrame, frames: DataFrame, trace: DataFrame) -> DataFrame:
    """One row per election that was won. ``terms_lost``: terms since the leader before in which nobody won; null where
    no log that has it reaches further back. A term was won if there are frames of it, with its no-op or without.

    A split vote is a round of real votes that a candidate ended without winning, in this term or in those lost.
    """
    of_group = Window.partitionBy(*GROUP).orderBy("term")
    led = frames.where("damage is null").select(*GROUP, "term").distinct().withColumn(
        "_led", F.lag("term").over(of_group))
    spans = frames.where("damage is null and not truncated").groupBy(*GROUP, "node").agg(
        F.min("index").alias("_first"), F.max("last_index").alias("_last"))
    within = spans.join(elections.select(*GROUP, "term", "index"), [*GROUP]).where(
        "_first < index and index <= _last").select(*GROUP, "term", "index").distinct().withColumn(
        "_within", F.lit(True))
    before = F.expr(f"case when index <= {WHOLE_FROM} then coalesce(_led, 0) when _within then _led end")
    won = elections.join(led, [*GROUP, "term"], "left").join(within, [*GROUP, "term", "index"], "left").withColumn(
        "_before", before).withColumn("terms_lost", F.col("term") - F.col("_before") - 1).withColumn(
        "_after", F.coalesce("_before", F.col("term") - 1)).drop("_led", "_within", "_before")
    rounds = trace.where("event = 'RoundEnded' and not probe and result != 'PASSED'").groupBy(
        "cluster", "group_id", F.col("term").alias("_in")).agg(F.count("*").alias("_splits"))
    traced = trace.where("event is not null and group_id is not null").select(
        "cluster", "group_id").distinct().withColumn("_traced", F.lit(True))
    split = won.join(rounds, (won["cluster"] == rounds["cluster"]) & (won["group_id"] == rounds["group_id"])
                     & (rounds["_in"] > won["_after"]) & (rounds["_in"] <= won["term"]), "left").drop(
                     rounds["cluster"], rounds["group_id"])
    key = (*GROUP, "term", "index", "mark")  # no join by it: Java's no-ops have no mark
    counted = split.groupBy(*key).agg(
        F.sum("_splits").alias("_splits"), *(F.first(name).alias(name) for name in won.columns if name not in key))
    return counted.join(traced, ["cluster", "group_id"], "left").select(
        *GROUP, "term", "leader", "wall_ms", "cause", "rounds", "election_ms", F.size("votes").alias("votes"),
        "previous_leader", "terms_lost",
        F.when(F.col("_traced"), F.coalesce("_splits", F.lit(0))).alias("split_votes"),
        F.when(F.col("_traced"), TRACE).otherwise(NOT_RECORDED).alias("split_votes_source"))


def summary(cost: DataFrame) -> DataFrame:
    """One row per group and cause: how many elections, how long, how many rounds."""
    return cost.groupBy(*GROUP, "cause").agg(
        F.count("*").alias("elections"),
        F.expr("percentile(election_ms, 0.5)").alias("median_ms"), F.max("election_ms").alias("longest_ms"),
        F.max("rounds").alias("most_rounds"), F.sum("terms_lost").alias("terms_lost"),
        F.sum("split_votes").alias("split_votes"))
