"""Broker groups as their controllers' log tells it: masters, outages, SyncStateSets and broker ids.

Times are those of the controllers' clocks at which the commands were written. An outage begins with the first command
that saw the master missing and ends with the command that made a new one: how long it took until the loss was noticed
is not in a log.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

BROKERS: Final = ("cluster", "group", "broker_cluster", "broker_name")
"""A broker group, and the controllers' raft group that decides about it."""
FLAP_WITHIN_MS: Final = 60_000
"""A broker that leaves the SyncStateSet and is back within this flapped."""


def master_changes(history: DataFrame) -> DataFrame:
    """One row per master epoch: who became master (null: nobody could) and whether the election was clean."""
    return history.where("is_change and what = 'MasterChanged'").select(
        *BROKERS, "index", "wall_ms", "master_epoch", "master", "previous", "clean", "node", "file", "offset")


def outages(history: DataFrame, since_ms: int | None = None) -> DataFrame:
    """One row per time without a master.

    ``recovered_ms`` and ``recovery_ms`` are null while it lasts; ``lasted_ms`` then goes to the end of the controllers'
    log. ``since_ms``: only those that were not over by then.
    """
    in_order = Window.partitionBy(*BROKERS).orderBy("index", "_place")
    back = (F.col("what") == "MasterChanged") & F.col("is_change") & F.col("master").isNotNull()
    gone = (F.col("what") == "MasterChanged") & F.col("is_change") & F.col("master").isNull()
    seen = ~F.col("is_change") & F.col("master_lost")
    present = ~F.col("is_change") & (F.col("master_lost") == F.lit(False))
    marked = history.where("broker_name is not null").withColumn("_place", F.col("is_change").cast("int")).withColumn(
        "_state", F.when(back | present, 1).when(gone | seen, 0)).where("_state is not null").withColumn(
        "_before", F.lag("_state").over(in_order))
    edges = marked.where("_state != coalesce(_before, 1)").withColumn(
        "_until_ms", F.lead("wall_ms").over(in_order)).withColumn("_next_master", F.lead("master").over(in_order))
    end = history.groupBy("cluster", "group").agg(F.max("wall_ms").alias("_end"))
    lost = edges.where("_state = 0").join(end, ["cluster", "group"])
    if since_ms is not None:
        lost = lost.where(F.coalesce("_until_ms", "_end") >= since_ms)
    return lost.select(
        *BROKERS, "index", F.col("wall_ms").alias("lost_ms"), F.col("_until_ms").alias("recovered_ms"),
        (F.col("_until_ms") - F.col("wall_ms")).alias("recovery_ms"),
        (F.coalesce("_until_ms", "_end") - F.col("wall_ms")).alias("lasted_ms"),
        F.col("_next_master").alias("new_master"), "file", "offset")


def availability(history: DataFrame, since_ms: int | None = None) -> DataFrame:
    """One row per broker group: the share of its time with a master.

    The time goes from its first master, or from ``since_ms`` if that is later, to the log's end. ``history`` must
    go back to its beginning, as a master may be old.
    """
    since = F.lit(since_ms).cast("bigint")
    inside = F.coalesce(F.col("wall_ms") >= since, F.lit(True))
    end = history.groupBy("cluster", "group").agg(F.max("wall_ms").alias("until_ms"))
    began = history.where("is_change and what = 'MasterChanged' and master is not null").groupBy(*BROKERS).agg(
        F.greatest(F.min("wall_ms"), since).alias("from_ms"), F.count_if(inside).alias("masters"),
        F.count_if(inside & (F.col("clean") == F.lit(False))).alias("unclean_elections"))
    lasted = F.col("lost_ms") + F.col("lasted_ms") - F.greatest("lost_ms", since)
    lost = outages(history, since_ms).groupBy(*BROKERS).agg(
        F.count("*").alias("outages"), F.sum(lasted).alias("without_master_ms"), F.max(lasted).alias("longest_ms"))
    joined = began.join(end, ["cluster", "group"]).where("from_ms <= until_ms").join(
        lost, [*BROKERS], "left").fillna(0, ["outages", "without_master_ms", "longest_ms"])
    span = F.col("until_ms") - F.col("from_ms")
    return joined.select(
        *BROKERS, "from_ms", "until_ms", "masters", "outages", "without_master_ms", "longest_ms",
        F.when(span > 0, 1 - F.col("without_master_ms") / span).otherwise(1.0).alias("availability"),
        "unclean_elections")


