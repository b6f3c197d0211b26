"""The common parts of both demos' command lines: their options, the directory of a run, and the report at its end."""

from __future__ import annotations

import argparse
import contextlib
import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import trio

from harness.demo.chronicle import FILE
from harness.demo.reporting import Reporter
from raft.command import INTERRUPTED

PATIENCE_S: Final = 60.0
"""Time after which a step has failed, even on a machine that is busy with other things."""


def parser(program: str, about: str, *, seconds: float) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(program, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seconds", type=float, default=seconds,
                      help="how long it goes on killing; default: %(default)s")
    made.add_argument("--seed", type=int, help="of the choice whom to kill; default: another each time")
    made.add_argument("--data", type=Path, help="directory to use (default: a new temporary one)")
    made.add_argument("--without-report", action="store_true", help="leave out the report on the controllers' logs")
    return made


def play(
    run: Callable[[argparse.Namespace, Path, Reporter], Awaitable[int]], arguments: argparse.Namespace,
) -> int:
    """``run`` in its directory, then the report, which it may have got ready. The exit code."""
    data = arguments.data or Path(tempfile.mkdtemp(prefix="quorate-demo-"))
    data.mkdir(parents=True, exist_ok=True)
    reporter = Reporter(data / "controllers", data / "report.html", data / FILE, print, not arguments.without_report)
    code = 1
    try:
        with _quiet("remoting", "broker"):
            code = trio.run(run, arguments, data, reporter)
        reporter.make()
        if code == 0 and not arguments.data:
            drop_stores(data)
    except* trio.TooSlowError:
        print(f"something did not come back within {PATIENCE_S:.0f} s: this is a bug; the logs are in {data}")
    except* KeyboardInterrupt:
        print(f"interrupted; the logs are in {data}")
        code = INTERRUPTED
    finally:
        reporter.close()
    return code


def drop_stores(data: Path) -> None:
    """Delete the brokers' stores, which nobody reads after a run that lost nothing: hundreds of megabytes a run."""
    for folder in data.glob("broker-*/"):
        for part in ("store", "device"):
            shutil.rmtree(folder / part, ignore_errors=True)
    shutil.rmtree(data / "store", ignore_errors=True)


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Silence log lines of broken connections: a demo breaks them on purpose."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
