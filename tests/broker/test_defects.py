"""The list of defects is whole, and its page is what the tests say."""

from __future__ import annotations

import pytest

from tests.broker.defects import PAGE, render
from tests.broker.defects import problems as found_problems


def test_every_row_has_tests_that_exist_and_a_planted_bug_or_a_reason() -> None:
    problems = list(found_problems())
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def test_the_page_is_what_the_tests_say() -> None:
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    assert written == render(), "run python -m tests.broker.defects"
