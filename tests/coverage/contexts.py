"""A plugin of pytest: measured lines are labelled with the test file that runs them, in child processes too."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Final

import coverage
import pytest

VARIABLE: Final = "QUORATE_TEST_FILE"
"""The settings that each child process reads take its label from here."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    measuring = coverage.Coverage.current()
    assert measuring is not None, "python -m tests.coverage starts this run"
    file = item.nodeid.partition("::")[0]
    measuring.switch_context(file)
    os.environ[VARIABLE] = file
    try:
        return (yield)
    finally:
        del os.environ[VARIABLE]
        measuring.switch_context("")
