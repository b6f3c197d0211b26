"""Runs ``python -m raft.sim``: see ``command``, which is another module so that worker processes can import it."""

import sys

from raft.sim.command import main

if __name__ == "__main__":
    sys.exit(main())
