"""Ends what a run started when the run itself is gone, where no namespaces do it.

    python -P -m harness.torture.warden

A process of its own: each line of its standard input is a process group; when the input ends, however its writer
ended, every group that was named is killed. It imports nothing of the rest, and ignores interrupts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


class Warden:
    """The end of the pipe that the run holds."""

    def __init__(self) -> None:
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.torture.warden"], stdin=subprocess.PIPE, start_new_session=True,
            env=os.environ | {"PYTHONPATH": path})

    def watch(self, group: int) -> None:
        """Has this group killed when the run is gone."""
        assert self._process.stdin is not None and group > 1
        self._process.stdin.write(f"{group}\n".encode())
        self._process.stdin.flush()

    def close(self) -> None:
        """Lets it kill what still runs, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Waits for the end of the input, then kills."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    groups = [int(line) for line in sys.stdin]
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
