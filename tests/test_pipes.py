"""Every command, into a pipe that nobody reads: no trace, no word of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from remoting.daemon.child import child

ROOT = Path(__file__).parents[1]


def scripts() -> dict[str, str]:
    """By name, where each command of both wheels begins; of quorate, behind the check of its packages."""
    quorate = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    raft = tomllib.loads((ROOT / "raft" / "pyproject.toml").read_text())["project"]
    return {**quorate["scripts"], **raft["scripts"]}


def unread(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and stderr of it, its output being a pipe whose other end is closed."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
                              cwd=ROOT)
    finally:
        os.close(writes)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", scripts())
def test_no_command_minds_that_nobody_reads_its_help(name: str) -> None:
    module, function = scripts()[name].split(":")
    script = f"import sys; sys.argv[0] = '/usr/bin/{name}'; from {module} import {function}; sys.exit({function}())"
    assert unread([sys.executable, "-c", script, "--help"]) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("line", [
    ["raft.sim.command", "--seed", "1", "--events", "2000", "--jobs", "1"],
    ["mqcluster.cli", "watch", "--once", "-n", "127.0.0.1:1"],
    ["controller.namesrv.cli", "-p"],
], ids=" ".join)
def test_no_command_minds_that_nobody_reads_what_it_says(line: list[str]) -> None:
    assert unread([*child(line[0]), *line[1:]]) == (0, "")
