"""A running monitor over live logs: alert rows when replicas diverge, bytes are damaged or a group has no leader.

    raft-monitor /data/raft --checkpoint /var/lib/raft-monitor       one JSON object per alert, on standard output

Three streams (frames, events and, where there are trace files, their lines) feed one ``Watch`` in the driver, which is
asked for overdue matters between batches too, since Spark runs none while nothing is written.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from analysis.errors import AnalysisError, sentence
from analysis.files.finding import find_logs, homes
from analysis.session import QUIET, session
from analysis.shipping import ship
from analysis.views.traces import FILES, cluster_of, file_of_line
from analysis.watch import Alert, Watch
from remoting.daemon.process import piped
from remoting.daemon.version import add_version

_FRAME: Final = ("cluster", "group", "group_id", "node", "index", "term", "mark", "file", "offset", "damage", "reason")
_EVENT: Final = ("cluster", "group", "group_id", "node", "kind", "term", "damage")
_ORDER: Final = ("cluster", "node", "segment", "offset")
_BATCH_MB: Final = 32
"""Log in one batch: the driver holds a row for each of its frames."""
_TRACE: Final = "event string, node string, `group` bigint, term bigint, asked_term bigint, leader string"
_TOLD: Final = "event in ('BecameLeader', 'BecameFollower', 'RoundStarted')"

Feed = Callable[[Iterable[Mapping[str, Any]], int], Iterable[Alert]]


@attrs.define(eq=False)
class Monitor:
    """Feeds a ``Watch`` from streams and hands its alerts to ``on_alert``, from Spark's threads, one at a time."""

    watch: Watch
    on_alert: Callable[[Alert], None]
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def batch(self, feed: Feed, rows: DataFrame, order: Sequence[str]) -> None:
        """One micro-batch of a stream."""
        found = rows.orderBy(*order).collect() if order else rows.collect()
        with self._lock:
            for alert in feed([row.asDict() for row in found], self.now_ms()):
                self.on_alert(alert)

    def tick(self) -> None:
        with self._lock:
            for alert in self.watch.tick(self.now_ms()):
                self.on_alert(alert)


@attrs.define(eq=False)
class _Whose:
    """Clusters of traces. Directories that come later are found when a trace asks for them."""

    paths: Sequence[str]
    _known: dict[tuple[str, str], str | None] = attrs.field(factory=dict)

    def cluster(self, file: str, node: str) -> str | None:
        if self._known.get((file, node)) is None:
            local = "/" + file.removeprefix("file:").lstrip("/") if file.startswith("file:") else file
            self._known[file, node] = cluster_of(local, node, homes(find_logs(self.paths)))
        return self._known[file, node]


@contextmanager
def monitoring(
    spark: SparkSession, paths: Sequence[str], checkpoint: str, monitor: Monitor, *, traces: Sequence[str] = (),
    trigger_ms: int = 1_000, from_now: bool = False,
) -> Iterator[list[StreamingQuery]]:
    """Streams that run while the block does. ``checkpoint``: a directory where they keep how far they are.

    ``from_now``: pass over what is in the logs already. A restarted monitor goes on where the last one was, and
    compares what comes from there on.
    """
    start = "latest" if from_now else "earliest"

    def raftlog(form: str) -> DataFrame:
        return spark.readStream.format("raftlog").option("format", form).option("start", start).option(
            "max_mb_per_batch", _BATCH_MB).option("paths", json.dumps(list(paths))).load()

    def run(name: str, rows: DataFrame, feed: Feed, order: Sequence[str]) -> StreamingQuery:
        return rows.writeStream.queryName(name).option("checkpointLocation", f"{checkpoint}/{name}").trigger(
            processingTime=f"{trigger_ms} milliseconds").foreachBatch(
            lambda batch, _: monitor.batch(feed, batch, order)).start()

    watch, whose = monitor.watch, _Whose(paths)
    queries = [
        run("frames", raftlog("frames").select(*_FRAME, "segment"), watch.frames, _ORDER),
        run("events", raftlog("events").select(*_EVENT, "segment", "offset"), watch.events, _ORDER),
    ]
    try:
        for number, path in enumerate(traces):
            lines = spark.readStream.option("recursiveFileLookup", True).option("pathGlobFilter", FILES).text(path)
            found = lines.select(
                F.from_json("value", _TRACE).alias("told"), file_of_line().alias("file")).select(
                "told.*", "file").where(_TOLD).select(
                F.col("group").alias("group_id"), "event", "node", "term", "asked_term", "leader", "file")
            queries.append(run(f"trace-{number}", found, lambda rows, now_ms: watch.trace(
                [{**row, "cluster": whose.cluster(row["file"], row["node"])} for row in rows], now_ms), ()))
        yield queries
    finally:
        for query in queries:
            query.stop()


def parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    made = argparse.ArgumentParser("raft-monitor", description=__doc__.split("\n\n", 1)[0])
    add_version(made)
    made.add_argument("paths", nargs="+", help="directories with logs of running nodes")
    made.add_argument("--checkpoint", required=True, help="directory where the monitor keeps how far it is")
    made.add_argument("--traces", action="append", default=[], help="a directory of trace files; may be repeated")
    made.add_argument("--no-leader-ms", type=int, default=10_000, help="alert beyond this; default: %(default)s")
    made.add_argument("--grace-ms", type=int, default=60_000,
                      help="how long a replica may keep a deposed leader's entries; default: %(default)s")
    made.add_argument("--from-now", action="store_true", help="pass over what is in the logs already")
    made.add_argument("--for-seconds", type=float, help="end by itself after so long")
    made.add_argument("--master", default="", help="of Spark; default: local[*]")
    return made


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and watch until it is interrupted."""
    options = parser().parse_args(arguments)
    try:
        find_logs(options.paths)  # fail here: a stream would wrap the error in Spark's words
        spark = session(options.master, name="raft-monitor", **QUIET)
        ship(spark)
        return _run(spark, options)
    except (AnalysisError, OSError) as error:
        print(f"raft-monitor: {error}", file=sys.stderr)
    except (PySparkException, Py4JError) as error:
        print(f"raft-monitor: Spark could not do it: {sentence(str(error))}", file=sys.stderr)
    return 2


def as_json(alert: Alert) -> dict[str, Any]:
    """Return an alert for JSON, with times in ISO 8601, UTC."""
    return {"at": _iso(alert.at_ms), "since": _iso(alert.since_ms), **attrs.asdict(alert)}


def _iso(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def _run(spark: SparkSession, options: argparse.Namespace) -> int:
    def tell(alert: Alert) -> None:
        print(json.dumps(as_json(alert)), flush=True)

    monitor = Monitor(Watch(no_leader_ms=options.no_leader_ms, grace_ms=options.grace_ms), tell)
    ends = time.monotonic() + (options.for_seconds or float("inf"))
    checkpoint = str(Path(options.checkpoint).absolute()) if "://" not in options.checkpoint else options.checkpoint
    streams = monitoring(
        spark, options.paths, checkpoint, monitor, traces=options.traces, from_now=options.from_now)
    with streams as queries:
        try:
            while time.monotonic() < ends:
                time.sleep(0.5)
                monitor.tick()
                for query in queries:
                    if not query.isActive:
                        print(f"raft-monitor: the stream {query.name} ended: {sentence(str(query.exception()))}",
                              file=sys.stderr)
                        return 1
        except KeyboardInterrupt:
            return 0
    return 0
