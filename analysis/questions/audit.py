"""Do the replicas agree, and is any log damaged? Every finding with the file and byte where it shows.

What is compared is the mark: a frame's mark covers its bytes and, by the chain, all of the log before it. So two
replicas part exactly once, at the first index where their marks differ, and no payload is read for it. Java's entries
have none: of them the terms are compared, which is what DLedger itself goes by.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from analysis.questions.leadership import GROUP

NODE: Final = (*GROUP, "node")
CRITICAL, WARNING, NOTE = "critical", "warning", "note"

KINDS: Final[dict[str, tuple[str, str]]] = {
    "crc": (CRITICAL, "bytes fail their checksum"),
    "cut": (WARNING, "a file ends inside its data"),
    "chain": (CRITICAL, "good bytes that do not continue what is before them"),
    "missing": (CRITICAL, "a segment between others is not there"),
    "empty": (CRITICAL, "a segment without a good first block"),
    "foreign": (WARNING, "a file that is not of this log"),
    "version": (WARNING, "a format version that this build does not read"),
    "unreadable": (WARNING, "a file that could not be read"),
    "gap": (CRITICAL, "entries are missing between two frames, and no damage explains it"),
    "term_regression": (CRITICAL, "a frame has a lower term than the frame before it"),
    "log_mismatch": (CRITICAL, "replicas hold different frames at one index and term"),
    "committed_divergence": (CRITICAL, "a replica knew entries committed that the others do not have"),
    "stale_suffix": (NOTE, "a replica ends in entries of a deposed leader; legal, the next leader cuts them off"),
    "two_leaders": (CRITICAL, "two leaderships began in one term"),
    "two_votes": (CRITICAL, "a node voted for two candidates in one term"),
    "truncated_committed": (CRITICAL, "a node cut off entries that it knew to be committed"),
}
"""Every finding: how bad it is, and what it is. The first eight are the source's codes of damage."""
_FINDING: Final = ("cluster", "group", "node", "file", "offset", "term", "index")


def audit(frames: DataFrame, events: DataFrame, trace: DataFrame) -> DataFrame:
    """One row per finding, none for logs that are sound. ``source``: whether the log or a trace shows it."""
    parts = [
        damage(frames), _gaps_and_regressions(frames), _forks(frames, trace), _two_leaders(events), _two_votes(events),
        _truncated_below_install(events), _truncated_committed(trace, events)]
    severity = F.create_map(*[F.lit(part) for name, (level, _) in KINDS.items() for part in (name, level)])
    rows = reduce(DataFrame.unionByName, parts)
    return rows.select(severity[F.col("finding")].alias("severity"), "finding", *_FINDING, "detail", "source")


def _found(rows: DataFrame, finding: str | Column, detail: Column, source: str = "log") -> DataFrame:
    named = F.lit(finding) if isinstance(finding, str) else finding
    return rows.select(*_FINDING, named.alias("finding"), detail.alias("detail"), F.lit(source).alias("source"))


def damage(frames: DataFrame) -> DataFrame:
    """Return what the source could not read."""
    return _found(frames.where("damage is not null"), F.col("damage"), F.col("reason"))


def _gaps_and_regressions(frames: DataFrame) -> DataFrame:
    """Find holes and falling terms in each node's log. A hole that the node's damage explains is not told twice."""
    in_order = Window.partitionBy(*NODE).orderBy("index", "last_index")
    log = frames.where("damage is null and not truncated").select(
        *_FINDING, "last_index", "segment", F.lag("last_index").over(in_order).alias("_last"),
        F.lag("term").over(in_order).alias("_term"), F.lag("segment").over(in_order).alias("_segment"),
        F.lag("offset").over(in_order).alias("_offset"))
    holes = log.where("index > _last + 1").alias("h")
    hurt = frames.where("damage is not null").select(
        F.col("cluster").alias("_c"), F.col("node").alias("_n"), F.col("segment").alias("_s"),
        F.coalesce("offset", F.lit(0)).alias("_o"))
    explained = (
        F.col("h.cluster").eqNullSafe(F.col("_c")) & (F.col("h.node") == F.col("_n"))
        & (F.struct("_s", "_o") >= F.struct(F.col("h._segment"), F.col("h._offset")))
        & (F.struct("_s", "_o") <= F.struct(F.col("h.segment"), F.col("h.offset"))))
    gaps = holes.join(hurt.hint("broadcast"), explained, "left_anti")
    lost = F.format_string("entries %d to %d are not there", F.col("_last") + 1, F.col("index") - 1)
    fallen = F.format_string("term %d follows term %d", "term", "_term")
    return _found(gaps, "gap", lost).unionByName(_found(log.where("term < _term"), "term_regression", fallen))


