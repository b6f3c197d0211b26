"""Every question: its name, what it asks, its columns with their units, and whether the log or a trace answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analysis.questions import audit, compare, elections, latency, leadership, masters, replication, throughput
from analysis.schemas import LAST_MS, time_of

if TYPE_CHECKING:
    from analysis.logs import Logs

_OF: Final = {
    "cluster": "of the nodes' identities", "group": "raft group", "node": "node id", "term": "raft term",
    "index": "index in the raft log", "leader": "node id", "file": "where it shows", "offset": "byte of the file",
    "broker_cluster": "cluster of the brokers", "broker_name": "broker group", "wall_time": "by the leader's clock",
    "source": "`log`, `trace` or `not recorded`", "measured": "frames that the trace has", "cause": "why it came about",
    "p50_ms": "median, ms", "p90_ms": "90th percentile, ms", "p99_ms": "99th percentile, ms", "max_ms": "most, ms",
    "entries": "count", "payload_bytes": "bytes of payloads", "previous_leader": "node id, as the winner knew it",
    "terms_lost": "terms since the leader before in which nobody won; null: not known",
    "bucket_time": "where it begins",
    "master_epoch": "the new one", "master": "broker id; null: nobody could be elected",
}
"""Meanings of columns that several questions have."""
MOMENTS: Final = ("wall_ms", "began_ms", "until_ms", "first_write_ms", "last_write_ms", "bucket_ms", "lost_ms",
                  "recovered_ms", "from_ms", "snapshot_taken_ms")
"""Columns of milliseconds since 1970; all others ending in ``_ms`` are durations."""
TIMES: Final = {time_of(name): name for name in MOMENTS}
"""Column of milliseconds by the timestamp column before it, which has the same moment."""


@attrs.frozen
class Question:
    """One question and how to answer it."""

    name: str
    asks: str
    source: str
    """``log``, ``trace``, or ``log, trace``."""
    columns: dict[str, str]
    """Meaning of each column, with its unit, in the order of the answer."""
    answer: Callable[[Logs], DataFrame]
    first: str = ""
    """SQL: what of the answer to show first."""

    def order(self) -> list[Column]:
        """``first`` as Spark sorts by it; among equals by every column, so that two runs show the same rows."""
        wanted = [F.expr(part.removesuffix(" desc")).desc() if part.endswith(" desc") else F.expr(part)
                  for part in self.first.split(", ")]
        return [*wanted, F.expr(f"struct({', '.join(f'`{name}`' for name in self.columns)})")]


def timed(rows: DataFrame) -> DataFrame:
    """Rows with a timestamp before each column that is a moment in milliseconds."""
    found: list[Column] = []
    for name in rows.columns:
        if name in MOMENTS:
            told = F.when(F.col(name).between(0, LAST_MS), F.timestamp_millis(name))
            found.append(told.alias(time_of(name)))
        found.append(F.col(f"`{name}`"))
    return rows.select(*found)


def _columns(names: str, **own: str) -> dict[str, str]:
    out = {}
    for name in names.split():
        out[name] = own.get(name) or _OF[name]
        if name in TIMES:
            out[TIMES[name]] = "the same, ms since 1970 UTC"
    return out


_ALL: Final = (
    Question(
        "leadership", "Who led each group, from when until when?", "log, trace",
        _columns("cluster group term leader leader_source began_time until_time tenure_ms first_index last_index "
                 "first_write_time last_write_time entries payload_bytes cause previous_leader election_ms held_by",
                 leader="node id; null: not known",
                 leader_source="`log`, `trace`, `before the log` (elected before it begins, or before the time asked "
                               "for) or `not recorded`",
                 began_time="its no-op; null: not in the log, nor is what it tells (`cause` and on)",
                 until_time="where the next leadership begins or is first seen, or the log's last frame",
                 tenure_ms="from one to the other, ms", first_index="its first entry in the log",
                 last_index="its last entry", first_write_time="its first frame in the log",
                 last_write_time="its last frame",
                 election_ms="how long the winner campaigned, ms", held_by="nodes whose logs have its no-op"),
        lambda logs: leadership.timeline(logs.elections, logs.frames, logs.trace), first="cluster, `group`, term"),
    Question(
        "tenure", "Which nodes lead, how often and how long?", "log, trace",
        _columns("cluster group leader leaderships led_ms longest_ms median_ms entries share",
                 leader="node id; null: not known", leaderships="count", led_ms="ms in all that the log shows",
                 longest_ms="longest at a time, ms, of those whose begin is in the log",
                 median_ms="median of the same, ms",
                 share="of the group's time, 0 to 1"),
        lambda logs: leadership.tenure(logs.ask("leadership")), first="cluster, `group`, led_ms desc"),
    Question(
        "churn", "How often does each group change its leader?", "log, trace",
        _columns("cluster group leaderships leaders mean_tenure_ms shortest_ms longest_ms",
                 leaderships="count", leaders="nodes known to have led, count",
                 mean_tenure_ms="mean time of the leaderships whose begin is in the log, ms",
                 shortest_ms="shortest, ms", longest_ms="longest, ms"),
        lambda logs: leadership.churn(logs.ask("leadership")), first="leaderships desc"),
    Question(
        "elections", "What did each election cost, and were votes split?", "log, trace",
        _columns("cluster group term leader wall_time cause rounds election_ms votes previous_leader terms_lost "
                 "split_votes split_votes_source",
                 rounds="rounds the winner asked, probes included", election_ms="how long the winner campaigned, ms",
                 votes="votes granted", split_votes="rounds of votes that nobody won; null: not recorded",
                 split_votes_source="`trace` or `not recorded`"),
        lambda logs: elections.cost(logs.elections, logs.frames, logs.trace), first="election_ms desc"),
    Question(
        "election_causes", "What are elections caused by, and what do they cost by cause?", "log, trace",
        _columns("cluster group cause elections median_ms longest_ms most_rounds terms_lost split_votes",
                 elections="count", median_ms="median duration, ms", longest_ms="longest, ms", most_rounds="count",
                 split_votes="count; null: not recorded"),
        lambda logs: elections.summary(logs.ask("elections")), first="elections desc"),
    Question(
        "audit", "Do the replicas agree, and is any log damaged?", "log, trace",
        _columns("severity finding cluster group node file offset term index detail source",
                 severity="critical, warning or note", finding="see below", detail="in words"),
        lambda logs: audit.audit(logs.frames, logs.events, logs.trace), first="severity, finding, `group`, node"),
    Question(
        "audit_checks", "What could the audit look at?", "log, trace",
        _columns("check n source", check="what was compared", n="how many"),
        lambda logs: audit.checked(logs.frames, logs.events, logs.trace), first="check"),
    Question(
        "commit_latency", "How long does a leader wait until what it wrote is committed?", "trace",
        _columns("cluster group measured p50_ms p90_ms p99_ms max_ms exact source",
                 exact="false: the trace was sampled, the figures are upper bounds"),
        lambda logs: latency.commit_latency(logs.frames, logs.trace), first="p99_ms desc"),
    Question(
        "commit_latency_over_time", "When were commits slow?", "trace",
        _columns("cluster group bucket_time measured p50_ms p99_ms"),
        lambda logs: latency.over_time(logs.frames, logs.trace, logs.bucket_ms), first="bucket_ms, cluster, `group`"),
    Question(
        "throughput", "How much was written, and when?", "log",
        _columns("cluster group bucket_time frames entries payload_bytes entries_per_s payload_bytes_per_s",
                 frames="count", entries_per_s="per second", payload_bytes_per_s="bytes per second"),
        lambda logs: throughput.throughput(logs.frames, logs.bucket_ms), first="bucket_ms, `group`"),
    Question(
        "skew", "Which groups write most of it?", "log",
        _columns("rank cluster group entries payload_bytes share cumulative_share entries_per_frame "
                 "mean_entry_bytes hot",
                 rank="1: the busiest", share="of all entries, 0 to 1", cumulative_share="of this and the busier ones",
                 entries_per_frame="mean", mean_entry_bytes="mean payload, bytes",
                 hot="three times its fair share of entries, or more"),
        lambda logs: throughput.skew(logs.frames), first="rank"),
    Question(
        "entry_sizes", "How large are entries?", "log",
        _columns("cluster group entries p50_bytes p90_bytes p99_bytes max_bytes mean_bytes",
                 p50_bytes="median payload, bytes", p90_bytes="90th percentile, bytes",
                 p99_bytes="99th percentile, bytes", max_bytes="largest, bytes", mean_bytes="mean, bytes"),
        lambda logs: throughput.entry_sizes(logs.frames, logs.entries), first="entries desc"),
    Question(
        "lag", "How far is each replica behind?", "log, trace",
        _columns("cluster group node last_index behind_entries behind_ms measured p50_ms p99_ms max_ms source",
                 last_index="of its log", behind_entries="than the longest log of the group",
                 behind_ms="between the last frames of both, ms", p50_ms="from the leader's writing to its, median, ms",
                 p99_ms="the same, 99th percentile, ms", max_ms="the same, most, ms"),
        lambda logs: replication.lag(logs.frames, logs.trace), first="behind_entries desc, `group`, node"),
    Question(
        "compaction", "What does each node keep, and how fresh are its snapshots?", "log",
        _columns("cluster group node first_index last_index log_bytes snapshots snapshot_index snapshot_bytes "
                 "snapshot_taken_time entries_since_snapshot installs",
                 first_index="first entry that the log still has", last_index="last entry", log_bytes="bytes of frames",
                 snapshots="files", snapshot_index="last entry in the newest", snapshot_bytes="bytes of its file",
                 snapshot_taken_time="of the newest", entries_since_snapshot="count",
                 installs="snapshots that came from a leader"),
        lambda logs: replication.compaction(logs.frames, logs.events, logs.snapshots), first="log_bytes desc"),
    Question(
        "master_changes", "Which broker was master of each broker group, from when?", "log",
        _columns("cluster group broker_cluster broker_name index wall_time master_epoch master previous clean "
                 "node file offset",
                 previous="broker id before", clean="false: an unclean election, messages may be lost"),
        lambda logs: masters.master_changes(logs.history), first="index desc"),
    Question(
        "outages", "When had a broker group no master, and for how long?", "log",
        _columns("cluster group broker_cluster broker_name index lost_time recovered_time recovery_ms lasted_ms "
                 "new_master file offset",
                 lost_time="first command that saw the master missing",
                 recovered_time="the new master's election; null: not yet", recovery_ms="from one to the other, ms",
                 lasted_ms="the same, or until the log's end, ms", new_master="broker id"),
        lambda logs: masters.outages(logs.replayed, logs.since_ms), first="lasted_ms desc"),
    Question(
        "availability", "For what share of the time had each broker group a master?", "log",
        _columns("cluster group broker_cluster broker_name from_time until_time masters outages without_master_ms "
                 "longest_ms availability unclean_elections",
                 from_time="its first master, or the time asked for", until_time="the log's end",
                 masters="elections won, count", outages="count", without_master_ms="ms in all",
                 longest_ms="longest outage, ms", availability="share of the time with a master, 0 to 1",
                 unclean_elections="count"),
        lambda logs: masters.availability(logs.replayed, logs.since_ms), first="availability, broker_name"),
    Question(
        "sync_state_sets", "Do replicas leave and join the SyncStateSet all the time?", "log",
        _columns("cluster group broker_cluster broker_name changes shrinks expands smallest flaps",
                 changes="count", shrinks="count", expands="count", smallest="members of the smallest set",
                 flaps="brokers that left and were back within 60 s, count"),
        lambda logs: masters.sync_state_sets(logs.history), first="flaps desc, changes desc"),
    Question(
        "broker_ids", "Is every broker id one broker's for ever?", "log",
        _columns("finding cluster group broker_cluster broker_name broker_id index wall_time node file offset detail",
                 finding="`bound_twice` or `shared`", broker_id="the id", detail="in words"),
        lambda logs: masters.broker_ids(logs.history), first="index"),
    Question(
        "compare", "What changed between two periods?", "log, trace",
        _columns("cluster group metric unit before after change change_share",
                 metric="what is compared", unit="of the figures", before="in the first period", after="in the second",
                 change="the difference", change_share="of the first, 0.1 is a tenth more"),
        lambda logs: compare.compare(logs.frames, logs.elections, logs.trace, logs.history, *logs.periods),
        first="abs(change_share) desc"),
)
QUESTIONS: Final[dict[str, Question]] = {question.name: question for question in _ALL}
