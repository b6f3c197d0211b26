"""Ends what a run started when the run itself is gone, where no namespaces do it.

    python -P -m harness.torture.warden NAME=VALUE

A process of its own: each line of its standard input is a process group. When the input ends, however its writer
ended, every group that was named is killed, and whatever began with this variable in its environment. It knows nothing
of the rest, and ignores interrupts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from harness.torture.directory import RUN_ID

AGAIN_S: Final = 0.05


class Warden:
    """The end of the pipe that the run holds."""

    def __init__(self, run: Path) -> None:
        """``run`` is the directory of the run, by which its processes are known."""
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.torture.warden", f"{RUN_ID}={run}"], stdin=subprocess.PIPE,
            start_new_session=True, env=os.environ | {"PYTHONPATH": path})

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
    while found := [*_marked(os.fsencode(sys.argv[1]))]:  # a new process may have started another
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(AGAIN_S)


def _marked(variable: bytes) -> Iterator[int]:
    """Processes that began with this in their environment, and live."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):  # it is gone, a zombie, or another user's
                if variable in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


if __name__ == "__main__":
    main()
