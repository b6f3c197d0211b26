"""Each statement of RocketMQ's design of acting masters names tests or differences that are there."""

from __future__ import annotations

import re
from pathlib import Path

from harness.scenarios.interop import __main__ as _registers  # noqa: F401  the scenarios
from harness.scenarios.interop.scenario import SCENARIOS
from tests.docs.test_guarantees import names_in

DOCS = Path(__file__).parents[2] / "docs"
TEXT, _, OF_JAVA = (DOCS / "reference" / "acting-design.md").read_text(encoding="utf-8").partition("## RocketMQ's own")
STATEMENTS, _, DISAGREE = TEXT.partition("## Where the text")
ROWS = re.findall(r"^\| (?!statement |---)(.+) \| (.*) \| (.*) \|$", STATEMENTS, re.MULTILINE)


def missing(shown_by: str) -> list[str]:
    """What a cell names that is not there, or the cell itself if it is not written as it should be."""
    named = re.findall(r"`([^`]+)`", shown_by)
    if shown_by != ", ".join(f"`{each}`" for each in named):
        return [shown_by]
    scenarios = {f"interop {each.name}" for each in SCENARIOS}
    return [each for each in named if each not in scenarios and (
        "::" not in each or each.partition("::")[2] not in names_in(each.partition("::")[0]))]


def differences() -> set[str]:
    """What the rows about groups without controllers begin with, that say both RocketMQ's way and ours."""
    page = (DOCS / "explanation" / "differences-from-rocketmq.md").read_text(encoding="utf-8")
    table = page.partition("## Groups without controllers")[2]
    return set(re.findall(r"^\| (.+?) \| .+ \| .+ \|$", table, re.MULTILINE))


def test_each_line_of_a_table_is_a_statement_of_its_own() -> None:
    lines = [line for line in STATEMENTS.splitlines() if line.startswith("| ") and not line.startswith("| statement ")]
    assert len(lines) == len(ROWS) == len({statement for statement, _, _ in ROWS})
    assert len(ROWS) >= 71, "no statement is dropped"


def test_each_statement_is_answered_by_what_is_there() -> None:
    known = differences()
    for statement, shown_by, difference in ROWS:
        assert shown_by or difference, f"nothing answers: {statement}"
        assert not difference or difference in known, f"no such difference: {difference}"
        assert missing(shown_by) == [], statement


def test_where_text_and_code_disagree_a_test_shows_what_is_done_here() -> None:
    rows = re.findall(r"^\| (?!text |---).+ \| `(.+)::(\w+)` \|$", DISAGREE, re.MULTILINE)
    assert len(rows) == DISAGREE.count("\n| ") - 1
    assert all(name in names_in(file) for file, name in rows)


def test_each_of_rocketmqs_own_tests_of_replicas_is_answered_by_what_is_there() -> None:
    rows = re.findall(r"^\| (?:`(\w+IT)`)? ?\| `(\w+)` \| (.*) \| (.*) \|$", OF_JAVA, re.MULTILINE)
    assert len(rows) == OF_JAVA.count("\n| ") - 1 == 35
    assert len({name for name, *_ in rows if name}) == 15, "classes"
    known = differences()
    for _, test, shown_by, difference in rows:
        assert shown_by and missing(shown_by) == [], test
        assert not difference or difference in known, f"no such difference: {difference}"


def test_what_is_not_there_is_noticed() -> None:
    here = "tests/docs/test_acting_design.py::test_what_is_not_there_is_noticed"
    assert missing(f"`{here}`, `interop {SCENARIOS[0].name}`") == []
    assert missing(f"`{here}s`, `interop nothing`, `{here}`") == [f"{here}s", "interop nothing"]
    assert missing(f"`{here}` and more") == [f"`{here}` and more"]
