"""A headless Chromium for the report's page, and what can be read off the page that it shows."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import attrs

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
          "--disable-background-networking", "--disable-component-update", "--hide-scrollbars")


def browser() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def run(page: Path, *options: str) -> str:
    """What Chromium prints for this page."""
    command = browser()
    assert command is not None
    with tempfile.TemporaryDirectory() as profile:
        return subprocess.run(
            [command, *QUIET, f"--user-data-dir={profile}", *options, page.as_uri()],
            capture_output=True, text=True, timeout=240, check=True).stdout


def screenshot(page: Path, picture: Path, *, dark: bool) -> None:
    run(page, f"--screenshot={picture}", "--window-size=1180,3000", *(["--force-dark-mode"] if dark else []))


@attrs.define
class Finding:
    rule: str
    file: str
    offset: str
    text: str = ""


@attrs.define
class Seen(HTMLParser):
    """The page's figures by id, its findings, its tables' rows by name, and every address it would load."""

    figures: dict[str, str] = attrs.field(factory=dict)
    findings: list[Finding] = attrs.field(factory=list)
    tables: dict[str, list[tuple[str, ...]]] = attrs.field(factory=dict)
    rows_of: dict[str, int] = attrs.field(factory=dict)
    plots: list[str] = attrs.field(factory=list)
    loads: list[str] = attrs.field(factory=list)
    _table: str = ""
    _row: list[str] = attrs.field(factory=list)
    _finding: Finding | None = None
    _in_cell: bool = False

    def __attrs_post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attributes}
        self.loads += [has[name] for name in ("src", "href") if name in has]
        if tag in ("script", "link", "iframe"):
            self.loads.append(tag)
        if "data-value" in has and "id" in has:
            self.figures[has["id"]] = has["data-value"]
        if tag == "svg":
            self.plots.append(has["id"])
        if "data-rule" in has:
            self.findings.append(Finding(has["data-rule"], has["data-file"], has["data-offset"]))
            self._finding = self.findings[-1]
        elif tag in ("h2", "details"):
            self._finding = None
        if tag == "details":
            self._table = has["id"]
            self.tables[self._table], self.rows_of[self._table] = [], int(has["data-rows"])
        if tag == "tr":
            self._row = []
        if tag == "td":
            self._in_cell = "data-value" not in has
            self._row.append(has.get("data-value", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._in_cell = False
        elif tag == "tr" and self._row:
            self.tables[self._table].append(tuple(self._row))

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self._row[-1] += data
        if self._finding is not None:
            self._finding.text += data


def seen(html: str) -> Seen:
    found = Seen()
    found.feed(html)
    return found
