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
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from remoting.daemon.child import child

PATIENCE_S: Final = 300.0
NICE: Final = 10
"""Niceness that a demo's report has beyond the demo's, until it is asked for."""


@attrs.define(eq=False)
class Reporter:
    """The report on ``logs``; the file ``run`` says what was done. Nothing that it does fails the demo."""

    logs: Path
    page: Path
    run: Path
    say: Callable[[str], None]
    wanted: bool = True
    _process: subprocess.Popen[str] | None = None

    def prepare(self) -> None:
        """Start what makes the report, for which it takes seconds to get ready, behind whatever else wants to run."""
        if self.wanted and self._process is None and _is_possible():
            self._process = self._start([*self._told(True), "--wait"])
            _let_first(self._process, NICE)

    def make(self) -> None:
        """Say where the report is, or why there is none."""
        if not self.wanted:
            return
        told = self._told(self.run.is_file())
        again = " ".join(["raft-report", str(self.logs), "--out", str(self.page), *told])
        if not _is_possible():
            self.say("no report of this run: it takes Java 17 or later (Debian: apt-get install "
                     f"openjdk-17-jre-headless) and `pip install '.[analysis]'`; then `{again}`")
            return
        self.say("making the report of this run")
        if not told:  # the waiting process counts on a file that an early end did not write
            self.close()
        process = self._process or self._start(told)
        self._process = process
        _let_first(process, 0)
        try:
            said, errors = process.communicate("\n", timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.say(f"the report was not done within {PATIENCE_S:.0f} s; to go on with it: `{again}`")
            return
        if process.returncode == 0:
            self.say(f"report: {said.strip()}")
            return
        why = [line for line in (errors or "").splitlines() if line.startswith("raft-report: ")]
        self.say(f"no report of this run{''.join(': ' + line.removeprefix('raft-report: ') for line in why[-1:])}; "
                 f"try again: `{again}`")

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _told(self, there: bool) -> list[str]:
        return ["--run", str(self.run)] if there else []

    def _start(self, more: list[str]) -> subprocess.Popen[str]:
        command = [*child("analysis.cli"), str(self.logs), "--out", str(self.page), *more, "--title",
                   "What the demo did", "--master", "local[1]", "--conf", "spark.driver.host=127.0.0.1"]
        if not sys.stderr.isatty():
            command.append("--quiet")
        # Ctrl-C must reach only the demo: the closing pipe then ends this process.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None if sys.stderr.isatty() else
            subprocess.PIPE, text=True, start_new_session=True)


def _let_first(process: subprocess.Popen[str], nice: int) -> None:
    """Make the process and its children nicer than this one by ``nice``; only root can lower that again."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, process.pid, os.nice(0) + nice)


def _is_possible() -> bool:
    return bool(shutil.which("java") or "JAVA_HOME" in os.environ) and importlib.util.find_spec("pyspark") is not None
