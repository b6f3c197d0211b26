"""``Logs``: everything that lies under some paths, as DataFrames that are read when somebody asks.

    logs = open_logs(spark, ["/data/raft"])
    logs.frames.groupBy("group").count().show()
    logs.ask("leadership").where("tenure_ms < 1000").show()
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, reduce
from operator import or_
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from analysis import small
from analysis.errors import NothingToRead
from analysis.files.finding import Home, find_logs, homes
from analysis.questions import QUESTIONS
from analysis.questions.catalogue import timed
from analysis.questions.compare import Period
from analysis.register import register
from analysis.schemas import Format
from analysis.views import commands, elections, snapshots, traces
from analysis.views.traces import FILES, files_under

BUCKETS_MAX: Final = 240
ANSWER_ROWS_MAX: Final = 5_000
"""An answer of at most so many rows is kept in Spark's plans, where asking on costs least."""
LIGHT_BYTES: Final = 2 << 20
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
    """Paths of trace files; empty: under ``paths``."""
    split_ms: int | None = None
    """Time between the two periods that ``compare`` sets side by side; None: the middle."""
    in_driver: bool = False
    """Read by this process where the rows are few (``analysis.small``), at the first use of each view."""
    known: Sequence[Home] = ()
    """The nodes' directories: whose traces and snapshots are whose."""
    _kept: list[DataFrame] = attrs.field(factory=list, init=False)
    kept: bool = attrs.field(default=False, init=False)
    """Views and answers are held."""
    _light: list[DataFrame] = attrs.field(factory=list, init=False)
    _answers: dict[str, DataFrame] = attrs.field(factory=dict, init=False)
    _short: dict[str, pa.Table] = attrs.field(factory=dict, init=False)

    def read(self, form: Format, **options: str) -> DataFrame:
        """One of the source's formats, whole, with options of its own. See ``analysis.schemas``."""
        if self.in_driver:
            rows = small.read({"format": form, "paths": json.dumps(list(self.paths)), **options})
            if rows is not None:
                return self._lightly(rows)
            self.in_driver = False
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
        if not self.kept:
            for name in ("frames", "events", "trace", "replayed", "elections"):
                view = getattr(self, name)
                if not any(view is light for light in self._light):
                    self.__dict__[name] = view.persist(StorageLevel.MEMORY_AND_DISK)
                    self._kept.append(self.__dict__[name])
            self.kept = True

    def _lightly(self, rows: pa.Table) -> DataFrame:
        """Give rows to Spark as a table that it need not cache."""
        found = small.table(self.spark, rows)
        if rows.num_rows:  # one partition: Spark need not share out few rows
            found = found.coalesce(1)
        if rows.nbytes <= LIGHT_BYTES:
            self._light.append(found)
        return found

    def _none(self, schema: str) -> DataFrame:
        self._light.append(small.nothing(self.spark, schema))
        return self._light[-1]

    def release(self) -> None:
        self.kept = False
        for kept in self._kept:
            kept.unpersist()
        self._kept.clear()
        self._short.clear()

    # --- what the source reads ---------------------------------------------------------------------------------

    @cached_property
    def frames(self) -> DataFrame:
        """One row per frame, without payloads."""
        return self._bare("frames")

    @cached_property
    def entries(self) -> DataFrame:
        """One row per entry, without payloads."""
        return self._bare("entries")

    def _bare(self, form: Format) -> DataFrame:
        found = self.read(form, payload="none", **self._between())
        bare = found.drop("payload")
        if any(found is light for light in self._light):
            self._light.append(bare)
        return bare

    @cached_property
    def events(self) -> DataFrame:
        return self.read("events", **self._between())

    @cached_property
    def trace(self) -> DataFrame:
        """``analysis.views.traces``; no row where nodes wrote no trace."""
        files = files_under(self.traced or self.paths)
        if not files:
            return self._none(traces.SCHEMA)
        rows = traces.traces(self.spark, files, self.known)
        return self._inside(rows, F.col("wall_us") / 1_000)

    # --- what is made of it ------------------------------------------------------------------------------------

    @cached_property
    def elections(self) -> DataFrame:
        found = elections.elections(self.events)
        return self._lightly(found.toArrow()) if self.in_driver else found

    @cached_property
    def snapshots(self) -> DataFrame:
        return snapshots.snapshots(self.spark, self.known)

    @cached_property
    def history(self) -> DataFrame:
        """Commands of controller groups: see ``analysis.views.commands``."""
        return self.replayed if self.since_ms is None else self.replayed.where(F.col("wall_ms") >= self.since_ms)

    @cached_property
    def replayed(self) -> DataFrame:
        """Commands from before ``since_ms`` too, for states that last.

        Reads payloads of controller groups, and a few bytes of other groups.
        """
        found = commands.controller_groups(self.frames)
        if not found:
            return self._none(commands.SCHEMA)
        named = self.read("frames", payload="full", groups=",".join(sorted({group for _, group, _ in found})))
        frames = named.where(reduce(or_, (  # another cluster may have a group of the same name
            F.col("cluster").eqNullSafe(cluster) & (F.col("group") == group) for cluster, group, _ in found)))
        contents = snapshots.contents(self.spark, self.known, [(cluster, number) for cluster, _, number in found])
        if self.in_driver:
            made = self._lightly(commands.history_here(frames, contents))
        else:
            made = commands.history(frames, contents)
        # Filter after the replay: an outcome depends on all earlier commands.
        return made if self.until_ms is None else made.where(F.col("wall_ms") <= self.until_ms)

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
        """Return the two periods that ``compare`` sets side by side, parted by ``split_ms``, else in the middle."""
        first, last = self.span_ms
        middle = self.split_ms if self.split_ms is not None else (first + last + 1) // 2
        return (first, middle), (middle, last + 1)

    # --- what is asked of it -----------------------------------------------------------------------------------

    def ask(self, question: str) -> DataFrame:
        """The answer to one of ``analysis.questions.QUESTIONS``, by its name. Raises ``KeyError`` with all names."""
        if question not in QUESTIONS:
            raise KeyError(f"no question {question!r}; there are {', '.join(QUESTIONS)}")
        if question not in self._answers:
            answer = timed(QUESTIONS[question].answer(self))
            self._answers[question] = self._held(question, answer) if self.kept else answer
        return self._answers[question]

    def short(self, question: str) -> pa.Table | None:
        """The whole answer in its order, while answers are held; None: it is a long one."""
        self.ask(question)
        return self._short.get(question)

    def _held(self, question: str, answer: DataFrame) -> DataFrame:
        """Worked out once, now; a long one when it is first used."""
        rows = answer.orderBy(*QUESTIONS[question].order()).limit(ANSWER_ROWS_MAX + 1).toArrow()
        if rows.num_rows <= ANSWER_ROWS_MAX:
            self._short[question] = rows
            return small.table(self.spark, rows)
        self._kept.append(answer.persist(StorageLevel.MEMORY_AND_DISK))
        return answer


