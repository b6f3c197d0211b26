"""The list of defects is whole, and its page is what the tests say."""

from __future__ import annotations

import pytest

from harness.simulation.controllers.watch import PREDICATES
from tests.controller.defects import PAGE, render, statement
from tests.controller.defects import problems as found_problems


def test_every_row_has_a_test_that_says_what_holds() -> None:
    problems = list(found_problems())
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_every_property_says_what_must_hold() -> None:
    assert all(len(statement(name)) > 20 for name in PREDICATES)


def test_the_page_is_what_the_tests_say() -> None:
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    assert written == render(), "run python -m tests.controller.defects"
