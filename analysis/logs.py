"""``Logs``: everything that lies under some paths, as DataFrames that are read when somebody asks.

    logs = open_logs(spark, ["/data/raft"])
    logs.frames.groupBy("group").count().show()
    logs.ask("leadership").where("tenure_ms < 1000").show()
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import attrs
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from analysis.questions import QUESTIONS
from analysis.questions.compare import Period
from analysis.register import register
from analysis.schemas import Format
from analysis.source.finding import find_logs
from analysis.views import commands, elections, snapshots, traces

PREFIX_BYTES: Final = 4096
"""Of a frame's payload, to tell whose it is: the table of lengths and some bytes behind it."""
BUCKETS_MAX: Final = 240
_STEPS_MS: Final = tuple(
    step * unit
    for unit, steps in ((1, (10, 20, 50, 100, 200, 500)), (1_000, (1, 2, 5, 10, 30)), (60_000, (1, 5, 15, 30)),
                        (3_600_000, (1, 3, 6, 12)), (86_400_000, (1, 7, 28)))
    for step in steps)


@attrs.define(eq=False, slots=False)
class Logs:
    """Views of the logs and traces under ``paths``, between ``since_ms`` and ``until_ms`` of the leaders' clocks.

    ``keep`` holds what most questions ask for in memory, or on the workers' disks where it does not fit.
    """

    spark: SparkSession
    paths: Sequence[str]
    since_ms: int | None = None
    until_ms: int | None = None
    traced: Sequence[str] = ()
    """Where trace files lie; empty: under ``paths``."""
    split_ms: int | None = None
    """Where the two periods meet that ``compare`` sets side by side; None: in the middle."""
    _kept: list[DataFrame] = attrs.field(factory=list, init=False)
    _answers: dict[str, DataFrame] = attrs.field(factory=dict, init=False)

    def read(self, form: Format, **options: str) -> DataFrame:
        """One of the source's formats, whole, with options of its own. See ``analysis.schemas``."""
        reader = self.spark.read.format("raftlog").option("format", form)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(list(self.paths))

    def _between(self) -> dict[str, str]:
        """The source's options for what lies between the bounds; damage stays, as it may belong to any time."""
        bounds = {"since_ms": self.since_ms, "until_ms": self.until_ms}
        return {name: str(bound) for name, bound in bounds.items() if bound is not None}

    def keep(self) -> None:
        """Hold frames, events, traces, the controllers' history, and answers once they are asked for."""
        if not self._kept:
            for name in ("frames", "events", "trace", "history"):
                self.__dict__[name] = getattr(self, name).persist(StorageLevel.MEMORY_AND_DISK)
                self._kept.append(self.__dict__[name])

    @property
    def kept(self) -> bool:
        return bool(self._kept)

    def release(self) -> None:
        for kept in self._kept:
            kept.unpersist()
        self._kept.clear()

    # --- what the source reads ---------------------------------------------------------------------------------

    @cached_property
    def frames(self) -> DataFrame:
        """Without payloads."""
        return self.read("frames", payload="none", **self._between()).drop("payload")

    @cached_property
    def entries(self) -> DataFrame:
        """Without payloads."""
        return self.read("entries", payload="none", **self._between()).drop("payload")

    @cached_property
    def events(self) -> DataFrame:
        return self.read("events", **self._between())

    @cached_property
    def trace(self) -> DataFrame:
        """``analysis.views.traces``; no row where nodes wrote no trace."""
        rows = traces.traces(self.spark, _located(self.traced or self.paths))
        return self._inside(rows, F.col("wall_us") / 1_000)

    # --- what is made of it ------------------------------------------------------------------------------------

    @cached_property
    def elections(self) -> DataFrame:
        return elections.elections(self.events)

    @cached_property
    def memberships(self) -> DataFrame:
        return elections.memberships(self.events)

    @cached_property
    def snapshots(self) -> DataFrame:
        return snapshots.snapshots(self.spark, _located(self.paths))

    @cached_property
    def history(self) -> DataFrame:
        """Of controller groups: see ``analysis.views.commands``. Reads their payloads; others' only at the start."""
        begins = self.read("frames", payload="prefix", prefix_bytes=str(PREFIX_BYTES))
        names = sorted({row["group"] for row in commands.controller_groups(begins).collect()})
        if not names:
            return self.spark.createDataFrame([], commands.SCHEMA)
        frames = self.read("frames", payload="full", groups=",".join(names))
        contents = snapshots.snapshots(self.spark, _located(self.paths), content=True)
        # Filtered behind the replay: an outcome depends on all that was before.
        return self._inside(commands.history(frames, contents), F.col("wall_ms"))

    def _inside(self, rows: DataFrame, time_ms: Column) -> DataFrame:
        if self.since_ms is not None:
            rows = rows.where(time_ms >= self.since_ms)
        if self.until_ms is not None:
            rows = rows.where(time_ms <= self.until_ms)
        return rows

    @cached_property
    def span_ms(self) -> tuple[int, int]:
        """Wall clock of the first and the last frame; (0, 0) if there is none."""
        row = self.frames.agg(F.min("wall_ms"), F.max("wall_ms")).first()
        return (0, 0) if row is None or row[0] is None else (row[0], row[1])

    @cached_property
    def bucket_ms(self) -> int:
        """Width of what is shown over time: at most 240 of them."""
        width = (self.span_ms[1] - self.span_ms[0]) / BUCKETS_MAX
        return next((step for step in _STEPS_MS if step >= width), _STEPS_MS[-1])

    @property
    def periods(self) -> tuple[Period, Period]:
        """What ``compare`` sets side by side: ``split_ms``, or else the middle of the time, parts them."""
        first, last = self.span_ms
        middle = self.split_ms if self.split_ms is not None else (first + last + 1) // 2
        return (first, middle), (middle, last + 1)

    # --- what is asked of it -----------------------------------------------------------------------------------

    def ask(self, question: str) -> DataFrame:
        """The answer to one of ``analysis.questions.QUESTIONS``, by its name. Raises ``KeyError`` with all names."""
        if question not in QUESTIONS:
            raise KeyError(f"no question {question!r}; there are {', '.join(QUESTIONS)}")
        if question not in self._answers:
            answer = QUESTIONS[question].answer(self)
            if self._kept:
                self._kept.append(answer.persist(StorageLevel.MEMORY_AND_DISK))
            self._answers[question] = answer
        return self._answers[question]


def open_logs(
    spark: SparkSession, paths: str | Sequence[str], *, traces: str | Sequence[str] = (), since_ms: int | None = None,
    until_ms: int | None = None, split_ms: int | None = None,
) -> Logs:
    """Views of everything under ``paths``: node directories, archives of segments; trace files there or in ``traces``.

    Raises ``NothingToRead`` for a path without a log.
    """
    register(spark)
    find_logs(_listed(paths))  # says so here what Spark would wrap in its own words
    return Logs(spark, _listed(paths), since_ms, until_ms, _listed(traces), split_ms)


def _listed(paths: str | Sequence[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def _located(paths: Sequence[str]) -> list[str]:
    """As Spark's own readers want them: what names no file system is on this machine's, as it is for the source."""
    return [path if "://" in path or path.startswith("file:") else Path(path).absolute().as_uri() for path in paths]
