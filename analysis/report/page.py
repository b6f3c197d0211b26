"""The page: one HTML file with everything inside, light or dark as the reader's system is, without a script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from itertools import groupby
from typing import Any, Final

import attrs
from markupsafe import Markup

from analysis.questions import leadership
from analysis.questions.catalogue import TIMES
from analysis.report import markup
from analysis.report.findings import SEVERITIES, Finding

_STYLE: Final = Markup(resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8"))
UNKNOWN_LEADER: Final = {
    leadership.BEFORE: "unknown (elected before the log begins)", leadership.NOT_RECORDED: "leader not recorded"}
"""Words shown where ``leader`` is null, by ``leader_source``."""


@attrs.frozen
class Tile:
    """A figure at the top. ``name`` is its id on the page, ``value`` is exact."""

    name: str
    label: str
    words: str
    value: float | int | str | None


@attrs.frozen
class Plot:
    title: str
    about: str
    body: Markup
    """SVG and legend; or a sentence where there is nothing to show."""


@attrs.frozen
class Table:
    name: str
    asks: str
    source: str
    columns: dict[str, str]
    rows: Sequence[Sequence[Any]]
    total: int


@attrs.frozen
class Page:
    title: str
    paths: Sequence[str]
    span_ms: tuple[int, int]
    tiles: Sequence[Tile]
    findings: Sequence[Finding]
    plots: Sequence[Plot]
    tables: Sequence[Table]
    setup: str
    """Python that makes ``logs``, for the queries."""
    excused: int = 0
    """Number of findings left out because an injected fault explains them."""


@attrs.frozen
class _Cell:
    """``exact`` is what programs read, if it is not what people do."""

    words: str
    css: str = ""
    exact: str | None = None


@attrs.frozen
class _Rule:
    """Findings of one rule; those that share a title stand below it once."""

    severity: str
    action: str
    findings: Sequence[tuple[Finding, str]]


def render(page: Page, made_at: datetime) -> str:
    """The text of the whole file."""
    begin, end = (datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S") for ms in page.span_ms)
    return markup.page(
        "page.html", page=page, style=_STYLE, begin=begin, end=end, made_at=f"{made_at:%Y-%m-%d %H:%M}",
        levels=_findings_words(page.findings), rules=[*_rules(page.findings)],
        tables=[attrs.evolve(table, rows=[*map(partial(_cells, table.columns), table.rows)]) for table in page.tables])


def _rules(found: Sequence[Finding]) -> Iterator[_Rule]:
    for _, alike in groupby(found, lambda each: each.rule):
        of_rule = list(alike)
        titles = ["", *(each.title for each in of_rule)]
        yield _Rule(of_rule[0].severity, of_rule[0].action, [
            (each, "" if each.title == before else each.title) for each, before in zip(of_rule, titles, strict=False)])


def _findings_words(found: Sequence[Finding]) -> str:
    levels = {level: sum(each.count for each in found if each.severity == level) for level in SEVERITIES}
    return ", ".join(f"{count} {level}" for level, count in levels.items() if count) or "none"


def _cells(columns: Iterable[str], row: Sequence[Any]) -> list[_Cell]:
    found = dict(zip(columns, row, strict=True))
    if "leader_source" in found and found["leader"] is None:
        found["leader"] = UNKNOWN_LEADER[found["leader_source"]]
    return [_cell(name, value) for name, value in found.items()]


def _cell(name: str, value: Any) -> _Cell:
    if value is None:
        return _Cell("–", "soft")
    if isinstance(value, bool):
        return _Cell("yes" if value else "no")
    if name in TIMES:  # cells of such a column hold milliseconds
        return _Cell(_time(value), "n", str(value))
    if isinstance(value, float):
        return _Cell(f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}", "n", repr(value))
    if isinstance(value, int):
        return _Cell(f"{value:,}", "n", str(value))
    return _Cell(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
