"""``python -m harness.processes.java``: exit codes and words, without Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.processes.java import __main__ as commands


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        commands.main(["--help"])
    said = capsys.readouterr().out
    for word in ("fetch", "run", "mqadmin", "record", "QUORATE_CACHE", "Needs a JDK of version 11"):
        assert word in said


@pytest.mark.parametrize("arguments", [
    ["fetch"], ["run"], ["mqadmin", "clusterList"], ["record", "--out", "nowhere"],
])
def test_without_java_it_was_not_run(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commands.main(arguments) == commands.MISSING == 3
    assert capsys.readouterr().err.startswith("not run: java, javac, mvn not found; install a JDK")