def sync_state_sets(history: DataFrame, within_ms: int = FLAP_WITHIN_MS) -> DataFrame:
    """One row per broker group: how often its SyncStateSet shrank, grew and flapped.

    A flap: a broker left and was back within ``within_ms``. An election begins with the new master alone; that is none
    of these.
    """
    changed = history.where("is_change and what = 'SyncStateSetChanged' and outcome = 'Altered'")
    counted = changed.groupBy(*BROKERS).agg(
        F.count("*").alias("changes"),
        F.count_if(F.size(F.array_except("previous_set", "sync_state_set")) > 0).alias("shrinks"),
        F.count_if(F.size(F.array_except("sync_state_set", "previous_set")) > 0).alias("expands"),
        F.min(F.size("sync_state_set")).alias("smallest"))
    moves = changed.select(*BROKERS, "index", "wall_ms", F.explode(F.array_union(
        _moved("previous_set", "sync_state_set", left=True), _moved("sync_state_set", "previous_set", left=False),
    )).alias("_move")).select(*BROKERS, "index", "wall_ms", "_move.*")
    of_broker = Window.partitionBy(*BROKERS, "broker").orderBy("index")
    flaps = moves.withColumn("_left_ms", F.lag(F.when(F.col("left"), F.col("wall_ms"))).over(of_broker)).where(
        F.expr(f"not left and wall_ms - _left_ms <= {int(within_ms)}")).groupBy(*BROKERS).agg(
        F.count("*").alias("flaps"))
    return counted.join(flaps, [*BROKERS], "left").fillna(0, ["flaps"])


def _moved(of: str, without: str, *, left: bool) -> Column:
    return F.transform(F.array_except(of, without), lambda it: F.struct(it.alias("broker"), F.lit(left).alias("left")))


def broker_ids(history: DataFrame) -> DataFrame:
    """Ids that are not one broker's for ever; no row if all are.

    ``bound_twice``: an id was given out under a second check code. ``shared``: a broker whose claim to an id was
    refused, since another has it, registers with that id all the same, as a copied identity file would make it.
    """
    added = history.where("is_change and what = 'BrokerAdded'")
    by_id = Window.partitionBy(*BROKERS, "broker_id").orderBy("index")
    twice = added.withColumn("_first", F.first("check_code").over(by_id)).where("check_code != _first").withColumn(
        "_told", F.format_string("was bound to %s, and is given to %s", "_first", "check_code"))
    claims = history.where("not is_change and what = 'ApplyBrokerId'")
    refused = claims.where("outcome = 'BrokerIdRefused'").select(
        *BROKERS, "broker_id", F.col("index").alias("_refused"), F.substring_index("check_code", ";", 1).alias("_by"),
        F.col("check_code").alias("_code"))
    owned = added.where("check_code is not null").select(
        *BROKERS, "broker_id", F.substring_index("check_code", ";", 1).alias("_owner"))
    used = history.where("not is_change and what = 'RegisterBroker'").join(
        refused, [*BROKERS, "broker_id"]).where("index > _refused and address = _by").join(
        owned, [*BROKERS, "broker_id"]).where("address != _owner")
    shared = used.withColumn("_told", F.format_string(
        "%s registers with it, though its claim was refused at entry %d: it is of %s", "_by", "_refused", "_owner"))
    once = Window.partitionBy(*BROKERS, "broker_id", "_by").orderBy("index")
    shared = shared.withColumn("_place", F.row_number().over(once)).where("_place = 1")
    columns = (*BROKERS, "broker_id", "index", "wall_ms", "node", "file", "offset")
    return twice.select(F.lit("bound_twice").alias("finding"), *columns, F.col("_told").alias("detail")).unionByName(
        shared.select(F.lit("shared").alias("finding"), *columns, F.col("_told").alias("detail")))
