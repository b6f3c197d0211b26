"""The tutorial about messages, done as it says on real processes. Only ports and the directory are our own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.processes.ports import reserved
from tests.docs.test_tutorial import STEP

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "first-messages.md"
PORT = "19876"
MODULES = {"mqcluster": "mqcluster.cli", "mqadmin": "controller.admin.cli"}


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    done: list[str] = []

    def run(*line: str) -> str:
        return subprocess.run([sys.executable, *line], cwd=tmp_path, capture_output=True, text=True, timeout=150,
                              env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True).stdout

    def command(line: str) -> str:
        name, *arguments = shlex.split(line)
        return run("-c", f"import sys; from {MODULES[name]} import main; sys.exit(main())", *arguments)

    with reserved(10, 11, 12, *(50 + 10 * broker + more for broker in range(6) for more in (-2, 0, 1))) as port:
        try:
            for step in STEP.finditer(PAGE.read_text()):
                verb, what, code = step["verb"], step["what"] or "", (step["code"] or "").replace(PORT, str(port))
                done.append(verb)
                if verb == "file":
                    (tmp_path / what).write_text(code)
                elif verb == "run":
                    assert run(*what.split()) == code
                elif verb == "cluster":
                    line = f"mqcluster {what}"
                    assert code == f"{line}\n"
                    command(line + (f" --port {port}" if what == "up" else ""))
                else:
                    assert verb == "admin"
                    said = "\n".join(command(each) for each in code.splitlines())
                    assert "orders@K@150" in said and "Consume Diff Total" in said
        finally:
            command("mqcluster down")
    assert len(done) == len(re.findall("^<!-- ", PAGE.read_text(), re.MULTILINE)) == 11
