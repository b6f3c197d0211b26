"""Bugs that were found by hand are planted again: each can be, was found in time, and the quick ones are found here."""

from __future__ import annotations

import pytest

from harness.chaos.asked import SCENARIOS, library
from harness.chaos.sim import program_of
from tests.harness.planting import ROOT, can_be_planted
from tests.harness.rediscovered import ROWS
from tests.harness.rediscovery import SIMULATED, WITHIN_S, Rediscovery, apart, recorded

QUICK = ("A2", "A5")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_each_can_be_planted_and_was_found_in_time(row: Rediscovery) -> None:
    assert row.by in SIMULATED or row.by in library(SCENARIOS)
    if row.by in SIMULATED:
        can_be_planted(row.planted, program_of(row.by).predicates)
    else:
        row.planted.apply((ROOT / row.planted.file).read_text(encoding="utf-8"))
    found = recorded()[row.bug]
    assert found.failure and found.seconds <= WITHIN_S
    assert found.after <= found.before and found.script


@pytest.mark.slow
@pytest.mark.parametrize("bug", QUICK)
def test_the_quick_ones_are_found(bug: str) -> None:
    [row] = [row for row in ROWS if row.bug == bug]
    found = apart(row)
    assert found.failure in row.planted.caught_by
    assert found.script[-1].startswith(found.failure)
