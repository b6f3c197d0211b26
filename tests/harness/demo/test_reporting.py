"""How a demo ends: with the report on its run, or with a line that says how to get it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.demo import reporting
from remoting.daemon.child import child


def test_without_java_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    said: list[str] = []
    reporting.page_of(tmp_path / "logs", tmp_path / "report.html", said.append)
    (line,) = said
    assert "Java 17" in line and f"raft-report {tmp_path / 'logs'} --out {tmp_path / 'report.html'}" in line


@pytest.mark.parametrize(("code", "words"), [
    (0, "report: report.html: no findings"),
    (2, "no report of this run: java is Java 11: install another; try again: `raft-report ")])
def test_what_the_command_says_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, words: str,
) -> None:
    pytest.importorskip("pyspark", reason="not run: PySpark is missing")
    ran: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(
            command, code, "report.html: no findings\n", "a warning\nraft-report: java is Java 11: install another\n")

    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("JAVA_HOME", "/opt/java")  # which is where Spark looks first
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    monkeypatch.setattr(subprocess, "run", run)
    said: list[str] = []
    start = [*child("analysis.cli"), str(tmp_path / "logs")]
    reporting.page_of(tmp_path / "logs", tmp_path / "report.html", said.append)
    assert words in said[-1]
    assert ran[0][: len(start)] == start
    assert "--run" not in ran[0]
    file = tmp_path / "run.json"
    for there in (False, True):  # a run that ended early wrote none
        if there:
            file.write_text("{}")
        reporting.page_of(tmp_path / "logs", tmp_path / "report.html", said.append, file)
        assert (["--run", str(file)] in [ran[-1][n:n + 2] for n in range(len(ran[-1]))]) is there
        assert (f"--run {file}`" in said[-1]) is (there and code != 0)

