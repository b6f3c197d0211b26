"""``python -m harness.controllers``: see ``raft.sim.command``, whose campaigns, replays and reports these are."""

import sys

from harness.controllers.scene import CONTROLLERS
from raft.sim.command import main

if __name__ == "__main__":
    sys.exit(main(program=CONTROLLERS))
