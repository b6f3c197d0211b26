"""From logs to the page: every question asked, findings judged, plots drawn, one file written."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import functions as F

from analysis.logs import Logs
from analysis.questions import QUESTIONS, Question
from analysis.questions.catalogue import MOMENTS, TIMES
from analysis.report import plots
from analysis.report.charts import number_words
from analysis.report.findings import Bounds, Finding, judged
from analysis.report.injected import Run
from analysis.report.page import Page, Plot, Table, Tile, render

ROWS_SHOWN: Final = 50
ENTRIES_READ_MAX: Final = 50_000_000
"""Most entries for which the report asks ``entry_sizes``, which reads every entry of a replica."""

Progress = Callable[[int, int, str], None]
"""(steps done, steps in all, what is done now)."""


def make(
    logs: Logs, out: str | os.PathLike[str], *, title: str = "Raft logs", bounds: Bounds | None = None,
    progress: Progress | None = None, now: datetime | None = None, run: Run | None = None,
) -> list[Finding]:
    """Write the report on ``logs`` to the file ``out``; what it found, the worst first.

    ``bounds``: from where on something is a finding. ``run``: what was done meanwhile, which is none.
    Raises ``NothingToRead`` for paths without logs, and ``OSError``.
    """
    path = Path(out)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; name a file in it for the report")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: there is no such directory for the report")
    steps = itertools.count()

    def begin(what: str) -> None:
        if progress is not None:
            progress(next(steps), STEPS, what)

    with _kept(logs):
        page = _page(logs, title, bounds or Bounds(), run or Run(), begin)
    staged = path.with_name(path.name + ".part")
    staged.write_text(render(page, now or datetime.now(UTC)), encoding="utf-8")
    staged.replace(path)  # readers never see half a page
    begin(f"written to {path}")
    return list(page.findings)


_PLOTS: Final[tuple[Callable[[Logs], Plot | None], ...]] = (
    plots.leadership, plots.availability, plots.written, plots.commits, plots.skew)
STEPS: Final = 2 + len(_PLOTS) + len(QUESTIONS)


@contextmanager
def _kept(logs: Logs) -> Iterator[None]:
    """While a page is made; what its caller keeps stays."""
    before = logs.kept
    logs.keep()
    try:
        yield
    finally:
        if not before:
            logs.release()


def _page(logs: Logs, title: str, bounds: Bounds, run: Run, begin: Callable[[str], None]) -> Page:
    begin("reading the logs")
    tiles, entries = _tiles(logs)
    begin("judging")
    found, excused = judged(logs, bounds, run)
    tiles += [Tile(f"messages-{name}", f"messages {name}", number_words(count), count)
              for name, count in run.messages.items()]
    drawn: list[Plot | None] = [plots.done(logs, run)] if run.faults or run.gaps else []
    for plot in _PLOTS:
        begin(f"drawing {plot.__name__}")
        drawn.append(plot(logs))
    tables = []
    for question in QUESTIONS.values():
        begin(question.name)
        if question.name != "entry_sizes" or entries <= ENTRIES_READ_MAX:
            tables.append(_table(logs, question))
    return Page(title, logs.paths, logs.span_ms, tiles, found, [plot for plot in drawn if plot is not None], tables,
                _setup(logs.paths), excused)


def _table(logs: Logs, question: Question) -> Table:
    """A moment is shown once, under the timestamp's name; the page makes the words of its milliseconds."""
    whole = logs.short(question.name)
    if whole is not None:
        rows, total = whole.slice(0, ROWS_SHOWN).to_pylist(), whole.num_rows
    else:
        answer = logs.ask(question.name)
        rows = [row.asDict() for row in answer.orderBy(*question.order()).limit(ROWS_SHOWN).collect()]
        total = answer.count()
    columns = {name: meaning for name, meaning in question.columns.items() if name not in MOMENTS}
    shown = [[row[TIMES.get(name, name)] for name in columns] for row in rows]
    return Table(question.name, question.asks, question.source, columns, shown, total)


def _tiles(logs: Logs) -> tuple[list[Tile], int]:
    """Figures at the top; and how many entries there are over all replicas."""
    good = logs.frames.where("damage is null")
    row = good.agg(
        F.count_distinct(F.coalesce("cluster", F.lit("")), "group").alias("groups"),
        F.count_distinct(F.coalesce("cluster", F.lit("")), "node").alias("nodes"),
        F.sum("frame_bytes").alias("bytes")).collect()[0]
    skew = logs.ask("skew").agg(F.sum("entries").alias("entries")).collect()[0]
    led = logs.ask("leadership").count()
    slow = logs.ask("commit_latency").agg(F.max("p99_ms").alias("p99")).collect()[0]["p99"]
    worst = logs.ask("availability").agg(F.min("availability").alias("least"), F.count("*").alias("n")).collect()[0]
    entries = skew["entries"] or 0
    tiles = [
        Tile("groups", "raft groups", str(row["groups"]), row["groups"]),
        Tile("nodes", "nodes", str(row["nodes"]), row["nodes"]),
        Tile("entries", "entries", number_words(entries), entries),
        Tile("bytes", "bytes of frames, all replicas", number_words(row["bytes"] or 0), row["bytes"] or 0),
        Tile("leaderships", "leaderships", str(led), led),
        Tile("commit-p99", "ms, commit, slowest group's 99 %", "not recorded" if slow is None else f"{slow:.1f}", slow),
    ]
    if worst["n"]:
        tiles.append(Tile("broker-groups", "broker groups", str(worst["n"]), worst["n"]))
        tiles.append(Tile("availability", "least available group", f"{worst['least']:.4%}", worst["least"]))
    return tiles, entries


def _setup(paths: Sequence[str]) -> str:
    return ("from analysis.logs import open_logs\nfrom analysis.session import session\n"
            f"logs = open_logs(session(), {list(paths)!r})")
