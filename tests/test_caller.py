"""The tests end, and say the same, whoever starts them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
INTERRUPTED = "tests/controller/admin/test_commands.py::test_what_was_interrupted_is_not_done"
LIMIT_S = 240
"""For a hang; each of these takes seconds."""


def run(*arguments: str, ignored: tuple[signal.Signals, ...] = ()) -> tuple[int, str]:
    def dispositions() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, ignored)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments], cwd=ROOT, check=False,
        capture_output=True, text=True, timeout=LIMIT_S, preexec_fn=dispositions)
    return done.returncode, done.stdout + done.stderr


def test_signals_that_the_caller_ignores_and_blocks_are_heard() -> None:
    code, said = run(INTERRUPTED, ignored=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    assert (code, "2 passed" in said) == (0, True), said


def test_a_test_that_hangs_ends_and_shows_where(tmp_path: Path) -> None:
    path = tmp_path / "test_hangs.py"
    path.write_text("import threading\n\n\ndef test_hangs() -> None:\n    threading.Event().wait()\n")
    code, said = run("-c", "pyproject.toml", "-o", "faulthandler_timeout=1", str(path))
    assert code and "Timeout" in said and "test_hangs" in said, said
