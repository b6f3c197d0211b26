"""The report on planted faults: exactly those are found, and the page shows them and their figures in a browser."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from analysis.logs import Logs, open_logs
from analysis.questions import QUESTIONS
from analysis.report import Finding, report
from tests.analysis.report.browser import Seen, browser, run, screenshot, seen
from tests.analysis.scene import T0, Planted, plant, save, story

pytestmark = [pytest.mark.java, pytest.mark.slow]


@attrs.frozen
class Made:
    planted: set[Planted]
    logs: Logs
    findings: list[Finding]
    page: Path


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    root = tmp_path_factory.mktemp("faults")
    planted = plant(root / "logs")
    logs = open_logs(spark, str(root / "logs"))
    logs.keep()
    page = root / "report.html"
    told: list[tuple[int, int, str]] = []
    found = report(logs, page, title="Planted faults", progress=lambda *step: told.append(step))
    assert [done for done, _, _ in told] == list(range(told[0][1] + 1)), "every step is told, and the end"
    yield Made(planted, logs, found, page)
    logs.release()


@pytest.fixture(scope="module")
def shown(made: Made) -> Seen:
    """The page as the browser has it once it is loaded; where there is none, as it was written."""
    return seen(run(made.page, "--dump-dom") if browser() else made.page.read_text())


def test_exactly_what_was_planted_is_found(made: Made) -> None:
    assert {(each.rule, each.file, each.offset) for each in made.findings} == made.planted
    assert len(made.findings) == len(made.planted)


def test_every_finding_has_a_query_that_shows_it_and_says_what_to_do(made: Made) -> None:
    for each in made.findings:
        names: dict[str, Any] = {"logs": made.logs}
        exec(f"found = {each.query}.collect()", names)
        (row,) = names["found"]
        assert (row["file"], row["offset"]) == (each.file, each.offset)
        assert len(each.action) > 40


def test_the_page_shows_the_findings_with_file_and_byte(made: Made, shown: Seen) -> None:
    assert {(each.rule, each.file, int(each.offset)) for each in shown.findings} == made.planted
    for each in shown.findings:
        assert each.file in each.text and each.offset in each.text
        assert any("What to do:" in other.text for other in shown.findings if other.rule == each.rule)
    assert shown.figures["findings"] == "5"


def test_numbers_read_off_the_page(made: Made, shown: Seen) -> None:
    assert (shown.figures["groups"], shown.figures["nodes"], shown.figures["broker-groups"]) == ("6", "18", "6")
    least = min(row["availability"] for row in made.logs.ask("availability").collect())
    assert float(shown.figures["availability"]) == least
    entries = sum(row["entries"] for row in made.logs.ask("skew").collect())
    assert int(shown.figures["entries"]) == entries >= 6 * 14
    assert shown.figures["commit-p99"] == "", "not recorded"
    assert set(shown.tables) == set(QUESTIONS)
    columns = list(QUESTIONS["leadership"].columns)
    once = [name for name in columns if f"{name.removesuffix('_ms')}_time" not in columns]
    assert {"began_time", "until_time"} < set(once) and {len(row) for row in shown.tables["leadership"]} == {len(once)}
    place = once.index("tenure_ms")
    assert {row[place] for row in shown.tables["leadership"]} >= {"4000", "6000"}
    assert shown.rows_of["leadership"] == len(shown.tables["leadership"])


def test_the_page_is_one_file_with_its_plots(made: Made, shown: Seen) -> None:
    assert shown.plots == ["plot-leadership", "plot-availability", "plot-throughput", "plot-skew"]
    assert shown.loads == [] and not re.search(r"url\(|@import", made.page.read_text())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_screenshots(made: Made, tmp_path: Path, dark: bool) -> None:
    """Kept where ``REPORT_SCREENSHOTS`` says."""
    if not browser():
        pytest.skip("not run: no Chromium is found")
    directory = Path(os.environ.get("REPORT_SCREENSHOTS", tmp_path))
    directory.mkdir(parents=True, exist_ok=True)
    picture = directory / f"report-{'dark' if dark else 'light'}.png"
    screenshot(made.page, picture, dark=dark)
    data = picture.read_bytes()
    assert data[:4] == b"\x89PNG" and int.from_bytes(data[16:20], "big") == 1180
    assert len(data) > 50_000, "more than an empty page"


def test_a_leader_elected_before_the_log_begins_is_shown_as_unknown(spark: SparkSession, tmp_path: Path) -> None:
    save(tmp_path / "logs", story())
    assert report(open_logs(spark, str(tmp_path / "logs"), since_ms=T0 + 200), tmp_path / "report.html") == []
    page = (tmp_path / "report.html").read_text()
    shown, unknown = seen(page), "unknown (elected before the log begins)"
    place = list(QUESTIONS["leadership"].columns).index("leader")
    assert [row[place] for row in shown.tables["leadership"]] == [unknown, "n2"]
    assert shown.plots[0] == "plot-leadership"
    assert f"<title>{unknown}, term 1, seen from 22:13:20.200" in page
    assert f'<i class="other"></i>{unknown}</span>' in page
