"""The last thing a demo does: the report on its controllers' logs, by a process of its own, since Spark is large.

Nothing here imports ``analysis``: who has no Java, or no PySpark, gets a line that says how to get the report.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from remoting.daemon.child import child

PATIENCE_S: Final = 300.0


def page_of(logs: Path, page: Path, say: Callable[[str], None], run: Path | None = None) -> None:
    """Say where the report on ``logs`` is, or why there is none; ``run`` says what was done. Never fails the demo."""
    told = ["--run", str(run)] if run is not None and run.is_file() else []
    again = " ".join(["raft-report", str(logs), "--out", str(page), *told])
    if not (shutil.which("java") or "JAVA_HOME" in os.environ) or importlib.util.find_spec("pyspark") is None:
        say(f"no report of this run: it takes Java 17 or later (Debian: apt-get install openjdk-17-jre-headless) and "
            f"`pip install '.[analysis]'`; then `{again}`")
        return
    say("making the report of this run")
    command = [*child("analysis.cli"), str(logs), "--out", str(page), *told, "--title", "What the demo did",
               "--master", "local[1]", "--conf", "spark.driver.host=127.0.0.1"]
    if not sys.stderr.isatty():
        command.append("--quiet")
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=None if sys.stderr.isatty() else subprocess.PIPE, text=True,
            timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        say(f"the report was not done within {PATIENCE_S:.0f} s; to go on with it: `{again}`")
        return
    if done.returncode == 0:
        say(f"report: {done.stdout.strip()}")
        return
    why = [line for line in (done.stderr or "").splitlines() if line.startswith("raft-report: ")]
    say(f"no report of this run{''.join(': ' + line.removeprefix('raft-report: ') for line in why[-1:])}; "
        f"try again: `{again}`")
