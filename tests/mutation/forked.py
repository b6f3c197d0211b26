"""Tests of a tree in a process of its own that begins with what all runs import: half a second less for each mutant.

Imports nothing of this project: the tree's own modules must be the first.
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing import get_context
from pathlib import Path

PRELOADED = ("pytest", "trio", "trio.testing", "hypothesis", "hypothesis.stateful", "attrs", "cbor2", "google_crc32c",
             "trustme", "cryptography", "asyncio", "tests.mutation.forked")

AS_LOADED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Plugins that are loaded before pytest begins keep their plain assertions."""

_context = get_context("forkserver")
_context.set_forkserver_preload(list(PRELOADED))


def _run(tree: str, arguments: list[str]) -> None:
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
    import pytest

    code = int(pytest.main(arguments))
    import raft

    inside = Path(raft.__file__).resolve().is_relative_to(Path(tree).resolve())
    os._exit(code if inside else 99)


def run(tree: Path, tests: list[str], timeout_s: float) -> int | None:
    """pytest's exit code; None when it did not end in time."""
    arguments = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", *AS_LOADED, *tests]
    process = _context.Process(target=_run, args=(str(tree), arguments))
    process.start()
    process.join(timeout_s)
    if process.exitcode is None:
        assert process.pid is not None
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return None
    assert process.exitcode != 99, "the tests ran on the tree left alone"
    return process.exitcode
