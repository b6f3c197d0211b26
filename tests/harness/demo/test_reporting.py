"""How a demo ends: with the report on its run, or with a line that says how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.demo import reporting
from harness.demo.reporting import Reporter
from remoting.daemon.child import child


class Commanded:
    """Stands in for the processes that are started, each of which ends with ``code``."""

    pid = 0

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.started: list[list[str]] = []
        self.heard: list[str] = []
        self.killed = 0
        self.nice: list[int] = []

    def __call__(self, command: list[str], **options: Any) -> Any:
        self.started.append(command)
        return self

    @property
    def returncode(self) -> int:
        return self.code

    def communicate(self, told: str, timeout: float) -> tuple[str, str]:
        self.heard.append(told)
        return "report.html: no findings\n", "a warning\nraft-report: java is Java 11: install another\n"

    def kill(self) -> None:
        self.killed += 1

    def wait(self) -> None:
        pass


def reporter(here: Path, said: list[str], *, wanted: bool = True) -> Reporter:
    return Reporter(here / "logs", here / "report.html", here / "run.json", said.append, wanted)


def commanded(monkeypatch: pytest.MonkeyPatch, code: int = 0) -> Commanded:
    pytest.importorskip("pyspark", reason="not run: PySpark is missing")
    made = Commanded(code)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("JAVA_HOME", "/opt/java")  # which is where Spark looks first
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    monkeypatch.setattr(subprocess, "Popen", made)
    monkeypatch.setattr(os, "nice", lambda more: 3 + more)
    monkeypatch.setattr(os, "setpriority", lambda which, pid, nice: made.nice.append(nice))
    return made


def test_without_java_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    said: list[str] = []
    wanted = reporter(tmp_path, said)
    wanted.prepare()
    wanted.make()
    (line,) = said
    assert "Java 17" in line and f"raft-report {tmp_path / 'logs'} --out {tmp_path / 'report.html'}" in line


@pytest.mark.parametrize(("code", "words"), [
    (0, "report: report.html: no findings"),
    (2, "no report of this run: java is Java 11: install another; try again: `raft-report ")])
def test_what_the_command_says_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, words: str,
) -> None:
    processes = commanded(monkeypatch, code)
    said: list[str] = []
    start = [*child("analysis.cli"), str(tmp_path / "logs")]
    reporter(tmp_path, said).make()
    assert words in said[-1]
    assert processes.started[0][: len(start)] == start
    assert "--run" not in processes.started[0]
    file = tmp_path / "run.json"
    for there in (False, True):  # a run that ended early wrote none
        if there:
            file.write_text("{}")
        reporter(tmp_path, said).make()
        last = processes.started[-1]
        assert (["--run", str(file)] in [last[n:n + 2] for n in range(len(last))]) is there
        assert (f"--run {file}`" in said[-1]) is (there and code != 0)
        assert "--wait" not in last


def test_who_got_ready_meanwhile_makes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processes = commanded(monkeypatch)
    said: list[str] = []
    wanted = reporter(tmp_path, said)
    wanted.prepare()
    wanted.prepare()
    assert len(processes.started) == 1
    assert "--wait" in processes.started[0] and not processes.heard
    assert processes.nice == [3 + reporting.NICE]  # it gets ready while others are at work
    (tmp_path / "run.json").write_text("{}")
    wanted.make()
    assert (len(processes.started), processes.heard) == (1, ["\n"])
    assert processes.nice[1:] == [3]
    assert said[-1] == "report: report.html: no findings"
    wanted.close()
    assert processes.killed == 1


def test_who_waits_for_the_file_of_a_run_that_wrote_none_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    processes = commanded(monkeypatch)
    wanted = reporter(tmp_path, [])
    wanted.prepare()
    wanted.make()
    assert (len(processes.started), processes.killed) == (2, 1)
    assert not {"--wait", "--run"} & {*processes.started[1]}


def test_who_wants_no_report_gets_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processes = commanded(monkeypatch)
    said: list[str] = []
    unwanted = reporter(tmp_path, said, wanted=False)
    unwanted.prepare()
    unwanted.make()
    assert not processes.started and not said
    assert reporting.PATIENCE_S > 0
