"""The command's words for what cannot be, its times and its progress bar."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest
from pyspark.sql import SparkSession

from analysis import cli, monitor
from analysis import export as exporting
from analysis.errors import JavaMissing, NothingToRead, sentence
from analysis.logs import Logs
from analysis.report.build import Progress, make
from analysis.report.findings import Finding
from analysis.shipping import PACKAGES, package
from analysis.watch import Alert
from tests.analysis.scene import save, story

sessions = importlib.import_module("analysis.session")  # the package has a function of that name


@pytest.mark.java
def test_paths_without_logs_are_refused_in_a_sentence(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "missing"):
        assert cli.main([str(path), "--out", str(tmp_path / "report.html"), "--quiet"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("raft-report: ") and str(path) in said and "Traceback" not in said
    assert not (tmp_path / "report.html").exists()


@contextmanager
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    """The end that is written to of standard input."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as heard, os.fdopen(writing, "w", buffering=1) as told:
        monkeypatch.setattr(sys, "stdin", heard)
        yield told


@pytest.mark.java
def test_who_waits_makes_the_report_of_what_is_there_when_it_is_told(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, pages = tmp_path / "report.html", list[Path]()
    save(tmp_path / "logs", story())
    with waiting(monkeypatch) as asked:
        def made(logs: Logs, path: Path, **rest: Any) -> list[Finding]:
            pages.append(Path(path))
            if len(pages) > 1:
                return make(logs, path, **rest)
            assert not out.exists(), "nobody asked for it yet"  # a demo makes both reports
            asked.write("\n")
            return []

        monkeypatch.setattr(cli, "make", made)
        assert cli.main([str(tmp_path / "logs"), "--out", str(out), "--wait", "--quiet"]) == 0
    assert capsys.readouterr().out == f"{out}: no findings\n" and "Nothing to look at" in out.read_text()
    assert pages[1:] == [out] and not pages[0].exists()


def test_logs_may_come_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[bool] = []
    with waiting(monkeypatch) as asked:
        def logs(_: object) -> None:
            looked.append(True)
            if len(looked) == 1:
                asked.write("\n")
                raise NothingToRead("nothing is there")

        monkeypatch.setattr(cli, "_logs", logs)
        monkeypatch.setattr(cli, "make", lambda *_, **__: [])
        assert cli.main([str(tmp_path), "--out", str(tmp_path / "r.html"), "--wait", "--quiet"]) == 0
    assert len(looked) == 2


def test_a_word_in_time_ends_the_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    def made(_: object, path: Path, *, progress: Progress, **rest: object) -> list[Finding]:
        nonlocal steps
        for _step in range(3 if Path(path).parent != tmp_path else 0):
            if steps == 1:
                asked.write("\n")
            steps += 1
            progress(steps, 3, "a step")
        return []

    monkeypatch.setattr(cli, "make", made)
    monkeypatch.setattr(cli, "_logs", lambda options: None)
    with waiting(monkeypatch) as asked:
        assert cli.main([str(tmp_path), "--out", str(tmp_path / "r.html"), "--wait", "--quiet"]) == 0
    assert steps == 2


def test_nobody_who_asks_is_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_logs", lambda options: pytest.fail("nobody asked"))
    monkeypatch.setattr(cli, "REHEARSALS", 0)
    with waiting(monkeypatch) as asked:
        asked.close()
        assert cli.main([str(tmp_path), "--out", str(tmp_path / "r.html"), "--wait"]) == 0


def test_whoever_interrupts_it_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_logs", interrupted)
    assert cli.main([str(tmp_path)]) == 130
    assert capsys.readouterr().err == "raft-report: interrupted; no page was written\n"


@pytest.mark.java
def test_where_a_report_cannot_be_written_is_said_before_it_is_made(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    save(tmp_path / "logs", story())
    for out, words in ((tmp_path, f"{tmp_path} is a directory; name a file in it for the report"),
                       (tmp_path / "no" / "x.html", f"{tmp_path}/no: there is no such directory for the report")):
        assert cli.main([str(tmp_path / "logs"), "--out", str(out)]) == 2
        assert capsys.readouterr().err == f"raft-report: {words}\n"  # and no step of a progress bar


def test_missing_java_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none(*_: object, **__: object) -> SparkSession:
        raise JavaMissing("Spark runs on Java, and no `java` is on PATH")

    monkeypatch.setattr(cli, "session", none)
    assert cli.main(["somewhere", "--master", "spark://host:7077"]) == 2
    assert capsys.readouterr().err == "raft-report: Spark runs on Java, and no `java` is on PATH\n"


def test_times_are_iso_in_utc_or_milliseconds() -> None:
    assert cli._time("2026-11-01") == cli._time("2026-11-01T01:00+01:00") == cli._time("1793491200000")
    with pytest.raises(argparse.ArgumentTypeError, match="'soon' is no time"):
        cli._time("soon")


def test_progress_is_a_bar_in_a_terminal_and_lines_elsewhere() -> None:
    plain = io.StringIO()
    cli.bar(plain)(1, 4, "audit")
    assert plain.getvalue() == "1/4 0 s audit\n"
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    show = cli.bar(terminal)
    show(2, 4, "audit")
    show(4, 4, "written")
    assert "[###############...............] 2/4" in terminal.getvalue()
    assert terminal.getvalue().endswith("written\n")


def test_what_is_shipped_holds_every_package_and_is_the_same_twice(tmp_path: Path) -> None:
    first, second = package(tmp_path / "a.zip"), package(tmp_path / "b.zip")
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {name.split("/")[0] for name in names} == set(PACKAGES)
    assert "analysis/source/batch.py" in names and "raft/frame.py" in names


@pytest.mark.parametrize(("text", "words"), [
    ("An exception was thrown from the Python worker: Traceback (most recent call last):\n"
     '  File "x.py", line 7, in read\n    raise ValueError(3)\nValueError: 3\n SQLSTATE: 38000\n', "ValueError: 3"),
    ('Traceback (most recent call last):\n  File "x.py"\nOSError: no\n\nThe above exception was the direct cause of:\n'
     'Traceback (most recent call last):\n  File "x.py"\nanalysis.errors.NothingToRead: /x is empty\n SQLSTATE: 38000',
     "/x is empty"),
    ("An error occurred while calling o1.start.\n: java.io.IOException: mkdir failed\n\tat java.base/x",
     "java.io.IOException: mkdir failed"),
    ("No such table\nsecond line", "No such table"),
    ("", ""),
])
def test_of_an_error_of_sparks_one_sentence_is_told(text: str, words: str) -> None:
    assert sentence(text) == words


def test_a_monitor_of_nothing_says_so_before_it_starts_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(monitor, "session", None)
    assert monitor.main([str(tmp_path), "--checkpoint", str(tmp_path / "checkpoint")]) == 2
    said = capsys.readouterr().err
    assert said == f"raft-monitor: {tmp_path} is empty: no Raft log and no DLedger directory is there\n"


@pytest.mark.java
def test_what_spark_refuses_a_monitor_is_told_in_a_sentence(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    save(tmp_path / "logs", story())
    (tmp_path / "file").touch()
    for more in (["--checkpoint", str(tmp_path / "file" / "below")],
                 ["--checkpoint", str(tmp_path / "checkpoint"), "--traces", str(tmp_path / "nope")]):
        assert monitor.main([str(tmp_path / "logs"), *more]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("raft-monitor: Spark could not do it: ") and (str(tmp_path) in line)


def test_a_setting_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has names with both, such as those of workers' environments."""
    told: dict[str, str] = {}

    class Builder:
        def appName(self, _: str) -> Builder: return self

        def config(self, key: str, value: str) -> Builder:
            told[key] = value
            return self

        def getOrCreate(self) -> None: return None

    class Session:
        builder = Builder()
        getActiveSession = staticmethod(lambda: None)

    monkeypatch.setattr(sessions, "SparkSession", Session)
    monkeypatch.setattr(sessions, "check_java", lambda: 17)
    monkeypatch.setattr(sessions, "register", lambda _: None)
    sessions.session(**{"spark.executorEnv.PYSPARK_PYTHON": "/usr/bin/python3", "spark_driver_memory": "4g"})
    assert told.items() >= {"spark.executorEnv.PYSPARK_PYTHON": "/usr/bin/python3", "spark.driver.memory": "4g"}.items()


def test_an_export_of_nothing_says_so_before_it_starts_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(exporting, "session", lambda *_, **__: pytest.fail("Spark was started"))
    for program, called in (("raft-export", "raft-export"), ("raftlog", "raftlog export")):
        monkeypatch.setattr("sys.argv", [f"/opt/quorate/bin/{program}"])
        assert exporting.main(["/nowhere", "--out", "x"]) == 1
        assert capsys.readouterr().err == f"{called}: /nowhere: there is no such directory\n"


def test_settings_and_options_without_a_value_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["/data", "--conf", "spark.driver.memory"]) == 2
    assert capsys.readouterr().err == "raft-report: 'spark.driver.memory': NAME=VALUE is due\n"
    assert exporting.main(["/data", "--out", "x", "--option", "since_ms"]) == 1
    assert capsys.readouterr().err == "raftlog export: 'since_ms': NAME=VALUE is due\n"


def test_an_alert_tells_its_times_as_timestamps_too() -> None:
    alert = Alert("damage", 1_728_000_000_125, 1_728_000_000_000, "c", "g", "n", 1, "f", 0, "why")
    found = monitor.as_json(alert)
    assert (found["at"], found["since"]) == ("2024-10-04T00:00:00.125+00:00", "2024-10-04T00:00:00.000+00:00")
    assert (found["at_ms"], found["since_ms"], found["kind"]) == (alert.at_ms, alert.since_ms, "damage")


def test_an_export_on_a_cluster_brings_the_packages_along(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped: list[str] = []
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://host:7077", addPyFile=shipped.append))
    monkeypatch.setattr(exporting, "session", lambda *_, **__: spark)
    monkeypatch.setattr(exporting, "export", lambda *_, **__: exporting.Exported(0, ()))
    monkeypatch.setattr(exporting, "find_logs", lambda paths: [])
    assert exporting.main(["/data", "--out", "x", "--master", "spark://host:7077"]) == 0
    assert [Path(file).name for file in shipped] == ["quorate.zip"]
