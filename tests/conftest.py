"""Settings every test shares. It knows pytest, hypothesis and signals, and nothing of the packages under test.

Tests are deterministic: hypothesis draws from a fixed seed and keeps no database, so a red test is red everywhere.
``pytest --hypothesis-profile=deep`` searches wider, from a new seed each time, and prints what repeats a failure.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", deadline=None, database=None, max_examples=2_000, print_blob=True)
settings.load_profile("steady")

# Else this process, and each of the hundreds that it starts, compiles whatever it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Servers of ours are forks of a process that has imported them: harness/processes/forking.py
os.environ.setdefault("QUORATE_FORKS", "1")


def pytest_configure(config: pytest.Config) -> None:
    """Asserts are part of the product's checks: refuse to call a run without them green."""
    if not __debug__:
        raise pytest.UsageError("tests run with asserts on: drop -O and PYTHONOPTIMIZE")
    if threading.current_thread() is threading.main_thread():
        _hear_signals()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """It makes millions of objects and no garbage; they stay, and to look through them takes as long as many tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _logs_end_with_their_test() -> Generator[None]:
    """A server's ``main`` in this process logs to the stream of its test, which is closed when other threads log later.

    The traceback of that failure is parsed in their thread, and Python 3.11 then fails to parse in another.
    """
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _hear_signals() -> None:
    """As if started in a terminal: ``nohup`` and shells without job control ignore signals, and children inherit that.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
