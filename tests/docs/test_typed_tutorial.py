"""The tutorial on types, done as it says: its programs run, and two type checkers accept and refuse what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_tutorial import ROOT, STEP, Reader, free_ports

PAGE = ROOT / "docs" / "tutorial" / "typed-machine.md"


class TypedReader(Reader):
    """Checks types, too."""

    def check(self, names: str, commands: str) -> None:
        assert [line.split()[-2:] for line in commands.splitlines()] == [names.split()] * 2
        for checker in (self.mypy, self.pyright):
            assert checker(names.split()) == {}

    def refuse(self, name: str, code: str) -> None:
        lines = (self.folder / name).read_text().splitlines()
        marked = {number for number, line in enumerate(lines, 1) if "# wrong" in line}
        assert len(marked) == 6
        for checker in (self.mypy, self.pyright):
            assert checker([name]).keys() == marked

    def mypy(self, names: list[str]) -> dict[int, str]:
        """Errors by line."""
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy_cache", *names], cwd=self.folder,
            env=self.environment, capture_output=True, text=True, timeout=300, check=False)
        errors = re.findall(r"^\S+?:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
        found = {int(line): words for line, words in errors}
        assert done.returncode == bool(found), done.stdout + done.stderr
        return found

    def pyright(self, names: list[str]) -> dict[int, str]:
        """The same of basedpyright: pyright's engine, in a wheel that needs no download at its first run."""
        (self.folder / "pyright.json").write_text(json.dumps({"typeCheckingMode": "strict", "include": names}))
        done = subprocess.run(
            [sys.executable, "-m", "basedpyright", "--outputjson", "--project", "pyright.json", "--pythonpath",
             sys.executable], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300,
            check=False)
        report = json.loads(done.stdout)
        assert report["summary"]["filesAnalyzed"] == len(names), done.stdout
        return {each["range"]["start"]["line"] + 1: each["message"] for each in report["generalDiagnostics"]
                if each["severity"] == "error"}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[TypedReader]:
    someone = TypedReader(tmp_path, {"127.0.0.1:7000": f"127.0.0.1:{free_ports(1)[0]}"})
    yield someone
    someone.leave()


@pytest.mark.slow
def test_the_tutorial_on_types_does_what_it_says(reader: TypedReader) -> None:
    for step in STEP.finditer(PAGE.read_text()):
        reader.do(step["verb"], step["what"] or "", step["code"] or "")
    assert reader.steps == ["file", "file", "run", "check", "file", "refuse"]
