"""``python -m harness.simulation.brokers``. Campaigns, replays and reports are those of ``raft.sim.command``."""

import sys

from harness.simulation.brokers.scene import BROKERS
from raft.sim.command import main

if __name__ == "__main__":
    sys.exit(main(program=BROKERS))
