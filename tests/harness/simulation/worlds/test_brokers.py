"""A whole cluster in a seeded world: each seed is one run, in every process and under every hash seed."""

from __future__ import annotations

import pytest

from raft.virtual import run_on_virtual_time, search
from tests.harness.simulation.worlds.failovers import failovers
from tests.raft.virtual.twice import elsewhere


def test_each_seed_is_one_run_and_nothing_is_left_of_it() -> None:
    """That no task is left is looked for in each run."""
    one, two, other = (run_on_virtual_time(failovers, seed=seed) for seed in (1, 1, 2))
    assert (one.digest, one.value, one.notes) == (two.digest, two.value, two.notes)
    assert one.digest != other.digest
    assert [words for _, words in one.notes] == ["the master is dead", "the active controller is dead"]
    assert len(set(one.value)) == 6 and one.steps > 5_000


def test_more_seeds_lose_nothing() -> None:
    report = search(failovers, seeds=3, first=11)
    assert report.seeds == 3 and report.virtual_s > 3


@pytest.mark.slow
def test_other_processes_with_other_hash_seeds_make_the_same_runs() -> None:
    """``python -m tests.raft.virtual.twice --world tests.harness.simulation.worlds.failovers:failovers`` for more."""
    world = "tests.harness.simulation.worlds.failovers:failovers"
    one, two = (elsewhere(world, range(1, 4), hash_seed) for hash_seed in ("1", "77"))
    assert len(set(one)) == 3 and one == two
