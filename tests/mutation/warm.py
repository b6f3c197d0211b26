"""A process that has collected a module's tests and waits: for each mutant it forks, swaps the code and runs the tests.

Only those that run a changed line; first those that notice most in a second. A mutant costs a fork and no import.
Imports nothing of this project: the tree's own modules must be the first.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Final

import attrs
import pytest

from tests.mutation.forked import FORKS, FirstExample, enter, options
from tests.mutation.swapped import Swapper

GREEN, RED, NOT_SWAPPED = -1, -2, -3
"""Verdicts; a number from 0 on is that of the test that turned red. ``RED``: none had the time to."""
CPU_S: Final = 1.0
"""What a test may use beside ten times what it used unchanged. Then the mutant hangs: it is noticed."""
WALL_S: Final = 60.0

_Seen = tuple[str, float, frozenset[int], bool]
"""A ``Judge`` on its way."""


@attrs.frozen
class Judge:
    """One test on the module as it is."""

    name: str
    cpu_s: float
    """While its lines are looked at: somewhat more than else."""
    lines: frozenset[int]
    """Lines of the module that it runs."""
    red: bool


@attrs.frozen
class Measured:
    """What the unchanged tree says."""

    tests: list[Judge]
    imported: frozenset[int]
    """Lines of the module that run while it and its tests are imported."""
    kills: Counter[int] = attrs.field(factory=Counter)
    """Number of a test -> how many mutants it noticed so far."""

    def judges(self, lines: frozenset[int]) -> list[int]:
        """The tests that run one of these lines, the most kills per second first."""
        found = [number for number, test in enumerate(self.tests) if test.lines & lines]
        return sorted(found, key=lambda number: self.tests[number].cpu_s / (1 + self.kills[number]))


class Warm:
    """The other end of that process."""

    def __init__(self, tree: Path, module: str, tests: Sequence[str]) -> None:
        self._connection, there = FORKS.Pipe()
        self._process = FORKS.Process(target=_serve, args=(str(tree), module, list(tests), there))
        self._process.start()
        there.close()

    def measure(self) -> Measured | None:
        """None when the tests cannot even be collected."""
        try:
            self._connection.send(None)
            tests, imported = self._connection.recv()
        except (EOFError, OSError):
            return None
        return Measured([Judge(*each) for each in tests], imported)

    def judge(self, code: str, tests: Sequence[tuple[int, float]]) -> int:
        """How these tests (number, CPU seconds) take a changed module: a verdict."""
        self._connection.send((code, list(tests)))
        return int(self._connection.recv())

    def close(self) -> None:
        self._connection.close()
        self._process.join()


# --- inside --------------------------------------------------------------------------------------------------------


def _serve(tree: str, module: str, tests: list[str], connection: Connection) -> None:
    enter(tree)
    with lines_run(str(Path(tree, module))) as imported:
        pytest.main([*options(tree), *tests], plugins=[FirstExample(), _Judges(tree, module, connection, imported)])
    os._exit(0)


@contextmanager
def lines_run(file: str) -> Iterator[set[int]]:
    """Lines of this file that are run meanwhile."""
    lines: set[int] = set()

    def inside(frame: FrameType, event: str, argument: object) -> Any:
        lines.add(frame.f_lineno)
        return inside

    def calls(frame: FrameType, event: str, argument: object) -> Any:
        return inside if frame.f_code.co_filename == file else None

    before = sys.gettrace()
    sys.settrace(calls)
    try:
        yield lines
    finally:
        sys.settrace(before)


class _Judges:
    """Plugin: what is asked for is run instead of everything once."""

    def __init__(self, tree: str, module: str, connection: Connection, imported: set[int]) -> None:
        self._file, self._module, self._connection = Path(tree, module), module, connection
        self._imported = imported
        self._red = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._red |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        if session.testsfailed:
            return True
        importlib.import_module(self._module.removesuffix(".py").replace("/", "."))
        swapper = Swapper(str(self._file), self._file.read_text(encoding="utf-8"))
        gc.collect()
        gc.freeze()
        with suppress(EOFError):
            while True:
                asked = self._connection.recv()
                self._connection.send(
                    self._measure(session.items) if asked is None else self._judge(swapper, session.items, *asked))
        return True

    def _measure(self, items: list[pytest.Item]) -> tuple[list[_Seen], frozenset[int]]:
        return _forked(lambda: [self._look(*each) for each in _with_next(items)]), frozenset(self._imported)

    def _look(self, item: pytest.Item, following: pytest.Item | None) -> _Seen:
        with lines_run(str(self._file)) as lines:
            cpu_s, red = self._time(item, following)
        return item.nodeid, cpu_s, frozenset(lines), red

    def _time(self, item: pytest.Item, following: pytest.Item | None) -> tuple[float, bool]:
        self._red, began = False, time.process_time()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return time.process_time() - began, self._red

    def _judge(self, swapper: Swapper, items: list[pytest.Item], code: str, tests: list[tuple[int, float]]) -> int:
        def work() -> int:
            try:
                swapper.swap(code)
            except ValueError:
                return NOT_SWAPPED
            chosen = _with_next([items[number] for number, _ in tests])
            for (item, following), (number, cpu_s) in zip(chosen, tests, strict=True):
                signal.setitimer(signal.ITIMER_PROF, CPU_S + 10 * cpu_s)  # the kernel ends what hangs
                signal.setitimer(signal.ITIMER_REAL, WALL_S + 100 * cpu_s)
                if self._time(item, following)[1]:
                    return number
            return GREEN

        verdict = _forked(work)
        return RED if verdict is None else int(verdict)


def _with_next(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None][: len(items)], strict=True)


def _forked(work: Callable[[], Any]) -> Any:
    """What it returns in a process of its own, which is gone afterwards with all it started; None if it dies."""
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setsid()
                pickle.dump(work(), answer)
                answer.flush()
                code = 0
            finally:
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        answer.seek(0)
        return pickle.load(answer) if status == 0 else None  # noqa: S301  our own child wrote it
