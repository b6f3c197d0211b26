"""``python -m harness.brokers``: see ``raft.sim.command``, whose campaigns, replays and reports these are."""

import sys

from harness.brokers.scene import BROKERS
from raft.sim.command import main

if __name__ == "__main__":
    sys.exit(main(program=BROKERS))
