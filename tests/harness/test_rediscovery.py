"""Bugs that were found by hand are planted again: each can be, was found in time, and the quick ones are found here."""

from __future__ import annotations

import pytest

from harness.chaos.asked import SCENARIOS, library
from harness.chaos.sim import program_of
from tests.campaigns import campaign
from tests.harness.planting import ROOT, can_be_planted
from tests.harness.rediscovered import ROWS
from tests.harness.rediscovery import SIMULATED, WITHIN_S, Rediscovery, apart, readable, recorded

QUICK = ("A2", "A5", "C11", "C12", *campaign("A4"))
LINES_MOST = 40


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_each_can_be_planted_and_was_found_in_time(row: Rediscovery) -> None:
    assert row.simulated or row.by in library(SCENARIOS)
    if row.by in SIMULATED:
        can_be_planted(row.planted, program_of(row.by).predicates)
    else:
        row.planted.apply((ROOT / row.planted.file).read_text(encoding="utf-8"))
    found = recorded()[row.bug]
    assert found.failure and found.seconds <= WITHIN_S
    assert found.after <= found.before and found.script


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bug)
def test_each_script_can_be_read_by_a_person(row: Rediscovery) -> None:
    script = recorded()[row.bug].script
    short = list(readable(script))
    assert len(short) <= LINES_MOST
    assert [line for line in short if "nemesis: " in line] == [line for line in script if "nemesis: " in line]
    assert short[-1] == script[-1], "the property that breaks"


def test_what_happens_between_two_faults_is_told_together() -> None:
    assert list(readable([
        "      before  swarm: 4", "      before  swarm: True", "    195.0 ms  client: ['put', 'leader', 1, 8]",
        "    200.0 ms  message b0 → b2: delay, 0.449 ms", "    210.0 ms  client: ['put', 'leader', 1, 8]",
        "    240.0 ms  client: ['index', 'n0']", "    260.0 ms  message b0 → b2: delay, 4.730 ms",
        "    275.0 ms  nemesis: n0 is killed", "    290.0 ms  client: ['put', 'n1', 1, 8]", "INV_R1: it breaks",
    ])) == [
        "      before  swarm: 4, True",
        "    195.0 … 240.0 ms  client: put × 2, index",
        "    200.0 … 260.0 ms  message b0 → b2: delay × 2, 0.4 to 4.7 ms",
        "    275.0 ms  nemesis: n0 is killed", "    290.0 ms  client: ['put', 'n1', 1, 8]", "INV_R1: it breaks"]


@pytest.mark.slow
@pytest.mark.parametrize("bug", QUICK)
def test_the_quick_ones_are_found(bug: str) -> None:
    [row] = [row for row in ROWS if row.bug == bug]
    found = apart(row)
    assert found.failure in row.planted.caught_by
    assert found.script[-1].startswith(found.failure)
