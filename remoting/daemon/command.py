"""The commands of the distribution ``quorate``: each makes sure first that it imports our packages and no others.

``raft.command`` knows how. Whose ``raft`` is imported is not known before; one that cannot tell is somebody else's.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from remoting.daemon.version import DISTRIBUTION

RAFT: Final = "quorate-raft"
IN_THE_WAY: Final = 1


def main() -> int:
    """The command by whose name this was started; its exit code."""
    try:
        from raft.command import run
    except Exception as error:  # noqa: BLE001  # a foreign package may raise anything
        spec = find_spec("raft")
        sys.stderr.write(
            f"{Path(sys.argv[0]).stem}: {spec.origin if spec is not None else 'raft'} is not that of {RAFT} "
            f"({type(error).__name__}: {error}): uninstall what is in the way and install {RAFT} again, or give each "
            "an environment of its own\n")
        return IN_THE_WAY
    return run((DISTRIBUTION, RAFT))
