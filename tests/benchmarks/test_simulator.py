"""A wanted number of nodes and operations takes the place of what a seed draws, and nothing else of it."""

from __future__ import annotations

import attrs

from benchmarks.simulator import Load, Share
from raft.sim.swarm import draw_plan, with_lapses
from raft.sim.tape import Tape


def test_load_takes_the_place_of_what_a_seed_draws() -> None:
    tape = Tape(1)
    drawn = with_lapses(draw_plan(tape, "swarm"), tape, "swarm")
    plan = Load("swarm", nodes=5, operations=50).scene(Tape(1), "swarm").plan
    assert plan == attrs.evolve(drawn, size=5, learners=0, op_ns=plan.op_ns)
    assert plan.op_chance * 1e9 / plan.op_ns == 50


def test_share_counts_what_its_seeds_played() -> None:
    load = Load("calm", nodes=5, operations=50)
    (result,) = load.play([3])
    share = Share.of(load, [3])
    assert (share.events, share.virtual_s) == (result.events, result.virtual_ns / 1e9)
    assert share.asked == sum(result.predicates.values())
    tried = sum(result.outcomes.values()) / share.virtual_s
    assert 40 < tried < 60, f"{tried:.0f} operations a second"
