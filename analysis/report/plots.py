"""The plots of the page, from answers: who led, how much was written, how fast it was committed, who was available."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup
from pyspark.sql import Row
from pyspark.sql import functions as F

from analysis.logs import Logs
from analysis.report.charts import COLOURS, Bar, Lane, Line, Span, bars, clock, lanes, legend, lines, number_words
from analysis.report.injected import Fault, Run
from analysis.report.page import UNKNOWN_LEADER, Plot

LANES_MAX: Final = 24
SPANS_MAX: Final = 20_000


def _colours(names: Sequence[str]) -> dict[str, int | str]:
    return {name: number if number < COLOURS else "other" for number, name in enumerate(names)}


def leadership(logs: Logs) -> Plot:
    """A lane per group, the ones that changed most first."""
    title, about = "Who led", f"A lane per raft group; the {LANES_MAX} groups with most leaderships."
    shown = logs.ask("churn").orderBy(F.desc("leaderships"), "cluster", "group").limit(LANES_MAX).collect()
    names = [(row["cluster"], row["group"]) for row in shown]
    wanted = logs.ask("leadership").where(F.col("group").isin([group for _, group in names])).orderBy("term")
    rows = [row for row in wanted.limit(SPANS_MAX).collect() if _begin(row) is not None]
    if not rows:
        return Plot(title, about, Markup("<p>No leadership with a time is in these logs.</p>"))
    several = len({cluster for cluster, _ in names}) > 1
    leaders = _colours(sorted({row["leader"] for row in rows if row["leader"] is not None})) | {
        words: "other" for words in UNKNOWN_LEADER.values() if any(_leader(row) == words for row in rows)}
    drawn = []
    for cluster, group in names:
        spans = [Span(_begin(row), row["until_ms"], leaders[_leader(row)], _led(row))
                 for row in rows if (row["cluster"], row["group"]) == (cluster, group)]
        drawn.append(Lane(f"{cluster}/{group}" if several else group, spans, f"{len(spans)} terms led"))
    return Plot(title, about, legend(leaders) + lanes(drawn, *logs.span_ms, name="plot-leadership"))


def _begin(row: Row) -> Any:
    """Ms: with its no-op, or where it is first seen; None: no time is in the log."""
    return row["first_write_ms"] if row["began_ms"] is None else row["began_ms"]


def _leader(row: Row) -> str:
    return row["leader"] or UNKNOWN_LEADER[row["leader_source"]]


def _led(row: Row) -> str:
    seen = (f"seen from {clock(_begin(row))} on" if row["began_ms"] is None else
            f"from {clock(row['began_ms'])} for {row['tenure_ms']} ms")
    return (f"{_leader(row)}, term {row['term']}, {seen}, {row['entries']} entries; "
            f"cause: {row['cause'] or 'not recorded'}")


def done(logs: Logs, run: Run) -> Plot:
    """A lane per group that was touched, and one for what its clients saw."""
    begin, end = logs.span_ms
    names = sorted({group for fault in run.faults for group in fault.groups} | {gap.group for gap in run.gaps})
    drawn = []
    for name in names[:LANES_MAX // 2]:
        faults = [Span(fault.at_ms, end if fault.until_ms is None else fault.until_ms, 0, _fault(fault))
                  for fault in run.of(name)]
        gaps = [gap for gap in run.gaps if gap.group == name]
        if faults:
            drawn.append(Lane(name, faults, f"{len(faults)} fault{'s' * (len(faults) > 1)}"))
        if gaps:
            longest = max(gap.end_ms - gap.begin_ms for gap in gaps)
            drawn.append(Lane(f"{name}, clients", [
                Span(gap.begin_ms, gap.end_ms, 1, f"from {clock(gap.begin_ms)} no acknowledgement for "
                     f"{gap.end_ms - gap.begin_ms} ms") for gap in gaps], f"≤ {longest} ms"))
    about = "Faults from when they were made until they were undone, and times without an acknowledgement, by group."
    return Plot("What was done, and what clients saw", about,
                legend({"fault": 0, "no acknowledgement": 1}) + lanes(drawn, begin, end, name="plot-done"))


def _fault(fault: Fault) -> str:
    until = "not undone" if fault.until_ms is None else f"undone {clock(fault.until_ms)}"
    return f"{', '.join(fault.who)} {fault.what} at {clock(fault.at_ms)}, {until}"


def written(logs: Logs) -> Plot:
    title, about = "Entries written", "All groups together; each entry once, not once per replica."
    per_bucket = logs.ask("throughput").groupBy("bucket_ms").agg(F.sum("entries_per_s").alias("rate"))
    rows = per_bucket.orderBy("bucket_ms").collect()
    if not rows:
        return Plot(title, about, Markup("<p>No frame with a time is in these logs.</p>"))
    points = filled([(row["bucket_ms"], row["rate"]) for row in rows], logs.bucket_ms)
    drawn = lines([Line("", points)], *_axis(logs), name="plot-throughput", unit="entries/s", area=True)
    return Plot(title, about, drawn)


def filled(points: Sequence[tuple[int, float]], step: int) -> list[tuple[float, float]]:
    """With zeros where nothing was written, so that a line does not bridge silence."""
    known = dict(points)
    first, last = points[0][0], points[-1][0]
    return [(at, known.get(at, 0.0)) for at in range(first, last + 1, step)]


def _axis(logs: Logs) -> tuple[int, int]:
    return logs.span_ms[0] - logs.bucket_ms, logs.span_ms[1] + logs.bucket_ms


def commits(logs: Logs) -> Plot:
    title, about = "Commit latency", "From a leader's writing to its knowing that a quorum has it, from traces."
    rows = logs.ask("commit_latency_over_time").groupBy("bucket_ms").agg(
        F.max("p50_ms").alias("p50"), F.max("p99_ms").alias("p99")).orderBy("bucket_ms").collect()
    if not rows:
        return Plot(title, about, Markup(
            '<p id="commit-latency">Not recorded: the log has no commit times. Hand nodes a trace file '
            "(<code>open_trace_file</code>, with <code>sample_every=1</code> for exact figures) and name its directory "
            "as a path of the report.</p>"))
    drawn = [Line("99 %", [(row["bucket_ms"], row["p99"]) for row in rows], 1),
             Line("median", [(row["bucket_ms"], row["p50"]) for row in rows], 0)]
    return Plot(title, about + " Of the groups in a bucket, the slowest.",
                legend({"median": 0, "99th percentile": 1})
                + lines(drawn, *_axis(logs), name="plot-latency", unit="ms"))


def availability(logs: Logs) -> Plot | None:
    """A lane per broker group; None where no group is a controllers'."""
    least = logs.ask("availability").orderBy("availability", F.desc("masters"), "broker_name")
    shown = least.limit(LANES_MAX).collect()
    if not shown:
        return None
    mine_only = F.col("broker_name").isin([row["broker_name"] for row in shown])
    changed = logs.ask("master_changes").where(mine_only).orderBy("index").limit(SPANS_MAX).collect()
    lost = logs.ask("outages").where(mine_only).limit(SPANS_MAX).collect()
    masters = _colours(sorted({f"broker {row['master']}" for row in changed if row["master"] is not None}))
    several = len({row["cluster"] for row in shown}) > 1
    drawn = []
    for row in shown:
        key = (row["cluster"], row["group"], row["broker_cluster"], row["broker_name"])
        mine = [each for each in changed if _key(each) == key]
        spans = [
            Span(each["wall_ms"], after, masters[f"broker {each['master']}"] if each["master"] is not None else "gap",
                 f"epoch {each['master_epoch']}: broker {each['master'] or 'none'} from {clock(each['wall_ms'])}")
            for each, after in zip(mine, [*(later["wall_ms"] for later in mine[1:]), row["until_ms"]], strict=True)]
        spans += [
            Span(each["lost_ms"], each["lost_ms"] + each["lasted_ms"], "gap", f"no master for {each['lasted_ms']} ms")
            for each in lost if _key(each) == key]
        name = f"{row['cluster']}: {row['broker_name']}" if several else row["broker_name"]
        drawn.append(Lane(name, spans, f"{row['availability']:.4%}"))
    begin = min(row["from_ms"] for row in shown)
    end = max(row["until_ms"] for row in shown)
    return Plot("Masters of broker groups",
                "A lane per broker group, the least available first; red: without a master, from when the controllers "
                "noticed. How long noticing took is not in a log.",
                legend({**masters, "no master": "gap"}) + lanes(drawn, begin, end, name="plot-availability"))


def _key(row: Row) -> tuple[str, str, str, str]:
    return row["cluster"], row["group"], row["broker_cluster"], row["broker_name"]


def skew(logs: Logs) -> Plot | None:
    """None for a single group."""
    rows = logs.ask("skew").orderBy("rank").limit(12).collect()
    if len(rows) < 2:
        return None
    return Plot("Busiest groups", "Share of all entries.", bars(
        [Bar(row["group"], row["share"], f"{row['share']:.1%}, {number_words(row['entries'])} entries",
             1 if row["hot"] else 0) for row in rows], name="plot-skew"))
