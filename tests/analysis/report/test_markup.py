"""What is put into the page comes out as text, whatever it is, without Spark."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import attrs
import jinja2
import pytest

from analysis.questions import leadership
from analysis.report import charts, markup
from analysis.report.charts import Bar, Lane, Line, Span
from analysis.report.findings import Finding
from analysis.report.page import UNKNOWN_LEADER, Page, Plot, Table, Tile, render

HOSTILE = "<script>alert(\"x\")</script> & 'q' {{ 7 * 7 }}"
T0 = 1_700_000_000_000
FOUND = Finding(rule="damage", severity="critical", title=HOSTILE, detail=HOSTILE, action="run `x<y` & go",
                query='logs.ask("a")', count=3, file="/a/<b>", offset=12)
DRAWN = (
    charts.legend({HOSTILE: 1, "no master": "gap"}) + charts.lanes(
        [Lane(HOSTILE, [Span(T0, T0 + 9, 0, HOSTILE)], HOSTILE)], T0, T0 + 10, name="plot-lanes")
    + charts.lines([Line(HOSTILE, [(T0, 1.0), (T0 + 9, 2.0)])], T0, T0 + 10, name="plot-lines", unit="<ms>", area=True)
    + charts.bars([Bar(HOSTILE, 1.0, HOSTILE, 9)], name="plot-bars"))
PAGE = Page(
    HOSTILE, [HOSTILE], (T0, T0 + 10), [Tile("groups", HOSTILE, HOSTILE, None)], [FOUND],
    [Plot(HOSTILE, HOSTILE, DRAWN)],
    [Table("t", HOSTILE, "log", {HOSTILE: HOSTILE, "l": "list"}, [(HOSTILE, [HOSTILE, 1])], 7)], HOSTILE)
AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@attrs.define
class Read(HTMLParser):
    """What a browser sees: elements with their attributes, and text."""

    elements: list[tuple[str, dict[str, str | None]]] = attrs.field(factory=list)
    open: list[str] = attrs.field(factory=list)
    text: str = ""

    @classmethod
    def of(cls, page: str) -> Read:
        made = cls()
        made.feed(page)
        made.close()
        return made

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, found: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(found)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, found: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(found)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_whatever_is_told_is_text() -> None:
    seen = Read.of(render(PAGE, AT))
    tags = {tag for tag, _ in seen.elements}
    assert not seen.open
    assert "script" not in tags
    assert tags >= {"svg", "rect", "polygon", "polyline", "circle", "details", "table", "pre"}
    assert seen.text.count(HOSTILE) > 15
    attributes = [value for _, found in seen.elements for value in found.values()]
    assert HOSTILE in attributes, "the meaning of a column"
    assert "<code>x&lt;y</code> &amp; go" in render(PAGE, AT)


def test_figures_are_there_for_programs() -> None:
    columns = dict.fromkeys(("wall_time", "n", "rate", "ok", "none", "leader", "leader_source"), "")
    rows = [(T0 + 7, 1_234_567, 0.123456, True, None, None, leadership.BEFORE), (None, -1, 1e6, False, None, "n0", "")]
    page = attrs.evolve(PAGE, tables=[Table("t", "", "log", columns, rows, 2)], findings=[], plots=[])
    seen = Read.of(render(page, AT))
    cells = [found.get("data-value") for tag, found in seen.elements if tag == "td"]
    assert cells == [str(T0 + 7), "1234567", "0.123456", None, None, None, None,
                     None, "-1", "1000000.0", None, None, None, None]
    for words in ("2023-11-14 22:13:20.007", "1,234,567", "0.1235", "yes", "–", UNKNOWN_LEADER[leadership.BEFORE],
                  "1,000,000", "no", "n0", "Nothing to look at"):
        assert words in seen.text


def test_one_title_stands_over_findings_that_share_it() -> None:
    alike = [attrs.evolve(FOUND, title="A"), attrs.evolve(FOUND, title="A"), attrs.evolve(FOUND, title="B"),
             attrs.evolve(FOUND, title="A", rule="gap", severity="warning")]
    seen = Read.of(render(attrs.evolve(PAGE, findings=alike, tables=[], plots=[]), AT))
    assert sum(tag == "h3" for tag, _ in seen.elements) == 3
    cards = [found.get("class") or "" for _, found in seen.elements]
    assert [each for each in cards if each.startswith("card finding")] == [
        "card finding critical", "card finding warning"]
    assert "9 critical, 3 warning" in seen.text


def test_what_a_template_does_not_find_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        markup.part("charts.html", "legend")


def test_no_element_is_made_of_strings() -> None:
    """Templates make them; a sentence without a value may be markup."""
    for path in Path(charts.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        marked = {inner for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Markup"
                  for inner in node.args}
        made = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in marked
                and isinstance(node.value, str) and re.search(r"</?[a-z]+[ >]", node.value)]
        assert not made, f"{path.name}: {made}"
