"""Runs the planted bugs: ``python -m tests.harness.simulation.controllers.run_mutants [--only WORDS]``."""

from __future__ import annotations

import sys

from raft.sim.campaign import Program
from tests.harness.planting import Corpus, main
from tests.harness.simulation.controllers.mutants import PLANTED


def _program() -> Program:
    from harness.simulation.controllers.scene import CONTROLLERS
    return CONTROLLERS


CORPUS = Corpus("tests.harness.simulation.controllers.run_mutants", PLANTED, _program, 800_000)

if __name__ == "__main__":
    sys.exit(main(CORPUS))
