"""The bug list is whole: every row has a test, a mutant or a reason why there is none, and its line on the page."""

from __future__ import annotations

import pytest

from tests.raft.bugs.mutant import Mutant
from tests.raft.bugs.registry import PAGE, ROWS, WAITING, collect_tests, problems, render, row_of
from tests.raft.bugs.run_mutants import collect

MUTANTS_MIN = 60


def test_there_are_as_many_rows_as_the_sources_have() -> None:
    assert sum(not row.startswith("DL_") for row in ROWS) == 142 + 7 + 17 + 23 + 4 + 3
    assert sum(row.startswith("DL_") for row in ROWS) == 20


def test_every_row_has_its_test_and_its_guard() -> None:
    found = list(problems())
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_the_page_is_what_the_tables_say() -> None:
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    assert written == render(), "run python -m tests.raft.bugs.registry"


def test_enough_guards_are_proven_by_removing_them() -> None:
    mutants, _ = collect()
    assert len(mutants) >= MUTANTS_MIN and len({mutant.row for mutant in mutants}) >= MUTANTS_MIN


def test_names_lead_to_rows() -> None:
    assert row_of("test_BUG_E17_a_majority") == "E17" and row_of("test_DL_R3_blank") == "DL_R3"
    assert row_of("test_BUG_of_nothing") is None and row_of("test_DL_VOTE_1") is None
    assert {"E1", "D1", "L1"} <= {test.row for test in collect_tests()}
    assert all(row.partition(",")[0] in ROWS for row in WAITING)


def test_a_mutant_needs_text_that_occurs_once() -> None:
    assert Mutant("E1", "a.py", old="b", new="c", tests=()).apply("abd") == "acd"
    for text in ("abb", "a"):
        with pytest.raises(ValueError, match="occurs"):
            Mutant("E1", "a.py", old="b", new="c", tests=()).apply(text)


def test_a_mutant_is_a_program() -> None:
    with pytest.raises(ValueError, match=r"E1: a\.py does not compile"):
        Mutant("E1", "a.py", old="b", new="c(", tests=()).apply("abd")
