"""Active controllers that do not know of the next one: they are asked, and no answer of theirs is of the past."""

from __future__ import annotations

import pytest

from harness.simulation.controllers.process import ControllerProcess
from harness.simulation.controllers.scene import CONTROLLERS
from raft.sim.campaign import Result, run
from raft.sim.tape import Tape


def play(seed: int, profile: str = "deposed") -> Result:
    return run(Tape(seed), profile, program=CONTROLLERS)


def test_controllers_that_do_not_know_of_the_next_one_are_asked_for_what_they_missed() -> None:
    """Reads of all others see what was known, whatever stands before them: INV_C18 is not asked of those."""
    results = [play(seed) for seed in (3, 4, 6, 7, 8, 9)]
    assert not any(result.failure for result in results)
    asked = [result.predicates.get("INV_C18", 0) for result in results]
    assert sum(asked) and asked == [result.applied.get("deposed and asked", 0) for result in results]
    assert play(3, "calm").predicates.get("INV_C18", 0) == 0


def test_a_controller_that_reads_without_a_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControllerProcess, "_behind_barrier", lambda self, ask, go_on: go_on())
    assert any(play(seed).failure == "INV_C18" for seed in range(1, 10))
