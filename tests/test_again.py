"""``make test`` runs what failed once more, alone, and tells both; nothing else is forgiven."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ONCE = """
from pathlib import Path
def test_fails_once():
    here = Path(__file__).with_name("failed")
    if not here.exists():
        here.touch()
        raise AssertionError("this time only")
"""
ALWAYS = "def test_fails_always():\n    assert 1 > 2\n"


@pytest.mark.parametrize(("files", "passes", "again"), [
    ({"once": ONCE}, True, True), ({"once": ONCE, "always": ALWAYS}, False, True), ({"never": ""}, False, False)])
def test_what_failed_runs_once_more_and_nothing_else_is_forgiven(
        tmp_path: Path, files: dict[str, str], passes: bool, again: bool) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    for name in ("pyproject.toml", "raft/pyproject.toml", "constraints.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for stamp in (".created", ".dev"):
        (tmp_path / ".venv" / stamp).touch()
    for name, code in files.items():
        (tmp_path / f"test_{name}.py").write_text(code)
    own = ("MAKE", "MFLAGS", "PYTEST_")
    done = subprocess.run(
        ["make", "-f", str(ROOT / "Makefile"), "test", "TEST_WORKERS=2"], cwd=tmp_path, capture_output=True, text=True,
        timeout=120, check=False, env={key: value for key, value in os.environ.items() if not key.startswith(own)})
    assert (done.returncode == 0) == passes, done.stdout + done.stderr
    assert ("\n== again, alone" in done.stdout) == again, done.stdout