def open_logs(
    spark: SparkSession, paths: str | Sequence[str], *, traces: str | Sequence[str] = (), since_ms: int | None = None,
    until_ms: int | None = None, split_ms: int | None = None, in_driver: bool | None = None,
) -> Logs:
    """Views of everything under ``paths``: node directories, archives of segments; trace files there or in ``traces``.

    ``in_driver``: whether this process reads the logs itself, as long as they are small. Default: where Spark runs on
    this machine alone.

    Raises ``NothingToRead`` for a path without a log, and for one of ``traces`` without a trace file.
    """
    register(spark)
    within = [_absolute(path) for path in _listed(paths)]
    found = find_logs(within)  # fail here: Spark would wrap the error in its own words
    for path in _listed(traces):
        if not files_under([path]):
            raise NothingToRead(f"{path}: no trace file ({FILES}) is there")
    if in_driver is None:
        context = getattr(spark, "_sc", None)  # a Spark Connect session has none
        in_driver = context is not None and context.master.startswith("local")
    return Logs(spark, within, since_ms, until_ms, _listed(traces), split_ms, in_driver and small.are_small(found),
                homes(found))


def _listed(paths: str | Sequence[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def _absolute(path: str) -> str:
    """Paths on this machine as every other view has them, whatever directory they were named from."""
    return path if "://" in path or path.startswith("file:") else str(Path(path).absolute())

