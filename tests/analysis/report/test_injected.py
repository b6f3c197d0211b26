"""What was done in a run is no finding, the same fault that nobody made is one, and the page has both sides of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from analysis.logs import Logs, open_logs
from analysis.report.build import make
from analysis.report.findings import Bounds, judged
from analysis.report.injected import BEFORE_MS, FORMAT, SETTLE_MS, Fault, Gap, Run, RunUnreadable, read_run
from harness.demo.chronicle import Chronicle
from tests.analysis.report.browser import seen
from tests.analysis.scene import T0, save, story

BOUNDS = Bounds(outage_ms=100, election_ms=500, leaderships=2, flaps=1)
"""The scene breaks each of these once."""


def fault(at_ms: int, *groups: str, until_ms: int | None = None, who: str = "n9") -> Fault:
    return Fault(T0 + at_ms, None if until_ms is None else T0 + until_ms, "killed", (who,), groups)


@pytest.fixture(scope="module")
def logs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    """Which keep their answers, as a page's do: each case judges the same."""
    root = tmp_path_factory.mktemp("scene")
    save(root, story())
    found = open_logs(spark, [str(root)])
    found.keep()
    yield found
    found.release()


def rules(logs: Logs, *faults: Fault) -> tuple[set[str], int]:
    found, excused = judged(logs, BOUNDS, Run(faults))
    return {each.rule for each in found}, excused


ALL = {"outage", "flapping", "long election", "many leaders"}


@pytest.mark.java
@pytest.mark.parametrize(("faults", "left"), [
    ([], ALL),
    ([("b0", 4_000, 5_000)], ALL - {"outage", "flapping"}),
    ([("b0", 4_000, None)], ALL - {"outage", "flapping"}),
    ([("b0", 4_600 + BEFORE_MS, 9_000)], ALL - {"flapping"}),
    ([("b0", -SETTLE_MS, 4_000 - SETTLE_MS)], ALL - {"flapping"}),
    ([("b1", 4_000, 5_000)], ALL),
    ([("raft", 3_900, 5_000)], ALL - {"long election", "many leaders"}),
    ([("raft", -SETTLE_MS, 3_000 - SETTLE_MS)], ALL - {"many leaders"}),
    ([("raft", 3_900, 5_000), ("b0", 4_000, 5_000)], set()),
])
def test_what_was_done_to_a_group_then_is_no_finding_and_nothing_else_is_left_out(
    logs: Logs, faults: list[tuple[str, int, int | None]], left: set[str],
) -> None:
    group = logs.ask("elections").select("group").first()
    assert group is not None
    made = [fault(at_ms, str(group[0]) if name == "raft" else name, until_ms=until_ms)
            for name, at_ms, until_ms in faults]
    assert rules(logs, *made) == (left, len(ALL) - len(left))


def test_conditions_are_sql_of_the_names_that_were_given(spark: SparkSession) -> None:
    names = ("a", "it's", "\\", "a' or true or 'a")
    rows = spark.createDataFrame([(name, 5_000) for name in names], "g string, at long")
    for name in names:
        run = Run((Fault(5_000, 5_000, "", (name,), (name,)),))
        for condition in (run.within("g", "at", "at"), run.fewer("g", "2", 2), run.down("g", 5_000 + SETTLE_MS)):
            assert [row["g"] for row in rows.where(condition).collect()] == [name]
        assert rows.where(run.fewer("g", "3", 2)).count() == 0, "one fault explains one"
        assert rows.where(run.down("g", 5_001 + SETTLE_MS)).count() == 0, "it was well again"
    assert rows.where(Run().within("g", "at", "at")).count() == 0
    assert rows.select(F.count_if(F.expr(Run().down("g", 0)))).collect()[0][0] == 0


def test_the_last_that_was_done_to_a_node_says_whether_it_is_well() -> None:
    run = Run((Fault(9, 10, "", ("n",), ()), Fault(1, None, "", ("n",), ())))
    assert run.down("node", 10 + SETTLE_MS) == "(node = 'n')"
    assert run.down("node", 11 + SETTLE_MS) == "false"


def test_what_a_demo_writes_is_read(tmp_path: Path) -> None:
    chronicle = Chronicle()
    first = chronicle.begins("killed with -9", ["n1", "b-0"], ["ours", "b"])
    chronicle.gap("b", first, 0.25)
    chronicle.undone(first)
    chronicle.begins("stopped", ["b-1"], ["b"])
    file = tmp_path / "run.json"
    chronicle.write(file, {"sent": 5, "lost": 0})
    run = read_run(file.read_text(), "run.json")
    at_ms = run.faults[0].at_ms
    assert run.faults[0] == Fault(at_ms, run.faults[0].until_ms, "killed with -9", ("n1", "b-0"), ("ours", "b"))
    assert (run.faults[0].until_ms or 0) >= at_ms and run.faults[1].until_ms is None
    assert run.gaps == (Gap("b", at_ms, at_ms + 250),)
    assert run.messages == {"sent": 5, "lost": 0}


def test_the_file_on_the_page_is_one() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/analyse-logs.md").read_text()
    run = read_run(page.split("<!-- file: run.json -->\n```json\n")[1].split("```")[0], "the page")
    assert [one.until_ms is None for one in run.faults] == [False, True]
    assert run.gaps and run.messages["lost"] == 0


@pytest.mark.parametrize(("text", "words"), [
    ("", "JSONDecodeError"), ("[]", "TypeError"), ("{}", "KeyError: 'format'"), ('{"format": "x"}', "format is 'x'"),
    (json.dumps({"format": FORMAT, "faults": [{"at_ms": 1}]}), "KeyError: 'until_ms'"),
    (json.dumps({"format": FORMAT, "faults": [{"at_ms": 1, "until_ms": 2, "what": "", "who": "n", "groups": []}]}),
     "'n' is no list of names"),
    (json.dumps({"format": FORMAT, "messages": 3}), "AttributeError"),
])
def test_a_file_that_is_none_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(RunUnreadable, match=words) as raised:
        read_run(text, "there.json")
    assert str(raised.value).startswith("there.json")


@pytest.mark.java
@pytest.mark.slow
def test_the_page_shows_what_was_done_and_what_clients_saw(logs: Logs, tmp_path: Path) -> None:
    group: Any = logs.ask("elections").select("group").first()
    run = Run((fault(3_900, str(group[0]), "b0", until_ms=5_000), fault(6_000, "b0")),
              (Gap("b0", T0 + 3_900, T0 + 4_700),), {"acknowledged": 12_345, "lost": 0})
    page = tmp_path / "report.html"
    found = make(logs, page, bounds=BOUNDS, run=run)
    text, shown = page.read_text(), seen(page.read_text())
    assert found == []
    assert (shown.figures["excused"], shown.figures["messages-acknowledged"], shown.figures["messages-lost"]) == (
        "4", "12345", "0")
    assert "plot-done" in shown.plots
    assert "from 22:13:23.900 no acknowledgement for 800 ms" in text
    assert "n9 killed at 22:13:23.900, undone 22:13:25.000" in text and "22:13:26.000, not undone" in text
    assert make(logs, page, bounds=BOUNDS) and "plot-done" not in page.read_text()
