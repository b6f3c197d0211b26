"""The page: one HTML file with everything inside, light or dark as the reader's system is, without a script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from itertools import groupby
from typing import Any, Final

import attrs

from analysis.questions import leadership
from analysis.report.findings import SEVERITIES, Finding

_STYLE: Final = resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")
UNKNOWN_LEADER: Final = {
    leadership.BEFORE: "unknown (elected before the log begins)", leadership.NOT_RECORDED: "leader not recorded"}
"""By ``leader_source``: what is shown where ``leader`` is null."""
_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head><body><main>
"""


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
    body: str
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


def render(page: Page, made_at: datetime) -> str:
    """The whole file."""
    head = _HEAD.format(title=escape(page.title), style=_STYLE)
    parts = [head, *_top(page, made_at), *_findings(page)]
    for plot in page.plots:
        parts.append(f"<h2>{escape(plot.title)}</h2><p class=soft>{escape(plot.about)}</p>"
                     f"<div class=card>{plot.body}</div>")
    parts.append("<h2>All answers</h2><p class=soft>The first rows of each question; "
                 "<code>logs.ask(name)</code> has the rest. Times are UTC.</p>")
    parts += map(_table, page.tables)
    parts.append("</main></body></html>\n")
    return "".join(parts)


def _top(page: Page, made_at: datetime) -> Iterable[str]:
    begin, end = (datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S") for ms in page.span_ms)
    yield f"<h1>{escape(page.title)}</h1>"
    yield f'<p class=soft>{escape(", ".join(page.paths))}</p>'
    yield f"<p class=soft>From {begin} to {end} UTC by the leaders' clocks; made {made_at:%Y-%m-%d %H:%M} UTC.</p>"
    yield "<div class=tiles>"
    for tile in page.tiles:
        value = "" if tile.value is None else escape(str(tile.value))
        yield (f'<div class=tile><b id="{escape(tile.name)}" data-value="{value}">{escape(tile.words)}</b>'
               f"<span>{escape(tile.label)}</span></div>")
    yield "</div>"


def _findings(page: Page) -> Iterable[str]:
    number = sum(each.count for each in page.findings)
    yield f'<h2>Findings</h2><p class=soft id="findings" data-value="{number}">{_findings_words(page.findings)}</p>'
    if not page.findings:
        yield ('<div class="card finding none"><span class=level>sound</span><h3>Nothing to look at</h3><p>Every '
               "replica agrees with every other as far as their logs reach, nothing is damaged, and no figure is "
               "out of bounds. <b>audit_checks</b> below says what was compared.</p></div>")
        return
    yield f"<p class=soft>The queries want this first:</p><pre>{escape(page.setup)}</pre>"
    for _, alike in groupby(page.findings, lambda each: each.rule):
        of_rule = list(alike)
        first, title = of_rule[0], ""
        yield f'<div class="card finding {first.severity}"><span class=level>{first.severity}</span>'
        for each in of_rule:
            yield _finding(each, "" if each.title == title else each.title)
            title = each.title
        yield f"<p><b>What to do:</b> {_code(first.action)}</p></div>"


def _finding(finding: Finding, title: str) -> str:
    """One of a rule's. ``title``: empty if it is that of the one before."""
    where = "" if finding.file is None else f"<p><code>{escape(finding.file)}</code>" + (
        "" if finding.offset is None else f" at byte <b>{finding.offset}</b>") + "</p>"
    more = f" <span class=soft>and {finding.count - 1} more like it</span>" if finding.count > 1 else ""
    return (f'<div class=one data-rule="{escape(finding.rule)}" data-file="{escape(finding.file or "")}" '
            f'data-offset="{_plain(finding.offset)}">' + (f"<h3>{escape(title)}</h3>" if title else "") +
            f"<p>{escape(finding.detail)}{more}</p>{where}<pre>{escape(finding.query)}</pre></div>")


def _findings_words(found: Sequence[Finding]) -> str:
    levels = {level: sum(each.count for each in found if each.severity == level) for level in SEVERITIES}
    return ", ".join(f"{count} {level}" for level, count in levels.items() if count) or "none"


def _plain(value: object) -> str:
    return "" if value is None else str(value)


def _code(text: str) -> str:
    """Escaped, with what stands between backticks as code."""
    return "".join(f"<code>{escape(part)}</code>" if number % 2 else escape(part)
                   for number, part in enumerate(text.split("`")))


def _table(table: Table) -> str:
    head = "".join(f'<th title="{escape(meaning)}">{escape(name)}</th>' for name, meaning in table.columns.items())
    body = "".join(
        f"<tr>{''.join(_cell(name, value) for name, value in _told(table.columns, row).items())}</tr>"
        for row in table.rows)
    more = f"; the first {len(table.rows)} are here" if table.total > len(table.rows) else ""
    return (f'<details class=card id="{table.name}" data-rows="{table.total}"><summary><h3>{escape(table.name)}</h3> '
            f"<span class=soft>{escape(table.asks)} ({table.total} rows{more}; from {escape(table.source)})</span>"
            "</summary>"
            f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>")


def _told(columns: Iterable[str], row: Sequence[Any]) -> dict[str, Any]:
    found = dict(zip(columns, row, strict=True))
    if "leader_source" in found and found["leader"] is None:
        found["leader"] = UNKNOWN_LEADER[found["leader_source"]]
    return found


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "<td class=soft>–</td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if name in ("wall_ms", "began_ms", "until_ms", "first_write_ms", "last_write_ms", "bucket_ms", "lost_ms",
                "recovered_ms", "from_ms", "snapshot_taken_ms"):
        return f'<td class=n data-value="{value}">{_time(value)}</td>'
    if isinstance(value, float):
        return f'<td class=n data-value="{value!r}">{value:,.4g}</td>' if abs(value) < 10_000 else (
            f'<td class=n data-value="{value!r}">{value:,.0f}</td>')
    if isinstance(value, int):
        return f'<td class=n data-value="{value}">{value:,}</td>'
    if isinstance(value, list):
        return f"<td>{escape(', '.join(map(str, value)))}</td>"
    return f"<td>{escape(str(value))}</td>"


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
