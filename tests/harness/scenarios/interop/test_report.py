"""Results of scenarios are kept beside those of other runs, and are what the table of compatibility says."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from harness.scenarios.interop.report import FAILED, OK, Result, read, write
from harness.scenarios.interop.scenario import SCENARIOS, Scenario, Stage

ROOT = Path(__file__).parents[4]
ONE = Result("one", "5.5.0", OK, 12, 17, "2026-01-31")


async def play(_: Stage) -> None:
    """Nothing."""


@pytest.fixture(autouse=True)
def two_scenarios() -> Iterator[None]:
    real = list(SCENARIOS)
    SCENARIOS[:] = [Scenario("one", "The one.", play, ("5.5.0", "5.3.3"), True, 1.0),
                    Scenario("other", "The other.", play, ("5.5.0",), False, 1.0)]
    yield
    SCENARIOS[:] = real


def test_a_later_run_replaces_what_it_ran_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert read(path) == {}
    other, older = attrs.evolve(ONE, scenario="other"), attrs.evolve(ONE, release="5.3.3")
    write(path, [attrs.evolve(ONE, outcome=FAILED), other])
    write(path, [ONE, older])
    assert list(read(path).values()) == [ONE, older, other]


def test_a_scenario_that_no_longer_exists_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps([attrs.asdict(attrs.evolve(ONE, scenario="former"))]))
    write(path, [ONE])
    assert list(read(path)) == [("one", "5.5.0")]


def test_the_table_says_what_ran_and_what_did_not(tmp_path: Path) -> None:
    rows = runpy.run_path(str(ROOT / "docs" / "generate.py"))["scenarios"]
    rows.__globals__["RESULTS"] = tmp_path / "results.json"
    write(tmp_path / "results.json", [attrs.evolve(ONE, outcome=FAILED)])
    assert list(rows())[2:] == [
        "| 5.5.0 | `one` | The one. | failed, Java 17, 2026-01-31 |",
        "| 5.5.0 | `other` | The other. | not yet |",
        "| 5.3.3 | `one` | The one. | not yet |"]
