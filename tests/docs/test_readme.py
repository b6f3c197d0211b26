"""The README's first program, run as it stands, and its commands, which must be targets of the Makefile."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.test_tutorial import free_ports

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_first_program_counts_across_restarts(tmp_path: Path) -> None:
    program = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(program) == 1
    (tmp_path / "counter.py").write_text(program[0].replace(":7000", f":{free_ports(1)[0]}"))
    for expected in ("1", "2"):
        done = subprocess.run([sys.executable, "counter.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                              env={"PYTHONPATH": str(ROOT)}, check=True)
        assert done.stdout.strip() == expected


def test_every_target_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert named and named <= targets
