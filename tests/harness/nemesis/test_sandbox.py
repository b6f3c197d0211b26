"""What is tied to a program ends with it, whatever ends it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

from harness.nemesis.sandbox import tied

PARENT = """
import subprocess, sys
subprocess.run([*sys.argv[1:], sys.executable, "-c",
                "import os, threading; print(os.getpid(), flush=True); threading.Event().wait()"])
"""
PATIENCE_S = 20


def test_what_is_tied_ends_with_who_started_it() -> None:
    """That is killed with -9: nobody but the kernel ends what neither reads nor writes."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *tied()], text=True, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    ended: list[int] = []
    try:
        parent.kill()
        parent.wait()
        ended, _, _ = select.select([child], [], [], PATIENCE_S)
        assert ended
    finally:
        parent.stdout.close()
        if not ended:
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)
