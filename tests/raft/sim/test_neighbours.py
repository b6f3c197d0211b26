"""INV_R39 and INV_R40: a quiet group on a simulated log neither keeps it, nor is lost, nor stops the other one."""

from __future__ import annotations

import pytest

from raft.messages import Write
from raft.sim.campaign import run
from raft.sim.neighbours import Tail
from raft.sim.tape import Tape
from tests.raft.script import frame

SEEDS = (9_500_000, 9_500_005, 9_500_019)
"""Of profile "damage": in each, upkeep meets rot in the quiet group's entries."""


@pytest.mark.parametrize("seed", SEEDS)
def test_BUG_G6_rot_in_a_quiet_groups_entries_stops_no_simulated_node(seed: int) -> None:
    result = run(Tape(seed), "damage")
    assert result.failure is None, result.message
    assert result.applied["neighbour damaged"] and result.predicates["INV_R39"] > 100
    assert result.predicates["INV_R40"] > 1


def test_BUG_G4_a_simulated_nodes_log_is_not_kept_by_a_quiet_group() -> None:
    """It comes back whole, too, after it was carried forward."""
    result = run(Tape(9_500_003), "damage")
    assert result.failure is None, result.message
    assert result.predicates["INV_R39"] > 100 and result.predicates["INV_R40"] > 10


def test_a_tail_is_what_was_written_since_the_oldest_entry_that_no_snapshot_holds() -> None:
    tail = Tail(5_000, 2, lag=300)
    assert tail.size == 5_000, "of an earlier life nobody knows"
    entry = frame(3, 1, bytes(100))
    tail.wrote([Write(1, 1, frames=[entry])])
    whole = tail.size
    assert whole > 5_000 + len(entry.data)
    tail.wrote([Write(2, 1, purge_to=2)])
    assert tail.size > whole, "upkeep had no turn yet"
    tail.wrote([Write(3, 1)])
    assert len(entry.data) < tail.size < 2_000
    tail.wrote([Write(4, 1, purge_to=3)])
    tail.wrote([Write(5, 1)])
    assert tail.size == 0
