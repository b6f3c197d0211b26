"""``python -m harness.simulation.controllers``. Campaigns, replays and reports are those of ``raft.sim.command``."""

import sys

from harness.simulation.controllers.scene import CONTROLLERS
from raft.sim.command import main

if __name__ == "__main__":
    sys.exit(main(program=CONTROLLERS))
