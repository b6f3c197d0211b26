"""A run's directory: made anew, and held by one run at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.torture.directory import RunDirectory, fresh, goes_on
from harness.torture.words import RunFailed


def test_one_run_at_a_time(tmp_path: Path) -> None:
    path = fresh(tmp_path, "kills")
    assert path.name == "kills-1" and fresh(tmp_path, "kills").name == "kills-2"
    assert not goes_on(path)
    held = RunDirectory(path)
    held.open()
    assert goes_on(path)
    with pytest.raises(RunFailed, match="a run goes on"):
        RunDirectory(path).open()
    held.write("run.json", {"seed": 3})
    held.close()
    assert not goes_on(path)
    assert (path / "run.json").read_text() == '{\n  "seed": 3\n}\n'


@pytest.mark.parametrize("named", [True, False])
def test_a_warden_ends_what_a_run_started_that_was_killed(tmp_path: Path, named: bool) -> None:
    """The run is a process that has one made, starts something, and is killed with -9; its child is named, or has the
    run in its environment."""
    program = """
import os, subprocess, sys, time
from pathlib import Path
from harness.torture.warden import Warden
warden = Warden(Path(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True,
                         env=os.environ | ({} if sys.argv[2] == "True" else {"QUORATE_RUN": sys.argv[1]}))
if sys.argv[2] == "True":
    warden.watch(child.pid)
print(child.pid, flush=True)
time.sleep(60)
"""
    run = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(named)], stdout=subprocess.PIPE,
                           text=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])})
    assert run.stdout is not None
    child = int(run.stdout.readline())
    run.kill()
    run.wait()
    run.stdout.close()
    for _ in range(1_000):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return  # it has ended, and waits for whoever adopted it
        threading.Event().wait(0.01)
    os.kill(child, signal.SIGKILL)
    pytest.fail("it still runs")
