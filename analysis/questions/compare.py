"""Two periods side by side: what changed, metric by metric, group by group."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analysis.questions.latency import numbered, samples
from analysis.questions.leadership import GROUP, distinct

Period = tuple[int, int]
"""From and until, ms since 1970 UTC; the end is not in it."""


def compare(
    frames: DataFrame, elections: DataFrame, trace: DataFrame, history: DataFrame, before: Period, after: Period,
) -> DataFrame:
    """One row per group and metric: its value in either period, the change, and the change as a share of the first."""
    both = [
        _metrics(frames, elections, trace, history, period).withColumnRenamed("value", name)
        for name, period in (("before", before), ("after", after))]
    joined = both[0].join(both[1], [*GROUP, "metric", "unit"], "full")
    change = F.col("after") - F.col("before")
    joined = joined.select(*GROUP, "metric", "unit", *(
        F.when(F.col("unit") == "count", F.coalesce(name, F.lit(0.0))).otherwise(F.col(name)).alias(name)
        for name in ("before", "after")))
    return joined.select(
        *GROUP, "metric", "unit", "before", "after", change.alias("change"),
        F.when(F.col("before") != 0, change / F.col("before")).alias("change_share"))


def _metrics(
    frames: DataFrame, elections: DataFrame, trace: DataFrame, history: DataFrame, period: Period
) -> DataFrame:
    since, until = period
    seconds = (until - since) / 1_000
    inside = f"wall_ms >= {int(since)} and wall_ms < {int(until)}"
    written = distinct(frames).where(inside).groupBy(*GROUP).agg(
        (F.sum("count") / seconds).alias("entries"), (F.sum("payload_bytes") / seconds).alias("payload"),
        (F.sum("payload_bytes") / F.sum("count")).alias("mean entry"))
    held = elections.where(inside).groupBy(*GROUP).agg(
        F.count("*").cast("double").alias("elections"), F.max("election_ms").cast("double").alias("longest election"))
    commit = samples(trace).where(f"wall_us >= {int(since) * 1_000} and wall_us < {int(until) * 1_000}").groupBy(
        "cluster", "group_id").agg((F.percentile_approx("commit_us", 0.5) / 1_000).alias("median commit"),
                        (F.percentile_approx("commit_us", 0.99) / 1_000).alias("99th percentile of commit"))
    masters = history.where(f"is_change and what = 'MasterChanged' and {inside}").groupBy(*GROUP).agg(
        F.count("*").cast("double").alias("master changes"))
    parts = [
        _long(written, {"entries": "per s", "payload": "bytes per s", "mean entry": "bytes"}),
        _long(held, {"elections": "count", "longest election": "ms"}),
        _long(numbered(frames).join(commit, ["cluster", "group_id"]),
              {"median commit": "ms", "99th percentile of commit": "ms"}),
        _long(masters, {"master changes": "count"}),
    ]
    return reduce(DataFrame.unionByName, parts)


def _long(wide: DataFrame, units: dict[str, str]) -> DataFrame:
    rows = F.explode(F.array(*[
        F.struct(F.lit(name).alias("metric"), F.lit(unit).alias("unit"),
                 F.col(f"`{name}`").cast("double").alias("value"))
        for name, unit in units.items()])).alias("_row")
    return wide.select(*GROUP, rows).select(*GROUP, "_row.*").where("value is not null")
