"""Runs the planted bugs of ``mutants``: ``python -m tests.harness.controllers.run_mutants [--only WORDS]``."""

from __future__ import annotations

import sys

from raft.sim.campaign import Program
from tests.harness.controllers.mutants import PLANTED
from tests.harness.planting import Corpus, main


def _program() -> Program:
    from harness.controllers.scene import CONTROLLERS
    return CONTROLLERS


CORPUS = Corpus("tests.harness.controllers.run_mutants", PLANTED, _program, 800_000)

if __name__ == "__main__":
    sys.exit(main(CORPUS))
