"""Runs the planted bugs: ``python -m tests.harness.simulation.brokers.run_mutants [--only WORDS]``."""

from __future__ import annotations

import sys

from raft.sim.campaign import Program
from tests.harness.planting import Corpus, main
from tests.harness.simulation.brokers.mutants import PLANTED


def _program() -> Program:
    from harness.simulation.brokers.scene import BROKERS
    return BROKERS


CORPUS = Corpus("tests.harness.simulation.brokers.run_mutants", PLANTED, _program, 1_500_000)

if __name__ == "__main__":
    sys.exit(main(CORPUS))