def _forks(frames: DataFrame, trace: DataFrame) -> DataFrame:
    """Find where a replica differs from most others; with no majority, from those of the highest term."""
    log = frames.where("damage is null and not truncated").withColumn("_mark", F.coalesce("mark", "term"))
    holders = log.groupBy(*GROUP, "index", "_mark").agg(F.count("*").alias("_held"), F.max("term").alias("_mark_term"))
    votes = holders.groupBy(*GROUP, "index").agg(
        F.count("*").alias("_marks"),
        F.max_by(F.struct(F.col("_mark").alias("mark"), F.col("_mark_term").alias("term")),
                 F.struct("_held", "_mark_term", "_mark")).alias("_most"))
    parted = log.join(votes.where("_marks > 1"), [*GROUP, "index"]).where("_mark != _most.mark")
    first = Window.partitionBy(*NODE).orderBy("index")
    forks = parted.withColumn("_place", F.row_number().over(first)).where("_place = 1")
    knew = trace.where("event = 'CommitAdvanced'").groupBy("cluster", "node", "group_id").agg(
        F.max("index").alias("_known"))
    judged = forks.join(knew, ["cluster", "node", "group_id"], "left")
    kind = F.when(F.col("term") == F.col("_most.term"), "log_mismatch").when(
        F.col("_known") >= F.col("index"), "committed_divergence").otherwise("stale_suffix")
    words = F.when(F.col("mark").isNull(), F.format_string(
        "from entry %d on it has term %d, most others have term %d", "index", "term", "_most.term")).otherwise(
        F.format_string("from entry %d on its mark is %08x of term %d, most others have %08x of term %d", "index",
                        "mark", "term", "_most.mark", "_most.term"))
    return _found(judged, kind, words).withColumn(
        "source", F.when(F.col("finding") == "committed_divergence", "trace").otherwise("log"))


def _two_leaders(events: DataFrame) -> DataFrame:
    begun = events.where("kind = 'noop' and damage is null")
    first = Window.partitionBy(*GROUP, "term").orderBy("index", "mark")
    different = begun.withColumn("_rank", F.dense_rank().over(first)).where("_rank > 1").dropDuplicates(
        [*GROUP, "term", "mark"])
    return _found(different, "two_leaders", F.format_string("another leadership of term %d begins here", "term"))


def _two_votes(events: DataFrame) -> DataFrame:
    """A vote may be repeated (each segment begins with the latest), never changed."""
    in_order = Window.partitionBy(*NODE, "term").orderBy("write", "offset")
    cast = events.where("kind in ('hard_state', 'state') and voted_for is not null and damage is null").withColumn(
        "_before", F.lag("voted_for").over(in_order))
    words = F.format_string("voted for %s and then for %s in term %d", "_before", "voted_for", "term")
    return _found(cast.where("_before != voted_for"), "two_votes", words)


def _truncated_below_install(events: DataFrame) -> DataFrame:
    """A snapshot holds committed entries only, so nothing up to its boundary may be cut off after it."""
    so_far = Window.partitionBy(*NODE).orderBy("write", "offset").rowsBetween(Window.unboundedPreceding, -1)
    cuts = events.where("kind in ('truncate', 'install') and damage is null").withColumn(
        "_floor", F.max(F.when(F.col("kind") == "install", F.col("index"))).over(so_far))
    words = F.format_string("cut behind entry %d, after a snapshot up to %d was installed", "index", "_floor")
    return _found(cuts.where("kind = 'truncate' and index < _floor"), "truncated_committed", words)


def _truncated_committed(trace: DataFrame, events: DataFrame) -> DataFrame:
    """Find nodes whose trace tells a commit index, and then a cut at or below it."""
    so_far = Window.partitionBy("file", "group_id", "node").orderBy("line").rowsBetween(Window.unboundedPreceding, -1)
    told = trace.where("event in ('CommitAdvanced', 'Truncated')").withColumn(
        "_known", F.max(F.when(F.col("event") == "CommitAdvanced", F.col("index"))).over(so_far))
    cut = told.where("event = 'Truncated' and first <= _known").select(
        "file", "cluster", "node", "group_id", "term", F.col("first").alias("index"), "_known")
    named = events.where("group_id is not null").select("cluster", "group", "node", "group_id").distinct()
    rows = cut.join(named, ["cluster", "node", "group_id"], "left").withColumn("offset", F.lit(None).cast("bigint"))
    words = F.format_string("cut from entry %d on, having told that %d is committed", "index", "_known")
    return _found(rows, "truncated_committed", words, "trace")


def checked(frames: DataFrame, events: DataFrame, trace: DataFrame) -> DataFrame:
    """One row per check, with how much it compared: silence of the audit means something only then."""
    good = frames.where("damage is null")
    shared = good.where("not truncated").groupBy(*GROUP, "index").agg(F.count("*").alias("_copies"))
    looked_at = {
        "frames whose checksums and chain were verified": good.where("mark is not null"),
        "frames held by more than one replica": shared.where("_copies > 1"),
        "terms with a leadership": events.where("kind = 'noop' and damage is null").select(*GROUP, "term").distinct(),
        "votes on record": events.where("voted_for is not null"),
        "truncations on record": events.where("kind = 'truncate'"),
        "commit indexes told by traces": trace.where("event = 'CommitAdvanced'"),
    }
    counts = [rows.agg(F.count("*").alias("n")).select(F.lit(check).alias("check"), "n")
              for check, rows in looked_at.items()]
    from_trace = F.when(F.col("n") > 0, "trace").otherwise("not recorded")
    return reduce(DataFrame.unionByName, counts).withColumn(
        "source", F.when(F.col("check").contains("traces"), from_trace).otherwise("log"))
