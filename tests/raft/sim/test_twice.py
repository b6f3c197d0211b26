"""Runs that are played twice: equal ones are, and one that differs is told."""

from __future__ import annotations

from tests.raft.sim.twice import differing, elsewhere, played


def test_two_processes_under_two_hash_seeds_play_the_same() -> None:
    """A thousand seeds: ``python -m tests.raft.sim.twice``."""
    one, two = (elsewhere("swarm", range(3, 5), hash_seed) for hash_seed in (1, 4242))
    assert [line.split()[0] for line in one] == ["3", "4"] and one[0].split()[1:] != one[1].split()[1:]
    assert one == two == list(played("swarm", range(3, 5))) and not differing(one, two)


def test_a_run_that_differs_is_told() -> None:
    assert differing(["1 a 9 passed", "2 b 9 passed"], ["1 a 9 passed", "2 c 9 passed"]) == ["2 b 9 passed"]
