"""Commands that need Java: exit codes and words, without Java."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from harness.processes.java import __main__ as java
from harness.processes.java.commands import MISSING
from harness.scenarios.golden import __main__ as golden


@pytest.mark.parametrize(("command", "words"), [
    (java, ("fetch", "run", "mqadmin", "QUORATE_CACHE", "Needs a JDK of version 11")),
    (golden, ("--version", "--out", "--raw", "needs a JDK of version 11")),
])
def test_help_teaches(command: ModuleType, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    said = capsys.readouterr().out
    for word in words:
        assert word in said


@pytest.mark.parametrize(("command", "arguments"), [
    (java, ["fetch"]), (java, ["run"]), (java, ["mqadmin", "clusterList"]), (golden, ["--out", "nowhere"]),
])
def test_without_java_it_was_not_run(
    command: ModuleType, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.main(arguments) == MISSING == 3
    assert capsys.readouterr().err.startswith("not run: java, javac, mvn not found; install a JDK")
