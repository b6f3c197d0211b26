"""``python -m raft.sim``: see ``command``. A module of its own, so that worker processes can import what they run."""

import sys

from raft.sim.command import main

if __name__ == "__main__":
    sys.exit(main())
