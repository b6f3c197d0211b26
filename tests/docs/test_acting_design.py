"""Each statement of RocketMQ's design of acting masters names tests or differences that are there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_guarantees import names_in

DOCS = Path(__file__).parents[2] / "docs"
STATEMENTS, _, DISAGREE = (DOCS / "reference" / "acting-design.md").read_text(encoding="utf-8").partition(
    "## Where the text")
ROWS = re.findall(r"^\| (?!statement |---)(.+) \| (.*) \| (.*) \|$", STATEMENTS, re.MULTILINE)


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
        tests = re.findall(r"`([^`]+)`", shown_by)
        assert shown_by == ", ".join(f"`{test}`" for test in tests), shown_by
        for test in tests:
            file, _, name = test.partition("::")
            assert name in names_in(file), f"no such test: {test}"


def test_where_text_and_code_disagree_a_test_shows_what_is_done_here() -> None:
    rows = re.findall(r"^\| (?!text |---).+ \| `(.+)::(\w+)` \|$", DISAGREE, re.MULTILINE)
    assert len(rows) == DISAGREE.count("\n| ") - 1
    assert all(name in names_in(file) for file, name in rows)
