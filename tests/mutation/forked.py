"""Tests of a tree in a process of its own that begins with what all runs import: half a second less for each run.

Imports nothing of this project: the tree's own modules must be the first.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import hypothesis
import pytest

PRELOADED: Final = (
    "pytest", "trio", "trio.testing", "hypothesis", "hypothesis.stateful", "hypothesis.strategies", "attrs", "cbor2",
    "google_crc32c", "trustme", "cryptography", "asyncio", "tests.mutation.forked", "tests.mutation.warm")

FORKS: Final = get_context("forkserver")
FORKS.set_forkserver_preload(list(PRELOADED))

ON_ANOTHER_TREE: Final = 99


class FirstExample:
    """Plugin: hypothesis reports the example it finds. Nobody reads it, so making it smaller is lost time."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        kept = [phase for phase in hypothesis.settings().phases
                if phase not in (hypothesis.Phase.shrink, hypothesis.Phase.explain)]
        hypothesis.settings.register_profile("found", hypothesis.settings(), phases=kept)
        hypothesis.settings.load_profile("found")


def enter(tree: str) -> None:
    """This process works in that tree, imports from it, and says nothing."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.chdir(tree)
    here = str(Path(__file__).resolve().parents[2])
    sys.path[:] = [tree, *(path for path in sys.path if path not in ("", here, tree))]
    os.environ["PYTHONPATH"] = tree
    for name in [name for name in sys.modules if name == "tests" or name.startswith("tests.")]:
        del sys.modules[name]


def options(tree: str | Path) -> list[str]:
    """pytest's. Plugins that are loaded before pytest begins keep their plain assertions."""
    return ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "--basetemp", f"{tree}/.tmp",
            "-W", "ignore::pytest.PytestAssertRewriteWarning"]


def _run(tree: str, tests: list[str]) -> None:
    enter(tree)
    code = int(pytest.main([*options(tree), *tests], plugins=[FirstExample()]))
    import raft

    inside = Path(raft.__file__).resolve().is_relative_to(Path(tree).resolve())
    os._exit(code if inside else ON_ANOTHER_TREE)


def run(tree: Path, tests: list[str], timeout_s: float) -> int | None:
    """pytest's exit code; None when it did not end in time."""
    process = FORKS.Process(target=_run, args=(str(tree), tests))
    process.start()
    process.join(timeout_s)
    if process.exitcode is None:
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return None
    assert process.exitcode != ON_ANOTHER_TREE, "the tests ran on the tree left alone"
    return process.exitcode
