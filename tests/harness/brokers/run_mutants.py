"""Runs the planted bugs of ``mutants``: ``python -m tests.harness.brokers.run_mutants [--only WORDS]``."""

from __future__ import annotations

import sys

from raft.sim.campaign import Program
from tests.harness.brokers.mutants import PLANTED
from tests.harness.planting import Corpus, main


def _program() -> Program:
    from harness.brokers.scene import BROKERS
    return BROKERS


CORPUS = Corpus("tests.harness.brokers.run_mutants", PLANTED, _program, 300_000)

if __name__ == "__main__":
    sys.exit(main(CORPUS))
