"""Runs a function of a test module in a sandbox: ``python -m tests.harness.nemesis.sandboxed MODULE FUNCTION FOLDER``.

It knows no fault. The function is given the folder, and is one of trio.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from harness.nemesis import sandbox

PATIENCE_S = 120


def run(function: Callable[[Path], Awaitable[None]], folder: Path, *, user: bool = False) -> None:
    """It must end well there; skipped, in words, where there are no sandboxes. ``user``: by a user namespace."""
    if why := sandbox.impossible():
        pytest.skip(f"NOT RUN: {why}")
    module = function.__module__
    command, environment = sandbox.program(__name__, [module, function.__name__, str(folder)])
    if user and "--user" not in command:
        command[1:1] = ["--user", "--map-root-user"]
        environment[sandbox.INSIDE] = "user"
    ran = subprocess.run(command, env=environment, cwd=Path(__file__).parents[3], capture_output=True, text=True,
                         check=False, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))
    trio.run(getattr(importlib.import_module(sys.argv[1]), sys.argv[2]), Path(sys.argv[3]))
