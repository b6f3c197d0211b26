"""Elections, from the frames that record them: one row per leadership.

A leader's first frame tells how it was won. Every replica that holds the frame gives one row here, and all of them
together one election. A Java DLedger directory has no-ops that tell nothing: who led is null there.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_NOOP: Final = (
    "leader string, cause string, rounds bigint, votes array<string>, previous_leader string, election_ms bigint")


def elections(events: DataFrame) -> DataFrame:
    """One row per (cluster, group, term, index, mark) of a no-op frame, also of those that were truncated later.

    ``held_by`` counts the nodes that still have it in their log; 0: it was cut off everywhere.
    """
    found = events.where("kind = 'noop' and damage is null").withColumn("told", F.from_json("detail", _NOOP))
    return found.groupBy("cluster", "group", "term", "index", "mark").agg(
        F.first("group_id").alias("group_id"),
        F.first("told.leader", ignorenulls=True).alias("leader"),
        F.first("told.cause", ignorenulls=True).alias("cause"),
        F.first("told.rounds", ignorenulls=True).alias("rounds"),
        F.first("told.votes", ignorenulls=True).alias("votes"),
        F.first("told.previous_leader", ignorenulls=True).alias("previous_leader"),
        F.first("told.election_ms", ignorenulls=True).alias("election_ms"),
        F.min("wall_time").alias("wall_time"),
        F.min("wall_ms").alias("wall_ms"),
        F.count_if(~F.col("truncated")).alias("held_by"),
        F.min_by("node", "node").alias("node"),
        F.min_by("file", "node").alias("file"),
        F.min_by("offset", "node").alias("offset"),
    )
